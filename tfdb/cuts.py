"""The ops between a loss and a variable -> the cuts: the places where the gradient is lost.  Pure.

The walk goes backwards from the loss.  A key is whatever names one tensor (or variable); a node is one op.  A cut is
the op that turned what had a gradient into what has none: of `reduce_mean(cast(y > 0.5))` it is the comparison, where
the cast only receives it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Key = Hashable

# Outputs that depend on the shape or dtype of an input only: no path leads through these.
SHAPE_ONLY = frozenset(
    ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike", "EmptyTensorList", "TensorListLength",
     "BroadcastGradientArgs")
)  # fmt: skip
READS = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd"))
# Ops whose registered gradient is None for floating inputs, by the position of those (empty: all).
WITHOUT_SLOPE: dict[str, tuple[int, ...]] = {
    "Floor": (), "Ceil": (), "Round": (), "Rint": (), "FloorDiv": (), "TruncateDiv": (), "Fill": (0,),
    "Betainc": (0, 1), "Zeta": (0,), "Polygamma": (0,), "ScaleAndTranslate": (1, 2), "EuclideanNorm": (1,),
    "QuantizeAndDequantizeV2": (1, 2), "QuantizeAndDequantizeV3": (1, 2, 3), "ImageProjectiveTransformV2": (1,),
    "ImageProjectiveTransformV3": (1, 3), "MatrixSolveLs": (2,),
}  # fmt: skip


@dataclass(eq=False, slots=True)
class Node:
    """One op: what it takes and makes, and whether a gradient comes through.

    `passes` says so for each input (empty: for all); `recorded` whether the tape was recording when it ran; `kind`
    says why not when that is not the op itself.  A node without `op` only joins two names of one tensor.  `place` is
    the builder's own note of where the op stands.
    """

    op: str
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    passes: tuple[bool, ...] = ()
    recorded: bool = True
    kind: str = ""
    place: Any = None

    def lets(self, index: int) -> bool:
        """Whether the op's gradient function gives one for this input."""
        return self.passes[index] if self.passes else True


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the path from a loss to one variable or tensor ends.

    `kind`: op (no gradient), unregistered, stop_gradient, python (numpy_function), assign, unrecorded (the tape was
    not recording), control (only a condition depends on it), integer (the variable itself), custom (a custom gradient
    that gives None), disconnected (no path).  Callers add linear (a first gradient without the source in it), and
    frozen, unwatched and late, of sources that the tape does not know, or not in time; unseen says that the ops are
    not known, as they ran before anything was watched.
    `depth` counts the ops from the loss.
    """

    kind: str
    node: Node | None = None
    dtypes: tuple[str, str] = ("", "")
    depth: int = 0

    @property
    def on_purpose(self) -> bool:
        """Whether programs do this knowingly: then it is worth a word only when nothing at all is learned."""
        return self.kind in ("stop_gradient", "disconnected", "frozen", "linear", "unseen")

    def rank(self) -> tuple[bool, bool, int]:
        """Which of several cuts to name first: the smallest."""
        return self.on_purpose, self.kind == "control", self.depth


@dataclass(eq=False)
class Cone:
    """All that a loss is computed from.

    `producers(key)` gives the nodes that make a tensor (several in loops and branches), `trainable(key)` whether its
    dtype can carry a gradient, `dtype(key)` its dtype's name.
    """

    targets: Sequence[Key]
    producers: Callable[[Key], Sequence[Node]]
    dtype: Callable[[Key], str]
    trainable: Callable[[Key], bool]
    made: dict[Key, Sequence[Node]] = field(default_factory=dict)
    consumers: dict[Key, list[Node]] = field(default_factory=dict)
    depth: dict[Key, int] = field(default_factory=dict)
    live: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        waiting = list(self.targets)
        self.depth = dict.fromkeys(waiting, 0)
        seen: set[int] = set()
        for key in waiting:  # breadth first: `waiting` grows
            self.made[key] = self.producers(key)
            for node in self.made[key]:
                if id(node) in seen:
                    continue
                seen.add(id(node))
                for source in dict.fromkeys(node.inputs):
                    self.consumers.setdefault(source, []).append(node)
                    if source not in self.depth:
                        self.depth[source] = self.depth[key] + 1
                        waiting.append(source)
        self.live = set(self.reached(key for key in self.targets if self.trainable(key)))

    def reached(self, starts: Iterable[Key]) -> Iterator[Key]:
        """The tensors that a gradient really comes to, backwards from `starts`."""
        waiting = list(starts)
        seen = set(waiting)
        while waiting:
            key = waiting.pop()
            yield key
            for node in self.made.get(key, ()):
                for index, source in enumerate(node.inputs):
                    if source not in seen and self.carries(node, index):
                        seen.add(source)
                        waiting.append(source)

    def carries(self, node: Node, index: int) -> bool:
        """Whether a gradient that comes to a node goes on to its input."""
        return node.recorded and node.lets(index) and self.trainable(node.inputs[index])

    def downstream(self, sources: Iterable[Key]) -> set[Key]:
        """What is computed from `sources` and goes into the loss, they included."""
        waiting = [key for key in sources if key in self.depth]
        seen = set(waiting)
        while waiting:
            for node in self.consumers.get(waiting.pop(), ()):
                more = [key for key in node.outputs if key in self.depth and key not in seen]
                seen.update(more)
                waiting += more
        return seen

    def roots(self) -> list[tuple[Key, Node | None]]:
        """The tensors that nothing known made, nearest to the loss first, each with a node that takes it."""
        roots = [key for key in self.depth if not self.made.get(key)]
        return [(key, next(iter(self.consumers.get(key, ())), None)) for key in roots]


def find(cone: Cone, sources: Iterable[Key]) -> list[Cut]:
    """The cuts between the loss and one variable (all names of it in `sources`), the one to name first in front.

    Empty when the walk finds the two connected.
    """
    sources = [key for key in sources]
    path = cone.downstream(sources)
    if not path:
        return [Cut("disconnected")]
    if any(key in cone.live for key in sources):
        custom = [node for key in path & cone.live for node in cone.made.get(key, ()) if node.kind == "custom"]
        return [Cut("custom", node, depth=cone.depth[node.outputs[0]]) for node in custom[:1]]
    found: dict[tuple[int, str], Cut] = {}
    for key in path:
        for node in cone.consumers.get(key, ()):
            if any(output in cone.live for output in node.outputs):
                for index, source in enumerate(node.inputs):
                    if source == key and not cone.carries(node, index):
                        for cut in entries(cone, node, index, path, set(sources)):
                            found.setdefault((id(cut.node), cut.kind), cut)
    for key in cone.targets:  # a loss that has no gradient itself
        if key in path and not cone.trainable(key):
            for cut in back_to_floats(cone, key, path, set(sources)):
                found.setdefault((id(cut.node), cut.kind), cut)
    needed = [cut for cut in found.values() if not bypassed(cone, cut, path)]
    return sorted(needed or found.values(), key=Cut.rank)


def bypassed(cone: Cone, cut: Cut, path: set[Key]) -> bool:
    """Whether the gradient comes to the op's inputs by another way, as past the condition of `where(x > 0, x, 0)`."""
    inputs = [key for key in cut.node.inputs if key in path and cone.trainable(key)] if cut.node is not None else []
    return bool(inputs) and all(key in cone.live for key in inputs)


