"""Errors in ops of gradients -> the line of the op they are the gradient of, values; under a session too."""

import functools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from wrecks import examined, frames_in, text_of

from tfdb import session
from tfdb.uncaught import exception_report

MATRIX = tf.TensorSpec([None, None])
frames_of = functools.partial(frames_in, __file__)


@tf.custom_gradient
def doubled_back(x: Any) -> Any:
    return x[:-1], lambda dy: tf.concat([dy, dy], 0)


def scaled(x: Any, weight: Any) -> Any:
    return x * weight


def test_a_gradient_op_is_at_the_line_of_its_forward_op_with_the_values_there() -> None:
    weight = tf.Variable([1.0, 2.0, 3.0])

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(doubled_back(scaled(x, weight)))
        return tape.gradient(loss, weight)

    wreck = examined(lambda: step(tf.constant([4.0, 5.0, 6.0])))
    *_, outer, inner = frames_of(wreck)
    assert inner.source == "return x * weight" and outer.source.startswith("loss = ")
    assert inner.names["x"].numpy().tolist() == [4.0, 5.0, 6.0]
    text = text_of(wreck)
    assert "the gradient of Mul" in text and "the gradient is computed at test_postmortem_gradients.py" in text
    report = exception_report(wreck).to_json()
    assert (report["forward_op"], report["phase"], report["function"]) == ("Mul", "gradient", "scaled")


def test_shapes_that_fail_in_the_gradient_first_are_told_at_the_forward_op() -> None:
    weight = tf.Variable(tf.ones([1, 4]))

    @tf.function(input_signature=[MATRIX, MATRIX])
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = x * weight
            loss = tf.reduce_mean(tf.square(hidden - y))
        return tape.gradient(loss, weight)

    wreck = examined(lambda: step(tf.ones([3, 4]), tf.ones([2, 4])))
    frame = frames_of(wreck)[-1]
    assert frame.source == "loss = tf.reduce_mean(tf.square(hidden - y))"
    assert frame.names["hidden"].shape == (3, 4)
    assert "hidden float32(3, 4)" in text_of(wreck) and "y float32(2, 4)" in text_of(wreck)


def test_a_gradient_that_cannot_be_traced_is_at_the_line_of_its_forward_op(armed: session.Session) -> None:
    weight = tf.Variable([1.0, 2.0, 3.0])

    @tf.custom_gradient
    def flipped(x: Any) -> Any:
        return tf.identity(x), lambda dy: dy[1:]

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            squashed = tf.sigmoid(x * weight)
            loss = tf.reduce_sum(flipped(squashed))
        return tape.gradient(loss, weight)

    wreck = examined(lambda: step(tf.ones([3])), armed.keeper)
    frame = frames_of(wreck)[-1]
    assert frame.source == "squashed = tf.sigmoid(x * weight)"
    assert frame.names["x"].numpy().tolist() == [1.0, 1.0, 1.0]
    assert "the gradient of Sigmoid" in text_of(wreck)


def test_an_op_that_the_optimizer_leaves_out_is_found(armed: session.Session) -> None:
    class Fixed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(4)

        def call(self, x: Any) -> Any:
            return tf.reshape(self.dense(x), [8, 4]) + tf.ones([8, 4])

    model = Fixed()
    model.compile("sgd", "mse")
    x, y = np.ones((20, 3), "float32"), np.ones((20, 4), "float32")
    wreck = examined(lambda: model.fit(x, y, batch_size=8, verbose=0), armed.keeper)
    text = text_of(wreck)
    assert frames_of(wreck)[-1].source.startswith("return tf.reshape(")
    assert "Reshape got 16 elements" in text and "batch 3 of 3" in text


def test_arguments_have_values_under_a_session_too(armed: session.Session) -> None:
    weight = tf.Variable(tf.ones([3, 2]))

    @tf.function
    def step(x: Any) -> Any:
        return tf.matmul(x, weight)

    wreck = examined(lambda: step(tf.constant(np.full((4, 3), 7.0))), armed.keeper)
    assert frames_of(wreck)[-1].names["x"].numpy().tolist() == [[7.0] * 3] * 4
    assert "values are computed from this call's arguments" in text_of(wreck)


@pytest.fixture
def checked_numerics() -> Iterator[None]:
    tf.debugging.enable_check_numerics()
    yield
    tf.debugging.disable_check_numerics()


@pytest.mark.usefixtures("checked_numerics")
def test_variables_that_the_failed_call_wrote_are_not_blamed_for_its_error() -> None:
    w = tf.Variable([1.0, 0.0])

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.math.log(w * x))
        w.assign_sub(0.1 * tape.gradient(loss, w))

    wreck = examined(lambda: step(tf.constant([1.0, 2.0])))
    if np.isfinite(bare(w)).all():  # TensorFlow may come to the check first
        assert wreck.origin is not None and wreck.origin.op == "Log"
        return
    assert wreck.origin is None
    assert frames_of(wreck)[-1].source == "loss = tf.reduce_sum(tf.math.log(w * x))"
    assert "wrote NaN or infinities to its variables" in text_of(wreck)


def bare(variable: tf.Variable) -> Any:
    """What a variable holds, read without the check."""
    tf.debugging.disable_check_numerics()
    return variable.numpy()


@pytest.mark.usefixtures("checked_numerics")
def test_a_variable_that_held_nan_before_the_call_is_named() -> None:
    w = tf.Variable([1.0, float("nan")], name="scale")
    step = tf.function(lambda x: tf.reduce_sum(w * x), autograph=False)
    wreck = examined(lambda: step(tf.constant([1.0, 2.0])))
    assert wreck.origin is not None and wreck.origin.phase == "variable"
    assert "scale holds 1 NaN of 2 values, the first at [1]" in text_of(wreck)
