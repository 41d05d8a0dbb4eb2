"""One call, run eagerly, as a graph and by XLA from the same inputs and state -> where the results part, and why.

"Equal" means equal up to rounding: `ROUNDING` times the largest magnitude of either side, by dtype, NaN and the
infinities in the same places.  The factors are some hundred units in the last place of a float32, as sums in another
order give, and a few units of the half-precision types.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tfdb import frozen, internals_gate, internals_rerun, probes, render, state
from tfdb.probes import EagerOp, Logged, Node, Probe, Trace
from tfdb.rerun import Target
from tfdb.state import PythonState

ROUNDING = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2, "complex64": 2e-5, "complex128": 1e-9}
WAYS = ("eager", "graph", "XLA")
GATHERS = ("GatherV2", "ResourceGather", "Gather")
HALF = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Way:
    """How one way of running the call ended: named results, or the error; `ungraded` is why there are no gradients."""

    name: str
    results: Mapping[str, np.ndarray] = field(default_factory=dict)
    error: Exception | None = None
    ungraded: Exception | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """How an array differs from another: `kind` is same, rounding, differs, unlike (dtype or shape) or missing."""

    kind: str
    count: int = 0
    largest: float = 0.0
    index: tuple[int, ...] = ()
    first: Any = None
    second: Any = None

    @property
    def matters(self) -> bool:
        """Whether it is more than rounding."""
        return self.kind in ("differs", "unlike")


@dataclass(frozen=True, slots=True)
class Parting:
    """The first op whose results differ between two ways although its inputs do not."""

    ways: tuple[str, str]
    op: str
    forward: str
    line: probes.Line | None
    difference: Difference
    cause: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of it: `rows` give for each result its difference from the first way that ran (`base`)."""

    target: Target
    ways: tuple[Way, ...]
    base: str
    rows: tuple[tuple[str, Mapping[str, Difference]], ...]
    partings: tuple[Parting, ...]
    findings: tuple[str, ...]
    notes: tuple[str, ...]


def difference(first: Any, second: Any, coarse: float = 0.0) -> Difference:
    """How `second` differs from `first`; `coarse` is a rounding to allow whatever the dtype."""
    a, b = np.asarray(first), np.asarray(second)
    if a.dtype != b.dtype or a.shape != b.shape:
        return Difference("unlike", first=f"{a.dtype}{a.shape}", second=f"{b.dtype}{b.shape}")
    if a.dtype.kind in "OSU" or a.size == 0:
        return Difference("same" if np.array_equal(a, b) else "differs", int(np.sum(a != b)))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        gap = np.abs(x - y)
        equal = (x == y) | (np.isnan(x) & np.isnan(y))
        gap = np.where(equal, 0.0, np.where(np.isnan(gap), np.inf, gap))
        sizes = np.abs(np.concatenate([x.ravel(), y.ravel()]))
    if equal.all():
        return Difference("same", first=worst(a) if a.dtype.kind != "c" else "")
    finite = sizes[np.isfinite(sizes)]
    floating = a.dtype.name in ROUNDING
    allowed = max(ROUNDING[a.dtype.name], coarse) * float(finite.max(initial=0.0)) if floating else 0.0
    beyond = gap > allowed
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(beyond if beyond.any() else gap)), a.shape))
    kind = "differs" if beyond.any() else "rounding"
    count = int(beyond.sum()) if beyond.any() else int((gap > 0).sum())
    return Difference(kind, count, float(gap.max()), place, a[place].item(), b[place].item())


def compare(
    target: Target, aside: Callable[[], contextlib.AbstractContextManager[Any]], twins: Sequence[Any] = ()
) -> Comparison:
    """Run the call in all three ways; all state is put back after each.

    Within `aside()` the program's functions must be traced and run as without a debugger.  `twins` are `tf.function`s
    to which the call may have gone in the place of the program's own.
    """
    notes = list(target.notes)
    python = PythonState.take(frozen.places(target.function))
    try:
        with aside(), state.set_aside(target.at_call):
            given, error = traced(target, twins, notes)
        names = [name for name, _ in given.sources] if given is not None else []
        eager, logged = eagerly(target, names)
        ways = [eager]
        for name in WAYS[1:]:
            ways.append(Way(name, error=error) if given is None else as_graph(name, given, target, eager, aside))
        coarse = coarsest(given) if given is not None else 0.0
        base, rows = differences(ways, coarse)
        strays = {name for _, row in rows for name, gap in row.items() if gap.matters}
        found, findings = partings(target, given, ways, logged, aside, strays) if given is not None else ([], [])
        return Comparison(target, tuple(ways), base, tuple(rows), tuple(found), tuple(findings), tuple(notes))
    finally:
        python.put()


