"""A line at the prompt -> a command carried out, whatever the user's classes, files and input streams do meanwhile."""

import bdb
import code
import os
import pdb
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tfdb import graphtext, render
from tfdb.commands.base import PromptBase


class ConsoleCommands(PromptBase):
    """What keeps a prompt open, closes it at the end of input, and keeps tfdb's own text to the terminal's width.

    In a terminal only: elsewhere, lines are for programs that search them.
    """

    fits: bool = False  # whether lines are to be broken: the terminal's debugger sets it
    unread: bool = False  # whether nobody can read what is printed, or type
    busy: int = 0  # the thread that is carrying out a command
    own: bool = False  # whether the command that is carried out is one of tfdb's

    def onecmd(self, line: str) -> bool:
        """Carry a command out; an error that it lets through, as from a class of the user's, leaves the prompt open."""
        before, self.own = self.own, self.is_own(line)
        outer, self.busy = self.busy, threading.get_ident()
        try:
            return bool(super().onecmd(line))
        except (bdb.BdbQuit, pdb.Restart):
            raise
        except Exception as error:
            self.error(f"{type(error).__name__}: {error}")
            return False
        finally:
            self.busy = outer
            self.own = before

    def is_own(self, line: str) -> bool:
        """Whether a line is a command of tfdb's, whose text is tfdb's too; `p` and the like print the program's."""
        name = (line.split() or [""])[0]
        function = getattr(type(self), f"do_{name}", None)
        return getattr(function, "__module__", "").startswith("tfdb.") and name not in ("interact", "a", "args")

    def message(self, msg: str) -> None:
        """Print text; of tfdb's own, no line wider than the terminal."""
        self.write(super().message, fitted(str(msg), render.terminal_width(), 2) if self.fits and self.own else msg)

    def tell(self, msg: str) -> None:
        """Print text of tfdb's that no command asked for."""
        self.write(super().message, fitted(str(msg), render.terminal_width(), 2) if self.fits else msg)

    def error(self, msg: str) -> None:
        """Print an error after `***`, no line wider than the terminal."""
        self.write(super().error, fitted(str(msg), render.terminal_width() - 4, 4).lstrip() if self.fits else msg)

    def write(self, writer: Callable[[str], None], text: str) -> None:
        """Print; where nobody can read it (a closed pipe, a full disk) the next prompt is the end of input."""
        try:
            writer(text)
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) and not self.stdout.closed:
                raise
            self.unread = True

    def cmdloop(self, intro: Any = None) -> None:
        """Read and carry out commands; where standard input or output is gone, it has come to the end of input."""
        try:
            if not self.unread:
                super().cmdloop(intro)
        except (ValueError, RuntimeError, OSError) as error:
            streams = sys.stdin, sys.stdout
            gone = isinstance(error, OSError) or any(stream is None or stream.closed for stream in streams)
            if not self.use_rawinput or not gone:
                raise
            self.message("standard input is closed: no more commands")
            self.unread = True
        if self.unread:
            self._user_requested_quit = True
            self.set_quit()

    def do_interact(self, arg: str) -> None:
        """interact

        A Python prompt whose names are those of the current frame, with the values of this pass.  End it with `exit()`
        or the end of input.

        Example:

            (tfdb) interact
            >>> tf.reduce_max(x)
        """
        if hasattr(self, "shell"):
            super().do_interact(arg)
            return
        names = {"exit": leave, "quit": leave, **self.curframe.f_globals, **self.curframe_locals}
        try:
            code.interact("*interactive*", local=names)
        except SystemExit:
            self.message("*exiting interactive console...*")

    def lookupmodule(self, filename: str) -> str | None:
        """The file that `b FILE:LINE` means: pdb's search, then beside the current file, then among loaded modules."""
        found = super().lookupmodule(filename)
        return found or next(files_called(filename, os.path.dirname(self.defaultFile())), None)


def fitted(text: str, width: int, indent: int) -> str:
    """The text with its long lines broken at spaces, their further parts indented; coloured lines stay as they are."""
    lines = []
    for line in text.split("\n"):
        deep = len(line) - len(line.lstrip()) + indent
        fine = len(line) <= width or "\x1b" in line
        lines.append(line if fine else graphtext.wrapped(line, width, min(deep, width // 2)))
    return "\n".join(lines)


def leave(status: object = None) -> None:
    """`exit()` of the interactive console; Python's own would close the standard input."""
    raise SystemExit(status)


def files_called(name: str, directory: str) -> Iterator[str]:
    """The files that a name or the end of a path stands for: in `directory`, then those of loaded modules."""
    name = os.path.normpath(name if name.endswith(".py") else name + ".py")
    if os.path.isfile(os.path.join(directory, name)):
        yield os.path.join(directory, name)
    for module in list(sys.modules.values()):
        filename = vars(module).get("__file__") if type(module) is type(sys) else None
        if isinstance(filename, str) and filename.endswith(os.sep + name) and "site-packages" not in filename:
            yield filename
