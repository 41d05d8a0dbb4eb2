"""`repro`, `rerun` and `compare` after an error in a function of a dataset: they are about that function's call."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from processes import run
from wrecks import examined, text_of

from tfdb import compare, probes, repro, rerun
from tfdb.kept import Keeper
from tfdb.sources import Scope

rows = tf.constant([1.0, 2.0, 3.0])


def pick(i: Any, j: Any) -> Any:
    k = i + j
    return tf.gather(rows, k)


def square(n: Any) -> Any:
    return tf.reshape(tf.range(n), [2, 2])


def add(total: Any, n: Any) -> Any:
    tf.debugging.assert_less(total + n, tf.constant(4, tf.int64))
    return total + n


def fixed(row: Any) -> Any:
    return tf.ensure_shape(row, [2])


def number(line: Any) -> Any:
    return tf.strings.to_number(line)


def mapped() -> Any:
    return tf.data.Dataset.from_tensor_slices(([0, 1, 4], [0, 0, 1])).map(pick, num_parallel_calls=2).batch(3)


def filtered() -> Any:
    return tf.data.Dataset.range(5).filter(lambda n: rows[n] > 0).batch(2)


def flat() -> Any:
    return tf.data.Dataset.from_tensor_slices([4, 6]).flat_map(lambda n: tf.data.Dataset.from_tensors(n).map(square))


def reduced() -> Any:
    return [tf.data.Dataset.range(5).reduce(tf.constant(0, tf.int64), add)]


def uneven() -> Any:
    return tf.data.Dataset.range(3).map(lambda n: tf.ones([n + 2])).map(fixed)


def traced() -> Any:
    return tf.data.Dataset.from_tensor_slices(tf.ones([4, 5])).map(lambda row: tf.matmul(row[None], rows[:, None]))


def parsed() -> Any:
    return tf.data.Dataset.from_tensor_slices(["1", "x"]).map(number)


CASES = [
    (mapped, "pick", [4, 1]),
    (filtered, "<lambda>", [3]),
    (flat, "square", [6]),
    (reduced, "add", [3, 3]),
    (uneven, "fixed", [[1.0, 1.0, 1.0]]),
    (traced, "<lambda>", [[1.0] * 5]),
    (parsed, "number", [b"x"]),
]


@pytest.mark.parametrize(("make", "name", "args"), CASES)
def test_the_call_that_failed_is_known(keeper: Keeper, make: Callable[[], Any], name: str, args: list[Any]) -> None:
    wreck = examined(lambda: list(make()), keeper)
    assert wreck.given is not None, text_of(wreck)
    target = rerun.of_given(wreck.given)
    assert target.name == name
    assert [np.asarray(each).tolist() for each in target.args] == args
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        target.function(*target.args)


@pytest.mark.parametrize(("make", "verdict"), [(filtered, repro.SAME), (uneven, repro.ALIKE), (traced, repro.SAME)])
def test_it_fails_the_same_way_in_a_fresh_process(
    keeper: Keeper, tmp_path: Path, make: Callable[[], Any], verdict: str
) -> None:
    wreck = examined(lambda: list(make()), keeper)
    assert wreck.given is not None
    failure = repro.of_error(wreck.failure.error)
    target = rerun.of_given(wreck.given)
    written = repro.write(tmp_path / "bug.py", target, failure, [], [Scope(__file__, globals())], False)
    assert written.verdict == verdict, written.said  # EnsureShape names the argument


def test_a_comparison_survives_strings(keeper: Keeper) -> None:
    wreck = examined(lambda: list(parsed()), keeper)
    assert wreck.given is not None
    found = compare.compare(rerun.of_given(wreck.given), contextlib.nullcontext)
    assert "XLA compiles no graph that takes a string" in str(found.ways[2].error)


@pytest.mark.parametrize("value", [tf.constant("a"), tf.constant(["a", "b"])])
def test_xla_is_given_no_strings(value: Any) -> None:
    kept = tf.constant(["x", "y"])
    for function in (tf.function(lambda s: tf.strings.length(s)), tf.function(lambda s: tf.shape(kept)[0])):
        given = probes.trace(function, (value,), {})
        with pytest.raises(TypeError, match="a string"):
            probes.run(given, xla=True)


PROGRAM = """
import tensorflow as tf

saved = tf.constant([1.0, 2.0])


@tf.function
def twice(x):
    return x * 2.0


def call(i):
    return saved[i]


def main():
    twice(tf.constant(1.0))
    for value in tf.data.Dataset.range(4).map(call):
        print(value)


main()
"""


def test_not_about_the_function_that_was_called_last(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    typed = "c\nrepro bug.py\nrerun\np i\nq\ncompare\nq\n"
    printed = run("-m", "tfdb", "program.py", typed=typed, cwd=tmp_path).stdout
    assert "run in a fresh process: the same: InvalidArgumentError: slice index 2 of dimension 0" in printed
    assert "re-run of call() · element 2 of its dataset · eager" in printed
    assert "call() · element 2 of its dataset · variables as now" in printed
    assert "twice()" not in printed
