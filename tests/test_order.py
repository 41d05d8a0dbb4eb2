"""Stops are in program order: each sees the variables as they are at that point, every time."""

from typing import Any

from stops import values, visits

import tfdb


class Box:
    """A plain object, so that nothing tells TensorFlow of the variable inside."""

    def __init__(self, tf: Any) -> None:
        self.count = tf.Variable(0)
        self.table = tf.Variable(tf.zeros([4], tf.int32))


def test_a_variable_assigned_between_two_stops_a_hundred_times(tf: Any) -> None:
    box = Box(tf)

    @tf.function
    def step(x: Any) -> Any:
        tfdb.set_trace()
        box.count.assign(x)
        tfdb.set_trace()
        box.count.assign_add(1000)
        return box.count + 0

    results = []

    def program() -> None:
        for number in range(1, 101):
            results.append(int(step(tf.constant(number))))

    expected = [(1000 + number - 1 if number > 1 else 0, number) for number in range(1, 101)]
    found = values(program, "box.count")
    assert list(zip(found[::2], found[1::2], strict=True)) == expected
    assert results == [number + 1000 for number in range(1, 101)]


def test_reads_writes_prints_and_asserts_around_stops(tf: Any) -> None:
    box = Box(tf)

    @tf.function
    def step(x: Any) -> Any:
        before = box.table.read_value()
        tfdb.set_trace()
        box.table.scatter_nd_update([[0]], [x])
        tf.debugging.assert_non_negative(box.table)
        if x > 1:
            box.table.assign_add([0, x, 0, 0])
            tfdb.set_trace()
        else:
            box.table.assign_add([0, 0, x, 0])
        tfdb.set_trace()
        return before

    results = []

    def program() -> None:
        results.extend(step(tf.constant(number)).numpy().tolist() for number in (1, 2))

    found = values(program, "before", "box.table")
    zero, one = [0, 0, 0, 0], [1, 0, 1, 0]
    assert found == [(zero, zero), (zero, one), (one, one), (one, [2, 2, 1, 0]), (one, [2, 2, 1, 0])]
    assert results == [zero, one]


def test_optimizer_updates_lie_between_the_stops_around_them(tf: Any) -> None:
    import keras

    weight = keras.Variable([2.0])
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build([weight])

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight.value**2)
        gradients = tape.gradient(loss, [weight.value])
        tfdb.set_trace()
        optimizer.apply(gradients, [weight])
        tfdb.set_trace()
        return loss

    found = values(lambda: [step() for _ in range(3)], "weight[0]", "gradients[0][0]", "optimizer.iterations")
    assert found == [(2, 4, 0), (0, 4, 1), (0, 0, 1), (0, 0, 2), (0, 0, 2), (0, 0, 3)]


def test_hooks_in_a_nested_function_hold_back_the_callers_assignment(tf: Any) -> None:
    box = Box(tf)

    @tf.function
    def inner() -> Any:
        tfdb.set_trace()
        return tf.constant(0)

    @tf.function
    def outer(x: Any) -> Any:
        box.count.assign(x)
        inner()
        box.count.assign(-x)
        inner()
        return x

    found = visits(lambda: [outer(tf.constant(number)) for number in range(1, 21)], "box.count", first=("u",))
    assert [visit.values[0] for visit in found] == [sign * number for number in range(1, 21) for sign in (1, -1)]
