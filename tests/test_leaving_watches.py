"""At a watch's stop steps are refused, the stack tells callers from frames that are over, and steps are counted on."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfdb
from transcripts import play

pytestmark = pytest.mark.usefixtures("no_watch_left")
CONDITIONS = ["nan", "grad > 5", "grad:w > 5", "loss > 5", "tf.reduce_max(x) > 5"]
BAD = 2


def batches(condition: str) -> list[np.ndarray]:
    """Four batches, of which one meets the condition."""
    made = [np.full((2, 1), 1.0 + number / 8, np.float32) for number in range(4)]
    made[BAD][1] = 0.0 if condition == "nan" else 10.0
    return made


def residual(tf: Any, x: Any, w: Any) -> Any:
    """A loss that grows with x, and whose gradient is NaN where x is 0."""
    return tf.reduce_mean(tf.sqrt(tf.square(x * w)) * 2.0)


def loop(tf: Any, condition: str, in_graph: bool) -> tuple[Callable[[], None], list[np.ndarray]]:
    """A loop by hand, and the weight before each of its steps."""
    w = tf.Variable([[1.0]], name="w")
    seen: list[np.ndarray] = []

    def train_step(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = residual(tf, x, w)
        gradient = tape.gradient(loss, w)
        w.assign_sub(0.01 * gradient)

    step = tf.function(train_step) if in_graph else train_step

    def program() -> None:
        tfdb.watch(condition)
        for x in batches(condition):
            seen.append(w.numpy())
            step(tf.constant(x))
        seen.append(w.numpy())

    return program, seen


def fit(tf: Any, condition: str, in_graph: bool) -> tuple[Callable[[], None], list[np.ndarray]]:
    """The same by `fit`."""
    import keras

    class Line(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.w = self.add_weight(shape=(1, 1), initializer="ones", name="w")

        def call(self, x: Any) -> Any:
            return tf.sqrt(tf.square(x * self.w)) * 2.0

    seen: list[np.ndarray] = []

    class Seen(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            seen.append(np.asarray(self.model.w))

        on_train_end = lambda self, logs=None: self.on_train_batch_begin(0)  # noqa: E731

    model = Line()
    model.compile(keras.optimizers.SGD(0.01), lambda y, p: p, run_eagerly=not in_graph)

    def program() -> None:
        tfdb.watch(condition)
        x = np.concatenate(batches(condition))
        model.fit(x, np.zeros_like(x), batch_size=2, shuffle=False, verbose=0, callbacks=[Seen()])

    return program, seen


@pytest.mark.parametrize("in_graph", [True, False], ids=["graph", "eager"])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("made", [loop, fit])
def test_a_step_at_a_watch_is_refused(tf: Any, made: Any, condition: str, in_graph: bool) -> None:
    if made is fit and "x)" in condition:
        condition = "grad.max > 5"  # `fit` has no x where it applies gradients
    program, seen = made(tf, condition, in_graph)
    more = "rerun steps through this call" if in_graph else "b LINE and c stop at the next pass"
    skip = ", skip goes on without it" if in_graph or condition == "nan" else ""
    refusal = f"cannot step on from a watch's stop: c goes on with the update{skip}, {more}"
    words = ("n", "s", "r", "unt", "unt 1000", "next", "step", "return", "until")
    short = {"next": "n", "step": "s", "return": "r", "until": "unt"}
    lines = [f"(tfdb) {word}\n*** {short.get(word, word.split()[0])} {refusal}" for word in words]
    play(program, "\n".join(["...", *lines, "(tfdb) c", "..."]))
    assert len(seen) == 5
    assert not np.array_equal(seen[BAD], seen[BAD + 1], equal_nan=True)


@pytest.mark.parametrize("in_graph", [True, False], ids=["graph", "eager"])
def test_the_stack_tells_forward_frames_from_callers(tf: Any, in_graph: bool) -> None:
    program, _ = loop(tf, "loss > 5", in_graph)
    output = play(
        program,
        """
        ...
        (tfdb) w
        ...
        ...train_step()  (forward, done: not a caller)
        -> loss = residual(tf, x, w)
        > ...train_step()
        -> w.assign_sub(0.01 * gradient)
        (tfdb) u
        > ...train_step()  (forward, done: not a caller)
        -> loss = residual(tf, x, w)
        (tfdb) u
        > ...program()
        -> step(tf.constant(x))
        (tfdb) c
        """
        if not in_graph
        else """
        ...
        (tfdb) w
        ...
        ...  (forward, done: not a caller)
        -> ...
        > ...train_step()
        -> w.assign_sub(0.01 * gradient)
        (tfdb) u
        > ...  (forward, done: not a caller)
        -> ...
        (tfdb) c
        """,
    )
    assert "program()  (forward" not in output


@pytest.mark.parametrize("condition", CONDITIONS)
def test_steps_are_counted_on_when_the_function_is_traced_again(tf: Any, condition: str) -> None:
    w = tf.Variable([[1.0]], name="w")

    @tf.function
    def train_step(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = residual(tf, x, w)
        w.assign_sub(0.001 * tape.gradient(loss, w))

    line = train_step.python_function.__code__.co_firstlineno + 4

    def program() -> None:
        tfdb.watch(condition)
        for x in batches(condition) * 2:
            train_step(tf.constant(x))

    play(
        program,
        f"""
        ...step {BAD + 1}...
        ...
        (tfdb) b {line}
        Breakpoint 1 at ...
        (tfdb) skip
        ...
        (tfdb) disable 1
        ...
        (tfdb) c
        ...step {BAD + 5}...
        ...
        (tfdb) skip
        ...
        """,
    )
