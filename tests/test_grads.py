"""`grads`: the table of the last steps, of a stop, and of an expression."""

import io
import math
from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdb
from tfdb import gradrows, gradtable, prompt, session, watchstops
from tfdb.errors import TfdbError
from tfdb.gate import Trip
from tfdb.gradtable import Row
from tfdb.normgate import norms
from tfdb.thresholds import SQUARES
from tfdb.tripreports import Origin
from tfdb.watching import Watching
from transcripts import play

X = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
Y = X[:, :1]


@pytest.fixture
def recording() -> Iterator[None]:
    norms.install([], lambda crossing: None, detailed=True)
    yield
    norms.remove()


def rows() -> dict[str, Row]:
    return {row.name: row for row in gradrows.recorded(norms.book, None)}


def fitted(steps: int, **options: object) -> keras.Model:
    keras.utils.set_random_seed(2)
    layers = [keras.layers.Dense(3, "relu", name="hidden"), keras.layers.Dense(1, name="out")]
    net = keras.Sequential([keras.Input((4,)), *layers], name="net")
    net.compile(keras.optimizers.SGD(0.1), "mse", **options)
    net.fit(X[: 4 * steps], Y[: 4 * steps], batch_size=4, shuffle=False, verbose=0)
    return net


@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}, {"jit_compile": True}, {"steps_per_execution": 3}])
def test_a_plain_fit_is_recorded_in_the_order_of_the_model(recording: None, options: dict[str, object]) -> None:
    before = fitted(5, **options).get_weights()
    norms.book.clear()
    net = fitted(6, **options)
    found = rows()
    assert list(found) == [variable.path for variable in net.trainable_variables]
    for old, new, row in zip(before, net.get_weights(), found.values(), strict=True):
        gradient = (old - new) / 0.1
        assert row.shape == old.shape
        assert len(row.trend) == 6
        expected = [np.linalg.norm(gradient), np.mean(abs(gradient)), np.max(abs(gradient)), np.mean(gradient == 0)]
        np.testing.assert_allclose([row.norm, row.mean, row.largest, row.zero], expected, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(row.ratio, np.linalg.norm(old - new) / np.linalg.norm(old), rtol=1e-3)


def test_the_history_is_bounded(recording: None) -> None:
    w = tf.Variable([1.0])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([w])
    apply = tf.function(lambda g: optimizer.apply([g], [w]))
    for number in range(40):
        apply(tf.constant([float(number)]))
    (ring,) = [ring for ring in norms.book.rings.values() if SQUARES in ring.columns]
    np.testing.assert_allclose(ring.looks()[:, 0, 0], np.arange(8, 40, dtype=float) ** 2)


def test_sparse_gradients_are_counted_against_the_whole_table(recording: None) -> None:
    table = tf.Variable(tf.ones([100, 2]), name="table")
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([table])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [3, 3, 4]))
    optimizer.apply([tape.gradient(loss, table)], [table])
    row = rows()["table"]
    assert (row.norm, row.largest, row.zero) == pytest.approx((math.sqrt(10), 2.0, 0.98))


def test_none_and_what_is_not_finite_are_marked() -> None:
    bad = gradtable.row("bad", (2,), 2, {SQUARES: float("nan")}, [1.0, float("nan")])
    fine = gradtable.row("fine", (2,), 2, {SQUARES: 4.0}, [1.0, 4.0])
    lost = Row("lost", (3,), lost=True)
    lines = gradtable.text([bad, fine, lost], 80, color=True).splitlines()
    assert [line.startswith("\x1b[31m") for line in lines] == [False, True, False, True]
    assert "nan" in lines[1] and "×" in lines[1]
    assert lines[3].split()[-1].startswith("None")
    assert [row.name for row in gradtable.in_order([fine, lost, bad], "norm")] == ["bad", "fine", "lost"]
    with pytest.raises(TfdbError):
        gradtable.in_order([fine], "size")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_table_keeps_to_the_width(width: int) -> None:
    numbers = {"squares": 4.0, "magnitudes": 3.0, "largest": 1.0, "nonzero": 5.0, "update": 1e-4, "weight": 2.0}
    row = gradtable.row("model/block_1/attention/query/kernel", (64, 8, 8), 4096, numbers, range(20))
    assert all(len(line) <= width for line in gradtable.text([row], width).splitlines())


