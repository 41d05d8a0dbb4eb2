"""`b FILE:LINE` and `b PACKAGE.MODULE.FUNCTION` before the module is there, in processes of their own."""

import textwrap
from pathlib import Path

from processes import run

MODULE = '''
import tensorflow as tf


class Gap:
    def of(self, a, b):
        """The squared difference."""
        gap = a - b
        return tf.square(gap)


def twice(x):
    double = x * 2
    return double
'''
PROGRAM = """
import sys

import tensorflow as tf

sys.path.insert(0, {directory!r})


def main():
    from lossespkg.core import Gap, twice

    measure = tf.function(Gap().of)
    print("gaps", *(float(measure(tf.constant(9.0), tf.constant(b))) for b in (8.0, 7.0, 6.0)), twice(5))


main()
"""


def typed(path: Path, commands: str) -> str:
    """What tfdb prints for these commands at a program whose package lies beside it, or, for `far.py`, elsewhere."""
    package = path.parent / ("elsewhere" if path.stem == "far" else "") / "lossespkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "core.py").write_text(MODULE)
    path.write_text(PROGRAM.format(directory=str(package.parent)))
    done = run("-m", "tfdb", path, typed=textwrap.dedent(commands))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_breakpoint_waits_for_its_file_and_keeps_what_was_set_on_it(tmp_path: Path) -> None:
    shown = typed(
        tmp_path / "far.py",
        """
        b lossespkg/core.py:9, gap > 1
        commands 1
        p 'gap', float(gap)
        end
        ignore 1 1
        b lossespkg/core:14
        b nowhere/core.py:3
        c
        b
        c
        p 'double', double
        c
        """,
    )
    assert "Breakpoint 1 at pending:lossespkg/core.py:9" in shown
    assert shown.index("elsewhere/lossespkg/core.py:9") < shown.index("('gap', 3.0)") < shown.index("gaps 1.0 4.0 9.0")
    assert "('gap', 2.0)" not in shown and "('double', 10)" in shown
    assert "stop only if gap > 1" in shown[shown.index("('gap', 3.0)") :]
    assert "breakpoint 3 waited for nowhere/core.py:3: never imported" in shown


def test_functions_and_methods_of_modules_that_are_not_imported_yet(tmp_path: Path) -> None:
    shown = typed(
        tmp_path / "near.py",
        """
        b lossespkg.core.Gap.of
        b lossespkg.core.twice
        b lossespkg.core.none
        c
        p 'b', float(b)
        cl 1
        c
        p 'x', x
        c
        """,
    )
    assert "core.py(8)of()" in shown and "('b', 8.0)" in shown
    assert "core.py(13)twice()" in shown and "('x', 5)" in shown
    assert "The specified object 'lossespkg.core.none' is not a function" in shown
    assert "gaps 1.0 4.0 9.0 10" in shown
