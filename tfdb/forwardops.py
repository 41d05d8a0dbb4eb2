"""A Wreck at an op of a gradient -> the same at the line of the forward op, which is the user's."""

from __future__ import annotations

from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

from tfdb import evidence, failures, internals_errors
from tfdb.explain import Place
from tfdb.frames import LiveFrame
from tfdb.retrace import Target
from tfdb.sourcemap import is_hidden

if TYPE_CHECKING:
    from tfdb.postmortem import Wreck


def told(wreck: Wreck, node: str) -> Wreck:
    """The wreck with a note on the gradient, if its scene is of `node` and TensorFlow names an op of a gradient."""
    named = wreck.reported.node
    if node in Target(named).suspects:
        note = f"TensorFlow names {named}, a part of this op's gradient that met the same values"
        return replace(wreck, reported=replace(wreck.reported, node=node), notes=(note, *wreck.notes))
    if wreck.facts.forward:
        places = [each for each in wreck.reported.places if not is_hidden(each.filename)]
        return replace(wreck, notes=(*asked(places[-1] if places else None, wreck.facts.place), *wreck.notes))
    return wreck


def asked(place: Place | None, forward: Place | None) -> tuple[str, ...]:
    """The note on where the gradient was asked for, when that is another line."""
    if place is None or place == forward:
        return ()
    return (f"the gradient is computed at {place.told}",)


def relanded(wreck: Wreck) -> Wreck:
    """An error while a gradient op was being traced: the innermost frames are those of the op it is the gradient of.

    Frames of functions that had returned by then are known by their place only.
    """
    frames = failures.innermost_frames(wreck.failure.root)
    found = next((found for frame in frames if (found := internals_errors.gradient_of(frame)) is not None), None)
    if found is None:
        return wreck
    made = replace(wreck, facts=replace(wreck.facts, forward=found[0]))
    lines = internals_errors.places_inside(found[1]) if found[1] is not None else []
    places = [Place(*each) for each in lines if not is_hidden(each[0])]
    if not places:
        return made
    users = [n for n, (entry, _) in enumerate(wreck.entries) if n >= wreck.failure.inside and is_users(entry)]
    same = 0
    while same < min(len(users), len(places)) and is_of(wreck.entries[users[same]][0], places[same]):
        same += 1
    if not same:
        return made
    last = wreck.entries[users[same - 1]][0]
    names = evidence.globals_here(last)
    inner = [evidence.place_frame(each, names) for each in places[same:]]
    here = replace(last, lineno=places[same - 1].lineno) if isinstance(last, LiveFrame) else last
    landed: list[tuple[FrameType | LiveFrame, int]] = [(here, places[same - 1].lineno)]
    landed += [(frame, frame.lineno) for frame in inner]
    entries = (*wreck.entries[: users[same - 1]], *landed)
    facts = replace(made.facts, place=places[-1], text=evidence.source_text(places[-1].filename))
    return replace(made, entries=entries, facts=facts, notes=(*asked(wreck.facts.place, places[-1]), *made.notes))


def is_users(entry: FrameType | LiveFrame) -> bool:
    """Whether a stack entry is of the user's code."""
    return not is_hidden(evidence.filename_of(entry))


def is_of(entry: FrameType | LiveFrame, place: Place) -> bool:
    """Whether a stack entry is a run of the function that the place is in."""
    return (evidence.filename_of(entry), evidence.function_of(entry)) == (place.filename, place.function)
