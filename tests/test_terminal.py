"""One real terminal: at a stop inside a graph, ipdb's prompt, colours, completion and history are there."""

import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pexpect = pytest.importorskip("pexpect", reason="pexpect is not installed")

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
    import tfdb
    import tensorflow as tf

    @tf.function
    def double(xylophone):
        product = xylophone * 2
        tfdb.set_trace()
        return product

    print("results", [float(double(tf.constant(number))) for number in (1.5, 2.5)])
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Any:
    """The program in a terminal of 100 columns, stopped in its graph for the first time."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "IPYTHONDIR": str(tmp_path)}
    environment.pop("COLUMNS", None)
    try:
        child = pexpect.spawn(
            sys.executable, [str(path)], env=environment, dimensions=(40, 100), timeout=90, encoding="utf-8"
        )
    except OSError as error:
        pytest.skip(f"this system has no pseudo-terminal: {error}")
    yield child
    child.close(force=True)


def test_a_graph_stop_in_a_terminal(terminal: Any) -> None:
    terminal.expect("graph stop")
    terminal.expect("ipdb>")
    screen = terminal.before
    assert "\x1b[3" in screen or "\x1b[38;5;" in screen, "no colours"
    assert "set_trace" in screen and "program.py" in screen

    terminal.send("p float(xylo\t")  # completed to the only name that begins so
    terminal.expect("xylophone")
    terminal.send(")\r")
    terminal.expect(r"1\.5")
    terminal.expect("ipdb>")

    terminal.send("p 'kept', 40 + 2\r")
    terminal.expect(r"\('kept', 42\)")
    terminal.expect("ipdb>")

    terminal.send("c\r")
    terminal.expect("graph stop")
    terminal.expect("ipdb>")
    terminal.send("\x1b[A\x1b[A\r")  # two up in the history: past `c`
    terminal.expect(r"\('kept', 42\)")
    terminal.expect("ipdb>")
    terminal.send("pt product\r")
    terminal.expect("float32")
    terminal.expect("ipdb>")
    terminal.send("c\r")
    terminal.expect(r"results \[3\.0, 5\.0\]")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


def test_quitting_in_a_terminal_leaves_it_clean(terminal: Any) -> None:
    terminal.expect("ipdb>")
    terminal.send("q\r")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 1
    assert "Traceback" not in terminal.before and "Graph execution error" not in terminal.before


SLOW = """
    import time
    import tensorflow as tf
    from tfdb import progress

    progress.PATIENCE = 0.0
    weight = tf.Variable(0.0)

    @tf.function
    def train():
        time.sleep(0.3)
        with tf.GradientTape() as tape:
            loss = tf.sqrt(weight)
        weight.assign_sub(tape.gradient(loss, weight) * 0.0)

    train()
"""


@pytest.mark.parametrize("options, told", [((), True), (("--no-prompt",), False)])
def test_a_search_that_takes_long_is_told_of_where_a_user_waits(tmp_path: Path, options: Any, told: bool) -> None:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(SLOW))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path)}
    arguments = ["-m", "tfdb", *options, "-w", "nan", str(path)]
    try:
        child = pexpect.spawn(sys.executable, arguments, env=environment, timeout=90, encoding="utf-8")
    except OSError as error:
        pytest.skip(f"this system has no pseudo-terminal: {error}")
    child.expect("NaN stopped before the update")
    before = child.before
    if told:
        child.expect("ipdb>")
        child.send("q\r")
    child.expect(pexpect.EOF)
    child.close(force=True)
    assert before.count("runs the step again, op by op") == told
