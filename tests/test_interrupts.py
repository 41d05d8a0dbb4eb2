"""Ctrl-C during a graph call, in processes of their own: where it stops, and what is said meanwhile."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
import tensorflow as tf
from processes import interrupted, run

from tfdb import internals_tracing, interrupts

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


FIT = """
import keras, numpy as np, tensorflow as tf

class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(4)

    def call(self, x):
        y = self.dense(x)
        return y

model, x = Model(), np.ones((64, 4), "float32")
model.compile("sgd", "mse", steps_per_execution=100_000)  # long calls: between them Python is at work
data = tf.data.Dataset.from_tensors((x[:8], x[:8])).repeat()
print("running", flush=True)
model.fit(data, steps_per_epoch=1_000_000, verbose=0)
print("over", flush=True)
"""
MAP = """
import tensorflow as tf

def doubled(v):
    w = v * 2
    return w

dataset = tf.data.Dataset.range(10**9).map(doubled)
print("running", flush=True)
{loop}
print("over", flush=True)
"""
LOOPS = ["for element in dataset: pass", "dataset.reduce(tf.constant(0, tf.int64), lambda a, b: a + b)"]


def spun(path: Path, passes: int, options: list[str], typed: str) -> tuple[str, int]:
    """The same of PROGRAM, half a second after its long call has begun."""
    path.write_text(PROGRAM.format(passes=passes))
    return interrupted(path, options, typed)


def test_a_planted_line_stops_in_the_graph_with_its_values(tmp_path: Path) -> None:
    options = ["-c", "b 7, i < 0"]
    output, status = spun(tmp_path / "planted.py", 100_000_000, options, "p 'at', bool(x[0] < 1)\nw\nq\n")
    assert re.search(r"graph stop · spin · pass \d+\n(--Return--\n)?> .*planted\.py\(\d+\)spin\(\)", output), output
    assert "('at', True)" in output and "planted.py(12)<module>" in output
    assert "over" not in output and status == 0


def test_without_a_hook_it_stops_after_the_call_at_its_line(tmp_path: Path) -> None:
    output, status = spun(tmp_path / "plain.py", 1_500_000, [], "c\np 'here'\nc\n")
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
    output, status = interrupted(path, [], "c\np 'limit', int(limit)\nw\nq\n")
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
    output, status = interrupted(path, [], "c\np 'row', int(row)\nq\n")
    assert "stuck.py(9)<module>" in output and "('row', 1)" in output and status == 0


def test_a_step_from_beside_a_call_goes_on_after_it(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text(
        """
import threading
import tensorflow as tf

@tf.function
def spin(x):
    while going:
        x = tf.sin(x)
    return x

going = tf.Variable(True)
print("running", flush=True)
spin(tf.ones(3))
print("over", flush=True)
"""
    )
    end = "!threading.Timer(2.0, going.assign, [False]).start()"  # of the call, while `n` waits for it
    output, status = interrupted(path, [], f"c\np 'here'\n{end}\nn\np 'then'\nc\n")
    assert "has not come back" in output
    assert output.index("long.py(13)") < output.index("'here'") < output.index("long.py(14)") < output.index("'then'")
    assert output.index("'then'") < output.index("over\n") and status == 0


def test_an_error_in_the_making_is_known_from_a_trace_function_that_is_asked_about_it() -> None:
    """Python before 3.12 may run the handler there, and what it raised became an internal error of TensorFlow's."""
    known: list[bool] = []

    def look(frame: FrameType, event: str, arg: object) -> None:
        if frame.f_code.co_name == "__init__" and frame.f_code.co_filename.endswith("eager/core.py"):
            known.append(internals_tracing.is_making_error(sys._getframe()))

    before = sys.gettrace()
    sys.settrace(look)
    try:
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.raw_ops.MatMul(a=tf.ones([2, 3]), b=tf.ones([2, 3]))
    finally:
        sys.settrace(before)
    assert known == [True]
    assert not internals_tracing.is_making_error(sys._getframe())


