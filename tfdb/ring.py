"""Outermost calls of `tf.function`s -> the last few of them, with their arguments, to be run again.

Arguments are kept by reference (small numpy arrays are copied, for the program may write to them), so keeping costs
memory only: `MOST_CALLS` calls and `MOST_BYTES` of arguments and state, the newest call always.  What arguments take
is counted at every `COUNTED_EVERY`th call of a function only, where nothing has to be copied: it is asked at every
step of the program, and changes little from step to step.  The variables' values at the call are kept only where the
call is slowed down by stops anyway.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdb import internals_rerun, state
from tfdb.errors import TfdbError

if TYPE_CHECKING:
    from tfdb.state import State

MOST_CALLS = 8
MOST_BYTES = 256 << 20
COPIED_BYTES = 1 << 16  # a numpy argument up to this size is copied, in some microseconds
COUNTED_EVERY = 8  # calls; no more than are kept


@dataclass(slots=True)  # not frozen: that would double the cost of making one
class Record:
    """One call: the function as the program called it, its arguments, and which of its function's calls it was.

    `state` is None where the variables' values at the call are not known.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    number: int
    thread: int
    nbytes: int
    state: State | None = None
    borrowed: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


class Ring:
    """The latest calls, oldest first."""

    def __init__(self, most_calls: int = MOST_CALLS, most_bytes: int = MOST_BYTES) -> None:
        self.most_calls, self.most_bytes = most_calls, most_bytes
        self.records: deque[Record] = deque()
        self.nbytes = 0
        self.numbers: dict[int, int] = {}
        self.living: dict[int, Any] = {}
        self.sizes: dict[int, int] = {}  # of a function's arguments, in bytes, at most so far
        self.changeable: set[type] = set()  # the types of arguments that the program may write to
        self.lock = threading.Lock()

    def called(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], twin: Any = None) -> None:
        """Keep a call that is about to be made; its variables' values too when it goes to a twin, slow as that is."""
        key, before = id(function), self.numbers.get(id(function), 0)
        steady = before % COUNTED_EVERY and not kwargs and self.changeable.isdisjoint(map(type, args))
        if steady and key in self.sizes:
            nbytes, borrowed = self.sizes[key], False
        else:
            counter = Counted()
            self.changeable = counter.changeable
            args = tuple([counter.kept(value) for value in args])
            kwargs = {name: counter.kept(value) for name, value in kwargs.items()}
            nbytes, borrowed = counter.nbytes, counter.borrowed
            self.sizes[key] = max(nbytes, self.sizes.get(key, 0))
        values = self.state_of(twin) if twin is not None else None
        nbytes += values.nbytes if values is not None else 0
        with self.lock:
            number = self.numbers[key] = self.numbers.get(key, 0) + 1
            if number == 1:
                self.living[key] = weakref.ref(function, lambda _: self.forget(key))
            made = Record(function, args, kwargs, number, threading.get_ident(), nbytes, values, borrowed)
            self.records.append(made)
            self.nbytes += nbytes
            while len(self.records) > self.most_calls or (len(self.records) > 1 and self.nbytes > self.most_bytes):
                self.nbytes -= self.records.popleft().nbytes

    def forget(self, key: int) -> None:
        """A function is gone, and its id is free for another."""
        for table in (self.living, self.numbers, self.sizes):
            table.pop(key, None)

    def state_of(self, function: Any) -> State | None:
        """The values of the variables that the function's traces use; of all variables before its first trace."""
        traces = internals_rerun.traces(function)
        used = {id(v): v for trace in traces for v in trace.graph.variables if state.is_readable(v)}
        found = state.take(used.values() if traces else None)
        return found if found.nbytes <= self.most_bytes else None

    def latest(self, function: Any = None, back: int = 0) -> Record:
        """The call `back` calls before the latest one, of this function where it is given.

        Raises:
            TfdbError: there is no such call, or it is no longer kept.
        """
        records = [each for each in self.records if function is None or is_same(each.function, function)]
        if len(records) > back:
            return records[-1 - back]
        name = "" if function is None else f" of {getattr(function, '__name__', function)}"
        kept = f"; kept are {self.listing()}" if self.records else ""
        asked = f"no call{name} was recorded" if not records else f"{len(records)} calls{name} are kept"
        raise TfdbError(f"{asked}{kept}")

    def named(self, name: str) -> Any | None:
        """The function of this name among the kept calls', the latest first."""
        return next((each.function for each in reversed(self.records) if each.name == name), None)

    def listing(self) -> str:
        """The kept calls in a few words, newest first: `step (call 3), step (call 2)`."""
        return ", ".join(f"{each.name} (call {each.number})" for each in reversed(self.records))

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self.records))


class Counted:
    """Walks arguments once: counts their bytes, and copies small arrays that the program could change."""

    def __init__(self) -> None:
        import numpy as np  # TensorFlow has it by now

        self.array = np.ndarray
        self.changeable = {np.ndarray, list, tuple, dict}
        self.nbytes = 0
        self.borrowed = False

    def kept(self, value: Any) -> Any:
        """The value to keep in the argument's place."""
        kind = type(value)
        if kind is self.array:
            self.nbytes += value.nbytes
            if value.nbytes <= COPIED_BYTES:
                return value.copy()
            self.borrowed = True
        elif kind is list or kind is tuple:
            return kind([self.kept(item) for item in value])
        elif kind is dict:
            return {name: self.kept(item) for name, item in value.items()}
        else:
            self.nbytes += internals_rerun.eager_bytes(value)
        return value


def is_same(function: Any, other: Any) -> bool:
    """Whether two objects are one function: the same `tf.function`, or made of the same bound Python function."""
    if function is other:
        return True
    return internals_rerun.python_function(function) == internals_rerun.python_function(other)
