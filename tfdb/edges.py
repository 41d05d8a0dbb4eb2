"""An op's inputs and outputs -> the first element that comes near the edge of what its dtype can hold.  Pure.

One principle for all functions with a pole: an element is near when the square of the op's slope there overflows its
dtype.  That square is what Adam's second moment sums up (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1) and what a
gradient norm is made of.  With M the dtype's largest number and eps its spacing at 1 (IEEE 754; `ml_dtypes.finfo`):

    log, xlogy         0 <= x < 1/sqrt(M)          slope 1/x              float32 5.4e-20, float16 3.9e-3
    x / y, 1/y         |y| < 1/sqrt(M)             slope 1/y
    sqrt               0 <= x < 1/(4 M)            slope 1/(2 sqrt x)     in practice 0
    rsqrt              0 <= x < (4 M)**(-1/3)      slope -1/2 x**(-3/2)   float32 9.0e-14, float16 1.6e-2
    exp, expm1         x > log(M)/2                slope exp(x)           float32 44.4, float16 5.5
    x ** p             |p x**(p - 1)| > sqrt(M)    slope p x**(p - 1)
    acos, asin, atanh  |x| >= 1 - eps              a rounding step from the pole

Beside these, in float16 and bfloat16, every output of more than half the dtype's largest number: within 2x of overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

HALVES = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a dtype can hold: the largest number and the spacing at 1."""

    most: float
    eps: float

    @property
    def slope(self) -> float:
        """The steepest slope whose square does not overflow."""
        return self.most**0.5

    @property
    def inverse(self) -> float:
        """The x at which the slope of log(x) is as steep as that; the slope of y/x in y is the same."""
        return self.most**-0.5

    @property
    def inverse_root(self) -> float:
        """The x at which 1/sqrt(x) is as steep as that."""
        return (4.0 * self.most) ** (-1.0 / 3.0)

    @property
    def exponent(self) -> float:
        """The x at which exp(x) is as steep as that."""
        return float(np.log(self.most)) / 2.0


LIMITS = {
    "float16": Limits(65504.0, 2.0**-10),
    "bfloat16": Limits(3.3895314e38, 2.0**-7),
    "float32": Limits(3.4028235e38, 2.0**-23),
    "float64": Limits(1.7976931348623157e308, 2.0**-52),
}


@dataclass(frozen=True, slots=True)
class Near:
    """The element that is near: of the input `index` (None: of the output), at `where`, and what it is near to."""

    index: int | None
    where: tuple[int, ...]
    value: float
    text: str


def small(bound: Callable[[Limits], float], signed: bool = False) -> Callable[[np.ndarray, Limits], np.ndarray]:
    """A rule for functions whose pole is at 0; `signed` where they have a negative side too."""

    def rule(x: np.ndarray, limits: Limits) -> np.ndarray:
        return np.abs(x) < bound(limits) if signed else (x >= 0) & (x < bound(limits))

    return rule


def at_one(x: np.ndarray, limits: Limits) -> np.ndarray:
    """Elements a rounding step from -1 or 1, or beyond."""
    return np.abs(x) >= 1.0 - limits.eps


def large(x: np.ndarray, limits: Limits) -> np.ndarray:
    """Elements whose exponential squared overflows."""
    return x > limits.exponent


LOG = small(lambda limits: limits.inverse)
DIVISOR = small(lambda limits: limits.inverse, signed=True)
SQRT = small(lambda limits: 0.25 / limits.most)
RSQRT = small(lambda limits: limits.inverse_root)
SMALL = (LOG, DIVISOR, SQRT, RSQRT)
RULES: dict[str, tuple[int, Callable[[np.ndarray, Limits], np.ndarray], str]] = {
    "Log": (0, LOG, "log goes to minus infinity at 0, its slope 1/x to infinity"),
    "Xlogy": (1, LOG, "log goes to minus infinity at 0, its slope 1/x to infinity"),
    "RealDiv": (1, DIVISOR, "the quotient and its slope go to infinity at 0"),
    "Div": (1, DIVISOR, "the quotient and its slope go to infinity at 0"),
    "Reciprocal": (0, DIVISOR, "1/x goes to infinity at 0"),
    "Inv": (0, DIVISOR, "1/x goes to infinity at 0"),
    "Sqrt": (0, SQRT, "the slope of sqrt goes to infinity at 0"),
    "Rsqrt": (0, RSQRT, "1/sqrt(x) and its slope go to infinity at 0"),
    "Exp": (0, large, "the square of its exponential overflows"),
    "Expm1": (0, large, "the square of its exponential overflows"),
    "Acos": (0, at_one, "the slope of acos goes to infinity at -1 and 1"),
    "Asin": (0, at_one, "the slope of asin goes to infinity at -1 and 1"),
    "Atanh": (0, at_one, "atanh goes to infinity at -1 and 1"),
}
OPS = frozenset((*RULES, "Pow"))
MOVES = frozenset(  # make no new values, or are looked at from inside
    ("Identity", "IdentityN", "Const", "Placeholder", "StopGradient", "Reshape", "If", "While", "StatelessIf")
    + ("StatelessWhile", "PartitionedCall", "StatefulPartitionedCall")
)


def concerns(op: str, dtypes: Sequence[str]) -> bool:
    """Whether an op of this type, with outputs of these dtypes, can come near an edge at all."""
    if op in OPS:
        return True
    return op not in MOVES and not op.startswith("__") and any(name in HALVES for name in dtypes)


