"""`tfdb.set_trace()` in a tf.function: the program stops there each time the graph runs, with that pass's values.

Each row should be scaled to mean 0 and deviation 1. The second batch gives NaN; the stop shows why:

    python examples/set_trace.py
    (tfdb) pt rows
    (tfdb) c
    (tfdb) pt deviation
    (tfdb) p tf.where(deviation == 0)
"""

import tensorflow as tf

import tfdb


@tf.function
def standardise(rows: tf.Tensor) -> tf.Tensor:
    mean = tf.reduce_mean(rows, axis=1, keepdims=True)
    deviation = tf.math.reduce_std(rows, axis=1, keepdims=True)
    tfdb.set_trace()
    return (rows - mean) / deviation


def main() -> None:
    for batch in ([[1.0, 2.0, 3.0], [2.0, 4.0, 9.0]], [[5.0, 1.0, 0.0], [4.0, 4.0, 4.0]]):
        print(standardise(tf.constant(batch)).numpy().astype(float).round(2).tolist())


if __name__ == "__main__":
    main()
