"""Arrays of every dtype, shape and layout -> the statistics that plain numpy in float64 (or Python) gives for them."""

import dataclasses
import json
import math
import threading
import warnings

import ml_dtypes
import numpy as np
import pytest

from tfdb import blocks
from tfdb.records import NonFinite, TensorSummary, TextFacts
from tfdb.summarize import BINS, FEW, SAMPLE, summarize

FLOATS = [np.float16, np.float32, np.float64, np.longdouble, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
FLOATS += [ml_dtypes.float8_e5m2]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16 float32, so that small arrays have many."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_statistics(dtype: type) -> None:
    array = np.random.default_rng(3).normal(0.5, 2, (40, 5)).astype(dtype)
    array[4] = 0
    exact = array.astype(np.float64)
    found = summarize(array)
    assert (found.shape, found.size, found.nbytes) == ((40, 5), 200, 200 * np.dtype(dtype).itemsize)
    assert (found.minimum, found.maximum) == (exact.min(), exact.max())
    assert found.mean == pytest.approx(exact.mean(), rel=1e-6)
    assert found.std == pytest.approx(exact.std(), rel=1e-6)
    assert found.zeros == (exact == 0).sum() >= 5
    assert found.finite and found.word == "" and found.values == ()
    assert found.histogram == tuple(np.histogram(exact, BINS)[0])


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float16, "float16"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
        (ml_dtypes.int4, "int4"),
        (np.dtype(">f4"), "float32"),
        (np.complex64, "complex64"),
        (np.bool_, "bool"),
    ],
)
def test_dtype_names(dtype: type, name: str) -> None:
    assert summarize(np.zeros(3).astype(dtype)).dtype == name


@pytest.mark.parametrize("dtype", [*FLOATS, np.complex64, np.complex128])
def test_nan_and_infinities_are_counted_and_placed(dtype: type) -> None:
    array = np.ones((6, 5), np.float64)
    array[1, 2] = array[4, 4] = array[5, 0] = np.nan
    array[3, 3] = 2
    has_inf = dtype is not ml_dtypes.float8_e4m3fn
    if has_inf:
        array[2, 1] = np.inf
    found = summarize(array.astype(dtype))
    assert found.nan == NonFinite(3, (1, 2))
    assert found.posinf == (NonFinite(1, (2, 1)) if has_inf else None)
    assert found.neginf is None
    assert (found.minimum, found.maximum) == (1, 2)
    assert found.mean == pytest.approx(27 / 26 if has_inf else 28 / 27)


