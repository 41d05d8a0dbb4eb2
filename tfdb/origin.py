"""The log of one eager pass and the bad values it ended with -> the op that made them.  Pure: ids and kinds only.

An infinity may be meant (a mask) and a NaN may be masked again, so the search goes backwards from what ended bad: from
a NaN through the inputs that are NaN, else through those that are infinite, as long as those were made by an op from
finite inputs; an infinity that was put in on purpose is passed over, and the op that turned it into NaN is the origin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Event:
    """One op that ran: ids of its tensors, a `badness` per output, the forward event of a gradient op.

    `beside` says that it ran in one replica while the update of another waited for that one.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bad: tuple[str, ...]
    forward: int | None = None
    variable: Any = None
    beside: bool = False


@dataclass(slots=True)
class Log:
    """The ops of one pass in order. `roots` are the kinds of tensors no op made; `data` those that are arguments."""

    events: list[Event] = field(default_factory=list)
    producer: dict[int, int] = field(default_factory=dict)
    consumers: dict[int, list[int]] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    data: set[int] = field(default_factory=set)

    def add(self, event: Event) -> int:
        """Append an event; returns its index."""
        index = len(self.events)
        self.events.append(event)
        for tensor, kind in zip(event.outputs, event.bad, strict=True):
            self.producer[tensor] = index
            self.kinds[tensor] = kind
        for tensor in event.inputs:
            self.consumers.setdefault(tensor, []).append(index)
        return index

    def forward_of(self, op: str, inputs: Iterable[int], outputs: Iterable[int]) -> int | None:
        """The event of type `op` with one of these outputs or inputs; the latest one when there are several."""
        for tensor in outputs:
            if (index := self.producer.get(tensor)) is not None and self.events[index].op == op:
                return index
        for tensor in inputs:
            for index in reversed(self.consumers.get(tensor, ())):
                if self.events[index].op == op:
                    return index
        return None


@dataclass(frozen=True, slots=True)
class Finding:
    """What made a bad value: the event `index`, or the tensor `root` that was bad before any op ran.

    `hidden` is the gradient event through which an infinity hidden in the forward pass came back.
    """

    index: int | None = None
    root: int | None = None
    hidden: int | None = None
    meant: tuple[int, ...] = ()

    @property
    def order(self) -> int:
        """Its place in time; what was there before comes first."""
        return -1 if self.index is None else self.index


def find(log: Log, targets: Iterable[int]) -> Finding | None:
    """The earliest origin of the bad ones among `targets`, or None when none is bad."""
    return next(iter(find_all(log, targets)), None)


def find_all(log: Log, targets: Iterable[int]) -> list[Finding]:
    """Every origin of the bad ones among `targets`, the earliest first."""
    found = dict.fromkeys(finding for target in targets if log.kinds.get(target) for finding in origins(log, target))
    return [seen_through(log, finding) for finding in sorted(found, key=lambda finding: finding.order)]


def origins(log: Log, target: int) -> list[Finding]:
    """Every op or root that the bad tensor `target` goes back to."""
    found: dict[tuple[int | None, int | None], Finding] = {}
    waiting, seen = [target], {target}
    while waiting:
        tensor = waiting.pop()
        finding, more = back(log, tensor)
        if finding is not None:
            found[finding.index, finding.root] = finding
        waiting += [m for m in more if m not in seen]
        seen.update(more)
    return list(found.values())


def back(log: Log, tensor: int) -> tuple[Finding | None, list[int]]:
    """One step back from a bad tensor: it was made here, or the inputs to go on with."""
    index = log.producer.get(tensor)
    if index is None:
        return Finding(root=tensor), []
    event = log.events[index]
    bad = list(dict.fromkeys(t for t in event.inputs if log.kinds.get(t)))
    if event.variable is not None or not bad:
        return Finding(index), []
    if log.kinds[tensor] == "nan":
        if nans := [t for t in bad if log.kinds[t] == "nan"]:
            return None, nans
        made = [t for t in bad if is_made(log, t)]
        return (None, made) if made else (Finding(index, meant=tuple(bad)), [])
    return None, bad


def is_made(log: Log, tensor: int) -> bool:
    """Whether an infinite tensor got so by an op with finite inputs, came with the data, or is a weight.

    Constants and variables that are not trained hold infinities on purpose: masks.
    """
    for finding in origins(log, tensor):
        if finding.root is not None and finding.root in log.data:
            return True
        if finding.index is not None:
            variable = log.events[finding.index].variable
            if variable is None or getattr(variable, "trainable", False):
                return True
    return False


def seen_through(log: Log, finding: Finding) -> Finding:
    """When a gradient op is the origin but its forward op had made an infinity already, that one is to blame."""
    if finding.index is None or finding.meant:
        return finding
    forward = log.events[finding.index].forward
    if forward is None or not any(log.events[forward].bad):
        return finding
    if any(log.kinds.get(tensor) for tensor in log.events[forward].inputs):
        return finding
    return Finding(forward, hidden=finding.index)


def sources(log: Log, tensors: Iterable[int]) -> tuple[list[int], bool]:
    """The read events that tensors are computed from, and whether any argument of the step is among their sources."""
    waiting, seen, reads, data = list(tensors), set(tensors), [], False
    while waiting:
        tensor = waiting.pop()
        index = log.producer.get(tensor)
        if index is None:
            data = data or tensor in log.data
            continue
        if log.events[index].variable is not None:
            reads.append(index)
            continue
        more = [t for t in log.events[index].inputs if t not in seen]
        seen.update(more)
        waiting += more
    return sorted(reads), data


def spread(log: Log, index: int, most: int = 12) -> list[int]:
    """How a bad value went on from the event that made it: one bad consumer after the other."""
    steps: list[int] = []
    seen = {index}
    while len(steps) < most:
        event = log.events[index]
        later = [
            i for out, bad in zip(event.outputs, event.bad, strict=True) if bad for i in log.consumers.get(out, ())
        ]
        spoiled = next((i for i in later if i not in seen and any(log.events[i].bad)), None)
        if spoiled is None:
            return steps
        index = spoiled
        seen.add(index)
        steps.append(index)
    return steps
