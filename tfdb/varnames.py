"""A variable -> the path that the user knows it by, and the attributes that lead to it.

Tapes and graphs hold the tf.Variable inside of a Keras variable, which Keras names without the layer in subclassed
models.  Nothing leads back from it, so the owners are looked for among all objects, when one is asked for that is
not known yet.
"""

from __future__ import annotations

import gc
import re
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from . import internals_gate, internals_rerun

UNNAMED = re.compile(r"(.*/)?Variable(_\d+)?")  # the program gave no name; Keras always gives one
IN_VAIN = 3  # searches for variables of one name that no Keras variable owns, before that name is left alone
DEPTH = 32
SHARE = 0.01  # of a program's time, at most, for searches of attributes that are known already


class Paths:
    """What is known of the variables that are alive."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[weakref.ref[Any], str | None]] = {}  # None: no Keras variable owns it
        self.without: dict[int, weakref.ref[Any]] = {}  # those that the last search found no owner of
        self.attributes: dict[str, set[str]] = {}
        self.search_again = 0.0  # seconds of the monotonic clock: models may have changed by then
        self.in_vain: dict[str, int] = {}

    def of(self, variable: Any, plain: str) -> str:
        """The Keras path of the owner of a tf.Variable, `plain` where no Keras variable owns it."""
        found = self.known.get(id(variable))
        if found is not None and found[0]() is variable:
            return found[1] or plain
        if UNNAMED.fullmatch(plain) or self.in_vain.get(plain, 0) >= IN_VAIN:
            return plain
        self.search()
        found = self.known.get(id(variable))
        if found is None:
            self.in_vain[plain] = self.in_vain.get(plain, 0) + 1
            found = self.known[id(variable)] = weakref.ref(variable), None
        return found[1] or plain

    def search(self) -> None:
        """Look for the owners of all variables; what two searches find without one has none.

        Once is not enough: Keras may be about to take a variable that was just made.
        """
        self.known = {key: each for key, each in self.known.items() if each[0]() is not None}
        alive = internals_rerun.variables(gc.get_objects())
        for inner, path in internals_rerun.keras_owned(alive):
            self.known.update((id(each), (weakref.ref(each), path)) for each in with_handle(inner))
        base = internals_gate.variable_class()  # a Keras variable asked for its handle may draw its first value
        before, self.without = self.without, {}
        for each in (part for found in alive if base in type(found).__mro__ for part in with_handle(found)):
            if id(each) not in self.known:
                self.without[id(each)] = weakref.ref(each)
                if id(each) in before and before[id(each)]() is each:
                    self.known[id(each)] = weakref.ref(each), None


def with_handle(variable: Any) -> tuple[Any, Any]:
    """A variable, and the resource that graphs know it by."""
    try:
        return variable, variable.handle
    except Exception:  # one on several devices has none outside of a replica, and a class may raise
        return variable, variable


paths = Paths()


def name_of(variable: Any) -> str:
    """A variable's name: Keras' path, also for the tf.Variable inside, else TensorFlow's without `:0`; "?" for None."""
    if variable is None:
        return "?"
    if path := getattr(variable, "path", None):
        return str(path)
    plain = str(getattr(variable, "name", "variable")).removesuffix(":0")
    if not hasattr(variable, "handle") or internals_rerun.keras_variable_class() is None:
        return plain
    try:
        return paths.of(variable, plain)
    except Exception:  # a class of the program's own may raise; a name is a convenience
        return plain


def name_of_handle(handle: Any, plain: str) -> str:
    """The name of the variable whose resource this is, `plain` where it is not known to be a Keras variable's.

    A graph that is still being traced does not have its list of variables yet.
    """
    dtype = getattr(getattr(handle, "dtype", None), "name", "")
    if dtype != "resource" or internals_rerun.keras_variable_class() is None:
        return plain
    try:
        return paths.of(handle, plain)
    except Exception:  # as above
        return plain


def known_as(names: Sequence[str]) -> list[str]:
    """Names, and the attributes that lead to the variables of these names: `net/dense_2/kernel`, `aux/kernel`."""
    started = time.monotonic()
    if not paths.attributes.keys() >= set(names) or started >= paths.search_again:
        try:
            paths.attributes = attribute_paths()
        except Exception:  # as above
            paths.attributes = {}
        paths.attributes.update({name: set() for name in names if name not in paths.attributes})
        paths.search_again = time.monotonic() + (time.monotonic() - started) / SHARE
    return [*names, *(path for name in names for path in sorted(paths.attributes[name]))]


def attribute_paths() -> dict[str, set[str]]:
    """For the name of every variable in a layer, model or module: its paths by attributes, from each that holds it."""
    owners = internals_rerun.holders(gc.get_objects())
    above: dict[int, list[tuple[int, str]]] = {}
    variables: dict[int, Any] = {}
    for owner in owners:
        for attribute, child in held(vars(owner)):
            above.setdefault(id(child), []).append((id(owner), attribute))
            if hasattr(child, "assign"):
                variables[id(child)] = child
    found: dict[str, set[str]] = {}
    for key, variable in variables.items():
        found.setdefault(name_of(variable), set()).update(upward(key, above, ()))
    return found


def held(values: Any) -> Iterator[tuple[str, Any]]:
    """The attributes, or items of lists and dicts in them, that are variables, layers or modules."""
    for name, value in list(values.items()):
        if name.startswith("_") and isinstance(value, list | tuple | dict):
            continue  # Keras' and TensorFlow's own book-keeping
        within = list(enumerate(value)) if isinstance(value, list | tuple) else []
        within = list(value.items()) if isinstance(value, dict) else within
        pairs = [(f"{name}/{key}", each) for key, each in within[:1000]] or [(name, value)]
        yield from ((path, each) for path, each in pairs if not isinstance(each, type) and is_part(each))


def is_part(value: Any) -> bool:
    """Whether it is a variable, or what may hold variables."""
    return internals_rerun.is_holder(type(value)) or internals_rerun.is_variable(type(value))


def upward(key: int, above: dict[int, list[tuple[int, str]]], seen: tuple[int, ...]) -> Iterator[str]:
    """The paths by attributes to an object, those of private attributes without their underscore."""
    for owner, attribute in above.get(key, ())[:DEPTH]:
        private = attribute.startswith("_")
        if owner in seen or len(seen) >= DEPTH or (private and seen):
            continue
        yield from (f"{path}/{attribute.lstrip('_')}" for path in upward(owner, above, (*seen, key)))
        if not private:
            yield attribute
