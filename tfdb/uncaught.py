"""An error that the program did not handle -> the prompt where it came from: `post_mortem`, `pm`, `iex`."""

import sys
import traceback
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from tfdb import evidence, postmortem, prompt, render, session, watchstops
from tfdb.commands.errors import postmortem_lines
from tfdb.report import NamedSummary, Report, UserLine
from tfdb.sourcemap import is_hidden


def after_error(error: BaseException, ending: Any) -> None:
    """Post-mortem of a program's uncaught error, its report where one is wanted; without a prompt the user's frames."""
    if not ending.no_prompt and ending.path is None:
        post_mortem(error)
        return
    now = session.current(prompt.make_debugger)
    wreck = examined(error, now)
    if ending.path is not None:
        watchstops.write_report(ending.path, exception_report(wreck).to_json())
    if not ending.no_prompt:
        open_prompt(wreck, now)
        return
    sys.stderr.write("".join(users_traceback(error)))
    sys.stderr.flush()
    for line in postmortem_lines(wreck, render.terminal_width(), at_prompt=False):
        now.debugger.message(line)


def users_traceback(error: BaseException) -> list[str]:
    """The lines of the error's traceback, without libraries' frames and without its text, which the screen has."""
    entries = [entry for entry in traceback.extract_tb(error.__traceback__) if not is_hidden(entry.filename)]
    return ["Traceback (most recent call last):\n", *traceback.format_list(entries)] if entries else []


def exception_report(wreck: postmortem.Wreck) -> Report:
    """An uncaught error as a report: where it came from in the user's code, the op, its inputs, and why."""
    if wreck.origin is not None:
        return wreck.origin
    places = (UserLine(evidence.filename_of(entry), line, evidence.function_of(entry)) for entry, line in wreck.entries)
    stack = tuple(place for place in places if not is_hidden(place.file))
    return Report(
        reason="exception",
        line=stack[-1] if stack else None,
        op=wreck.facts.op or wreck.reported.op or None,
        forward_op=wreck.facts.forward or None,
        phase="gradient" if wreck.facts.forward else "forward",
        cause=wreck.sentence or f"{type(wreck.failure.root).__name__}: {wreck.reported.message}",
        inputs=tuple(NamedSummary(shown.name, shown.summary) for shown in wreck.shown),
        stack=stack,
        notes=tuple(line.strip() for line in wreck.layer) + wreck.notes,
    )


def post_mortem(error: BaseException | TracebackType | None = None) -> None:
    """Open the prompt at the innermost user frame of an error; in a graph too, with the values of the call that failed.

    Args:
        error: an exception or a traceback; default the exception that is being handled.

    Raises:
        ValueError: none is given and none is being handled.
    """
    error = sys.exc_info()[1] if error is None else error
    if error is None:
        raise ValueError("A valid traceback must be passed if no exception is being handled")
    if isinstance(error, TracebackType):
        error = owner_of(error)
    now = session.current(prompt.make_debugger)
    open_prompt(examined(error, now), now)


def examined(error: BaseException, now: session.Session) -> postmortem.Wreck:
    """What can be found out about an error; nothing stops meanwhile."""
    with now.aside(), watchstops.told(now, "looking for where the error came from"):
        return postmortem.examine(error, now.keeper)


def open_prompt(wreck: postmortem.Wreck, now: session.Session) -> None:
    """The prompt where the error came from."""
    debugger = now.debugger
    debugger.reset()
    debugger.wreck_interaction(wreck)
    debugger.quitting = False
    debugger._set_stopinfo(debugger.botframe, None, -1)


def owner_of(entry: TracebackType) -> BaseException:
    """The exception that a traceback belongs to, as far as Python still knows it."""
    for error in (sys.exc_info()[1], getattr(sys, "last_exc", None), getattr(sys, "last_value", None)):
        if isinstance(error, BaseException) and error.__traceback__ is entry:
            return error
    return Exception("an error of which only the traceback is known").with_traceback(entry)


def pm() -> None:
    """Post-mortem of the last uncaught exception of an interactive session, as `pdb.pm`."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None:
        raise AttributeError("there is no last exception: sys.last_exc and sys.last_value are not set")
    post_mortem(error)


class launch_tfdb_on_exception(ContextDecorator):  # noqa: N801  # a function to its users, like ipdb's
    """Within the block (or the decorated function), an error opens the prompt where it came from, and ends there."""

    def __enter__(self) -> None:
        session.current(prompt.make_debugger).arm()

    def __exit__(self, kind: Any, error: BaseException | None, entry: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        post_mortem(error)
        return True


iex = launch_tfdb_on_exception()
