"""The end of a process whose datasets are still at work in hooks, and of a program that is quit while it deletes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import environment, run

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


PRESSED = """
import gc, os, signal
gc.disable()

class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

late = Late()
late.itself = late
del late
"""


@pytest.mark.parametrize("options", [["-m", "tfdb", "-c", f"b 5, {SLOW}"], []])
def test_ctrl_c_while_the_process_ends_changes_nothing(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    text = PROGRAM.format(end=PRESSED)
    path.write_text(
        text if options else "import tfdb\n" + text.replace("    w =", "    tfdb.set_trace(v < 0)\n    w =")
    )
    done = run(*options, path, typed="q\n")
    assert "first 0" in done.stdout and done.returncode == 0, done.stderr
    assert "KeyboardInterrupt" not in done.stderr and "ignored" not in done.stderr


DAEMONS = """
import threading

def forever(rows):
    while True:
        next(rows)
        went.set()

went = threading.Event()
threading.Thread(target=forever, args=(rows,), daemon=True).start()
went.wait()
print("over", flush=True)
"""


@pytest.mark.parametrize("condition", [SLOW, "v < 0"])
def test_a_thread_that_the_program_leaves_behind_has_no_error(condition: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    path.write_text(PROGRAM.format(end=DAEMONS))
    done = run("-m", "tfdb", "-c", f"b 5, {condition}", path, typed="q\n")
    assert "over" in done.stdout and done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


KEPT = """
import atexit, signal, time, weakref
atexit.register(lambda: print("handle", "gone" if handle() is None else "kept"))
import tensorflow as tf
import tfdb

def doubled(v):
    tfdb.set_trace(tf.py_function(nap, [], tf.bool))
    return v * 2

def nap():
    time.sleep(0.3)
    return False

def late(*event):
    raise ZeroDivisionError("late")

rows = iter(tf.data.Dataset.range(10**9).map(doubled).prefetch(2))
handle = weakref.ref(rows._iterator_resource)
print("first", int(next(rows)))
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, 0.5)
while True:
    next(rows)
"""


def test_an_error_that_came_while_waiting_for_an_element_keeps_no_iterator(tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    path.write_text(KEPT)
    done = run(path)
    assert "ZeroDivisionError: late" in done.stderr and done.returncode == 1, done.stderr
    assert "handle gone" in done.stdout, done.stdout


QUIT = """
import atexit
import tensorflow as tf
import tfdb

@tf.function
def doubled(v):
    {in_graph}
    return v * 2

atexit.register(lambda: print("at exit", float(doubled(tf.constant([3.0]))[0])))
{eager}
print(6 * 7 + float(doubled(tf.constant(2.0))))
"""


@pytest.mark.parametrize("stop", ["in_graph", "eager"])
def test_what_a_program_does_at_exit_runs_without_stops_after_q(stop: str, tmp_path: Path) -> None:
    path = tmp_path / "quits.py"
    path.write_text(QUIT.format(in_graph="tfdb.set_trace()", eager="tfdb.set_trace()" if stop == "eager" else ""))
    done = run(path, typed="q\n")
    assert "at exit 6.0" in done.stdout and "46.0" not in done.stdout, done.stdout
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr


def test_without_any_standard_input_the_first_prompt_is_the_end(tmp_path: Path) -> None:
    path = tmp_path / "short.py"
    path.write_text("print(40 + 2)\n")
    command = [sys.executable, "-m", "tfdb", path]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, preexec_fn=lambda: os.close(0)
    )
    assert "standard input is closed" in done.stdout and "42" not in done.stdout.splitlines()
    assert done.returncode == 0 and not done.stderr


def test_where_nobody_reads_the_output_the_next_prompt_is_the_end(tmp_path: Path) -> None:
    path = tmp_path / "short.py"
    path.write_text("print(1, file=open('went', 'w'))\n")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-u", "-m", "tfdb", path]
    done = subprocess.run(
        command, env=environment(), input="n\nn\n", stdout=write, stderr=subprocess.PIPE, text=True, timeout=60,
        cwd=tmp_path,
    )  # fmt: skip
    os.close(write)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "went").exists()


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
