"""TensorFlow features with breakpoints set in them: answered `c`, or never true, results are the same bit for bit."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdb
from transcripts import record


def f(x: Any) -> Any:
    y = x * 1.7
    if tf.reduce_sum(y) > 0.0:
        y = tf.sin(y)
    return y + 0.1


def g(x: Any) -> Any:
    y = tf.tanh(x * 0.7)
    return y * y


def vectorized() -> Any:
    return tf.function(lambda x: tf.vectorized_map(lambda row: f(row) * 2.0, x))(tf.reshape(tf.range(6.0), (3, 2)))


def jacobian() -> Any:
    @tf.function
    def of(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.jacobian(y, x)

    return of(tf.constant([0.3, 0.7]))


def recomputed() -> Any:
    inner = tf.recompute_grad(g)

    @tf.function
    def of(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(inner(x))
        return tape.gradient(y, x)

    return of(tf.constant([0.3, 0.7]))


def custom_gradient() -> Any:
    @tf.custom_gradient
    def half(x: Any) -> Any:
        def grad(upstream: Any) -> Any:
            scaled = upstream * 0.5
            return scaled

        return g(x), grad

    @tf.function
    def of(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(half(x))
        return tape.gradient(y, x), y

    return of(tf.constant([0.3, 0.7]))


def signature() -> Any:
    made = tf.function(f, input_signature=[tf.TensorSpec([None], tf.float32)], reduce_retracing=True)
    return made(tf.constant([1.0, 2.0])), made(tf.constant([3.0]))


def relaxed() -> Any:
    made = tf.function(f, reduce_retracing=True)
    return [made(tf.ones([n])) for n in (1, 2, 3)]


def recurrent() -> Any:
    keras.utils.set_random_seed(1)

    class Scaled(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            y = x * 0.5
            return y

    inputs = keras.Input((4, 3))
    hidden = keras.layers.LSTM(5, return_sequences=True)(Scaled()(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.GRU(4)(hidden)))
    model.compile("adam", squared_loss)
    x = np.random.default_rng(0).normal(size=(16, 4, 3)).astype("float32")
    history = model.fit(x, x.sum((1, 2)), batch_size=8, epochs=2, verbose=0)
    return history.history["loss"], model.predict(x, verbose=0)


def squared_loss(y_true: Any, y_pred: Any) -> Any:
    error = y_true - y_pred
    return tf.reduce_mean(tf.square(error))


def arrays() -> Any:
    @tf.function
    def of(n: Any) -> Any:
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=True)
        for i in tf.range(n):
            array = array.write(i, f(tf.cast(i, tf.float32)))
        return array.stack()

    return of(3), of(tf.constant(4))


def tables() -> Any:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0]), -1.0)
    mutable = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)

    @tf.function
    def of(words: Any) -> Any:
        found = table.lookup(words)
        mutable.insert(words, found + mutable.lookup(words))
        return f(mutable.lookup(words))

    return of(tf.constant(["a", "c"])), of(tf.constant(["a", "b"]))


def ragged() -> Any:
    @tf.function
    def of(x: Any) -> Any:
        longer = tf.concat([x, x * 2.0], axis=1)
        return f(tf.reduce_sum(longer, axis=1)), longer

    total, longer = of(tf.ragged.constant([[1.0], [2.0, 3.0]]))
    return total, longer.to_list()


def distributed() -> Any:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        weight = tf.Variable(1.0)

    @tf.function
    def step(x: Any) -> Any:
        def replica(x: Any) -> Any:
            loss = tf.reduce_sum(f(x) * weight)
            weight.assign_add(loss)
            return loss

        return strategy.reduce("SUM", strategy.run(replica, args=(x,)), axis=None)

    return [step(tf.constant([float(n)])) for n in range(3)], weight.read_value()


def accumulated() -> Any:
    weight, total = tf.Variable([1.0, 2.0]), tf.Variable([0.0, 0.0], trainable=False)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)

    @tf.function
    def step(x: Any, apply: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(f(x) * weight)
        total.assign_add(tape.gradient(loss, weight))
        if apply:
            optimizer.apply_gradients([(total / 2.0, weight)])
            total.assign(tf.zeros_like(total))
        return loss

    losses = [step(tf.constant([float(n), 0.5]), tf.constant(n % 2 == 1)) for n in range(4)]
    return losses, weight.read_value(), total.read_value()


def creating_variables() -> Any:
    class Counter(tf.Module):
        def __init__(self) -> None:
            self.count: Any = None

        @tf.function
        def step(self, x: Any, scale: float = 2.0) -> Any:
            if self.count is None:
                self.count = tf.Variable(0.0)
            self.count.assign_add(tf.reduce_sum(x) * scale)
            return f(x) * self.count

    first, second = Counter(), Counter()
    return first.step(tf.constant([1.0])), first.step(tf.constant([2.0]), scale=3.0), second.step(tf.constant([5.0]))


def methods() -> Any:
    class Plain:
        factor = 3.0

        @tf.function
        def times(self, x: Any, power: int = 2) -> Any:
            y = f(x) * self.factor
            return y**power

    lam = tf.function(lambda x: f(x) + 1.0)
    partial = tf.function(functools.partial(lambda a, x: f(x) * a, 2.0))
    x = tf.constant([0.25])
    plain = Plain()
    return plain.times(x), plain.times(x, power=3), lam(x), partial(x)


def three_terms() -> Any:
    @tf.function
    def of(x: Any) -> Any:
        y = f(x) + tf.random.stateless_normal([2], [1, 2])
        return y + tf.random.stateless_normal([2], [3, 4])

    return of(tf.constant([1.0, 2.0]))


def randomness() -> Any:
    tf.random.set_seed(3)
    generator = tf.random.Generator.from_seed(1)

    @tf.function
    def of(x: Any) -> Any:
        noise = tf.random.normal([2]) * generator.normal([2])
        return f(x) * noise

    return [of(tf.constant([1.0, 2.0])) for _ in range(3)]


def compiled() -> Any:
    made = tf.function(f, jit_compile=True)
    return made(tf.constant([-1.0, 2.0]))


CASES: list[Callable[[], Any]] = [
    vectorized, jacobian, recomputed, custom_gradient, signature, relaxed, recurrent, arrays, tables, ragged,
    distributed, accumulated, creating_variables, methods, randomness,
]  # fmt: skip
BREAKPOINTS = ["f", "g", "squared_loss"]


def values(result: Any) -> list[Any]:
    return [np.asarray(part).tobytes() for part in tf.nest.flatten(result)]


def under(program: Callable[[], Any], commands: list[str]) -> tuple[Any, str]:
    """The program's result and all that was printed, with the commands typed at its first line."""
    results: list[Any] = []

    def debugged() -> None:
        tfdb.set_trace()
        results.append(values(program()))

    output, raised = record(debugged, commands)
    if raised is not None:
        raise raised
    return results[0], output


