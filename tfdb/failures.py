"""An exception -> the failure behind it: the error that counts, and the whole stack it came from, outermost first.

AutoGraph, Keras and TensorFlow raise new exceptions around the first one and cut frames out of tracebacks.  The frames
themselves still know their callers, so the stack is taken from them, and only the lines from the tracebacks.
"""

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

from tfdb import internals, internals_errors
from tfdb.sourcemap import Activation, activations, is_hidden

MOST = 50  # exceptions in one chain


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """An error and where it came from.

    `error` is as it was raised, `root` the one that libraries wrapped.  `stack` is outermost first; its first `inside`
    activations are eager code, the others were being traced into a graph.  `deepest` is the innermost frame of all.
    """

    error: BaseException
    root: BaseException
    stack: tuple[Activation, ...]
    inside: int
    deepest: FrameType | None

    @property
    def traced(self) -> tuple[Activation, ...]:
        """The activations that were being traced."""
        return self.stack[self.inside :]

    @property
    def user(self) -> Activation | None:
        """The innermost activation of the user's, or None."""
        return next((each for each in reversed(self.stack) if not each.hidden), None)


def examine(error: BaseException) -> Failure:
    """What is behind an exception.  One without a traceback has no stack."""
    chain = list(wrapped(error))
    root = chain[-1]
    entries = list(traceback_of(root))
    if not entries:
        return Failure(error, root, (), 0, None)
    deepest = entries[-1].tb_frame
    first = next(traceback_of(error), entries[0]).tb_frame
    lines = {entry.tb_frame: entry.tb_lineno for each in chain for entry in traceback_of(each)}
    stack, inside = stack_between(first, deepest, lines)
    return Failure(error, root, stack, inside, deepest)


def stack_between(
    first: FrameType, deepest: FrameType, lines: dict[FrameType, int]
) -> tuple[tuple[Activation, ...], int]:
    """The activations from `first` to `deepest`, and how many of them were eager."""
    generated = internals_errors.source_map(deepest) if internals.loaded() else {}
    boundary = None
    for frame in internals_errors.outward(deepest):
        if internals_errors.is_tracing_boundary(frame):
            boundary = frame
        if frame is first:
            break
    else:
        frames = list(lines)  # a generator's frame does not know its caller: the traceback is all there is
        return tuple(Activation(f.f_code.co_filename, lines[f], f.f_code.co_name, f.f_code, (f,)) for f in frames), len(
            frames
        )
    found: list[Activation] = []
    for each in activations(deepest, generated, lambda frame: lines.get(frame, frame.f_lineno)):
        found.append(each)
        if each.base is first or first in each.frames:
            break
    inside = next((n for n, each in enumerate(reversed(found)) if each.base is boundary), len(found))
    return tuple(reversed(found)), inside


def traceback_of(error: BaseException) -> Iterator[TracebackType]:
    """The entries of an exception's traceback, outermost first."""
    entry = error.__traceback__
    while entry is not None:
        yield entry
        entry = entry.tb_next


def wrapped(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that a library wrapped in it, the first one last."""
    yield error
    for _ in range(MOST):
        inner = error.__cause__ or error.__context__
        if inner is None or not is_wrapper(error, inner):
            return
        yield inner
        error = inner


def innermost_frames(error: BaseException) -> Iterator[FrameType]:
    """The innermost frame of the exception and of those it was raised from or over, however it came to that."""
    for _ in range(MOST):
        entries = list(traceback_of(error))
        if entries:
            yield entries[-1].tb_frame
        inner = error.__cause__ or error.__context__
        if inner is None:
            return
        error = inner


def is_wrapper(outer: BaseException, inner: BaseException) -> bool:
    """Whether a library caught `inner` deeper in the same call and raised `outer` for it."""
    if not hasattr(inner, "ag_error_metadata") or inner.__traceback__ is None:
        return False
    entries = [entry for entry in traceback_of(outer) if not is_hidden(entry.tb_frame.f_code.co_filename)]
    if not entries:
        return True
    last = entries[-1]
    if raises_here(last) and last is list(traceback_of(outer))[-1]:
        return False
    inner_entries = list(traceback_of(inner))
    if any(entry.tb_frame is last.tb_frame for entry in inner_entries):
        return False  # the user's own code caught it, or both stand in the same place
    return any(frame is last.tb_frame for frame in internals_errors.outward(inner_entries[-1].tb_frame))


def raises_here(entry: TracebackType) -> bool:
    """Whether the frame itself raises at this point, by a `raise` statement."""
    code = entry.tb_frame.f_code.co_code
    if not 0 <= entry.tb_lasti < len(code):
        return False
    return dis.opname[code[entry.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")


def caught_by_user(error: BaseException) -> bool:
    """Whether the exception reached code of the user's: otherwise it is a library's own affair."""
    return any(not is_hidden(entry.tb_frame.f_code.co_filename) for entry in traceback_of(error))


def related(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Other exceptions worth a line: how they relate to this one, and they."""
    chain = list(wrapped(error))
    last = chain[-1]
    if last.__cause__ is not None:
        yield "caused by", last.__cause__
    elif last.__context__ is not None and not last.__suppress_context__ and caught_by_user(last.__context__):
        yield "while handling", last.__context__
    parts: Any = getattr(error, "exceptions", ())
    if isinstance(parts, tuple):
        yield from (("one of", part) for part in parts if isinstance(part, BaseException))
