"""`pt`, `tdiff`, `hist`, `plot` of every kind of value: each element shown where it is, or a line says why not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfdb
from tfdb import differences, plots, tensors, values
from tfdb.errors import TfdbError
from tfdb.records import Stored
from transcripts import play


def test_options_of_pt_on_values_that_store_a_part_of_their_elements(tf: Any, tmp_path: Path) -> None:
    @tf.function
    def step(x: Any) -> Any:
        ragged = tf.RaggedTensor.from_row_lengths(x, [2, 1, 0])
        nested = tf.RaggedTensor.from_row_lengths(ragged, [1, 2])
        sparse = tf.sparse.SparseTensor([[0, 1], [2, 3], [3, 0]], x, [4, 5])
        slices = tf.IndexedSlices(tf.stack([x, x + 1]), tf.constant([4, 1]), tf.constant([6, 3]))
        tfdb.set_trace()
        return tf.reduce_sum(ragged) + tf.sparse.reduce_sum(sparse) + tf.reduce_sum(slices.values) + nested.shape.rank

    play(
        lambda: step(tf.constant([1.0, 2.0, float("nan")])),
        f"""
        ...
        (tfdb) pt ragged -a
        float32(3, ?) ... nan 1, first at [1, 0]...
        [0]  [1., 2.]
        [1]  [nan]
        [2]  []
        (tfdb) pt ragged -r 2,3
        ...
        in [2, 3]: 1 of 3 (33%), at [0, 1]
        [0]  [1. , 2.*]
        [1]  [nan ]
        [2]  []
        (tfdb) pt ragged --axis 0
        ...
        [0]  float32(2,)  8B  [1, 2]  μ 1.5 σ 0.5
        [1]  float32(1,)  4B  [nan]
        [2]  float32(0,)  0B  empty
        (tfdb) pt ragged --axis 1
        ...
        *** --axis takes 0 for a ragged tensor, not 1
        (tfdb) pt nested -a
        float32(2, ?, ?) ...
        [0, 0]  [1., 2.]
        [1, 0]  [nan]
        [1, 1]  []
        (tfdb) pt nested --axis 0
        ...
        [0]  float32(2,)  8B  [1, 2]  μ 1.5 σ 0.5
        [1]  float32(1,)  4B  [nan]
        (tfdb) pt sparse -a
        float32(4, 5) ...
        [0, 1]  1.
        [2, 3]  2.
        [3, 0]  nan
        (tfdb) pt sparse -r nan
        ...
        nan: 1 of 3 (33%), at [3, 0]
        ...
        (tfdb) pt sparse --axis 0
        ...
        *** --axis takes dense and ragged tensors: ...
        (tfdb) pt sparse -s {tmp_path}/sparse.npy
        ...
        {tmp_path}/sparse.npy: float32(3,) 12B (the stored values alone)
        (tfdb) pt slices -r 2,2
        ...
        in [2, 2]: 2 of 6 (33%), at [4, 1], [1, 0]
        [4]  [ 1. ,  2.*, nan ]
        [1]  [ 2.*,  3. , nan ]
        (tfdb) c
        """,
    )
    np.testing.assert_array_equal(np.load(tmp_path / "sparse.npy"), [1.0, 2.0, np.nan])


def test_tdiff_looks_at_where_elements_are_stored(tf: Any) -> None:
    one, other = tf.ragged.constant([[1.0, 2.0], [3.0]]), tf.ragged.constant([[1.0], [2.0, 3.0]])
    sparse = tf.sparse.SparseTensor([[0, 1], [2, 3]], [1.0, 5.0], [3, 4])
    moved = tf.sparse.SparseTensor([[0, 0], [2, 3]], [1.0, 5.0], [3, 4])
    slices = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([3, 0]))

    def program() -> None:
        tfdb.set_trace()
        print(one.shape, other.shape, sparse.shape, moved.shape, slices.shape, tf.__name__)

    play(
        program,
        """
        ...
        (tfdb) tdiff one, other
        both float32(2, ?)
          row 0 has 2 and 1 elements
        (tfdb) tdiff one, one + [[0.0], [1.0]]
        both float32(2, ?)
          1 of 3 elements differ (33%)
          largest absolute difference 1 at [1, 0]: 3 and 4
        ...
        (tfdb) tdiff one, one[:1]
        float32(2, ?) against float32(1, ?)
          2 and 1 rows
        (tfdb) tdiff sparse, moved
        both float32(3, 4)
          2 of 12 elements differ (17%)
          largest absolute difference 1 at [0, 0]: 0 and 1
        ...
        (tfdb) tdiff sparse, tf.sparse.to_dense(sparse)
        both float32(3, 4)
          all 12 elements equal
        (tfdb) tdiff slices, slices
        both float32(?, 2)
          all 4 elements equal
        (tfdb) tdiff one, 3.0
        float32(2, ?) against float64()
          ragged and number are not compared
        (tfdb) c
        ...
        """,
    )


def test_tdiff_of_structures_shows_the_leaves_that_differ_and_goes_on_past_what_has_no_value(tf: Any) -> None:
    a, names = tf.constant([1.0, 2.0]), tf.constant(["a", "b"])

    def program() -> None:
        tfdb.set_trace()
        print(a, names, tf.__name__)

    play(
        program,
        """
        ...
        (tfdb) tdiff {'x': [a, None], 'n': names}, {'x': [a, None], 'n': names}
        all 3 leaves equal
        (tfdb) tdiff {'x': [a, None], 'n': names, 'y': a}, {'x': [a + 1, None], 'n': names[::-1], 'z': a}
        ['y']: only in the first
        ['z']: only in the second
        ['x'][0]
        both float32(2,)
          2 of 2 elements differ (100%)
        ...
        ['n']
        both string(2,)
          2 of 2 elements differ (100%)
          first at [0]: 'a' and 'b'
        1 of 3 leaves equal
        (tfdb) tdiff [None], [a]
        [0]
        not compared, one has no elements
          None
          float32(2,) ... [1, 2]  μ 1.5 σ 0.5
        (tfdb) tdiff names, a
        string(2,) against float32(2,)
          numbers and other values are not compared
        (tfdb) tdiff tf.reduce_sum(tf.stack([a, a]), axis=0), a + a
        both float32(2,)
          all 2 elements equal
        (tfdb) c
        ...
        """,
    )


@pytest.mark.parametrize(
    ("a", "b", "unequal", "gap"),
    [
        (np.int64(2**60), np.int64(2**60 + 1), 1, 1.0),
        (np.array([2**62, -(2**62)]), np.array([-(2**62), -(2**62)]), 1, 2.0**63),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64), 1, 1.0),
        (np.array([255], np.uint8), np.array([0], np.uint8), 1, 255.0),
        (np.array([True, False]), np.array([False, False]), 1, 1.0),
        (np.array([1, 2], np.int32), np.array([1.0, 2.5]), 1, 0.5),
    ],
)
def test_integers_are_compared_exactly(a: Any, b: Any, unequal: int, gap: float) -> None:
    found = differences.difference(np.asarray(a), np.asarray(b))
    assert found.unequal == unequal and found.absolute is not None and found.absolute[0] == gap


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_small_types_are_printed_marked_and_compared_as_numbers(tf: Any, dtype: str) -> None:
    kind = getattr(tf.dtypes.experimental, dtype, None) or getattr(tf, dtype)
    value = tensors.stored(tf.cast(tf.constant([1, 2, 6] if "int" in dtype else [1.0, 2.0, 6.0]), kind))
    stop = "." if "float" in dtype else ""
    assert values.stored_text(value, 80) == f"[1{stop}, 2{stop}, 6{stop}]"
    assert values.stored_text(value, 80, (2.0, 3.0)) == f"[1{stop} , 2{stop}*, 6{stop} ]"
    assert values.span_text(value, (2.0, 9.0)) == "in [2, 9]: 2 of 3 (67%), at [1], [2]"
    found = differences.difference(value.array, np.array([1.0, 2.0, 5.0]))
    assert found.unequal == 1 and found.absolute == (1.0, (2,), 6.0, 5.0)


def test_spans_of_complex_numbers_are_of_magnitudes_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    array = np.array([3 + 4j, complex("nan"), 1j], np.complex64)
    assert values.span_text(Stored(array), (4.0, 6.0)) == "magnitude in [4, 6]: 1 of 3 (33%), at [0]"
    assert values.values_text(array, 80, (4.0, 6.0)) == "[ 3.+4.j*, nan+0.j ,  0.+1.j ]"
    assert values.span_text(Stored(array), values.span("nan")) == "nan: 1 of 3 (33%), at [1]"
    assert not recwarn.list


@pytest.mark.parametrize(
    ("text", "message"), [("5,1", "lower number first"), ("a,b", "takes two numbers"), ("1,nan", "lower")]
)
def test_spans_that_are_none(text: str, message: str) -> None:
    with pytest.raises(TfdbError, match=message):
        values.span(text)


def test_texts_are_shown_decoded_and_long_ones_cut(tf: Any) -> None:
    text = tf.constant(["héllo", "日本語" * 40])
    assert tfdb.summary(text, 60).startswith("string(2,)  ['héllo', '日本語") and tfdb.summary(text, 60).endswith("…")
    shown = values.stored_text(tensors.stored(text), 60)
    assert shown.startswith("['héllo',\n '日本語") and "\\x" not in shown
    with pytest.raises(TfdbError, match="numbers, not of string"):
        values.span_text(tensors.stored(text), (0.0, 1.0))


def test_saved_texts_are_read_back(tf: Any, tmp_path: Path) -> None:
    plain = values.save(tensors.stored(tf.constant(["a", "é"])), f"{tmp_path}/plain.npy")
    odd = values.save(tensors.stored(tf.constant([b"a\x00", b"b"])), f"{tmp_path}/odd.npy")
    assert plain.endswith("(as bytes)") and "allow_pickle" in odd
    assert [each.decode() for each in np.load(tmp_path / "plain.npy")] == ["a", "é"]
    assert np.load(tmp_path / "odd.npy", allow_pickle=True).tolist() == [b"a\x00", b"b"]


@pytest.mark.parametrize(
    ("axes", "axis", "name"),
    [(2, 1, "[:, 0]"), (10, 9, "[..., 0]"), (10, 7, "[..., 0, :, :]"), (10, 5, "axis 5: 0")],
)
def test_slices_are_named_as_python_writes_them(axes: int, axis: int, name: str) -> None:
    assert values.slice_name(axes, axis, 0) == name
    if name.startswith("["):
        array = np.random.default_rng(0).random([2] * axes)
        np.testing.assert_array_equal(eval(f"array{name}"), np.take(array, 0, axis))


def test_what_has_no_elements_says_so_in_a_line(tf: Any) -> None:
    import keras

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    data = tf.data.Dataset.range(3)

    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError

        def __str__(self) -> str:
            raise RuntimeError

    class Failing(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail() -> None:
        raise Failing

    bad = Bad()

    def program() -> None:
        tfdb.set_trace()
        print(model.name, data.cardinality(), type(bad), fail, tf.__name__)

    play(
        program,
        """
        ...
        (tfdb) pt model -a
        ...
        *** this is a structure of 2 values: take one, pt model.weights[0]
        (tfdb) hist {'a': {'b': data}}
        *** this is a structure of 1 values: take one, hist {'a': {'b': data}}['a']['b']
        (tfdb) pt data -a
        ...
        *** a ...Dataset has no elements to show
        (tfdb) pt bad -a
        Bad  <Bad: its repr raises RuntimeError>
        *** a Bad has no elements to show
        (tfdb) pt None -a
        None
        *** None has no elements to show
        (tfdb) pt tf.constant(1.0) --axis 0
        ...
        *** --axis takes a tensor with axes, this is a scalar
        (tfdb) pt tf.zeros([2, 0]) --axis 1
        ...
        axis 1 is empty
        (tfdb) pt fail()
        *** Failing: Failing
        (tfdb) pt tf.ones([2, 3]) @ tf.ones([2, 3])
        *** InvalidArgumentError: Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]
        (tfdb) pt tf.ones([2])[7]
        *** InvalidArgumentError: slice index 7 of dimension 0 out of bounds.
        (tfdb) pt "abc
        *** SyntaxError: unterminated string literal (detected at line 1)
        (tfdb) c
        ...
        """,
    )


def test_plot_of_a_history_draws_each_of_its_curves(tf: Any, tmp_path: Path) -> None:
    pytest.importorskip("plotext")
    pytest.importorskip("matplotlib")
    import keras

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    history = model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=3, verbose=0)

    def program() -> None:
        tfdb.set_trace()
        print(history.epoch)

    play(
        program,
        f"""
        ...
        (tfdb) plot history
        history['loss'] float64(3,)
        ...
        history['mae'] float64(3,)
        ...
        (tfdb) plot history.history --png {tmp_path}/curves
        {tmp_path}/curves: ... bytes
        (tfdb) plot history --png {tmp_path}
        *** cannot write {tmp_path}: Is a directory
        (tfdb) plot {{'a': [1.0], 'b': 'text'}}
        *** this is a structure of 2 values: ...
        (tfdb) c
        ...
        """,
    )
    assert (tmp_path / "curves").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([np.inf, -np.inf]), "no finite number"),
        (np.array([1e308, -1e308]), "larger than the largest number"),
        (np.zeros((0, 3)), "with elements in it"),
    ],
)
def test_what_cannot_be_drawn(array: np.ndarray, message: str) -> None:
    with pytest.raises(TfdbError, match=message):
        plots.drawing(array, "x")


@pytest.mark.parametrize("numbers", [[5.0, 5.0 + 1e-15], [1e-320, 2e-320], [7.0, 7.0], [3.0, np.nan], [1e17, 1e17]])
def test_histograms_of_hardly_any_range(numbers: list[float]) -> None:
    made = plots.histogram(np.array(numbers), "x")
    assert made.values.sum() == np.isfinite(numbers).sum()


def test_a_value_alone_among_nan_is_seen_in_the_picture(tmp_path: Path) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    axes = figures.Figure().subplots()
    plots.line(axes, plots.drawing(np.array([1.0, 0.5, np.nan, 0.2]), "x"), False)
    curve, crosses = axes.get_lines()
    assert curve.get_markevery() == [3] and crosses.get_xdata().tolist() == [2]


def test_long_lines_keep_their_extremes_and_their_gaps() -> None:
    array = np.zeros(10_000, np.float32)
    array[1234], array[8000] = 9.0, np.nan
    parts = plots.segments(array, 50)
    assert max(part.max() for _, part in parts) == 9.0 and all(np.isfinite(part).all() for _, part in parts)


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_a_matrix_with_values_that_are_not_finite_is_drawn_without_warnings(bad: float) -> None:
    values = np.array([[1.0, 2.0, bad], [3.0, 4.0, 5.0]])
    assert plots.shaded(values) == [" ░×", "▒▓█"]
    assert [line.count("×") for line in plots.coloured(values)] == [1, 0]


def test_a_matrix_of_one_value_is_drawn() -> None:
    assert len(set("".join(plots.shaded(np.full((2, 3), 7.0))))) == 1


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        (np.arange(6) * 1.5, ["  0 ████████ 1", "1.5 ████████ 1", "  3 ████████ 1", "4.5 █", "  6 █", "7.5 █"]),
        ([2**53 + 1, 2**53, 2**53], ["9007199254740992 ████████████████ 2", "9007199254740993 ████████         1"]),
        ([True, False, True], ["False ████████         1", " True ████████████████ 2"]),
        ([1.0001, 1.0002, np.nan], ["1.0001 ████████ 1", "1.0002 ████████ 1"]),
        ([7.0] * 1000, ["7 ████████████████████████████████████████ 1000"]),
    ],
)
def test_few_values_have_a_line_each(values: Any, lines: list[str]) -> None:
    found = plots.text(plots.histogram(np.array(values), "x"), 80, 18, False).splitlines()[1:]
    assert len(found) == len(lines)
    assert all(line.startswith("  " + start) for line, start in zip(found, lines, strict=True))


@pytest.mark.parametrize(("size", "most"), [(13, 9), (20, 9), (400, 18)])
def test_a_histogram_is_as_high_and_as_fine_as_its_numbers_deserve(size: int, most: int) -> None:
    pytest.importorskip("plotext")
    values = np.linspace(0.0, 1.0, size)
    made = plots.histogram(values, "x")
    assert 6 <= len(made.values) <= min(40, size) and made.values.sum() == size
    lines = plots.text(made, 80, 18, False).splitlines()
    assert len(lines) <= most + 3
    assert max(map(len, lines)) <= 80
