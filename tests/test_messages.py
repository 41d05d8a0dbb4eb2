"""The text of a graph error that the program itself prints is the same with tfdb as without it."""

import re
from pathlib import Path
from typing import Any

import pytest
from processes import run

from tfdb.internals_stacks import OwnFrames, filters

PROGRAM = """
import sys
import threading
import keras
import tensorflow as tf


@tf.function
def pick(x, i):
    y = x * 2.0
    for _ in tf.range(2):
        if tf.reduce_sum(y) > 0:
            y = tf.gather(y, i)
    return y


class Bag(keras.Model):
    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(4, 2)

    def call(self, ids):
        return tf.reduce_sum(self.table(ids), axis=[1, 2])


def tell(function):
    try:
        function()
    except tf.errors.OpError as error:
        print(error, file=sys.stderr)


bag = Bag()
bag.compile("sgd", "mse")
tell(lambda: pick(tf.constant([1.0, 2.0]), tf.constant([7, 7])))
thread = threading.Thread(target=tell, args=[lambda: pick(tf.constant([1.0, 2.0]), tf.constant([8, 8]))])
thread.start()
thread.join()
tell(lambda: bag.fit(tf.constant([[1, 9]]), tf.constant([1.0]), verbose=0))
"""


def told(folder: Path, *before: str) -> list[str]:
    """What the program prints of its errors; the numbers that TensorFlow gives to functions are left out."""
    done = run(*before, "program.py", typed="c\n", cwd=folder)
    text = re.sub(r"(\[Op:__inference_\w+?)_\d+\]", r"\1]", done.stderr)
    return [line for line in text.splitlines() if "defined at" in line or line.startswith(("  File", "indices"))]


@pytest.mark.parametrize("options", [(), ("-w", "nan")])
def test_no_frame_of_the_debugger_is_in_the_text_of_an_error(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    plain = told(tmp_path)
    assert sum("defined at" in line for line in plain) == 3
    assert told(tmp_path, "-m", "tfdb", *options) == plain


def test_a_program_that_is_a_module_keeps_the_frames_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "other.py").write_text(PROGRAM)
    plain = [line.replace("other.py", "program.py") for line in told(tmp_path, "-m", "other")]
    assert any("runpy" in line for line in plain)
    assert [line.replace("other.py", "program.py") for line in told(tmp_path, "-m", "tfdb", "-m", "other")] == plain


def test_the_filters_are_as_before_when_the_debugger_leaves(tf: Any) -> None:
    stacks, _ = filters()
    factory = stacks.default_factory

    @tf.function
    def traced(x: Any) -> Any:
        frames = OwnFrames()
        frames.install()
        frames.install()
        own = [entry.get_filtered_filenames() for stack in stacks.values() for entry in stack]
        frames.remove()
        frames.remove()
        assert own and all(any(name.endswith("/tfdb/calls.py") for name in names) for names in own)
        return x

    traced(tf.constant(1.0))
    assert stacks.default_factory is factory
    assert not any("tfdb" in str(entry.get_filtered_filenames()) for stack in stacks.values() for entry in stack)
