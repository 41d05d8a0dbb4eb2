"""`compare`: the same call eagerly, as a graph and by XLA; what differs, and the first op where it does."""

import contextlib
import io
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfdb
from tfdb import compare, internals_gate, probes, progress, session, state
from tfdb.commands.compare import lines
from tfdb.compare import Comparison, Way, difference
from tfdb.rerun import Target
from transcripts import play

scale: Any = 2.0
double = True


def compared(function: Any, *args: Any, python: Callable[..., Any] | None = None) -> Comparison:
    """The comparison of one call."""
    target = Target("f", python or function.python_function, args, {}, "call 1", function)
    return compare.compare(target, contextlib.nullcontext)


def rows(found: Comparison) -> dict[str, dict[str, str]]:
    return {name: {way: gap.kind for way, gap in row.items()} for name, row in found.rows}


def line_of(found: Comparison) -> str:
    import linecache

    (parting,) = found.partings
    assert parting.line is not None
    return linecache.getline(parting.line[0], parting.line[1]).strip()


def test_a_nan_that_only_xla_makes_is_found_with_its_line(tf: Any) -> None:
    @tf.function
    def distance(a: Any) -> Any:
        sq = tf.reduce_sum(tf.square(a), axis=1)
        root = tf.sqrt(sq)
        return tf.reduce_sum(tf.where(sq > 0, root, tf.zeros_like(sq)))

    found = compared(distance, tf.constant([[0.0, 0.0], [3.0, 4.0]]))
    assert rows(found) == {
        "output": {"graph": "same", "XLA": "same"},
        "gradient by a": {"graph": "same", "XLA": "differs"},
    }
    (parting,) = found.partings
    assert (parting.ways, parting.op, parting.forward) == (("graph", "XLA"), "SqrtGrad", "Sqrt")
    assert np.isnan(parting.difference.second)
    assert line_of(found) == "root = tf.sqrt(sq)"


def test_an_index_that_xla_clamps_is_found(tf: Any) -> None:
    @tf.function
    def pick(table: Any, ids: Any) -> Any:
        return tf.gather(table, ids) * 2.0

    found = compared(pick, tf.constant([1.0, 2.0, 3.0]), tf.constant([[0, 7], [-1, 1]]))
    assert [way.name for way in found.ways if way.error is not None] == ["eager", "graph"]
    (finding,) = found.findings
    assert "index 7 at [0, 1] is outside of 0 to 2, and is read as 2 (2 in all)" in finding
    assert "GatherV2" in finding and "test_compare.py" in finding


@pytest.mark.parametrize("kind", ["CheckNumerics", "assertion"])
def test_a_check_that_xla_drops_is_found(tf: Any, kind: str) -> None:
    @tf.function(jit_compile=True)
    def checked(a: Any, b: Any) -> Any:
        if kind == "CheckNumerics":
            return tf.reduce_sum(tf.debugging.check_numerics(a / b, "bad ratio"))
        tf.debugging.assert_positive(b)
        return tf.reduce_sum(a)

    found = compared(checked, tf.constant([4.0, 1.0]), tf.constant([2.0, 0.0]))
    assert [way.name for way in found.ways if way.error is None] == ["XLA"]
    (finding,) = found.findings
    assert kind in finding and "nothing is raised" in finding


@pytest.mark.parametrize("now", [3.0, np.array([1.0, 5.0], "float32")])
def test_a_value_that_was_frozen_at_tracing_is_named(tf: Any, monkeypatch: pytest.MonkeyPatch, now: Any) -> None:
    @tf.function
    def scaled(x: Any) -> Any:
        y = x + 1.0
        return y * scale

    monkeypatch.setitem(globals(), "scale", np.array([2.0, 2.0], "float32") if isinstance(now, np.ndarray) else 2.0)
    scaled(tf.constant([1.0, 2.0]))
    monkeypatch.setitem(globals(), "scale", now)
    found = compared(scaled, tf.constant([1.0, 2.0]))
    assert rows(found)["output"] == {"graph": "differs", "XLA": "differs"}
    (parting,) = found.partings
    assert (parting.ways, parting.op) == (("eager", "graph"), "Mul")
    assert parting.cause.startswith("scale was frozen at tracing: the graph holds ")
    assert line_of(found) == "return y * scale"


