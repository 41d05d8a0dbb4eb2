"""set_trace() in functions that TensorFlow calls by itself: datasets, maps, scans, gradients."""

from typing import Any

import pytest
from stops import values, visits

import tfdb


def test_dataset_map(tf: Any) -> None:
    def double(x: Any) -> Any:
        y = x * 2
        tfdb.set_trace()
        return y

    results = []
    found = visits(lambda: results.extend(tf.data.Dataset.range(3).map(double).as_numpy_iterator()), "x", "y")
    assert [visit.values for visit in found] == [(0, 0), (1, 2), (2, 4)]
    assert found[0].place == "double: tfdb.set_trace()"
    assert results == [0, 2, 4]


def test_dataset_lambda_calling_a_function(tf: Any) -> None:
    def parse(x: Any) -> Any:
        tfdb.set_trace()
        return x + 1

    found = visits(lambda: list(tf.data.Dataset.range(2).map(lambda x: {"value": parse(x)})), "x")
    assert [visit.values for visit in found] == [(0,), (1,)]
    assert found[0].stack[-2].startswith("<lambda>: found = visits(lambda: list(tf.data")


@pytest.mark.parametrize("calls", [2, None])
def test_parallel_dataset_map_queues(tf: Any, calls: int | None) -> None:
    def double(x: Any) -> Any:
        y = x * 2
        tfdb.set_trace()
        return y

    results = []

    def program() -> None:
        dataset = tf.data.Dataset.range(6).map(double, num_parallel_calls=calls or tf.data.AUTOTUNE)
        results.extend(dataset.as_numpy_iterator())

    assert sorted(values(program, "x", "y")) == [(n, 2 * n) for n in range(6)]
    assert results == [0, 2, 4, 6, 8, 10]


def test_dataset_filter_reduce_flat_map_interleave_scan(tf: Any) -> None:
    def odd(x: Any) -> Any:
        rest = x % 2
        tfdb.set_trace()
        return rest == 1

    def add(total: Any, x: Any) -> Any:
        tfdb.set_trace()
        return total + x

    def pair(x: Any) -> Any:
        tfdb.set_trace()
        return tf.data.Dataset.from_tensors(x).repeat(2)

    def program() -> None:
        dataset = tf.data.Dataset.range(4).filter(odd).flat_map(pair)
        assert int(dataset.reduce(tf.constant(0, tf.int64), add)) == 8

    found = visits(program, "x", "locals().get('rest')", "locals().get('total')")
    # tf.data may prefetch, so that only each function's own stops are in order.
    seen = {name: [visit.values for visit in found if visit.place.startswith(name)] for name in ("odd", "pair", "add")}
    assert seen == {
        "odd": [(0, 0, None), (1, 1, None), (2, 0, None), (3, 1, None)],
        "pair": [(1, None, None), (3, None, None)],
        "add": [(1, None, 0), (1, None, 1), (3, None, 2), (3, None, 5)],
    }


def test_dataset_interleave(tf: Any) -> None:
    def pair(x: Any) -> Any:
        tfdb.set_trace()
        return tf.data.Dataset.from_tensors(x * 10)

    def program() -> None:
        dataset = tf.data.Dataset.range(3).interleave(pair, cycle_length=2)
        assert list(dataset.as_numpy_iterator()) == [0, 10, 20]

    assert values(program, "x") == [0, 1, 2]


def test_dataset_from_generator_stops_in_python(tf: Any) -> None:
    def numbers() -> Any:
        for number in range(2):
            tfdb.set_trace()
            yield number

    def program() -> None:
        dataset = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int32))
        assert list(dataset.as_numpy_iterator()) == [0, 1]

    assert values(program, "number") == [0, 1]


def test_py_function_stops_in_python(tf: Any) -> None:
    def body(x: Any) -> Any:
        tfdb.set_trace()
        return x + 1

    @tf.function
    def caller(x: Any) -> Any:
        return tf.py_function(body, [x], tf.float32)

    results = []
    assert values(lambda: results.append(float(caller(tf.constant(1.0)))), "x") == [1.0]
    assert results == [2.0]


