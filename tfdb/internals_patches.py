"""Attributes of TensorFlow's classes and modules -> doors of tfdb's in their place, and back."""

import functools
from collections.abc import Callable
from typing import Any


class Patches:
    """Replaced attributes of TensorFlow's classes and modules, put back by `remove`.

    Several parts of tfdb may stand at one door, the last come outermost.  One that leaves from the middle cannot take
    its wrapper out, so it makes it pass everything through.
    """

    def __init__(self) -> None:
        self.saved: list[tuple[Any, str, Any]] = []
        self.wrappers: list[dict[str, Any]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put `make(original)` in the place of `owner.name`."""
        original = owner.__dict__[name]
        inner = {"now": make(original)}

        def door(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return inner["now"](*args, **kwargs)

        functools.update_wrapper(door, original)
        inner["door"], inner["original"] = door, original
        door.tfdb_inner = inner  # type: ignore[attr-defined]
        self.saved.append((owner, name, original))
        self.wrappers.append(inner)
        setattr(owner, name, door)

    def remove(self) -> None:
        """Put every original back, last replaced first.  Idempotent."""
        while self.saved:
            owner, name, original = self.saved.pop()
            inner = self.wrappers.pop()
            if owner.__dict__.get(name) is inner["door"]:
                setattr(owner, name, self.within(original))
            else:
                inner["now"] = original

    @staticmethod
    def within(original: Any) -> Any:
        """What doors that their owners have left already stand in front of: the last to leave takes those along."""
        inner = getattr(original, "tfdb_inner", None)
        while inner is not None and inner["now"] is inner["original"]:
            original = inner["original"]
            inner = getattr(original, "tfdb_inner", None)
        return original