def traced(target: Target, twins: Sequence[Any], notes: list[str]) -> tuple[Trace | None, Exception | None]:
    """The program's own trace of the call, or a new one where there is none; the error if none can be made."""
    import tensorflow as tf

    known = [each for each in (target.wrapped, *reversed(twins)) if each is not None and internals_rerun.traces(each)]
    function = known[0] if known else tf.function(target.function, input_signature=target.signature or None)
    try:
        had = len(internals_rerun.traces(function))
        given = probes.trace(function, target.args, target.kwargs)
        if len(internals_rerun.traces(function)) > had and target.wrapped is not None:
            notes.append("traced anew for this: Python values are those of now, not of the call")
        if given.concrete.graph.trainable_variables and internals_rerun.writes(given.concrete.graph):
            given = replace(given, sources=())
        return given, None
    except Exception as error:
        return None, error


def eagerly(target: Target, by: list[str]) -> tuple[Way, list[EagerOp]]:
    """The eager way, with gradients by the inputs of these names, and the log of its ops."""
    import tensorflow as tf

    args, kwargs = tf.nest.map_structure(as_tensor, (target.args, target.kwargs))
    log = Logged()
    with state.set_aside(target.at_call) as began:
        try:
            with tf.GradientTape() as tape:
                floats = [t for t in tf.nest.flatten((args, kwargs), expand_composites=True) if is_float(t)]
                tape.watch(floats)
                with log:
                    value = target.function(*args, **kwargs)
                leaves = [t for t in tf.nest.flatten(value, expand_composites=True) if t is not None]
                outputs = [tf.convert_to_tensor(leaf) for leaf in leaves]
                chosen = [output for output in outputs if output.dtype.is_floating]
            names = state.names(tape.watched_variables())
            weights = {names[id(variable)]: variable for variable in tape.watched_variables()}
            sources = [weights[name] if name in weights else floats.pop(0) for name in by if name in weights or floats]
            found = tape.gradient(chosen, sources) if chosen and sources else []
            gradients = {n: tf.convert_to_tensor(g) for n, g in zip(by, found, strict=False) if g is not None}
            return Way("eager", results(output_names(value, len(outputs)), outputs, gradients, began)), log.ops
        except Exception as error:
            return Way("eager", error=error), log.ops


def as_graph(name: str, given: Trace, target: Target, eager: Way, aside: Callable[[], Any]) -> Way:
    """The graph, run as it is or by XLA."""
    with aside(), state.set_aside(target.at_call) as began:
        try:
            made, ungraded = run(given, name == "XLA")
            names = [key for key in eager.results if key.startswith("output")]
            if len(names) != len(made.outputs):
                names = output_names(None, len(made.outputs))
            return Way(name, results(names, made.outputs, made.gradients, began), ungraded=ungraded)
        except Exception as error:
            return Way(name, error=error)


def run(given: Trace, xla: bool) -> tuple[Probe, Exception | None]:
    """The graph with its gradients, or without them and why: so that the graph's own error, if any, comes out."""
    try:
        return probes.run(given, xla=xla), None
    except Exception as error:
        return probes.run(replace(given, sources=()), xla=xla), error


def results(names: list[str], outputs: Any, gradients: Mapping[str, Any], began: state.State) -> dict[str, np.ndarray]:
    """Outputs, gradients and updates of one way, by name."""
    found = {name: np.array(value) for name, value in zip(names, outputs, strict=True)}
    found.update({f"gradient by {name}": np.array(value) for name, value in gradients.items()})
    known = state.names(began.variables())
    found.update({f"update of {known[id(variable)]}": np.array(now) for variable, _, now in state.changed(began)})
    return found


def output_names(value: Any, count: int) -> list[str]:
    """A function's outputs by name: a dict's keys, else numbers."""
    if isinstance(value, dict) and len(value) == count:
        return [f"output {key!r}" for key in sorted(value)]
    return ["output"] if count == 1 else [f"output {index}" for index in range(count)]


def as_tensor(value: Any) -> Any:
    """A numpy array as the tensor that a graph takes in its place; other values as they are."""
    import tensorflow as tf

    return tf.convert_to_tensor(value) if isinstance(value, np.ndarray) else value