def test_ctrl_c_in_eager_code_is_never_lost(tmp_path: Path) -> None:
    path = tmp_path / "eager.py"
    path.write_text(
        """
import time
rest = list(range(100))
print("running", flush=True)
for k in rest:
    time.sleep(0.05)
print("over", flush=True)
"""
    )
    for _ in range(4):
        output, status = interrupted(path, [], "c\np 'at', k\n!rest.clear()\nc\n")
        assert "eager.py(6)<module>" in output and "('at', " in output
        assert "over" in output and status == 0


def test_fit_with_a_planted_line_stops_in_the_model(tmp_path: Path) -> None:
    options = ["-c", "b 10, x[0, 0] < 0"]
    path = tmp_path / "fit.py"
    path.write_text(FIT)
    output, status = interrupted(path, options, "p 'at', x.shape\nw\nq\n", 5.0)
    assert re.search(r"graph stop · call · pass \d+\n(--Return--\n)?> .*fit\.py\(\d+\)call\(\)", output), output
    assert "('at', TensorShape([8, 4]))" in output and "fit.py(17)<module>" in output
    assert "over" not in output and status == 0


def test_fit_without_hooks_stops_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "fit.py"
    path.write_text(FIT)
    output, status = interrupted(path, [], "c\np 'here'\nq\n", 5.0)
    assert "Program interrupted" in output and "fit.py(17)<module>" in output and "'here'" in output, output
    assert "over" not in output and status == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_the_map_of_a_dataset_stops_and_quits_cleanly(loop: str, tmp_path: Path) -> None:
    """A Python loop over the dataset may be at its own line when Ctrl-C comes."""
    path = tmp_path / "map.py"
    path.write_text(MAP.format(loop=loop))
    output, status = interrupted(path, ["-c", "b 5, v < 0"], "p 'here'\nq\n")
    if loop != LOOPS[0] or "Program interrupted" not in output:
        assert re.search(r"graph stop · doubled · pass \d+\n", output), output
    assert "'here'" in output and "Error" not in output and "over" not in output, output
    assert status == 0


class Told:
    """What an `Interrupts` with a pipe of its own, and no thread, has said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.taken = interrupts.Interrupts(
            lambda: self.said.append("noticed"), lambda frame: self.said.append("arrived"), lambda: None
        )
        self.taken.pipe = os.pipe()
        os.set_blocking(self.taken.pipe[0], False)

    def signals(self, count: int) -> None:
        assert self.taken.pipe is not None
        os.write(self.taken.pipe[1], bytes([signal.SIGINT] * count))

    def listener(self) -> None:
        assert self.taken.pipe is not None
        self.taken.take(self.taken.pipe[0])

    def handler(self) -> None:
        self.taken.handle(signal.SIGINT, None)


@pytest.fixture
def told() -> Iterator[Told]:
    before, made = signal.getsignal(signal.SIGINT), Told()
    signal.signal(signal.SIGINT, made.taken.handle)
    yield made
    signal.signal(signal.SIGINT, before)
    for each in made.taken.pipe or ():
        os.close(each)


def test_a_signal_that_the_thread_is_late_to_notice_is_noticed_once_and_first(told: Told) -> None:
    told.signals(1)
    told.handler()  # as on a busy machine: the listening thread has not run yet
    told.listener()
    assert told.said == ["noticed", "arrived"]


def test_after_signals_that_came_at_once_the_next_is_noticed_by_the_thread(told: Told) -> None:
    """A call that Python is in for long is left by what the thread notices."""
    told.signals(2)
    told.listener()
    told.handler()
    told.handler()
    before = list(told.said)
    assert before[0] == "noticed" and before.count("arrived") == 2
    told.signals(1)
    told.listener()
    assert told.said == [*before, "noticed"]


def test_a_signal_is_the_programs_own_once_it_has_set_a_handler(told: Told) -> None:
    signal.signal(signal.SIGINT, lambda number, frame: None)
    told.signals(1)
    told.listener()
    assert told.said == []


def test_without_pythons_file_descriptor_the_handler_notices_itself(told: Told) -> None:
    told.handler()
    assert told.said == ["noticed", "arrived"]


def test_a_program_that_has_its_own_handler_alone_answers_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    own = "import signal\nimport tensorflow as tf\nsignal.signal(signal.SIGINT, lambda n, f: print('its own'))"
    for passes, options in (1_500_000, []), (50_000, ["-c", "b 9, i < 0"]):
        path.write_text(PROGRAM.format(passes=passes).replace("import tensorflow as tf", own))
        output, status = interrupted(path, options, "c\n")
        assert "its own" in output and "over" in output and "interrupted" not in output.lower(), output
        assert status == 0


def test_a_command_at_a_graphs_prompt_ends(tmp_path: Path) -> None:
    path = tmp_path / "prompts.py"
    path.write_text(PROGRAM.replace('print("running", flush=True)', "").format(passes=3))
    forever = '!print("running", flush=True); exec("while True: pass")'
    output, status = interrupted(path, ["-c", "b 7"], f"{forever}\np 'here'\ncl\ny\nc\n")
    assert "KeyboardInterrupt" in output and output.index("KeyboardInterrupt") < output.index("'here'"), output
    assert "over" in output and status == 0, output


def test_ctrl_c_for_a_forked_child_is_not_the_parents(tmp_path: Path) -> None:
    path = tmp_path / "forks.py"
    path.write_text(
        """
