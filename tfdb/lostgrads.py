"""A gradient that comes out None -> why: the cut between loss and variable, found among the ops behind the loss.

`Question` is one call of `tape.gradient` (or a user's `why`), `answer` what is to be said of it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from . import blame, detours, internals, internals_gradients, reach, sites, tapes
from .cuts import READS, Cone, Cut, Key, Node, find, most_blamed
from .flows import Flow
from .report import UserLine
from .sites import key_of
from .taperecords import Read, Recording
from .varnames import UNNAMED, name_of

MOST_LINES = 8  # that are looked behind for a call of numpy's
PYTHON = "python-value"  # the value went through plain Python: numpy(), float(), an `if`


@dataclass(eq=False)
class Question:
    """What a gradient was asked for: targets and sources as flat lists, names of the sources, who asked.

    `lost` are the positions of the sources without a gradient. `recording` is None when the tape opened unseen.
    """

    targets: Sequence[Any]
    sources: Sequence[Any]
    names: Sequence[str]
    lost: Sequence[int]
    tape: Any = None
    recording: Recording | None = None
    frame: FrameType | None = None
    only_unregistered: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The cut to name, the line to blame for it, the variables it explains, and the other cuts.

    Of those, one with names explains other variables than this one; one without is a second cut of the same.
    `how` says how a value went through Python, or where a tape was opened, as the kind asks.
    """

    cut: Cut
    line: UserLine | None
    names: tuple[str, ...]
    others: tuple[Answer, ...] = ()
    how: str = ""
    detail: UserLine | None = None