def test_dataset_map_with_a_function_and_python_state(tf: Any) -> None:
    class Scaler:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def scale(self, x: Any) -> Any:
            y = tf.cast(x, tf.float32) * self.factor
            tfdb.set_trace()
            return y

    def program() -> None:
        list(tf.data.Dataset.range(2).map(tf.function(Scaler(1.5).scale)))

    found = visits(program, "self.factor", "y")
    assert [visit.values for visit in found] == [(1.5, 0.0), (1.5, 1.5)]


def test_dataset_inside_a_function(tf: Any) -> None:
    @tf.function
    def total(limit: Any) -> Any:
        result = tf.constant(0, tf.int64)
        for x in tf.data.Dataset.range(limit).map(square):
            result += x
            tfdb.set_trace()
        return result

    def square(x: Any) -> Any:
        y = x * x
        tfdb.set_trace()
        return y

    found = visits(lambda: total(tf.constant(3, tf.int64)), "x", "locals().get('y')", "locals().get('result')")
    assert [visit.values for visit in found if visit.place.startswith("total")] == [
        (0, None, 0),
        (1, None, 1),
        (4, None, 5),
    ]
    assert [visit.values for visit in found if visit.place.startswith("square")] == [
        (0, 0, None),
        (1, 1, None),
        (2, 4, None),
    ]


@pytest.mark.parametrize("graph", [False, True])
def test_map_fn_and_scan(tf: Any, graph: bool) -> None:
    def square(x: Any) -> Any:
        y = x * x
        tfdb.set_trace()
        return y

    def add(total: Any, x: Any) -> Any:
        tfdb.set_trace()
        return total + x

    def both(xs: Any) -> Any:
        return tf.scan(add, tf.map_fn(square, xs), initializer=tf.constant(0.0))

    called = tf.function(both) if graph else both
    results = []
    found = visits(
        lambda: results.append(called(tf.constant([1.0, 2.0])).numpy().tolist()), "x", "locals().get('total')"
    )
    assert [visit.values for visit in found] == [(1, None), (2, None), (1, 0), (4, 1)]
    assert results == [[1.0, 5.0]]


def test_vectorized_map_keeps_its_results(tf: Any) -> None:
    def square(x: Any) -> Any:
        y = x * x
        tfdb.set_trace()
        return y

    @tf.function
    def both(xs: Any) -> Any:
        return tf.vectorized_map(square, xs)

    results = []
    visits(lambda: results.append(both(tf.constant([1.0, 2.0])).numpy().tolist()))
    assert results == [[1.0, 4.0]]


def test_vectorized_map_of_a_function_that_holds_stops(tf: Any) -> None:
    @tf.function
    def square(x: Any) -> Any:
        y = x * x
        tfdb.set_trace()
        return y

    results = []

    def program() -> None:
        square(tf.constant(3.0))
        results.append(tf.vectorized_map(square, tf.constant([1.0, 2.0])).numpy().tolist())

    assert values(program, "y")[0] == 9.0
    assert results == [[1.0, 4.0]]


@pytest.mark.parametrize("graph", [False, True])
def test_under_tapes_gradients_are_the_same(tf: Any, graph: bool) -> None:
    v = tf.Variable(3.0)

    def second_order(stop: bool) -> Any:
        def derivatives(x: Any) -> Any:
            with tf.GradientTape(persistent=True) as outer:
                with tf.GradientTape() as inner:
                    y = v * v * v * x
                    if stop:
                        tfdb.set_trace()
                slope = inner.gradient(y, v)
                z = slope * 2
                if stop:
                    tfdb.set_trace()
            return outer.gradient(slope, v), outer.gradient(z, v)

        return tf.function(derivatives) if graph else derivatives

    expected = [float(each) for each in second_order(False)(tf.constant(2.0))]
    results = []

    def program() -> None:
        results.extend(float(each) for each in second_order(True)(tf.constant(2.0)))

    found = values(program, "y", "locals().get('slope')", "v")
    assert found == [(54.0, None, 3.0), (54.0, 54.0, 3.0)]
    assert results == expected == [36.0, 72.0]