@pytest.mark.parametrize("program", CASES)
def test_a_breakpoint_whose_condition_is_false_changes_nothing(program: Callable[[], Any]) -> None:
    plain = values(program())
    result, output = under(program, [*(f"b {name}, False" for name in BREAKPOINTS), "c"])
    assert result == plain
    assert "***" not in output


@pytest.mark.parametrize("program", CASES)
def test_stops_that_are_answered_with_next_change_nothing(program: Callable[[], Any]) -> None:
    plain = values(program())
    moves = [*["c", "n", "s"] * 20, "cl", "y", "c", "c"]
    result, output = under(program, [*(f"b {name}" for name in BREAKPOINTS), *moves])
    assert result == plain
    assert "could not stop" not in output and "no stop in" not in output
    if program not in (vectorized,):
        assert "graph stop" in output


@pytest.mark.parametrize("commands", [["b f, False", "c"], ["b f", "c", "n", "n", "n", "c"]])
def test_sums_are_the_same_to_the_bit_where_grappler_adds_in_another_order(commands: list[str]) -> None:
    plain = values(three_terms())
    result, output = under(three_terms, commands)
    assert result == plain


def test_xla_is_off_where_a_breakpoint_is_and_the_stop_says_so() -> None:
    result, output = under(compiled, ["b f", "c", "cl 1", "c"])
    assert "XLA off" in output
    np.testing.assert_allclose(np.frombuffer(result[0], "float32"), np.asarray(compiled()), 1e-6)


def test_saving_and_loading_get_no_hooks(tmp_path: Path) -> None:
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def serve(self, x: Any) -> Any:
            return f(x)

    def program() -> Any:
        module = Module()
        before = module.serve(tf.constant([1.0]))
        tf.saved_model.save(module, str(tmp_path / "saved"))
        loaded = tf.saved_model.load(str(tmp_path / "saved"))
        return before, loaded.serve(tf.constant([2.0])), module.serve(tf.constant([3.0]))

    plain = values(program())
    result, output = under(program, ["b f", *["c"] * 2, "cl 1", "c"])
    assert result == plain
    assert output.count("graph stop") == 2
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    graph = loaded.serve.concrete_functions[0].graph.as_graph_def()
    assert "EagerPyFunc" not in str(graph)


def test_building_summarising_and_exporting_a_model_do_not_stop(tmp_path: Path) -> None:
    class Tripled(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return tripled(x)

    def program() -> Any:
        model = keras.Sequential([keras.Input((2,)), Tripled(), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compute_output_spec(keras.KerasTensor((None, 2)))
        model.summary(print_fn=lambda *args, **kwargs: None)
        model.save(tmp_path / "model.keras")
        model.export(str(tmp_path / "exported"), verbose=False)
        return ()

    _, output = under(program, ["b tripled", "c"])
    assert "graph stop" not in output and output.count("(tfdb)") == 2
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    assert "EagerPyFunc" not in str(loaded.serve.concrete_functions[0].graph.as_graph_def())


def tripled(x: Any) -> Any:
    y = x * 3.0
    return y


def test_legacy_keras() -> None:
    tf_keras = pytest.importorskip("tf_keras")

    def program() -> Any:
        tf_keras.utils.set_random_seed(1)
        model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(2,))])
        model.compile("sgd", squared_loss)
        x = np.ones((8, 2), "float32")
        return model.fit(x, x.sum(1), batch_size=4, verbose=0).history["loss"], model.predict(x, verbose=0)

    plain = values(program())
    result, output = under(program, ["b squared_loss", "c", "n", "c", "cl 1", "c"])
    assert result == plain and output.count("graph stop") == 3
