"""Symbolic tensors that tracing left in the user's frames -> their values in the call that was being traced.

The placeholders of each graph are fed with what stood for them outside, from the call's own arguments inwards, and
only the ops that the wanted tensors need are run.  What cannot be had stays symbolic.
"""

from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from tfdb import internals, internals_datasets, internals_errors
from tfdb.frames import Carrier, Filled
from tfdb.refetch import Given

OPTIONAL = "IteratorGetNextAsOptional"
NEXT = ("IteratorGetNext", "IteratorGetNextSync", OPTIONAL)
GIVEN = ("Placeholder", *NEXT)  # ops whose outputs are fed, not computed
DEEPEST = 20  # graphs around one another


class Collector(Carrier):
    """A Carrier that takes the tensors of any graph."""

    def __init__(self) -> None:
        super().__init__(None)

    def slot(self, tensor: Any, of_closure: bool = False) -> Filled | None:
        if id(tensor) not in self.slots:
            self.slots[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        index = self.slots[id(tensor)]
        return Filled(lambda values: values[index])


class Values:
    """The values of symbolic tensors, as far as the frames of a failed trace tell them."""

    def __init__(self, deepest: FrameType | None) -> None:
        self.sources: dict[int, Any] = {}
        self.kept: list[Any] = []
        self.known: dict[int, Any] = {}
        self.iterators: dict[int, Any] = {}
        self.elements: dict[int, list[Any]] = {}
        self.from_dataset = False
        self.given: Given | None = None
        self.from_new_pass = False
        for frame in internals_errors.outward(deepest):
            self.link(frame)

    def link(self, frame: FrameType) -> None:
        """Note what stands for the placeholders of a graph that this frame traces."""
        pair = internals_errors.symbolic_arguments(frame) or internals_errors.loop_arguments(frame)
        if pair is not None:
            self.pair(flat(pair[0]), flat(pair[1]))
            self.note_iterators(pair[1])
            return
        found = internals_errors.dataset_function(frame)
        if found is not None:
            function, dataset, placeholders = found
            try:
                element = next(iter(dataset))
                parts = internals_datasets.flat_element(dataset, element)
            except Exception:
                return
            self.pair(placeholders, parts)
            self.from_dataset = True
            args, specs = (internals_datasets.as_arguments(dataset, each) for each in (element, dataset.element_spec))
            self.given = Given(function, args, "the first element", specs)

    def note_iterators(self, structure: Any) -> None:
        """Note which resource each iterator among a call's arguments has."""
        import tensorflow as tf

        for value in tf.nest.flatten(structure):
            if isinstance(value, tf.data.Iterator):
                self.iterators[id(internals_datasets.resource_of(value))] = value

    def pair(self, inner: Sequence[Any], outer: Sequence[Any]) -> None:
        """Let each symbolic tensor stand for its counterpart outside."""
        import tensorflow as tf

        if len(inner) != len(outer):
            return
        self.kept.append((inner, outer))
        for symbol, value in zip(inner, outer, strict=True):
            if internals.is_symbolic(symbol) and isinstance(value, tf.Tensor | bool | int | float | np.ndarray):
                self.sources[id(symbol)] = value if isinstance(value, tf.Tensor) else tf.constant(value, symbol.dtype)

    def of(self, tensors: Sequence[Any]) -> list[Any]:
        """Each tensor's value, or itself where none can be had."""
        wanted: dict[int, dict[int, Any]] = {}
        graphs: list[Any] = []
        self.require(tensors, wanted, graphs)
        for graph in sorted(graphs, key=depth):
            self.compute(list(wanted[id(graph)].values()))
        return [self.known.get(id(tensor), tensor) for tensor in tensors]

    def filled(self, structure: Any) -> Any:
        """A structure with its symbolic tensors replaced by their values, where these can be had."""
        collector = Collector()
        part = collector.template(structure)
        found = self.of(collector.tensors)
        return part.make(found) if type(part) is Filled else structure

    def require(self, tensors: Iterable[Any], wanted: dict[int, dict[int, Any]], graphs: list[Any]) -> None:
        """Collect, by graph, the tensors whose values the given ones need."""
        for tensor in tensors:
            if not internals.is_symbolic(tensor):
                continue
            if id(tensor.graph) not in wanted:
                wanted[id(tensor.graph)] = {}
                graphs.append(tensor.graph)
            if id(tensor) in wanted[id(tensor.graph)]:
                continue
            wanted[id(tensor.graph)][id(tensor)] = tensor
            self.require([self.source(feed) for feed in self.feeds(tensor)], wanted, graphs)

    def feeds(self, tensor: Any) -> list[Any]:
        """The placeholders that a tensor's value depends on."""
        ops = internals_errors.ancestors([tensor])
        return [output for op in ops if op.type in GIVEN for output in op.outputs]

    def source(self, feed: Any) -> Any:
        """What stands for a placeholder outside, or for a part of an iterator's next element; None where unknown."""
        if feed.op.type in NEXT:
            element = self.element(feed.op)
            return element[feed.value_index] if feed.value_index < len(element) else None
        return self.sources.get(id(feed), internals_errors.captured(feed.graph).get(id(feed)))

    def element(self, op: Any) -> list[Any]:
        """What the iterator of an op gives next, without moving it; empty when that cannot be had."""
        resource = op.inputs[0]
        for _ in range(DEEPEST):
            if not internals.is_symbolic(resource):
                break
            resource = self.source(resource) if resource.op.type == "Placeholder" else None
        iterator = self.iterators.get(id(resource))
        if iterator is not None and id(op) not in self.elements:
            try:
                self.elements[id(op)], exact = internals_datasets.next_element(iterator, op.type == OPTIONAL)
                self.from_new_pass = self.from_new_pass or not exact
            except Exception:
                return []
        return self.elements.get(id(op), [])

    def value(self, source: Any) -> Any:
        """The value of a tensor outside, eager or computed before, or None."""
        return self.known.get(id(source)) if internals.is_symbolic(source) else source

    def compute(self, tensors: list[Any]) -> None:
        """Run what the tensors of one graph need: all at once, or one by one where that fails."""
        able = [t for t in tensors if all(self.value(self.source(feed)) is not None for feed in self.feeds(t))]
        if able and not self.run(able) and len(able) > 1:
            for tensor in able:
                self.run([tensor])
        for tensor in tensors:
            value = None if id(tensor) in self.known else internals_errors.static_value(tensor)
            if value is not None:
                import tensorflow as tf

                self.known[id(tensor)] = tf.constant(value, tensor.dtype)

    def run(self, tensors: list[Any]) -> bool:
        """Run what these tensors need; False when that fails."""
        ops = internals_errors.ancestors(tensors)
        feeds = [output for op in ops if op.type in GIVEN for output in op.outputs]
        values = [self.value(self.source(feed)) for feed in feeds]
        fetched = [tensor for tensor in tensors if tensor.op.type not in GIVEN]
        try:
            if fetched:
                results = internals_errors.run_part(ops, feeds, values, fetched)
                self.known.update({id(tensor): value for tensor, value in zip(fetched, results, strict=True)})
        except Exception:
            return False
        self.known.update({id(feed): value for feed, value in zip(feeds, values, strict=True)})
        return True


def depth(graph: Any) -> int:
    """How many graphs lie around this one."""
    count = 0
    while isinstance(graph.outer_graph, internals.func_graph_class()):
        graph, count = graph.outer_graph, count + 1
    return count


def flat(structure: Any) -> list[Any]:
    """The tensors of a structure and what else it holds, in order."""
    import tensorflow as tf

    return tf.nest.flatten(structure, expand_composites=True)