def entries(cone: Cone, node: Node, index: int, path: set[Key], sources: set[Key]) -> list[Cut]:
    """From the edge where the walk from the loss stopped, back to the ops that are to blame for it."""
    key = node.inputs[index]
    if not node.recorded and node.kind != "stop_gradient":
        return unrecorded(cone, node, path, sources)
    if node.kind == "control":
        return [dataclasses.replace(cut, kind="control") for cut in back_to_floats(cone, key, path, sources)]
    if cone.trainable(key):
        return [Cut(node.kind or "op", node, (cone.dtype(key), cone.dtype(node.outputs[0])), depth_of(cone, node))]
    return back_to_floats(cone, key, path, sources)


def depth_of(cone: Cone, node: Node) -> int:
    """How far from the loss the node stands."""
    return min((cone.depth[key] for key in node.outputs if key in cone.depth), default=0)


def back_to_floats(cone: Cone, key: Key, path: set[Key], sources: set[Key]) -> list[Cut]:
    """Back from an integer, boolean or string tensor, or a list of such, to the ops that made such of floating ones."""
    found: list[Cut] = []
    waiting, seen = [key], {key}
    while waiting:
        key = waiting.pop()
        if key in sources:
            found.append(Cut("integer", dtypes=(cone.dtype(key), ""), depth=cone.depth[key]))
        for node in cone.made.get(key, ()):
            inputs = [source for source in node.inputs if source in path]
            floats = [source for source in inputs if cone.trainable(source) and cone.dtype(source) != "variant"]
            if floats and node.op:
                kind = "integer" if node.op in READS else node.kind or "op"
                before = key if kind == "integer" else floats[0]
                found.append(Cut(kind, node, (cone.dtype(before), cone.dtype(key)), depth_of(cone, node)))
                continue
            more = [source for source in inputs if source not in seen]
            seen.update(more)
            waiting += more
    return found


def unrecorded(cone: Cone, node: Node, path: set[Key], sources: set[Key]) -> list[Cut]:
    """Back through the ops that ran while the tape was not recording, to the first of them."""
    found: list[Cut] = []
    waiting, seen = [node], {id(node)}
    while waiting:
        node = waiting.pop()
        before = [
            maker
            for key in node.inputs
            if key in path and key not in sources
            for maker in cone.made.get(key, ())
            if not maker.recorded and maker.op not in READS and any(source in path for source in maker.inputs)
        ]
        if not before:
            found.append(Cut("unrecorded", node, depth=depth_of(cone, node)))
        more = [maker for maker in before if id(maker) not in seen]
        seen.update(map(id, more))
        waiting += more
    return found


def most_blamed(cuts: Iterable[Sequence[Cut]]) -> Cut | None:
    """The cut that explains most variables (`cuts` has each variable's, the main one in front).

    Of those that explain equally many it is the one nearest to the loss; a cut made on purpose comes last.
    """
    counts: dict[tuple[int, str], int] = {}
    firsts: dict[tuple[int, str], Cut] = {}
    for each in cuts:
        for cut in each:
            key = (id(cut.node), cut.kind)
            counts[key] = counts.get(key, 0) + 1
            firsts.setdefault(key, cut)
    if not firsts:
        return None
    best = min(firsts, key=lambda key: (*firsts[key].rank()[:2], -counts[key], firsts[key].depth))
    return firsts[best]
