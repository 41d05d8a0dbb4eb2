"""`repro` of other kinds of calls: a lambda is written by its name; a file that fails otherwise is not left."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys

import tensorflow as tf

rows = 4
fold = tf.function(lambda x: tf.reshape(x, [rows, -1]), input_signature=[tf.TensorSpec([None])])


class Cache:
    @tf.function
    def step(self, x):
        self.kept = x * 2.0
        return x


if sys.argv[1] == "lambda":
    fold(tf.ones([9]))
cache = Cache()
cache.step(tf.ones([3]))
print(cache.kept + 1.0)
"""


def session(tmp_path: Path, kind: str) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "tfdb", "program.py", kind]
    done = subprocess.run(command, input="c\nrepro bug.py\nq\n", capture_output=True, text=True, cwd=tmp_path)
    return done.stdout


def test_a_lambda_is_written_under_its_name(tmp_path: Path) -> None:
    told = session(tmp_path, "lambda")
    assert "run in a fresh process: the same: InvalidArgumentError: Input to reshape" in told
    assert "return fold(" in (tmp_path / "bug.py").read_text()


def test_a_file_that_fails_otherwise_is_not_left(tmp_path: Path) -> None:
    told = session(tmp_path, "leak")
    assert "*** not written: in a fresh process" in told and "not with TypeError" in told
    assert not (tmp_path / "bug.py").exists() and not (tmp_path / "bug.npz").exists()