def find(op: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Near | None:
    """The element that is nearest; values that are NaN or infinite already are not near, they are over.

    Where a near one stands beside one that overflowed here, that one is named.
    """
    with np.errstate(all="ignore"):
        if op in RULES:
            index, rule, text = RULES[op]
            if index < len(inputs) and (found := worst(inputs[index], rule)):
                return Near(index, *found, text + already(found[0], inputs[index], outputs))
        if op == "Pow" and len(inputs) == 2 and (found := steep(*inputs)):
            return Near(0, *found, "the square of the slope of x**p overflows here")
        whole = all(np.isfinite(value.astype(np.float64)).all() for value in inputs)
        for output in outputs:
            if str(output.dtype) not in HALVES:
                continue
            most = LIMITS[str(output.dtype)].most
            wide = output.astype(np.float64)
            if found := worst(output, is_close_to_overflow):
                if whole and (over := place_of(np.isinf(wide), np.abs(wide), wide)):
                    return Near(None, *over, f"{output.dtype} overflows at {most:.4g}")
                return Near(None, *found, f"{output.dtype} overflows at {most:.4g}, less than twice that")
    return None


def already(where: tuple[int, ...], given: np.ndarray, outputs: Sequence[np.ndarray]) -> str:
    """What to add where the result at this element is no finite number any more."""
    if not outputs or outputs[0].shape != given.shape or np.isfinite(made := float(outputs[0][where])):
        return ""
    return f"; the result is {made:.4g} already"


def is_close_to_overflow(x: np.ndarray, limits: Limits) -> np.ndarray:
    """Elements of more than half the largest number."""
    return np.abs(x) > limits.most / 2.0


def worst(array: np.ndarray, rule: Callable[[np.ndarray, Limits], np.ndarray]) -> tuple[tuple[int, ...], float] | None:
    """The index and value of the finite element that a rule finds which is nearest to the edge, or past it."""
    limits = LIMITS.get(str(array.dtype))
    if limits is None or not array.size:
        return None
    wide = array.astype(np.float64)
    hits = rule(wide, limits) & np.isfinite(wide)
    return place_of(hits, -np.abs(wide) if rule in SMALL else np.abs(wide), wide)


def place_of(hits: np.ndarray, far: np.ndarray, array: np.ndarray) -> tuple[tuple[int, ...], float] | None:
    """The hit that has gone furthest by `far`, the first of those that are alike, and its value in `array`."""
    if not hits.any():
        return None
    where = tuple(int(i) for i in np.unravel_index(np.argmax(np.where(hits, far, -np.inf)), hits.shape))
    return where, float(array[where])


def steep(base: np.ndarray, exponent: np.ndarray) -> tuple[tuple[int, ...], float] | None:
    """The first base at which the slope of a power is too steep; exponents 0 and 1 have no slope that grows."""
    limits = LIMITS.get(str(base.dtype))
    if limits is None or not base.size or not exponent.size:
        return None
    x, p = np.broadcast_arrays(base.astype(np.float64), exponent.astype(np.float64))
    slope = np.abs(p * np.power(np.abs(x), p - 1.0))
    found = place_of((slope > limits.slope) & (p != 0) & (p != 1) & np.isfinite(x), slope, x)
    if found is None or base.shape == x.shape:
        return found
    where = tuple(i if n != 1 else 0 for i, n in zip(found[0][len(found[0]) - base.ndim :], base.shape, strict=True))
    return where, found[1]


# Ops whose slope is infinite where their value is fine: what to say, what to do, the input that decides, its values.
SLOPES: dict[str, tuple[str, str, int, tuple[float, ...]]] = {
    "Sqrt": (
        "the slope of sqrt at 0 is infinite",
        "keep the root away from 0: tf.sqrt(tf.maximum(x, 1e-12))",
        0,
        (0.0,),
    ),
    "Pow": (
        "the slope of x**p at 0 is infinite for p < 1",
        "keep the base away from 0: tf.maximum(x, 1e-7)",
        0,
        (0.0,),
    ),
    "Log": (
        "the slope of log at 0 is infinite",
        "keep the argument away from 0: tf.math.log(tf.maximum(x, 1e-7))",
        0,
        (0.0,),
    ),
    "Acos": (
        "the slope of acos at -1 and 1 is infinite",
        "clip: tf.clip_by_value(x, -1 + 1e-7, 1 - 1e-7)",
        0,
        (-1.0, 1.0),
    ),
    "Asin": (
        "the slope of asin at -1 and 1 is infinite",
        "clip: tf.clip_by_value(x, -1 + 1e-7, 1 - 1e-7)",
        0,
        (-1.0, 1.0),
    ),
    "RealDiv": (
        "the slope of a division by 0 is infinite",
        "tf.math.divide_no_nan, or guard the denominator itself",
        1,
        (0.0,),
    ),
    "Rsqrt": ("the slope of 1/sqrt(x) at 0 is infinite", "add a small epsilon under the root", 0, (0.0,)),
    "Norm": ("the slope of a norm at 0 is infinite", "tf.sqrt(tf.reduce_sum(x * x) + 1e-12)", 0, (0.0,)),
}

# Ops whose gradient fails where the op itself does not, at values of several inputs or of its own: cause and fix.
BACKWARD: dict[str, tuple[str, str]] = {
    "Atan2": (
        "the slope of atan2 at the origin is 0/0",
        "keep the point away from the origin: add a small epsilon to both arguments where both are 0",
    ),
    "Cumprod": (
        "the gradient of cumprod divides by its argument",
        "keep the factors away from 0, or take tf.exp(tf.cumsum(tf.math.log(x)))",
    ),
}
