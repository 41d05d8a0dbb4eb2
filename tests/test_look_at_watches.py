"""`lt`, `ni`, `graph`, `ps` at a watch's stop: the tensors of the step that tripped, NaN first."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfdb
from transcripts import play

pytestmark = pytest.mark.usefixtures("no_watch_left")
X = [[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]


def rows(output: str) -> list[str]:
    """The lines of tensors that `lt` printed."""
    return [line for line in output.splitlines() if re.match(r"  \S+ +[A-Z]\S+ +\S*:\d+ ", line)]


def wrapped(tf: Any, function: Callable[..., None], how: str) -> Callable[..., None]:
    """The function as it is, as a graph, or compiled by XLA."""
    return function if how == "eager" else tf.function(function, jit_compile=how == "XLA")


def by_hand(tf: Any, how: str) -> Callable[[], None]:
    """A loop whose third step has residuals of 0 below a root: its gradient is NaN."""
    w = tf.Variable([[0.5], [0.25]], name="w")

    def distance(a: Any, b: Any) -> Any:
        squares = tf.square(a - b)
        return tf.sqrt(squares)

    def train_step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(distance(tf.matmul(x, w), y))
        slope = tape.gradient(loss, w)
        w.assign_sub(0.1 * slope)

    step = wrapped(tf, train_step, how)

    def program() -> None:
        tfdb.set_trace()
        for number in range(4):
            x = tf.constant(X) * (number + 1.0)
            step(x, tf.matmul(x, w) if number == 2 else tf.fill([3, 1], 5.0))

    return program


@pytest.mark.parametrize("how", ["graph", "XLA", "eager"])
def test_a_loop_by_hand_at_watch_nan(tf: Any, how: str) -> None:
    output = play(
        by_hand(tf, how),
        """
        ...
        (tfdb) watch nan
        ...
        (tfdb) c
        NaN ...
        ...
        ->...tf.sqrt(squares)
        (tfdb) lt
        ... tensors of train_step · ... computed again...
        ...
        (tfdb) lt -t Square
        1 tensor of train_step · 1 computed again...
        ...
          Square Square :... float32(3, 1) ... all zeros
        (tfdb) ni SqrtGrad
        gradient_tape/SqrtGrad  SqrtGrad  float32(3, 1)
        ...
          values      float32(3, 1) ... inf 3, first at [0, 0]
        (tfdb) graph
        train_step...
        ...
        ->...tf.sqrt(squares)
        ...
        (tfdb) ps
        ...
        ->...tf.sqrt(squares)
             ...· Sqrt  Sqrt  float32(3, 1)
        (tfdb) unwatch
        ...
        (tfdb) c
        ...
        """,
    )
    found = rows(output.partition("(tfdb) lt\n")[2].partition("(tfdb)")[0])
    bad = [bool(re.search(r"\bnan\b", line)) for line in found]
    assert any(bad) and bad == sorted(bad, reverse=True), "those with NaN come first"
    assert not any("not available" in line for line in found)


@pytest.mark.parametrize("how", ["graph", "XLA", "eager"])
def test_a_loop_by_hand_at_a_threshold(tf: Any, how: str) -> None:
    play(
        by_hand(tf, how),
        """
        ...
        (tfdb) watch grad > 1.7
        ...
        (tfdb) c
        Gradients over a limit...
        ...
        (tfdb) lt
        ... tensors of train_step · ... computed again...
        train_step  (test_look_at_watches.py)
          MatMul ... MatMul ...:... float32(3, 1) ... [1, 2.5, 0.25]...
        ...
        (tfdb) lt -n L2Loss|tfdb
        0 tensors of train_step...
        no tensor matches
        (tfdb) ni Mean
        Mean  Mean  float32()
        ...
          values      float32() ... 3.75
        (tfdb) unwatch
        ...
        (tfdb) c
        ...
        """,
    )


def test_keras_fit_at_watch_nan(tf: Any) -> None:
    import keras

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = keras.layers.Dense(4, "relu", use_bias=False)
            self.top = keras.layers.Dense(1)
            self.drop = keras.layers.Dropout(0.2)

        def call(self, x: Any, training: bool = False) -> Any:
            h = self.drop(self.hidden(x), training=training)
            total = tf.reduce_sum(tf.square(self.hidden(x)), axis=1, keepdims=True)
            return self.top(h) + tf.math.log(total)

    x = np.random.default_rng(0).random((12, 3), np.float32)
    x[9] = 0.0
    model = Net()
    model.compile("adam", "mse")

    def program() -> None:
        tfdb.set_trace()
        model.fit(x, x[:, :1], batch_size=4, shuffle=False, verbose=0)

    output = play(
        program,
        """
        ...
        (tfdb) watch nan
        ...
        (tfdb) c
        NaN stopped before the update · step 3 ...
        ...
        -> return self.top(h) + tf.math.log(total)
        (tfdb) lt
        ... tensors of one_step_on_data · ... computed again
        ...
        (tfdb) lt -t Log
        1 tensor of one_step_on_data · 1 computed again
        ...
        ... Log ... -inf 1, first at [1, 0]
        (tfdb) lt -t IteratorGetNext
        2 tensors of one_step_on_data · 2 computed again
        ...
        (tfdb) ps
        ...
        ->...return self.top(h) + tf.math.log(total)
        ...
        ...Log  Log  float32(4, 1)
        ...
        (tfdb) unwatch
        ...
        (tfdb) c
        ...
        """,
    )
    found = rows(output.partition("(tfdb) lt\n")[2].partition("(tfdb)")[0])
    bad = [bool(re.search(r"\bnan\b", line)) for line in found]
    assert sum(bad) > 3 and bad == sorted(bad, reverse=True)


@pytest.mark.parametrize("per_call", [1, 2])
def test_keras_fit_at_a_threshold_draws_the_same_numbers_again(tf: Any, per_call: int) -> None:
    import keras

    model = keras.Sequential([keras.layers.Dense(3, name="first"), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=per_call)
    x = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")

    def program() -> None:
        tfdb.set_trace()
        model.fit(x, np.ones((12, 1), "float32"), batch_size=4, verbose=0, shuffle=False)

    stop = """
