"""The watch language -> a Watch: `nan|inf|none|near [in REGEX] [allow REGEX] [every N]`.

Pure: what a condition means at run time is decided by gate.py and origin.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .errors import TfdbError

KINDS = ("nan", "inf", "none", "near")
USAGE = "nan|inf|none|near [in REGEX] [allow REGEX] [every N]"


class WatchError(TfdbError):
    """A watch that cannot be understood; the message names the word and shows the usage."""


@dataclass(frozen=True, slots=True)
class Watch:
    """One condition to watch for.

    `scope` limits it to origins whose layer, variable, function or file matches, `allow` leaves those out; `every`
    looks at each N-th bad step only.
    """

    kind: str
    scope: re.Pattern[str] | None = None
    allow: re.Pattern[str] | None = None
    every: int = 1

    @property
    def selective(self) -> bool:
        """Whether it takes the origin of a bad value to decide."""
        return self.scope is not None or self.allow is not None

    def __str__(self) -> str:
        return " ".join([self.kind, *self.options])

    @property
    def options(self) -> list[str]:
        """Its options as they are typed."""
        parts = [f"in {self.scope.pattern}"] if self.scope else []
        parts += [f"allow {self.allow.pattern}"] if self.allow else []
        return parts + ([f"every {self.every}"] if self.every != 1 else [])


def parse(text: str) -> Watch:
    """The watch a user typed.

    Raises:
        WatchError: an unknown kind or option, a bad pattern, or a count below 1.
    """
    words = text.split()
    if not words or words[0] not in KINDS:
        raise WatchError(f"cannot watch {text!r}; usage: watch {USAGE}")
    options: dict[str, str] = {}
    rest = words[1:]
    while rest:
        if rest[0] not in ("in", "allow", "every") or len(rest) < 2:
            raise WatchError(f"cannot read {' '.join(rest)!r} in {text!r}; usage: watch {USAGE}")
        options[rest[0]] = rest[1]
        rest = rest[2:]
    try:
        scope, allow = (re.compile(options[name]) if name in options else None for name in ("in", "allow"))
        every = int(options.get("every", "1"))
    except (re.error, ValueError) as error:
        raise WatchError(f"cannot read {text!r}: {error}; usage: watch {USAGE}") from error
    if every < 1:
        raise WatchError(f"every {every}: the count must be at least 1")
    return Watch(words[0], scope, allow, every)


def badness(array: np.ndarray) -> str:
    """'nan' when an element is NaN, else 'inf' when one is infinite, else ''; '' for what is no float or complex."""
    if array.dtype.kind not in "fcV" or array.dtype.names is not None or array.size == 0:
        return ""
    try:
        if np.isfinite(array).all():
            return ""
    except TypeError:  # a void dtype that is none of the small floats
        return ""
    return "nan" if np.isnan(array).any() else "inf"


def worst(kinds: Sequence[str]) -> str:
    """The gravest of several `badness` values: nan, then inf, then ''."""
    return "nan" if "nan" in kinds else "inf" if "inf" in kinds else ""


def concerns(watches: Sequence[Watch], kind: str, names: Sequence[str]) -> Watch | None:
    """The first watch that a bad value of `kind` made at `names` (function, file, layer, variables) falls under.

    An inf that is about to enter weights is NaN's next of kin: callers pass kind "nan" for it.
    """
    for watch in watches:
        if watch.kind != kind:
            continue
        if watch.scope and not any(watch.scope.search(name) for name in names):
            continue
        if watch.allow and any(watch.allow.search(name) for name in names):
            continue
        return watch
    return None
