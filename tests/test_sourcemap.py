"""Frames -> the user's activations: generated lines mapped back, scaffolding folded away, libraries hidden."""

import functools
import os
import sysconfig
from typing import Any

import pytest

from tfdb import sourcemap
from tfdb.sourcemap import activations, find_code, has_line, is_hidden, is_user, line_range

PURELIB = sysconfig.get_paths()["purelib"]
STDLIB = sysconfig.get_paths()["stdlib"]


@pytest.mark.parametrize(
    ("filename", "hidden", "user"),
    [
        (__file__, False, True),
        ("<stdin>", False, True),
        ("<frozen runpy>", True, False),
        ("/tmp/__autograph_generated_filex1.py", True, False),
        (os.path.join(STDLIB, "threading.py"), True, False),
        (os.path.join(PURELIB, "tensorflow", "python", "x.py"), True, False),
        (os.path.join(PURELIB, "keras", "src", "x.py"), True, False),
        (os.path.join(PURELIB, "transformers", "x.py"), False, False),
        (sourcemap.__file__, True, False),
    ],
)
def test_whose_file_it_is(filename: str, hidden: bool, user: bool) -> None:
    assert (is_hidden(filename), is_user(filename)) == (hidden, user)


def outer_of_two() -> Any:
    def nested() -> Any:
        return [
            1,
            2,
        ]

    return nested


def test_lines_and_nested_code() -> None:
    code = outer_of_two.__code__
    first, last = line_range(code)
    assert (first, last) == (code.co_firstlineno, code.co_firstlineno + 7)
    assert has_line(code, last) and not has_line(code, last + 1)
    found = find_code(code, "nested", first + 3)
    assert found is not None and found.co_name == "nested"
    assert find_code(code, "nested", last) is None


def seen_while_tracing(tf: Any, function: Any, *args: Any) -> list[tuple[str, int, tuple[str, ...]]]:
    """(function, line counted from the test's, sorted names) of the user's activations at each call of `look`."""
    import sys

    first = function.__code__.co_firstlineno
    found = []

    def look() -> None:
        here = [each for each in activations(sys._getframe(1)) if not each.hidden and each.filename == __file__]
        inside = here[: next(n for n, each in enumerate(here) if each.function == "seen_while_tracing")]
        found.extend((each.function, each.lineno - first, tuple(sorted(each.names()))) for each in inside)

    look.autograph_info__ = None  # type: ignore[attr-defined]
    tf.function(lambda *inputs: function(look, *inputs)).get_concrete_function(*args)
    return [each for each in found if each[0] != "<lambda>"]


def test_branches_and_loops_are_one_activation(tf: Any) -> None:
    def function(look: Any, x: Any) -> Any:
        total = x
        for number in tf.range(3):
            if number > 1:
                inside = total + number
                look()
                total = inside
        return total

    assert seen_while_tracing(tf, function, tf.constant(1)) == [
        ("function", 5, ("inside", "look", "number", "tf", "total", "x"))
    ]


def test_calls_are_activations_of_their_own(tf: Any) -> None:
    def helper(look: Any, value: Any) -> Any:
        look()
        return value

    def function(look: Any, x: Any) -> Any:
        doubled = x * 2
        return helper(
            look,
            doubled,
        )

    names = seen_while_tracing(tf, function, tf.constant(1))
    assert [each[0] for each in names] == ["helper", "function"]
    assert names[0][2] == ("look", "value")
    assert names[1][1] == 2 and "doubled" in names[1][2]


def passing(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        handed = args
        return function(*handed)

    return wrapper


def test_a_wrapper_keeps_its_own_lines(tf: Any) -> None:
    first = passing.__code__.co_firstlineno

    @passing
    def function(look: Any, x: Any) -> Any:
        look()
        return x

    seen = seen_while_tracing(tf, function, tf.constant(1))
    assert [each[0] for each in seen] == ["function", "wrapper"]
    wrapper = seen[1]
    assert wrapper[1] + function.__code__.co_firstlineno == first + 4
    assert wrapper[2] == ("args", "function", "handed")
