"""set_trace() in graphs: one stop per run of the point, in the user's line, with the values of that run."""

import sys
import threading
from typing import Any

import pytest
from stops import values, visits

import tfdb
from transcripts import play


def test_eager_code_stops_as_ipdb_does(tf: Any) -> None:
    def program() -> None:
        for number in range(2):
            x = tf.constant(number + 0.5)
            tfdb.set_trace()
            del x

    found = visits(program, "x", "number")
    assert [visit.values for visit in found] == [(0.5, 0), (1.5, 1)]
    assert found[0].place == ("program: tfdb.set_trace()" if sys.version_info >= (3, 13) else "program: del x")


def test_a_function_stops_at_each_run_and_not_while_it_is_traced(tf: Any) -> None:
    @tf.function
    def double(x: Any) -> Any:
        y = x * 2
        tfdb.set_trace()
        return y

    results = []

    def program() -> None:
        double.get_concrete_function(tf.TensorSpec([], tf.float32))
        results.extend(float(double(tf.constant(number))) for number in (1.0, 2.0, 3.0))

    found = visits(program, "x", "y")
    assert [visit.values for visit in found] == [(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]
    assert results == [2.0, 4.0, 6.0]
    assert found[2].stack[-1] == "double: tfdb.set_trace()"
    assert "program: results.extend(float(double(tf.constant(number))) for number in (1.0, 2.0, 3.0))" in found[2].stack
    assert "graph stop" in found[2].heading and "pass 3" in found[2].heading


def test_the_screen_of_a_stop(tf: Any) -> None:
    @tf.function
    def double(x: Any) -> Any:
        y = x * 2
        tfdb.set_trace()
        return y

    play(
        lambda: print(float(double(tf.constant(4.0)))),
        """
        graph stop · double · pass 1
        > ...test_set_trace.py(...)double()
        -> tfdb.set_trace()
        (tfdb) w
        ...
          ...test_set_trace.py(...)<lambda>()
        -> lambda: print(float(double(tf.constant(4.0)))),
        > ...test_set_trace.py(...)double()
        -> tfdb.set_trace()
        (tfdb) a
        x = <tf.Tensor: shape=(), dtype=float32, numpy=4.0>
        (tfdb) p y + x
        <tf.Tensor: shape=(), dtype=float32, numpy=12.0>
        (tfdb) u
        > ...<lambda>()
        -> lambda: print(float(double(tf.constant(4.0)))),
        (tfdb) d
        > ...double()
        -> tfdb.set_trace()
        (tfdb) n
        graph stop · double · pass 1
        > ...double()
        -> return y
        (tfdb) c
        8.0
        """,
    )


def test_nested_functions_show_the_caller_of_this_pass(tf: Any) -> None:
    @tf.function
    def inner(y: Any) -> Any:
        z = y + 1
        tfdb.set_trace()
        return z * 2

    @tf.function
    def middle(m: Any) -> Any:
        k = m * 10
        return inner(k)

    @tf.function
    def outer(x: Any) -> Any:
        a = x * 2
        b = inner(a)
        c = middle(b)
        return c

    results = []

    def program() -> None:
        results.extend(float(outer(tf.constant(number))) for number in (1.0, 2.0))

    up = visits(program, "z")
    assert [visit.stack[-3:] for visit in up[:2]] == [
        (*up[0].stack[-3:-2], "outer: b = inner(a)", "inner: tfdb.set_trace()"),
        ("outer: c = middle(b)", "middle: return inner(k)", "inner: tfdb.set_trace()"),
    ]
    assert [visit.values for visit in up] == [(3.0,), (61.0,), (5.0,), (101.0,)]
    assert results == [122.0, 202.0]


@pytest.mark.parametrize(("steps", "name", "expected"), [(1, "k", [60.0, 100.0]), (2, "b", [6.0, 10.0])])
def test_outer_frames_hold_the_values_of_this_pass(tf: Any, steps: int, name: str, expected: list[float]) -> None:
    @tf.function
    def inner(y: Any) -> Any:
        tfdb.set_trace()
        return y + 1

    @tf.function
    def middle(m: Any) -> Any:
        k = m * 10
        return inner(k)

    @tf.function
    def outer(x: Any) -> Any:
        b = x * 6 if x < 1.5 else x * 5
        return middle(b)

    def program() -> None:
        for number in (1.0, 2.0):
            outer(tf.constant(number))

    assert [visit.values for visit in visits(program, name, first=("u",) * steps)] == [(each,) for each in expected]


def test_outer_frames_on_screen(tf: Any) -> None:
    @tf.function
    def inner(y: Any) -> Any:
        tfdb.set_trace()
        return y + 1

    @tf.function
    def outer(x: Any) -> Any:
        total = x
        for step in tf.range(2):  # noqa: B007
            total = inner(total * 10)
        return total

    play(
        lambda: print(float(outer(tf.constant(3.0)))),
        """
        graph stop · outer > inner · pass 1
        > ...inner()
        -> tfdb.set_trace()
        (tfdb) u
        > ...outer()
        -> total = inner(total * 10)
        (tfdb) p int(step), float(total), float(x)
        (0, 3.0, 3.0)
        (tfdb) c
        graph stop · outer > inner · pass 2
        > ...inner()
        -> tfdb.set_trace()
        (tfdb) u
        > ...outer()
        -> total = inner(total * 10)
        (tfdb) p int(step), float(total), float(x)
        (1, 31.0, 3.0)
        (tfdb) c
        311.0
        """,
    )


def test_a_function_called_first_inside_another_and_then_alone(tf: Any) -> None:
    @tf.function
    def inner(y: Any) -> Any:
        tfdb.set_trace()
        return y + 1

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x * 10)

    def program() -> None:
        outer(tf.constant(1.0))
        inner(tf.constant(2.0))

    first, second = visits(program, "y")
    assert (first.values, second.values) == ((10.0,), (2.0,))
    assert first.stack[-2:] == ("outer: return inner(x * 10)", "inner: tfdb.set_trace()")
    assert second.stack[-2:] == ("program: inner(tf.constant(2.0))", "inner: tfdb.set_trace()")