def is_float(value: Any) -> bool:
    """Whether a value is a floating tensor."""
    return internals_gate.is_symbolic_eagerly(value) and value.dtype.is_floating


def coarsest(given: Trace) -> float:
    """The rounding of the least precise floats in a trace."""
    dtypes = {tensor.dtype.name for op in given.concrete.graph.get_operations() for tensor in op.outputs}
    return max([ROUNDING[name] for name in dtypes & ROUNDING.keys()], default=0.0)


def differences(ways: list[Way], coarse: float) -> tuple[str, list[tuple[str, dict[str, Difference]]]]:
    """The way that others are held against, and each result's difference from it."""
    base = next((way for way in ways if way.error is None), None)
    if base is None:
        return "", []
    others = [way for way in ways if way is not base and way.error is None]
    names = list(dict.fromkeys(name for way in [base, *others] for name in way.results))
    missing = Difference("missing")
    rows = []
    for name in names:
        row = {}
        for way in others:
            there = name in base.results and name in way.results
            row[way.name] = difference(base.results[name], way.results[name], coarse) if there else missing
        rows.append((name, row))
    return base.name, rows


def partings(
    target: Target, given: Trace, ways: list[Way], logged: list[EagerOp], aside: Callable[[], Any], strays: set[str]
) -> tuple[list[Parting], list[str]]:
    """The first ops that differ between eager and graph and between graph and XLA, and what XLA passed over.

    `strays` are the ways of which a result differs from the first way's by more than rounding: only for them is there
    an op to look for.
    """
    eager, graph, xla = ways
    every, operations = {}, given.concrete.graph.get_operations()
    for way in (graph, xla) if strays else (xla,) if any(map(is_checked, operations)) else ():
        if way.error is None:
            with aside(), state.set_aside(target.at_call), contextlib.suppress(Exception):
                of_ops = probes.all_ops if strays else is_checked
                every[way.name] = probes.run(given, xla=way is xla, of_ops=of_ops)
    found, findings, coarse = [], [], coarsest(given)
    if "graph" in every and eager.error is None and "graph" in strays:
        found += eager_parting(target, logged, every["graph"], given, coarse)
        findings += [] if found else [f"op by op the graph agrees with eager code: {optimised('Grappler', coarse)}"]
    if "graph" in every and "XLA" in every and strays and apart(graph, xla, coarse):
        parted = xla_parting(every["graph"], every["XLA"], coarse)
        findings += [] if parted else [f"op by op XLA agrees with the graph: {optimised('XLA', coarse)}"]
        found += parted
    findings += unchecked(every["XLA"]) if "XLA" in every else ()
    return found, list(dict.fromkeys(findings))


def optimised(optimiser: str, coarse: float) -> str:
    """Why a whole graph may give other numbers than its ops do one by one."""
    half = " (in half precision it overflows and rounds elsewhere then)" if coarse >= ROUNDING["float16"] else ""
    return f"the difference comes from {optimiser} rearranging the arithmetic of the whole{half}"


def apart(first: Way, second: Way, coarse: float) -> bool:
    """Whether any result of two ways differs by more than rounding."""
    names = first.results.keys() & second.results.keys()
    return any(difference(first.results[name], second.results[name], coarse).matters for name in names)


def eager_parting(target: Target, logged: list[EagerOp], graph: Probe, given: Trace, coarse: float) -> list[Parting]:
    """Where the graph's values leave the eager ones."""
    constants = {op.name for op in given.concrete.graph.get_operations() if op.type == "Const"}
    for op, node in probes.paired(logged, graph.nodes):
        outputs = [graph.tensors.get(f"{node.name}:{i}") for i in range(len(op.outputs))]
        for here, there in zip(op.outputs, outputs, strict=True):
            if there is not None and (gap := difference(here, there, coarse)).matters:
                cause = frozen_cause(target, op, node, graph, constants)
                return [Parting(("eager", "graph"), node.op, "", node.line, gap, cause)]
    lines = {node.line[:2] for node in graph.nodes if node.line is not None}
    extra = next((op for op in logged if op.line is not None and op.line[:2] not in lines), None)
    if extra is None:
        return []
    cause = "the graph has no op of this line: it was traced another way, or runs it inside a loop or branch"
    return [Parting(("eager", "graph"), extra.op, "", extra.line, Difference("unlike"), cause)]


