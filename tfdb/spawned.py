"""Worker processes that start anew (spawn, forkserver) -> `breakpoint()` in them is tfdb's, as in forked ones.

A fresh interpreter knows nothing of the debugger, and its `breakpoint()` would be pdb's, which dies without a
terminal.  Python reads PYTHONBREAKPOINT at each `breakpoint()`; workers get it with their environment.
"""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

VARIABLE = "PYTHONBREAKPOINT"
HOOK = "tfdb.set_trace"


def is_worker() -> bool:
    """Whether this process is a `multiprocessing` worker, which has its parent's terminal or none."""
    module = sys.modules.get("multiprocessing")
    return module is not None and module.parent_process() is not None


def starter() -> Any | None:
    """The module of whose `spawnv_passfds` all workers that start anew come, where this Python has one."""
    module = importlib.import_module("multiprocessing.util")
    return module if hasattr(module, "spawnv_passfds") else None


def telling(spawn: Callable[..., Any]) -> Callable[..., Any]:
    """A starter of processes that tells them whose `breakpoint()` is; a wish of the user's is left alone."""

    def spawnv_passfds(*args: Any) -> Any:
        if VARIABLE in os.environ:
            return spawn(*args)
        os.environ[VARIABLE] = HOOK
        try:
            return spawn(*args)
        finally:
            del os.environ[VARIABLE]

    return spawnv_passfds
