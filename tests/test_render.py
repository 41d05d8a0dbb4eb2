"""Records -> the text people read: number formats, one line, tables, widths and colour."""

import math

import ml_dtypes
import numpy as np
import pytest

from tfdb import render
from tfdb.records import NonFinite, TableRow, TensorSummary
from tfdb.summarize import summarize

DESIGN = TensorSummary(
    "tensor", "float32", (64, 10), "cpu:0", 2560, 640, -3.1, 4.2, -0.02, 1.1, 77, NonFinite(3, (5, 2)),
    histogram=(5, 20, 70, 200, 170, 80, 12, 3),
)  # fmt: skip
SYMBOLIC = TensorSummary("tensor", "float32", (None, 3), notes=("no value: symbolic",))


def samples() -> list[TensorSummary]:
    random = np.random.default_rng(0)
    arrays = [
        random.normal(size=(64, 10)).astype(np.float32), np.array([[1.5, np.nan, -np.inf]]), np.float32(0.41),
        np.array(np.nan), np.zeros((0, 3)), np.zeros((50, 5)), np.ones(20, np.int8), np.arange(5), np.arange(11) / 7,
        np.full(30, np.nan), np.full(30, np.inf), np.array(["ab", "日本語"] * 20), random.random(50) > 0.3,
        random.normal(size=50).astype(np.complex64), np.array([2**64 - 1, 0], np.uint64), np.array([None, {}]),
        random.normal(size=50).astype(ml_dtypes.bfloat16),
    ]  # fmt: skip
    return [DESIGN, SYMBOLIC, *(summarize(np.asarray(array), device="cpu:0") for array in arrays)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (-0.0, "0"), (3, "3"), (3.0, "3"), (-3.14159, "-3.14"), (0.5, "0.5"), (0.02131, "0.0213"),
        (9.999, "10"), (99.96, "100"), (123.4, "123"), (1234.5, "1234"), (65504.0, "65504"), (99999.6, "1e5"),
        (-1234567, "-1234567"), (12345678, "1.23e7"), (2**64 - 1, "1.84e19"), (10**5000, "1e5000"),
        (1.23e-4, "0.000123"), (1e-5, "1e-5"), (-2.5e-10, "-2.5e-10"), (5e-324, "4.94e-324"), (1.7e308, "1.7e308"),
        (-1e-9, "-1e-9"), (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (True, "True"), ("a\n", "'a\\n'"),
        (1 - 2j, "1-2j"), (complex(0, 1), "0+1j"), (complex(1, math.nan), "1+nanj"), (np.float32(0.1), "0.1"),
        (np.int64(7), "7"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)  # fmt: skip
def test_number(value: object, text: str) -> None:
    assert render.number(value) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0B"), (999, "999B"), (1000, "0.977KiB"), (2560, "2.5KiB"), (1 << 30, "1GiB"), (9 << 50, "9216TiB")],
)
def test_size_text(nbytes: int, text: str) -> None:
    assert render.size_text(nbytes) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (0.0001, "<1%"), (0.12, "12%"), (0.996, ">99%"), (1.0, "100%")],
)
def test_percent(share: float, text: str) -> None:
    assert render.percent(share) == text


def test_sparkline() -> None:
    assert render.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert render.sparkline([5, 5, 5]) == "▁▁▁"
    assert render.sparkline([1, math.nan, 2]) == "▁×█"
    assert render.sparkline([]) == ""
    assert render.sparkline([-1.7e308, 1.7e308]) == "▁█"
    assert render.sparkline([1, 1000], low=0) == "▂█", "a bin that is not empty must not look empty"


def test_line_of_the_design() -> None:
    expected = "float32(64, 10) cpu:0 2.5KiB  [-3.1 ▂▂▄█▇▄▂▂ 4.2]  μ -0.02 σ 1.1  0: 12%  nan 3, first at [5, 2]"
    assert render.tensor_line(DESIGN, width=100) == expected


