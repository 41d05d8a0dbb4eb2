"""However a re-run ends, every state of the program is bit for bit as it was."""

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run
from walks import located

import tfdb
from tfdb import session
from transcripts import play


def everything(tf: Any, model: Any, optimizer: Any, others: list[Any]) -> list[bytes]:
    """All weights, slots, seeds, counters, metrics and random states, as bytes."""
    variables = [*model.variables, *optimizer.variables, *others]
    numbers = [np.asarray(value).tobytes() for value in variables]
    context = tf.random.get_global_generator().state.numpy().tobytes()
    python = repr((random.getstate(), np.random.get_state()[1].tolist())).encode()
    return [*numbers, context, python]


def stateful(tf: Any, ends: Callable[[], object]) -> tuple[Any, Callable[[], list[bytes]]]:
    """A step that draws, counts, trains, and calls `ends` at its end; and what tells the program's whole state."""
    import keras

    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.BatchNormalization()])
    optimizer = keras.optimizers.Adam(0.1)
    metric = keras.metrics.Mean()
    generator = tf.random.Generator.from_seed(3)
    count = tf.Variable(0, dtype=tf.int64, trainable=False)

    @tf.function
    def step(x: Any) -> Any:
        count.assign_add(1)
        with tf.GradientTape() as tape:
            noise = generator.normal([4]) + tf.random.uniform([4])
            loss = tf.reduce_mean(tf.square(model(x, training=True) + noise))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        metric.update_state(loss)
        tf.random.get_global_generator().normal([2])
        if tf.executing_eagerly():
            ends()
        return loss

    def state() -> list[bytes]:
        return everything(tf, model, optimizer, [*metric.variables, generator.state, count])

    return step, state


def interrupted() -> None:
    signal.raise_signal(signal.SIGINT)


def failing() -> None:
    raise ValueError("on purpose")


@pytest.mark.parametrize(
    ("ends", "typed", "told"),
    [
        (failing, "c", "re-run of step() ended with ValueError: on purpose at ..."),
        (interrupted, "c", "..."),
        (lambda: None, "c", "re-run of step() returned ..."),
        (lambda: None, "q", "re-run of step() ended by q"),
        (
            lambda: None,
            "unt @weights = model.trainable_variables@\n        ...\n        (tfdb) q",
            "re-run of step() ended by q",
        ),
        (
            lambda: None,
            "j @weights = model.trainable_variables@\n        ...\n        (tfdb) c",
            "re-run of step() ended with UnboundLocalError: ...",
        ),
    ],
)
def test_all_state_is_put_back(tf: Any, ends: Callable[[], object], typed: str, told: str) -> None:
    found: list[list[bytes]] = []
    draws: list[list[float]] = []

    def program(stop: bool) -> None:
        session._current[-1].arm()
        step, state = stateful(tf, ends)
        step(tf.ones([8, 3]))
        step(tf.ones([8, 3]))
        found.append(state())
        if stop:
            tfdb.set_trace()
        found.append(state())
        draws.append(tf.random.uniform([3]).numpy().tolist())

    output = play(lambda: program(True), f"""
        > ...program()
        -> found.append(state())
        (tfdb) rerun step
        ...
        -> count.assign_add(1)
        (tfdb) {located(typed, program)}
        ...
        {told}
        ...
        (tfdb) c
    """)  # fmt: skip
    play(lambda: program(False), "")
    assert found[0] == found[1], output
    assert draws[0] == draws[1]


TRACING = """
import tensorflow as tf

w = tf.Variable(1.0)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.stop_gradient(w) * x
    w.assign_add(x)
    return tape.gradient(loss, [w]), loss


step(tf.constant(2.0))
print("w is", float(w))
"""


def test_at_a_stop_while_tracing_the_re_run_is_eager(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TRACING)
    done = run("-m", "tfdb", "-w", "none", "program.py", typed="rerun\np float(x)\nc\nc\n", cwd=tmp_path)
    assert "-> with tf.GradientTape() as tape:\n(tfdb) 2.0" in done.stdout
    assert "put back: Variable (1 of 1 variables had changed)" in done.stdout
    assert "w is 3.0" in done.stdout