@dataclass(eq=False)
class Inquiry:
    """The walk for one question."""

    question: Question
    log: tapes.TapeLog
    flow: Flow = field(init=False)
    cone: Cone = field(init=False)

    def __post_init__(self) -> None:
        self.flow, self.cone = self.walk(assigns=False)

    def walk(self, assigns: bool) -> tuple[Flow, Cone]:
        """The ops behind the targets."""
        recording = self.question.recording
        since = recording.began if recording else 0
        flow = Flow(self.log, recording.number if recording else None, since, assigns)
        return flow, flow.cone([t for t in self.question.targets if is_tensor(t)])

    @functools.cached_property
    def through_writes(self) -> tuple[Flow, Cone]:
        """The ops behind the targets, and behind what the variables among them were given."""
        return self.walk(assigns=True)

    def answer(self) -> Answer | None:
        """Why the lost ones are; None when the walk sees no reason."""
        cuts = {index: self.cuts_of(index) for index in self.question.lost}
        if all(each and each[0].kind == "disconnected" for each in cuts.values()):
            return self.without_path()
        best = most_blamed([each for each in cuts.values() if each])
        if best is None:
            return None
        source = next(self.question.sources[i] for i, each in cuts.items() if any(same(cut, best) for cut in each))
        line = self.line(best, source)
        more = list(self.others(cuts, best))
        told = (best.kind, line, op_of(best))
        alike = [each for each in more if each.names and (each.cut.kind, each.line, op_of(each.cut)) == told]
        own = {self.question.names[i] for i, each in cuts.items() if any(same(cut, best) for cut in each)}
        own |= {name for each in alike for name in each.names}
        names = tuple(name for i, name in enumerate(self.question.names) if i in cuts and name in own)
        return Answer(best, line, names, tuple(each for each in more if each not in alike), self.how(best))

    def others(self, cuts: Mapping[int, Sequence[Cut]], best: Cut) -> Iterator[Answer]:
        """The cuts of variables that the best one does not explain, then other cuts of those that it does."""
        apart: dict[tuple[int, str], tuple[Cut, list[int]]] = {}
        beside: dict[tuple[int, str], Cut] = {}
        for index, each in cuts.items():
            if each and not any(same(cut, best) for cut in each):
                apart.setdefault((id(each[0].node), each[0].kind), (each[0], []))[1].append(index)
            else:
                beside |= {(id(c.node), c.kind): c for c in each if c.kind != "disconnected" and not same(c, best)}
        for cut, whose in apart.values():
            names = tuple(self.question.names[i] for i in whose)
            yield Answer(cut, self.line(cut, self.question.sources[whose[0]]), names, how=self.how(cut))
        yield from [Answer(cut, self.line(cut), ()) for key, cut in beside.items() if key not in apart][:3]

    def cuts_of(self, index: int) -> list[Cut]:
        """The cuts between the loss and one source."""
        source = self.question.sources[index]
        found = find(self.cone, self.flow.names(source))
        if self.question.only_unregistered:
            return [cut for cut in found if cut.kind == "unregistered"]
        if found and found[0].kind == "disconnected":
            flow, cone = self.through_writes
            again = find(cone, flow.names(source))
            if any(cut.kind == "assign" for cut in again):
                self.flow = flow
                return again
        if found and found[0].kind != "custom":
            return found
        return self.unwatched(source) or found

    def unwatched(self, source: Any) -> list[Cut]:
        """The cut of a source that is connected, but that the tape does not watch."""
        keys = [key for key in self.flow.names(source) if key in self.cone.depth]
        depths = [(self.cone.depth[n.outputs[0]], n) for key in keys for n in self.first_uses(key)]
        node = max(depths, key=lambda pair: pair[0])[1] if depths else None
        depth = max((depth for depth, _ in depths), default=0)
        dtype = str(getattr(getattr(source, "dtype", None), "name", ""))
        if not internals_gradients.is_trainable(source.dtype):
            return [Cut("integer", node, (dtype, ""), depth)]
        if (made := self.replaced(source)) is not None:
            return [Cut("replaced", made, depth=depth)]
        if is_variable(source) and not source.trainable:
            return [Cut("frozen", node, depth=depth)]
        recording, tape = self.question.recording, self.question.tape
        if is_variable(source):
            automatic = tape is None or internals_gradients.watches_variables(tape)
            return [] if automatic else [Cut("unwatched", node, depth=depth)]
        known = recording is not None and key_of(source) in recording.watched
        return [] if recording is None else [Cut("late" if known else "unwatched", node, depth=depth)]

    def replaced(self, source: Any) -> Node | None:
        """The op that made a source which is no variable any more, only a tensor computed from one."""
        if is_variable(source) or internals.is_symbolic(source):
            return None
        recording = self.question.recording
        made = self.log.ops.get(key_of(source))
        if made is None or recording is None or made.number > recording.began or recording.number in made.tapes:
            return None
        below = [self.log.ops[key].op for key in made.inputs if key in self.log.ops]
        return Node(made.op, made.inputs, made.outputs, place=made) if "ReadVariableOp" in below else None

    def first_uses(self, key: Key) -> list[Node]:
        """The ops that take a tensor, through the names that join graphs."""
        found = []
        for node in self.cone.consumers.get(key, ()):
            found += [node] if node.op else [each for out in node.outputs for each in self.first_uses(out)]
        return [node for node in found if node.outputs[0] in self.cone.depth]

    def line(self, cut: Cut, source: Any = None) -> UserLine | None:
        """The user line to blame for a cut."""
        if cut.kind in ("frozen", "integer") and source is not None:
            at = sites.frozen.get(source) if cut.kind == "frozen" else None
            at = at or blame.built.get(source) or self.defined(source)
            if at is not None:
                return at
        if cut.kind == "unrecorded" and (beside := self.beside_the_tape(cut)) is not None:
            return beside
        return self.flow.line(cut.node) if cut.node is not None else None

    def beside_the_tape(self, cut: Cut) -> UserLine | None:
        """The line, in the function that opened the tape, which led to an op that the tape did not see."""
        opened = self.question.recording.opened if self.question.recording else None
        stack = self.flow.stack(cut.node) if opened is not None and cut.node is not None else []
        here = [line for line in stack if opened and (line.file, line.function) == (opened.file, opened.function)]
        return here[-1] if here else None

    def defined(self, source: Any) -> UserLine | None:
        """The line where the function that asks gave a tensor its name."""
        frame = next(iter(blame.user_frames(self.question.frame)[::-1]), None)
        here = sites.user_line(frame)
        name = next((n for n, v in frame.f_locals.items() if v is source), "") if frame is not None else ""
        line = detours.assignment(here.file, here.line, name) if here is not None and name else None
        return UserLine(here.file, line, here.function) if here is not None and line is not None else None

    def how(self, cut: Cut) -> str:
        """More on a cut that the tape missed."""
        recording = self.question.recording
        if cut.kind != "unrecorded" or recording is None or recording.opened is None:
            return ""
        number = getattr(cut.node and cut.node.place, "number", None)
        before = number is not None and number < recording.began
        return "before" if before else "after"

    # -- no path --------------------------------------------------------------------------------------------------

    def without_path(self) -> Answer | None:
        """The loss is not computed from any of the sources: by way of Python, or not at all."""
        names = tuple(self.question.names[i] for i in self.question.lost)
        sources = [self.question.sources[i] for i in self.question.lost]
        read = self.last_read(sources)
        if read is not None:
            return Answer(Cut(PYTHON), read.line, names, how=read.how)
        if (node := self.stored(sources)) is not None:
            return Answer(Cut("op", node), self.flow.line(node), names)
        if self.question.targets and all(tapes.name_of(t) in self.log.slopes for t in self.question.targets):
            return Answer(Cut("linear"), sites.user_line(self.question.frame), names, detail=self.loss_line())
        if (found := self.in_text(sources)) is not None:
            return Answer(Cut(PYTHON), found[0], names, how=found[1])
        asked = sites.user_line(self.question.frame)
        loss = self.loss_line()
        line = asked or loss if self.learns_at_all() else loss or asked
        return Answer(Cut("disconnected"), line, names, detail=loss)

    def reachable(self, sources: Sequence[Any], ever: bool = False) -> set[int]:
        """The numbers of all eager tensors computed from the sources since the tape was opened, or ever."""
        keys = {key_of(source) for source in sources}
        began = self.question.recording.began if self.question.recording and not ever else 0
        ops = {id(op): op for op in list(self.log.ops.values())}
        for op in ops.values():
            if op.number > began and not keys.isdisjoint(op.inputs):
                keys.update(op.outputs)
        return keys

    def last_read(self, sources: Sequence[Any]) -> Read | None:
        """The place where a value computed from the sources was last taken into Python before the loss was made."""
        began = self.question.recording.began if self.question.recording else 0
        keys = self.reachable(sources)
        end = min([self.number_of(t) for t in self.question.targets if is_tensor(t)], default=None)
        reads = [r for r in self.log.reads if r.tensor in keys and r.number > began and (end is None or r.number < end)]
        values = [read for read in reads if read.how != "bool"]
        return next(reversed(values or reads), None) or self.read_before(sources)

    def stored(self, sources: Sequence[Any]) -> Node | None:
        """The op that put a value computed from the sources into a dataset, the last one before the loss."""
        keys = self.reachable(sources)
        end = max([self.number_of(t) for t in self.question.targets if is_tensor(t)], default=0)
        ops = {id(op): op for op in list(self.log.ops.values()) if op.op.endswith("Dataset") and op.number < end}
        found = [op for op in ops.values() if not keys.isdisjoint(op.inputs) and any(is_float(d) for d in op.dtypes)]
        return Node(found[-1].op, found[-1].inputs, found[-1].outputs, place=found[-1]) if found else None

    def read_before(self, sources: Sequence[Any]) -> Read | None:
        """The last time, before the tape opened, that something computed from the sources went into Python."""
        made = self.reachable(sources, ever=True) - {key_of(source) for source in sources}
        plain = {op.outputs[0] for op in list(self.log.ops.values()) if op.op in READS}
        began = self.question.recording.began if self.question.recording else 0
        reads = [r for r in self.log.reads if r.tensor in made - plain and r.how != "bool" and r.number < began]
        return next(reversed(reads), None) if not any(internals.is_symbolic(t) for t in self.question.targets) else None

    def number_of(self, target: Any) -> float:
        """When a target was made, in the log's count; for one that no op made, the end of time."""
        made = self.log.ops.get(key_of(target))
        return made.number if made is not None else float("inf")

    def in_text(self, sources: Sequence[Any]) -> tuple[UserLine, str] | None:
        """A call in the text that takes a tensor into numpy unseen, near the loss or near a constant in it."""
        frame = next(iter(blame.user_frames(self.question.frame)[::-1]), None)
        if frame is None or any(internals.is_symbolic(t) for t in self.question.targets):
            return None
        keys = self.reachable(sources)
        here = sites.user_line(frame)
        opened = self.question.recording.opened if self.question.recording else None
        first = opened.line if opened and here and opened.file == here.file else 0
        names = {n for n, v in frame.f_locals.items() if getattr(v, "_id", None) in keys}
        if here is not None and (found := nearest(here, first, names)):
            return found
        if (found := self.after_the_last(keys, here)) is not None:
            return found
        for _, node in self.cone.roots():
            line = self.flow.line(node) if node is not None and node.op else None
            if line is not None and line.function != "<module>" and (found := nearest(line, 0, None)):
                return found
        return None

    def after_the_last(self, keys: set[int], here: UserLine | None) -> tuple[UserLine, str] | None:
        """A call of numpy's behind one of the last lines that computed from the sources, on what that line made."""
        began = self.question.recording.began if self.question.recording else 0
        ops = {op.number: op for op in list(self.log.ops.values()) if op.number > began and keys & set(op.outputs)}
        lines = dict.fromkeys(ops[number].line for number in sorted(ops, reverse=True))
        for line in [each for each in lines if each is not None][:MOST_LINES]:
            inside = here is not None and (here.file, here.function) == (line.file, line.function)
            last = here.line if here is not None and inside else None
            if (detour := detours.of_what(line.file, line.line, last)) is not None:
                return UserLine(line.file, detour.line, line.function), detour.text
        return None

    def learns_at_all(self) -> bool:
        """Whether the loss is computed from any variable."""
        return any(str(self.cone.dtype(key)) == "resource" for key, _ in self.cone.roots())

    def loss_line(self) -> UserLine | None:
        """The user line nearest to the loss."""
        stack = {sites.user_line(frame) for frame in blame.user_frames(self.question.frame)}
        for key in self.cone.depth:
            for node in self.cone.made.get(key, ()):
                line = self.flow.line(node) if node.op else None
                if line is not None and line not in stack:
                    return line
        return None