def test_line_drops_the_least_important_first() -> None:
    lines = [render.tensor_line(DESIGN, width) for width in (92, 82, 70, 60, 48, 30, 12)]
    assert lines[0].startswith("float32(64, 10) cpu:0  [")
    assert lines[1].startswith("float32(64, 10)  [-3.1 ▂▂▄█▇▄▂▂ 4.2]  μ -0.02 σ 1.1")
    assert "μ" not in lines[3] and "nan 3, first at [5, 2]" in lines[3]
    assert lines[5] == "float32(64, 10)  nan 3"
    assert lines[6] == "float32(64,…"


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.float32(0.41), "float32() cpu:0 4B  0.41"),
        (np.float32(np.nan), "float32() cpu:0 4B  nan"),
        (np.zeros((0, 3), np.float32), "float32(0, 3) cpu:0 0B  empty"),
        (np.zeros(50, np.float32), "float32(50,) cpu:0 200B  all zeros"),
        (np.full(50, 2.5, np.float32), "float32(50,) cpu:0 200B  all 2.5"),
        (np.ones(50, bool), "bool(50,) cpu:0 50B  all True"),
        (np.zeros(50, bool), "bool(50,) cpu:0 50B  all False"),
        (np.arange(50) < 32, "bool(50,) cpu:0 50B  True: 64%"),
        (np.array([True, False]), "bool(2,) cpu:0 2B  [True, False]"),
        (np.full(50, np.nan, np.float32), "float32(50,) cpu:0 200B  all nan"),
        (np.full(50, np.inf, np.float32), "float32(50,) cpu:0 200B  no finite value  inf 50, first at [0]"),
        (np.array([1, np.inf, 3], np.float32), "float32(3,) cpu:0 12B  [1, inf, 3]  μ 2 σ 1  inf 1, first at [1]"),
        (np.array([3 + 4j] * 20 + [0]), "complex128(21,) cpu:0 336B  magnitude [0 ▂▁▁▁▁▁▁█ 5]  μ 4.76 σ 1.06  0: 5%"),
        (np.array(["a", "bc"]), "string(2,) cpu:0 16B  ['a', 'bc']"),
        (np.array(["a", "bc"] * 20), "string(40,) cpu:0 320B  ['a', 'bc', 'a', …]  2 distinct  longest 2"),
        (np.array([[1.0, np.nan]] * 9), "float64(9, 2) cpu:0 144B  1 where finite  μ 1 σ 0  nan 9, first at [0, 1]"),
    ],
)
def test_lines(array: np.ndarray, text: str) -> None:
    assert render.tensor_line(summarize(np.asarray(array), device="cpu:0"), width=100) == text


def test_values_give_way_to_the_range_where_they_do_not_fit() -> None:
    found = summarize(np.arange(10) * 1.2345678)
    assert "[0 █▅▅▅▅▅▅█ 11.1]" in render.tensor_line(found, 100)
    assert render.tensor_line(summarize(np.arange(10)), 30).endswith("[0, 9]")


def test_no_value_says_why_and_keeps_unknown_sizes() -> None:
    assert render.tensor_line(SYMBOLIC, 80) == "float32(?, 3)  no value: symbolic"
    unknown = TensorSummary("tensor", "float32", None, notes=("no value: symbolic",))
    assert render.tensor_line(unknown, 80) == "float32(?)  no value: symbolic"


def test_name_before_the_line() -> None:
    assert render.tensor_line(SYMBOLIC, 80, name="x") == "x  float32(?, 3)  no value: symbolic"


@pytest.mark.parametrize("width", [1, 5, 20, 33, 60, 80, 100, 200])
@pytest.mark.parametrize("color", [False, True])
def test_nothing_is_wider_than_the_width(width: int, color: bool) -> None:
    rows = [TableRow(f"model/block_{i}/層/kernel", found) for i, found in enumerate(samples())]
    texts = [render.tensor_line(found, width, color) for found in samples()]
    texts += render.tensor_table(rows, width, color).split("\n")
    assert len(texts) == 2 * len(rows)
    assert max(map(render.visible_width, texts)) <= width


