"""`watch grad > 100` and its kin -> a Threshold; the columns measured at a gate -> what is over the limit.

Pure.  A gate measures one number per variable and column; numbers and the arithmetic on them may be NumPy's or, where
a graph decides for itself, TensorFlow's.  So that both agree, every definition of a norm stands here, once.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .conditions import Watch, WatchError

# Columns, one float32 number per variable.  For gradients: sum of squares, sum of magnitudes, largest magnitude,
# elements that are not 0.  For updates: sum of squares of what is added to the weight, and of the weight before it.
SQUARES, MAGNITUDES, LARGEST, NONZERO = "squares", "magnitudes", "largest", "nonzero"
UPDATE, WEIGHT = "update", "weight"
COLUMNS = (SQUARES, MAGNITUDES, LARGEST, NONZERO)
RATIO = (UPDATE, WEIGHT)

USAGE = "grad[.max|.mean][:REGEX] OP NUMBER | update[:REGEX] OP NUMBER | loss OP NUMBER | EXPRESSION"
FORM = re.compile(
    r"(?P<kind>grad|update|loss)(?P<form>\.max|\.mean)?(?::(?P<names>\S+?))?\s*(?P<op>[<>]=?)\s*"
    r"(?P<limit>[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|inf)(?P<rest>(?:\s.*)?)"
)
WORDS = ("nan", "inf", "none", "near", "grad", "update", "loss")
CLOSE = 0.6  # difflib's ratio from which a bare name is taken for a misspelt word
MARGIN = 1e-4  # relative: float32 sums of squares in another order, or doubled, differ by far less
SMALLEST, GREATEST = 1e-36, 1.7e38  # of numbers that float32 holds in full, and doubled
OPTION = re.compile(r"\s+(in|allow|every)\s+(\S+)$")


@dataclass(frozen=True, slots=True)
class Threshold(Watch):
    """A limit on what is applied to the weights, or an expression (`kind` "expression") that is to stay false.

    `form` is norm, max or mean; `names` asks for each matching variable by itself.
    """

    form: str = "norm"
    names: re.Pattern[str] | None = None
    op: str = ">"
    limit: float = 0.0
    expression: str = ""

    def __str__(self) -> str:
        return " ".join([self.condition, *self.options])

    @property
    def condition(self) -> str:
        """The condition without its options."""
        if self.kind == "expression":
            return self.expression
        form = "" if self.form == "norm" else f".{self.form}"
        names = f":{self.names.pattern}" if self.names else ""
        return f"{self.kind}{form}{names} {self.op} {self.limit:g}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that deciding it takes."""
        if self.kind == "update":
            return RATIO
        if self.kind != "grad":
            return ()
        return {"norm": (SQUARES,), "max": (LARGEST,), "mean": (MAGNITUDES,)}[self.form]

    def takes(self, name: str) -> bool:
        """Whether the variable called `name` counts."""
        wanted = all(pattern.search(name) for pattern in (self.names, self.scope) if pattern)
        return wanted and not (self.allow and self.allow.search(name))


def parse(text: str) -> Threshold:
    """The threshold that a user typed.

    Raises:
        WatchError: neither a limit nor a Python expression, a bad pattern, or a count below 1.
    """
    text = text.strip()
    found = FORM.fullmatch(text)
    if found is None or (found["form"] and found["kind"] != "grad") or (found["names"] and found["kind"] == "loss"):
        return parse_expression(text)
    options, rest = options_at_end(found["rest"])
    if rest.strip() and found["kind"] == "loss":  # a name of the program's, perhaps
        return parse_expression(text)
    if rest.strip():
        raise WatchError(f"cannot read {rest.strip()!r} in {text!r}; usage: watch {USAGE}")
    scope, allow, every = read_options(options, text)
    names = pattern(found["names"], text) if found["names"] else None
    form = (found["form"] or ".norm")[1:]
    return Threshold(found["kind"], scope, allow, every, form, names, found["op"], float(found["limit"]))


def parse_expression(text: str) -> Threshold:
    """A Python expression; of the options, only `every N` is one here, for `in` is Python's own."""
    found = re.search(r"\s+every\s+(\S+)$", text)
    every = read_options({"every": found[1]}, text)[2] if found else 1
    source = text[: found.start()] if found else text
    try:
        tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        raise WatchError(f"cannot watch {text!r}; usage: watch nan|inf|none|near | {USAGE}") from error
    if isinstance(tree.body, ast.Name) and (meant := difflib.get_close_matches(source.lower(), WORDS, 1, CLOSE)):
        raise WatchError(f"cannot watch {source!r}: did you mean {meant[0]}? usage: watch nan|inf|none|near | {USAGE}")
    if isinstance(tree.body, ast.Constant):
        raise WatchError(f"cannot watch {text!r}: it is always the same; usage: watch nan|inf|none|near | {USAGE}")
    if starts_as_limit(tree):
        raise WatchError(f"cannot read {text!r}; usage: watch {USAGE}")
    return Threshold("expression", every=every, expression=source)


def starts_as_limit(tree: ast.Expression) -> bool:
    """Whether an expression begins with `grad` or `update`, and so was meant as a limit."""
    body = tree.body
    first = body.left if isinstance(body, ast.Compare) else body
    first = first.value if isinstance(first, ast.Attribute) else first
    return isinstance(first, ast.Name) and first.id in ("grad", "update")


