"""Hits of planted lines, one after another -> what Python would show: a loop's header once a pass, with its item.

A `for` over a tensor has its item inside of the loop's body alone; Python's header has the item of the pass before.
"""

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tfdb.errors import NotReached
from tfdb.linehooks import Hit

LINES = ("line", "iteration")


class Headers:
    """What was hit last in each activation, and the items that its loops gave last."""

    def __init__(self) -> None:
        self.before: dict[int, tuple[str, int]] = {}
        self.items: defaultdict[int, dict[str, Any]] = defaultdict(dict)

    def arrived(self, hit: Hit) -> Hit | None:
        """The hit with what is known from earlier ones; None when Python would not be at this line now.

        That is so when a loop was left by `break` or `return`, and when the first pass begins on the header that was
        reported just now, before the loop.
        """
        point, place = hit.point, hit.point.place
        if point.event == "return":
            self.items.pop(place.activation, None)
        if point.event not in LINES:
            return hit
        if not hit.runs():
            return None
        before, self.before[place.activation] = self.before.get(place.activation), (point.event, place.lineno)
        if point.event == "iteration" and before == ("line", place.lineno):
            return None
        items = self.items[place.activation]
        if point.event == "iteration":
            return replace(hit, names=dict(items)) if items else hit
        if not point.items:
            items.clear()
        for name in point.items:
            if name in place.locals:
                with suppress(NotReached):
                    items[name] = hit.filled(place.locals[name])
        return hit