def nearest(at: UserLine, first: int, names: set[str] | None) -> tuple[UserLine, str] | None:
    """The last call up to a line that takes one of `names` (any, if None) into Python, from line `first` on."""
    function = detours.function_at(at.file, at.line)
    found = [d for d in detours.detours(function) if first <= d.line <= at.line] if function is not None else []
    if names is not None:
        found = [each for each in found if names & set(each.names)]
    if not found:
        return None
    chosen = found[-1] if names is not None else found[0]
    return UserLine(at.file, chosen.line, at.function), chosen.text


def is_float(dtype: Any) -> bool:
    """Whether a dtype is of numbers that can have a gradient."""
    return bool(dtype.is_floating or dtype.is_complex)


def op_of(cut: Cut) -> str:
    """The op that the words about a cut are of; "" where they are of the tape or the source."""
    return cut.node.op if cut.node is not None and cut.kind in ("op", "unregistered", "custom", "assign") else ""


def same(one: Cut, other: Cut) -> bool:
    """Whether two cuts are of the same op."""
    return one.node is other.node and one.kind == other.kind


def is_tensor(value: Any) -> bool:
    """Whether a gradient can be asked for of this."""
    return hasattr(value, "dtype") and (hasattr(value, "graph") or hasattr(value, "handle") or hasattr(value, "_id"))


