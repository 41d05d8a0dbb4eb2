"""set_trace() under model.fit: layers, losses, metrics and training steps, for every way of compiling."""

from typing import Any

import numpy as np
import pytest
from stops import values, visits

import tfdb


@pytest.fixture
def keras(tf: Any) -> Any:
    """Keras, on TensorFlow, seeded."""
    import keras

    keras.utils.set_random_seed(0)
    return keras


X = np.arange(8, dtype="float32").reshape(8, 1)
Y = X * 3


def line_model(keras: Any, *layers: Any) -> Any:
    """A model of one weight, 1 at the start."""
    return keras.Sequential(
        [keras.Input([1]), *layers, keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )


def fit(model: Any, epochs: int = 1, **options: Any) -> list[float]:
    """Train on the four batches of X and Y; the weights after it."""
    options = {"loss": "mse", "optimizer": "sgd", **options}
    model.compile(**options)
    model.fit(X, Y, batch_size=2, epochs=epochs, shuffle=False, verbose=0)
    return [weight.numpy().ravel().tolist() for weight in model.trainable_weights]


def test_layer_call_stops_once_per_batch_and_never_while_building(keras: Any) -> None:
    class Scale(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.factor = self.add_weight(name="factor", shape=(), initializer="ones")

        def call(self, inputs: Any) -> Any:
            scaled = inputs * self.factor
            tfdb.set_trace()
            return scaled

    weights = []

    def program() -> None:
        model = line_model(keras, Scale())
        model.summary(print_fn=lambda *args, **kwargs: None)
        model.layers[0].compute_output_spec(keras.KerasTensor([None, 1]))
        weights.extend(fit(model))

    found = visits(
        program, "inputs[:, 0]", "scaled[:, 0]", "self.factor", "self.factor.numpy() == self.factor.value.numpy()"
    )
    assert [visit.values[0] for visit in found] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    factors = [visit.values[2] for visit in found]
    assert factors[0] == 1 and len(set(factors)) == 4
    for visit in found:
        assert visit.values[1] == pytest.approx([x * visit.values[2] for x in visit.values[0]])
    assert found[0].place == "call: tfdb.set_trace()"
    assert any(entry.startswith("fit: model.fit(X, Y") for entry in found[0].stack)


def custom_model(keras: Any, tf: Any) -> Any:
    class Custom(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                errors = self(x, training=True) - y
                loss = tf.reduce_mean(errors**2)
                tfdb.set_trace()
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    return Custom()


def test_train_step(keras: Any, tf: Any) -> None:
    plain = fit(without_stops(lambda: custom_model(keras, tf)))
    weights = []
    found = visits(
        lambda: weights.extend(fit(custom_model(keras, tf))),
        "x[:, 0]",
        "data[1][:, 0]",
        "loss",
        "self.dense.kernel[0, 0]",
    )
    assert [visit.values[0] for visit in found] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    for xs, ys, loss, kernel in (visit.values for visit in found):
        assert loss == pytest.approx(np.mean([(x * kernel - y) ** 2 for x, y in zip(xs, ys, strict=True)]))
    assert weights == plain


def without_stops(make: Any) -> Any:
    """What `make` makes, its stops answered by nobody: no debugger, so set_trace() does nothing."""
    made = make()
    original = type(made).train_step

    def train_step(self: Any, data: Any) -> Any:
        trace, tfdb.set_trace = tfdb.set_trace, lambda *args, **kwargs: None
        try:
            return original(self, data)
        finally:
            tfdb.set_trace = trace

    type(made).train_step = train_step
    return made


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}, {"steps_per_execution": 2}, {"run_eagerly": True}])
def test_custom_loss_and_metric(keras: Any, tf: Any, options: dict[str, Any]) -> None:
    def loss(y_true: Any, y_pred: Any) -> Any:
        errors = y_true - y_pred
        tfdb.set_trace()
        return tf.reduce_mean(errors**2, axis=-1)

    def metric(y_true: Any, y_pred: Any) -> Any:
        worst = tf.reduce_max(tf.abs(y_true - y_pred))
        tfdb.set_trace()
        return worst

    def program() -> None:
        fit(line_model(keras), loss=loss, metrics=[metric], **options)

    found = visits(program, "y_true[:, 0]")
    by_function = {name: [v.values[0] for v in found if v.place.startswith(name)] for name in ("loss", "metric")}
    batches = [[0, 3], [6, 9], [12, 15], [18, 21]]
    assert by_function == {"loss": batches, "metric": batches}