def test_negative_infinity_is_told_from_positive() -> None:
    found = summarize(np.array([1, -np.inf, 3, np.inf, -np.inf], np.float32))
    assert (found.posinf, found.neginf, found.nan) == (NonFinite(1, (3,)), NonFinite(2, (1,)), None)
    assert (found.minimum, found.maximum, found.mean, found.std) == (1, 3, 2, 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nothing_finite(value: float) -> None:
    found = summarize(np.full((20,), value, np.float32))
    assert (found.minimum, found.mean, found.std, found.zeros, found.histogram) == (None, None, None, None, ())
    assert not found.finite
    assert found.word == ("all nan" if math.isnan(value) else "")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_extremes_are_exact(dtype: type) -> None:
    info = np.iinfo(dtype)
    found = summarize(np.array([info.min, info.max, info.max, info.min], dtype))
    assert (found.minimum, found.maximum) == (info.min, info.max)
    assert isinstance(found.maximum, int)
    middle = (int(info.min) + int(info.max)) / 2
    assert found.mean == pytest.approx(middle, abs=1)
    assert found.std == pytest.approx((int(info.max) - int(info.min)) / 2)
    assert found.values == (info.min, info.max, info.max, info.min)


def test_int8_sums_do_not_wrap() -> None:
    found = summarize(np.full(100_000, 127, np.int8))
    assert (found.mean, found.std, found.word) == (127.0, 0.0, "all equal")


def test_float16_sums_do_not_overflow() -> None:
    array = np.full(100_000, 60000, np.float16)
    array[::2] = 50000
    found = summarize(array)
    assert found.mean == pytest.approx(array.astype(np.float64).mean(), rel=1e-6)
    assert found.std == pytest.approx(array.astype(np.float64).std(), rel=1e-4)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
def test_four_bit_integers(dtype: type) -> None:
    found = summarize(np.arange(8).astype(dtype))
    assert (found.values, found.minimum, found.maximum, found.mean) == ((0, 1, 2, 3, 4, 5, 6, 7), 0, 7, 3.5)
    assert isinstance(found.minimum, int)


@pytest.mark.parametrize("scale", [1e-300, 1e-45, 1e-30, 1e-12, 1.0, 1e18, 1e30, 1e38, 1e160, 1e307])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_at_any_magnitude(dtype: type, scale: float) -> None:
    with np.errstate(all="ignore"):
        array = (np.linspace(-1, 1.5, 101) * scale).astype(dtype)
        exact = array.astype(np.longdouble)
    found = summarize(array)
    if dtype is np.float32 and scale > 1e38:
        assert found.posinf is not None and found.neginf is not None
        return
    assert found.mean == pytest.approx(float(exact.mean()), rel=1e-5, abs=0)
    assert found.std == pytest.approx(float(exact.std()), rel=1e-5, abs=0)
    assert found.minimum == array.min() and found.maximum == array.max()


def test_small_spread_far_from_zero_keeps_its_deviation() -> None:
    array = np.random.default_rng(0).normal(1e4, 0.01, 300_000).astype(np.float32)
    found = summarize(array)
    assert found.std == pytest.approx(array.astype(np.float64).std(), rel=1e-5)
    assert found.mean == pytest.approx(array.astype(np.float64).mean(), rel=1e-9)


@pytest.mark.parametrize("center", [0.0, 0.1, 1.0, 3.0, -5.0])
def test_mean_and_deviation_of_large_blocks(center: float) -> None:
    array = np.random.default_rng(0).normal(center, 1, 1_500_000).astype(np.float32)
    found = summarize(array)
    assert found.mean == pytest.approx(array.astype(np.float64).mean(), rel=1e-4, abs=1e-6)
    assert found.std == pytest.approx(array.astype(np.float64).std(), rel=1e-4)


def test_bool() -> None:
    found = summarize(np.arange(40).reshape(4, 10) % 4 == 0)
    assert (found.minimum, found.maximum, found.mean, found.zeros) == (0, 1, 0.25, 30)
    assert summarize(np.array([True, False])).values == (True, False)


def test_complex_statistics_are_of_the_magnitude() -> None:
    found = summarize(np.array([3 + 4j, 0, 6 - 8j] * 7, np.complex64))
    assert (found.of, found.minimum, found.maximum, found.zeros) == ("magnitude", 0, 10, 7)
    assert found.mean == pytest.approx(5)
    odd = summarize(np.array([complex(math.nan, math.inf), complex(1, math.inf), complex(1e308, 1e308)]))
    assert (odd.nan, odd.posinf) == (NonFinite(1, (0,)), NonFinite(1, (1,)))
    assert odd.maximum == pytest.approx(math.sqrt(2) * 1e308)
    beyond = summarize(np.array([complex(1.7e308, 1.7e308), 0]))
    assert (beyond.posinf, beyond.maximum) == (None, np.finfo(np.float64).max)


def test_complex_of_one_magnitude_is_not_all_equal() -> None:
    assert summarize(np.array([1, 1j, -1], np.complex64)).word == ""


@pytest.mark.parametrize("values", [[b"cat", b"horse", b"cat"], ["cat", "horse", "cat"]])
@pytest.mark.parametrize("dtype", [object, None])
def test_strings(values: list, dtype: type | None) -> None:
    found = summarize(np.array(values, dtype))
    assert (found.dtype, found.values) == ("string", ("cat", "horse", "cat"))
    assert found.text == TextFacts(2, 5)
    assert all(type(value) is str for value in found.values)
    assert found.minimum is None


def test_many_and_long_strings_are_cut() -> None:
    found = summarize(np.array([b"x" * 1000, b"\xff", *(str(i).encode() for i in range(50))], object))
    assert found.text == TextFacts(52, 1000)
    assert len(found.values) == 3 and len(found.values[0]) == 60 and found.values[0].endswith("…")
    assert found.values[1] == "\\xff"
    sampled = summarize(np.full(SAMPLE + 1, "a"))
    assert sampled.text == TextFacts(1, 1, sampled=True)


def test_objects_whose_repr_raises() -> None:
    class Sour:
        def __repr__(self) -> str:
            raise OSError("no")

    found = summarize(np.array([Sour(), None, 3], object))
    assert found.dtype == "object"
    assert found.values == ("<Sour: its repr raises OSError>", "None", "3")


@pytest.mark.parametrize(
    "array",
    [
        np.array(["2026-01-02", "NaT"], "datetime64[D]"),
        np.zeros(3, "i4,f4"),
        np.array([b"ab"], "V2"),
        np.array([np.timedelta64(3, "s")]),
    ],
)
def test_what_has_no_statistics_is_still_summarised(array: np.ndarray) -> None:
    found = summarize(array)
    assert found.size == array.size and found.minimum is None and len(found.values) == array.size


def test_quantised_record_is_its_field() -> None:
    found = summarize(np.array([(1,), (2,)], [("qint8", "i1")]))
    assert (found.minimum, found.maximum, found.values) == (1, 2, (1, 2))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 0, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex64, object, ml_dtypes.bfloat16])