def is_variable(value: Any) -> bool:
    """Whether it is a variable."""
    return hasattr(value, "handle") and hasattr(value, "trainable")


def flat(values: Any) -> list[Any]:
    """The leaves of targets or sources: dense tensors, and variables without Keras' wrapping."""
    import tensorflow as tf

    found: list[Any] = []
    for leaf in sites.flat(values):
        parts = tf.nest.flatten(leaf, expand_composites=True) if internals.is_composite(leaf) else [leaf]
        found += parts if not hasattr(leaf, "handle") else [leaf]
    return found


def is_unseen(question: Question) -> bool:
    """Whether the tape opened before the ops were kept: of eager code nothing can be said then."""
    targets = [target for target in question.targets if is_tensor(target)]
    eager = bool(targets) and not any(internals.is_symbolic(target) for target in targets)
    return eager and question.tape is not None and (question.recording is None or not question.recording.logged)


def answers(question: Question, log: tapes.TapeLog) -> Answer | None:
    """Why the question's lost gradients are lost; None where nothing is known."""
    if is_unseen(question):
        names = tuple(question.names[i] for i in question.lost)
        return Answer(Cut("unseen"), sites.user_line(question.frame), names)
    return Inquiry(question, log).answer()


def names_of(sources: Iterable[Any], frame: FrameType | None) -> list[str]:
    """The sources' names: a variable's own, else the user's name for the tensor in the innermost user frame."""
    frames = blame.user_frames(frame)[-1:]
    places = [names for f in frames for names in (f.f_globals, f.f_locals)]
    local = {id(v): n for names in places for n, v in list(names.items()) if not n.startswith("_")}
    found = []
    for source in sources:
        known = name_of(source) if hasattr(source, "trainable") or hasattr(source, "path") else "tensor"
        if known == "tensor" or UNNAMED.fullmatch(known):
            reached = (reach.path_to(source, names, "") for names in reversed(places)) if is_variable(source) else ()
            known = local.get(id(source)) or next(filter(None, reached), known)
        found.append(known)
    return found
