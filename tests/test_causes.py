"""A culprit op with its values -> the sentence: it must name the element to blame."""

import numpy as np
import pytest

from tfdb.causes import Facts, data, explain


def facts(
    op: str,
    *inputs: object,
    output: object,
    forward: str | None = None,
    names: tuple[str, ...] = ("x", "y"),
    **more: object,
) -> Facts:
    arrays = tuple(np.asarray(value) if isinstance(value, np.ndarray) else np.float32(value) for value in inputs)
    return Facts(op, forward, names, arrays, np.float32(output), **more)  # type: ignore[arg-type]


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (facts("Log", [1, 0], output=[0, -INF]), ["x is 0 at [1]", "log"]),
        (facts("Log", [1, -0.5], output=[0, NAN]), ["x is -0.5 at [1]"]),
        (facts("Log1p", [0.5, -1], output=[0.4, -INF]), ["x is -1 at [1]", "minus infinity"]),
        (facts("Log1p", [0.5, -2], output=[0.4, NAN]), ["x is -2 at [1]", "not a number"]),
        (facts("PyFunc", [1, -1], output=[0, NAN]), ["Python function", "nan at [1]", "finite inputs"]),
        (
            facts("RealDiv", [1, 0], [1, 0], output=[1, NAN], forward="Atan2"),
            ["x is 0 at [1] and y is 0 at [1]", "atan2"],
        ),
        (facts("RealDiv", [1, 0], output=[1, NAN], forward="Cumprod"), ["x is 0 at [1]", "cumprod"]),
        (facts("RealDiv", [1, 0], output=[1, NAN], forward="Igamma"), ["x is 0 at [1]", "in the gradient of Igamma"]),
        (facts("Sqrt", [4, -1], output=[2, NAN]), ["x is -1 at [1]", "negative"]),
        (facts("Rsqrt", [0, 1], output=[INF, 1]), ["x is 0 at [0]"]),
        (facts("RealDiv", [1, 2], [1, 0], output=[1, INF]), ["y is 0 at [1]", "division by 0"]),
        (facts("RealDiv", [1, 0], [1, 0], output=[1, NAN]), ["y is 0 at [1]", "0/0"]),
        (facts("RealDiv", [[1, 2], [3, 4]], [1, 0], output=[[1, INF], [3, INF]]), ["y is 0 at [1]"]),
        (facts("Exp", [1, 200], output=[2.7, INF]), ["x is 200 at [1]", "88.7"]),
        (facts("Pow", [0, 1], [-0.5, -0.5], output=[INF, 1]), ["x is 0 at [0]", "-0.5"]),
        (facts("Acos", [0, 1.5], output=[1.5, NAN]), ["x is 1.5 at [1]", "-1 < x < 1"]),
        (facts("Softmax", [[1, 2], [-INF, -INF]], output=[[0.3, 0.7], [NAN, NAN]]), ["row [1] of x", "-inf"]),
        (facts("Mean", np.zeros((0, 3)), output=NAN), ["x is empty"]),
        (facts("SqrtGrad", [4, 0], output=[0.2, INF], forward="Sqrt"), ["x is 0 at [1]", "slope of sqrt"]),
        (facts("Pow", [0.5, 0], [0.5, 0.5], output=[1.4, INF], forward="Pow"), ["x is 0 at [1]", "slope"]),
        (facts("Cast", [70000], output=[INF]), ["overflows"]),
        (facts("Mul", [0.0], [INF], output=[NAN], meant=True), ["0 times an infinity"]),
        (facts("Sub", [2, -INF], [-INF], output=[INF, NAN], meant=True), ["x is -inf at [1] and y is -inf at [0]"]),
        (facts("Mul", [INF, 0], [3, -INF], output=[INF, NAN], meant=True), ["x is 0 at [1] and y is -inf at [1]"]),
        (facts("NewOp", [1.0], output=[NAN]), ["NewOp"]),
    ],
)
def test_the_sentence_names_the_blamed_element(given: Facts, words: list[str]) -> None:
    cause, _ = explain(given)
    for word in words:
        assert word in cause


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (facts("Log", [0], output=[-INF]), ["masked", "NaN"]),
        (facts("SqrtGrad", [0], output=[INF], forward="Sqrt", reason="inf"), ["NaN"]),
        (facts("SqrtGrad", [4], output=[INF], forward="Sqrt"), ["slope"]),
        (facts("Log", [INF], output=[INF], meant=True), ["minus infinity"]),
        (facts("Exp", [3.0], output=[NAN]), ["overflows"]),
        (facts("Rsqrt", [1e-45], output=[INF]), ["negative"]),
        (facts("Lgamma", [0.0], output=[INF]), ["overflows"]),
        (facts("NewOp", [INF], output=[NAN]), ["finite"]),
        (facts("PyFunc", [INF], output=[NAN]), ["finite"]),
    ],
)
def test_nothing_is_claimed_that_the_values_do_not_show(given: Facts, words: list[str]) -> None:
    cause, _ = explain(given)
    for word in words:
        assert word not in cause


def test_the_fix_for_log1p_keeps_its_argument_above_minus_one() -> None:
    assert "-1 + 1e-6" in explain(facts("Log1p", [-1], output=[-INF]))[1]


def test_a_result_is_called_masked_when_the_loss_is_finite() -> None:
    assert "masked" in explain(facts("Log", [0], output=[-INF], hidden=True))[0]


def test_the_argument_of_the_log_in_xlogy_is_its_second() -> None:
    assert "y is 0 at [1]" in explain(facts("Xlogy", [1, 2], [1, 0], output=[0, -INF]))[0]


def test_an_epsilon_lost_in_float16_is_named() -> None:
    half = Facts("RealDiv", None, ("m", ""), (np.float16([0.0]), np.float16([0.0])), np.float16([np.nan]))
    cause, fix = explain(half)
    assert "float16" in cause
    assert "1e-4" in fix


def test_missing_cells_are_counted_by_column() -> None:
    table = np.ones((4, 3), "float32")
    table[1, 2] = table[3, 2] = np.nan
    text = data(table, "x")
    assert "2 NaN of 12" in text
    assert "column 2, in 2 of 4 rows" in text


def test_a_label_outside_of_the_classes_is_named() -> None:
    given = Facts(
        "SparseSoftmaxCrossEntropyWithLogits",
        None,
        ("logits", "y"),
        (np.zeros((2, 3), "float32"), np.array([1, 3])),
        np.float32([0.5, np.nan]),
    )
    assert "label 3 at [1]" in explain(given)[0]
