"""The end of a process whose datasets are still at work in hooks, and of a program that is quit while it deletes."""

import sys
from pathlib import Path

import pytest
from processes import run

from tfdb.interrupts import raise_from

PROGRAM = """
import tensorflow as tf

def doubled(v):
    w = v * 2
    return w

rows = iter(tf.data.Dataset.range(10**9).map(doubled).prefetch(2))
print("first", int(next(rows)))
{end}
"""
SLOW = "__import__('time').sleep(0.3)"  # None, so never a stop: the dataset's thread is in the hook most of the time
ENDS = {"over": "", "kept by an error": "1 / 0", "exit": "raise SystemExit(3)"}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_while_a_dataset_is_in_a_hook(end: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    path.write_text(PROGRAM.format(end=ENDS[end]))
    done = run("-m", "tfdb", "-c", f"b 5, {SLOW}", path, typed="q\n")
    assert "first 0" in done.stdout, done.stderr
    assert done.returncode == {"over": 0, "kept by an error": 1, "exit": 3}[end], done.stderr


def test_a_process_with_set_trace_ends_while_a_dataset_is_in_a_hook(tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    text = PROGRAM.format(end="").replace("    w =", "    tfdb.set_trace(v < 0)\n    w =")
    path.write_text("import tfdb\n" + text)
    done = run(path)
    assert done.stdout.endswith("first 0\n") and done.returncode == 0, done.stderr


def test_an_end_asked_for_within_a_deletion_comes_right_after_it() -> None:
    passed = []

    class Held:
        def __del__(self) -> None:
            raise_from(sys._getframe(), SystemExit(7))
            passed.append("deletion")

    def held() -> None:
        one = Held()
        del one
        passed.append("too far")

    with pytest.raises(SystemExit, match="7"):
        held()
    assert passed == ["deletion"]
    with pytest.raises(SystemExit, match="8"):
        raise_from(sys._getframe(), SystemExit(8))
