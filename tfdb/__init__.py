"""tfdb: ipdb for TensorFlow. Breakpoints, values and NaN hunts inside compiled graphs.

The names below load what they need on first use; `import tfdb` alone imports neither TensorFlow nor IPython.
"""

import importlib
import sys
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "iex", "launch_tfdb_on_exception", "pm", "post_mortem", "run", "runcall", "runeval", "set_trace", "summary",
    "unwatch", "watch",
]  # fmt: skip

_HOMES = {
    "run": "entry", "runcall": "entry", "runeval": "entry", "watch": "entry", "unwatch": "entry", "summary": "tensors",
    "post_mortem": "uncaught", "pm": "uncaught", "launch_tfdb_on_exception": "uncaught", "iex": "uncaught",
}  # fmt: skip


def set_trace(cond: Any = True, context: int | None = None) -> None:
    """Stop here: at once in eager code, at every run of this point in code that is being traced into a graph.

    Args:
        cond: a Python bool, or in traced code a scalar bool tensor that decides at each run.
        context: lines of source to show around the stop.
    """
    from tfdb import entry

    entry.set_trace(cond, context, sys._getframe(1))


set_trace.autograph_info__ = None  # type: ignore[attr-defined]  # AutoGraph must call it as it is


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"tfdb.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tfdb' has no attribute {name!r}")
