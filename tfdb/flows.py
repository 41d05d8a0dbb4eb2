"""A loss, eager or symbolic -> the Cone of ops behind it, through called functions, branches and loops.

Keys are numbers for eager tensors and variables' handles, and (context, name) for tensors of graphs: one graph that is
called from two places is two contexts.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from . import blame, internals, internals_gate, internals_gradients, sites, tapes
from .cuts import READS, SHAPE_ONLY, WITHOUT_SLOPE, Cone, Key, Node
from .report import UserLine
from .sites import key_of
from .taperecords import Op
from .tapes import ASSIGNS


@dataclass(eq=False)
class Context:
    """One call of a graph: `feeds` are the keys that each of its inputs stands for."""

    number: int
    graph: Any
    feeds: list[list[Key]] | None
    inputs: dict[str, int] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inputs = {tensor.name: index for index, tensor in enumerate(self.graph.inputs)}

    @functools.cached_property
    def held(self) -> dict[str, Any]:
        """The eager tensors that the graph has as constants, by the constants' names."""
        return {inside.name: outside for outside, inside in self.graph.captures if inside.op.type == "Const"}

    def key(self, tensor: Any) -> Key:
        """The key of one of the graph's tensors."""
        return (self.number, tensor.name)


class Flow:
    """Answers a Cone's questions about producers and dtypes.

    `recording` is the number of the tape's recording (None: not known, so every op counts as recorded); `assigns`
    also leads through variables that were written, after the op number `since` in eager code.
    """

    def __init__(self, log: tapes.TapeLog, recording: int | None = None, since: int = 0, assigns: bool = False) -> None:
        self.log = log
        self.recording = recording
        self.since = since
        self.assigns = assigns
        self.contexts: dict[int, Context] = {}
        self.tops: dict[int, Context] = {}
        self.inner: dict[tuple[int, str, str], Context] = {}
        self.dtypes: dict[Key, Any] = {}
        self.tensors: dict[Key, Any] = {}
        self.nodes: dict[Key, list[Node]] = {}
        self.by_op: dict[Key, list[Node]] = {}

    def cone(self, targets: Sequence[Any]) -> Cone:
        """The cone of some tensors."""
        return Cone([self.key(target) for target in targets], self.producers, self.dtype, self.trainable)

    # -- keys -----------------------------------------------------------------------------------------------------

    def key(self, value: Any) -> Key:
        """The key of a tensor or variable."""
        value = getattr(value, "handle", value)
        if internals.is_symbolic(value):
            return self.symbol(self.top(value.graph), value)
        return self.known(key_of(value), value.dtype)

    def names(self, value: Any) -> list[Key]:
        """Every key that a source goes by: a variable is its handle, and in graphs also what captured it there."""
        found = [self.key(value)]
        handle = getattr(value, "handle", None)
        for context in list(self.tops.values()) if handle is not None else ():
            found += [context.key(inside) for outside, inside in context.graph.captures if outside is handle]
        return found

    def known(self, key: Key, dtype: Any) -> Key:
        """The key, its dtype noted."""
        self.dtypes[key] = dtype
        return key

    def symbol(self, context: Context, tensor: Any) -> Key:
        """The key of a graph's tensor, the tensor noted."""
        key = context.key(tensor)
        self.tensors[key] = tensor
        return self.known(key, tensor.dtype)

    def dtype(self, key: Key) -> str:
        """The dtype's name; '' where it is not known."""
        return str(getattr(self.dtypes.get(key), "name", ""))

    def trainable(self, key: Key) -> bool:
        """Whether the tensor can carry a gradient."""
        dtype = self.dtypes.get(key)
        return dtype is not None and internals_gradients.is_trainable(dtype)

    # -- contexts -------------------------------------------------------------------------------------------------

    def top(self, graph: Any) -> Context:
        """The context of a graph that is being built, or was built by the program's own call."""
        if id(graph) not in self.tops:
            self.tops[id(graph)] = self.new(graph, None)
        return self.tops[id(graph)]

    def new(self, graph: Any, feeds: list[list[Key]] | None) -> Context:
        """Another context."""
        made = Context(len(self.contexts) + 1, graph, feeds)
        self.contexts[made.number] = made
        return made

    # -- producers ------------------------------------------------------------------------------------------------

    def producers(self, key: Key) -> Sequence[Node]:
        """The nodes that make a tensor; none for a constant, an argument or a variable."""
        if key not in self.nodes:
            self.nodes[key] = self.symbolic(key) if isinstance(key, tuple) else self.eager(key)
        return self.nodes[key]

    def eager(self, key: Key) -> list[Node]:
        """The producers of an eager tensor."""
        made = self.log.ops.get(key)  # type: ignore[call-overload]
        if made is None or made.op in SHAPE_ONLY or not made.inputs:
            return []
        if id(made) not in self.by_op:
            for each, dtype in zip((*made.inputs, *made.outputs), made.dtypes, strict=True):
                self.known(each, dtype)
            recorded = self.recording is None or self.recording in made.tapes
            self.by_op[id(made)] = self.eager_nodes(made, recorded)
        return [node for node in self.by_op[id(made)] if key in node.outputs]

    def eager_nodes(self, made: Op, recorded: bool) -> list[Node]:
        """An eager op as nodes; a called function's graph is walked through."""
        function = made.graph() if made.graph is not None else None
        graph = getattr(function, "graph", None)
        if graph is not None and recorded:
            context = self.new(graph, [[each] for each in made.inputs])
            outputs = zip(made.outputs, graph.outputs, strict=False)
            return [Node("", (self.symbol(context, inner),), (outer,)) for outer, inner in outputs]
        node = Node(made.op, made.inputs, made.outputs, passes(made.op, made.inputs, made.kind), recorded)
        node.kind, node.place = made.kind or kind_of(made.op), made
        return [node, *self.written(made)]

    def written(self, made: Op) -> list[Node]:
        """What an eager op reads of variables, some ops of the variable itself: the values written last before."""
        if not self.assigns or made.op in ASSIGNS:
            return []
        found = []
        for handle in dict.fromkeys(made.inputs):
            writes = [w for w in self.log.assigns if w.inputs[0] == handle and self.since < w.number < made.number]
            last = since_whole([write.op for write in writes])
            found += [(write, ASSIGNS[write.op]) for write in writes[last:]]
        for write, at in found:
            self.known(write.inputs[at], write.dtypes[at])
        return [Node(w.op, w.inputs[at : at + 1], made.outputs, (False,), True, "assign", w) for w, at in found]

    def symbolic(self, key: Key) -> list[Node]:
        """The producers of a graph's tensor."""
        context, tensor = self.contexts[key[0]], self.tensors[key]  # type: ignore[index]
        op = tensor.op
        if op.type == "Placeholder":
            return self.fed(context, tensor)
        if op.type == "Const":  # of a small eager tensor the graph holds the value
            outside = context.held.get(tensor.name)
            return [] if outside is None else [Node("", (self.key(outside),), (key,))]
        if op.type in SHAPE_ONLY or not op.inputs:
            return []
        cache = (context.number, op.name)
        if cache not in self.by_op:
            self.by_op[cache] = self.graph_nodes(context, op)
        return [node for node in self.by_op[cache] if key in node.outputs]

    def fed(self, context: Context, tensor: Any) -> list[Node]:
        """What a placeholder stands for."""
        key = context.key(tensor)
        if context.feeds is None:
            outside = internals_gradients.capture_of(context.graph, tensor)
            return [] if outside is None else [Node("", (self.key(outside),), (key,))]
        index = context.inputs.get(tensor.name)
        if index is None or index >= len(context.feeds):
            return []
        return [Node("", (source,), (key,)) for source in context.feeds[index]]

    def graph_nodes(self, context: Context, op: Any) -> list[Node]:
        """An op of a graph as nodes; functions that it runs are walked through."""
        inputs = [self.symbol(context, tensor) for tensor in op.inputs]
        outputs = [self.symbol(context, tensor) for tensor in op.outputs]
        recorded = self.is_recorded(context, op)
        names = internals_gradients.branch_names(op)
        graphs = [internals_gradients.function_graph(context.graph, name) for name in names]
        if graphs and recorded and all(graph is not None for graph in graphs):
            return self.through(op, inputs, outputs, [self.new(graph, None) for graph in graphs])
        kind = "custom" if internals_gradients.custom_gradient(op) else ""
        lets = passes(op.type, inputs, kind)
        node = Node(op.type, tuple(inputs), tuple(outputs), lets, recorded, kind or kind_of(op.type), op)
        return [node, *self.written_in_graph(context, op, outputs)]

    def is_recorded(self, context: Context, op: Any) -> bool:
        """Whether the tape was recording when the op was traced; in called functions, when the call was."""
        if self.recording is None or context.feeds is not None:
            return True
        seen = self.log.in_graphs.get(context.graph, {}).get(op.outputs[0].op.name)
        return seen is None or self.recording in seen[0]

    def through(self, op: Any, inputs: list[Key], outputs: list[Key], contexts: list[Context]) -> list[Node]:
        """Nodes that join an op's inputs and outputs to those of the functions that it runs."""
        nodes = []
        branches = op.type in internals.BRANCH_OPS
        if branches:
            nodes.append(Node(op.type, (inputs[0],), tuple(outputs), (False,), True, "control", op))
        for context in contexts:
            context.feeds = [[key] for key in (inputs[1:] if branches else inputs)]
            inner = [self.symbol(context, tensor) for tensor in context.graph.outputs]
            if op.type in internals.LOOP_OPS:
                if deciding := self.deciding(op, inputs):
                    nodes.append(Node(op.type, deciding, tuple(outputs), (False,) * len(deciding), True, "control", op))
                for feed, back in zip(context.feeds, inner, strict=False):
                    feed.append(back)
                nodes += [Node("", (feed,), (o,)) for o, feed in zip(outputs, inputs, strict=False)]
            nodes += [Node("", (back,), (outer,)) for outer, back in zip(outputs, inner, strict=False)]
        return nodes

    def deciding(self, op: Any, inputs: list[Key]) -> tuple[Key, ...]:
        """Which inputs of a loop, that no pass changes, decide how often it runs."""
        test, body = (internals_gradients.function_graph(op.graph, name) for name in internals_gradients.loop_names(op))
        if test is None or body is None:
            return ()
        waiting, seen = [test.outputs[0]], set()
        while waiting:
            tensor = waiting.pop()
            if tensor.name not in seen:
                seen.add(tensor.name)
                waiting += tensor.op.inputs
        places = zip(inputs, test.inputs, body.inputs, body.outputs, strict=False)
        return tuple(key for key, place, inside, back in places if place.name in seen and passed_on(back) is inside)

    def written_in_graph(self, context: Context, op: Any, outputs: list[Key]) -> list[Node]:
        """What a read of a variable in a graph reads: the value written last before, in the same graph."""
        if not self.assigns or op.type not in READS:
            return []
        if not context.order:
            context.order = {each.name: index for index, each in enumerate(context.graph.get_operations())}
        before = context.order.get(op.name, 0)
        writes = [
            each
            for each in context.graph.get_operations()[:before]
            if each.type in ASSIGNS and each.inputs[0] is op.inputs[0]
        ]
        return [
            Node(
                w.type, (self.symbol(context, w.inputs[ASSIGNS[w.type]]),), tuple(outputs), (False,), True, "assign", w
            )
            for w in writes[since_whole([write.type for write in writes]) :]
        ]

    # -- places ---------------------------------------------------------------------------------------------------

    def line(self, node: Node) -> UserLine | None:
        """The user line to blame for a node."""
        site = self.site(node)
        if site is not None:
            drivers = tuple(o for o, _ in internals_gate.optimizer_classes()) + tuple(internals_gate.model_classes())
            if (line := blame.responsible(site, drivers)) is not None:
                return line
        return node.place.line if isinstance(node.place, Op) else line_of_op(node.place)

    def stack(self, node: Node) -> list[UserLine]:
        """The user lines on the stack of a node that no tape recorded, outermost first."""
        if isinstance(node.place, Op):
            return list(node.place.stack)
        return list(sites.lines_of_op(node.place))[::-1] if node.place is not None else []

    def site(self, node: Node) -> blame.Site | None:
        """The stack of a node, where it was kept."""
        if isinstance(node.place, Op):
            return node.place.site
        seen = self.log.in_graphs.get(node.place.graph, {}).get(node.place.name) if node.place is not None else None
        return seen[1] if seen is not None else None