def test_gradient_of_a_function_that_stops(tf: Any) -> None:
    @tf.function
    def cube(x: Any) -> Any:
        y = x**3
        tfdb.set_trace()
        return y

    @tf.function
    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = cube(x)
        return tape.gradient(y, x)

    results = []

    def program() -> None:
        for number in (1.0, 2.0):
            x = tf.constant(number)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = cube(x)
            results.append(float(tape.gradient(y, x)))
            results.append(float(slope(x)))

    found = visits(program, "y")
    assert [visit.values for visit in found] == [(1.0,), (1.0,), (8.0,), (8.0,)]
    assert found[1].stack[-2:] == ("slope: y = cube(x)", "cube: tfdb.set_trace()")
    assert results == [3.0, 3.0, 12.0, 12.0]


@pytest.mark.parametrize("graph", [False, True])
def test_custom_gradient_forward_and_backward(tf: Any, graph: bool) -> None:
    @tf.custom_gradient
    def clipped(x: Any) -> Any:
        y = x * 2
        tfdb.set_trace()

        def grad(upstream: Any) -> Any:
            g = upstream * 10
            tfdb.set_trace()
            return g

        return y, grad

    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            z = clipped(x) * 3
        return tape.gradient(z, x)

    called = tf.function(slope) if graph else slope
    results = []
    found = visits(
        lambda: results.extend(float(called(tf.constant(n))) for n in (1.0, 2.0)),
        "x", "locals().get('y')", "locals().get('g')", "locals().get('upstream')",
    )  # fmt: skip
    assert [visit.values[1:] for visit in found] == [(2, None, None), (None, 30, 3), (4, None, None), (None, 30, 3)]
    assert [visit.place.split(":")[0] for visit in found[:2]] == ["clipped", "grad"]
    assert results == [30.0, 30.0]


def test_custom_gradient_in_a_loop(tf: Any) -> None:
    @tf.custom_gradient
    def scaled(x: Any) -> Any:
        def grad(upstream: Any) -> Any:
            g = upstream * 5
            tfdb.set_trace()
            return g

        return x * 2, grad

    @tf.function
    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(3):
                y = scaled(y)
        return tape.gradient(y, x)

    results = []
    found = values(lambda: results.append(float(slope(tf.constant(1.0)))), "g", "upstream")
    assert found == [(5, 1), (25, 5), (125, 25)]
    assert results == [125.0]


@pytest.mark.parametrize("graph", [False, True])
def test_recompute_grad_stops_forward_and_again_backward(tf: Any, graph: bool) -> None:
    def block(x: Any) -> Any:
        y = x * x
        tfdb.set_trace()
        return y

    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.recompute_grad(block)(x)
        return tape.gradient(y, x)

    called = tf.function(slope) if graph else slope
    results = []
    found = values(lambda: results.append(float(called(tf.constant(3.0)))), "y")
    assert found == [9.0, 9.0]
    assert results == [6.0]


def test_loss_through_a_loop_keeps_its_gradient(tf: Any) -> None:
    def make(stop: bool) -> Any:
        @tf.function
        def slope(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x
                for step in tf.range(3):
                    if step % 2 == 0:
                        y = y * y
                    else:
                        y = y + x
                    if stop:
                        tfdb.set_trace()
            return tape.gradient(y, x)

        return slope

    plain = float(make(False)(tf.constant(1.5)))
    results = []
    found = values(lambda: results.append(float(make(True)(tf.constant(1.5)))), "step", "y")
    assert found == [(0, 2.25), (1, 3.75), (2, 14.0625)]
    assert results == [plain]


def test_jacobian(tf: Any) -> None:
    @tf.function
    def jacobian(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x
            tfdb.set_trace()
        return tape.jacobian(y, x)

    results = []
    assert values(lambda: results.append(jacobian(tf.constant([1.0, 2.0])).numpy().tolist()), "y") == [[1.0, 4.0]]
    assert results == [[[2.0, 0.0], [0.0, 4.0]]]