def test_an_error_in_an_inner_function_does_not_confuse_the_next_call(tf: Any) -> None:
    @tf.function
    def inner(y: Any) -> Any:
        tfdb.set_trace()
        tf.debugging.assert_less(y, 15.0)
        return y + 1

    @tf.function
    def outer(x: Any) -> Any:
        a = x * 10
        return inner(a)

    def program() -> None:
        with pytest.raises(tf.errors.InvalidArgumentError):
            outer(tf.constant(2.0))
        outer(tf.constant(1.0))

    play(
        program,
        """
        ...
        (tfdb) c
        graph stop · outer > inner · pass 2
        > ...inner()
        -> tfdb.set_trace()
        (tfdb) u
        > ...outer()
        -> return inner(a)
        (tfdb) p float(a)
        10.0
        (tfdb) c
        """,
    )


def test_tf_cond_stops_in_the_branch_taken(tf: Any) -> None:
    @tf.function
    def choose(x: Any) -> Any:
        def small() -> Any:
            low = x - 100
            tfdb.set_trace()
            return low

        def large() -> Any:
            high = x + 100
            tfdb.set_trace()
            return high

        return tf.cond(x < 5, small, large)

    results = []
    found = visits(
        lambda: results.extend(float(choose(tf.constant(number))) for number in (1.0, 9.0, 2.0)),
        "locals().get('low')", "locals().get('high')", "x",
    )  # fmt: skip
    assert [visit.values for visit in found] == [(-99.0, None, 1.0), (None, 109.0, 9.0), (-98.0, None, 2.0)]
    assert [visit.place.split(":")[0] for visit in found] == ["small", "large", "small"]
    assert results == [-99.0, 109.0, -98.0]


def test_tf_while_loop_stops_each_iteration_in_condition_and_body(tf: Any) -> None:
    @tf.function
    def loop(limit: Any) -> Any:
        def test(i: Any, total: Any) -> Any:
            tfdb.set_trace()
            return i < limit

        def body(i: Any, total: Any) -> Any:
            step = total + 10
            tfdb.set_trace()
            return i + 1, step

        return tf.while_loop(test, body, (tf.constant(0), tf.constant(0)))[1]

    results = []
    found = visits(lambda: results.append(int(loop(tf.constant(2)))), "i", "total", "limit")
    assert [(visit.place.split(":")[0], visit.values) for visit in found] == [
        ("test", (0, 0, 2)),
        ("body", (0, 0, "NameError")),  # not a name of this function
        ("test", (1, 10, 2)),
        ("body", (1, 10, "NameError")),
        ("test", (2, 20, 2)),
    ]
    assert results == [20]


