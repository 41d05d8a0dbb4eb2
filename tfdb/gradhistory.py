"""What gates measured -> the last steps of each group of variables, in bounded memory.

In a graph each step writes one row into a small variable, which costs no call into Python; it is read when asked for.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import blame, internals_gate, reach
from .norms import HALVED, size_of
from .varnames import UNNAMED, name_of

STEPS = 32  # kept


def users_name(variable: Any, frame: Any) -> str:
    """What the user's frames call a variable: a plain name, or else how they reach it; '' for neither.

    Outer frames come first, and earlier names: the name of a loop over variables is none of theirs.
    """
    scopes = [names for each in blame.user_frames(frame) for names in (each.f_globals, each.f_locals)]
    for names in scopes:
        if found := next((name for name, value in list(names.items()) if value is variable), ""):
            return found
    return next((found for names in scopes if (found := reach.path_to(variable, names, ""))), "")


@dataclass(eq=False)
class Ring:
    """The last `STEPS` looks at one group of variables: `columns` by name, each a number per variable."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int | None, ...], ...]
    sizes: tuple[int, ...]
    columns: tuple[str, ...]
    rows: list[np.ndarray] = field(default_factory=list)
    store: Any = None
    count: Any = None
    total: int = 0  # looks from eager code

    def write(self, matrix: Any) -> None:
        """Add a look in the current graph; `matrix` is as measured (norms.whole), of shape (columns, variables)."""
        import tensorflow as tf

        if self.store is None:
            with tf.init_scope():
                zeros = tf.zeros([STEPS, len(self.columns), len(self.names)])
                self.store = internals_gate.plain_variable(zeros, "tfdb_history")
                self.count = internals_gate.plain_variable(tf.constant(0, tf.int32), "tfdb_steps")
        before = tf.raw_ops.ReadVariableOp(resource=self.count.handle, dtype=tf.int32)
        slot = tf.math.floormod(before, STEPS)
        kept = tf.raw_ops.ResourceScatterUpdate(resource=self.store.handle, indices=slot, updates=matrix)
        with tf.control_dependencies([kept] if kept is not None else []):
            tf.raw_ops.AssignAddVariableOp(resource=self.count.handle, value=tf.constant(1, tf.int32))

    def add(self, matrix: np.ndarray) -> None:
        """Add a look from eager code."""
        self.rows.append(np.asarray(matrix))
        self.total += 1
        del self.rows[:-STEPS]

    def looks(self) -> np.ndarray:
        """What is kept, oldest first: float32 of shape (steps, columns, variables)."""
        if self.store is not None:
            scale = np.array([2.0 if name in HALVED else 1.0 for name in self.columns], np.float32)[:, None]
            count, rows = int(self.count.numpy()), self.store.numpy() * scale
            start = count % STEPS if count > STEPS else 0
            kept = np.concatenate([rows[start:count], rows[:start]]) if count > STEPS else rows[:count]
            return kept if not self.rows else np.concatenate([kept, np.stack(self.rows)])[-STEPS:]
        return np.stack(self.rows) if self.rows else np.zeros((0, len(self.columns), len(self.names)), np.float32)


class Book:
    """All rings, and the variables' order, gradients that were None, steps that loss scaling skipped."""

    def __init__(self) -> None:
        self.rings: dict[Any, Ring] = {}
        self.shapes: dict[str, tuple[int | None, ...]] = {}  # of all variables, in the order they are given in
        self.none: set[str] = set()
        self.names: dict[int, tuple[weakref.ref[Any], str]] = {}
        self.skipped: Any = None
        self.replicas = False  # a distribution strategy's: the numbers are of replica 0, before the sum

    def name(self, variable: Any, frame: Any = None) -> str:
        """A variable's name, that no other one alive has; the user's own name for it where it was given none."""
        plain = internals_gate.unwrapped(variable)
        known = self.names.get(id(plain))
        if known is not None and known[0]() is plain:
            return known[1]
        base = name_of(variable)
        base = users_name(plain, frame) or base if UNNAMED.fullmatch(base) else base
        taken = {name for alive, name in self.names.values() if alive() is not None}
        unique = next(name for n in itertools.count(1) if (name := base if n == 1 else f"{base} ({n})") not in taken)
        self.names[id(plain)] = (weakref.ref(plain), unique)
        return unique

    def ring(self, variables: Sequence[Any], names: Sequence[str], columns: Sequence[str]) -> Ring:
        """The ring of these variables and columns, made on first use."""
        key = (tuple(map(id, variables)), tuple(columns))
        if key not in self.rings:
            shapes = tuple(tuple(getattr(variable, "shape", ()) or ()) for variable in variables)
            sizes = tuple(size_of(variable) for variable in variables)
            self.rings[key] = Ring(tuple(names), shapes, sizes, tuple(columns))
        return self.rings[key]

    def given(self, variables: Sequence[Any], gradients: Sequence[Any], frame: Any = None) -> None:
        """Note the variables that an optimizer is given, and which of them have no gradient."""
        for variable, gradient in zip(variables, gradients, strict=False):
            name = self.name(variable, frame)
            self.shapes.setdefault(name, tuple(variable.shape))
            self.none.add(name) if gradient is None else self.none.discard(name)

    def skip(self) -> None:
        """A step is skipped, in the current graph or now: count it."""
        import tensorflow as tf

        if self.skipped is None:
            with tf.init_scope():
                self.skipped = internals_gate.plain_variable(tf.constant(0, tf.int32), "tfdb_skipped")
        tf.raw_ops.AssignAddVariableOp(resource=self.skipped.handle, value=tf.constant(1, tf.int32))

    def skips(self) -> int:
        """How many steps loss scaling skipped so far."""
        return int(self.skipped.numpy()) if self.skipped is not None else 0

    def clear(self) -> None:
        """Forget everything; graphs that hold a ring's variables go on writing there, unread."""
        self.__init__()  # type: ignore[misc]
