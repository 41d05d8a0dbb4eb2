"""A program that tests for bad values itself: what it keeps from its weights is no fault, what it lets through is."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdb.gate import gate
from tfdb.report import Report
from tfdb.watching import Watching

BAD, STEPS = 2, 5


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Report]]:
    monkeypatch.setattr(gate, "scaling", False)  # an optimizer of another test's made tapes wait for it
    found: list[Report] = []
    watching = Watching(lambda trip, origin: found.append(origin.report))
    watching.start(["nan", "inf"])
    yield found
    watching.stop()


def zeroed(gradient: Any) -> Any:
    return [tf.where(tf.math.is_finite(each), each, tf.zeros_like(each)) for each in [gradient]][0]


def by_select(loss: Any, gradient: Any, update: Callable[[Any], Any]) -> None:
    update(tf.where(tf.math.is_nan(gradient) | tf.math.is_inf(gradient), tf.zeros_like(gradient), gradient))


def by_function(loss: Any, gradient: Any, update: Callable[[Any], Any]) -> None:
    update(zeroed(gradient))


def by_product(loss: Any, gradient: Any, update: Callable[[Any], Any]) -> None:
    good = tf.cast(tf.reduce_all(tf.math.is_finite(gradient)), tf.float32)
    update(tf.math.multiply_no_nan(gradient, good))


def by_leaving_out(loss: Any, gradient: Any, update: Callable[[Any], Any]) -> None:
    if tf.math.is_finite(loss):
        update(gradient)


def by_nothing(loss: Any, gradient: Any, update: Callable[[Any], Any]) -> None:
    update(gradient)


def by_a_message(loss: Any, gradient: Any, update: Callable[[Any], Any]) -> None:
    if not tf.math.is_finite(loss):
        tf.print("the loss is bad")
    update(gradient)


def by_clipping(loss: Any, gradient: Any, update: Callable[[Any], Any]) -> None:
    update(tf.clip_by_norm(gradient, 1.0))


def run(way: Callable[..., None], optimizer: Any, in_graph: bool) -> tuple[np.ndarray, int]:
    """The weights after some steps, and how many times the loss was bad."""
    weight = keras.Variable([1.0, 2.0])
    if optimizer is not None:
        optimizer.build([weight])

    def update(gradient: Any) -> None:
        if optimizer is not None:
            optimizer.apply_gradients([(gradient, weight)])
        else:
            weight.assign(weight - 0.1 * gradient)

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.math.log(tf.reduce_sum(weight.value * x))))
        way(loss, tape.gradient(loss, weight.value), update)
        return loss

    step = tf.function(train) if in_graph else train
    losses = [step(tf.zeros(2) if number == BAD else tf.ones(2)) for number in range(STEPS)]
    return np.asarray(weight), sum(not np.isfinite(loss) for loss in losses)


OPTIMIZERS = [None, keras.optimizers.SGD, keras.optimizers.Adam]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("way", [by_select, by_function, by_product, by_leaving_out])
def test_what_a_graph_masks_is_passed_over(way: Any, optimizer: Any, reports: Any, capsys: Any) -> None:
    weights, bad = run(way, optimizer and optimizer(0.1), True)
    assert np.isfinite(weights).all() and bad == 1
    assert not reports
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tfdb: the loss is")]
    assert len(said) == 1


@pytest.mark.parametrize("in_graph", [True, False])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("way", [by_nothing, by_a_message, by_clipping])
def test_what_reaches_the_weights_is_a_fault(way: Any, optimizer: Any, in_graph: bool, reports: Any) -> None:
    weights, _ = run(way, optimizer and optimizer(0.1), in_graph)
    assert not np.isfinite(weights).all()
    assert reports and reports[0].op == "Log"


def test_eager_code_that_masks_between_tape_and_update_is_passed_over(reports: Any) -> None:
    weight, optimizer = tf.Variable([1.0, 2.0]), keras.optimizers.SGD(0.1)
    for number in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.square(tf.math.log(tf.reduce_sum(weight * float(number != BAD))))
        gradient = tape.gradient(loss, weight)
        gradient = zeroed(gradient)
        optimizer.apply_gradients([(gradient, weight)])
    assert np.isfinite(weight).all() and not reports


def test_gradients_that_are_masked_on_their_way_into_a_sum_are_passed_over(reports: Any) -> None:
    weight, total = tf.Variable([1.0, 2.0]), tf.Variable([0.0, 0.0], trainable=False)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.math.log(weight * x))
        total.assign_add(zeroed(tape.gradient(loss, weight)))
        return loss

    assert [bool(np.isfinite(step(tf.constant(x)))) for x in (1.0, 0.0, 1.0)] == [True, False, True]
    assert np.isfinite(total).all() and not reports


def test_eager_code_that_leaves_on_a_bad_loss_is_stopped_before_it(reports: Any) -> None:
    weight = tf.Variable([1.0, 2.0])
    for number in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.square(tf.math.log(tf.reduce_sum(weight * float(number != BAD))))
        gradient = tape.gradient(loss, weight)
        if np.isinf(loss):
            break
        weight.assign_sub(0.1 * gradient)
    assert [report.op for report in reports] == ["Log"]


def test_masking_at_every_step_is_a_fault(reports: Any) -> None:
    weight = tf.Variable([0.0, 0.0])

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.square(tf.math.log(tf.reduce_sum(weight)))
        weight.assign_sub(zeroed(tape.gradient(loss, weight)))
        return loss

    for _ in range(20):
        step()
    assert [report.op for report in reports][:1] == ["Log"]
