"""A culprit op and its values -> one sentence of cause in plain words, and the standard fix where there is one.  Pure.

Each rule names the elements that did it: the blamed index is the first element of the output that is bad, carried back
to the input it came from (elementwise ops and their broadcasting, the last axis of a softmax or a reduction).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import edges

LIMITS = {name: limits.most for name, limits in edges.LIMITS.items()}


@dataclass(frozen=True, slots=True)
class Facts:
    """An op, the op it is the gradient of, its inputs (names where known, arrays) and its first output.

    `owner` is the class of the Keras object it is inside of; `hidden`: the loss is finite, and its infinity came back
    in the gradient; `meant`: its infinite inputs were put in on purpose; `reason`: what was stopped for, nan or inf.
    """

    op: str
    forward_op: str | None
    names: tuple[str, ...]
    inputs: tuple[np.ndarray, ...]
    output: np.ndarray
    owner: str = ""
    hidden: bool = False
    meant: bool = False
    reason: str = "nan"

    def name(self, index: int = 0) -> str:
        """What to call an input."""
        return (self.names[index] if index < len(self.names) else "") or ("the input" if index == 0 else "the operand")

    def first_bad(self) -> tuple[int, ...] | None:
        """The index of the first bad element of the output; of the first NaN where infinities were put in."""
        bad = np.argwhere(np.isnan(self.output) & self.meant)
        bad = bad if len(bad) else np.argwhere(~np.isfinite(self.output))
        return tuple(int(i) for i in bad[0]) if len(bad) else None

    def blamed(self, index: int = 0) -> tuple[tuple[int, ...], float] | None:
        """The element of an input that the first bad output element was computed from, where shapes broadcast."""
        place = self.first_bad()
        if place is None or index >= len(self.inputs):
            return None
        array = self.inputs[index]
        tail = place[len(place) - array.ndim :] if array.ndim <= len(place) else None
        if tail is None or any(n != 1 and i >= n for i, n in zip(tail, array.shape, strict=True)):
            return None
        where = tuple(i if n != 1 else 0 for i, n in zip(tail, array.shape, strict=True))
        return where, float(array[where])


def culprit(facts: Facts, index: int) -> tuple[tuple[int, ...], float] | None:
    """The element of this input to blame, where the op goes element by element and this input decides."""
    op = facts.forward_op or facts.op
    if facts.forward_op is not None and not facts.hidden and op in edges.SLOPES:
        deciding: tuple[int, ...] = (edges.SLOPES[op][2],)
    else:
        deciding = DECIDING.get(op, ())
    with np.errstate(all="ignore"):
        return facts.blamed(index) if index in deciding else None


def value(number: float) -> str:
    """A number as short as it can be read."""
    return f"{number:.4g}"


def at(where: tuple[int, ...]) -> str:
    """An index as it is written after a name; nothing for a scalar."""
    return f" at {list(where)}" if where else ""


def data(array: np.ndarray, name: str) -> str:
    """Where a value has NaN or infinities: how many, in which columns (of the last axis), the first index."""
    bad = ~np.isfinite(array)
    first = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.any() else ()
    word = "NaN" if np.isnan(array).any() else "inf"
    text = f"{name} holds {int(bad.sum())} {word} of {array.size} values, the first{at(first) or ' and only one'}"
    if array.ndim >= 2:
        columns = np.flatnonzero(bad.reshape(-1, array.shape[-1]).any(axis=0))
        rows = int(bad.reshape(array.shape[0], -1).any(axis=1).sum())
        if len(columns) <= 3 and array.shape[-1] > 1:
            text += f"; column {', '.join(map(str, columns))}, in {rows} of {array.shape[0]} rows"
    return text


Rule = Callable[[Facts], "tuple[str, str] | None"]


def explain(facts: Facts) -> tuple[str, str]:
    """(cause, fix) of an op's bad output; the fix is '' where no standard one is known."""
    rules: list[Rule] = []
    if facts.forward_op is not None and not facts.hidden:
        rules.append(slope)
    own = facts.hidden or facts.forward_op in (None, facts.op)  # else the inputs are those of another op
    rules += [empty, RULES[facts.op]] if facts.op in RULES and own else [empty]
    rules += [overflow, carried] if own else [carried, backward]
    with np.errstate(all="ignore"):
        for rule in rules:
            if found := rule(facts):
                cause, fix = found
                return (cause + HIDDEN if facts.hidden else cause), fix
    finite = all(np.isfinite(array).all() for array in facts.inputs if array.dtype.kind in "fc")
    return f"{facts.op} makes a bad value" + (" of finite inputs" if finite else ""), ""


