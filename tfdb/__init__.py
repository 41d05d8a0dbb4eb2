"""tfdb: ipdb for TensorFlow. Breakpoints, values and NaN hunts inside compiled graphs.

The names below load what they need on first use; `import tfdb` alone imports neither TensorFlow nor IPython.

So do the modules in `_LATER`: `from tfdb import graphs` loads `graphs` when something in it is first used, while
`from tfdb.graphs import Source` loads it at once.  A program that only runs on to a breakpoint never needs them.
"""

import importlib
import sys
from types import ModuleType
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
_LATER = frozenset(
    """
    asked blocks causes compare compiled completion conditions cuts cuttext detours differences doors eagerly
    edges elements evaluation evidence executions explain explanations explanations_data failures flows
    forwardops forwards frozen gate gradhistory gradrows gradtable graphdot graphrecords graphs graphtext halted
    internals_datasets internals_errors internals_events internals_gradients internals_norms
    internals_numerics kerasfacts leaks listing lostgrads masks misuses near nonegrads normexpr normgate normlook
    normreport norms normscopes normslopes numericfaults operands opwise origin origins passgrads pathways pipelines
    plots postmortem probes reach rebuild recorder refetch render replay replaying replicas repro rerun retrace
    retracetext scenes screens sites skips sources state steps steptraces structures summarize symbols taperecords tapes
    tensors thresholds told traceable tracingonly trippedsteps tripreports turns uncaught values varnames watching
    watchstops writes
    """.split()
)


class _Later(ModuleType):
    """Stands for a module of this package until it is used, and passes everything on to it from then on."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return vars(importlib.import_module(self.__name__))

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(importlib.import_module(self.__name__), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(importlib.import_module(self.__name__), name)


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
    if name in _LATER:
        return _Later(f"tfdb.{name}")
    raise AttributeError(f"module 'tfdb' has no attribute {name!r}")