def test_autograph_branches_and_loops(tf: Any) -> None:
    @tf.function
    def walk(limit: Any) -> Any:
        total = tf.constant(0)
        seen = tf.constant(0)
        for number in tf.range(limit):
            if number == 1:
                tfdb.set_trace()
                continue
            if number == 4:
                total += 1000
                tfdb.set_trace()
                break
            total += number
            while seen < number:
                seen += 1
                tfdb.set_trace()
        return total

    results = []

    def program() -> None:
        results.extend(int(walk(tf.constant(limit))) for limit in (3, 9))

    found = visits(program, "number", "total", "seen")
    assert [visit.values for visit in found] == [
        (1, 0, 0),
        (2, 2, 1),
        (2, 2, 2),
        (1, 0, 0),
        (2, 2, 1),
        (2, 2, 2),
        (3, 5, 3),
        (4, 1005, 3),
    ]
    assert {visit.place for visit in found} == {"walk: tfdb.set_trace()"}
    assert results == [2, 1005]


def test_autograph_return_in_branches(tf: Any) -> None:
    @tf.function
    def sign(x: Any) -> Any:
        if x < 0:
            y = -x
            tfdb.set_trace()
            return y
        elif x == 0:
            y = x
            tfdb.set_trace()
            return y + 100
        else:
            y = x * 3
            tfdb.set_trace()
            return y

    results = []

    def program() -> None:
        results.extend(int(sign(tf.constant(number))) for number in (-2, 0, 5))

    assert values(program, "x", "y") == [(-2, 2), (0, 0), (5, 15)]
    assert results == [2, 100, 15]


def test_python_control_flow_unrolls(tf: Any) -> None:
    @tf.function
    def unrolled(x: Any) -> Any:
        for power in range(3):  # noqa: B007
            x = x * 2
            tfdb.set_trace()
        return x

    assert values(lambda: unrolled(tf.constant(1)), "power", "x") == [(0, 2), (1, 4), (2, 8)]


def test_without_autograph(tf: Any) -> None:
    @tf.function(autograph=False)
    def add(x: Any, *, by: float = 1.0) -> Any:
        y = x + by
        tfdb.set_trace()
        return y

    results = []
    found = visits(lambda: results.extend(float(add(tf.constant(n), by=10.0)) for n in (1.0, 2.0)), "y", "by")
    assert [visit.values for visit in found] == [(11.0, 10.0), (12.0, 10.0)]
    assert found[0].place == "add: tfdb.set_trace()"
    assert results == [11.0, 12.0]


def test_condition_known_while_tracing(tf: Any) -> None:
    @tf.function
    def twice(x: Any) -> Any:
        tfdb.set_trace(cond=False)
        y = x * 2
        tfdb.set_trace(cond=True)
        return y

    assert values(lambda: twice(tf.constant(3)), "y") == [6]


def test_condition_decided_by_a_tensor(tf: Any) -> None:
    @tf.function
    def positive(x: Any) -> Any:
        tfdb.set_trace(cond=x > 0)
        return x

    assert values(lambda: [positive(tf.constant(number)) for number in (-1, 2, -3, 4)], "x") == [2, 4]


def test_xla_functions_stop_and_say_that_xla_is_off(tf: Any) -> None:
    @tf.function(jit_compile=True)
    def square(x: Any) -> Any:
        y = x * x
        tfdb.set_trace()
        return y

    results = []
    found = visits(lambda: results.extend(float(square(tf.constant(n))) for n in (3.0, 4.0)), "y")
    assert [visit.values for visit in found] == [(9.0,), (16.0,)]
    assert "XLA off" in found[0].heading
    assert results == [9.0, 16.0]


def test_xla_around_and_inside(tf: Any) -> None:
    @tf.function(jit_compile=True)
    def inner(x: Any) -> Any:
        tfdb.set_trace()
        return x * x

    @tf.function(jit_compile=True)
    def outer(x: Any) -> Any:
        return inner(x + 1)

    assert values(lambda: [outer(tf.constant(n)) for n in (1.0, 2.0)], "x") == [2.0, 3.0]


def test_two_stops_in_a_row_and_the_same_line_twice(tf: Any) -> None:
    @tf.function
    def chain(x: Any) -> Any:
        tfdb.set_trace()
        x = x + 1
        tfdb.set_trace()
        return x

    assert values(lambda: [chain(tf.constant(n)) for n in (1, 5)], "x") == [1, 2, 5, 6]