def passed_on(tensor: Any) -> Any:
    """The tensor that Identity ops hand on."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def since_whole(writes: Sequence[str]) -> int:
    """The position of the last of some writes that left nothing of what was there before."""
    return max((n for n, op in enumerate(writes) if op == "AssignVariableOp"), default=0)


def passes(op: str, inputs: Sequence[Key], kind: str = "") -> tuple[bool, ...]:
    """Which inputs an op's gradient function gives one for; empty for all."""
    if kind == "custom":
        return ()
    if op in WITHOUT_SLOPE:
        flat = WITHOUT_SLOPE[op] or range(len(inputs))
        return tuple(index not in flat for index in range(len(inputs)))
    known = internals_gradients.registered(op) is True or op.startswith("__")
    return () if known else (False,) * len(inputs)


def kind_of(op: str) -> str:
    """Why an op of this type has no gradient."""
    if op == internals_gradients.STOPPED:
        return "stop_gradient"
    if op in ("PyFunc", "PyFuncStateless", "EagerPyFunc"):
        return "python"
    if op not in WITHOUT_SLOPE and internals_gradients.registered(op) is False:
        return "unregistered"
    return ""


def line_of_op(op: Any) -> UserLine | None:
    """The innermost user line on the stack that an op of a graph was made on."""
    return next(sites.lines_of_op(op), None) if op is not None else None
