"""Gates on several threads: replicas of a mirrored strategy, and graphs that a stop itself runs; neither may hang.

Each program runs in a process of its own, which is ended when it does not end by itself.
"""

from pathlib import Path

import pytest
from processes import run

WATCH = """
import numpy as np, tensorflow as tf, keras
from tfdb import conditions, doors, replay
def report(trip):
    found = replay.find_origin(trip).report
    print("TRIP", trip.place.kind, found.op, found.forward_op, found.line and found.line.function, flush=True)
def watch(on_trip=report):
    doors.install([conditions.parse("nan")], on_trip)
"""

MIRRORED = (
    WATCH
    + """
cpus = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x = np.ones((16, 2), "float32")
x[11] = 0
def length(h):
    return tf.sqrt(tf.reduce_sum(h * h, 1))
watch()
"""
)

LOOP = """
with strategy.scope():
    w = tf.Variable(tf.ones([2, 1]))
    optimizer = keras.optimizers.{optimizer}(0.1)
    optimizer.build([w])
@tf.function
def step(batch):
    def replica(b):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(length(b * tf.reduce_sum(w)))
        optimizer.apply(tape.gradient(loss, [w]), [w])
        return loss
    return strategy.reduce("MEAN", strategy.run(replica, args=(batch,)), axis=None)
for batch in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(4)):
    step(batch)
print("END")
"""

FIT = """
class Length(keras.layers.Layer):
    def call(self, x):
        return length(x)[:, None]
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, use_bias=False), Length()])
    model.compile("{optimizer}", "mse")
model.fit(x, x[:, :1] + 1.0, batch_size=4, shuffle=False, verbose=0)
print("END")
"""

NESTED = (
    """
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads({threads})
"""
    + WATCH
    + """
w = tf.Variable([1.0])
@tf.function
def root(x):
    return tf.sqrt(x)
def on_trip(trip):
    print("TRIP", trip.place.kind, w.numpy()[0], {call}(tf.constant(-1.0)).numpy(), flush=True)
watch(on_trip)
concrete = root.get_concrete_function(tf.TensorSpec([], tf.float32))
@tf.function
def train(data):
    total = 0.0
    for x in data:
        with tf.GradientTape() as tape:
            loss = tf.sqrt(x * tf.reduce_sum(w))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        total += loss
    return total
train(tf.data.Dataset.from_tensor_slices([1.0, 1.0, -1.0, 1.0]).prefetch(1))
print("END")
"""
)


def output(folder: Path, text: str) -> list[str]:
    """What the program tells of its trips; it runs from a file, so that its source can be read."""
    program = folder / "program.py"
    program.write_text(text)
    done = run(program)
    assert "END" in done.stdout, done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if line.startswith("TRIP")]


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("training", [LOOP, FIT], ids=["loop by hand", "fit"])
def test_a_bad_replica_is_named(tmp_path: Path, training: str, optimizer: str) -> None:
    trips = output(tmp_path, MIRRORED + training.format(optimizer=optimizer))
    assert trips[0].split()[2:] == ["SqrtGrad", "Sqrt", "length"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("call", ["root", "concrete"])
def test_a_stop_in_a_loop_over_a_dataset_may_read_and_call(tmp_path: Path, threads: int, call: str) -> None:
    if (threads, call) == (1, "concrete"):
        pytest.skip("TensorFlow itself has no thread left for a graph")
    trips = output(tmp_path, NESTED.format(threads=threads, call=call))
    assert trips[0].split()[:2] == ["TRIP", "update"]
    assert "nan" not in trips[0].split()[2]


RECORDED = """
from tfdb import gradrows
from tfdb.normgate import norms
doors.uninstall()
norms.install([], print, detailed=True)
"""
COUNT = """
print("TRIP", *[len(row.trend) for row in gradrows.recorded(norms.book, None)], norms.book.replicas)
"""


def test_under_a_strategy_the_steps_recorded_are_those_of_one_replica(tmp_path: Path) -> None:
    assert output(tmp_path, MIRRORED + RECORDED + FIT.format(optimizer="sgd") + COUNT) == ["TRIP 4 True"]
