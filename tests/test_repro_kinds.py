"""`repro` of other kinds of calls: a lambda is written by its name; a file that fails otherwise is not left."""

import subprocess
import sys
from pathlib import Path

import pytest
from processes import run

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
if sys.argv[1] == "module":
    print(cache.kept + 1.0)


def shown():
    return cache.kept + 1.0


print(shown())
"""


def session(tmp_path: Path, kind: str) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    return run("-m", "tfdb", "program.py", kind, typed="c\nrepro bug.py\nq\n", cwd=tmp_path).stdout


def test_a_lambda_is_written_under_its_name(tmp_path: Path) -> None:
    told = session(tmp_path, "lambda")
    assert "run in a fresh process: the same: InvalidArgumentError: Input to reshape" in told
    assert "return fold(" in (tmp_path / "bug.py").read_text()


def test_a_call_that_did_not_fail_is_not_taken_for_the_failing_one(tmp_path: Path) -> None:
    told = session(tmp_path, "module")
    assert "*** this error is not of a call of a tf.function, and no frame here can be run again" in told


def test_a_file_that_fails_otherwise_is_not_left(tmp_path: Path) -> None:
    told = session(tmp_path, "leak")
    assert "*** not written: in a fresh process" in told and "not with TypeError" in told
    assert not (tmp_path / "bug.py").exists() and not (tmp_path / "bug.npz").exists()


FIT = """
import keras
import numpy as np
import tensorflow as tf


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="relu", use_bias=False)
        self.drop = keras.layers.Dropout(0.3)
        self.out = keras.layers.Dense(1)

    def call(self, x, training=False):
        h = self.drop(self.hidden(x), training=training)
        return self.out(h) + tf.math.log(tf.sqrt(tf.reduce_sum(tf.square(h), axis=1, keepdims=True)))


keras.utils.set_random_seed(3)
x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
x[19] = 0.0
net = Net()
net.compile(optimizer="adam", loss="mse", metrics=["mae"])
net.fit(x, np.ones((32, 1), "float32"), batch_size=8, shuffle=False, verbose=0)
"""
LOOP = """
import numpy as np
import tensorflow as tf


class Trainer:
    def __init__(self, rate):
        self.net = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.BatchNormalization()])
        self.optimizer = tf.keras.optimizers.Adam(rate)
        self.seen = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step(self, x, y):
        self.seen.assign_add(1)
        with tf.GradientTape() as tape:
            p = tf.nn.softmax(self.net(x, training=True) * 200.0)
            loss = -tf.reduce_mean(y * tf.math.log(p))
        weights = self.net.trainable_variables
        grads, _ = tf.clip_by_global_norm(tape.gradient(loss, weights), 1.0)
        self.optimizer.apply_gradients(zip(grads, weights))
        return {"loss": loss, "seen": self.seen}


def main():
    tf.keras.utils.set_random_seed(0)
    trainer = Trainer(0.01)
    data = np.random.default_rng(1)
    x, y = data.normal(size=(64, 5)).astype("float32"), np.eye(4, dtype="float32")[data.integers(0, 4, 64)]
    for batch in tf.data.Dataset.from_tensor_slices((x, y)).batch(16):
        trainer.step(*batch)


main()
"""


@pytest.mark.parametrize(("program", "test"), [(FIT, False), (LOOP, True)])
def test_a_step_that_a_watch_stopped_fails_again_by_itself(tmp_path: Path, program: str, test: bool) -> None:
    (tmp_path / "program.py").write_text(program)
    file = "test_bug.py" if test else "bug.py"
    typed = f"rerun\nc\nrepro {file}{' --test' if test else ''}\nq\n"
    done = run("-m", "tfdb", "-w", "nan", "program.py", typed=typed, cwd=tmp_path)
    assert "run in a fresh process: the same: AssertionError: result 0 holds nan or inf" in done.stdout
    assert "eager · variables as at the call" in done.stdout  # those that the step wrote before the gate, too
    before = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if test else []
    alone = subprocess.run([sys.executable, *before, file], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert alone.returncode == 1
    assert "holds nan or inf" in alone.stdout + alone.stderr
