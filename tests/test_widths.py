"""Every command's output at 60, 80 and 160 columns: no line is wider, but for what the program's own text forces."""

import re
from typing import Any

import pytest

import tfdb
from tfdb.prompt import Commands
from transcripts import record

pytestmark = pytest.mark.usefixtures("no_watch_left")
LOOKS = """
    pt features
    pt features -a
    pt features -r 0,1
    pt features --axis 1
    pt model_of_many_layers.trainable_variables
    pt {'first_of_the_keys': features, 'second_of_the_keys': [features, features * 1e-12]}
    pt nothing_of_this_name
    pt [0][1]
    lt
    lt -a
    lt -f nan
    lt -s size
    lt -f ((
    lt -s nonsense
    lt -t (
    ni MatMul
    ni dense/MatMul -a -t
    ni there_is_no_such_node_in_any_of_these_graphs_at_all_and_its_name_is_long
    li Mean
    li Mean -c -d 9
    lo MatMul
    lo MatMul -d x
    ps
    ps 1
    ps there_is_no_such_file_as_this_one_in_the_whole_of_this_program.py
    graph
    graph -a
    graph train_step
    graph features
    graph train_step, 7
    graph train_step(1, 2, 3, 4, 5, 6)
    retraces
    retraces train_step
    retraces print
    retraces model_of_many_layers
    hist features
    plot features
    plot 3
    tdiff features, features * 1.0001
    tdiff features, labels
    tdiff features
    watch
    watch nonsense beyond all understanding
    unwatch 77
    unwatch x
    grads
    grads -s nonsense
    why
    why features
    tape
    backward features
    full
    rerun -l
    rerun nothing_of_this_name
    compare nothing_of_this_name
    repro
    skip
    skip_hidden nonsense
    help
    help lt
    help pt
    help watch
    b op:NoOpOfThisNameAnywhere
    b layer:no_layer_of_this_name
    b nowhere.py:3
"""
FORCED = re.compile(r"\(tfdb\)|> .*\(\d+\)|-> |^\s+\(tfdb\)")  # typed lines, places, the program's source


def session(tf: Any, commands: list[str]) -> str:
    """What is printed at a stop in a graph with long names, after its call, and at a watch's stop."""
    import keras

    model_of_many_layers = keras.Sequential(
        [keras.layers.Dense(7, "relu", name=f"a_layer_with_a_long_name_{n}") for n in range(3)]
    )

    @tf.function
    def train_step(features: Any, labels: Any, a_rather_long_name_of_an_argument: int = 3) -> Any:
        with tf.GradientTape() as tape:
            predictions_of_the_model = model_of_many_layers(features, training=True)
            tfdb.set_trace(a_rather_long_name_of_an_argument == 3)
            loss_of_this_step = tf.reduce_mean(tf.square(predictions_of_the_model - labels)) + tf.reduce_sum(features)
        gradients = tape.gradient(loss_of_this_step, model_of_many_layers.trainable_variables)
        for gradient, variable in zip(gradients, model_of_many_layers.trainable_variables, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss_of_this_step

    def program() -> None:
        features, labels = tf.random.normal([5, 4]), tf.ones([5, 7])
        model_of_many_layers(features)
        train_step(features, labels)
        for a_rather_long_name_of_an_argument in range(4, 7):
            train_step(features, labels, a_rather_long_name_of_an_argument)
        tfdb.set_trace()
        train_step(features * float("inf"), labels, 4)

    typed = [*commands, "c", *commands, "watch nan", "c", *commands, "unwatch", "c"]
    output, raised = record(program, typed)
    assert raised is None, raised
    return output


@pytest.mark.parametrize("width", [60, 80, 160])
def test_no_line_is_wider_than_the_terminal(tf: Any, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(Commands, "fits", True)
    output = session(tf, [line.strip() for line in LOOKS.strip().splitlines()])
    assert output.count("(tfdb)") > 150
    breakable = [line for line in output.splitlines() if " " in line.strip() and not FORCED.match(line)]
    wide = [line for line in breakable if len(line) > width]
    assert not wide, "\n".join(wide)
    assert "Traceback" not in output
