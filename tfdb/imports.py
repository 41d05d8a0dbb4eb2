"""Module imports -> a call after a named module is there, and no tracing while an installed package is imported.

Importing TensorFlow under a trace function takes several times as long, and no user stops in it.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from tfdb.sourcemap import in_site_packages


class ImportWatch(importlib.abc.MetaPathFinder):
    """A finder that finds nothing new: it wraps the loaders of top-level packages that others find.

    `found` is called with the file of each module before it runs, while `awaiting` says that somebody waits for one.
    """

    def __init__(
        self,
        after: dict[str, Callable[[ModuleType], None]],
        tracing_wanted: Callable[[], bool],
        awaiting: Callable[[], bool] = lambda: False,
        found: Callable[[str], None] = lambda filename: None,
    ) -> None:
        self.after = after
        self.tracing_wanted = tracing_wanted
        self.awaiting = awaiting
        self.found = found

    def install(self) -> None:
        """Watch imports; modules that are there already get their call now."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        for name, callback in self.after.items():
            if name in sys.modules:
                callback(sys.modules[name])

    def remove(self) -> None:
        """Stop watching.  Idempotent."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if self.awaiting():
            file = importlib.machinery.PathFinder.find_spec(name, path)
            if file is not None and file.has_location and file.origin is not None:
                self.found(file.origin)
        if "." in name or self not in sys.meta_path:
            return None
        spec = self.found_by_others(name, path, target)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        if name in self.after or in_site_packages(spec.origin or ""):
            self.wrap(spec.loader, name)
        return spec

    def found_by_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> Any:
        """What the finders behind this one find, each asked once: with several watches, too."""
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                return spec
        return None

    def wrap(self, loader: Any, name: str) -> None:
        """Make the loader run its module untraced, and the call that waits for it follow."""
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            trace = sys.gettrace()
            if trace is not None and not self.tracing_wanted():
                sys.settrace(None)
            try:
                original(module)
            finally:
                if trace is not None and sys.gettrace() is None:
                    sys.settrace(trace)
            if name in self.after:
                self.after[name](module)

        loader.exec_module = exec_module
