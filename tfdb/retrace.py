"""A function traced once more -> the Scene at an op that failed: the user's frames there, with the pass's values.

One hook is planted before the op, and one in the graph of each function around it, for the frames there.  The hook
tries the op on its inputs; when it fails, the pass is found and the run is over.
"""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfdb import internals, internals_errors, internals_layers
from tfdb.frames import Carrier, Filled, LiveFrame, TracedFrame, live
from tfdb.linehooks import traced_stack
from tfdb.origins import known_names, name_of, origin, variable_shape
from tfdb.sourcemap import Activation

SILENT = ("PrintV2", "WriteSummary", "WriteScalarSummary", "WriteImageSummary", "WriteHistogramSummary", "WriteFile")
GRADIENT = re.compile(r".*(?:^|/)(?:gradient_tape(?:_\d+)?|gradients)/(.+)/[^/]+$")  # TensorFlow's name scopes
SOURCES = ("Placeholder", "Const", "NoOp")
SAFE = ("Assert", "CheckNumerics", "ResourceGather", "ResourceGatherNd", "ReadVariableOp")


@dataclass(frozen=True, slots=True)
class Input:
    """One input of the failing op: its name in the op's definition, the user's name for it ("" for none), its value
    the user's line that made it ("" where none is known), and of a variable's handle the variable's shape."""

    argument: str
    name: str
    value: Any
    origin: str
    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """The failing op with the values of the failing pass; `frames` are outermost first, inside the graph only.

    `certain` says that the op was seen to fail on these inputs; otherwise it is the last pass before the failure.
    `layer` is the Keras layer that the op is inside of; `error` is the text of the error there, where it is not the one
    that was looked for.
    """

    op: str
    node: str
    inputs: tuple[Input, ...]
    frames: tuple[LiveFrame, ...]
    certain: bool
    gradient: "Gradient | None" = None
    error: str = ""
    layer: Any = None


@dataclass(frozen=True, slots=True)
class Gradient:
    """For an op of a gradient: the type of the op it is the gradient of, its node and its graph's name."""

    forward: str
    node: str
    graph: str


@dataclass(frozen=True, slots=True)
class Target:
    """The op looked for: its node's name in the message, and the user's line that made it, if the message says so.

    `dry`: the op is not tried, the first pass that comes to it is taken (it wants more memory than there is).
    `gradient`: what is known of it when it is an op of a gradient; the frames are then those of its forward op.
    """

    node: str
    place: tuple[str, int] | None = None
    dry: bool = False
    gradient: Gradient | None = None

    @property
    def suspects(self) -> set[str]:
        """The nodes that the failing one may be the gradient of: shapes that do not fit fail in both, in any order."""
        found = GRADIENT.match(self.node)
        parts = [part.removesuffix("_grad") for part in found[1].split("/")] if found else []
        return {"/".join(parts[:last]) for last in range(1, len(parts) + 1)}


class Reached(Exception):
    """The failing pass has been seen: ends the second run."""


@dataclass(slots=True)
class Level:
    """One function graph around the failing op: the hook's frames there and the values it brought last."""

    frames: list[TracedFrame]
    values: Sequence[Any] = ()


@dataclass(slots=True)
class Spot:
    """A traced op that may be the failing one."""

    op: str
    node: str
    arguments: tuple[str, ...]
    names: tuple[str, ...]
    origins: tuple[str, ...]
    shapes: tuple[tuple[int | None, ...] | None, ...]
    levels: list[Level] = field(default_factory=list)
    gradient: Gradient | None = None
    suspect: bool = False
    layer: Any = None

    def scene(self, values: Sequence[Any], certain: bool) -> Scene:
        """What a hit of the hook saw; `values` are the op's inputs."""
        inputs = tuple(map(Input, self.arguments, self.names, values, self.origins, self.shapes))
        return Scene(self.op, self.node, inputs, tuple(merged(self.levels)), certain, self.gradient, "", self.layer)


def merged(levels: Sequence[Level]) -> Iterator[LiveFrame]:
    """The frames with the values of every level: a name is filled by the innermost level that can see its tensors."""
    for number, frame in enumerate(levels[0].frames):
        made = live(frame, levels[0].values)
        for level in levels[1:]:
            outer = level.frames[number]
            for name, part in outer.locals.items():
                if isinstance(part, Filled) and not isinstance(frame.locals.get(name), Filled) and level.values:
                    made.locals[name] = part.make(level.values)
        yield made


