# ruff: noqa: E501
"""Programs that are hard on a debugger: classes that refuse to be looked at, one-line lambdas, forked workers."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from processes import run
from walks import walk

import tfdb


class Refusing:
    """Every way to look at it raises."""

    __slots__ = ()

    def refuse(self, *_: Any) -> Any:
        raise RuntimeError("refused")

    __repr__ = __str__ = __eq__ = __getattr__ = __bool__ = __len__ = __iter__ = __hash__ = refuse  # type: ignore[assignment]
    __class__ = property(refuse)  # type: ignore[assignment]


class RefusingDict(dict[str, Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("refused")

    __getitem__ = items = __iter__  # type: ignore[assignment]


@tf.function(autograph=False)
def beside_refusing(x: Any) -> Any:
    bad, table = Refusing(), RefusingDict(x=x)
    tfdb.set_trace()
    return x + 1.0 if bad is not table else x


def run_refusing() -> None:
    tfdb.set_trace()
    for n in range(2):
        beside_refusing(tf.constant(float(n)))


def test_locals_that_refuse_to_be_looked_at_cost_no_stop() -> None:
    walk(
        run_refusing,
        """
        c                     | beside_refusing: tfdb.set_trace()
        p float(x)            | 0.0
        p bad                 | *** RuntimeError: refused
        whatis bad            | *** RuntimeError: refused
        p type(bad).__name__  | 'Refusing'
        p float(dict.get(table, 'x')) | 0.0
        a                     | x = <tf.Tensor: shape=(), dtype=float32, numpy=0.0>
        c                     | beside_refusing: tfdb.set_trace()
        p float(x)            | 1.0
        c                     |
    """,
    )


LOCAL_SLOTS = """import tensorflow as tf
class Slotted:
    __slots__ = ("seen", "never")
@tf.function
def step(x):
    kept = Slotted()
    kept.seen = x * 2.0
    y = kept.seen
    y = y + 1.0
    return y
print("values", float(step(tf.constant(1.0))), float(step(tf.constant(3.0))))
"""


def test_attributes_in_slots_have_the_values_of_the_pass(tmp_path: Path) -> None:
    done = program(tmp_path, LOCAL_SLOTS, "b 9\nc\np 'seen', float(kept.seen)\nc\np 'seen', float(kept.seen)\nc\n")
    assert "('seen', 2.0)" in done.stdout and "('seen', 6.0)" in done.stdout, done.stdout
    assert "values 3.0 7.0" in done.stdout


def program(tmp_path: Path, text: str, commands: str) -> subprocess.CompletedProcess[str]:
    """Run a program's text with `python -m tfdb`, `commands` typed."""
    path = tmp_path / "program.py"
    path.write_text(text)
    return run("-m", "tfdb", path, typed=commands)


LAMBDAS = """import tensorflow as tf
double = tf.function(lambda v: v * 2)
print("double", int(double(tf.constant(4))))
print("mapped", [int(v) for v in tf.data.Dataset.range(3).map(lambda v: v + 1)])
"""


@pytest.mark.parametrize(("line", "stops"), [(2, 1), (4, 3)])
def test_the_body_of_a_lambda_stops_once_a_call(tmp_path: Path, line: int, stops: int) -> None:
    done = program(tmp_path, LAMBDAS, f"b {line}\n" + "c\n" * 10)
    assert done.returncode == 0
    assert done.stdout.count("graph stop") == stops, done.stdout
    assert "double 8" in done.stdout and "mapped [1, 2, 3]" in done.stdout


@tf.function
def maps_rows(x: Any) -> Any:
    scale = x[0] + 1.0

    def row(v: Any) -> Any:
        w = v * scale
        return w

    return tf.map_fn(row, x)


def run_maps() -> None:
    tfdb.set_trace()
    print(maps_rows(tf.constant([1.0, 2.0])).numpy().tolist())


def test_the_caller_of_a_mapped_function_is_on_the_stack() -> None:
    walk(
        run_maps,
        """
        b @return w@   | Breakpoint 1 at ...
        c              | row: return w
        p float(w)     | 2.0
        u              | maps_rows: return tf.map_fn(row, x)
        p float(scale) | 2.0
        c              | row: return w
        p float(w)     | 4.0
        c              | [2.0, 4.0]
    """,
    )


