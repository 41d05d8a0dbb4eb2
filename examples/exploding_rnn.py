"""A hand-written recurrent network whose gradients grow from time step to time step, until the loss is NaN.

The task is to add up a sequence. Stop in the loop, at the first time step whose state is out of all proportion:

    python -m tfdb examples/exploding_rnn.py
    (tfdb) b examples/exploding_rnn.py:32, tf.norm(state) > 1e4
    (tfdb) c
    (tfdb) p step
    (tfdb) pt state
"""

import tensorflow as tf

UNITS = 24
STEPS = 20


class Recurrent(tf.Module):
    def __init__(self) -> None:
        generator = tf.random.Generator.from_seed(11)
        self.kernel = tf.Variable(generator.normal((1, UNITS)), name="kernel")
        self.recurrent = tf.Variable(generator.normal((UNITS, UNITS), stddev=0.35), name="recurrent")
        self.readout = tf.Variable(generator.normal((UNITS, 1), stddev=0.2), name="readout")

    def cell(self, value: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(value @ self.kernel + state @ self.recurrent)

    def __call__(self, sequences: tf.Tensor) -> tf.Tensor:
        state = tf.zeros((tf.shape(sequences)[0], UNITS))
        for step in tf.range(STEPS):
            value = sequences[:, step, tf.newaxis]
            state = self.cell(value, state)
        return tf.squeeze(state @ self.readout, axis=1)


@tf.function
def train_step(model: Recurrent, sequences: tf.Tensor, sums: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(sequences) - sums))
    variables = model.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.001 * gradient)
    return loss


def main() -> None:
    generator = tf.random.Generator.from_seed(12)
    model = Recurrent()
    for step in range(8):
        sequences = generator.uniform((16, STEPS))
        loss = train_step(model, sequences, tf.reduce_sum(sequences, axis=1))
        print(f"step {step}  loss {loss:.3g}")


if __name__ == "__main__":
    main()