def test_color_is_for_what_is_bad_only() -> None:
    text = render.tensor_line(DESIGN, 120, color=True)
    assert text.endswith(f"{render.RED}nan 3, first at [5, 2]{render.RESET}") and text.count("\x1b") == 2
    assert f"{render.RED}nan{render.RESET}" in render.tensor_line(summarize(np.asarray(np.nan)), 80, color=True)
    assert "\x1b" not in render.tensor_line(summarize(np.arange(30)), 80, color=True)
    assert "\x1b" not in render.tensor_line(DESIGN, 120)


def test_color_changes_no_text() -> None:
    rows = [TableRow(str(i), found) for i, found in enumerate(samples())]
    for width in (30, 80, 150):
        colored = render.tensor_table(rows, width, color=True)
        assert colored.replace(render.RED, "").replace(render.RESET, "") == render.tensor_table(rows, width)


def test_table_is_aligned() -> None:
    rows = [TableRow("a", summarize(np.arange(50.0))), TableRow("long/name", summarize(np.zeros(3, np.float32)))]
    rows += [TableRow("層", DESIGN), TableRow("none", TensorSummary("none", "None", None))]
    assert render.tensor_table(rows, 120).split("\n") == [
        "a          float64(50,)            400B    [0 █▇▇▇▇▇▇█ 49]      μ 24.5 σ 14.4  0: 2%",
        "long/name  float32(3,)             12B     all zeros",
        "層         float32(64, 10)  cpu:0  2.5KiB  [-3.1 ▂▂▄█▇▄▂▂ 4.2]  μ -0.02 σ 1.1  0: 12%  nan 3, first at [5, 2]",
        "none       None",
    ]


def test_table_keeps_what_is_bad_and_the_ends_of_names() -> None:
    rows = [TableRow("a/very/long/model/path/dense_7/kernel", DESIGN), TableRow("b", summarize(np.arange(50.0)))]
    first = render.tensor_table(rows, 60).split("\n")[0]
    assert "dense_7/kernel" in first and first.startswith("…") and "nan 3" in first
    assert render.tensor_table([], 60) == "empty: no tensors"


def test_text_from_outside_cannot_break_lines_or_colour() -> None:
    sour = TensorSummary("object", "Thing", None, notes=("two\nlines \x1b[31mred\x07",))
    for text in (render.tensor_line(sour, 80), render.tensor_table([TableRow("a\nb", sour)], 80)):
        assert "\n" not in text and "\x1b" not in text and "\x07" not in text


def test_visible_width_and_shorten() -> None:
    assert render.visible_width("\x1b[31mab\x1b[0m") == 2
    assert render.visible_width("日本") == 4
    assert render.visible_width("e\u0301") == 1
    assert render.shorten("abcdef", 4) == "abc…"
    assert render.shorten("abcdef", 4, tail=True) == "…def"
    assert render.shorten("日本語", 4) == "日…"
    assert render.shorten("abc", 0) == ""
    assert render.pad("日", 4) == "日  "


def test_values_are_bounded() -> None:
    text = render.values(np.random.default_rng(0).normal(size=(300, 300)), 60)
    assert len(text.split("\n")) < 20 and "..." in text
    assert max(map(len, text.split("\n"))) <= 60
    assert render.values(np.arange(3), 60) == "[0, 1, 2]"
    assert render.values(np.asarray(1.5), 60) == "1.5"
    assert render.values(np.ones(2, ml_dtypes.bfloat16), 60) == "[1, 1]"
    assert max(map(len, render.values(np.array(["x" * 500, "y"], object), 60).split("\n"))) <= 60


def test_default_width_is_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert render.terminal_width() == 40
    assert render.visible_width(render.tensor_line(DESIGN)) <= 40
