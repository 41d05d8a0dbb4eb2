"""Traces of tf.functions -> why each was needed: which argument changed, from what to what, and who called.

TensorFlow's own cache says what each trace was made for. A light record, made while tracing and at no other time, adds
the user's line that called and the order among functions.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from . import graphrecords, graphs, internals, internals_graphs, report
from .sourcemap import activations, is_hidden

MOST_EVENTS = 2000  # of one process; a program that traces more has shown its pattern
FOLDER = os.path.dirname(os.path.abspath(__file__))
OWN_TRACES = frozenset(
    os.path.join(FOLDER, f"{name}.py")
    for name in ("graphs", "trippedsteps", "refetch", "retrace", "rerun", "compare", "probes", "repro")
)
KERAS_STEPS = ("one_step_on_", "multi_step_on_")
LENGTH = re.compile(r"\[\d+\].*$")
OF_LISTS = "a list's length is part of the signature: stack it into one tensor (tf.stack, tf.ragged.stack)"
OF_STRUCTURES = "pass the same structure each time: list lengths, dict keys, which arguments are given"
MAKES_VARIABLES = "the first call makes variables, so TensorFlow traces twice: make them before, in __init__"
LONG_VALUE = 60  # characters of a Python value


@dataclass(frozen=True, slots=True)
class Event:
    """One trace as it was made: its number, the function's name and code, whose it is, and the record."""

    number: int
    name: str
    code: CodeType | None
    owner: int
    trace: graphrecords.Trace


stands_for: dict[int, int] = {}  # an instrumented twin's cache -> that of the user's function


def same_function(twin: Any, function: Any) -> None:
    """What the twin is about to be traced for counts as the user's function's."""
    stands_for[id(internals_graphs.cache_of(twin))] = id(internals_graphs.cache_of(function))


class Recorder:
    """Notes each trace of this process while installed; nothing is done when a traced function is called."""

    def __init__(self) -> None:
        self.patches = internals.Patches()
        self.events: list[Event] = []
        self.by_concrete: weakref.WeakKeyDictionary[Any, Event] = weakref.WeakKeyDictionary()
        self.numbers = itertools.count(1)
        self.owners: dict[int, int] = {}
        self.early: set[int] = set()  # caches whose twin was traced first
        self.serials = itertools.count(1)

    def install(self) -> None:
        """Note traces from now on.  Idempotent; `remove` undoes it."""
        if not self.patches.saved:
            self.patches.replace(*internals_graphs.tracing_door(), self.tracing)

    def remove(self) -> None:
        """Note no more; what was noted stays."""
        self.patches.remove()

    def tracing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The maker of one trace, noting it."""

        def create(function_type: Any, type_context: Any, func_graph: Any, tracing_options: Any) -> Any:
            owner = self.owner(tracing_options.function_cache)
            caller = calling_line(sys._getframe(1))
            concrete = original(function_type, type_context, func_graph, tracing_options)
            if len(self.events) < MOST_EVENTS and not is_own(sys._getframe(1)):
                context = context_text(internals_graphs.tracing_context(tracing_options))
                event = self.event(tracing_options, concrete, caller, owner, context)
                self.events.append(event)
                self.by_concrete[concrete] = event
            return concrete

        return create

    def owner(self, cache: Any) -> int:
        """A number for the function whose traces go to this cache; the cache's `id` may have been another's before.

        Must be asked before the trace goes there: an empty cache is a new function's.
        """
        own = id(cache)
        key = stands_for.pop(own, own)
        if key != own and key not in self.owners:
            self.owners[key] = next(self.serials)
            self.early.add(key)
        if key != own:
            self.owners[own] = self.owners[key]
        elif own in self.early:
            self.early.discard(own)
        elif own not in self.owners or (cache is not None and not len(cache)):
            self.owners[own] = next(self.serials)
        return self.owners[own]

    def event(self, options: Any, concrete: Any, caller: report.UserLine | None, owner: int, context: str) -> Event:
        """The record of a trace that was just made."""
        trace = graphrecords.Trace(leaves(concrete), context, caller)
        code = internals_graphs.traced_code(options)
        return Event(next(self.numbers), options.name, code, owner, trace)

    def of(self, function: Any) -> list[Event]:
        """The noted traces of a `tf.function`, of its instrumented twins too."""
        owner = self.owners.get(id(internals_graphs.cache_of(function)))
        return [event for event in self.events if event.owner == owner]

    def named(self, name: str) -> list[Event]:
        """The traces of the functions of this name, in order."""
        return [event for event in self.events if event.name == name]

    def groups(self) -> list[tuple[str, CodeType | None, list[Event]]]:
        """All traces by function, in the order of their first; of libraries' functions only Keras' own steps."""
        found: dict[Any, tuple[str, CodeType | None, list[Event]]] = {}
        for event in self.events:
            library = event.code is not None and is_hidden(event.code.co_filename)
            if library and not event.name.startswith(KERAS_STEPS):
                continue
            key = (event.name, event.owner if library else event.code)  # every model has its own step
            found.setdefault(key, (event.name, None if library else event.code, []))[2].append(event)
        return list(found.values())


def is_own(frame: Any) -> bool:
    """Whether it is tfdb that asked for the trace, for a look or a second run."""
    while frame is not None:
        if frame.f_code.co_filename in OWN_TRACES:
            return True
        frame = frame.f_back
    return False


def calling_line(frame: Any) -> report.UserLine | None:
    """The user's line that called the function which is about to be traced."""
    for activation in activations(frame):
        if not activation.hidden:
            return report.UserLine(activation.filename, activation.lineno, activation.function)
    return None


