"""The gate: stops before the weights change, lets healthy training through bit for bit, leaves nothing behind."""

import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdb import conditions, doors
from tfdb.errors import Quit
from tfdb.gate import Trip, gate

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X[:, :1]


class Watched:
    """Trips of the watches that are on; `during` sees each one as it happens."""

    def __init__(self) -> None:
        self.trips: list[Trip] = []
        self.during: Callable[[Trip], None] = lambda trip: None

    def on_trip(self, trip: Trip) -> None:
        self.trips.append(trip)
        self.during(trip)

    def start(self, *texts: str) -> None:
        doors.install([conditions.parse(text) for text in texts], self.on_trip)


@pytest.fixture
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    doors.uninstall()


def bad_model(**options: object) -> keras.Model:
    """A model whose gradients are NaN where a row is all zeros."""
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3, use_bias=False), Length(), keras.layers.Dense(1)]
    )
    model.compile("adam", "mse", **options)
    return model


class Length(keras.layers.Layer):
    def call(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sqrt(tf.reduce_sum(tf.square(x), -1, keepdims=True))


def poisoned() -> np.ndarray:
    x = X.copy()
    x[20] = 0
    return x


@pytest.mark.parametrize("options", [{}, {"steps_per_execution": 2}, {"jit_compile": True}, {"run_eagerly": True}])
def test_fit_stops_before_the_weights_change(watched: Watched, options: dict[str, object]) -> None:
    watched.start("nan")
    model = bad_model(**options)
    before: list[np.ndarray] = []

    def look(trip: Trip) -> None:
        before.extend(model.get_weights())
        raise Quit(1)

    watched.during = look
    with pytest.raises(Quit):
        model.fit(poisoned(), Y, batch_size=8, shuffle=False, verbose=0)
    assert len(watched.trips) == 1
    assert before
    assert all(np.isfinite(weight).all() for weight in [*before, *model.get_weights()])


def test_a_step_that_is_continued_goes_on_as_the_program_would_have(watched: Watched) -> None:
    watched.start("nan")
    model = bad_model()
    model.fit(poisoned(), Y, batch_size=8, shuffle=False, verbose=0)
    assert watched.trips
    assert np.isnan(model.get_weights()[0]).any()


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "sgd", "nadam"])
def test_healthy_training_is_the_same_bit_for_bit(watched: Watched, optimizer: str) -> None:
    def trained() -> list[np.ndarray]:
        keras.utils.set_random_seed(5)
        layers = [keras.layers.Dense(8, "relu", kernel_constraint="max_norm"), keras.layers.BatchNormalization()]
        model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dropout(0.3), keras.layers.Dense(1)])
        model.compile(optimizer, "mse", metrics=["mae"])
        model.fit(X, Y, batch_size=4, epochs=4, verbose=0)
        return [*model.get_weights(), *(np.asarray(variable) for variable in model.optimizer.variables)]

    plain = trained()
    watched.start("nan", "inf")
    assert all(np.array_equal(a, b) for a, b in zip(plain, trained(), strict=True))
    assert not watched.trips


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_healthy_compiled_training_is_the_same_bit_for_bit(watched: Watched, optimizer: str) -> None:
    def trained() -> list[np.ndarray]:
        keras.utils.set_random_seed(5)
        layers = [keras.layers.Dense(32, "relu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
        model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
        model.compile(optimizer, "mse", metrics=["mae"], jit_compile=True)
        model.fit(X, Y, batch_size=4, epochs=4, verbose=0, shuffle=False)
        return [*model.get_weights(), *(np.asarray(variable) for variable in model.optimizer.variables)]

    plain = trained()
    watched.start("nan", "inf")
    assert all(np.array_equal(a, b) for a, b in zip(plain, trained(), strict=True))
    assert not watched.trips


def test_a_compiled_step_is_taken_back_at_the_stop_and_put_in_place_after_it(watched: Watched) -> None:
    w, average = tf.Variable([1.0, 4.0]), tf.Variable(0.0, trainable=False)

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor) -> tf.Tensor:
        average.assign_add(1.0)
        w.assign_sub(tf.math.log(x))
        return tf.reduce_sum(w)

    watched.start("nan", "inf")
    step(tf.constant([1.0, 2.0]))
    before, seen = w.numpy(), []
    watched.during = lambda trip: seen.append((w.numpy(), average.numpy()))
    step(tf.constant([1.0, -2.0]))
    assert len(watched.trips) == 1 and watched.trips[0].variables == ("Variable",)
    np.testing.assert_array_equal(seen[0][0], before)
    assert seen[0][1] == 1.0 and average.numpy() == 2.0
    assert np.isnan(w.numpy()[1])


def test_a_hand_written_update_is_stopped(watched: Watched) -> None:
    watched.start("nan")
    w = tf.Variable([0.0, 1.0])
    seen: list[np.ndarray] = []
    watched.during = lambda trip: seen.append(w.numpy())

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.sqrt(tf.reduce_sum(w[:1] * w[:1])) + w[1]
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    step()
    assert [trip.place.kind for trip in watched.trips] == ["update"]
    np.testing.assert_array_equal(seen[0], [0.0, 1.0])


def test_an_update_that_alone_is_nan_is_stopped(watched: Watched) -> None:
    watched.start("nan")
    w = tf.Variable(tf.ones([2], tf.float16))
    optimizer = keras.optimizers.Adam(1e-3, epsilon=1e-8)
    optimizer.build([w])
    seen: list[np.ndarray] = []
    watched.during = lambda trip: seen.append(w.numpy())

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * x)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])

    step(tf.constant([0.0, 1.0], tf.float16))
    assert [trip.place.kind for trip in watched.trips] == ["update"]
    np.testing.assert_array_equal(seen[0], [1.0, 1.0])


