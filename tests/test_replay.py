"""The replay: from a trip to the op and the user's line, with live frames and every state put back."""

from collections.abc import Callable, Iterator
from inspect import currentframe

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdb import conditions, doors
from tfdb.gate import Trip, gate
from tfdb.replay import Origin, find_origin


@pytest.fixture
def origins() -> Iterator[list[Origin]]:
    """The origins of all trips while the test runs."""
    found: list[Origin] = []

    def on_trip(trip: Trip) -> None:
        found.append(find_origin(trip))

    doors.install([conditions.parse("nan"), conditions.parse("inf")], on_trip)
    yield found
    doors.uninstall()


def here() -> int:
    """The line of the caller."""
    frame = currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def test_what_a_replay_does_not_use_is_no_warning(origins: list[Origin], caplog: pytest.LogCaptureFixture) -> None:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        array = tf.TensorArray(tf.float32, 2)
        array.write(0, x)
        return tf.sqrt(x)

    step(tf.constant(-1.0))
    assert [origin.report.op for origin in origins] == ["Sqrt"]
    assert "never used" not in caplog.text
    tf.TensorArray(tf.float32, 2).write(0, 1.0)
    assert "never used" in caplog.text


def test_a_gradient_op_is_named_with_the_line_of_its_forward_op(origins: list[Origin]) -> None:
    v = tf.Variable([[3.0, 4.0], [0.0, 0.0]])

    @tf.function
    def step(scale: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            squares = tf.reduce_sum(tf.square(v * scale), 1)
            norm = tf.sqrt(squares)
            loss = tf.reduce_sum(norm)
        return tape.gradient(loss, v)

    step(tf.constant(2.0))
    line = step.python_function.__code__.co_firstlineno + 4
    report = origins[0].report
    assert (report.op, report.forward_op, report.phase) == ("SqrtGrad", "Sqrt", "gradient")
    assert report.line is not None and (report.line.line, report.line.function) == (line, "step")
    assert "squares is 0 at [1]" in report.cause
    frame = origins[0].frames[-1]
    np.testing.assert_array_equal(frame.locals["squares"], [100.0, 0.0])
    assert float(frame.locals["scale"]) == 2.0


def test_the_infinity_that_becomes_nan_is_the_origin(origins: list[Origin]) -> None:
    @tf.function
    def loss(p: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        logs = tf.math.log(p)
        return tf.reduce_sum(logs * y)

    loss(tf.constant([0.0, 1.0]), tf.constant([0.0, 1.0]))
    assert origins[0].report.op == "Log"
    assert "p is 0 at [0]" in origins[0].report.cause


def test_a_masked_softmax_is_blamed_and_not_its_mask(origins: list[Origin]) -> None:
    @tf.function
    def attend(x: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(tf.where(keep, x, float("-inf")))

    attend(tf.ones([2, 2]), tf.constant([[True, False], [False, False]]))
    assert origins[0].report.op == "Softmax"


def test_nan_in_the_batch_is_found_by_column_under_fit(origins: list[Origin]) -> None:
    x = np.ones((16, 3), "float32")
    x[9, 1] = np.nan
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    line = here() + 1
    model.fit(x, x[:, :1], batch_size=8, shuffle=False, verbose=0)
    report = origins[0].report
    assert report.phase == "data"
    assert report.line is not None and report.line.line == line
    assert "column 1, in 1 of 8 rows" in report.cause


def test_a_map_that_spoils_a_good_element_is_named(origins: list[Origin]) -> None:
    def prepare(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.math.log(x), x

    dataset = tf.data.Dataset.from_tensor_slices(np.array([[1.0], [2.0], [-3.0]], "float32")).map(prepare).batch(3)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(dataset, verbose=0)
    report = origins[0].report
    assert (report.op, report.phase) == ("Log", "data")
    assert report.line is not None and report.line.function == "prepare"


def test_an_op_of_a_built_in_layer_is_charged_to_the_layers_construction(origins: list[Origin]) -> None:
    line = here() + 1
    layer = keras.layers.Dense(2, activation="exponential")
    model = keras.Sequential([keras.Input((2,)), layer])
    layer.set_weights([np.full((2, 2), 100.0), np.zeros(2)])
    model.predict(np.ones((1, 2), "float32"), verbose=0)
    report = origins[0].report
    assert report.op == "Exp"
    assert report.line is not None and report.line.line == line
    assert report.detail is not None


def test_the_state_of_the_program_is_put_back(origins: list[Origin]) -> None:
    count = tf.Variable(0, trainable=False)
    mean = tf.Variable(0.0, trainable=False)

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        count.assign_add(1)
        mean.assign(0.5 * mean + tf.reduce_mean(x))
        return tf.sqrt(x)

    step(tf.constant([4.0]))
    step(tf.constant([-4.0]))
    assert len(origins) == 1
    assert (int(count), float(mean)) == (2, 4.0 * 0.5 - 4.0)


def eager_loop(step: Callable[[tf.Tensor], None]) -> None:
    for value in (1.0, 0.0):
        step(tf.constant([value]))


def test_an_eager_step_is_run_again_from_its_tape(origins: list[Origin]) -> None:
    w = tf.Variable([1.0])
    optimizer = keras.optimizers.SGD(0.1)

    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            p = x * w
            loss = tf.reduce_sum(p * tf.math.log(p))
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])

    eager_loop(step)
    report = origins[0].report
    assert report.op == "Log"
    assert report.line is not None and report.line.function == "step"


def test_nan_under_xla_alone_is_said_to_be_so(origins: list[Origin], monkeypatch: pytest.MonkeyPatch) -> None:
    v = tf.Variable([0.0, 4.0])
    at_stop: list[np.ndarray] = []
    on_trip = gate.on_trip
    monkeypatch.setattr(gate, "on_trip", lambda trip: (at_stop.append(v.numpy()), on_trip(trip)))

    @tf.function(jit_compile=True)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.where(v > 0, tf.sqrt(v), 0.0))
        v.assign_sub(tape.gradient(loss, v))
        return loss

    step()
    report = origins[0].report
    assert (report.op, report.forward_op) == ("SqrtGrad", "Sqrt")
    assert any("XLA only" in note for note in report.notes)
    np.testing.assert_array_equal(at_stop, [[0.0, 4.0]])
    np.testing.assert_array_equal(v.numpy(), [np.nan, 3.75])  # the program went on as it would have


@pytest.mark.parametrize("masked", [True, False])
def test_a_bad_result_is_called_masked_only_where_the_loss_is_finite(origins: list[Origin], masked: bool) -> None:
    v = tf.Variable([1.0, 2.0])

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logs = tf.math.log(v * x)
            loss = tf.reduce_sum(tf.where(x > 0, logs, 0.0) if masked else logs)
        v.assign_sub(tape.gradient(loss, v))

    step(tf.constant([1.0, 0.0]))
    report = origins[0].report
    assert report.op == "Log"
    assert "is 0 at [1]: its log is minus infinity" in report.cause
    assert ("masked" in report.cause) is masked


def test_the_report_is_plain_json(origins: list[Origin]) -> None:
    tf.function(lambda x: tf.sqrt(x))(tf.constant([-1.0]))
    report = origins[0].report.to_json()
    assert report["schema"] == 1
    assert (report["reason"], report["op"], report["phase"]) == ("nan", "Sqrt", "forward")
    assert report["line"] == report["stack"][-1]["line"]