def test_empty(shape: tuple[int, ...], dtype: type) -> None:
    found = summarize(np.zeros(shape, dtype))
    assert (found.word, found.size, found.nbytes, found.shape) == ("empty", 0, 0, shape)
    assert found.finite and found.zero_share is None


@pytest.mark.parametrize("value", [np.float32(2.5), np.int64(-3), np.bool_(True), ml_dtypes.bfloat16(1.5), 7, 2.5j])
def test_scalars(value: object) -> None:
    found = summarize(np.asarray(value))
    assert (found.shape, found.size, found.word, found.histogram) == ((), 1, "", ())
    assert found.values == (value,)


def test_scalar_nan_has_the_empty_index() -> None:
    assert summarize(np.asarray(np.nan)).nan == NonFinite(1, ())


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.zeros((3, 4)), "all zeros"),
        (np.array([0.0, -0.0]), "all zeros"),
        (np.zeros(3, np.complex64), "all zeros"),
        (np.full(9, 2, np.uint8), "all equal"),
        (np.array([1.0, np.nan, 1.0]), ""),
        (np.array([5.0]), ""),
        (np.array([np.nan, np.nan]), "all nan"),
        (np.arange(3), ""),
    ],
)
def test_words(array: np.ndarray, word: str) -> None:
    assert summarize(array).word == word


def test_negative_zero_counts_as_zero() -> None:
    assert summarize(np.array([-0.0, 0.0, 1.0, -1.0], np.float32)).zeros == 2


def test_values_are_kept_up_to_ten_and_are_plain_python() -> None:
    assert summarize(np.arange(FEW, dtype=np.float32)).values == tuple(float(i) for i in range(FEW))
    assert summarize(np.arange(FEW + 1)).values == ()
    assert summarize(np.arange(6).reshape(2, 3).T).values == (0, 3, 1, 4, 2, 5)
    for array in (np.ones(2, ml_dtypes.bfloat16), np.ones(2, np.int8), np.ones(2, bool), np.ones(2, np.complex64)):
        assert all(type(value) in (bool, int, float, complex) for value in summarize(array).values)


def test_every_field_is_plain_python() -> None:
    for array in (np.arange(30.0), np.arange(30) % 3 == 0, np.arange(30, dtype=np.uint16), np.array(["a"])):
        json.dumps(dataclasses.asdict(summarize(array)))


def layouts() -> list[np.ndarray]:
    base = np.random.default_rng(1).normal(size=(12, 14, 10)).astype(np.float32)
    base[7, 3, 5] = np.nan
    swapped = base.byteswap().view(base.dtype.newbyteorder())
    return [
        base.T,
        base[::2, 1:, ::-1],
        np.asfortranarray(base),
        base[:, 3],
        np.broadcast_to(base[7], (5, 14, 10)),
        swapped,
        swapped.T,
    ]


