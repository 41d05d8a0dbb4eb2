"""What would be lost when a graph call fails -> kept as it passes: the last batch of in-graph iterators, and the
Python exceptions of `py_function`s, of which TensorFlow hands on the text alone; and the lines that made layers.

Keeping costs one assignment by reference per batch component, and nothing at all elsewhere.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tfdb import blame, internals, internals_errors, internals_gate, internals_layers
from tfdb.linehooks import is_exporting

MOST_GRAPHS = 32  # whose batches are kept; the oldest give way
MOST_ERRORS = 4


class Keeper:
    """Keeps batches and Python exceptions while it is installed."""

    def __init__(self) -> None:
        self.patches = internals.Patches()
        self.batches: OrderedDict[str, list[list[tuple[Any, Any]]]] = OrderedDict()
        self.errors: list[BaseException] = []
        self.built = blame.Lines()
        self.new_patches = internals_layers.NewPatches()
        self.watched: set[type] = set()
        self.paused = False

    def install(self) -> None:
        """Keep from now on.  Idempotent; `remove` undoes it."""
        if not self.patches.saved:
            for name in ("iterator_get_next", "iterator_get_next_as_optional"):
                self.patches.replace(internals_errors.iterator_module(), name, self.watching)
            for owner, name in internals_errors.python_error_doors():
                self.patches.replace(owner, name, self.catching)
            self.patches.replace(internals_gate.dataset_class(), "__init__", self.built.constructing)
            self.catch_up()
        internals_layers.hide_own_frames(True)
        for owner in internals_layers.built_classes():
            if owner not in self.watched and "__new__" in owner.__dict__:
                self.watched.add(owner)
                self.new_patches.replace(owner, self.built.creating)

    def catch_up(self) -> None:
        """Keep what iterators give in the graphs that are being traced already."""
        graph = internals.current_graph()
        while graph is not None:
            for op in [each for each in graph.get_operations() if each.type.startswith("IteratorGetNext")]:
                with graph.as_default():
                    self.keep(graph, op.outputs)
            graph = getattr(graph, "outer_graph", None)

    def remove(self) -> None:
        """Stop keeping, and let go of what was kept."""
        self.patches.remove()
        internals_layers.hide_own_frames(False)
        self.new_patches.remove()
        self.watched.clear()
        self.built.clear()
        self.batches.clear()
        self.errors.clear()

    def watching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The maker of the op that takes an iterator's element: in a graph, the element is kept in resources too."""

        def iterator_get_next(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            graph = internals.current_graph()
            if graph is not None and not self.paused and not is_exporting(sys._getframe(1)):
                self.keep(graph, found if isinstance(found, list) else [found])
            return found

        return iterator_get_next

    def keep(self, graph: Any, element: Sequence[Any]) -> None:
        """Add the ops that keep what an iterator gives."""
        handles = []
        for tensor in element:
            handle = internals_errors.new_store(tensor)
            internals_errors.store(handle, tensor)
            handles.append((handle, tensor.dtype))
        name = internals.outermost(graph).name
        self.batches.setdefault(name, []).append(handles)
        while len(self.batches) > MOST_GRAPHS:
            self.batches.popitem(last=False)

    def catching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The call of a Python function by a graph: its exception is kept, traceback and all."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                if not self.errors or self.errors[-1] is not error:
                    self.errors.append(error)
                    del self.errors[:-MOST_ERRORS]
                raise

        return call

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Keep nothing new within the block."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    def batch(self, graph: str) -> list[list[Any]]:
        """What each iterator in a graph gave last, in the order of tracing; empty when nothing was kept."""
        for name in reversed(self.batches):
            if f"_{name}_" in f"_{graph}_":
                return [values for handles in self.batches[name] if (values := read(handles))]
        return []

    def latest(self) -> list[list[Any]]:
        """What each iterator in the graph that was traced last gave last; empty when nothing was kept."""
        return self.batch(next(reversed(self.batches), ""))

    def error(self, text: str) -> BaseException | None:
        """The kept exception that an error's text tells of, the newest first."""
        for error in reversed(self.errors):
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            if said in text:
                return error
        return None


def read(handles: Sequence[tuple[Any, Any]]) -> list[Any]:
    """The kept tensors, or nothing when the graph has not run."""
    try:
        return [internals_errors.stored(handle, dtype) for handle, dtype in handles]
    except Exception:
        return []