class Retrace:
    """A second tracing of a function, and the hooks it plants."""

    def __init__(self, target: Target, by_line: bool, data: Sequence[Sequence[Any]]) -> None:
        self.target = target
        self.by_line = by_line
        self.data = list(data)
        self.found: Scene | None = None
        self.clones: dict[int, Any] = {}
        self.waiting: dict[int, list[Any]] = {}
        self.looking: dict[int, list[Any]] = {}
        self.suspects = target.suspects
        self.before: Spot | None = None
        self.busy = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Within the block, functions are traced anew and hooks planted."""
        patches = internals.Patches()
        patches.replace(internals.function_class(), "__call__", self.calling)
        patches.replace(internals.func_graph_class(), "_create_op_internal", self.creating)
        patches.replace(internals.atomic_module(), "from_func_graph", self.finishing)
        try:
            yield
        finally:
            patches.remove()

    def calling(self, _: Callable[..., Any]) -> Callable[..., Any]:
        """`Function.__call__`: nested functions are traced anew too, for their old traces hold no hook."""
        original = internals_errors.pristine(internals.function_class(), "__call__")

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            if internals.current_graph() is None or any(function is clone for clone in self.clones.values()):
                return original(function, *args, **kwargs)
            if id(function) not in self.clones:
                self.clones[id(function)] = internals_errors.clone(function)
            return original(self.clones[id(function)], *args, **kwargs)

        return call

    def creating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The graph's op factory: prints fall silent, iterators give what was kept, the failing op gets its hook."""

        def create_op(graph: Any, op_type: str, inputs: Any, dtypes: Any = None, input_types: Any = None,
                      name: str | None = None, *args: Any, **kwargs: Any) -> Any:  # fmt: skip
            if self.busy:
                return original(graph, op_type, inputs, dtypes, input_types, name, *args, **kwargs)
            if op_type in SILENT:
                return original(graph, "NoOp", [], [], name=name)
            if op_type in ("IteratorGetNext", "IteratorGetNextAsOptional") and self.data:
                return self.feed(self.data.pop(0), kwargs.get("attrs") or {})
            node = internals_errors.future_name(graph, op_type, name)
            hook, spot = None, None
            if self.wanted(op_type, node) or self.is_forward(graph, node) or node in self.suspects:
                hook, spot, facts = self.plant(graph, op_type, node, list(inputs))
            op = original(graph, op_type, inputs, dtypes, input_types, name, *args, **kwargs)
            if spot is not None:
                op._add_control_inputs([hook])
                attributes, spot.arguments = internals_errors.op_facts(op)
                facts += [attributes, len(op.outputs), op._is_stateful]
            if id(graph) in self.waiting and any(internals.called_functions(op.node_def.attr)):
                op._add_control_inputs(self.waiting[id(graph)])
            if op_type not in SOURCES:  # a later op must not fail before the hook of an earlier one has looked
                op._add_control_inputs(self.looking.get(id(graph), ()))
            if spot is not None:
                self.looking.setdefault(id(graph), []).append(hook)
            return op

        return create_op

    def feed(self, values: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """An op that gives these values in the place of one that takes an iterator's element: none may be lost."""
        self.busy = True
        try:
            return internals_errors.feed_op(values, internals_errors.output_shapes(attributes, values))
        finally:
            self.busy = False

    def finishing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The maker of functions from graphs: none is left to XLA, which has no hooks."""

        def from_func_graph(name: Any, graph: Any, attrs: Any, *args: Any, **kwargs: Any) -> Any:
            attrs = {key: value for key, value in (attrs or {}).items() if key not in internals.XLA_ATTRIBUTES}
            return original(name, graph, attrs, *args, **kwargs)

        return from_func_graph

    def wanted(self, op_type: str, node: str) -> bool:
        """Whether an op about to be made may be the failing one."""
        if not self.by_line:
            return self.target.node == node or self.target.node.endswith("/" + node)
        base = re.sub(r"_\d+$", "", self.target.node.split("/")[-1])
        return base in (op_type, re.sub(r"_\d+$", "", node.split("/")[-1])) and self.target.place is not None

    def is_forward(self, graph: Any, node: str) -> bool:
        """Whether an op about to be made is the one that the failing op is the gradient of."""
        gradient = self.target.gradient
        return gradient is not None and (gradient.node, gradient.graph) == (node, graph.name)

    def plant(self, graph: Any, op_type: str, node: str, inputs: list[Any]) -> tuple[Any, Spot | None, list[Any]]:
        """Add the hook for an op about to be made: in its graph, and in the graphs of the functions around it."""
        wanted = self.wanted(op_type, node)
        stack = traced_stack(sys._getframe(2))
        stack = stack[next((n for n, each in enumerate(stack) if not each.hidden), len(stack)) :]
        if self.by_line and not any((each.filename, each.lineno) == self.target.place for each in stack):
            return None, None, []
        self.busy = True
        try:
            inputs = [graph.capture(tensor) for tensor in inputs]
            names = known_names(stack)
            origins = tuple(origin(tensor) for tensor in inputs)
            shapes = tuple(variable_shape(tensor) for tensor in inputs)
            spot = Spot(op_type, node, (), tuple(name_of(tensor, names) for tensor in inputs), origins, shapes)
            spot.layer = internals_layers.layer_around(sys._getframe(2))
            spot.gradient, spot.suspect = gradient_here() if wanted else None, not wanted
            facts: list[Any] = []
            hook = self.plant_levels(graph, stack, spot, inputs, facts)
            if self.is_forward(graph, node):
                self.before = spot
            return hook, spot, facts
        finally:
            self.busy = False

    def plant_levels(
        self, graph: Any, stack: Sequence[Activation], spot: Spot, inputs: list[Any], facts: list[Any]
    ) -> Any:
        """One hook per function graph, innermost first; returns the innermost, which the op has to wait for."""
        hooks = []
        for number, each in enumerate(graphs_around(graph)):
            carrier = Carrier(each)
            level = Level([carrier.frame(activation, 0) for activation in reversed(stack)])
            parts = [carrier.template(tensor) for tensor in inputs] if number == 0 else []
            spot.levels.append(level)
            callback = self.hitting(spot, level, parts, facts) if number == 0 else keeping(level)
            if number == 0 or carrier.tensors:
                with each.as_default():
                    hooks.append(internals.plant(callback, carrier.tensors))
                if number:
                    self.waiting.setdefault(id(each), []).append(hooks[-1])
        return hooks[0]

    def as_forward(self, scene: Scene) -> Scene:
        """The scene with the frames of the forward op, where it is that of a gradient op and they are known."""
        if self.before is None or scene.gradient is None:
            return scene
        return replace(scene, frames=tuple(merged(self.before.levels)), layer=self.before.layer)

    def hitting(self, spot: Spot, level: Level, parts: list[Any], facts: list[Any]) -> Callable[..., None]:
        """The innermost hook: tries the op on this pass's inputs."""

        def hit(*values: Any) -> None:
            if self.found is not None and self.found.certain:
                return
            level.values = values
            inputs = [part.make(values) if isinstance(part, Filled) else part for part in parts]
            certain = None if self.target.dry else fails(spot.op, inputs, *facts)
            if spot.suspect and not certain:
                return
            if certain or certain is None or self.found is None:
                self.found = self.as_forward(spot.scene(inputs, bool(certain)))
            if certain or self.target.dry:
                raise Reached

        return hit


def gradient_here() -> Gradient | None:
    """What the op that is being made is the gradient of."""
    found = internals_errors.gradient_of(sys._getframe(1))
    if found is None:
        return None
    return Gradient(found[0], *(("", "") if found[1] is None else (found[1].name, found[1].graph.name)))


def keeping(level: Level) -> Callable[..., None]:
    """The hook of an outer function's graph: it only brings values."""

    def hit(*values: Any) -> None:
        level.values = values

    return hit


def fails(op_type: str, inputs: Sequence[Any], attributes: Any, outputs: int, stateful: bool) -> bool | None:
    """Whether the op fails on these inputs; None where it cannot be tried without an effect."""
    if (stateful and op_type not in SAFE) or any(internals.is_symbolic(value) for value in inputs):
        return None
    try:
        internals_errors.run_op(op_type, outputs, inputs, attributes)
    except internals_errors.op_error():
        return True
    except Exception:  # attributes that eager calls take in another form: it was not tried
        return None
    return False


def graphs_around(graph: Any) -> Iterator[Any]:
    """The graph and, outwards, the graph from which each function around it is called."""
    kind: Any = internals.func_graph_class()
    while isinstance(graph, kind):
        yield graph
        while internals.is_control_flow_body(graph):
            graph = graph.outer_graph
        graph = graph.outer_graph
