"""`repro`: files that make a call again in a fresh process; each is run there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run

PROGRAM = """
import keras
import numpy as np
import tensorflow as tf

import helper
from helper import LIMIT as limit

keras.utils.set_random_seed(3)
table = tf.Variable([1.0, 2.0, 3.0], name="table")
factors = np.array([1.0, 0.0], "float32")
unused = open(__file__)


def scaled(x):
    return helper.twice(x) * factors[0]


@tf.function
def pick(ids, *, words=("a",)):
    rows = tf.gather(table, ids)
    return tf.reduce_sum(scaled(rows)) * limit


@tf.function(jit_compile=True)
def slope(a):
    with tf.GradientTape() as tape:
        tape.watch(a)
        sq = tf.reduce_sum(tf.square(a), axis=1)
        y = tf.reduce_sum(tf.where(sq > 0, tf.sqrt(sq), tf.zeros_like(sq)))
    return tape.gradient(y, a)


class Net(keras.Model):
    def __init__(self, width):
        super().__init__()
        self.table = keras.layers.Embedding(10, width)
        self.out = keras.layers.Dense(1)

    def call(self, ids):
        return self.out(self.table(ids)[:, 0])


WIDTH = 4
net = Net(WIDTH)
net.compile(optimizer="adam", loss="mse")


def main(kind):
    state = tf.Variable(1.0)

    @tf.function
    def root(x):
        state.assign_sub(x)
        return tf.sqrt(state)

    if kind == "error":
        pick(tf.constant([0, 1]))
        table.assign([5.0, 6.0, 7.0])
        pick(tf.constant([0, 7]), words=("b", b"c"))
    elif kind == "xla":
        slope(tf.constant([[0.0, 0.0], [3.0, 4.0]]))
    elif kind == "fit":
        ids = np.array([[1], [2], [12], [3]], "int32")
        net.fit(ids, np.ones((4, 1), "float32"), batch_size=2, shuffle=False, verbose=0)
    elif kind == "closure":
        root(tf.constant(0.5))
        root(tf.constant(3.0))
    elif kind == "fine":
        pick(tf.constant([0, 1]))


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
    print("end")
"""
HELPER = """
LIMIT = 2.0


def twice(x):
    return x * 2.0
"""


def session(folder: Path, kind: str, *commands: str) -> str:
    """What the debugger prints for these commands on the program."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "helper.py").write_text(HELPER)
    return run("-m", "tfdb", folder / "program.py", kind, typed="\n".join(commands)).stdout


def fresh(file: Path, *before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *before, str(file)], capture_output=True, text=True, timeout=300, cwd=file.parent
    )


END = str(PROGRAM.splitlines().index('    print("end")') + 1)
ROOT = str(PROGRAM.splitlines().index("        return tf.sqrt(state)") + 1)


def test_an_error_comes_again_from_a_script(tmp_path: Path) -> None:
    file = tmp_path / "bug.py"
    printed = session(tmp_path, "error", "c", f"repro {file}", "q")
    assert "run in a fresh process: the same: InvalidArgumentError: indices[1] = 7 is not in [0, 3)" in printed
    text = file.read_text()
    assert "def scaled(x):" in text and "def pick(ids, *, words=('a',)):" in text.replace('"', "'")
    assert "import helper" in text and "keras.utils.set_random_seed(3)" in text
    assert "unused" not in text and "class Net" not in text and "def main(kind)" not in text
    with np.load(tmp_path / "bug.npz") as saved:
        assert saved["table"].tolist() == [5.0, 6.0, 7.0]
    done = fresh(file)
    assert done.returncode == 1
    assert "indices[1] = 7 is not in [0, 3)" in done.stderr


def test_a_failing_fit_comes_again_from_a_pytest_test(tmp_path: Path) -> None:
    file = tmp_path / "test_bug.py"
    printed = session(tmp_path, "fit", "c", f"repro {file} --test", "q")
    assert "run in a fresh process: the same: InvalidArgumentError: indices[0,0] = 12 is not in [0, 10)" in printed
    done = fresh(file, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "indices[0,0] = 12 is not in [0, 10)" in done.stdout


def test_a_nan_that_only_xla_makes_comes_again(tmp_path: Path) -> None:
    file = tmp_path / "bug.py"
    printed = session(tmp_path, "xla", f"b {END}", "c", f"repro {file} slope", "q")
    assert "run in a fresh process: the same: AssertionError: result 0 holds nan or inf" in printed


def test_closures_and_state_at_the_call(tmp_path: Path) -> None:
    file = tmp_path / "bug.py"
    printed = session(tmp_path, "closure", f"b {ROOT}", "c", "c", "cl 1", f"repro {file}", "q")
    assert "run in a fresh process: the same: AssertionError: result 0 holds nan or inf: nan" in printed
    with np.load(tmp_path / "bug.npz") as saved:
        assert float(saved["state"]) == 0.5
    assert fresh(file).returncode == 1


def test_a_call_that_does_not_fail_asserts_what_it_gives(tmp_path: Path) -> None:
    file = tmp_path / "fine.py"
    printed = session(tmp_path, "fine", f"b {END}", "c", f"repro {file} pick", "q")
    assert "run in a fresh process: the same: no error" in printed
    assert fresh(file).returncode == 0
    file.write_text(file.read_text().replace("return tf.reduce_sum(", "return 2 * tf.reduce_sum("))
    assert fresh(file).returncode == 1


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    printed = session(tmp_path, "fine", f"b {END}", "c", "repro", "repro x.py nothing", "q")
    assert "*** repro takes a file name: repro FILE.py [FUNCTION] [--test]" in printed
    assert "*** nothing: NameError" in printed


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "bool", "complex64", "string"])
def test_tensors_of_every_kind_are_written_and_read_back(tf: Any, tmp_path: Path, dtype: str) -> None:
    from tfdb.rebuild import Rebuilt

    value = tf.constant(["a", "b"]) if dtype == "string" else tf.cast(tf.constant([[0, 1], [2, 3]]), dtype)
    rebuilt = Rebuilt()
    text = rebuilt.expression({"x": [value, (tf.ragged.constant([[1], [2, 3]]), None, 1.5, float("inf"), "s")]}, "key")
    np.savez(tmp_path / "a.npz", **rebuilt.arrays)
    with np.load(tmp_path / "a.npz") as saved:
        found = eval(text, {"tf": tf, "np": np, "saved": saved})
    again, rest = found["x"]
    assert again.dtype == value.dtype
    assert np.array_equal(again.numpy(), value.numpy())
    assert rest[0].to_list() == [[1], [2, 3]]
    assert rest[1:] == (None, 1.5, float("inf"), "s")