def test_a_meant_infinity_in_an_output_is_no_fault_unless_infinities_are_watched(watched: Watched) -> None:
    def masked(x: tf.Tensor) -> tf.Tensor:
        return tf.where(x > 0, x, tf.fill(tf.shape(x), float("-inf")))

    watched.start("nan")
    tf.function(masked)(tf.constant([1.0, -1.0]))
    assert not watched.trips
    watched.start("inf")
    tf.function(masked)(tf.constant([1.0, -1.0]))
    assert [trip.reason for trip in watched.trips] == ["inf"]


def test_loss_scaling_may_skip_steps(watched: Watched) -> None:
    watched.start("nan", "inf")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=2.0**120), "mse")
    model.fit(X, Y, batch_size=1, epochs=3, verbose=0)  # more steps in a row than a usual initial scale needs
    assert not watched.trips


def test_bad_values_are_seen_as_they_are_loaded(watched: Watched) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    watched.start("nan")
    weights = model.get_weights()
    weights[0][2] = np.nan
    model.set_weights(weights)
    assert [trip.place.kind for trip in watched.trips] == ["load"]
    assert "kernel" in watched.trips[0].variables[0]


def test_every_second_hit_only(watched: Watched) -> None:
    watched.start("nan every 2")
    root = tf.function(lambda x: tf.sqrt(x))
    for _ in range(4):
        root(tf.constant(-1.0))
    assert len(watched.trips) == 2


def test_install_and_uninstall_come_in_pairs() -> None:
    function = type(tf.function(lambda: 0))
    before = function.__call__, keras.optimizers.Optimizer.apply, keras.layers.Layer.__new__, tf.Variable.assign
    for _ in range(2):
        doors.install([conditions.parse("nan")], print)
        doors.install([conditions.parse("nan")], print)
        assert function.__call__ is not before[0]
        doors.uninstall()
        doors.uninstall()
        assert (
            function.__call__,
            keras.optimizers.Optimizer.apply,
            keras.layers.Layer.__new__,
            tf.Variable.assign,
        ) == before
    assert not gate.active


def alike(count: int, dtype: str) -> list[tf.Variable]:
    return [tf.Variable(tf.ones([8], dtype), name=f"w{number}") for number in range(count)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("which", [0, 3])
def test_of_gradients_that_are_alike_the_bad_one_is_named(watched: Watched, dtype: str, bad: float, which: int) -> None:
    weights = alike(4, dtype)
    optimizer = keras.optimizers.SGD(0.1)
    if dtype.startswith("float"):
        optimizer.build(weights)

    @tf.function
    def step(factors: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(w) * f for w, f in zip(weights, tf.unstack(factors), strict=True)])
        gradients = tape.gradient(loss, weights)
        if dtype.startswith("float"):
            optimizer.apply(gradients, weights)
        else:
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.assign_sub(gradient)

    watched.start("nan", "inf")
    factors = np.ones(4)
    step(tf.cast(factors, dtype))
    assert not watched.trips
    factors[which] = bad
    step(tf.cast(tf.constant(factors), dtype))
    first = watched.trips[0]
    assert first.variables == (f"w{which}",)
    assert [kind for kind in first.bad[: first.watched] if kind] == ["nan" if np.isnan(bad) else "inf"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "complex128"])
@pytest.mark.parametrize("bad", [complex("nan"), complex("inf")])
def test_every_dtype_is_looked_at_in_eager_code(watched: Watched, dtype: str, bad: complex) -> None:
    weight = tf.Variable(tf.ones([4], dtype), name="w")
    value = bad if dtype.startswith("complex") else bad.real
    watched.start("nan", "inf")
    weight.assign_sub(tf.ones([4], dtype))
    assert not watched.trips
    weight.assign_sub(tf.cast(tf.constant(np.array([0.0, value, 0.0, 0.0])), dtype))
    assert [trip.reason for trip in watched.trips] == ["nan" if np.isnan(bad) else "inf"]


