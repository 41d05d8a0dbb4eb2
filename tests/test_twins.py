"""Retracing for breakpoints: which functions get a twin, what the user is told and sees, and how it ends."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import tfdb
from tfdb import internals, session, tracedlines
from transcripts import record

traced: list[str] = []


def make() -> tuple[Any, Any]:
    """Two functions nobody has called yet, that say when they are traced."""

    @tf.function
    def first(x: Any) -> Any:
        traced.append("first")
        y = x + 1.0
        return y

    @tf.function
    def second(x: Any) -> Any:
        traced.append("second")
        y = x * 2.0
        return y

    traced.clear()
    return first, second


def play(program: Callable[[], None], *typed: str) -> str:
    output, raised = record(program, typed)
    if raised is not None:
        raise raised
    return output


def hooked(function: Any) -> bool:
    return any(internals.holds_hooks(graph) for graph in internals.traced_graphs(function))


def test_a_function_traced_before_stops_and_the_retrace_is_said_once() -> None:
    first, _ = make()
    counts = []

    def program() -> None:
        first(tf.constant(1.0))
        tfdb.set_trace()
        first(tf.constant(2.0))
        counts.append(first.experimental_get_tracing_count())
        first(tf.constant(3.0))

    output = play(program, "b first", "c", "p float(x)", "c", "p float(x)", "c")
    assert output.count("first is traced again for breakpoints") == 1
    assert "what it prints or counts in Python while tracing happens once more" in output
    assert "(tfdb) p float(x)\n2.0" in output and "(tfdb) p float(x)\n3.0" in output
    assert traced == ["first", "first"] and counts == [1] and first.experimental_get_tracing_count() == 1
    assert not hooked(first)


def test_traces_are_counted_as_the_user_does_by_the_function_alone_and_only_while_it_has_a_twin() -> None:
    first, second = make()
    kept, seen = type(first).experimental_get_tracing_count, []

    def program() -> None:
        first(tf.constant(1.0))
        second(tf.constant(1.0))
        tfdb.set_trace()
        first(tf.constant(2.0))
        first(tf.constant([1.0]))
        second(tf.constant(1.0))
        seen.append([each.experimental_get_tracing_count() for each in (first, second)])
        seen.append(["experimental_get_tracing_count" in vars(each) for each in (first, second)])

    play(program, "b first", "c", "c", "c")
    assert seen == [[2, 1], [True, False]]
    assert type(first).experimental_get_tracing_count is kept
    assert "experimental_get_tracing_count" not in vars(first)


def test_functions_that_meet_no_breakpoint_are_not_traced_again() -> None:
    first, second = make()

    def program() -> None:
        first(tf.constant(1.0))
        second(tf.constant(1.0))
        tfdb.set_trace()
        for n in (2.0, 3.0):
            first(tf.constant(n))
            second(tf.constant(n))

    output = play(program, "b second", "c", "c", "c")
    assert output.count("graph stop") == 2
    assert traced == ["first", "second", "second"]
    assert "first is traced again" not in output


def test_a_function_first_called_under_breakpoints_has_no_hooks_when_no_line_is_planted() -> None:
    first, second = make()
    graphs = []

    def program() -> None:
        tfdb.set_trace()
        first(tf.constant(1.0))
        assert second is not None  # a name that `b` finds
        twins = session._current[-1].twins.twins
        graphs.extend(internals.traced_graphs(twins[first][False].function))

    play(program, "b second", "c")
    assert len(graphs) == 1 and not internals.holds_hooks(graphs[0])
    assert traced == ["first"]


def test_the_users_own_function_runs_again_when_the_last_breakpoint_goes() -> None:
    first, _ = make()
    ran: list[Any] = []

    def program() -> None:
        tfdb.set_trace()
        for n in range(4):
            value = first(tf.constant(float(n)))
            ran.append((float(value), len(internals.traced_graphs(first))))

    output = play(program, "b first", "c", "c", "cl 1", "c")
    assert output.count("graph stop") == 2
    assert [value for value, _ in ran] == [1.0, 2.0, 3.0, 4.0]
    assert [count for _, count in ran] == [0, 0, 1, 1]
    assert not hooked(first)


def test_a_breakpoint_at_an_earlier_or_later_line_from_a_stop() -> None:
    def outer(x: Any) -> Any:
        a = x + 1.0
        b = a * 2.0
        c = b - 3.0
        return c

    made = tf.function(outer)

    def program() -> None:
        tfdb.set_trace()
        for n in (1.0, 2.0):
            made(tf.constant(n))

    line = outer.__code__.co_firstlineno
    output = play(
        program, f"b {line + 2}", "c", f"b {line + 3}", f"b {line + 1}", "c", "p float(b)", "c", "p float(x)", "c", "c",
        "p float(b)", "cl 1", "cl 2", "cl 3", "c",
    )  # fmt: skip
    assert "(tfdb) p float(b)\n4.0" in output and "(tfdb) p float(x)\n2.0" in output
    assert "(tfdb) p float(b)\n6.0" in output
    assert output.count("graph stop") == 5


def test_passes_are_counted_on_where_a_line_is_traced_again() -> None:
    first, _ = make()

    def program() -> None:
        tfdb.set_trace()
        for n in range(2):
            first(tf.constant(float(n)))
        for n in range(2):
            first(tf.constant([float(n)]))

    output = play(program, "b first", "c", "n", "c", "b op:Neg", *["c", "n"] * 2, "c", "c")
    assert traced == ["first"] * 2
    assert re.findall(r"graph stop · first · (pass \d)", output) == [f"pass {n}" for n in (1, 1, 2, 3, 3, 4, 4)]


def test_variables_are_created_once() -> None:
    made = []

    class Counting(tf.Module):
        def __init__(self) -> None:
            self.count: Any = None

        @tf.function
        def step(self, x: Any) -> Any:
            if self.count is None:
                self.count = tf.Variable(10.0)
                made.append(self.count)
            self.count.assign_add(x)
            return self.count.read_value()

    for before in (False, True):
        made.clear()
        module = Counting()
        values = []

        def program(module: Any = module, values: Any = values, before: bool = before) -> None:
            if before:
                values.append(float(module.step(tf.constant(1.0))))
            tfdb.set_trace()
            values.extend(float(module.step(tf.constant(n))) for n in (2.0, 3.0))

        output = play(program, "b module.step", "c", "p float(x), float(self.count)", "c", "cl 1", "c")
        assert output.count("graph stop") == 2
        start = 11.0 if before else 10.0
        assert values == [11.0] * before + [start + 2.0, start + 5.0]
        assert f"(2.0, {start})" in output
        assert len(made) == 1


@pytest.mark.parametrize("line", ["traced", "y = x", "return y"])
def test_traced_lines_tell_which_functions_meet_a_place(line: str) -> None:
    first, second = make()
    first(tf.constant(1.0))
    lines = tracedlines.user_lines(internals.traced_graphs(first))
    start = first.python_function.__code__.co_firstlineno
    offset = {"traced": 2, "y = x": 3, "return y": 4}[line]
    assert tracedlines.meets(lines, (__file__, start + offset))
    assert not tracedlines.meets(lines, (__file__, second.python_function.__code__.co_firstlineno + offset))
    assert not tracedlines.meets(lines, ("other.py", start + offset))
