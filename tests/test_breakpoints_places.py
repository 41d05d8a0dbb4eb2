# ruff: noqa: E501
"""Breakpoints wherever TensorFlow runs the user's code: Keras, datasets, py_function, eager modes, threads, replicas."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from processes import run
from walks import walk

import tfdb


class Scaled(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.factor = self.add_weight(shape=(), initializer="ones")

    def call(self, x: Any) -> Any:
        y = x * self.factor
        return y


class Model(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.scaled = Scaled()

    def call(self, x: Any) -> Any:
        return tf.reduce_sum(self.scaled(x), axis=1)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = self.compute_loss(x, y, prediction)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            metric.update_state(loss) if metric.name == "loss" else metric.update_state(y, prediction)
        return {metric.name: metric.result() for metric in self.metrics}


class Largest(keras.metrics.Metric):
    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_variable((), "zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        largest = tf.reduce_max(y_pred)
        self.value.assign(tf.maximum(self.value, largest))

    def result(self) -> Any:
        return self.value


def absolute(y_true: Any, y_pred: Any) -> Any:
    error = tf.abs(y_true - y_pred)
    return tf.reduce_mean(error)


def run_fit() -> None:
    model = Model()
    model.compile(keras.optimizers.SGD(0.5), absolute, metrics=[Largest()])
    x = np.arange(8, dtype="float32").reshape(4, 2)
    tfdb.set_trace()
    history = model.fit(x, np.zeros(4, "float32"), batch_size=2, shuffle=False, verbose=0)
    print("largest", float(history.history["largest"][0]))


def test_train_step_is_stepped_through_into_layer_loss_and_metric() -> None:
    walk(
        run_fit,
        """
        b Model.train_step                              | Breakpoint 1 at ...
        c                                               | train_step: x, y = data
        n                                               | train_step: with tf.GradientTape() as tape:
        p x.numpy().tolist()                            | [[0.0, 1.0], [2.0, 3.0]]
        n                                               | train_step: prediction = self(x, training=True)
        s                                               | call: return tf.reduce_sum(self.scaled(x), axis=1)
        s                                               | call: y = x * self.factor
        p float(self.factor)                            | 1.0
        n                                               | call: return y
        p y.numpy().tolist()                            | [[0.0, 1.0], [2.0, 3.0]]
        r                                               | --Return-- / call: return y
        s                                               | --Return-- / call: return tf.reduce_sum(self.scaled(x), axis=1)
        s                                               | train_step: loss = self.compute_loss(x, y, prediction)
        s                                               | absolute: error = tf.abs(y_true - y_pred)
        s                                               | absolute: return tf.reduce_mean(error)
        p y_pred.numpy().tolist()                       | [1.0, 5.0]
        n                                               | --Return-- / absolute: return tf.reduce_mean(error)
        p error.numpy().tolist()                        | [1.0, 5.0]
        r                                               | train_step: with tf.GradientTape() as tape:
        s                                               | train_step: gradients = tape.gradient(loss, self.trainable_variables)
        s                                               | train_step: self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        n                                               | train_step: for metric in self.metrics:
        n                                               | train_step: metric.update_state(loss) if metric.name == "loss" else metric.update_state(y, prediction)
        p gradients[0].numpy()                          | np.float32(3.0)
        n                                               | train_step: for metric in self.metrics:
        p float(self.scaled.factor)                     | -0.5
        c                                               | train_step: x, y = data
        n                                               | train_step: with tf.GradientTape() as tape:
        p float(self.scaled.factor), x.numpy().tolist() | (-0.5, [[4.0, 5.0], [6.0, 7.0]])
        cl 1                                            | Deleted breakpoint 1 at ...
        tbreak Largest.update_state                     | Breakpoint 2 at ...
        c                                               | Deleted breakpoint 2 at ...
        p y_pred.numpy().tolist()                       | [-4.5, -6.5]
        n                                               | update_state: self.value.assign(tf.maximum(self.value, largest))
        p float(largest)                                | -4.5
        n                                               | --Return-- / update_state: self.value.assign(tf.maximum(self.value, largest))
        n                                               | train_step: for metric in self.metrics:
        c                                               | largest 5.0
    """,
    )


def test_stepping_on_at_the_end_of_a_step_goes_to_the_next_step() -> None:
    walk(
        run_fit,
        """
        tbreak Largest.update_state | Breakpoint 1 at ...
        c                           | Deleted breakpoint 1 at ...
        n                           | update_state: self.value.assign(tf.maximum(self.value, largest))
        n                           | --Return-- / update_state: self.value.assign(tf.maximum(self.value, largest))
        n                           | train_step: for metric in self.metrics:
        n                           | train_step: return {metric.name: metric.result() for metric in self.metrics}
        n                           | --Return-- / train_step: return {metric.name: metric.result() for metric in self.metrics}
        n                           | train_step: x, y = data
        n                           | train_step: with tf.GradientTape() as tape:
        n                           | train_step: prediction = self(x, training=True)
        c                           | largest 5.0
    """,
    )


def halve(x: Any) -> Any:
    y = x / 2.0
    return y


def run_dataset() -> None:
    tfdb.set_trace()
    dataset = tf.data.Dataset.range(3).map(lambda n: tf.cast(n, tf.float32)).map(halve)
    halves = [float(x) for x in dataset]  # nothing is printed while a stop ahead of the loop may be open
    print("halves", halves)


def test_functions_of_datasets() -> None:
    walk(
        run_dataset,
        """
        b halve    | Breakpoint 1 at ...
        c          | halve: y = x / 2.0
        p float(x) | 0.0
        c          | halve: y = x / 2.0
        p float(x) | 1.0
        n          | halve: return y
        p float(y) | 0.5
        cl 1       | Deleted breakpoint 1 at ...
        c          | halves [0.0, 0.5, 1.0]
    """,
    )


def run_built_dataset() -> None:
    dataset = tf.data.Dataset.range(2).map(lambda n: tf.cast(n, tf.float32)).map(halve)
    tfdb.set_trace()
    for n, x in enumerate(dataset):
        print("element", n, float(x))


def test_a_dataset_that_was_built_before_says_so() -> None:
    walk(
        run_built_dataset,
        """
        b halve | Breakpoint 1 at ...
        c       | element 0 0.0 / element 1 0.5
    """,
    )


def in_python(x: Any) -> Any:
    y = np.asarray(x) * 2.0
    return y.astype("float32")


def run_py_function() -> None:
    @tf.function
    def double(x: Any) -> Any:
        a = tf.py_function(in_python, [x], tf.float32)
        b = tf.numpy_function(in_python, [a], tf.float32)
        return a + b

    tfdb.set_trace()
    for x in (1.0, 2.0):
        print("doubled", float(double(tf.constant(x))))


def test_bodies_of_py_function_and_numpy_function() -> None:
    walk(
        run_py_function,
        """
        b in_python | Breakpoint 1 at ...
        c           | in_python: y = np.asarray(x) * 2.0
        p float(x)  | 1.0
        n           | in_python: return y.astype("float32")
        p float(y)  | 2.0
        c           | in_python: y = np.asarray(x) * 2.0
        p float(x)  | 2.0
        c           | doubled 6.0 / in_python: y = np.asarray(x) * 2.0
        p float(x)  | 2.0
        cl 1        | Deleted breakpoint 1 at ...
        c           | doubled 12.0
    """,
    )


@pytest.fixture
def debug_mode() -> Iterator[None]:
    tf.data.experimental.enable_debug_mode()
    yield
    tf.data.experimental.DEBUG_MODE = False
    from tensorflow.python.data.ops import debug_mode as module

    module.toggle_debug_mode(False)


@pytest.mark.usefixtures("debug_mode")
def test_tf_data_debug_mode() -> None:
    walk(
        run_dataset,
        """
        b halve | Breakpoint 1 at ...
        c | halve: y = x / 2.0
        p float(x) | 0.0
        c | halve: y = x / 2.0
        p float(x) | 1.0
        cl 1 | Deleted breakpoint 1 at ...
        c | halves [0.0, 0.5, 1.0]
    """,
    )


@tf.function
def added(x: Any) -> Any:
    y = halve(x) + 1.0
    return y


def run_added() -> None:
    tfdb.set_trace()
    print("added", float(added(tf.constant(1.0))), float(added(tf.constant(3.0))))


@pytest.fixture
def eagerly() -> Iterator[None]:
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.usefixtures("eagerly")
def test_functions_that_run_eagerly() -> None:
    walk(
        run_added,
        """
        b halve | Breakpoint 1 at ...
        c | halve: y = x / 2.0
        p float(x) | 1.0
        n | halve: return y
        n | --Return-- / halve: return y
        n | added: return y
        c | halve: y = x / 2.0
        p float(x) | 3.0
        cl 1 | Deleted breakpoint 1 at ...
        c | added 1.5 2.5
    """,
    )


def run_threads() -> None:
    def work(x: float) -> None:
        results.append(float(added(tf.constant(x))))

    results: list[float] = []
    tfdb.set_trace()
    for x in (1.0, 3.0):
        thread = threading.Thread(target=work, args=(x,))
        thread.start()
        thread.join()
    print("results", results)


def test_threads_of_the_program() -> None:
    walk(
        run_threads,
        """
        b @results.append(float(added(tf.constant(x))))@ | Breakpoint 1 at ...
        b halve                                          | Breakpoint 2 at ...
        c                                                | work: results.append(float(added(tf.constant(x))))
        p x                                              | 1.0
        c                                                | halve: y = x / 2.0
        p float(x)                                       | 1.0
        c                                                | work: results.append(float(added(tf.constant(x))))
        p x                                              | 3.0
        cl 1                                             | Deleted breakpoint 1 at ...
        c                                                | halve: y = x / 2.0
        p float(x)                                       | 3.0
        cl 2                                             | Deleted breakpoint 2 at ...
        c                                                | results [1.5, 2.5]
    """,
    )


REPLICAS = """
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def halve(x):
    y = x / 2.0
    return y


