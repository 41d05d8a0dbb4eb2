"""Breakpoints in eager code, by whatever Python offers: `sys.monitoring` from 3.12 on, `sys.settrace` before."""

import re
import sys
import textwrap
from pathlib import Path

import processes
import pytest

MONITORED = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")


def run(folder: Path, program: str, typed: str, **modules: str) -> tuple[list[str], int]:
    """Run a program under tfdb, its commands separated by bars; what came out, without prompts, and the status."""
    for name, text in {"program": program, **modules}.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    commands = "".join(f"{part.strip()}\n" for part in typed.split("|"))
    done = processes.run("-u", "-m", "tfdb", folder / "program.py", typed=commands)
    assert "Traceback" not in done.stderr, done.stderr
    text = re.sub(r"\(tfdb\) ", "", done.stdout)
    return text.splitlines(), done.returncode


def places(lines: list[str]) -> list[str]:
    """The stops among the lines, `file(line)function`, and what was said in between in angle brackets."""
    found = []
    for line in lines:
        stop = re.match(r"> (?:.*/)?(\w+\.py\(\d+\)[\w<>]+)\(\)", line)
        if stop:
            found.append(stop[1])
        elif line.startswith("said"):
            found.append(line)
    return found


FUNCTIONS = """
    import threading

    def double(n):
        m = n * 2
        m += 1
        return m

    def numbers(k):
        for i in range(k):
            yield i
            i += 10

    for n in range(4):
        print("said", double(n))
    print("said", list(numbers(2)))
    threads = [threading.Thread(target=double, args=(n,)) for n in (7, 8)]
    for thread in threads:
        thread.start()
        thread.join()
    print("said", double(-1))
"""
SAID = ["said 1", "said 3", "said 5", "said 7", "said [0, 1]", "said -1"]
AT = "program.py({})double"

