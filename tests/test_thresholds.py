"""Thresholds: the language, the norms, and the exact step at which training passes them, by NumPy's own account."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from processes import ROOT, run

from tfdb import conditions, doors, normreport, thresholds
from tfdb import norms as norms_module
from tfdb.conditions import WatchError
from tfdb.errors import Quit
from tfdb.gate import Trip
from tfdb.normgate import norms
from tfdb.normlook import Crossing

X = np.random.default_rng(0).normal(size=(48, 4)).astype("float32")
Y = X[:, :1] ** 2


class Crossings:
    """What thresholds that are on found; `during` sees each one as it happens."""

    def __init__(self) -> None:
        self.found: list[Crossing] = []
        self.during: Callable[[Crossing], None] = lambda crossing: None

    def start(self, *texts: str) -> None:
        norms.install([thresholds.parse(text) for text in texts], self.on_cross)

    def on_cross(self, crossing: Crossing) -> None:
        self.found.append(crossing)
        self.during(crossing)

    @property
    def steps(self) -> list[int | None]:
        return [crossing.step for crossing in self.found]


@pytest.fixture
def crossings() -> Iterator[Crossings]:
    found = Crossings()
    yield found
    norms.remove()


# -- the language -----------------------------------------------------------------------------------------------------


WRITTEN = """grad > 100 | grad.max:dense/kernel >= 0.5 | grad < 1e-07 | update > 0.1 in dense | loss > 3
| update:kernel > 0.01 every 5 | grad.mean > 1 in a allow b every 2 | tf.reduce_max(x) > 3 | x in seen
| loss > previous every 3"""
WRONG = "grad|grad = 3|grad > x|grad.min > 3|update.max > 1|grad:( > 3|grad > 3 every 0|3 4|1|"


@pytest.mark.parametrize("text", [text.strip() for text in WRITTEN.split("|")])
def test_a_threshold_is_written_as_it_is_typed(text: str) -> None:
    assert str(thresholds.parse(text)) == text
    assert thresholds.parse(str(thresholds.parse(text))) == thresholds.parse(text)


@pytest.mark.parametrize("text", WRONG.split("|"))
def test_what_cannot_be_watched(text: str) -> None:
    with pytest.raises(WatchError):
        thresholds.parse(text)


def test_a_nan_is_over_every_limit() -> None:
    assert all(bool(thresholds.exceeds(thresholds.parse(f"grad {op} 1"), np.float32("nan"))) for op in ("<", ">"))


def test_the_carriers_of_a_norm_are_blamed() -> None:
    columns = {thresholds.SQUARES: np.array([1.0, 10000.0, 4.0])}
    assert thresholds.over_limit(thresholds.parse("grad > 5"), 100.0, ["a", "b", "c"], columns) == ("b",)


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("kind", ["grad", "grad:a", "update", "update:a"])
def test_what_is_far_within_a_limit_is_never_over_it(kind: str, op: str) -> None:
    generator = np.random.default_rng(0)
    odd = [0.0, 1e-38, 1e-30, 1e30, 3e38, np.inf, np.nan]
    sure = 0
    for number in range(4000):
        halves = {name: np.exp(generator.normal(size=3) * 3).astype("f4") for name in ("squares", "update", "weight")}
        for column in halves.values():
            if number % 2:
                column[generator.integers(3)] = generator.choice(odd)
        about = thresholds.parse(f"{kind} {op} 1")
        names = ["a1", "a2", "b"]
        places = thresholds.chosen(about, names)
        with np.errstate(all="ignore"):
            columns = norms_module.whole(halves)
            values = thresholds.measured(about, places, [1, 1, 1], columns, thresholds.NUMPY)
            near = float(np.max(values)) * generator.choice([0.5, 1 - 1e-6, 1, 1 + 1e-6, 2])
            limit = near if 0 < near < 1e38 else generator.choice([1e-30, 1e-19, 1e-3, 1e19, 1e30])
            threshold = thresholds.parse(f"{kind} {op} {float(limit)!r}")
            over = np.any(thresholds.exceeds(threshold, thresholds.measured(
                threshold, places, [1, 1, 1], columns, thresholds.NUMPY)))  # fmt: skip
            fine = thresholds.far_within(threshold, places, halves, thresholds.NUMPY)
        sure += bool(fine)
        assert not (over and fine), (threshold, halves)
    assert sure > 100 or (kind.startswith("update") and op[0] == "<")  # which no sum of squares can say


CLIPPING: dict[str, Callable[[], Any]] = {
    "global": lambda: keras.optimizers.SGD(0.05, global_clipnorm=0.3),
    "accumulated": lambda: keras.optimizers.SGD(0.05, global_clipnorm=0.3, gradient_accumulation_steps=2),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.3),
}


def clipped_training(make: Callable[[], Any], by_hand: bool, raw: bool) -> list[bytes]:
    """Weights after training with clipped gradients, by an optimizer or written by the program itself."""
    net, optimizer = model(), make()
    optimizer.build(net.trainable_variables)

    @tf.function
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, net.trainable_variables)
        if by_hand:
            gradients, _ = tf.clip_by_global_norm(gradients, 0.3)
        if raw:
            for variable, gradient in zip(net.trainable_variables, gradients, strict=True):
                variable.assign_sub(0.05 * gradient)
        else:
            optimizer.apply(gradients, net.trainable_variables)

    for _ in range(8):
        for x, y in batches():
            step(tf.constant(x), tf.constant(y))
    return [variable.numpy().tobytes() for variable in net.trainable_variables]


@pytest.mark.parametrize("by_hand, raw", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("clipping", CLIPPING)
def test_a_watched_gradient_that_is_clipped_changes_no_bit(
    crossings: Crossings, clipping: str, by_hand: bool, raw: bool
) -> None:
    plain = clipped_training(CLIPPING[clipping], by_hand, raw)
    crossings.start("grad > 1e30", "grad.max > 1e30", "update > 1e30")
    assert clipped_training(CLIPPING[clipping], by_hand, raw) == plain


# -- the exact step ---------------------------------------------------------------------------------------------------


def model(*names: str) -> keras.Model:
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(5, "tanh", name=names[0] if names else None), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((4,)), *layers])


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    """Six batches; the third and the fifth are out of all proportion."""
    scale = [1, 1, 30, 1, 60, 1]
    return [(X[i * 8 : i * 8 + 8], Y[i * 8 : i * 8 + 8] * s) for i, s in enumerate(scale)]


def norm(gradients: list[Any]) -> float:
    """The l2 norm of all gradients, by NumPy."""
    return float(np.sqrt(sum(np.sum(np.asarray(tf.convert_to_tensor(g), np.float64) ** 2) for g in gradients)))


def norms_without_tfdb(optimizer: str) -> list[float]:
    """The norm at each step of plain eager training."""
    net, chosen, found = model(), keras.optimizers.get(optimizer), []
    for x, y in batches():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, net.trainable_variables)
        found.append(norm(gradients))
        chosen.apply(gradients, net.trainable_variables)
    return found


def limit_of(values: list[float]) -> tuple[float, list[int]]:
    """A limit that some of the values pass, and the steps (from 1) at which they do."""
    ordered = sorted(values)
    limit = (ordered[-3] + ordered[-2]) / 2
    return limit, [step for step, value in enumerate(values, 1) if value > limit]


def by_fit(optimizer: str, **options: Any) -> None:
    net = model()
    net.compile(optimizer, "mse", **options)
    data = tf.data.Dataset.from_tensor_slices(tuple(np.stack(part) for part in zip(*batches(), strict=True)))
    net.fit(data, epochs=1, verbose=0)


def by_loop(optimizer: str, wrap: Callable[..., Any] = tf.function) -> None:
    net, chosen = model(), keras.optimizers.get(optimizer)
    chosen.build(net.trainable_variables)

    @wrap
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x, training=True) - y) ** 2)
        chosen.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True))
        return loss

    for x, y in batches():
        step(tf.constant(x), tf.constant(y))


WAYS: dict[str, Callable[[str], None]] = {
    "fit": by_fit,
    "fit eagerly": lambda optimizer: by_fit(optimizer, run_eagerly=True),
    "fit, two steps a call": lambda optimizer: by_fit(optimizer, steps_per_execution=2),
    "loop": by_loop,
    "eager loop": lambda optimizer: by_loop(optimizer, lambda f: f),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("way", WAYS)
def test_it_trips_on_the_steps_that_numpy_says(crossings: Crossings, way: str, optimizer: str) -> None:
    expected = norms_without_tfdb(optimizer)
    limit, steps = limit_of(expected)
    crossings.start(f"grad > {limit}")
    WAYS[way](optimizer)
    assert crossings.steps == steps
    np.testing.assert_allclose([float(c.value) for c in crossings.found], [expected[s - 1] for s in steps], rtol=1e-3)


def plain_training(optimizer: str) -> dict[str, list[float]]:
    """What each form of a threshold has to see at each step of plain eager training, by NumPy."""
    net, chosen = model(), keras.optimizers.get(optimizer)
    chosen.build(net.trainable_variables)
    found: dict[str, list[float]] = {form: [] for form in FORMS}
    for x, y in batches():
        before = [np.asarray(variable.numpy(), np.float64) for variable in net.trainable_variables]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x, training=True) - y) ** 2)
        slopes = [np.asarray(g, np.float64) for g in tape.gradient(loss, net.trainable_variables)]
        chosen.apply(list(map(tf.constant, [g.astype("float32") for g in slopes])), net.trainable_variables)
        changes = [v.numpy() - b for v, b in zip(net.trainable_variables, before, strict=True)]
        for form, of in FORMS.items():
            found[form].append(float(of(slopes, changes, before, float(loss))))
    return found


KERNELS = (0, 2)
FORMS: dict[str, Callable[..., Any]] = {
    "grad.max": lambda g, u, w, loss: max(np.max(abs(each)) for each in g),
    "grad.mean": lambda g, u, w, loss: sum(np.sum(abs(each)) for each in g) / sum(each.size for each in g),
    "grad:kernel": lambda g, u, w, loss: max(norm([g[n]]) for n in KERNELS),
    "grad.max:kernel": lambda g, u, w, loss: max(np.max(abs(g[n])) for n in KERNELS),
    "update": lambda g, u, w, loss: norm(u) / norm(w),
    "update:kernel": lambda g, u, w, loss: max(norm([u[n]]) / norm([w[n]]) for n in KERNELS),
    "loss": lambda g, u, w, loss: loss,
}


@pytest.mark.parametrize("way", ["fit", "loop", "eager loop"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_trips_on_the_steps_that_numpy_says(crossings: Crossings, form: str, way: str) -> None:
    expected = plain_training("adam")[form]
    limit, steps = limit_of(expected)
    crossings.start(f"{form} > {limit}")
    WAYS[way]("adam")
    assert crossings.steps == steps
    values = [float(np.max(c.value)) for c in crossings.found]
    np.testing.assert_allclose(values, [expected[s - 1] for s in steps], rtol=1e-3)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_small_gradients_trip_too(crossings: Crossings, optimizer: str) -> None:
    expected = norms_without_tfdb(optimizer)
    limit = sorted(expected)[1] * 1.001
    crossings.start(f"grad < {limit}")
    by_fit(optimizer)
    assert crossings.steps == [step for step, value in enumerate(expected, 1) if value < limit]


def test_mixed_precision_in_fit_is_measured_unscaled(crossings: Crossings) -> None:
    def net_and_optimizer() -> tuple[keras.Model, Any]:
        net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, dtype="mixed_float16"),
                                keras.layers.Dense(1, dtype="float32")])  # fmt: skip
        return net, keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=2.0**8)

    scales = [1.0, 3.0, 3e5, 1.0, 4.0]  # the third overflows float16
    data = [(X[i * 8 : i * 8 + 8] * s, Y[i * 8 : i * 8 + 8]) for i, s in enumerate(scales)]
    keras.utils.set_random_seed(4)
    net, optimizer = net_and_optimizer()
    optimizer.build(net.trainable_variables)
    expected = []
    for x, y in data:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.cast(net(x, training=True), tf.float32) - y) ** 2)
            scaled = optimizer.scale_loss(loss)
        slopes = tape.gradient(scaled, net.trainable_variables)
        scale = float(optimizer.dynamic_scale)
        expected.append(norm([np.asarray(g, np.float64) / scale for g in slopes]))
        optimizer.apply(slopes, net.trainable_variables)
    finite = [value for value in expected if np.isfinite(value)]
    assert len(finite) == 4
    limit = sorted(finite)[1] * 1.01
    crossings.start(f"grad > {limit}")
    keras.utils.set_random_seed(4)
    net, optimizer = net_and_optimizer()
    net.compile(optimizer, "mse")
    net.fit(tf.data.Dataset.from_tensor_slices(tuple(np.stack(p) for p in zip(*data, strict=True))), verbose=0)
    values = [float(c.value) for c in crossings.found]
    np.testing.assert_allclose(values, [value for value in finite if value > limit], rtol=2e-2)
    assert norms.book.skips() == 1


def test_expressions_in_fit_see_the_names_of_the_step(crossings: Crossings) -> None:
    expected = [float(np.max(abs(y))) for _, y in batches()]
    limit, steps = limit_of(expected)
    crossings.start(f"tf.reduce_max(tf.abs(y)) > {limit}")
    by_fit("sgd")
    assert crossings.steps == steps


def test_under_xla_the_step_over_the_limit_is_found_and_left_out(crossings: Crossings) -> None:
    limit, steps = limit_of(norms_without_tfdb("sgd"))
    crossings.start(f"grad > {limit}")
    before: list[np.ndarray] = []
    net = model()
    net.compile("sgd", "mse", jit_compile=True)

    def look(crossing: Crossing) -> None:
        before.extend(net.get_weights())
        raise Quit(1)

    crossings.during = look
    data = tf.data.Dataset.from_tensor_slices(tuple(np.stack(part) for part in zip(*batches(), strict=True)))
    with pytest.raises(Quit):
        net.fit(data, epochs=1, verbose=0)
    assert crossings.steps == steps[:1]
    plain = model()
    plain.compile("sgd", "mse")
    plain.fit(data.take(steps[0] - 1), epochs=1, verbose=0)
    for mine, other in zip(before, plain.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", ["grad.max:kernel", "update", "loss"])
def test_every_form_finds_its_step_under_xla(crossings: Crossings, form: str) -> None:
    limit, steps = limit_of(plain_training("adam")[form])
    crossings.start(f"{form} > {limit}")
    by_fit("adam", jit_compile=True)
    assert crossings.steps[0] == steps[0]


def test_it_stops_before_the_weights_change(crossings: Crossings) -> None:
    crossings.start("grad > 0")
    w = tf.Variable([1.0, 2.0], name="w")
    seen: list[np.ndarray] = []
    crossings.during = lambda crossing: seen.append(w.numpy())

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * w)
        w.assign_sub(0.5 * tape.gradient(loss, w))

    step()
    np.testing.assert_array_equal(seen[0], [1.0, 2.0])
    np.testing.assert_array_equal(w.numpy(), [0.0, 0.0])


def test_each_player_of_a_gan_has_its_own_norm(crossings: Crossings) -> None:
    crossings.start("grad:generator > 0", "grad > 0 in critic")
    make = tf.Variable([[2.0]], name="generator")
    judge = tf.Variable([[3.0]], name="critic")
    optimizers = [keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1)]
    for optimizer, variable in zip(optimizers, (make, judge), strict=True):
        optimizer.build([variable])

    @tf.function
    def step(z: tf.Tensor) -> None:
        with tf.GradientTape() as first, tf.GradientTape() as second:
            fake = z @ make @ judge
            loss = tf.reduce_sum(fake)
            other = -tf.reduce_sum(fake) * 2.0
        gradients = [first.gradient(loss, [make]), second.gradient(other, [judge])]
        optimizers[0].apply_gradients([(gradients[0][0], make)])
        optimizers[1].apply_gradients([(gradients[1][0], judge)])

    step(tf.constant([[5.0]]))
    assert sorted((c.over, float(np.max(c.value)), float(c.losses[0])) for c in crossings.found) == [
        (("critic",), 20.0, -60.0), (("generator",), 15.0, 30.0),
    ]  # fmt: skip


def test_a_gradient_penalty_counts_as_what_is_applied(crossings: Crossings) -> None:
    crossings.start("grad > 0")
    w = tf.Variable([2.0], name="w")
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([w])

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                out = tf.reduce_sum(w * x * x)
            penalty = tf.reduce_sum(inner.gradient(out, x) ** 2)
            loss = out + penalty
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])

    step(tf.constant([3.0]))  # loss = 9 w + 36 w ** 2
    assert [float(c.value) for c in crossings.found] == [9 + 72 * 2.0]


def test_accumulated_gradients_are_looked_at_when_they_are_applied(crossings: Crossings) -> None:
    crossings.start("grad > 0")
    w = tf.Variable([1.0], name="w")
    optimizer = keras.optimizers.SGD(0.0, gradient_accumulation_steps=2)
    optimizer.build([w])

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * x)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])

    for value in (1.0, 3.0, 10.0, 30.0):
        step(tf.constant([value]))
    assert [(c.step, float(c.value)) for c in crossings.found] == [(2, 2.0), (4, 20.0)]


def test_the_value_is_that_after_clipping(crossings: Crossings) -> None:
    crossings.start("grad > 0")
    w = tf.Variable([1.0, 1.0], name="w")
    optimizer = keras.optimizers.SGD(0.1, clipnorm=0.5)
    optimizer.build([w])
    optimizer.apply_gradients([(tf.constant([3.0, 4.0]), w)])
    assert float(crossings.found[0].value) == pytest.approx(0.5)
    assert "the values are those after clipnorm=0.5" in normreport.origin(crossings.found[0]).report.notes


def test_loss_scaling_does_not_show_in_norms_and_losses(crossings: Crossings) -> None:
    crossings.start("grad > 0", "loss > 0")
    w = tf.Variable([2.0], name="w")
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0), initial_scale=1024.0)
    optimizer.build([w])

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_sum(w * x))
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])

    step(tf.constant([3.0]))
    step(tf.constant([float("inf")]))
    step(tf.constant([4.0]))
    assert [float(np.max(c.value)) for c in crossings.found] == [3.0, 6.0, 4.0, 8.0]
    assert norms.book.skips() == 1


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_update_ratio_is_that_of_what_is_written(crossings: Crossings, optimizer: str) -> None:
    crossings.start("update > 0")
    net = model()
    net.compile(optimizer, "mse", run_eagerly=False)
    before: list[list[np.ndarray]] = []
    crossings.during = lambda crossing: before.append([np.array(w) for w in net.get_weights()])
    data = tf.data.Dataset.from_tensor_slices(tuple(np.stack(part) for part in zip(*batches(), strict=True)))
    net.fit(data, epochs=1, verbose=0)
    after = [*before[1:], net.get_weights()]
    expected = [
        norm([b - a for a, b in zip(old, new, strict=True)]) / norm(old) for old, new in zip(before, after, strict=True)
    ]
    np.testing.assert_allclose([float(c.value) for c in crossings.found], expected, rtol=1e-3)


def test_sparse_gradients_count_each_row_once(crossings: Crossings) -> None:
    crossings.start("grad > 0", "grad.mean > 0", "grad.max > 0")
    table = tf.Variable(tf.ones([1000, 2]), name="table")
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([table])

    @tf.function
    def step(ids: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, ids))
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])

    step(tf.constant([7, 7, 9]))
    assert [float(np.max(c.value)) for c in crossings.found] == pytest.approx([np.sqrt(10), 6 / 2000, 2.0])


def test_expressions_are_over_the_names_of_the_step(crossings: Crossings) -> None:
    crossings.start("tf.reduce_max(x) > 2", "float(np.max(x)) > 2", "nowhere > 1")
    w = tf.Variable([2.0], name="w")

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * x)
        w.assign_sub(0.1 * tape.gradient(loss, w))

    for value in (1.0, 3.0, 2.0, 4.0):
        step(tf.constant([value]))
    assert [(c.step, c.threshold.expression) for c in crossings.found] == [
        (step, text) for step in (2, 4) for text in ("tf.reduce_max(x) > 2", "float(np.max(x)) > 2")
    ]


@pytest.mark.parametrize("wrap", [tf.function, lambda f: f])
def test_the_gradient_of_a_named_tensor_can_be_watched(crossings: Crossings, wrap: Callable[..., Any]) -> None:
    crossings.start("tf.norm(backward(hidden)) > 25.0", "tf.norm(backward(elsewhere)) > 1")
    w = tf.Variable([3.0, 4.0], name="w")
    optimizer = keras.optimizers.SGD(0.0)
    optimizer.build([w])

    @wrap
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            hidden = w * x
            loss = tf.reduce_sum(hidden**2)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])

    for value in (1.0, 3.0, 2.0, 4.0):  # the gradient's norm is 10 times it
        step(tf.constant(value))
    assert [(c.step, c.threshold.expression) for c in crossings.found] == [
        (step, "tf.norm(backward(hidden)) > 25.0") for step in (2, 4)
    ]


def test_expressions_under_xla(crossings: Crossings, capsys: pytest.CaptureFixture[str]) -> None:
    crossings.start("tf.reduce_max(x) > 2", "np.max(x) > 2")
    w = tf.Variable([2.0], name="w")

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * x)
        w.assign_sub(0.1 * tape.gradient(loss, w))

    for value in (1.0, 3.0):
        step(tf.constant([value]))
    assert [(c.step, c.threshold.expression) for c in crossings.found] == [(2, "tf.reduce_max(x) > 2")]
    assert "Python cannot be called in what XLA compiles" in capsys.readouterr().err


def test_steps_of_an_eager_loop_are_counted(crossings: Crossings) -> None:
    crossings.start("grad > 2.5")
    w = tf.Variable([2.0], name="w")
    for value in (1.0, 3.0, 2.0, 4.0):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * value)
        w.assign_sub(0.1 * tape.gradient(loss, w))
    assert crossings.steps == [2, 4]


def test_the_stop_stands_where_the_gradients_are_applied_with_the_values_of_the_step(crossings: Crossings) -> None:
    crossings.start("grad > 0")
    w = tf.Variable([2.0], name="w")

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * x)
        gradient = tape.gradient(loss, w)
        w.assign_sub(0.1 * gradient)

    step(tf.constant([3.0]))
    frame = crossings.found[0].frames[-1]
    assert (frame.line.function, frame.line.line) == ("step", step.python_function.__code__.co_firstlineno + 5)
    assert [float(np.max(frame.locals[name])) for name in ("x", "loss", "gradient")] == [3.0, 6.0, 3.0]


def test_the_forward_frames_are_one_up(crossings: Crossings) -> None:
    crossings.start("grad > 0")
    small, large = tf.Variable([0.1], name="small"), tf.Variable([100.0], name="large")

    def hidden(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = tf.nn.relu(x * small)
        return x

    def loss_of(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(x * large)

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(hidden(x))
        for variable, gradient in zip([small, large], tape.gradient(loss, [small, large]), strict=True):
            variable.assign_sub(0.1 * gradient)

    step(tf.constant([3.0]))
    first = step.python_function.__code__.co_firstlineno
    found = normreport.origin(crossings.found[0])
    inner = [(frame.line.function, frame.line.line - first) for frame in found.frames[-4:]]
    assert crossings.found[0].over[0] == "small"
    assert inner == [("step", 3), ("hidden", -6), ("loss_of", -2), ("step", 5)]
    assert [frame.done for frame in found.frames[-4:]] == [True, True, True, False]
    assert not any(frame.done for frame in found.frames[:-4])
    assert float(found.frames[-4].locals["loss"]) == pytest.approx(3.0, rel=1e-5)
    assert [frame.line for frame in crossings.found[0].frames] == list(found.report.stack)


def test_the_loss_line_of_eager_code_is_one_up(crossings: Crossings) -> None:
    crossings.start("grad > 0")
    w = tf.Variable([2.0], name="w")

    def apply(gradient: tf.Tensor) -> None:
        w.assign_sub(gradient)

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w * w)
    apply(tape.gradient(loss, w))
    lines = [(frame.line.function, frame.line.line) for frame in normreport.origin(crossings.found[0]).frames[-2:]]
    first = apply.__code__.co_firstlineno
    assert lines == [("test_the_loss_line_of_eager_code_is_one_up", first + 4), ("apply", first + 1)]


@pytest.fixture
def trips() -> Iterator[list[Trip]]:
    """The trips of `watch nan`, which is on."""
    found: list[Trip] = []
    doors.install([conditions.parse("nan")], found.append)
    yield found
    doors.uninstall()


def test_limits_go_together_with_the_watch_for_nan(trips: list[Trip], crossings: Crossings) -> None:
    crossings.start("grad > 0", "update > 0")
    net = model()
    net.compile("rmsprop", "mse")
    x = X[:16].copy()
    x[9] = np.nan
    net.fit(x, Y[:16], batch_size=8, shuffle=False, verbose=0)
    w = tf.Variable([2.0], name="w")

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * x)
        w.assign_sub(0.1 * tape.gradient(loss, w))

    step(tf.constant([3.0]))
    assert [(c.step, c.threshold.kind) for c in crossings.found] == [
        (1, "grad"), (1, "update"), (2, "grad"), (2, "update"), (1, "grad"), (1, "update"),
    ]  # fmt: skip
    assert trips


def test_gradients_of_another_function_are_those_that_are_applied(crossings: Crossings) -> None:
    crossings.start("grad > 0")
    w = tf.Variable([2.0], name="w")
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([w])

    @tf.function
    def gradients(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * x)
        return tape.gradient(loss, w)

    optimizer.apply_gradients([(gradients(tf.constant([3.0])), w)])
    assert [float(c.value) for c in crossings.found] == [3.0]


def test_tf_keras(crossings: Crossings) -> None:
    tf_keras = pytest.importorskip("tf_keras")
    crossings.start("grad > 0", "update > 0", "loss > 0")
    net = tf_keras.Sequential([tf_keras.layers.Input((4,)), tf_keras.layers.Dense(1)])
    net.compile("adam", "mse")
    net.fit(X[:16], Y[:16], batch_size=8, verbose=0)
    assert sorted((c.step or 0, c.threshold.kind) for c in crossings.found) == [
        (step, kind) for step in (1, 2) for kind in ("grad", "loss", "update")
    ]


def test_every_and_allow(crossings: Crossings) -> None:
    crossings.start("grad > 0 every 2", "grad > 0 allow w")
    w = tf.Variable([2.0], name="w")
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([w])
    for _ in range(4):
        optimizer.apply_gradients([(tf.constant([1.0]), w)])
    assert crossings.steps == [1, 3]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_training_is_the_same_bit_for_bit(crossings: Crossings, optimizer: str) -> None:
    def trained() -> list[np.ndarray]:
        net = model()
        net.compile(optimizer, "mse")
        net.fit(X, Y, batch_size=8, epochs=3, verbose=0)
        return [*net.get_weights(), *(np.asarray(variable) for variable in net.optimizer.variables)]

    plain = trained()
    crossings.start("grad > 1e30", "update > 1e30", "loss > 1e30")
    assert all(np.array_equal(a, b) for a, b in zip(plain, trained(), strict=True))
    assert not crossings.found


IMAGES = np.random.default_rng(1).normal(size=(64, 8, 8, 3)).astype("float32")


def step_with_locals(convolves: bool) -> tuple[Callable[[Any], Any], list[Any]]:
    """A step whose locals stand between ops that TensorFlow computes in one kernel; and the weights."""
    generator = np.random.default_rng(2)
    shapes = [(3, 3, 3, 16) if convolves else (192, 64), (16,) if convolves else (64,)]
    shapes += [(16, 33) if convolves else (64, 33), (33,)]
    first, bias, last, other = weights = [
        tf.Variable(generator.normal(size=shape).astype("float32") * 0.3) for shape in shapes
    ]
    optimizer = keras.optimizers.Adam(0.01)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            if convolves:
                product = tf.nn.conv2d(x, first, 1, "SAME")
            else:
                product = tf.matmul(tf.reshape(x, [-1, 192]), first)
            sums = tf.nn.bias_add(product, bias)
            hidden = tf.nn.elu(sums) if convolves else tf.nn.tanh(sums)
            flat = tf.reduce_mean(hidden, [1, 2]) if convolves else hidden
            logits = tf.matmul(flat, last)
            outputs = logits + other
            each = outputs**2
            loss = tf.reduce_mean(each)
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return loss

    return step, weights


@pytest.mark.parametrize("convolves", [False, True])
@pytest.mark.parametrize("text", ["grad > 1e30", "update > 1e30", "tf.reduce_max(product + tf.norm(sums)) > 1e30"])
def test_locals_between_fused_ops_change_no_bit(crossings: Crossings, text: str, convolves: bool) -> None:
    def trained() -> list[bytes]:
        step, weights = step_with_locals(convolves)
        for n in range(30):
            step(tf.constant(IMAGES[n % 4 * 16 :][:16]))
        return [weight.numpy().tobytes() for weight in weights]

    plain = trained()
    crossings.start(text, "loss > 1e30")
    assert trained() == plain
    assert not crossings.found


def test_locals_between_fused_ops_have_their_values_at_the_stop(crossings: Crossings) -> None:
    step, weights = step_with_locals(convolves=False)
    crossings.start("grad > 0")
    product = IMAGES.reshape([-1, 192]) @ weights[0].numpy()
    sums = product + weights[1].numpy()
    outputs = np.tanh(sums) @ weights[2].numpy() + weights[3].numpy()
    step(tf.constant(IMAGES))
    values = crossings.found[0].frames[-1].locals
    for name, expected in {"product": product, "sums": sums, "outputs": outputs, "each": outputs**2}.items():
        np.testing.assert_allclose(values[name], expected, rtol=1e-3, atol=1e-3, err_msg=name)


# -- the command line -------------------------------------------------------------------------------------------------


def test_the_exploding_network_is_caught_before_the_update(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["--no-prompt", "--report", str(report), "-w", "grad > 100", "examples/exploding_rnn.py"]
    done = run("-m", "tfdb", *arguments)
    assert done.returncode == 1, done.stderr
    found = json.loads(report.read_text())
    lines = (ROOT / "examples" / "exploding_rnn.py").read_text().splitlines()
    assert (found["reason"], found["step"], found["function"]) == ("grad", 3, "train_step")
    assert lines[found["line"] - 1].strip() == "variable.assign_sub(0.001 * gradient)"
    assert found["variables"] == ["recurrent"]
    assert "step 1" in done.stdout and "  spread    recurrent\n" in done.stdout
    assert "step 2" not in done.stdout