def options_at_end(text: str) -> tuple[dict[str, str], str]:
    """The options at the end of a text, and what is before them."""
    options: dict[str, str] = {}
    while found := OPTION.search(text):
        options[found[1]] = found[2]
        text = text[: found.start()]
    return options, text


def read_options(options: Mapping[str, str], text: str) -> tuple[Any, Any, int]:
    """The two patterns and the count of a watch's options."""
    scope, allow = (pattern(options[name], text) if name in options else None for name in ("in", "allow"))
    every = options.get("every", "1")
    if not every.isdecimal() or int(every) < 1:
        raise WatchError(f"every {every} in {text!r}: the count must be a number from 1")
    return scope, allow, int(every)


def pattern(source: str, text: str) -> re.Pattern[str]:
    """A compiled pattern."""
    try:
        return re.compile(source)
    except re.error as error:
        raise WatchError(f"cannot read {source!r} in {text!r}: {error}") from error


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What measuring takes: NumPy's functions, or TensorFlow's where a graph decides."""

    take: Any
    sqrt: Any
    total: Any
    most: Any
    where: Any
    every: Any
    least: Any


NUMPY = Arithmetic(np.take, np.sqrt, np.sum, np.max, np.where, np.all, np.minimum)


def chosen(threshold: Threshold, names: Sequence[str]) -> list[int]:
    """The places of the variables that count."""
    return [index for index, name in enumerate(names) if threshold.takes(name)]


def measured(
    threshold: Threshold, places: Sequence[int], sizes: Sequence[int], columns: Mapping[str, Any], do: Arithmetic
) -> Any:
    """The number to compare with the limit, or, where the threshold is for each variable, a vector of them.

    `places` are those of `chosen`, at least one; `sizes` are the element counts of all variables, `columns` one
    vector per column.
    """
    each = threshold.names is not None
    if threshold.kind == "update":
        update, weight = (do.take(columns[name], places) for name in RATIO)
        update, weight = (update, weight) if each else (do.total(update), do.total(weight))
        ratio = do.sqrt(update / do.where(weight > 0, weight, 1.0))
        return do.where(weight > 0, ratio, np.float32(threshold.limit))
    values = do.take(columns[threshold.columns[0]], places)
    if threshold.form == "max":
        return values if each else do.most(values)
    if threshold.form == "mean":
        counts = np.asarray([max(sizes[place], 1) for place in places], np.float32)
        return values / counts if each else do.total(values) / counts.sum()
    return do.sqrt(values) if each else do.sqrt(do.total(values))


def far_within(threshold: Threshold, places: Sequence[int], halves: Mapping[str, Any], do: Arithmetic) -> Any | None:
    """Whether a norm or update ratio is so far within its limit that rounding cannot matter; false for NaN.

    `halves` are half the sums of squares.  None for other forms, and where float32 cannot say.
    """
    above = threshold.op[0] == ">"
    square = threshold.limit**2 * (1 - MARGIN if above else 1 + MARGIN)
    if threshold.form != "norm" or threshold.kind not in ("grad", "update") or threshold.limit <= 0:
        return None
    if square < SMALLEST or (not above and (square > GREATEST or threshold.kind == "update")):
        return None
    parts = [do.take(halves[name], places) for name in threshold.columns]
    each = threshold.names is not None
    first, *weight = parts if each else [do.total(part) for part in parts]
    limit = np.float32(min(square, GREATEST)) * weight[0] if weight else np.float32(min(square / 2, GREATEST))
    fine = first < do.least(limit, np.float32(GREATEST)) if weight else first < limit if above else first > limit
    return do.every(fine) if each else fine


def exceeds(threshold: Threshold, value: Any) -> Any:
    """Whether a measured number (or tensor of them) is over the limit; elementwise.  NaN is."""
    limit = threshold.limit
    over = {">": lambda: value > limit, ">=": lambda: value >= limit, "<": lambda: value < limit}
    compared = over.get(threshold.op, lambda: value <= limit)()
    return compared | (value != value)


def over_limit(threshold: Threshold, value: Any, names: Sequence[str], columns: Mapping[str, Any]) -> tuple[str, ...]:
    """The names to blame, worst first: those over the limit by themselves; of a norm of all, those that carry it.

    The carriers are the fewest variables that together make up nine tenths of the sum of squares (or, for `<`, all).
    """
    places = chosen(threshold, names)
    if threshold.names is not None:
        worst = [
            (float(v), names[p]) for v, p in zip(np.atleast_1d(value), places, strict=True) if exceeds(threshold, v)
        ]
        return tuple(name for _, name in sorted(worst, key=lambda pair: order(pair[0]), reverse=threshold.op[0] == ">"))
    if threshold.kind not in ("grad", "update"):
        return ()
    column = np.asarray(columns[threshold.columns[0]])[places].astype(np.float64)
    if threshold.op[0] == "<":
        return tuple(names[place] for place in places)
    ranked = sorted(zip(column, places, strict=True), key=lambda pair: order(float(pair[0])), reverse=True)
    if not np.isfinite(column).all():
        return tuple(names[place] for part, place in ranked if not np.isfinite(part))
    if threshold.form == "max":
        return tuple(names[place] for part, place in ranked if exceeds(threshold, part))
    names_found: list[str] = []
    covered = 0.0
    for part, place in ranked:
        if names_found and covered >= 0.9 * column.sum():
            break
        names_found.append(names[place])
        covered += float(part)
    return tuple(names_found)


def order(value: float) -> float:
    """A value to sort by: NaN is the greatest."""
    return float("inf") if value != value else value