def leaves(concrete: Any) -> tuple[graphrecords.Leaf, ...]:
    """What each argument of a trace was, structures taken apart."""
    found = []
    for name, kind in internals_graphs.parameters(concrete):
        found += [leaf_of(path, each) for path, each in internals_graphs.leaves(kind, name)]
    return tuple(found)


def leaf_of(path: str, kind: Any) -> graphrecords.Leaf:
    """One leaf of an argument's type as a record."""
    name = type(kind).__name__
    if name == "Literal":
        return graphrecords.Leaf(path, "python", short(repr(kind.value)), type(kind.value).__name__)
    if name == "Weakref":
        value = internals_graphs.referent(kind)
        text = f"{type(value).__name__} object at {id(value):#x}" if value is not None else "an object that is gone"
        return graphrecords.Leaf(path, "object", text)
    if hasattr(kind, "dtype") and hasattr(kind, "shape"):
        shape = kind.shape
        sizes = None if shape is None or getattr(shape, "rank", 0) is None else tuple(shape)
        what = {"TensorSpec": "tensor", "VariableSpec": "variable"}.get(name, name.removesuffix("Spec").lower())
        made = graphrecords.TensorType(kind.dtype.name, sizes)
        return graphrecords.Leaf(path, what, str(made), made.dtype, made.shape)
    return graphrecords.Leaf(path, "structure", short(graphs.kind_text(kind)))


def short(text: str) -> str:
    """A Python value's text, cut."""
    return text if len(text) <= LONG_VALUE else text[: LONG_VALUE - 1] + "…"


def running_calls(functions: Sequence[Any], names: Sequence[str]) -> int:
    """How many of the graphs of these names, which are running now, are traces of one of the functions."""
    own = {concrete.name.decode() for function in functions for _, concrete in internals_graphs.contexts(function)}
    return sum(name in own for name in names)


def history(function: Any, twins: Sequence[Any], recorder: Recorder, running: int = 0) -> list[graphrecords.Trace]:
    """The traces of a `tf.function` in the order they were made, those of its instrumented twins counted once.

    `calls` is filled in where TensorFlow still counts them; it counts a call when that is over, so those that are
    `running` are added.
    """
    found: list[tuple[int, graphrecords.Trace]] = []
    for owner in (function, *twins):
        for key, concrete in internals_graphs.contexts(owner):
            event = recorder.by_concrete.get(concrete)
            known = replace(event.trace, context=context_text(key)) if event is not None else None
            found.append(
                (event.number if event else 0, known or graphrecords.Trace(leaves(concrete), context_text(key)))
            )
    numbers = {number for number, _ in found}
    found += [(event.number, event.trace) for event in recorder.of(function) if event.number not in numbers]
    unique: dict[Any, graphrecords.Trace] = {}
    for _, trace in sorted(found, key=lambda each: each[0]):
        unique.setdefault((trace.leaves, trace.context), trace)
    made = list(unique.values())
    counts = internals_graphs.calls_per_trace(function)
    if counts is not None and len(counts) == len(made):
        counts[-1] += running
        made = [replace(trace, calls=count) for trace, count in zip(made, counts, strict=True)]
    return made


