"""What becomes of the program after a watch's stop: `c` and `skip`, one stop for one fault, `TerminateOnNaN`."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from processes import run

from tfdb import skips
from tfdb.gate import gate
from tfdb.report import Report
from tfdb.tripreports import Origin
from tfdb.watching import Watching

STEPS, BAD = 5, 2


class Stops:
    """The reports of the stops; each update that a trip stood before is skipped or not."""

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.reports: list[Report] = []
        self.watching = Watching(self.stop)

    def stop(self, trip: Any, origin: Origin) -> bool:
        self.reports.append(origin.report)
        if self.skip:
            skips.begin(trip)
        return self.skip


@pytest.fixture
def stopping() -> Iterator[Callable[[bool], Stops]]:
    made: list[Stops] = []

    def start(skip: bool) -> Stops:
        made.append(Stops(skip))
        made[-1].watching.start(["nan"])
        return made[-1]

    yield start
    for stops in made:
        stops.watching.stop()


def batches() -> list[tf.Tensor]:
    made = [np.ones((2, 2), np.float32) for _ in range(STEPS)]
    made[BAD][1] = 0
    return [tf.constant(batch) for batch in made]


class Program:
    """A small model with an update of one kind; `state` is all that a step writes."""

    def __init__(self, kind: str, in_graph: bool) -> None:
        self.weights = [tf.Variable([[1.0], [2.0]], name="w"), tf.Variable([0.5], name="b")]
        self.average = tf.Variable(0.0, trainable=False, name="average")
        self.optimizer: Any = None
        if kind != "by hand":
            package = keras if kind == "keras" else tf_keras
            self.weights = [package.Variable(v.numpy()) if kind == "keras" else v for v in self.weights]
            self.optimizer = package.optimizers.Adam(0.01)
            self.optimizer.build(self.weights)
        self.step = tf.function(self.train) if in_graph else self.train

    def train(self, x: tf.Tensor) -> tf.Tensor:
        w, b = self.weights
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.sqrt(tf.reduce_sum(tf.square(tf.matmul(x, w) + 0.0 * b), 1)))
        gradients = tape.gradient(loss, self.weights)
        if self.optimizer is None:
            for weight, gradient in zip(self.weights, gradients, strict=True):
                weight.assign_sub(0.1 * gradient)
        else:
            self.optimizer.apply_gradients(zip(gradients, self.weights, strict=True))
        return loss

    def state(self) -> list[np.ndarray]:
        found = list(self.weights)
        if self.optimizer is not None:
            kept = self.optimizer.variables
            found += kept() if callable(kept) else kept
        return [np.asarray(variable) for variable in found]


KINDS = [(kind, in_graph) for kind in ("by hand", "keras", "tf_keras") for in_graph in (True, False)]


@pytest.mark.parametrize("kind, in_graph", KINDS)
def test_skip_leaves_out_all_that_the_step_would_have_written(
    kind: str, in_graph: bool, stopping: Callable[[bool], Stops]
) -> None:
    stops, program = stopping(True), Program(kind, in_graph)
    for number, batch in enumerate(batches()):
        before = program.state()
        program.step(batch)
        same = [np.array_equal(a, b) for a, b in zip(before, program.state(), strict=True)]
        assert all(same) == (number == BAD), f"step {number}: {same}"
    assert [report.forward_op for report in stops.reports] == ["Sqrt"]
    assert all(np.isfinite(value).all() for value in program.state())


@pytest.mark.parametrize("kind, in_graph", KINDS)
def test_going_on_writes_what_the_program_would_have_and_stops_once(
    kind: str, in_graph: bool, stopping: Callable[[bool], Stops]
) -> None:
    plain = Program(kind, in_graph)
    for batch in batches():
        plain.step(batch)
    stops, program = stopping(False), Program(kind, in_graph)
    for batch in batches():
        program.step(batch)
    assert [report.forward_op for report in stops.reports] == ["Sqrt"]
    for ours, theirs in zip(program.state(), plain.state(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("in_graph", [True, False])
def test_a_fault_after_the_weights_were_healthy_again_is_a_new_one(
    in_graph: bool, stopping: Callable[[bool], Stops]
) -> None:
    stops, program = stopping(False), Program("by hand", in_graph)
    for _ in range(2):
        program.weights[0].assign([[1.0], [2.0]])
        program.weights[1].assign([0.5])
        for batch in batches():
            program.step(batch)
    assert [report.forward_op for report in stops.reports] == ["Sqrt", "Sqrt"]


@pytest.mark.parametrize("in_graph", [True, False])
def test_steps_that_are_passed_over_are_said_once_and_counted(
    in_graph: bool, stopping: Callable[[bool], Stops], capsys: pytest.CaptureFixture[str]
) -> None:
    gate.passed_over.clear()
    _, program = stopping(False), Program("by hand", in_graph)
    for batch in batches():
        program.step(batch)
    said = [line for line in capsys.readouterr().err.splitlines() if "passed over" in line]
    assert len(said) == 1 and said[0].startswith("tfdb: w, b hold bad values since the stop")
    assert sum(gate.passed_over.values()) >= STEPS - BAD - 1


@pytest.mark.parametrize("kind, in_graph", KINDS)
def test_a_bad_batch_is_a_new_fault_while_weights_are_bad(
    kind: str, in_graph: bool, stopping: Callable[[bool], Stops]
) -> None:
    stops, program = stopping(False), Program(kind, in_graph)
    rows = np.stack([batch.numpy() for batch in batches()])
    rows[BAD + 1 :, 0, 1] = np.nan
    for batch in tf.data.Dataset.from_tensor_slices(rows):
        program.step(batch)
    assert [(report.phase, report.forward_op) for report in stops.reports] == [("gradient", "Sqrt"), ("data", None)]


@pytest.mark.parametrize("in_graph", [True, False])
def test_another_fault_in_a_step_with_bad_weights_is_found_where_it_reaches_others(
    in_graph: bool, stopping: Callable[[bool], Stops]
) -> None:
    first, second = keras.Variable([4.0, 4.0], name="first"), keras.Variable([2.0], name="second")

    def train(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sqrt(first * x)) + 0.1 * tf.reduce_sum(tf.math.log(second * y))
        gradients = tape.gradient(loss, [first.value, second.value])
        optimizer.apply(gradients)

    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build([first, second])
    stops, step = stopping(False), tf.function(train) if in_graph else train
    for x, y in ((1.0, 1.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0), (1.0, 1.0)):
        step(tf.constant([1.0, x]), tf.constant([y]))
    assert [report.forward_op or report.op for report in stops.reports] == ["Sqrt", "Log"]


class Length(keras.layers.Layer):
    def call(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sqrt(tf.reduce_sum(tf.square(x), -1, keepdims=True))


def model(eagerly: bool, steps: int) -> Any:
    made = keras.Sequential([keras.layers.Dense(4, use_bias=False), Length(), keras.layers.Dense(1)])
    made.compile("adam", "mse", run_eagerly=eagerly, steps_per_execution=steps)
    return made


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(1, 2, (48, 3)).astype(np.float32)
    x[20] = 0
    return x, np.ones((48, 1), np.float32)


@pytest.mark.parametrize("eagerly, steps", [(False, 1), (True, 1), (False, 3)])
def test_fit_goes_on_without_the_batch_that_was_skipped(
    eagerly: bool, steps: int, stopping: Callable[[bool], Stops]
) -> None:
    stops, made = stopping(True), model(eagerly, steps)
    made.fit(*data(), batch_size=8, epochs=1, shuffle=False, verbose=0)
    assert len(stops.reports) == 1
    assert all(np.isfinite(weight).all() for weight in made.get_weights())
    assert int(made.optimizer.iterations) == 5, "the bad batch is the last of its execution"


@pytest.mark.parametrize("eagerly", [False, True])
def test_fit_stops_once_when_the_user_goes_on(eagerly: bool, stopping: Callable[[bool], Stops]) -> None:
    stops, made = stopping(False), model(eagerly, 1)
    made.fit(*data(), batch_size=8, epochs=2, shuffle=False, verbose=0, validation_data=data())
    made.predict(data()[0], verbose=0)
    assert [report.forward_op for report in stops.reports] == ["Sqrt"]


@pytest.mark.parametrize("in_graph", [True, False])
def test_an_infinity_in_a_weight_is_charged_to_the_weight(in_graph: bool, stopping: Callable[[bool], Stops]) -> None:
    stops, program = stopping(False), Program("by hand", in_graph)
    program.weights[0].assign([[np.inf], [2.0]])
    stops.reports.clear()
    program.step(tf.constant([[0.0, 1.0]]))
    report = stops.reports[-1]
    assert (report.phase, report.variables) == ("variable", ("w",))
    assert "w holds 1 inf" in report.cause
    assert report.line is not None and report.line.function == "test_an_infinity_in_a_weight_is_charged_to_the_weight"


FIT = """
import numpy as np
import {package} as keras
import tensorflow as tf

class Length(keras.layers.Layer):
    def call(self, x):
        return tf.sqrt(tf.reduce_sum(tf.square(x), -1, keepdims=True))

x = np.random.rand(48, 3).astype("float32")
x[20] = 0
model = keras.Sequential([keras.layers.Dense(4, use_bias=False), Length(), keras.layers.Dense(1)])
model.compile("adam", "mse", run_eagerly={eagerly})
callback = keras.callbacks.TerminateOnNaN()
model.fit(x, np.ones((48, 1)), batch_size=8, shuffle=False, verbose=0, callbacks=[callback])
print("the end")
"""


@pytest.mark.parametrize("package, eagerly", [("keras", False), ("keras", True), ("tf_keras", False)])
def test_terminate_on_nan_shows_where_the_nan_was_made(package: str, eagerly: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FIT.format(package=package, eagerly=eagerly))
    done = run("-m", "tfdb", "--no-prompt", "--report", "report.json", "train.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["line"], report["forward_op"], report["place"]) == (8, "Sqrt", "check")
    assert "NaN ended the program" in done.stdout and "the end" not in done.stdout
