"""The watch language: what it takes, how it reads back, and what it refuses."""

import ml_dtypes
import numpy as np
import pytest

from tfdb.conditions import Watch, WatchError, badness, concerns, parse, worst


@pytest.mark.parametrize("text", ["nan", "inf", "nan in dense.* allow mask every 3", "inf allow ^scores$"])
def test_a_watch_reads_back_as_it_was_written(text: str) -> None:
    assert str(parse(text)) == text


@pytest.mark.parametrize("text", ["", "zero", "nan on x", "nan in", "nan in (", "nan every x", "nan every 0"])
def test_what_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(WatchError):
        parse(text)


def test_a_nan_is_graver_than_an_infinity() -> None:
    assert badness(np.array([1.0, np.inf, np.nan])) == "nan"
    assert badness(np.array([1.0, -np.inf])) == "inf"
    assert worst(["", "inf", "nan"]) == "nan"
    assert worst(["", "inf"]) == "inf"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.complex64])
def test_small_and_complex_floats_are_looked_at(dtype: type) -> None:
    assert badness(np.array([1.0, np.nan], dtype)) == "nan"
    assert badness(np.array([1.0, 2.0], dtype)) == ""


@pytest.mark.parametrize("array", [np.array([1, 2]), np.array([True]), np.array(["nan"]), np.zeros(0), np.void(b"x")])
def test_what_is_no_float_is_never_bad(array: np.ndarray) -> None:
    assert badness(np.asarray(array)) == ""


def test_scope_and_allow_decide_by_name() -> None:
    watches = [parse("nan in decoder"), parse("inf allow mask")]
    assert concerns(watches, "nan", ["encoder/kernel"]) is None
    assert concerns(watches, "nan", ["decoder/kernel"]) == watches[0]
    assert concerns(watches, "inf", ["attention_mask"]) is None
    assert isinstance(concerns(watches, "inf", ["loss"]), Watch)
