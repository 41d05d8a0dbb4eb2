"""The program's state -> values to put back: every variable, the random generators, Python values that a call changes.

Variables of optimizers, metrics, Keras seeds and `tf.random.Generator` are variables like all others.  A value that is
kept shares the variable's memory until the variable is next written.
"""

import contextlib
import gc
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdb import internals, internals_callbacks, internals_gate, internals_rerun
from tfdb.errors import TfdbError
from tfdb.gate import gate

CONTAINERS = (list, dict, set)


@dataclass(frozen=True, slots=True)
class State:
    """Variables with their values at one moment; `nbytes` is what the values hold once all are overwritten."""

    values: tuple[tuple[Any, Any], ...] = ()
    nbytes: int = 0

    def variables(self) -> list[Any]:
        """The variables."""
        return [variable for variable, _ in self.values]


def live_variables() -> list[Any]:
    """Every variable of the process that has a value of its own, in the order of their creation."""
    owner = internals_gate.variable_class()
    found = [value for value in gc.get_objects() if owner in type(value).__mro__]
    return sorted(filter(is_readable, found), key=internals_rerun.creation_number)


def names(variables: Iterable[Any]) -> dict[int, str]:
    """A name for each variable, by its id: Keras' path where there is one, else TensorFlow's; all different."""
    paths = internals_rerun.keras_paths(gc.get_objects())
    found: dict[int, str] = {}
    taken: set[str] = set()
    for variable in variables:
        plain = paths.get(id(variable)) or str(getattr(variable, "name", "variable")).removesuffix(":0")
        numbered = (f"{plain} ({number})" for number in itertools.count(2))
        name = next(name for name in itertools.chain([plain], numbered) if name not in taken)
        taken.add(name)
        found[id(variable)] = name
    return found


def is_readable(variable: Any) -> bool:
    """Whether the variable belongs to eager code, not to a graph."""
    handle = getattr(variable, "handle", None)
    return handle is not None and not internals.is_symbolic(handle)


def take(variables: Iterable[Any] | None = None) -> State:
    """The values that variables (default: all) have now; those without a value yet are left out."""
    import tensorflow as tf

    values, nbytes = [], 0
    with internals_callbacks.without_op_callbacks():
        for variable in live_variables() if variables is None else variables:
            with contextlib.suppress(tf.errors.OpError):
                value = internals_rerun.read(variable)
                values.append((variable, value))
                nbytes += size_of(value)
    return State(tuple(values), nbytes)


def put(state: State) -> None:
    """Give every variable of the state its value back, bit by bit."""
    with internals_callbacks.without_op_callbacks():
        for variable, value in state.values:
            internals_rerun.write(variable, value)


def size_of(value: Any) -> int:
    """The bytes of a tensor or array, 0 for what has no size."""
    shape = getattr(value, "shape", None)
    itemsize = getattr(getattr(value, "dtype", None), "size", None) or getattr(value, "itemsize", 0)
    try:
        return int(np.prod([int(size) for size in shape or ()])) * int(itemsize or 0)
    except (TypeError, ValueError):
        return 0


def changed(state: State) -> list[tuple[Any, Any, Any]]:
    """The program's variables whose bits are no longer those of the state: variable, value then, value now."""
    found = []
    for (variable, before), (_, now) in zip(state.values, take(state.variables()).values, strict=True):
        if not internals_gate.is_own(variable) and not identical(before, now):
            found.append((variable, before, now))
    return found


def identical(first: Any, second: Any) -> bool:
    """Whether two tensors have the same dtype, shape and bits (NaN equals NaN of the same bits)."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    a, b = np.asarray(first), np.asarray(second)
    if a.dtype == object:
        return bool(np.array_equal(a, b))
    if a.size and a.__array_interface__["data"][0] == b.__array_interface__["data"][0]:
        return True  # the two share memory: nothing was written
    return a.tobytes() == b.tobytes()


@contextlib.contextmanager
def set_aside(at_call: State | None = None, keep: bool = False) -> Iterator[State]:
    """Run the block from the state `at_call` (default: the present one) and put all back; yields what it began with.

    Raises:
        TfdbError: a variable could not be put back; the message names it.
    """
    present = take()
    if at_call is not None:
        put(at_call)
    began = take(present.variables()) if at_call is not None else present
    with contextlib.ExitStack() as stack:
        stack.enter_context(gate.quiet())
        if not keep:
            stack.enter_context(internals_rerun.other_random_numbers())
        try:
            yield began
        finally:
            if not keep:
                put(present)
                if left := changed(present):
                    raise TfdbError(f"not put back: {', '.join(names(v for v, _, _ in left).values())}")


@dataclass(slots=True)
class PythonState:
    """Attributes of objects and names of modules as they were; lists, dicts and sets with what they held."""

    owners: list[tuple[dict[str, Any], str, bool, Any]]
    contents: list[tuple[Any, Any]]

    @classmethod
    def take(cls, places: Iterable[tuple[dict[str, Any], str]]) -> "PythonState":
        """Keep what each name of a namespace stands for."""
        owners, contents = [], []
        for namespace, name in places:
            value: Any = namespace.get(name)
            owners.append((namespace, name, name in namespace, value))
            if type(value) in CONTAINERS:
                contents.append((value, value.copy()))
        return cls(owners, contents)

    def put(self) -> None:
        """Put the names and the contents back."""
        for namespace, name, existed, value in self.owners:
            if existed:
                namespace[name] = value
            else:
                namespace.pop(name, None)
        for value, held in self.contents:
            if identities(value) != identities(held):
                value.clear()
                value.extend(held) if type(value) is list else value.update(held)


def identities(container: Any) -> list[int]:
    """The identities of what a list, dict or set holds, in order."""
    held = [*container, *container.values()] if isinstance(container, dict) else container
    return [id(item) for item in held]
