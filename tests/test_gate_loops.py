"""Training loops in the graph: each pass over an element of a dataset is a step of its own, for gate and replay."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdb import conditions, doors
from tfdb.gate import Trip
from tfdb.replay import Origin, find_origin

BAD = 7


class Seen:
    """The first trip's origin, and what variables held while it was told."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        self.weights: list[np.ndarray] = []

    def on_trip(self, trip: Trip) -> None:
        if not self.origins:
            self.weights.append(w.numpy())
            self.origins.append(find_origin(trip))
            self.weights.append(w.numpy())


w = tf.Variable([[1.0], [1.0]])
average = tf.Variable(0.0, trainable=False)


@pytest.fixture
def seen() -> Iterator[Seen]:
    found = Seen()
    w.assign([[1.0], [1.0]])
    average.assign(0.0)
    doors.install([conditions.parse("nan")], found.on_trip)
    yield found
    doors.uninstall()


def dataset() -> tf.data.Dataset:
    x = np.arange(24, dtype="float32").reshape(12, 2) + 1.0
    x[BAD] = 0
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(2)


def length(h: Any) -> Any:
    squares = tf.reduce_sum(h * h, 1)
    if tf.reduce_sum(squares) < -1.0:
        squares = -squares
    return tf.sqrt(squares)


def one_step(x: Any, y: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(length(x * tf.reduce_sum(w))) + tf.reduce_mean(y)
    gradient = tape.gradient(loss, w)
    average.assign(0.9 * average + loss)
    w.assign_sub(1e-3 * gradient)
    return loss


def over_dataset(data: Any) -> Any:
    total = 0.0
    for x, y in data:
        total += one_step(x, y)
    return total


def with_break(data: Any) -> Any:
    for x, y in data:
        if tf.reduce_sum(y) < -5.0:
            break
        one_step(x, y)


def with_epochs(data: Any) -> Any:
    for _ in tf.range(2):
        for x, y in data:
            one_step(x, y)


def enumerated(data: Any) -> Any:
    for number, (x, y) in enumerate(data):
        one_step(x, y + tf.cast(number, tf.float32))


def zipped(data: Any) -> Any:
    for (x, _), (_, y) in zip(data, data.map(lambda a, b: (a, b))):  # noqa: B905
        one_step(x, y)


def over_iterator(iterator: Any) -> Any:
    for x, y in iterator:
        one_step(x, y)


def by_next(iterator: Any) -> Any:
    for _ in tf.range(6):
        x, y = next(iterator)
        one_step(x, y)


nested_step = tf.function(one_step)


def nested(data: Any) -> Any:
    for x, y in data:
        nested_step(x, y)


@pytest.mark.parametrize("loop", [over_dataset, with_break, with_epochs, enumerated, zipped, nested])
def test_a_loop_over_a_dataset_is_stopped_at_the_pass_that_went_bad(seen: Seen, loop: Callable[[Any], Any]) -> None:
    tf.function(loop)(dataset())
    check(seen)


@pytest.mark.parametrize("loop", [over_iterator, by_next])
def test_a_loop_over_an_iterator_is_too(seen: Seen, loop: Callable[[Any], Any]) -> None:
    tf.function(loop)(iter(dataset()))
    check(seen)


def check(seen: Seen) -> None:
    report = seen.origins[0].report
    assert (report.op, report.forward_op) == ("SqrtGrad", "Sqrt")
    assert report.line is not None and report.line.function == "length"
    assert "squares is 0 at [1]" in report.cause
    assert [np.isfinite(values).all() for values in seen.weights] == [True, True]
    np.testing.assert_array_equal(*seen.weights)


def test_the_state_of_the_pass_is_that_of_its_own_start(seen: Seen) -> None:
    limit = tf.Variable(2.0, trainable=False)

    @tf.function
    def loop(data: Any) -> None:
        for x in data:
            limit.assign_sub(1.0)
            w.assign_sub(x * tf.sqrt(limit))

    loop(tf.data.Dataset.from_tensor_slices(np.ones((4, 2, 1), "float32")))
    report = seen.origins[0].report
    assert report.op == "Sqrt"
    assert "is -1:" in report.cause


@pytest.mark.parametrize("by_iterator", [False, True])
def test_a_healthy_loop_is_the_same_bit_for_bit(seen: Seen, by_iterator: bool) -> None:
    def trained() -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Dense(8, "relu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
        model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(1e-2)
        optimizer.build(model.trainable_variables)

        @tf.function
        def loop(data: Any) -> None:
            for x in data:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(model(x, training=True) - x[:, :1]))
                optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

        x = np.random.default_rng(0).normal(size=(128, 4)).astype("float32")
        data = tf.data.Dataset.from_tensor_slices(x).batch(4)
        loop(iter(data) if by_iterator else data)
        return [np.asarray(variable) for variable in [*model.variables, *optimizer.variables]]

    watched = trained()
    doors.uninstall()
    assert all(np.array_equal(a, b) for a, b in zip(watched, trained(), strict=True))
    assert not seen.origins