import os, signal, threading
import tensorflow as tf
ready, went = os.pipe(), threading.Event()
child = os.fork()
if child == 0:
    try:
        os.write(ready[1], b"x")
        threading.Event().wait(30)
    except KeyboardInterrupt:
        os._exit(7)
os.read(ready[0], 1)
os.kill(child, signal.SIGINT)
print("child", os.waitpid(child, 0)[1] >> 8)
went.wait(1.5)  # longer than an answer takes
print("over")
"""
    )
    done = run("-m", "tfdb", path, typed="c\n")
    assert "child 7" in done.stdout and "over" in done.stdout and "interrupted" not in done.stdout, done.stdout


def test_where_nobody_can_be_asked_the_program_has_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "eager.py"
    path.write_text(
        """
import time
import tensorflow as tf

@tf.function
def doubled(x):
    y = x * 2
    return y

try:
    print("running", flush=True)
    for k in range(400):
        doubled(tf.constant(1.0))
        time.sleep(0.05)
except KeyboardInterrupt:
    print("caught", flush=True)
"""
    )
    for options in ([], ["-c", "b 8, y is None"]):
        output, status = interrupted(path, ["--no-prompt", *options], "")
        assert output.endswith("running\ncaught\n") and status == 0, output


REPLICAS = """
import os, signal, threading, tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
start, started = threading.Thread.start, []

def interrupting(thread):
    start(thread)
    if type(thread).__name__ == "_MirroredReplicaThread":
        started.append(thread)
        if len(started) == {number}:
            os.kill(os.getpid(), signal.SIGINT)

threading.Thread.start = interrupting

def doubled(x):
    y = x * 2.0
    return y

for n in range(4):
    strategy.run(doubled, args=(tf.constant(1.0),))
    print("step", n, flush=True)
"""


@pytest.mark.parametrize("number", [3, 4])
@pytest.mark.parametrize("answer", ["q\n", "run\nc\nq\n", ""])
def test_quitting_between_replicas_ends_the_program(tmp_path: Path, number: int, answer: str) -> None:
    """Threads of replicas that have been started, and wait for the main thread, are no reason to stay."""
    program = tmp_path / "replicas.py"
    program.write_text(REPLICAS.replace("{number}", str(number)))
    done = run("-m", "tfdb", program, typed="c\n" + answer)
    assert done.returncode == 0
    assert "step 0" in done.stdout and "Program interrupted" in done.stdout and "step 1" not in done.stdout
