"""The facts of an error -> one sentence, for errors of data, of memory, and of Keras' steps.

Pure, and under the rules of `explanations`: a message that does not fit stays unexplained.
"""

import math
import re
from collections.abc import Callable

from tfdb.explain import Facts, Operand


def explain(facts: Facts) -> str | None:
    """One sentence on why this error came about, or None for an error that is none of these."""
    return next((sentence for rule in RULES if (sentence := rule(facts))), None)


def steps(facts: Facts) -> str | None:
    """A step of Keras' that returns nothing."""
    if not re.search(r"'OptionalFromValue' Op passed list of length 0", facts.message):
        return None
    return (
        "The model's own train_step() (or test_step(), predict_step()) returns nothing: it must return a dict of "
        "tensors, as {metric.name: metric.result() for metric in self.metrics}."
    )


def ends(facts: Facts) -> str | None:
    """The end of the data."""
    if facts.error == "OutOfRangeError" and "End of sequence" in facts.message:
        return "The iterator has no more elements: make a new one for each pass, iterate the dataset, or repeat() it."
    return None


def lists(facts: Facts) -> str | None:
    """An index outside a TensorArray."""
    found = re.search(r"Trying to (?:modify|access) element (-?\d+) in a list with (\d+) elements", facts.message)
    found = found or re.search(
        r"Tried to (?:write|read) (?:to|from) index (-?\d+) but array .* size is: (\d+)", facts.message
    )
    if found is None:
        return None
    return (
        f"Index {found[1]} is outside of the TensorArray, which has {found[2]} elements (0 to {int(found[2]) - 1}): "
        "give it the size it needs, or dynamic_size=True."
    )


def texts(facts: Facts) -> str | None:
    """A text that is no number."""
    found = re.search(r"could not correctly convert string: (.*)", facts.message)
    if found is None:
        return None
    source = f" ({facts.operands[0].told})" if facts.operands else ""
    return f"{found[1].strip()!r} is no number{source}: look at the line of data it is in, or filter such lines out."


def memory(facts: Facts) -> str | None:
    """No memory: how much was asked for, by what."""
    found = re.search(r"OOM when allocating tensor with shape(\[[\d,]*\]) and type (\w+)", facts.message)
    if found is None:
        return None
    sizes = {
        "float": 4,
        "double": 8,
        "half": 2,
        "bfloat16": 2,
        "int32": 4,
        "int64": 8,
        "bool": 1,
        "uint8": 1,
        "int8": 1,
    }
    count = math.prod(int(extent) for extent in re.findall(r"\d+", found[1]))
    big = sorted((each for each in facts.operands if each.shape), key=size, reverse=True)[:3]
    others = f"; the largest inputs are {', '.join(each.text for each in big)}" if big else ""
    return (
        f"{facts.op or 'An op'} asked for a {found[2]} tensor of shape {found[1]}, "
        f"{count * sizes.get(found[2], 4) / 2**30:.1f} GiB, and there is no room{others}: a smaller batch, or a "
        "broadcast that was not meant?"
    )


def size(operand: Operand) -> int:
    """The number of elements, unknown extents taken as 1."""
    return math.prod(extent or 1 for extent in operand.shape or ())


def uninitialised(facts: Facts) -> str | None:
    """A variable or a table without a value."""
    if "Table not initialized" in facts.message:
        return (
            "The lookup table was never filled: make it in eager code, outside of the function, or run its initializer."
        )
    unknown = "FailedPrecondition" in facts.error and "was not found" in facts.message
    if "uninitialized value" in facts.message or unknown:
        return "The variable was read before it had a value, or it was deleted: keep a reference to its owner."
    return None


RULES: tuple[Callable[[Facts], str | None], ...] = (
    steps,
    ends,
    lists,
    texts,
    memory,
    uninitialised,
)
