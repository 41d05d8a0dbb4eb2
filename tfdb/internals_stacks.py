"""TensorFlow's private names for the stacks that it notes of graph ops; a part of internals.py, under its rules."""

import glob
import os
import runpy
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tfdb.internals import private
from tfdb.sourcemap import OWN

STARTER = runpy._run_code.__code__.co_filename  # type: ignore[attr-defined]


class OwnFrames:
    """While installed, TensorFlow leaves tfdb's frames out of the stacks of ops that are made.

    The texts of graph errors tell those stacks: a program that prints or logs one prints what it would by itself.
    """

    def __init__(self) -> None:
        self.factory: Any = None

    def install(self) -> None:
        """Leave them out from now on.  Idempotent; `remove` undoes it."""
        if self.factory is not None:
            return
        hidden = frozenset([*glob.glob(os.path.join(OWN, "**", "*.py"), recursive=True), *starters()])
        stacks, sentinel = filters()

        def factory() -> list[Any]:
            made = sentinel()
            made.get_filtered_filenames = lambda: hidden
            made.update()
            return [made]

        self.factory, stacks.default_factory = stacks.default_factory, factory
        for stack in list(stacks.values()):
            stack[0].get_filtered_filenames = lambda: hidden
            refresh(stack)

    def remove(self) -> None:
        """TensorFlow's own filters again.  Idempotent."""
        if self.factory is None:
            return
        stacks, _ = filters()
        stacks.default_factory, self.factory = self.factory, None
        for stack in list(stacks.values()):
            vars(stack[0]).pop("get_filtered_filenames", None)
            refresh(stack)


def filters() -> tuple[Any, Any]:
    """The filters of each thread, outermost first, by the thread's key; the class of the first of each."""
    return private("util.tf_stack", "_source_filter_stacks"), private("util.tf_stack", "SentinelFilter")


def refresh(stack: list[Any]) -> None:
    """Make the filters of a thread, each of which holds what those before it hide, anew."""
    for each in list(stack):
        if hasattr(each, "_cached_set"):
            each._cached_set = None
        each.update()


def starters() -> Iterator[str]:
    """Python's file that ran tfdb as a module, when the program itself is a script, which nothing runs so."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    own = next((each.f_code.co_filename for each in reversed(frames) if each.f_code.co_filename != STARTER), "")
    if own.startswith(OWN) and getattr(sys.modules["__main__"], "__spec__", None) is None:
        yield STARTER
