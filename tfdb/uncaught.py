"""An error that the program did not handle -> the prompt where it came from: `post_mortem`, `pm`, `iex`."""

import sys
import traceback
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from tfdb import postmortem, prompt, session


def after_error(error: BaseException, ending: Any) -> None:
    """Post-mortem of a program's uncaught error; without a prompt, only its traceback."""
    if ending.no_prompt:
        traceback.print_exception(error)
    else:
        post_mortem(error)


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
    with now.aside():
        wreck = postmortem.examine(error, now.keeper)
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
