"""A long text -> the user's pager, until `q` or Ctrl-C ends it; neither reaches the program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

LESS = "-R -K"  # colours, and Ctrl-C ends it as q does
NOT_FOUND = 127  # a shell's status


def pager() -> str:
    """The command that pages: PAGER, or less; "" where there is none."""
    return os.environ.get("PAGER", "").strip() or shutil.which("less") or ""


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The pager's environment: the user's options of less, and those that it takes here."""
    return {**given, "LESS": f"{given.get('LESS', '')} {LESS}".strip()}


def show(text: str) -> bool:
    """Page a text in the terminal and wait for the pager's end; False where none could be started."""
    command = pager()
    if not command or os.environ.get("TERM", "dumb") == "dumb":
        return False
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", "replace") + b"\n")
        file.seek(0)
        own = own_terminal()
        apart = (
            {} if own is None else {"preexec_fn": os.setpgrp} if sys.version_info < (3, 11) else {"process_group": 0}
        )
        process = subprocess.Popen(command, shell=True, stdin=file, env=environment(os.environ), **apart)
        if own is None:
            return waited(process) != NOT_FOUND
        with in_front(own, process.pid):
            return waited(process) != NOT_FOUND


def own_terminal() -> int | None:
    """The terminal that this process is in front of, as a file descriptor; None where it is in front of none."""
    with suppress(OSError, ValueError, AttributeError):
        terminal = sys.__stdin__.fileno()  # type: ignore[union-attr]
        return terminal if os.tcgetpgrp(terminal) == os.getpgrp() else None
    return None


@contextmanager
def in_front(terminal: int, group: int) -> Iterator[None]:
    """Within the block, what is typed, Ctrl-C too, is for this group of processes."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # it would stop who takes the terminal back
    try:
        with suppress(OSError):  # it has ended already
            os.tcsetpgrp(terminal, group)
            os.killpg(group, signal.SIGCONT)  # it may have been too early
        yield
    finally:
        with suppress(OSError):
            os.tcsetpgrp(terminal, os.getpgrp())
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def waited(process: subprocess.Popen[Any]) -> int:
    """The status that a process ends with; one that is stopped (Ctrl-Z) goes on, for nobody could have it do so."""
    while True:
        try:
            if not hasattr(os, "WUNTRACED"):
                return process.wait()
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode
            os.killpg(os.getpgid(process.pid), signal.SIGCONT)
        except KeyboardInterrupt:  # the pager got it too; what it makes of that is its own affair
            continue
        except ChildProcessError:  # the program waits for all children itself
            process.returncode = 0
            return 0
