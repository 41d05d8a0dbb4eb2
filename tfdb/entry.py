"""The ways in: a program taken over by `python -m tfdb`, `set_trace()` and its kin, `run`, `runcall`, `runeval`."""

import os
import pdb
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import Any

from tfdb import exits, internals, prompt, replicas, session, spawned, watchstops
from tfdb.imports import ImportWatch
from tfdb.interrupts import Interrupts, uninterrupted
from tfdb.program import Ending
from tfdb.session import POLL_SECONDS, Session
from tfdb.sourcemap import GENERATED_FILE, in_site_packages, is_hidden
from tfdb.terminated import Terminations

HOOKS_PATIENCE = 10.0  # seconds

_undo: list[Callable[[], None]] = []


def take_over(commands: Sequence[str] = (), watches: Sequence[str] = (), ending: Ending | None = None) -> Any:
    """Make this process the debugger's: `breakpoint()`, `pdb.set_trace()` and `ipdb.set_trace()` stop in tfdb.

    Returns the debugger; `commands` run at its first stop.

    Raises:
        conditions.WatchError: one of `watches` cannot be understood.
    """
    now = session.current(prompt.make_debugger)
    debugger = now.debugger
    debugger.rcLines.extend(commands)
    debugger.ending = ending = ending or Ending()
    if watches:
        watchstops.of(now).start(watches)
    debugger.start_at_once = bool(watches) or ending.no_prompt
    terminations = Terminations(now)
    _undo.append(terminations.remove)

    def imported() -> None:
        now.arm()
        terminations.install()

    watch = ImportWatch(
        {name: lambda module: imported() for name in ("tensorflow", "keras", "tf_keras")}
        | {"ipdb": replace_set_trace, "multiprocessing": tell_workers},
        lambda: any(in_site_packages(filename) for filename in debugger.breaks),
        lambda: any(debugger.pending()),
        debugger.module_found,
    )
    watch.install()
    _undo.append(watch.remove)
    interrupts = Interrupts(debugger.noticed, debugger.interrupted_at, lambda: while_waiting(now))
    interrupts.install()
    now.door.wake_main = interrupts.wake_main
    _undo.append(interrupts.remove)
    replace_set_trace(pdb)
    keep(sys, "breakpointhook", breakpoint_hook)
    return debugger


def while_waiting(now: Session) -> None:
    """Ctrl-C has had no answer for a second: a graph or other C code is running.  Give its hooks time, then prompt."""
    until = time.monotonic() + HOOKS_PATIENCE
    hooked = any(call.name in now.door.hooked for call in list(now.door.active))
    while hooked and now.interrupted and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    if now.interrupted:
        now.debugger.still_running()


def ended(debugger: Any) -> None:
    """The program has ended; if the user quit it, threads that wait for its main thread for ever end too."""
    if debugger.session.quitting is not None:
        replicas.let_go()


def give_back() -> None:
    """Undo `take_over`; Ctrl-C does not leave it half undone."""
    with uninterrupted():
        while _undo:
            _undo.pop()()
        session.end()


def keep(owner: Any, name: str, value: Any) -> None:
    """Set an attribute until `give_back`."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    _undo.append(lambda: setattr(owner, name, before))


def replace_set_trace(module: ModuleType) -> None:
    """Make a debugger module's `set_trace` stop in tfdb, so that it works in traced code too."""
    keep(module, "set_trace", breakpoint_hook)


def tell_workers(module: ModuleType) -> None:
    """Make `breakpoint()` tfdb's in the workers that `multiprocessing` starts anew."""
    starter = spawned.starter()
    if starter is not None:
        keep(starter, "spawnv_passfds", spawned.telling(starter.spawnv_passfds))


def breakpoint_hook(*args: Any, frame: FrameType | None = None, cond: Any = True, **kwargs: Any) -> None:
    """`breakpoint()`, `pdb.set_trace()` and `ipdb.set_trace()` under tfdb; arguments of theirs are accepted."""
    set_trace(cond, frame=frame or sys._getframe(1))