def distinct(events: Iterable[Event]) -> list[graphrecords.Trace]:
    """The traces of noted events, each signature once for each function object."""
    return list({(event.owner, event.trace.leaves, event.trace.context): event.trace for event in events}.values())


def context_text(key: Any) -> str:
    """What of a trace's context is not plain: the variables' creation, a device, a strategy, an outer graph, XLA."""
    context: Any = getattr(key, "context", None)
    parts = []
    if getattr(getattr(key, "scope_type", None), "name", "") == "NO_VARIABLE_CREATION":
        parts.append("after the first call made its variables")
    if getattr(context, "parent_graph", None) is not None:
        parts.append(f"inside the graph {getattr(context.parent_graph, 'name', '')}".rstrip())
    if getattr(context, "device_functions", ()):
        parts.append(f"on device {', '.join(map(str, context.device_functions))}")
    if getattr(context, "in_cross_replica_context", False):
        parts.append("in a strategy's cross-replica context")
    if getattr(context, "xla_context_id", 0):
        parts.append("inside an XLA context")
    return ", ".join(parts)


def explain(traces: Sequence[graphrecords.Trace]) -> list[tuple[graphrecords.Change, ...]]:
    """For each trace, what kept the earlier ones from serving; the first has none.

    A trace is compared with the earlier one that it differs least from, the latest of those.
    """
    found: list[tuple[graphrecords.Change, ...]] = [()] if traces else []
    for n, trace in enumerate(traces[1:], 1):
        candidates = [changes(earlier, trace) for earlier in reversed(traces[:n])]
        found.append(min(candidates, key=len))
    return found


def changes(before: graphrecords.Trace, after: graphrecords.Trace) -> tuple[graphrecords.Change, ...]:
    """What differs between two traces."""
    old, new = ({leaf.path: leaf for leaf in trace.leaves} for trace in (before, after))
    found = []
    for path in [*old, *(path for path in new if path not in old)]:
        one, other = old.get(path), new.get(path)
        if one != other:
            old_text, new_text = (leaf.text if leaf else "absent" for leaf in (one, other))
            found.append(graphrecords.Change(path, old_text, new_text, kind_of(one, other)))
    if before.context != after.context:
        kind = "variables" if "made its variables" in after.context + before.context else "context"
        found.append(
            graphrecords.Change("context", before.context or "an eager call", after.context or "an eager call", kind)
        )
    return tuple(found)


def kind_of(one: graphrecords.Leaf | None, other: graphrecords.Leaf | None) -> str:
    """What sort of difference it is: shape, rank, dtype, python, object, type or structure."""
    if one is None or other is None or "structure" in (one.kind, other.kind):
        return "structure"
    if one.kind != other.kind:
        return "type"
    if one.kind in ("python", "object"):
        return one.kind
    if one.dtype != other.dtype:
        return "dtype"
    return (
        "shape" if one.shape is not None and other.shape is not None and len(one.shape) == len(other.shape) else "rank"
    )


def general_shape(shapes: Iterable[tuple[int | None, ...] | None]) -> tuple[int | None, ...] | None:
    """The shape that takes all of these: None where sizes differ; None for shapes of several ranks."""
    known = list(shapes)
    if any(shape is None for shape in known) or len({len(shape) for shape in known if shape is not None}) != 1:
        return None
    columns = zip(*(shape for shape in known if shape is not None), strict=True)
    return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in columns)