HIDDEN = "; the result is masked, so the loss is finite, but its gradient is not"


def empty(facts: Facts) -> tuple[str, str] | None:
    """A mean over nothing."""
    if facts.op != "Mean" or not facts.inputs or facts.inputs[0].size:
        return None
    name, shape = facts.name(), list(facts.inputs[0].shape)
    return f"{name} is empty, its shape is {shape}: the mean of nothing is 0/0", (
        "skip the term when nothing is selected, or divide the sum by tf.maximum(count, 1)"
    )


def logarithm(facts: Facts) -> tuple[str, str] | None:
    """log of zero or of a negative number."""
    index = 1 if facts.op == "Xlogy" else 0
    if not (found := facts.blamed(index)):
        return None
    where, number = found
    if np.isposinf(number):
        return None
    pole = -1.0 if facts.op == "Log1p" else 0.0
    what = "minus infinity" if number >= pole else "not a number"
    function = "log" if facts.op == "Xlogy" else facts.op.lower()
    if facts.op == "Log1p":
        fix = "log1p needs x > -1: tf.math.log1p(tf.maximum(x, -1 + 1e-6)), or make x non-negative first"
    elif number >= pole:
        fix = "keep the argument away from 0: tf.math.log(tf.maximum(x, 1e-7)), or compute from logits"
    else:
        fix = "the argument must be positive: make it so with tf.nn.softplus or tf.exp"
    return f"{facts.name(index)} is {value(number or 0.0)}{at(where)}: its {function} is {what}", fix


def root(facts: Facts) -> tuple[str, str] | None:
    """sqrt or rsqrt of a negative number, rsqrt of zero."""
    if not (found := facts.blamed()):
        return None
    where, number = found
    if number == 0:
        return f"{facts.name()} is 0{at(where)}: 1/sqrt(0) is infinite", "add a small epsilon under the root"
    if number > 0:
        return None
    fix = "clip it at 0 first (tf.maximum(x, 0.0)); E[x²]-E[x]² goes below 0 by rounding: use tf.math.reduce_variance"
    if facts.owner == "BatchNormalization":
        fix = "the moving variance is negative: check the order in which its weights were restored"
    return f"{facts.name()} is {value(number)}{at(where)}: a negative number has no real square root", fix


def division(facts: Facts) -> tuple[str, str] | None:
    """Division by zero."""
    if facts.op in ("Reciprocal", "Inv"):
        found, name, top = facts.blamed(), facts.name(), None
    else:
        found, name = facts.blamed(1), facts.names[1] if len(facts.names) > 1 and facts.names[1] else "the denominator"
        top = facts.blamed(0)
    if not found or found[1] != 0:
        return None
    result = "0/0 is not a number" if top is not None and top[1] == 0 else "division by 0 is infinite"
    half = found and facts.inputs[-1].dtype.itemsize == 2
    hint = "; an epsilon below 6e-8 is 0 in float16" if half else ""
    fix = "tf.math.divide_no_nan, or add a small epsilon to the denominator"
    if half:
        fix = "choose an epsilon that float16 can hold (1e-4), or keep the variables in float32 (mixed_float16)"
    return f"{name} is 0{at(found[0])}: {result}{hint}", fix


def exponential(facts: Facts) -> tuple[str, str] | None:
    """exp and its kin of a large number."""
    found = facts.blamed()
    if not found:
        return None
    where, number = found
    kind = str(facts.inputs[0].dtype)
    most = np.log(LIMITS.get(kind, LIMITS["float32"]))
    if abs(number) < most - 1 or np.isinf(number):
        return None
    return f"{facts.name()} is {value(number)}{at(where)}: {facts.op.lower()} overflows {kind} above {most:.1f}", (
        "subtract the maximum first, clip the argument, or use a stable form (softplus, softmax, logsumexp)"
    )


def power(facts: Facts) -> tuple[str, str] | None:
    """0 to a negative power, a negative number to a broken one, overflow."""
    base, exponent = facts.blamed(0), facts.blamed(1)
    if not base or not exponent:
        return None
    if base[1] == 0 and exponent[1] < 0:
        return f"{facts.name()} is 0{at(base[0])}, to the power {value(exponent[1])}: that is infinite", (
            "keep the base away from 0: tf.pow(tf.maximum(x, 1e-7), p)"
        )
    if base[1] < 0:
        return (
            f"{facts.name()} is {value(base[1])}{at(base[0])}: a negative number has no power {value(exponent[1])}",
            ("take tf.abs or tf.maximum(x, 0.0) of the base first"),
        )
    return None