def frozen_cause(target: Target, op: EagerOp, node: Node, graph: Probe, constants: set[str]) -> str:
    """Why an op of the graph gave another value: the constant among its inputs that eager code has otherwise now."""
    for value, name in zip(op.inputs, node.inputs, strict=False):
        there = graph.tensors.get(name)
        if there is None or name.partition(":")[0] not in constants or not difference(value, there).matters:
            continue
        now = np.asarray(value)
        name = next((each.name for each in frozen.frozen(target.function) if is_now(each.value, now)), "a Python value")
        return f"{name} was frozen at tracing: the graph holds {brief(there)}, eager code reads {brief(now)} now"
    return "from the same inputs"


def is_now(value: Any, array: np.ndarray) -> bool:
    """Whether a Python value is what an op got as this array."""
    try:
        return bool(np.array_equal(np.asarray(value, array.dtype), array))
    except (TypeError, ValueError):
        return False


def xla_parting(graph: Probe, xla: Probe, coarse: float) -> list[Parting]:
    """Where XLA's values leave the graph's."""
    for node in graph.nodes:
        names = [name for name in graph.tensors if name.rpartition(":")[0] == node.name]
        for name in names:
            gap = difference(graph.tensors[name], xla.tensors.get(name, np.empty(0)), coarse)
            if gap.matters:
                return [Parting(("graph", "XLA"), node.op, node.forward, node.line, gap, inputs_at(node, graph, gap))]
    return []


def inputs_at(node: Node, graph: Probe, gap: Difference) -> str:
    """The op's inputs at the place where its result differs."""
    parts = []
    for name in node.inputs:
        value = graph.tensors.get(name)
        if value is not None and gap.index and value.ndim == len(gap.index) and not value.dtype.name == "bool":
            with contextlib.suppress(IndexError):
                parts.append(brief(value[gap.index]))
        elif value is not None and value.ndim == 0:
            parts.append(brief(value))
    near = [graph.tensors[name] for name in (*node.inputs, f"{node.name}:0") if name in graph.tensors]
    half = next((value.dtype.name for value in near if value.dtype.name in HALF), "")
    told = f"from the inputs {', '.join(parts)}" if parts else "from the same inputs"
    return f"{told}; computed in {half}, which XLA may widen" if half else told


def is_checked(op: Any) -> bool:
    """Whether an op is one that XLA may pass over without a word."""
    return op.type in (*GATHERS, "CheckNumerics", "Assert") or "AssertGuard" in op.name


def unchecked(xla: Probe) -> Iterator[str]:
    """What XLA passed over without a word: indices that it clamped, checks that it left out."""
    for node in xla.nodes:
        where = f"line {node.line[1]} ({os.path.basename(node.line[0])})" if node.line is not None else node.name
        values = [xla.tensors.get(name) for name in node.inputs]
        if node.op in GATHERS and len(values) > 1 and values[0] is not None and values[1] is not None:
            axis = int(values[2]) if len(values) > 2 and values[2] is not None else 0
            yield from clamped(node.op, where, values[1], values[0].shape[axis])
        elif node.op == "CheckNumerics" and values[0] is not None and worst(values[0]):
            yield f"XLA drops CheckNumerics of {where}: its input holds {worst(values[0])}, and nothing is raised"
        elif (node.op == "Assert" or "AssertGuard" in node.name) and values[0] is not None and not values[0].all():
            yield f"XLA drops the assertion of {where}: it does not hold, and nothing is raised"


def clamped(op: str, where: str, indices: np.ndarray, size: int) -> Iterator[str]:
    """The first index outside of 0 to size-1, if any."""
    bad = (indices < 0) | (indices >= size)
    if bad.any():
        place = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), indices.shape))
        at = f" at {list(place)}" if place else ""
        yield (f"XLA clamps indices in {op} of {where}: index {indices[place]}{at} is outside of 0 to {size - 1}, "
               f"and is read as {int(np.clip(indices[place], 0, size - 1))} ({int(bad.sum())} in all)")  # fmt: skip


def worst(array: np.ndarray) -> str:
    """What is not finite in an array, nan first; "" when all is."""
    wide = array.astype(np.float64)
    return "" if np.isfinite(wide).all() else "nan" if np.isnan(wide).any() else "inf"


def brief(value: Any) -> str:
    """A scalar or small array in few characters."""
    array = np.asarray(value)
    if array.size == 1:
        return render.number(array.item())
    if array.size > 4:
        return f"{array.dtype.name}{array.shape}"
    return np.array2string(array, precision=4, separator=", ", threshold=8)