@pytest.mark.parametrize("shape", [(8,), (256, 128)])
def test_sums_of_finite_values_that_overflow_are_no_trip(watched: Watched, shape: tuple[int, ...]) -> None:
    weights = [tf.Variable(tf.zeros(shape)) for _ in range(3)]

    @tf.function
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        for weight in weights:
            weight.assign_add(x)
        return [x + 0.0, x * 1.0, x * 0.5]

    watched.start("nan", "inf")
    step(tf.fill(shape, 3e38))
    assert not watched.trips
    step(tf.fill(shape, np.float32("inf")))
    assert watched.trips


def test_infinities_of_both_signs_are_told_apart_from_nan(watched: Watched) -> None:
    @tf.function
    def f(x: tf.Tensor) -> list[tf.Tensor]:
        return [x, -x, x * 2.0]

    watched.start("nan")
    f(tf.constant([np.inf, -np.inf]))
    assert not watched.trips
    f(tf.constant([np.inf, np.nan]))
    assert [trip.reason for trip in watched.trips] == ["nan"]


@pytest.mark.parametrize("creates", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_compiled_function_in_a_graph_is_traced_as_often_as_without_a_watch(
    watched: Watched, creates: bool, fails: bool
) -> None:
    def traced() -> tuple[int, str]:
        count, made = [0], []

        @tf.function(jit_compile=True)
        def inner(x: tf.Tensor) -> tf.Tensor:
            count[0] += 1
            if creates and not made:
                made.append(tf.Variable(1.0))
            if fails:
                raise KeyError("mine")
            return x * made[0] if made else x

        @tf.function
        def outer(x: tf.Tensor) -> tf.Tensor:
            return inner(x)

        try:
            for _ in range(2):
                outer(tf.constant(1.0))
        except Exception as error:
            return count[0], f"{type(error).__name__} {error}".partition(" at 0x")[0]
        return count[0], ""

    alone = traced()
    watched.start("nan")
    assert traced() == alone


class Critic(keras.Model):
    """A gradient penalty: the gradient of a gradient, NaN where no unit is on."""

    def __init__(self) -> None:
        super().__init__()
        off = keras.initializers.Constant(-0.5)
        self.critic = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(4, "relu", bias_initializer=off), keras.layers.Dense(1)]
        )

    def penalty(self, x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as inner:
            inner.watch(x)
            score = self.critic(x, training=True)
        slope = inner.gradient(score, x)
        return tf.reduce_mean((tf.sqrt(tf.reduce_sum(tf.square(slope), axis=1)) - 1.0) ** 2)

    def train_step(self, data: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = 10.0 * self.penalty(data) - tf.reduce_mean(self.critic(data, training=True))
        gradients = tape.gradient(loss, self.critic.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.critic.trainable_variables, strict=True))
        return {"loss": loss}


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop"])
def test_every_weight_waits_until_the_look_at_a_trip_is_over(watched: Watched, optimizer: str) -> None:
    keras.utils.set_random_seed(5)
    model = Critic()
    model.compile(optimizer)
    before = [weight.copy() for weight in model.critic.get_weights()]
    seen = []

    def during(trip: Trip) -> None:
        time.sleep(0.3)  # whatever does not wait has been written by then
        seen.append([value.numpy() for value in model.critic.trainable_variables])

    watched.during = during
    watched.start("nan")
    model.fit(0.1 * X, epochs=1, batch_size=16, verbose=0)
    assert seen
    for weight, at_stop in zip(before, seen[0], strict=True):
        np.testing.assert_array_equal(weight, at_stop)


def test_at_a_healthy_step_a_gate_costs_one_op_however_much_a_trip_would_do(watched: Watched) -> None:
    @tf.function
    def step(variables: list[tf.Variable], x: tf.Tensor) -> None:
        for variable in variables:
            variable.assign_sub(x)
        optimizer.apply([x + float(n) for n in range(len(variables))], variables)

    watched.start("nan")
    optimizer = keras.optimizers.SGD(0.1)
    variables = [tf.Variable(0.0) for _ in range(5)]
    optimizer.build(variables)
    graph = step.get_concrete_function(variables, tf.TensorSpec([])).graph
    gates = [op for op in graph.get_operations() if op.type == "If" and "tfdb_gate" in op.name]
    assert gates
    for op in gates:
        branch = graph._get_function(op.get_attr("else_branch").name).graph
        assert [
            each.type
            for each in branch.get_operations()
            if not each.type.startswith(("Placeholder", "Identity", "NoOp"))
        ] == ["If"]
        inner = next(each for each in branch.get_operations() if each.type == "If")
        assert op.get_attr("_lower_using_switch_merge") and not inner.get_attr("_lower_using_switch_merge")