WALKS = {
    "each pass, in threads too": (
        "b 5 | c | c | c | c | c | c | c | c",
        [*(x for s in SAID[:4] for x in (AT.format(5), s)), SAID[4], AT.format(5), AT.format(5), AT.format(5), SAID[5]],
    ),
    "a condition": ("b 5, n == 8 | c | c", [*SAID[:5], AT.format(5), SAID[5]]),
    "a temporary one": ("tbreak 6 | c | c", [AT.format(6), *SAID]),
    "a function's": ("b double, n > 2 | c | c | q", [*SAID[:3], AT.format(5), *SAID[3:5], AT.format(5)]),
    "a generator's": ("b 12 | c | c | cl 1 | c", [*SAID[:4], *["program.py(12)numbers"] * 2, *SAID[4:]]),
    "ignored twice, then disabled": (
        "b 5 | ignore 1 2 | c | disable 1 | c", [*SAID[:2], AT.format(5), *SAID[2:]],
    ),
    "next, return, until from one": (
        "b 5, n == 1 | c | n | unt 7 | r | c",
        [SAID[0], AT.format(5), AT.format(6), AT.format(7), AT.format(7), *SAID[1:]],
    ),
    "out to the caller and on": (
        "tbreak 6 | c | r | n | n | s | s | c",
        [AT.format(6), AT.format(7), SAID[0], "program.py(14)<module>",
         "program.py(15)<module>", AT.format(4), AT.format(5), *SAID[1:]],
    ),
    "set at a stop in the same function, later and earlier": (
        "b 5, n == 0 | c | b 7, n == 0 | c | b 4 | b 6, n == 2 | c | cl | y | c",
        [AT.format(5), AT.format(7), SAID[0], SAID[1], AT.format(6), *SAID[2:]],
    ),
    "jumped over, with a value of the user's": (
        "b 5, n == 3 | c | jump 6 | !m = 70 | c", [*SAID[:3], AT.format(5), AT.format(6), "said 71", *SAID[4:]],
    ),
    "a local assigned": (
        "b 6, n == 2 | c | !m = 40 | n | c", [*SAID[:2], AT.format(6), AT.format(7), "said 41", *SAID[3:]],
    ),
    "steps into a function with one": (
        "b 6, n < 2 | b 15 | c | s | n | n | c | cl 2 | c | c | c",
        ["program.py(15)<module>", AT.format(4), AT.format(5), AT.format(6), SAID[0], "program.py(15)<module>",
         AT.format(6), *SAID[1:5], AT.format(6), SAID[5]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WALKS)
def test_stops(case: str, tmp_path: Path) -> None:
    typed, expected = WALKS[case]
    lines, status = run(tmp_path, FUNCTIONS, typed)
    assert places(lines)[1:] == expected, "\n".join(lines)
    assert status == 0


def test_a_module_that_is_imported_later(tmp_path: Path) -> None:
    lines, _ = run(
        tmp_path, "import sys\nimport later\nprint('said', later.triple(3))\n",
        f"b {tmp_path}/later.py:2 | c | p ('n', n) | c", later="def triple(n):\n    m = n * 3\n    return m\n",
    )  # fmt: skip
    assert places(lines)[1:] == ["later.py(2)triple", "said 9"] and "('n', 3)" in lines


def test_a_loop_that_is_under_way_when_it_gets_one(tmp_path: Path) -> None:
    program = """
        total = 0
        for n in range(3):
            total += n
            total *= 2
        print("said", total)
    """
    lines, _ = run(tmp_path, program, "tbreak 4 | c | b 5, n > 0 | c | n | c | cl 1 | c")
    assert places(lines)[1:] == [f"program.py({line})<module>" for line in (4, 5, 3, 5)] + ["said 8"]


@MONITORED
def test_the_programs_own_trace_function_sees_what_it_sees_alone(tmp_path: Path) -> None:
    program = """
        import sys

        def work(n):
            m = n + 1
            return m

        seen = []

        def trace(frame, event, arg):
            if frame.f_code.co_name == "work":
                seen.append((event, frame.f_lineno))
            return trace

        sys.settrace(trace)
        work(1)
        work(2)
        sys.settrace(None)
        print("said", seen[:4], len(seen))
    """
    lines, _ = run(tmp_path, program, "b 19 | c | c")
    expected = "said [('call', 4), ('line', 5), ('line', 6), ('return', 6)] 8"
    assert places(lines)[1:] == ["program.py(19)<module>", expected]


@MONITORED
def test_a_breakpoint_stops_beside_the_programs_trace_function(tmp_path: Path) -> None:
    program = """
        import sys

        def work(n):
            m = n + 1
            return m

        seen = []
        sys.settrace(lambda frame, event, arg: seen.append(event))
        work(1)
        mine = sys.gettrace() is not None
        sys.settrace(None)
        print("said", mine, len(seen) > 0)
    """
    lines, _ = run(tmp_path, program, "b 5 | c | p ('n', n) | c")
    assert places(lines)[1:] == ["program.py(5)work", "said True True"] and "('n', 1)" in lines


@MONITORED
def test_the_programs_own_monitoring_goes_on(tmp_path: Path) -> None:
    program = """
        import sys

        def work(n):
            m = n + 1
            return m

        seen = []
        for number in (0, 1, 2, 5):
            sys.monitoring.use_tool_id(number, f"mine {number}")
        sys.monitoring.register_callback(2, sys.monitoring.events.LINE, lambda code, line: seen.append(line))
        sys.monitoring.set_local_events(2, work.__code__, sys.monitoring.events.LINE)
        print("said", work(1), work(2))
        print("said", seen)
    """
    lines, _ = run(tmp_path, program, "b 5, n == 2 | c | n | c")
    assert places(lines)[1:] == ["program.py(5)work", "program.py(6)work", "said 2 3", "said [5, 6, 5, 6]"]


@MONITORED
def test_where_the_program_has_taken_all_places_for_tools_it_stops_by_tracing(tmp_path: Path) -> None:
    program = """
        import sys

        def work(n):
            m = n + 1
            return m

        for number in range(6):
            sys.monitoring.use_tool_id(number, f"mine {number}")
        breakpoint()
        print("said", work(1), sys.gettrace() is not None)
    """
    lines, _ = run(tmp_path, program, "c | b 5 | c | c")
    assert places(lines)[-2:] == ["program.py(5)work", "said 2 True"], "\n".join(lines)


@MONITORED
def test_while_it_waits_nothing_is_traced_and_other_code_is_let_alone(tmp_path: Path) -> None:
    program = """
        import sys, threading
        from sys import monitoring

        def stops(n):
            m = n + 1
            return m

        def other(n):
            return n * 2

        def tools():
            return [number for number in range(6) if str(monitoring.get_tool(number)).startswith("tfdb")]

        def report():
            local = [sum(monitoring.get_local_events(t, f.__code__) for t in tools()) > 0 for f in (stops, other)]
            print("said", sys.gettrace(), threading.gettrace(), len(tools()), local)

        stops(0), other(0)
        report()
        stops(5)
        report()
    """
    lines, _ = run(tmp_path, program, "b 6, n == 5 | c | n | cl 1 | c")
    armed, gone = "said None None 1 [True, False]", "said None None 0 [False, False]"
    assert places(lines)[1:] == [armed, "program.py(6)stops", "program.py(7)stops", gone], "\n".join(lines)


@MONITORED
def test_functions_are_traced_into_graphs_without_a_trace_function(tmp_path: Path) -> None:
    program = """
        import sys
        import tensorflow as tf

        traced = []

        def helper(x):
            traced.append(sys.gettrace())
            return x * 2.0

        @tf.function
        def stops(x):
            y = helper(x)
            return y

        print("said", float(stops(tf.constant(2.0))), float(stops(tf.constant(3.0))), traced)
    """
    lines, _ = run(tmp_path, program, "b 14 | c | p ('y', float(y)) | c | p ('y', float(y)) | c")
    assert places(lines)[1:] == ["program.py(14)stops"] * 2 + ["said 4.0 6.0 [None]"], "\n".join(lines)
    assert "('y', 4.0)" in lines and "('y', 6.0)" in lines


def test_ctrl_c_while_it_waits(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "def never():\n    return 0\n\nn = 0\nprint('running')\nwhile n >= 0:\n    n += 1\nprint('over')\n"
    )
    shown, status = processes.interrupted(program, ["-c", "b 2"], "!n = -5\nc\n")
    assert status == 0
    assert "Program interrupted" in shown and shown.rstrip().endswith("over")


def test_an_uncaught_error_behind_a_breakpoint_ends_in_post_mortem(tmp_path: Path) -> None:
    program = "def work(n):\n    m = n + 1\n    return 1 // (m - 2)\n\nwork(1)\n"
    lines, status = run(tmp_path, program, "b 2 | c | c | p ('m', m) | q")
    assert places(lines)[1:] == ["program.py(2)work", "program.py(3)work"] and "('m', 2)" in lines
    assert status == 1


def test_a_condition_is_compiled_once_for_all_passes(tmp_path: Path) -> None:
    program = """
        import sys
        import tensorflow as tf

        codes = []

        def note():
            codes.append(sys._getframe(1).f_code)
            return False

        @tf.function
        def spin(x):
            for i in tf.range(5):
                x = tf.sin(x)
            return x

        spin(tf.ones(3))
        print("codes", len(codes), len(set(map(id, codes))))
    """
    lines, status = run(tmp_path, program, "b 14, note() | c | c")
    assert "codes 5 1" in "\n".join(lines) and status == 0
