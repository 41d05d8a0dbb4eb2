"""Errors out of Keras -> the layer, its settings, who made it, what it was given; and nothing is changed by looking."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from wrecks import examined, frames_in, text_of

from tfdb import postmortem, prompt, session

FILE = __file__
frames_of = functools.partial(frames_in, FILE)


def convolve_a_row() -> None:
    flat = keras.layers.Dense(10, name="narrow")(keras.Input((28,)))
    keras.layers.Conv2D(4, 3, name="late")(flat)


def join_two_sizes() -> None:
    left, right = keras.Input((16, 3), name="left"), keras.Input((14, 3), name="right")
    keras.layers.Concatenate(name="joined")([left, right])


def stack_on_a_row() -> None:
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(8, name="narrow")])
    model.add(keras.layers.LSTM(16, name="late"))


def predict_on_another_width() -> None:
    model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(4, name="late")])
    model.predict(np.ones((5, 12)), verbose=0)


BUILDING: list[tuple[Callable[[], None], tuple[str, ...]]] = [
    (convolve_a_row, ("layer late: Conv2D(filters=4, kernel_size=(3, 3)", "float32(None, 10), the output of narrow")),
    (join_two_sizes, ("layer joined: Concatenate()", "float32(None, 16, 3), the output of left", "(None, 14, 3)")),
    (stack_on_a_row, ("layer late: LSTM(units=16)", "float32(None, 8), the output of narrow")),
    (predict_on_another_width, ("layer late: Dense(units=4", "it was given float32(5, 12)", "predict: batch 1")),
]


@pytest.mark.parametrize(("program", "told"), BUILDING, ids=lambda each: getattr(each, "__name__", ""))
def test_a_layer_that_does_not_fit_is_told(
    armed: session.Session, program: Callable[[], None], told: tuple[str, ...]
) -> None:
    text = text_of(examined(program, armed.keeper))
    assert all(part in text for part in (*told, "made at test_postmortem_keras.py:")), text


def test_the_output_of_a_loss_has_values_and_the_layers_name_is_never_guessed(armed: session.Session) -> None:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.CategoricalCrossentropy(from_logits=True))
    labels = np.arange(32).reshape(32, 1) % 10
    wreck = examined(lambda: model.fit(np.ones((32, 8)), labels, shuffle=False, verbose=0), armed.keeper)
    text = text_of(wreck)
    assert "target  float32(32, 1)" in text and "output  float32(32, 10)" in text and "9]" in text
    assert wreck.layer == ()


def test_a_layer_in_a_running_graph_is_told_with_the_batch_it_had(armed: session.Session) -> None:
    table = keras.layers.Embedding(50, 8, name="words")
    model = keras.Sequential([keras.Input((6,), dtype="int32"), table, keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    words = np.zeros((40, 6), "int32")
    words[21, 4] = 50
    wreck = examined(lambda: model.fit(words, np.ones((40, 1)), batch_size=8, verbose=0), armed.keeper)
    text = text_of(wreck)
    assert "in layer words: Embedding(input_dim=50, output_dim=8), made at test_postmortem_keras.py:" in text
    assert "with the batch it had" in text and "is 50, but the table has 50 rows" in text


def test_without_a_session_the_batch_of_shuffled_data_is_not_claimed() -> None:
    model = keras.Sequential([keras.Input((6,), dtype="int32"), keras.layers.Embedding(50, 8), keras.layers.Flatten()])
    model.compile("adam", "mse")
    words = np.zeros((40, 6), "int32")
    words[21, 4] = 50
    shuffled = text_of(examined(lambda: model.fit(words, np.ones((40, 48)), batch_size=8, verbose=0)))
    assert "those of the failing batch are not known" in shuffled
    ordered = text_of(examined(lambda: model.fit(words, np.ones((40, 48)), batch_size=8, verbose=0, shuffle=False)))
    assert "the graph was run again on batch 3 of a new pass over the data" in ordered


def test_a_traceback_is_the_one_without_the_debugger() -> None:
    def shown() -> list[str]:
        try:
            predict_on_another_width()
        except ValueError as error:
            frames, entry = [], error.__traceback__
            while entry is not None:
                frames.append(f"{entry.tb_frame.f_code.co_filename}:{entry.tb_lineno}")
                entry = entry.tb_next
            return frames
        raise AssertionError("the program did not fail")

    plain = shown()
    now = session.current(prompt.make_debugger)
    now.arm()
    try:
        assert [each for each in shown() if "tfdb" not in each.rpartition("/")[0].rpartition("/")[2]] == plain
    finally:
        session.end()


@pytest.mark.parametrize("shuffled", [False, True])
def test_looking_at_an_error_while_tracing_moves_no_iterator_and_no_variable(shuffled: bool) -> None:
    data = tf.data.Dataset.range(30)
    iterator = iter((data.shuffle(30) if shuffled else data).map(float).batch(3, drop_remainder=True))
    next(iterator)
    total = tf.Variable(5.0)

    @tf.function
    def step(batches: Any) -> Any:
        batch = next(batches)
        with tf.control_dependencies([total.assign_add(1.0)]):
            doubled = batch * 2.0
        return doubled + tf.ones([4])

    wreck = examined(lambda: step(iterator))
    seen = frames_of(wreck)[-1].names["batch"]
    assert next(iterator).numpy().tolist() == seen.numpy().tolist()
    assert float(total) == 5.0


def test_looking_at_an_error_of_fit_leaves_the_model_as_it_was(armed: session.Session) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(4)])
    model.compile("adam", lambda y, p: tf.reduce_mean(tf.gather(p, tf.cast(y[:, 0], tf.int32))))
    labels = np.zeros((24, 1), "float32")
    model.fit(np.ones((24, 4)), labels, batch_size=8, verbose=0)
    labels[20] = 99
    try:
        model.fit(np.ones((24, 4)), labels, batch_size=8, verbose=0, shuffle=False)
    except tf.errors.InvalidArgumentError as error:
        failed = error
    before = [each.numpy().tobytes() for each in (*model.variables, *model.optimizer.variables)]
    text = text_of(postmortem.examine(failed, armed.keeper))
    after = [each.numpy().tobytes() for each in (*model.variables, *model.optimizer.variables)]
    assert "is 99" in text
    assert after == before
