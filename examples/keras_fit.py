"""A Keras `fit` with a custom `train_step` and loss: it learns, but the loss will not go below about 0.55.

Three well separated clusters, so a loss near 0 is possible. Stop in the loss while `fit` runs its graph:

    python -m tfdb examples/keras_fit.py
    (tfdb) b examples/keras_fit.py:29
    (tfdb) c
    (tfdb) pt scores
    (tfdb) p tf.reduce_sum(scores, axis=1)
"""

import keras
import numpy as np
import tensorflow as tf


def make_data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    labels = random.integers(0, 3, samples)
    centres = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    points = centres[labels] + random.normal(0.0, 0.4, (samples, 2))
    return points.astype("float32"), labels.astype("int64")


def smoothed_loss(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Cross entropy against labels moved a little towards the uniform distribution."""
    wanted = tf.one_hot(labels, 3) * 0.99 + 0.01 / 3
    losses = tf.nn.softmax_cross_entropy_with_logits(wanted, scores)
    return tf.reduce_mean(losses)


class Classifier(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(16, activation="relu")
        self.classes = keras.layers.Dense(3, activation="softmax")
        self.mean_loss = keras.metrics.Mean(name="loss")

    def call(self, points: tf.Tensor) -> tf.Tensor:
        return self.classes(self.hidden(points))

    def train_step(self, data: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        points, labels = data
        with tf.GradientTape() as tape:
            scores = self(points, training=True)
            loss = smoothed_loss(labels, scores)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.mean_loss.update_state(loss)
        return {"loss": self.mean_loss.result()}


def main() -> None:
    keras.utils.set_random_seed(3)
    points, labels = make_data(480)
    model = Classifier()
    model.compile(optimizer=keras.optimizers.Adam(0.02))
    history = model.fit(points, labels, batch_size=32, epochs=8, verbose=0)
    for epoch, loss in enumerate(history.history["loss"]):
        print(f"epoch {epoch}  loss {loss:.3f}")


if __name__ == "__main__":
    main()