def test_a_python_branch_that_was_taken_at_tracing_is_found(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @tf.function
    def branch(x: Any) -> Any:
        if double:
            return x * 2.0
        return tf.square(x)

    branch(tf.constant([3.0]))
    monkeypatch.setitem(globals(), "double", False)
    found = compared(branch, tf.constant([3.0]))
    (parting,) = found.partings
    assert parting.op == "Square"
    assert "traced another way" in parting.cause


def test_a_side_effect_in_python_is_undone(tf: Any) -> None:
    calls: list[int] = []

    @tf.function
    def counted(x: Any) -> Any:
        calls.append(1)
        return x * float(len(calls))

    counted(tf.constant([3.0]))
    found = compared(counted, tf.constant([3.0]))
    assert rows(found)["output"] == {"graph": "differs", "XLA": "differs"}
    assert calls == [1]


def test_updates_are_compared_and_put_back(tf: Any) -> None:
    w = tf.Variable([1.0, 2.0], name="w")

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.where(w > 5.0, tf.sqrt(w - 1.0), 0.0) + w * x)
        w.assign_sub(tape.gradient(loss, w))
        return loss

    found = compared(step, tf.constant([1.0, 2.0]))
    assert set(rows(found)) == {"output", "update of w"}
    assert rows(found)["output"] == {"graph": "same", "XLA": "same"}
    assert w.numpy().tolist() == [1.0, 2.0]


def test_overflow_in_float16_that_the_optimised_graph_avoids_is_told(tf: Any) -> None:
    @tf.function
    def half(x: Any) -> Any:
        h = tf.cast(x, tf.float16) * tf.constant(300.0, tf.float16)
        return tf.cast(h * h / tf.constant(60000.0, tf.float16), tf.float32)

    found = compared(half, tf.constant([2.0, 3.0]))
    (gap,) = [row["graph"] for name, row in found.rows if name == "output"]
    if gap.matters:  # depends on what Grappler of this release rearranges
        assert any("half precision" in finding for finding in found.findings)


def test_rounding_is_that_of_the_least_precise_floats_inside(tf: Any) -> None:
    @tf.function
    def half(x: Any) -> Any:
        return tf.cast(tf.reduce_sum(tf.cast(x, tf.bfloat16) * tf.constant(1.01, tf.bfloat16)), tf.float32)

    found = compared(half, tf.random.normal([200], seed=1))
    assert not any(gap.matters for _, row in found.rows for gap in row.values())


def test_loops_dictionaries_and_gradients_by_weights(tf: Any) -> None:
    w = tf.Variable(2.0, name="w")

    @tf.function
    def power(x: Any, n: Any) -> Any:
        total = tf.zeros([])
        for _ in tf.range(n):
            total += w * x
        return {"total": total, "n": n}

    found = compared(power, tf.constant(3.0), tf.constant(4))
    kinds = rows(found)
    assert kinds["output 'total'"] == kinds["output 'n'"] == {"graph": "same", "XLA": "same"}
    assert kinds["gradient by w"]["graph"] == "same"


def test_what_xla_cannot_compile_is_said(tf: Any) -> None:
    @tf.function
    def text(x: Any) -> Any:
        return tf.strings.length(tf.strings.as_string(x))

    found = compared(text, tf.constant([1.0]))
    assert [way.name for way in found.ways if way.error is not None] == ["XLA"]
    assert rows(found) == {"output": {"graph": "same"}}


def test_a_graph_with_stops_in_it_is_compared_without_them(tf: Any) -> None:
    @tf.function
    def scaled(x: Any) -> Any:
        y = x + 1.0
        return y * scale

    def program() -> None:
        session._current[-1].arm()
        tfdb.set_trace()
        scaled(tf.constant([1.0, 2.0]))
        print("end")

    play(program, """
        ...
        (tfdb) b scaled
        ...
        (tfdb) c
        graph stop · scaled · pass 1
        ...
        -> y = x + 1.0
        (tfdb) compare
        scaled() · call 1 · variables as at the call · gradients of the sum of the outputs
          against eager  graph  XLA
          output         same   same
          gradient by x  same   same
        no difference beyond rounding
        (tfdb) n
        ...
        -> return y * scale
        (tfdb) c
        end
    """)  # fmt: skip


def test_stops_inside_branches_are_taken_out_too(tf: Any) -> None:
    @tf.function
    def branched(x: Any) -> Any:
        if tf.reduce_sum(x) > 0:
            y = x * 2.0
        else:
            y = x
        return y

    def program() -> None:
        session._current[-1].arm()
        tfdb.set_trace()
        branched(tf.constant([1.0, 2.0]))
        print("end")

    play(program, """
        ...
        (tfdb) b branched
        ...
        (tfdb) c
        graph stop · branched · pass 1
        ...
        (tfdb) n
        ...
        -> y = x * 2.0
        (tfdb) compare
        branched() · call 1 · ...
          against eager  graph  XLA
          output         same   same
          gradient by x  same   same
        no difference beyond rounding
        (tfdb) c
        end
    """)  # fmt: skip