def test_a_lost_gradient_shows_none(recording: None) -> None:
    used, unused = tf.Variable([1.0], name="used"), tf.Variable([1.0], name="unused")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(used)
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([unused, used])
    optimizer.apply(tape.gradient(loss, [unused, used]), [unused, used])
    assert [(name, row.lost) for name, row in rows().items()] == [("unused", True), ("used", False)]


def test_gradients_on_demand() -> None:
    w = tf.Variable([3.0, 4.0], name="w")
    (row,) = gradrows.on_demand(lambda: tf.reduce_sum(w * w), None)
    assert (row.name, row.norm, row.largest) == ("w", 10.0, 8.0)
    x = tf.constant([1.0, 2.0])
    (row,) = gradrows.on_demand(lambda: tf.reduce_sum(x * x), lambda: x)
    assert row.norm == pytest.approx(math.sqrt(20))
    with pytest.raises(TfdbError, match="runs the model"):
        gradrows.on_demand(lambda: tf.constant(2.0), None)
    with pytest.raises(TfdbError, match="runs the model"):  # its tape is gone
        gradrows.on_demand(lambda: tf.constant(2.0), lambda: [w])
    (row,) = gradrows.on_demand(lambda: tf.reduce_sum(tf.stop_gradient(x)), lambda: x)
    assert row.lost


def typed(net: keras.Model, *commands: str) -> str:
    """What the prompt says to commands typed at a `set_trace()` between two calls of `fit`."""
    out = io.StringIO()
    debugger = prompt.plain_debugger(io.StringIO("".join(f"{command}\n" for command in commands)), out)
    with session.using(debugger) as now:
        try:
            for _ in range(commands.count("c")):
                debugger.set_trace()
                net.fit(X[:12], Y[:12], batch_size=4, verbose=0)
        finally:
            watchstops.of(now).watching.recording = False
            watchstops.of(now).watching.stop()
    return out.getvalue()


def test_the_prompt_says_when_nothing_was_recorded_and_then_records() -> None:
    net = fitted(2)
    again = ["grads -s name", "grads tf.reduce_sum(net.trainable_variables[0] ** 2)", "grads -s x", "c"]
    said = typed(net, "grads", "c", *again)
    assert "no step was recorded yet" in said
    assert "3 steps recorded" in said
    assert said.index("net/hidden/bias") < said.index("net/hidden/kernel") < said.index("net/out/bias")
    assert "cannot sort by 'x'" in said


def test_at_a_stop_for_nan_the_gradients_of_that_step_are_shown(stops: list[tuple[Trip, Origin]]) -> None:
    w, v = tf.Variable([0.0, 1.0], name="w"), tf.Variable([2.0], name="v")

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sqrt(w * x)) + v[0]
        for variable, slope in zip([w, v], tape.gradient(loss, [w, v]), strict=True):
            variable.assign_sub(0.1 * slope)

    step(tf.constant([0.0, 1.0]))
    trip, _ = stops[0]
    found = {row.name: row for row in gradrows.rows_named(trip.gradients)}
    assert list(found) == ["w", "v"]
    assert math.isnan(found["w"].norm)
    assert (found["v"].norm, found["v"].shape) == (1.0, (1,))


def test_before_any_step_is_recorded_the_one_under_way_is_shown() -> None:
    w = tf.Variable([1.0, 2.0], name="w")

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * w)
            tfdb.set_trace()
        w.assign_sub(0.1 * tape.gradient(loss, w))

    def program() -> None:
        step()
        step()

    try:
        play(
            program,
            """
            graph stop · step · pass 1
            > ...
            -> ...
            (tfdb) grads
            the step that is under way, before clipping and the like; no step was recorded yet
            variable  shape  norm  mean|g|  max|g|  zero
            w         (2)    4.47        3       4    0%
            (tfdb) c
            ...
            (tfdb) c
            """,
        )
    finally:
        norms.remove()


def test_variables_of_one_name_have_rows_of_their_own(recording: None) -> None:
    first, second = tf.Variable([1.0], name="w"), tf.Variable([2.0], name="w")
    kept = [tf.Variable([3.0])]
    nameless = tf.Variable([4.0])

    def step() -> None:
        variables = [first, second, *kept, nameless]
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(variable**2) for variable in variables])
        for variable, slope in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.0 * slope)

    step()
    step()
    found = {name: row.norm for name, row in rows().items()}
    assert found == {"w": 2.0, "w (2)": 4.0, "kept[0]": 6.0, "nameless": 8.0}


