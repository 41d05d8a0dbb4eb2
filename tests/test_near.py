"""`watch near`: what counts as near an edge, where it stops, and that nothing of it exists unless it is asked for."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from stops import watched

from tfdb import edges
from tfdb.near import near
from transcripts import play

F32 = np.finfo(np.float32)


SLOPES: list[tuple[str, Callable[[Any], Any], list[float]]] = [
    ("Log", lambda x: 1 / x, list(np.logspace(-37, 10, 95))),
    ("Sqrt", lambda x: 0.5 / np.sqrt(x), list(np.logspace(-37, 10, 95))),
    ("Rsqrt", lambda x: -0.5 * x**-1.5, list(np.logspace(-37, 10, 95))),
    ("Reciprocal", lambda x: 1 / x, list(np.logspace(-37, 10, 95))),
    ("Exp", lambda x: np.exp(x), list(np.linspace(-50, 88, 70))),
]


@pytest.mark.parametrize("op, slope, values", SLOPES, ids=[op for op, _, _ in SLOPES])
def test_near_is_where_the_square_of_the_slope_overflows(
    op: str, slope: Callable[[Any], Any], values: list[float]
) -> None:
    for value in values:
        squared = np.float64(slope(np.float64(value))) ** 2
        if abs(squared / F32.max - 1) < 0.1:
            continue
        found = edges.find(op, [np.array([1.0, value], np.float32)], [np.array([1.0], np.float32)])
        assert (found is not None) == (squared > F32.max), f"{op}({value}): the slope's square is {squared}"
        assert found is None or found.where == (1,)


@pytest.mark.parametrize("dtype, most", [("float16", 65504.0), ("bfloat16", 3.3895314e38)])
def test_halves_are_near_within_twice_their_largest_number(dtype: str, most: float) -> None:
    kind = tf.as_dtype(dtype).as_numpy_dtype
    assert float(np.asarray(most, kind)) == pytest.approx(most)
    for share, expected in ((0.4, False), (0.6, True), (-0.6, True)):
        output = np.asarray([1.0, share * most]).astype(kind)
        assert (edges.find("MatMul", [], [output]) is not None) == expected
    assert edges.find("MatMul", [], [np.asarray([np.inf], kind)]) is None, "that is over"


CASES: list[tuple[str, Callable[[tf.Tensor], tf.Tensor], float, float]] = [
    ("Log", lambda x: tf.math.log(x), 1e-30, 1e-6),
    ("RealDiv", lambda x: 1.0 / x, 1e-25, 1e-8),
    ("RealDiv", lambda x: 1.0 / x, -1e-25, -1e-8),
    ("Sqrt", lambda x: tf.sqrt(x), 0.0, 1e-12),
    ("Rsqrt", lambda x: tf.math.rsqrt(x), 1e-20, 1e-9),
    ("Exp", lambda x: tf.exp(x), 80.0, 40.0),
    ("Acos", lambda x: tf.acos(x), 1.0, 0.999),
    ("Pow", lambda x: tf.pow(x, 0.5), 1e-40 * 0, 1e-6),
    ("Mul", lambda x: tf.cast(x, tf.float16) * 1.0, 40000.0, 30000.0),
]


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("op, function, bad, good", CASES, ids=[f"{op} of {bad}" for op, _, bad, _ in CASES])
def test_each_edge_in_eager_code_and_in_graphs(
    op: str, function: Callable[[tf.Tensor], tf.Tensor], bad: float, good: float, in_graph: bool
) -> None:
    with watched("near") as found:
        run = tf.function(function, autograph=False) if in_graph else function
        run(tf.constant([1.5, good]) if op not in ("Acos",) else tf.constant([0.5, good]))
        assert not found, found[0].cause
        run(tf.constant([0.5, bad]))
        run(tf.constant([0.5, bad]))
    assert [report.op for report in found if report.op != "Cast"] == [op], "each line stops once"
    report = found[-1]
    assert (report.reason, report.place) == ("watch", "near")
    assert report.line is not None and report.line.file == __file__
    assert "[1]" in report.cause


BESIDE: list[tuple[str, Callable[[tf.Tensor], tf.Tensor], list[float], str]] = [
    ("Exp", lambda x: tf.exp(x), [50.0, 100.0, 60.0], "is 100 at [1]"),
    ("Log", lambda x: tf.math.log(x), [1e-25, 0.0, 1e-30], "is 0 at [1]"),
    ("RealDiv", lambda x: 1.0 / x, [1e-25, -1e-39, 1.0], "at [1]"),
    ("Acos", lambda x: tf.acos(x), [1.0, 1.5, -1.0], "is 1.5 at [1]"),
    ("Pow", lambda x: tf.pow(x, -2.0), [1e-8, 0.0, 1e-9], "is 0 at [1]"),
    ("Mul", lambda x: tf.cast(x, tf.float16) * 2.0, [20000.0, -40000.0, 1.0], "the result is -inf at [1]"),
]


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("op, function, given, words", BESIDE, ids=[op for op, *_ in BESIDE])
def test_the_element_that_went_over_is_named_and_not_one_beside_it(
    op: str, function: Callable[[tf.Tensor], tf.Tensor], given: list[float], words: str, in_graph: bool
) -> None:
    with watched("near") as found:
        run = tf.function(function, autograph=False) if in_graph else function
        run(tf.constant(given))
    report = next(report for report in found if report.op == op)
    assert words in report.cause


def test_an_infinity_that_came_in_is_not_blamed_on_the_op() -> None:
    half = np.float16
    found = edges.find("AddV2", [np.array([np.inf, 4e4], half)], [np.array([np.inf, 4e4], half)])
    assert found is not None and found.where == (1,)


@tf.function
def step(x: tf.Tensor) -> tf.Tensor:
    total = tf.constant(0.0)
    for row in x:
        share = row / tf.reduce_sum(row)
        if tf.reduce_sum(row) > 0.0:
            total += tf.reduce_sum(tf.math.log(share))
    return total


def test_the_prompt_stands_in_the_graphs_frame() -> None:
    def program() -> None:
        import tfdb

        tfdb.watch("near in step")
        step(tf.constant([[1.0, 1.0], [1.0, 1e-25]]))
        step(tf.constant([[1.0, 1.0], [1.0, 1e-25]]))

    play(
        program,
        """
        A near miss · step 1 · step()
          origin    Log  test_near.py:... step()
        ...
          cause     share is 1e-25 at [1]: log goes to minus infinity at 0, its slope
        ...
          then      c goes on as the program would; q ends
        ...
        -> total += tf.reduce_sum(tf.math.log(share))
        (tfdb) p share.numpy()
        array([1.e+00, 1.e-25], dtype=float32)
        (tfdb) watch
        watch 1  near in step  hit 1 time
        (tfdb) unwatch
        no longer: watch 1  near in step  hit 1 time
        (tfdb) c
        """,
    )


@pytest.mark.parametrize("text, count", [("near in masked", 1), ("near allow masked", 1), ("near every 2", 1)])
def test_in_allow_and_every(text: str, count: int) -> None:
    def masked(x: tf.Tensor) -> tf.Tensor:
        return tf.math.log(x)

    def scaled(x: tf.Tensor) -> tf.Tensor:
        return 1.0 / x

    with watched(text) as found:
        masked(tf.constant([1e-30]))
        scaled(tf.constant([1e-30]))
    assert len(found) == count
    assert found[0].line is not None
    assert found[0].line.function == {"near in masked": "masked"}.get(text, "scaled" if "allow" in text else "masked")


def model() -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.LSTM(4, return_sequences=True), keras.layers.LayerNormalization(), keras.layers.GRU(4)]
    layers += [keras.layers.Dropout(0.2), keras.layers.BatchNormalization(), keras.layers.Dense(2, "softmax")]
    made = keras.Sequential(layers)
    made.compile(keras.optimizers.Adam(clipnorm=1.0), "sparse_categorical_crossentropy")
    return made


def test_a_healthy_fit_has_no_near_miss_and_is_the_same() -> None:
    x = np.random.default_rng(0).uniform(size=(32, 5, 3)).astype(np.float32)
    y = np.arange(32) % 2
    plain = model()
    plain.fit(x, y, batch_size=8, verbose=0)
    with watched("near") as found:
        looked_at = model()
        looked_at.fit(x, y, batch_size=8, verbose=0)
    assert not found, found[0].cause
    for ours, theirs in zip(looked_at.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_nothing_is_looked_at_unless_asked_for() -> None:
    with watched("nan", "inf") as found:
        assert not near.installed
        run = tf.function(lambda x: tf.math.log(x))
        run(tf.constant([1e-30]))
        graph = run.get_concrete_function(tf.constant([1e-30])).graph
        assert not [op.name for op in graph.get_operations() if "tfdb_near" in op.name]
    assert not found
