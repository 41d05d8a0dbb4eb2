"""A tf.function training loop that should fit a line and does not: the loss stays near the variance of the targets.

The line is y = 3x - 1, the noise is small, so the loss should fall to about 0.01. Stop in `loss_of` while the graph
runs, and look at the shapes:

    python -m tfdb examples/regression.py
    (tfdb) b examples/regression.py:34
    (tfdb) c
    (tfdb) p predictions.shape, targets.shape, errors.shape
"""

import tensorflow as tf


class Line(tf.Module):
    def __init__(self) -> None:
        self.slope = tf.Variable([[0.0]])
        self.offset = tf.Variable([0.0])

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs @ self.slope + self.offset


def make_data(samples: int) -> tuple[tf.Tensor, tf.Tensor]:
    generator = tf.random.Generator.from_seed(7)
    inputs = generator.uniform((samples, 1), -1.0, 1.0)
    noise = generator.normal((samples,), stddev=0.1)
    return inputs, 3.0 * inputs[:, 0] - 1.0 + noise


def loss_of(line: Line, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    predictions = line(inputs)
    errors = predictions - targets
    return tf.reduce_mean(tf.square(errors))


@tf.function
def train_step(line: Line, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = loss_of(line, inputs, targets)
    for variable, gradient in zip(line.trainable_variables, tape.gradient(loss, line.trainable_variables), strict=True):
        variable.assign_sub(0.2 * gradient)
    return loss


def main() -> None:
    line = Line()
    inputs, targets = make_data(64)
    for step in range(101):
        loss = train_step(line, inputs, targets)
        if step % 25 == 0:
            print(f"step {step:3}  loss {loss:.3f}")
    print(f"y = {line.slope[0, 0]:.2f} x + {line.offset[0]:.2f}, expected y = 3 x - 1")


if __name__ == "__main__":
    main()
