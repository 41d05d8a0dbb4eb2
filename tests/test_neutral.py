"""A run whose stops are all answered with `c` gives, bit for bit, what the run without set_trace() gives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from stops import visits

import tfdb

STEPS = 30


def data(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Thirty batches of eight, the same each time."""
    generator = np.random.default_rng(0)
    return (
        generator.normal(size=(STEPS * 8, *shape)).astype("float32"),
        generator.integers(0, 3, size=STEPS * 8),
    )


def layers(keras: Any, kind: str, stop: bool) -> list[Any]:
    class Looked(keras.layers.Layer):
        """Passes its input on, with a stop on the way."""

        def call(self, inputs: Any, training: bool = False) -> Any:
            outputs = inputs * 1.0
            if stop:
                tfdb.set_trace()
            return outputs

    if kind == "mlp":
        return [
            keras.Input([20]),
            keras.layers.Dense(32, activation="relu"),
            Looked(),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(16, activation="tanh"),
            Looked(),
            keras.layers.Dense(3),
        ]
    return [
        keras.Input([12, 12, 2]),
        keras.layers.Conv2D(8, 3, activation="relu"),
        keras.layers.BatchNormalization(),
        Looked(),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(8, 3),
        Looked(),
        keras.layers.Dropout(0.3),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(3),
    ]


def train_by_fit(keras: Any, tf: Any, kind: str, stop: bool) -> list[bytes]:
    """Thirty steps of model.fit; all weights and the loss of the end, as bytes."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(layers(keras, kind, stop))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    x, y = data(model.input_shape[1:])
    history = model.fit(x, y, batch_size=8, epochs=1, verbose=0)
    return [np.float64(history.history["loss"][0]).tobytes(), *(weight.numpy().tobytes() for weight in model.weights)]


def train_by_hand(keras: Any, tf: Any, kind: str, stop: bool) -> list[bytes]:
    """The same in a loop of its own, with stops among the gradients as well."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(layers(keras, kind, stop))
    optimizer = keras.optimizers.Adam(0.01)
    cost = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = cost(labels, model(images, training=True))
            if stop:
                tfdb.set_trace()
        gradients = tape.gradient(loss, model.trainable_variables)
        if stop:
            tfdb.set_trace()
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    x, y = data(model.input_shape[1:])
    losses = [step(x[n : n + 8], y[n : n + 8]).numpy() for n in range(0, len(x), 8)]
    return [np.array(losses).tobytes(), *(weight.numpy().tobytes() for weight in model.weights)]


@pytest.mark.parametrize("train", [train_by_fit, train_by_hand])
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_training_is_the_same_to_the_last_bit(tf: Any, kind: str, train: Callable[..., list[bytes]]) -> None:
    import keras

    plain = train(keras, tf, kind, False)
    stopped: list[bytes] = []
    found = visits(lambda: stopped.extend(train(keras, tf, kind, True)))
    assert len(found) == STEPS * (4 if train is train_by_hand else 2)
    assert stopped == plain
