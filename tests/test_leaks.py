"""A tensor that left one tf.function and was used by another: both lines are told, and the prompt is at the use."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from wrecks import examined, frames_in, text_of

from tfdb.kept import Keeper
from tfdb.uncaught import exception_report


class Box:
    kept: Any = None


box = Box()
seen: list[Any] = []
last: Any = None


@tf.function
def leaking(x: Any) -> Any:
    global last
    last = x + 1.0
    box.kept = x * 2.0
    seen.append(tf.square(x))
    return x


def helper(y: Any) -> Any:
    return tf.concat([y, last], 0)


@tf.function
def inner(y: Any) -> Any:
    return y - box.kept


def of_attribute() -> Any:
    @tf.function
    def using(y: Any) -> Any:
        z = y + 1.0
        return z * box.kept

    return using(tf.ones([2]))


def of_list() -> Any:
    @tf.function
    def using() -> Any:
        return tf.add_n(seen[:1])

    return using()


def in_branch() -> Any:
    @tf.function
    def using(y: Any) -> Any:
        if tf.reduce_sum(y) > 0.0:
            y = helper(y)
        else:
            y = tf.concat([y, y], 0)
        return y

    return using(tf.ones([2]))


def in_loop() -> Any:
    @tf.function
    def using(n: Any) -> Any:
        total = tf.zeros([2])
        for _ in tf.range(n):
            total += box.kept
        return total

    return using(3)


def in_called_function() -> Any:
    @tf.function
    def using(y: Any) -> Any:
        return inner(y)

    return using(tf.ones([2]))


def under_tape() -> Any:
    weight = tf.Variable(1.0)

    @tf.function
    def using() -> Any:
        return weight * box.kept

    with tf.GradientTape():
        return using()


def in_dataset() -> Any:
    return tf.data.Dataset.range(2).map(lambda n: tf.cast(n, tf.float32) + box.kept)


CASES = [
    (of_attribute, "box.kept", "box.kept = x * 2.0", "return z * box.kept"),
    (of_list, "seen[0]", "seen.append(tf.square(x))", "return tf.add_n(seen[:1])"),
    (in_branch, "last", "last = x + 1.0", "return tf.concat([y, last], 0)"),
    (in_loop, "box.kept", "box.kept = x * 2.0", "total += box.kept"),
    (in_called_function, "box.kept", "box.kept = x * 2.0", "return y - box.kept"),
    (under_tape, "box.kept", "box.kept = x * 2.0", "return weight * box.kept"),
    (in_dataset, "box.kept", "box.kept = x * 2.0", "map(lambda n: tf.cast(n, tf.float32) + box.kept)"),
]


@pytest.mark.parametrize(("use", "name", "made", "used"), CASES)
def test_both_lines_are_told(keeper: Keeper, use: Callable[[], Any], name: str, made: str, used: str) -> None:
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    leaking(tf.ones([2]))
    wreck = examined(use, keeper)
    made_at = next(number for number, line in enumerate(lines, 1) if line.strip() == made)
    text = text_of(wreck)
    assert f"{name} is a symbolic tensor of the graph of leaking(): test_leaks.py:{made_at} kept it" in text
    frame = frames_in(__file__, wreck)[-1]
    assert used in frame.source
    report = exception_report(wreck)
    assert report.line is not None
    assert used in lines[report.line.line - 1]
    assert f"test_leaks.py:{report.line.line} uses it outside" in text