breakpoint_hook.autograph_info__ = None  # type: ignore[attr-defined]  # AutoGraph must call it as it is


def set_trace(cond: Any = True, context: int | None = None, frame: FrameType | None = None) -> None:
    """Stop here: at once in eager code, at every run of this point in code that is being traced into a graph.

    Args:
        cond: a Python bool, or in traced code a scalar bool tensor that decides at each run.
        context: lines of source to show around the stop (ipdb's terminal prompt only).
        frame: the frame to stop in; default the caller's.
    """
    if exits.is_over():
        return
    frame = frame or sys._getframe(1)
    now = session.current(prompt.make_worker_debugger if spawned.is_worker() else prompt.make_debugger)
    if now.is_foreign():
        now = worker_session(now)
    if not prompt.can_prompt(now.debugger):
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        notice = f"tfdb: no terminal for the stop at {place} in process {os.getpid()}; going on"
        now.say_once(notice, lambda text: sys.stderr.write(text + "\n"))
        return
    if internals.current_graph() is not None:
        now.plant(frame, cond)
        return
    if threading.get_ident() in now.at_prompt or not cond:
        return
    while is_hidden(frame.f_code.co_filename) and GENERATED_FILE not in frame.f_code.co_filename and frame.f_back:
        frame = frame.f_back
    if context is not None and hasattr(now.debugger, "context"):
        now.debugger.context = context
    now.arm()
    if GENERATED_FILE in frame.f_code.co_filename:
        now.stop_eagerly(frame, "call", {})
    else:
        now.debugger.set_trace(frame)


def watch(condition: str) -> None:
    """Watch from now on, as the command `watch`: `tfdb.watch("nan")`; a stop opens the prompt at the origin.

    Raises:
        conditions.WatchError: a condition that cannot be understood.
    """
    now = session.current(prompt.make_debugger)
    _ = now.debugger
    watchstops.of(now).start([condition])


def unwatch(*numbers: int) -> None:
    """Take watches away by their numbers in the list of `watch`, or all of them.

    Raises:
        ValueError: there is no watch with one of the numbers.
    """
    watchstops.of(session.current(prompt.make_debugger)).remove(numbers)


def worker_session(parent: Session) -> Session:
    """The session of a forked worker: the parent's prompt is not its own, so it asks for a terminal itself."""
    session.end()
    return session.current(prompt.make_worker_debugger)


def start(debugger: Any) -> None:
    """Stop at the next user line, the program's first; with watches only its commands run there."""
    if debugger.start_at_once and not debugger.rcLines:
        debugger.start_running()
        return
    debugger.reset()
    debugger.set_step()
    debugger.at_start = True
    sys.settrace(debugger.trace_dispatch)


def stop_tracing() -> None:
    """Trace no more on this thread."""
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]


def runcall(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function under the debugger, stopping at its first line; returns what it returns."""
    now = session.current(prompt.make_debugger)
    now.arm()
    return now.debugger.runcall(function, *args, **kwargs)


def run(statement: str, globals: dict[str, Any] | None = None, locals: dict[str, Any] | None = None) -> None:
    """Execute a statement under the debugger, as `pdb.run`."""
    now = session.current(prompt.make_debugger)
    now.arm()
    now.debugger.run(statement, *namespaces(globals, locals))


def runeval(expression: str, globals: dict[str, Any] | None = None, locals: dict[str, Any] | None = None) -> Any:
    """Evaluate an expression under the debugger, as `pdb.runeval`; returns its value."""
    now = session.current(prompt.make_debugger)
    now.arm()
    return now.debugger.runeval(expression, *namespaces(globals, locals))


def namespaces(globals: dict[str, Any] | None, locals: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The names to run in: `__main__`'s by default, as in pdb."""
    chosen = sys.modules["__main__"].__dict__ if globals is None else globals
    return chosen, chosen if locals is None else locals