@pytest.fixture
def stops() -> Iterator[list[tuple[Trip, Origin]]]:
    """The stops of `watch nan`, which is on."""
    found: list[tuple[Trip, Origin]] = []
    watching = Watching(lambda trip, origin: found.append((trip, origin)))
    watching.start(["nan"])
    yield found
    watching.stop()


class Ratio(keras.layers.Layer):
    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x / tf.norm(x, axis=-1, keepdims=True)


def fused() -> keras.Model:
    """Its fused MatMul, BiasAdd and Relu turn a NaN in a row into 0: of four gradients the kernel's alone is NaN."""
    keras.utils.set_random_seed(0)
    layers = [Ratio(), keras.layers.Dense(8, "relu", name="hidden"), keras.layers.Dense(1, name="out")]
    return keras.Sequential([keras.Input((4,)), *layers], name="net")


ZERO_ROW = np.concatenate([X[:7], np.zeros((1, 4), "float32")])


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "loop"])
def test_at_a_stop_for_nan_the_very_gradients_that_tripped_are_shown(
    stops: list[tuple[Trip, Origin]], optimizer: str
) -> None:
    net = fused()
    trainer = keras.optimizers.get("adam" if optimizer == "loop" else optimizer)
    trainer.build(net.trainable_variables)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor, apply: bool) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x) - y) ** 2)
        gradients = tape.gradient(loss, net.trainable_variables)
        if apply:
            trainer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        return gradients

    data = tf.constant(ZERO_ROW), tf.constant(Y[:8])
    expected = [gradient.numpy() for gradient in step(*data, False)]
    stops.clear()
    if optimizer == "loop":
        step(*data, True)
    else:
        net.compile(trainer, "mse")
        net.fit(*map(np.asarray, data), batch_size=8, verbose=0)
    trip, origin = stops[0]
    shown = {row.name: row for row in gradrows.of_trip(trip)}
    bad = [v.path for v, g in zip(net.trainable_variables, expected, strict=True) if not np.isfinite(g).all()]
    assert bad == ["net/hidden/kernel"]  # else this test is of no use
    assert trip.again == (optimizer == "sgd")  # its gradients must have no other reader
    assert [name for name, row in shown.items() if row.bad] == bad == list(trip.variables)
    for row, gradient in zip(shown.values(), expected, strict=True):
        if row.measured or not trip.again:
            np.testing.assert_allclose(row.norm, np.linalg.norm(gradient), rtol=1e-5)
    assert [note for note in origin.report.notes if "op by op" in note and "hidden/bias" in note]


def test_sparse_and_lost_gradients_come_with_the_trip(stops: list[tuple[Trip, Origin]]) -> None:
    table = tf.Variable(tf.ones([100, 2]), name="table")
    unused = tf.Variable([1.0], name="unused")
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build([table, unused])

    @tf.function
    def step(scale: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [3, 3, 4]) * [[scale, 1.0]])
        gradients = tape.gradient(loss, [table, unused])
        optimizer.apply_gradients(zip(gradients, [table, unused], strict=True))

    step(tf.constant(1.0))
    step(tf.constant(np.nan))
    trip, _ = stops[0]
    first, second = gradrows.rows_named(trip.gradients)
    assert (first.name, first.shape, first.bad) == ("table", (100, 2), True)
    assert second.lost
    assert not [note for note in trip.notes if "op by op" in note]


def test_of_several_losses_for_the_same_variables_none_is_taken_for_the_step() -> None:
    w = tf.Variable([1.0, 2.0], name="w")

    @tf.function
    def step() -> None:
        with tf.GradientTape(persistent=True) as tape:
            first, second = tf.reduce_sum(w * w), tf.reduce_sum(3.0 * w)
            tfdb.set_trace()
        w.assign_sub(0.1 * (tape.gradient(first, w) + tape.gradient(second, w)))

    try:
        play(
            step,
            """
            graph stop · step · pass 1
            > ...
            -> ...
            (tfdb) grads
            *** the program differentiates several losses for the same variables here...
            (tfdb) grads second, w
            ...
            w         (2)    4.24        3       3    0%
            (tfdb) c
            """,
        )
    finally:
        norms.remove()
