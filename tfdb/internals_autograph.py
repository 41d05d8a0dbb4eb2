"""AutoGraph's private source maps -> generated (file, line) to the user's (file, line, function)."""

import contextlib
import threading
from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from tfdb.internals import private


def generated_lines() -> Mapping[tuple[str, int], tuple[str, int, str]]:
    """AutoGraph's map for the code this thread is running: generated (file, line) -> user's (file, line, function)."""
    stacks = private("util.tf_stack", "_source_mapper_stacks")
    key = private("util.tf_stack", "_get_thread_key")()
    own = stacks[key][-1].get_effective_source_map() if key in stacks else {}
    return ChainMap(own, all_generated_lines()) if in_replica_thread() else own


def unconverted() -> contextlib.AbstractContextManager[Any]:
    """Within the block AutoGraph converts nothing: what is called runs as the user wrote it, in the user's frames."""
    status = private("autograph.core.ag_ctx", "Status").DISABLED
    made: contextlib.AbstractContextManager[Any] = private("autograph.core.ag_ctx", "ControlStatusCtx")(status)
    return made


def in_replica_thread() -> bool:
    """Whether this thread runs one replica of a distribution strategy: code that another thread has converted."""
    return "ReplicaThread" in type(threading.current_thread()).__name__


def replica_number() -> int | None:
    """Which replica of a distribution strategy this thread traces or runs, from 0; None outside."""
    if not in_replica_thread():
        return None
    context = private("distribute.distribute_lib", "get_replica_context")()
    number = getattr(context, "_replica_id_in_sync_group", None)
    return number if isinstance(number, int) else None


_generated: dict[str, Any] = {"count": 0, "lines": {}}


def all_generated_lines() -> dict[tuple[str, int], tuple[str, int, str]]:
    """The map for all that AutoGraph has converted."""
    converted = list(private("autograph.impl.api", "_TRANSPILER")._cache._cache.values())
    factories = [factory for each in converted for factory in list(each.values())]
    if len(factories) != _generated["count"]:
        _generated["count"] = len(factories)
        _generated["lines"] = {
            (place.filename, place.lineno): (origin.loc.filename, origin.loc.lineno, origin.function_name)
            for factory in factories
            for place, origin in (getattr(factory, "source_map", None) or {}).items()
        }
    return _generated["lines"]