def test_user_threads_queue(tf: Any) -> None:
    @tf.function
    def slow(x: Any) -> Any:
        y = x * 2
        tfdb.set_trace()
        return y

    results: dict[int, int] = {}

    def work(number: int) -> None:
        results[number] = int(slow(tf.constant(number)))

    def program() -> None:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = visits(program, "x", "y")
    assert sorted(visit.values for visit in found) == [(0, 0), (1, 2), (2, 4), (3, 6)]
    assert results == {0: 0, 1: 2, 2: 4, 3: 6}
    assert all("work: results[number] = int(slow(tf.constant(number)))" in visit.stack for visit in found)


def test_functions_saved_or_only_traced_never_stop(tf: Any, tmp_path: Any) -> None:
    class Doubler(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def __call__(self, x: Any) -> Any:
            y = x * 2
            tfdb.set_trace()
            return y

    def program() -> None:
        tf.saved_model.save(Doubler(), str(tmp_path / "model"))
        again = tf.saved_model.load(str(tmp_path / "model"))
        assert again(tf.constant([1.0, 2.0])).numpy().tolist() == [2.0, 4.0]
        assert b"tfdb" not in (tmp_path / "model" / "saved_model.pb").read_bytes()

    assert values(program, "y") == []


def test_a_function_that_ran_before_it_is_saved_is_saved_without_hooks(tf: Any, tmp_path: Any) -> None:
    class Doubler(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def __call__(self, x: Any) -> Any:
            y = x * 2
            tfdb.set_trace()
            return y

    def program() -> None:
        doubler = Doubler()
        doubler(tf.constant([5.0]))
        tf.saved_model.save(doubler, str(tmp_path / "model"))
        assert b"tfdb" not in (tmp_path / "model" / "saved_model.pb").read_bytes()

    assert values(program, "y") == [[10.0]]


def test_a_concrete_function_with_stops_is_saved_without(tf: Any, tmp_path: Any) -> None:
    @tf.function
    def double(x: Any) -> Any:
        y = x * 2
        tfdb.set_trace()
        return y

    results = []

    def program() -> None:
        module = tf.Module()
        module.double = double
        signature = double.get_concrete_function(tf.TensorSpec([], tf.float32))
        results.append(float(double(tf.constant(4.0))))
        tf.saved_model.save(module, str(tmp_path / "model"), signatures=signature)
        again = tf.saved_model.load(str(tmp_path / "model"))
        results.append(float(again.double(tf.constant(5.0))))
        results.append(float(again.signatures["serving_default"](tf.constant(6.0))["output_0"]))

    assert values(program, "y") == [8.0]
    assert results == [8.0, 10.0, 12.0]
    assert b"tfdb" not in (tmp_path / "model" / "saved_model.pb").read_bytes()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("double(tf.constant(4))", 8),
        ("traced(tf.constant(5))", 10),
        ("list(dataset.as_numpy_iterator())", [1, 2, 3]),
    ],
)
def test_what_the_prompt_evaluates_never_stops_and_never_hangs(tf: Any, expression: str, value: Any) -> None:
    @tf.function
    def double(x: Any) -> Any:
        tfdb.set_trace()
        return x * 2

    def plus(x: Any) -> Any:
        tfdb.set_trace()
        return x + 1

    results = []

    def program() -> None:
        traced = double.get_concrete_function(tf.TensorSpec([], tf.int32))
        dataset = tf.data.Dataset.range(3).map(plus)
        results.append(int(double(tf.constant(3))))
        del traced, dataset

    assert [visit.values for visit in visits(program, expression, first=("u",))] == [(value,)]
    assert results == [6]


def test_a_function_called_at_once_from_many_places_shows_no_other_calls_values(tf: Any) -> None:
    @tf.function
    def inner(y: Any) -> Any:
        tfdb.set_trace()
        return y + 1

    def outer(x: Any) -> Any:
        a = x * 10
        return inner(a)

    def program() -> None:
        dataset = tf.data.Dataset.range(8).map(outer, num_parallel_calls=4)
        assert list(dataset.as_numpy_iterator()) == [10 * n + 1 for n in range(8)]

    assert sorted(values(program, "y")) == [10 * n for n in range(8)]
    outside = visits(program, "locals().get('a')", "locals().get('x')", first=("u",))
    for a, x in (visit.values for visit in outside):
        assert (a is None and x is None) or a == 10 * x
