"""Breakpoints in files that no search path leads to yet -> they wait for the module to be imported."""

import bdb
import linecache
import os
from collections.abc import Iterator
from typing import Any

from tfdb import syntax
from tfdb.commands.base import PromptBase

PENDING = "<pending:"
COMMAND_TABLES = ("commands", "commands_doprompt", "commands_silent")  # pdb's, by the breakpoint's number


def awaited(name: str) -> tuple[str, int] | None:
    """The end of a path and the line that the file name of a pending breakpoint stands for; None for other names."""
    if not name.startswith(PENDING):
        return None
    path, _, line = name[len(PENDING) : -1].rpartition(":")
    return path, int(line)


def ends_with(path: str, end: str) -> bool:
    """Whether the last parts of a path are these."""
    return os.path.normpath(path).endswith(os.sep + os.path.normpath(end))


class PendingBreakpoints(PromptBase):
    """`b FILE:LINE` before FILE can be found; in pdb's own table, so that `cl`, `disable`, ... work."""

    def pending_place(self, place: str) -> str | None:
        """The file name of a pending breakpoint for `FILE:LINE`, when FILE is nowhere; None when it can be found."""
        path, _, line = place.rpartition(":")
        path = path.strip()
        if not path or not line.strip().isdigit() or os.path.isabs(path) or self.lookupmodule(path) is not None:
            return None
        return f"{PENDING}{path if path.endswith('.py') else path + '.py'}:{line.strip()}>"

    def pending(self) -> Iterator[bdb.Breakpoint]:
        """The breakpoints that wait."""
        for name in [name for name in self.breaks if name.startswith(PENDING)]:
            yield from bdb.Breakpoint.bplist.get((name, 0), [])

    def module_found(self, filename: str) -> None:
        """A module is about to be imported from this file: set the breakpoints that wait for it."""
        for waiting in list(self.pending()):
            end, line = awaited(waiting.file) or ("", 0)
            if not ends_with(filename, end):
                continue
            lineno = syntax.first_line("".join(linecache.getlines(filename)), line)
            error = self.set_break(filename, lineno, waiting.temporary, waiting.cond)
            self.clear_bpbynumber(waiting.number)
            if error:
                self.error(error)
                continue
            made = self.get_breaks(filename, lineno)[-1]
            made.enabled, made.ignore = waiting.enabled, waiting.ignore
            tables: list[dict[int, Any]] = [vars(self).get(name, {}) for name in COMMAND_TABLES]
            for table in tables:
                if waiting.number in table:
                    table[made.number] = table.pop(waiting.number)
            self.message(f"Breakpoint {made.number}, pending until now as {waiting.number}, at {filename}:{made.line}")

    def note_pending(self) -> None:
        """The program is over: name the breakpoints whose file was never imported."""
        for waiting in self.pending():
            self.message(f"breakpoint {waiting.number} waited for {waiting.file[len(PENDING) : -1]}: never imported")