def test_the_text_of_a_comparison(tf: Any) -> None:
    @tf.function
    def distance(a: Any) -> Any:
        sq = tf.reduce_sum(tf.square(a), axis=1)
        return tf.reduce_sum(tf.where(sq > 0, tf.sqrt(sq), tf.zeros_like(sq)))

    def program() -> None:
        session._current[-1].arm()
        distance(tf.constant([[0.0, 0.0], [3.0, 4.0]]))
        tfdb.set_trace()
        print("end")

    play(program, """
        ...
        (tfdb) compare distance
        distance() · call 1 · variables as now (it writes none) · gradients of the sum of the outputs
          against eager  graph  XLA
          output         same   same
          gradient by a  same   2 differ: 0 became nan at [0, 0]
        graph and XLA part at SqrtGrad, the gradient of Sqrt · test_compare.py:... distance()
          1 differ: 0 became nan at [0], from the inputs 0, 0
        (tfdb) compare nothing
        *** nothing: NameError: name 'nothing' is not defined
        (tfdb) c
        end
    """)  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ([1.0, 2.0], [1.0, 2.0], "same"),
        ([1.0, np.nan], [1.0, np.nan], "same"),
        ([1.0, np.inf], [1.0, np.inf], "same"),
        ([1.0, 2.0], [1.0, 2.000001], "rounding"),
        ([1.0, 2.0], [1.0, 2.1], "differs"),
        ([1.0, np.nan], [1.0, 2.0], "differs"),
        ([1.0, np.inf], [1.0, -np.inf], "differs"),
        ([1.0], [1.0, 2.0], "unlike"),
    ],
)
def test_differences(first: list[float], second: list[float], kind: str) -> None:
    assert difference(np.float32(first), np.float32(second)).kind == kind


def test_a_difference_of_other_dtypes() -> None:
    assert difference(np.array([1, 2]), np.array([1, 3])).index == (1,)
    assert difference(np.array([True]), np.array([False])).kind == "differs"
    assert difference(np.array([b"a"], object), np.array([b"b"], object)).kind == "differs"
    assert difference(np.array([1j]), np.array([2j])).largest == 1.0
    assert difference(np.float16([1.0]), np.float16([1.002])).kind == "rounding"
    assert difference(np.zeros(0), np.zeros(0)).kind == "same"


def test_own_variables_are_no_result(tf: Any) -> None:
    weight = tf.Variable(1.0, name="weight")
    ours = internals_gate.plain_variable(tf.constant(0.0), "tfdb_history")
    before = state.take([weight, ours])
    weight.assign(2.0)
    ours.assign(2.0)
    assert [variable.name for variable, _, _ in state.changed(before)] == ["weight:0"]
    state.put(before)
    assert (float(weight), float(ours)) == (1.0, 0.0)


@pytest.mark.parametrize("spread", [1.5e-5, 0.0])
def test_ways_that_each_stay_within_rounding_have_no_op_to_part_at(tf: Any, spread: float) -> None:
    @tf.function
    def halved(x: Any) -> Any:
        return x * 0.5

    x = tf.constant([2.0])
    given = probes.trace(halved, (x,), {})
    ways = [
        Way(name, {"output": np.float32([1.0 + sign * spread])})
        for name, sign in (("eager", 0), ("graph", 1), ("XLA", -1))
    ]
    base, rows_of = compare.differences(ways, compare.coarsest(given))
    strays = {name for _, row in rows_of for name, gap in row.items() if gap.matters}
    target = Target("halved", halved.python_function, (x,), {}, "call 1", halved)
    found, findings = compare.partings(target, given, ways, [], contextlib.nullcontext, strays)
    assert (found, findings) == ([], [])
    text = list(lines(Comparison(target, tuple(ways), base, tuple(rows_of), tuple(found), tuple(findings), ())))
    assert text[-1].startswith("no difference beyond rounding")
    assert ("the largest is 1.5" in text[-1]) == bool(spread)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "patience", "lines"), [(Terminal, 0.0, ["at work …"]), (Terminal, 60.0, []), (io.StringIO, 0.0, [])]
)
def test_long_work_is_told_of_once_and_on_terminals_only(
    monkeypatch: Any, kind: Any, patience: float, lines: Any
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", patience)
    out = kind()
    before = set(threading.enumerate())
    with progress.told("at work", out):
        for thread in set(threading.enumerate()) - before if not patience else ():
            thread.join()
    assert out.getvalue().splitlines() == lines


def test_ops_are_run_one_by_one_only_where_results_differ(tf: Any, monkeypatch: Any) -> None:
    made = []
    run = probes.run
    monkeypatch.setattr(probes, "run", lambda *a, **k: made.append(k.get("of_ops")) or run(*a, **k))
    table = tf.constant([1.0, 2.0])
    compared(tf.function(lambda x: x * 2.0), tf.constant([1.0]))
    assert made == [None, None]
    made.clear()
    compared(tf.function(lambda i: tf.gather(table, i)), tf.constant([1]))
    assert made == [None, None, compare.is_checked]