def outside(low: float, high: float) -> Rule:
    """A rule for functions defined between two bounds."""

    def rule(facts: Facts) -> tuple[str, str] | None:
        found = facts.blamed()
        if not found or low < found[1] < high:
            return None
        text = f"{facts.name()} is {value(found[1])}{at(found[0])}: {facts.op.lower()} needs {low:g} < x < {high:g}"
        return text, f"clip it inside: tf.clip_by_value(x, {low:g} + 1e-7, {high:g} - 1e-7)"

    return rule


def softmax(facts: Facts) -> tuple[str, str] | None:
    """A softmax over nothing but minus infinity."""
    place = facts.first_bad()
    if place is None or not facts.inputs:
        return None
    row = facts.inputs[0][place[:-1]] if facts.inputs[0].ndim == facts.output.ndim else facts.inputs[0]
    if not np.isneginf(row).all():
        return None
    return f"row {list(place[:-1])} of {facts.name()} is all -inf (everything masked): its softmax is 0/0", (
        "give fully masked rows one open position, or mask with a large finite number and zero the result"
    )


def ctc(facts: Facts) -> tuple[str, str] | None:
    """No alignment of a label to the frames."""
    place = facts.first_bad()
    where = f" of sample {place[0]}" if place else ""
    return f"no valid path: the label{where} needs more frames than there are (repeats need a blank between)", (
        "drop or lengthen such samples; tf.nn.ctc_loss needs length >= label length + repeats"
    )


def labels(facts: Facts) -> tuple[str, str] | None:
    """A class index outside of the logits."""
    if len(facts.inputs) < 2 or facts.inputs[0].ndim != 2:
        return None
    classes, given = facts.inputs[0].shape[-1], facts.inputs[1]
    wrong = np.argwhere((given < 0) | (given >= classes))
    if not len(wrong):
        return None
    where = tuple(int(i) for i in wrong[0])
    return f"label {int(given[where])}{at(where)} is outside of [0, {classes})", (
        "number the labels from 0, or give the last layer more units"
    )


def pole(facts: Facts) -> tuple[str, str] | None:
    """lgamma and digamma, which have no value at 0 and at the negative whole numbers."""
    found = facts.blamed()
    if not found or found[1] > 0 or found[1] != np.floor(found[1]):
        return None
    what = "infinite" if facts.op == "Lgamma" else "not defined"
    return f"{facts.name()} is {value(found[1])}{at(found[0])}: its {facts.op.lower()} is {what}", (
        "the argument must be positive: make it so with tf.nn.softplus or tf.exp, plus a small epsilon"
    )


def python(facts: Facts) -> tuple[str, str] | None:
    """A Python function in the graph, which TensorFlow cannot look into."""
    place = facts.first_bad()
    if place is None or not all(np.isfinite(array).all() for array in facts.inputs if array.dtype.kind == "f"):
        return None
    word = value(float(np.real(facts.output[place])))
    return f"the Python function called here returns {word}{at(place)} for finite inputs", (
        "mend it where it is defined: a breakpoint in it shows its values, np.errstate(all='raise') its line"
    )


def slope(facts: Facts) -> tuple[str, str] | None:
    """The slope of the forward op, which is infinite where its value is fine."""
    known = edges.SLOPES.get(facts.forward_op or "")
    if known is None:
        return None
    text, fix, index, places = known
    found = facts.blamed(index) or first_at(facts, index, places)
    if found is None or found[1] not in places:
        return None
    name = facts.names[index] if index < len(facts.names) and facts.names[index] else f"the input of {facts.forward_op}"
    tail = ", times 0 is NaN" if facts.reason == "nan" else ""
    return f"{name} is {value(found[1])}{at(found[0])}: {text}{tail}", fix


def backward(facts: Facts) -> tuple[str, str] | None:
    """The element of each of the forward op's inputs at which the gradient op makes a bad value."""
    elements = elements_of(facts, facts.blamed)
    if not elements:
        return None
    general = f"{facts.op}, in the gradient of {facts.forward_op}, makes a bad value of it"
    text, fix = edges.BACKWARD.get(facts.forward_op or "", (general, ""))
    return f"{elements}: {text}", fix