Gradients over a limit...
...
(tfdb) lt -n BiasAddGrad|stateless_dropout
... tensors of one_step_on_data · ... computed again
...
(tfdb) """
    output = play(program, f"...\n(tfdb) watch grad:first/bias > 1e-4\n...\n(tfdb) c{3 * (stop + 'c')}\n")
    assert "not available" not in output
    told = [float(norm) for norm in re.findall(r"first/bias ([\d.e-]+)$", output, re.M)]
    rows = re.findall(r"BiasAddGrad +BiasAddG\S* .*\[(.*)\]", output)
    norms = [np.linalg.norm([float(each) for each in row.split(",")]) for row in rows]
    assert len(norms) == 3
    np.testing.assert_allclose(norms, told, rtol=0.02)


def test_a_loop_over_a_dataset_at_a_threshold_has_the_state_of_its_pass(tf: Any) -> None:
    w, count = tf.Variable([[0.5], [0.25]], name="w"), tf.Variable(10.0, trainable=False)
    data = tf.data.Dataset.from_tensor_slices([[[1.0, 2.0]], [[3.0, 4.0]], [[30.0, 50.0]]])

    @tf.function
    def epoch(batches: Any) -> None:
        for x in batches:
            count.assign_add(1.0)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.matmul(x, w)) + tf.sqrt(count + 0.0)
            w.assign_sub(0.001 * tape.gradient(loss, w))

    def program() -> None:
        tfdb.set_trace()
        epoch(data)

    play(
        program,
        """
        ...
        (tfdb) watch grad > 50
        ...
        (tfdb) c
        Gradients over a limit...
        ...
        (tfdb) lt -t Sqrt|AddV2 -n ^(Sqrt|add_1)$
        2 tensors of ... · 2 computed again
        ...
          Sqrt ...float32() ...3.61
          add_1 ...float32() ...30.7
        (tfdb) unwatch
        ...
        (tfdb) c
        ...
        """,
    )


def test_a_loop_over_a_dataset_in_a_function(tf: Any) -> None:
    w = tf.Variable([[0.5], [0.25]], name="w")
    data = tf.data.Dataset.from_tensor_slices(([[[1.0, 2.0]], [[3.0, 4.0]], [[0.0, 0.0]]], [[[1.0]], [[2.0]], [[0.0]]]))

    @tf.function
    def epoch(batches: Any) -> None:
        for x, y in batches:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.sqrt(tf.square(tf.matmul(x, w) - y)))
            w.assign_sub(0.1 * tape.gradient(loss, w))

    def program() -> None:
        tfdb.set_trace()
        epoch(data)

    play(
        program,
        """
        ...
        (tfdb) watch nan
        ...
        (tfdb) c
        NaN stopped before the update...
        ...
        (tfdb) lt -t "Sqrt|SqrtGrad|Square"
        3 tensors of ... · 3 computed again
        ...
          gradient_tape/SqrtGrad SqrtGrad :... float32(1, 1) ... [inf]
          Square ... Square ... float32(1, 1) ... [0]
          Sqrt ... Sqrt ... float32(1, 1) ... [0]
        (tfdb) unwatch
        ...
        (tfdb) c
        ...
        """,
    )


def test_a_loop_over_a_range_says_that_the_pass_is_not_known(tf: Any) -> None:
    w = tf.Variable([2.0], name="w")

    @tf.function
    def run() -> None:
        for i in tf.range(3):
            with tf.GradientTape() as tape:
                loss = tf.sqrt(tf.reduce_sum(w * tf.cast(2 - i, tf.float32)))
            w.assign_sub(0.1 * tape.gradient(loss, w))

    def program() -> None:
        tfdb.set_trace()
        run()

    play(
        program,
        """
        ...
        (tfdb) watch nan
        ...
        (tfdb) c
        NaN stopped before the update...
        ...
        (tfdb) lt
        ... not available
        ...
          ... not available: ...
        ...
        (tfdb) unwatch
        ...
        (tfdb) c
        ...
        """,
    )


def test_looking_at_a_watchs_stop_changes_nothing(tf: Any) -> None:
    results = []
    for limit, commands in ((7.0, ""), (7.1, "(tfdb) lt\n...\n(tfdb) ni Mean\n...\n")):
        w = tf.Variable([[0.5], [0.25]])
        optimizer = tf.keras.optimizers.Adam(0.1)

        @tf.function
        def step(x: Any, w: Any = w, optimizer: Any = optimizer) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
            optimizer.apply_gradients([(tape.gradient(loss, w), w)])

        def program(w: Any = w, step: Any = step) -> None:
            tfdb.set_trace()
            for _ in range(3):
                step(tf.constant(X))
            print("ends")

        begin = f"...\n(tfdb) watch grad > {limit} every 9\n...\n(tfdb) c\nGradients over...\n...\n"
        play(program, f"{begin}{commands}(tfdb) c\nends")
        results.append(w.numpy())
    np.testing.assert_array_equal(results[0], results[1])


def test_weights_that_may_be_written_beside_the_gate_are_not_read_as_they_are_now(tf: Any) -> None:
    gated, scattered, added = tf.Variable(2.0), tf.Variable([3.0, 1.0]), tf.Variable(5.0)
    inputs = tf.constant(1.0), tf.constant(-1.0)

    @tf.function
    def step(x: Any, s: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(gated * x * scattered) * added
        slope = tape.gradient(loss, gated)
        for _ in range(20):
            s = tf.reduce_sum(tf.matmul(tf.ones((200, 200)), tf.ones((200, 200)) * s)) * 0 + s
        gated.assign_sub(0.1 * slope * tf.math.log(s))
        tf.raw_ops.ResourceScatterAdd(resource=scattered.handle, indices=[0], updates=tf.constant([10.0]))
        tf.raw_ops.AssignAddVariableOp(resource=added.handle, value=tf.constant(7.0))
        return loss

    def program() -> None:
        tfdb.set_trace()
        step(*inputs)

    play(
        program,
        """
        ...
        (tfdb) watch nan
        ...
        (tfdb) c
        NaN stopped before the update...
        ...
        (tfdb) lt -n ^mul(_[12])?$ -s time
        3 tensors of step · 1 computed again · 2 not available
        ...
          mul ... float32() cpu:0 4B  2
          mul_1 ... not available
          mul_2 ... not available
          2 not available: ... is written by this call, and what it held before...
        ...
        (tfdb) unwatch
        ...
        (tfdb) c
        """,
    )


@pytest.mark.parametrize("how", ["graph", "eager"])
@pytest.mark.parametrize(
    ("watch", "headline"),
    [
        ("loss > 0.1", "Loss over a limit, before the update · step 1 · train_step()"),
        ("loss < 99", "Loss under a limit, before the update · step 1 · train_step()"),
        ("grad < 99", "Gradients under a limit, before the update · step 1 · train_step()"),
        ("update > 1e-5", "Update over a limit, before the update · step 1 · train_step()"),
        ("loss > 0.1 and True", "A watch came true · step 1 · train_step()"),
    ],
)
def test_a_limits_headline_says_what_is_over_it_and_in_which_function(
    tf: Any, watch: str, headline: str, how: str
) -> None:
    play(
        by_hand(tf, how),
        f"...\n(tfdb) watch {watch}\n...\n(tfdb) c\n{headline}\n...\n(tfdb) unwatch\n...\n(tfdb) c\n...",
    )