def test_mixed_precision(keras: Any, tf: Any) -> None:
    class Half(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            halved = inputs / 2
            tfdb.set_trace()
            return halved

    def program() -> None:
        keras.config.set_dtype_policy("mixed_float16")
        try:
            fit(line_model(keras, Half()))
        finally:
            keras.config.set_dtype_policy("float32")

    assert values(program, "halved.dtype.name", "halved[:, 0]") == [
        ("float16", [0, 0.5]),
        ("float16", [1, 1.5]),
        ("float16", [2, 2.5]),
        ("float16", [3, 3.5]),
    ]


def test_functional_model_and_prediction(keras: Any, tf: Any) -> None:
    class Shift(keras.layers.Layer):
        def call(self, inputs: Any, training: bool = False) -> Any:
            shifted = inputs + 1
            tfdb.set_trace()
            return shifted

    def program() -> None:
        inputs = keras.Input([1])
        model = keras.Model(inputs, Shift()(inputs))
        model.predict(X, batch_size=4, verbose=0)
        model(tf.constant([[10.0]]))

    assert values(program, "shifted[:, 0]", "training") == [
        ([1, 2, 3, 4], False),
        ([5, 6, 7, 8], False),
        ([11], False),
    ]


def test_model_export_holds_no_stop(keras: Any, tf: Any, tmp_path: Any) -> None:
    class Shift(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            shifted = inputs + 1
            tfdb.set_trace()
            return shifted

    def program() -> None:
        model = keras.Sequential([keras.Input([1]), Shift()])
        model.export(str(tmp_path / "model"), verbose=False)
        served = tf.saved_model.load(str(tmp_path / "model")).serve(tf.constant([[1.0]]))
        assert served.numpy().tolist() == [[2.0]]

    assert values(program, "shifted") == []
    assert b"tfdb" not in (tmp_path / "model" / "saved_model.pb").read_bytes()


def test_model_with_many_layers_in_self_is_captured_fast_and_whole(keras: Any, tf: Any) -> None:
    class Deep(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [keras.layers.Dense(1, kernel_initializer="ones") for _ in range(200)]

        def call(self, x: Any) -> Any:
            for number, block in enumerate(self.blocks):
                x = block(x)
                if number % 50 == 0:
                    tfdb.set_trace()
            return x

    def program() -> None:
        model = Deep()
        tf.function(model)(tf.constant([[2.0]]))
        model.build([None, 1])

    found = values(program, "number", "x[0, 0]", "len(self.blocks)", "type(self.blocks[3]).__name__")
    assert found[-4:] == [(number, 2.0, 200, "Dense") for number in (0, 50, 100, 150)]


@pytest.mark.parametrize("unroll", [False, True])
def test_a_recurrent_cell_stops_once_per_time_step_and_not_to_learn_shapes(keras: Any, unroll: bool) -> None:
    class Sum(keras.layers.Layer):
        state_size = output_size = 1

        def call(self, inputs: Any, states: Any) -> Any:
            total = states[0] + inputs
            tfdb.set_trace()
            return total, [total]

    results = []

    def program() -> None:
        model = keras.Sequential([keras.Input([3, 1]), keras.layers.RNN(Sum(), unroll=unroll)])
        results.append(model.predict(np.array([[[1.0], [2.0], [4.0]]]), verbose=0).tolist())

    assert [visit.values for visit in visits(program, "float(total[0, 0])")] == [(1.0,), (3.0,), (7.0,)]
    assert results == [[[7.0]]]
