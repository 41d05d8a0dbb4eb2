"""`repro` of Keras models that functions make, and not the top of the program; what `lt` tells after an error."""

from pathlib import Path

import pytest
import tensorflow as tf
from processes import run

from tfdb import internals_graphs

PROGRAM = """
import sys

import keras
import numpy as np
import tensorflow as tf


class Net(keras.Model):
    def __init__(self, units):
        super().__init__()
        self.dense = keras.layers.Dense(units)
        self.table = keras.layers.Embedding(4, 3)

    def call(self, ids):
        return self.dense(self.table(ids))


def train(model, ids):
    model.fit(ids, np.ones((2, 2), "float32"), shuffle=False, verbose=0)


def passed(ids):
    units = 2
    rate = 0.1
    net = Net(units)
    optimizer = keras.optimizers.SGD(rate)
    net.compile(optimizer=optimizer, loss="mse")
    train(net, ids)


def local(ids):
    size = 2

    class Own(Net):
        def call(self, ids):
            return tf.reshape(super().call(ids), [-1, size])

    with tf.device("cpu:0"):
        model = Own(size)
        model.compile(optimizer="sgd", loss="mse")
    train(model, ids)


class Trainer:
    def __init__(self, units):
        self.model = Net(units)
        self.model.compile(optimizer="sgd", loss="mse")

    def run(self, ids):
        self.model.fit(ids, np.ones((2, 2), "float32"), shuffle=False, verbose=0)


def held(ids):
    trainer = Trainer(2)
    trainer.run(ids)


if __name__ == "__main__":
    globals()[sys.argv[1]](np.array([3, 4]))
"""


@pytest.mark.parametrize("kind", ["passed", "local", "held"])
def test_a_model_made_in_a_function_is_written_with_its_class(tmp_path: Path, kind: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    told = run("-m", "tfdb", "program.py", kind, typed="c\nlt\nrepro bug.py\nq\n", cwd=tmp_path).stdout
    assert "run in a fresh process: the same: InvalidArgumentError: indices[1] = 4 is not in [0, 4)" in told
    assert "class Net(keras.Model)" in (tmp_path / "bug.py").read_text()
    listed = told.partition("(tfdb) GatherV2 ")[2].partition("written:")[0]
    assert "\n  params  float32(4, 3)" in listed and "-a shows those too, and why" in " ".join(listed.split())
    assert "TensorShapeProto" not in listed


@pytest.mark.parametrize("shape", [[2, 2], [None, 2], None])
def test_ops_with_a_shape_among_their_attributes_run_again(shape: list[int | None] | None) -> None:
    function = tf.function(lambda x: tf.raw_ops.EnsureShape(input=x, shape=tf.TensorShape(shape)))
    graph = function.get_concrete_function(tf.TensorSpec(None)).graph
    op = next(each for each in graph.get_operations() if each.type == "EnsureShape")
    (given,) = internals_graphs.run_op(op, [tf.ones([2, 2])])
    assert given.shape == (2, 2)