def advice(traces: Sequence[graphrecords.Trace], reduces: bool, has_signature: bool) -> list[str]:
    """What to do against the retraces, one sentence for each argument at fault."""
    by_path: dict[str, set[str]] = {}
    for each in explain(traces):
        for change in each:
            by_path.setdefault(change.path, set()).add(change.kind)
    by_text: dict[str, list[str]] = {}
    for path, kinds in by_path.items():
        name, _, rest = advise(path, kinds, traces, reduces, has_signature).partition(": ")
        names = by_text.setdefault(rest or name, [])
        if (name if rest else "") not in names:
            names.append(name if rest else "")
    return [f"{', '.join(names)}: {text}" if names[0] else text for text, names in by_text.items()]


def advise(path: str, kinds: set[str], traces: Sequence[graphrecords.Trace], reduces: bool, has_signature: bool) -> str:
    """What to do about one argument."""
    seen = [leaf for trace in traces for leaf in trace.leaves if leaf.path == path]
    if kinds & {"shape", "rank"}:
        shape = general_shape(leaf.shape for leaf in seen if leaf.shape is not None)
        if reduces and shape is not None and seen[-1].shape == shape:
            return f"{path}: reduce_retracing has widened it to {seen[-1].text}, which takes all these shapes"
        dtypes = Counter(leaf.dtype for leaf in seen)
        usual = dtypes.most_common(1)[0][0]
        spec = f"tf.TensorSpec({list(shape) if shape is not None else None}, tf.{usual})"
        other = "" if reduces else f" or {'drop the input_signature' if has_signature else 'reduce_retracing=True'}"
        more = f"; convert the others to {usual} before the call" if len(dtypes) > 1 else ""
        if is_smaller_last_batch(seen):
            more += "; or leave the smaller last batch out: batch(…, drop_remainder=True)"
        return f"{path}: input_signature with {spec}{other} takes all these shapes in one trace{more}"
    if "python" in kinds or ("type" in kinds and any(leaf.kind == "python" for leaf in seen)):
        return f"{path}: {of_python_values(path, [leaf for leaf in seen if leaf.kind == 'python'], 'type' in kinds)}"
    if kinds == {"structure"} and LENGTH.search(path):
        return f"{LENGTH.sub('', path)}: {OF_LISTS}"
    return {
        "dtype": f"{path}: convert to one dtype before the call (tf.cast, or numpy arrays of one dtype)",
        "object": f"{path}: each new object is traced anew; make it once and reuse it, or pass its tensors",
        "type": f"{path}: pass the same type each time, a tensor rather than a Python value",
        "structure": f"{path}: {OF_STRUCTURES}",
        "variables": MAKES_VARIABLES,
        "context": f"called {traces[-1].context or 'in another context'}: each device or outer graph needs a trace",
    }[next(iter(sorted(kinds)))]


def is_smaller_last_batch(seen: Sequence[graphrecords.Leaf]) -> bool:
    """Whether two shapes differ in their first size alone, the later one smaller."""
    shapes = list(dict.fromkeys(leaf.shape for leaf in seen))
    if len(shapes) != 2 or not all(shapes):
        return False
    (first, *one), (last, *other) = ([*(shape or ())] for shape in shapes)
    return one == other and first is not None and last is not None and last < first


def of_python_values(path: str, seen: Sequence[graphrecords.Leaf], mixed: bool) -> str:
    """What to do about an argument that was given Python values, with `mixed` tensors too."""
    kinds = {leaf.dtype for leaf in seen}
    if kinds == {"NoneType"}:
        return "None and a tensor are two graphs, as an optional argument needs; a neutral tensor instead makes it one"
    if mixed:
        return f"pass the same type each time: tf.constant({path}) rather than a Python value"
    if kinds <= {"int", "float"}:
        return f"a Python value is part of the graph; pass a tensor, tf.constant({path})"
    if kinds <= {"bool", "NoneType"}:
        return "each of its values has a graph of its own, as a switch needs"
    return "a Python value is part of the graph; each value needs its own graph: pass few different ones"


def file_of(code: CodeType | None) -> str:
    """Where a function is, as text."""
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""