TO_COME = """import tensorflow as tf
def plain(x):
    return x + 1
@tf.function
def decorated(x):
    '''Doubles.'''
    return x * 2
class Model:
    @tf.function
    def call(self, x):
        return x * 3
    def eager(self, x):
        return x * 4
x = tf.constant(5)
print(int(plain(x)), int(decorated(x)), int(Model().call(x)), int(Model().eager(x)))
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("plain", "return x + 1"),
        ("decorated", "return x * 2"),
        ("Model.call", "return x * 3"),
        ("Model.eager", "return x * 4"),
    ],
)
def test_break_on_a_function_that_is_not_defined_yet(tmp_path: Path, name: str, line: str) -> None:
    done = program(tmp_path, TO_COME, f"b {name}\nc\np 'x is', int(x)\nc\n")
    assert f"-> {line}\n(tfdb) ('x is', 5)" in done.stdout, done.stdout
    assert "6 10 15 20" in done.stdout


FORKED = """import multiprocessing
def work(n):
    return n * n
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(pool.map(work, [2, 3]))
    print(work(5))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_forked_worker_runs_past_breakpoints(tmp_path: Path) -> None:
    done = program(tmp_path, FORKED, "b 3\nc\np 'n is', n\nc\n")
    assert "[4, 9]" in done.stdout and "('n is', 5)" in done.stdout, done.stdout
    assert done.stdout.count("-> return n * n") == 1


CONSOLE = """import sys
import tensorflow as tf
from parts import helpers
@tf.function
def step(x):
    y = helpers.twice(x)
    return y
print("step", int(step(tf.constant(2))), int(step(tf.constant(3))))
"""


def test_exit_leaves_the_interactive_console_only(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "helpers.py").write_text("def twice(x):\n    z = x * 2\n    return z\n")
    commands = "b step\nc\ninteract\nint(x) + 40\nexit()\nb helpers.py:3\nc\np 'z is', int(z)\ncl\ny\nc\n"
    done = program(tmp_path, CONSOLE, commands)
    assert ">>> 42" in done.stdout and "('z is', 4)" in done.stdout, done.stdout
    assert done.returncode == 0 and "step 4 6" in done.stdout


def test_a_closed_standard_input_is_the_end_of_input(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "helpers.py").write_text("def twice(x):\n    return x * 2\n")
    done = program(tmp_path, CONSOLE, "b step\nc\n!sys.stdin.close()\np 1\n")
    assert "standard input is closed" in done.stdout, done.stdout
    assert "step" not in done.stdout.splitlines()[-1] and "Traceback" not in done.stderr


REFUSED = """import tensorflow as tf
@tf.function
def check(x):
    y = x + 1
    tf.debugging.assert_less(y, 0, message="too big")
    return y
try:
    check(tf.constant(1))
except tf.errors.InvalidArgumentError:
    print("caught")
raise SystemExit(3)
"""


def test_stepping_over_an_error_of_a_graph_shows_its_sentence_only(tmp_path: Path) -> None:
    done = program(tmp_path, REFUSED, "b check\nc\n" + "n\n" * 4 + "c\n")
    assert "InvalidArgumentError: assertion failed: [too big]" in done.stdout, done.stdout
    assert "Detected at node" not in done.stdout and "caught" in done.stdout
    assert done.returncode == 3


PROMPTED = """import tensorflow as tf
THREADS
@tf.function
def step(x):
    y = x + 1.0
    return y
print("step", float(step(tf.constant(1.0))))
"""
MAPPED = "p tf.vectorized_map(lambda v: v * 2, tf.range(3)).numpy().tolist()"
REDUCED = "p int(tf.data.Dataset.range(4).reduce(tf.constant(0, tf.int64), lambda a, b: a + b))"


@pytest.mark.parametrize(
    ("threads", "shown"),
    [
        ("", ["[0, 2, 4]", "6"]),
        ("tf.config.threading.set_inter_op_parallelism_threads(1)", ["*** RuntimeError: this stop holds"] * 2),
    ],
)
def test_what_has_no_eager_form_runs_at_a_prompt_or_is_refused(tmp_path: Path, threads: str, shown: list[str]) -> None:
    text = PROMPTED.replace("THREADS", threads)
    done = program(tmp_path, text, f"b step\nc\n{MAPPED}\n{REDUCED}\nc\n")
    answers = done.stdout.split("(tfdb) ")[3:5]
    assert all(answer.startswith(start) for answer, start in zip(answers, shown, strict=True)), done.stdout
    assert "step 2.0" in done.stdout


def test_run_at_a_stop_inside_a_graph_starts_the_program_again(tmp_path: Path) -> None:
    text = PROMPTED.replace("THREADS", "import sys; print('started', sys.argv[1:])")
    done = program(tmp_path, text, "b step\nc\nrun one two\nc\np 'x is', float(x)\nc\n")
    assert done.stdout.count("graph stop") == 2, done.stdout
    assert "started []" in done.stdout and "started ['one', 'two']" in done.stdout
    assert "('x is', 1.0)" in done.stdout and done.stdout.count("step 2.0") == 1