@tf.function
def step(n):
    def replica(n):
        context = tf.distribute.get_replica_context()
        number = tf.cast(context.replica_id_in_sync_group, tf.float32)
        return halve(n + number)

    return strategy.reduce("SUM", strategy.run(replica, args=(n,)), axis=None)


print("sum", float(step(tf.constant(1.0))), float(step(tf.constant(5.0))))
"""


def test_every_replica_stops(tmp_path: Path) -> None:
    program = tmp_path / "replicas.py"
    program.write_text(REPLICAS)
    typed = ["b halve", "c", "p ('x', float(x))", "c", "p ('x', float(x))", "n", "p ('y', float(y))", "c"]
    typed += ["p ('x', float(x))", "c", "p ('x', float(x))", "cl 1", "c"]
    done = run("-m", "tfdb", program, typed="\n".join(typed))
    assert done.returncode == 0, done.stderr
    shown = [line.removeprefix("(tfdb) ") for line in done.stdout.splitlines() if "('" in line]
    assert sorted(shown[:2]) == ["('x', 1.0)", "('x', 2.0)"]
    assert shown[2] == {"('x', 1.0)": "('y', 0.5)", "('x', 2.0)": "('y', 1.0)"}[shown[1]]
    assert sorted(shown[3:]) == ["('x', 5.0)", "('x', 6.0)"]
    assert "sum 1.5 5.5" in done.stdout
    named = re.findall(r"graph stop .* replica (\d)\n.*\n.*\n\(tfdb\) \('x', ([15])", done.stdout)
    assert named and all(number == "0" for number, _ in named), done.stdout


STEPS = """
import tensorflow as tf

weight = tf.Variable(1.0)

@tf.function
def step(x):
    loss = x * weight
    weight.assign_add(loss)
    return loss

for n in range(3):
    step(tf.constant(n + 1.0))
print("weight", float(weight))
"""


def test_a_breakpoint_set_before_tensorflow_is_imported(tmp_path: Path) -> None:
    program = tmp_path / "steps.py"
    program.write_text(STEPS)
    look = "p ('stop', float(x), float(loss), float(weight))"
    done = run("-m", "tfdb", "-c", "b steps.py:9, x > 1", program, typed=f"{look}\nc\n{look}\nc\n")
    assert done.returncode == 0, done.stderr
    shown = [line.removeprefix("(tfdb) ") for line in done.stdout.splitlines() if "('stop'" in line]
    assert shown == ["('stop', 2.0, 4.0, 2.0)", "('stop', 3.0, 18.0, 6.0)"]
    assert "weight 24.0" in done.stdout
