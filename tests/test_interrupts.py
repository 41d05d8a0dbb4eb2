"""Ctrl-C during a graph call, in processes of their own: where it stops, and what is said meanwhile."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import tensorflow as tf

@tf.function
def spin(x, n):
    for i in tf.range(n):
        x = tf.sin(x)
    return x

spin(tf.ones(3), tf.constant(3))
print("running", flush=True)
spin(tf.ones(3), tf.constant({passes}))
print("over", flush=True)
"""


def interrupted(path: Path, passes: int, options: list[str], typed: str) -> tuple[str, int]:
    """Run the program, interrupt it half a second after its long call has begun; its output and exit status."""
    path.write_text(PROGRAM.format(passes=passes))
    return interrupted_program(path, options, typed)


def interrupted_program(path: Path, options: list[str], typed: str) -> tuple[str, int]:
    """The same of any program that prints `running`."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "tfdb", *options, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        return talk(process, typed), process.wait(timeout=60)


def talk(process: "subprocess.Popen[str]", typed: str) -> str:
    """Type to the process, interrupt it, and read all that it prints."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(typed)
    process.stdin.close()
    shown = ""
    for line in process.stdout:
        shown += line
        if line.endswith("running\n"):
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
    return shown


def test_a_planted_line_stops_in_the_graph_with_its_values(tmp_path: Path) -> None:
    options = ["-c", "b 7, i < 0"]
    output, status = interrupted(tmp_path / "planted.py", 100_000_000, options, "p 'at', bool(x[0] < 1)\nw\nq\n")
    assert re.search(r"graph stop · spin · pass \d+\n> .*planted\.py\(\d+\)spin\(\)", output), output
    assert "('at', True)" in output and "planted.py(12)<module>" in output
    assert "over" not in output and status == 0


def test_without_a_hook_it_stops_after_the_call_at_its_line(tmp_path: Path) -> None:
    output, status = interrupted(tmp_path / "plain.py", 1_500_000, [], "c\np 'here'\nc\n")
    assert "Program interrupted" in output and "plain.py(12)<module>" in output
    assert output.index("plain.py(12)") < output.index("'here'") < output.index("over")
    assert status == 0


def test_a_call_that_never_ends_is_asked_about_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "endless.py"
    path.write_text(
        """
import tensorflow as tf

@tf.function
def spin(n):
    i = tf.constant(0)
    while i < n:
        i = i + tf.constant(0)
    return i

limit = tf.constant(5)
print("running", flush=True)
spin(limit)
print("over", flush=True)
"""
    )
    output, status = interrupted_program(path, [], "c\np 'limit', int(limit)\nw\nq\n")
    assert "endless.py(13)<module>" in output and "('limit', 5)" in output
    assert "over" not in output and status == 0


def test_other_code_that_never_comes_back_is_asked_about_too(tmp_path: Path) -> None:
    path = tmp_path / "stuck.py"
    path.write_text(
        """
import threading
import tensorflow as tf

def rows():
    yield 1
    threading.Event().wait()

for row in tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((), tf.int32)):
    print("running", flush=True)
"""
    )
    output, status = interrupted_program(path, [], "c\np 'row', int(row)\nq\n")
    assert "stuck.py(9)<module>" in output and "('row', 1)" in output and status == 0


def test_a_step_from_beside_a_call_goes_on_after_it(tmp_path: Path) -> None:
    output, status = interrupted(tmp_path / "long.py", 12_000_000, [], "c\np 'here'\nn\np 'then'\nc\n")
    assert "has not come back" in output
    assert output.index("long.py(12)") < output.index("'here'") < output.index("long.py(13)") < output.index("'then'")
    assert output.index("'then'") < output.index("over\n") and status == 0


def test_ctrl_c_in_eager_code_is_never_lost(tmp_path: Path) -> None:
    path = tmp_path / "eager.py"
    path.write_text(
        """
import time

print("running", flush=True)
for k in range(100):
    time.sleep(0.05)
print("over", flush=True)
"""
    )
    for _ in range(4):
        output, status = interrupted_program(path, [], "c\np 'at', k\nc\n")
        assert "eager.py(6)<module>" in output and "('at', " in output
        assert "over" in output and status == 0