def elements_of(facts: Facts, chosen: Callable[[int], tuple[tuple[int, ...], float] | None]) -> str:
    """The element that is chosen of each input, with its name: `x is 0 at [1] and y is 0 at [1]`; "" without any."""
    found = [(facts.name(index), chosen(index)) for index in range(len(facts.inputs))]
    return " and ".join(f"{name} is {value(each[1])}{at(each[0])}" for name, each in found if each is not None)


def first_at(facts: Facts, index: int, places: tuple[float, ...]) -> tuple[tuple[int, ...], float] | None:
    """The first element of an input that has one of these values."""
    array = facts.inputs[index] if index < len(facts.inputs) else np.zeros(0)
    hits = np.argwhere(np.isin(array, places))
    where = tuple(int(i) for i in hits[0]) if len(hits) else None
    return None if where is None else (where, float(array[where]))


GROWING = ("Pow", "Exp", "Expm1", "Sinh", "Cosh", "Prod", "Cumprod", "Cast")  # overflow on small inputs too


def overflow(facts: Facts) -> tuple[str, str] | None:
    """A finite result too large for its dtype."""
    if not np.isinf(facts.output).any() or facts.meant:
        return None
    kind = str(facts.output.dtype)
    sizes = [float(np.max(np.abs(a))) for a in facts.inputs if a.size and a.dtype.kind in "fV" and np.isfinite(a).all()]
    limit = LIMITS.get(kind, LIMITS["float32"])
    if facts.op not in GROWING and max(sizes, default=limit) < limit**0.5 / 1e3:
        return None  # no overflow but a pole, as of lgamma at 0
    most = f" of {' and '.join(value(size) for size in sizes[:2])} at most" if sizes else ""
    fix = (
        "keep this in float32, or scale the values down" if kind == "float16" else "the values explode: scale them down"
    )
    where = at(facts.first_bad() or ())
    return f"{facts.op} of values{most} overflows {kind}{where} (its largest is {value(LIMITS.get(kind, 3.4e38))})", fix


def carried(facts: Facts) -> tuple[str, str] | None:
    """An infinity that was there before (a mask, a variable), and became NaN here."""
    if not facts.meant:
        return None
    word = "inf - inf" if facts.op in ("Sub", "AddV2", "Add", "Sum") else "an infinity"
    zero = any(a.size and (a == 0).any() for a in facts.inputs)
    word = "0 times an infinity" if facts.op in ("Mul", "MatMul", "BatchMatMulV2") and zero else word
    elements = elements_of(facts, lambda index: culprit(facts, index))
    word = f"{elements}: {word}" if elements else word
    return f"{facts.op} turns infinities that no op of this step made into NaN: {word}", (
        "mask with a large finite number, or mask with tf.where after this op"
    )


RULES: dict[str, Rule] = {
    "Log": logarithm,
    "Log1p": logarithm,
    "Sqrt": root,
    "Rsqrt": root,
    "RealDiv": division,
    "Div": division,
    "Reciprocal": division,
    "Inv": division,
    "FloorDiv": division,
    "FloorMod": division,
    "Exp": exponential,
    "Expm1": exponential,
    "Sinh": exponential,
    "Cosh": exponential,
    "Pow": power,
    "Acos": outside(-1, 1),
    "Asin": outside(-1, 1),
    "Atanh": outside(-1, 1),
    "Acosh": outside(1, np.inf),
    "Softmax": softmax,
    "LogSoftmax": softmax,
    "CTCLoss": ctc,
    "SparseSoftmaxCrossEntropyWithLogits": labels,
    "Erfinv": outside(-1, 1),
    "Ndtri": outside(0, 1),
    "Xlogy": logarithm,
    "Lgamma": pole,
    "Digamma": pole,
    "PyFunc": python,
    "EagerPyFunc": python,
    "PyFuncStateless": python,
}

DECIDING: dict[str, tuple[int, ...]] = {
    op: (0,) for op, rule in RULES.items() if rule not in (softmax, ctc, labels, python)
}
DECIDING |= dict.fromkeys(("RealDiv", "Div", "FloorDiv", "FloorMod"), (1,))
DECIDING |= dict.fromkeys(("Mul", "AddV2", "Sub", "Pow", "Atan2"), (0, 1)) | dict.fromkeys(
    ("Square", "Cast", "Cumprod"), (0,)
)