@pytest.mark.parametrize("number", range(len(layouts())))
def test_any_memory_layout(small_blocks: None, number: int) -> None:
    array = layouts()[number]
    plain = np.ascontiguousarray(array).astype(np.float32)
    found, expected = summarize(array), summarize(plain)
    assert (found.nan, found.minimum, found.maximum, found.zeros, found.shape) == (
        expected.nan, expected.minimum, expected.maximum, expected.zeros, expected.shape
    )  # fmt: skip
    assert found.mean == pytest.approx(expected.mean)
    assert found.std == pytest.approx(expected.std)
    first = np.argwhere(np.isnan(plain))
    assert found.nan == (NonFinite(len(first), tuple(first[0])) if len(first) else None)


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 200])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 1000])
def test_blocks_and_threads_change_nothing(small_blocks: None, workers: int, size: int) -> None:
    array = np.random.default_rng(2).normal(size=size).astype(np.float32)
    array[size // 2 :: 100] = np.nan
    array[size - 1] = -np.inf
    finite = array[np.isfinite(array)].astype(np.float64)
    found = blocks.measure(array, workers)
    expected = [int(np.isnan(array).sum()), 0, 1]
    assert list(found.counts) == expected and found.finite == finite.size
    assert found.firsts == (size // 2 if expected[0] else -1, -1, size - 1)
    if finite.size:
        assert (found.minimum, found.maximum) == (finite.min(), finite.max())
        assert found.mean == pytest.approx(finite.mean(), abs=1e-6)
        assert found.std == pytest.approx(finite.std(), rel=1e-5, abs=1e-9)


def test_zeros_of_huge_float_arrays_are_estimated_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).normal(size=2_000_000).astype(np.float32)
    array[::4] = 0
    assert (summarize(array).zeros, summarize(array).zeros_estimated) == (500_000, False)
    monkeypatch.setattr(blocks, "EXACT_ZEROS", 1_000_000)
    found = summarize(array)
    assert found.zeros_estimated and found.zeros == pytest.approx(500_000, rel=0.01)
    assert not summarize(array.astype(np.int8)).zeros_estimated
    array[:] = np.abs(array) + 1
    array[-1] = 0
    assert summarize(array).zeros == 1


def test_large_array_goes_through_threads_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "THREADED_BYTES", 1)
    array = np.random.default_rng(0).normal(size=3_000_000).astype(np.float32)
    array[2_345_678] = np.nan
    before = threading.active_count()
    found = summarize(array, workers=2)
    assert found.nan == NonFinite(1, (2_345_678,))
    assert threading.active_count() == before


def test_no_threads_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoPool:
        def __init__(self, *args: object, **kwargs: object) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(blocks, "ThreadPoolExecutor", NoPool)
    assert summarize(np.arange(100.0), workers=2).maximum == 99


def test_histogram_of_a_sample_is_true_at_its_ends_and_repeats() -> None:
    array = np.zeros(SAMPLE * 8, np.float32)
    array[12345], array[12346] = -1, 7
    found = summarize(array)
    assert found.histogram[0] == 1 and found.histogram[-1] == 1 and len(found.histogram) == BINS
    assert sum(found.histogram) == pytest.approx(SAMPLE, abs=2)
    assert found == summarize(array)


def test_sampling_does_not_keep_step_with_columns() -> None:
    array = np.zeros((4096, 512), np.float32)
    array[:, 0] = 1
    share = summarize(array).histogram[-1] / SAMPLE
    assert share == pytest.approx(1 / 512, rel=0.5)


def test_histogram_over_the_whole_float64_range() -> None:
    array = np.linspace(-1, 1, 80) * np.finfo(np.float64).max
    assert sum(summarize(array).histogram) == 80
    assert min(summarize(array).histogram) == 10


@pytest.mark.parametrize(
    "array",
    [
        np.array([np.nan, np.inf, -np.inf, 0, 1e308, -1e308, 5e-324]),
        np.array([np.inf, 65504, -65504, 6e-8], np.float16),
        np.array([np.inf, 3e38, -3e38, 1e-45], np.float32),
        np.array([np.nan, 448, -448]).astype(ml_dtypes.float8_e4m3fn),
        np.array([complex(np.inf, np.nan), 1e308 + 1e308j]),
        np.array([2**63 - 1, -(2**63)]),
        np.array([0, 2**64 - 1], np.uint64),
        np.array([1e4000, 1], np.longdouble) if np.finfo(np.longdouble).max > 1e308 else np.ones(2),
    ],
    ids=str,
)
def test_no_warning_leaks_and_settings_stay(array: np.ndarray) -> None:
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        before = np.geterr()
        for shaped in (array, np.tile(array, 50), np.tile(array, (50, 2)).T):
            assert isinstance(summarize(shaped), TensorSummary)
        assert np.geterr() == before


def test_the_array_is_not_written_and_global_randomness_not_used() -> None:
    array = np.random.default_rng(0).normal(size=SAMPLE * 2)
    array.flags.writeable = False
    np.random.seed(5)
    state = np.random.get_state()[1].copy()
    copy = array.copy()
    summarize(array)
    assert (array == copy).all() and (np.random.get_state()[1] == state).all()


def test_not_a_number_type_is_refused_by_measure() -> None:
    with pytest.raises(TypeError, match="not a numeric type"):
        blocks.measure(np.array(["a"]))
