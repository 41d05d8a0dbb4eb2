"""`GradientTape.gradient` while `watch none` is on -> a Trip and its Origin when gradients come out None.

What is None on purpose (an unused head, a frozen part, a stop_gradient) trips only when everything asked for is None,
or when the watch names it with `in REGEX`.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from . import blame, internals, internals_gradients, lostgrads, replaying, sites, tapes, varnames
from .conditions import Watch
from .cuts import Cut, Node
from .cuttext import CutFacts, worded
from .gate import Place, Trip, gate
from .lostgrads import Answer, Question
from .report import Frame, Report, UserLine
from .tripreports import Origin

RAISED = object()
MOST_APART = 16  # lost gradients that are each looked into
DETAILS = {"used": "first used at ", "python": "inside, the value is lost at "}
OnStop = Callable[[Trip, Origin], None]


class NoneWatch:
    """The watch for lost gradients: hooked on every tape's `gradient`."""

    def __init__(self) -> None:
        self.patches = internals.Patches()
        self.keras_patches = internals.Patches()
        self.freezing = ExitStack()
        self.watches: tuple[Watch, ...] = ()
        self.on_stop: OnStop = lambda trip, origin: None
        self.had_tapes = False
        self.local = threading.local()
        self.failed = False
        self.last: Question | None = None

    def install(self, watches: Sequence[Watch], on_stop: OnStop) -> None:
        """Watch from now on; Keras packages imported later are hooked by calling this again.  Idempotent."""
        self.watches, self.on_stop = tuple(watches), on_stop
        if not self.patches.saved:
            self.had_tapes = bool(tapes.log.patches.saved)
            tapes.log.install()
            self.patches.replace(internals_gradients.tape_class(), "gradient", self.differentiating)
            for name in ("jacobian", "batch_jacobian"):
                self.patches.replace(internals_gradients.tape_class(), name, self.differentiating)
            internals_gradients.replace_symbolic(self.patches, self.differentiating_symbols)
        self.freezing.close()
        self.keras_patches.remove()
        internals_gradients.replace_conversion(self.keras_patches, tapes.log.converting)
        self.freezing = internals_gradients.replace_freezing(sites.freezing)

    def remove(self) -> None:
        """Put everything back.  Idempotent; must come before whatever was hooked earlier is put back."""
        self.freezing.close()
        self.keras_patches.remove()
        self.patches.remove()
        tapes.log.remove_ops()
        if not self.had_tapes:
            tapes.log.remove()
        sites.frozen.clear()

    def differentiating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`GradientTape.gradient`, looked at before and after."""

        def gradient(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            within = self.inside and internals_gradients.python_token(frame) is None
            if replaying.active() or getattr(gate.local, "busy", 0) > 0 or tapes.log.at_prompt() or within:
                return original(tape, target, sources, *args, **kwargs)
            self.guarded(self.before, tape, target, sources, frame)
            try:
                with self.looking():
                    result = original(tape, target, sources, *args, **kwargs)
            except LookupError:
                self.guarded(self.look, tape, target, sources, RAISED, frame)
                raise
            self.guarded(self.look, tape, target, sources, result, frame)
            return result

        return gradient

    def differentiating_symbols(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`tf.gradients` in a graph."""

        def gradients_helper(ys: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(ys, xs, *args, **kwargs)
            frame = sys._getframe(1)
            if internals_gradients.asked_by_program(frame) and not self.inside:
                self.guarded(self.look, None, ys, xs, found, frame)
            return found

        return gradients_helper

    @property
    def inside(self) -> bool:
        """Whether this thread is inside of a gradient that is looked at already (a jacobian is made of many)."""
        return getattr(self.local, "inside", False)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look at nothing else on this thread inside the block."""
        self.local.inside = True
        try:
            yield
        finally:
            self.local.inside = False

    def guarded(self, look: Callable[..., None], *args: Any) -> None:
        """Look, and let no mistake of the debugger's own reach the program."""
        try:
            look(*args)
        except Exception as error:
            if not self.failed:
                self.failed = True
                sys.stderr.write(f"tfdb: watch none cannot judge this gradient: {type(error).__name__}: {error}\n")

    def before(self, tape: Any, target: Any, sources: Any, frame: Any) -> None:
        """What can be told before the gradient is computed: a tape used up, a loss that is no tensor."""
        recording = tapes.log.recording_of(tape)
        leaves = lostgrads.flat(sources)
        names = lostgrads.names_of(leaves, frame)
        question = Question([], leaves, names, range(len(leaves)), tape, recording, frame)
        if internals_gradients.handle_of(tape) is None and recording is not None and recording.used is not None:
            detail = recording.used
            self.trip(question, Answer(Cut("used"), sites.user_line(frame), tuple(names), detail=detail))
        elif recording is not None:
            recording.used = recording.used or sites.user_line(frame)
        targets = lostgrads.flat(target)
        if targets and not any(lostgrads.is_tensor(each) for each in targets):
            if (answer := lostgrads.answers(question, tapes.log)) is not None:
                self.trip(question, answer)

    def look(self, tape: Any, target: Any, sources: Any, result: Any, frame: Any) -> None:
        """Look for lost gradients in what a tape gave; RAISED when there is no result."""
        import tensorflow as tf

        leaves = list(sites.flat(sources))
        given = [None] * len(leaves) if result is RAISED else tf.nest.flatten(result)
        lost = [index for index, gradient in enumerate(given) if gradient is None]
        if not leaves or len(given) != len(leaves):
            if not leaves and lostgrads.flat(target):
                self.empty(tape, frame)
            return
        if not lost:
            return
        recording = tapes.log.recording_of(tape)
        names = lostgrads.names_of(leaves, frame)
        question = Question(lostgrads.flat(target), leaves, names, lost, tape, recording, frame, result is RAISED)
        answer = in_python(question, frame) or lostgrads.answers(question, tapes.log)
        if answer is not None and self.is_fault(question, answer, len(lost) == len(leaves)):
            self.trip(question, answer)

    def empty(self, tape: Any, frame: Any) -> None:
        """A gradient for no variables: everything is frozen."""
        line = sites.frozen.latest() or sites.user_line(frame)
        question = Question([], [], [], [], tape, tapes.log.recording_of(tape), frame)
        self.trip(question, Answer(Cut("empty"), line, ()))

    def is_fault(self, question: Question, answer: Answer, all_lost: bool) -> bool:
        """Whether these lost gradients are to be named."""
        lost = [question.names[i] for i in question.lost]
        return (
            all_lost
            or not answer.cut.on_purpose
            or any(
                watch.scope and any(watch.scope.search(name) for name in varnames.known_as(lost))
                for watch in self.watches
            )
        )

    def trip(self, question: Question, answer: Answer) -> None:
        """Hand over what was found."""
        names = answer.names or tuple(question.names[i] for i in question.lost)
        watch = self.concerned(names)
        if watch is None:
            return
        if not gate.count(watch):
            return
        place = Place(None, "none", names)
        trip = Trip(place, watch, "none-grad", (), ("none",) * len(names), frame=question.frame)
        self.last = question
        with gate.quiet(), self.forgetting():
            self.on_stop(trip, Origin(report(question, answer), frames_of(question.frame)))

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Know the question that a stop is about while it lasts."""
        try:
            yield
        finally:
            self.last = None

    def concerned(self, names: Sequence[str]) -> Watch | None:
        """The watch that these lost gradients fall under."""
        for watch in self.watches:
            if watch.scope and not any(watch.scope.search(name) for name in varnames.known_as(names)):
                continue
            if watch.allow and all(watch.allow.search(name) for name in names):
                continue
            return watch
        return None


def in_python(question: Question, frame: Any) -> Answer | None:
    """Why the gradient inside of a `py_function` of a graph is lost, which TensorFlow would turn into zeros."""
    token = internals_gradients.python_token(frame)
    if token is None or len(question.lost) < len(question.sources):
        return None
    line = tapes.log.python_calls.get(token)
    inside = lostgrads.answers(question, tapes.log)
    node = Node("EagerPyFunc", (), ())
    return Answer(Cut("python", node), line, tuple(question.names), detail=inside.line if inside is not None else None)


def facts_of(question: Question, answer: Answer) -> CutFacts:
    """What the words for an answer need to know."""
    cut, opened = answer.cut, question.recording.opened if question.recording else None
    return CutFacts(
        cut.kind,
        cut.node.op if cut.node else "",
        *cut.dtypes,
        how=answer.how,
        name=named(answer.names),
        opened=str(opened.line) if opened else "",
    )


def apart(question: Question, answer: Answer) -> Answer:
    """The answer on gradients that are lost by way of Python, or by no path, without those lost in another way."""
    if answer.cut.kind not in (lostgrads.PYTHON, "disconnected") or not 1 < len(question.lost) <= MOST_APART:
        return answer
    alone = [lostgrads.answers(dataclasses.replace(question, lost=[index]), tapes.log) for index in question.lost]
    if None in alone or not any(each is not None and alike(each, answer) for each in alone):
        return answer
    kinds: dict[Any, list[Answer]] = {}
    for each in alone:
        if each is not None:
            kinds.setdefault((each.cut.kind, each.line), []).append(each)
    groups = [
        dataclasses.replace(each[0], names=tuple(n for one in each for n in one.names)) for each in kinds.values()
    ]
    mine = next(each for each in groups if alike(each, answer))
    return dataclasses.replace(answer, names=mine.names, others=tuple(each for each in groups if each is not mine))


def alike(one: Answer, other: Answer) -> bool:
    """Whether two answers blame the same line for the same."""
    return (one.cut.kind, one.line) == (other.cut.kind, other.line)


def named(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are; "" for none."""
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else "".join(names)


def note(question: Question, other: Answer) -> str:
    """What is said of one more cut: whose it is, if not of the variables that the report is about, and where."""
    at = f" · {place(other.line)}" if other.line is not None else ""
    if other.names:
        return f"{named(other.names)}: {worded(facts_of(question, other))[0]}{at}"
    return f"another cut: {other.cut.node.op}{at}" if other.cut.node is not None else ""


def report(question: Question, answer: Answer) -> Report:
    """The report on lost gradients."""
    answer = apart(question, answer)
    cause, fix = worded(facts_of(question, answer))
    notes = [text for each in answer.others if (text := note(question, each))]
    if answer.detail is not None:
        notes.append(DETAILS.get(answer.cut.kind, "the loss is computed at ") + place(answer.detail))
    lost = tuple(question.names[i] for i in question.lost)
    return Report(
        reason="none-grad",
        line=answer.line,
        op=answer.cut.node.op if answer.cut.node else None,
        phase="forward",
        cause=cause,
        fix=fix,
        variables=lost,
        explained=tuple(name for name in lost if name in answer.names) or lost,
        watched=len(question.sources),
        notes=tuple(notes),
        stack=tuple(each.line for each in frames_of(question.frame)),
    )


def place(line: UserLine | None) -> str:
    """A line, short."""
    return f"{line.file.rsplit('/', 1)[-1]}:{line.line}" if line else "an unknown line"


def frames_of(frame: Any) -> tuple[Frame, ...]:
    """The user's frames around the call of `gradient`, outermost first; generated ones as they were written."""
    found = [a for a in sites.traced(frame) if blame.is_user_file(a.filename)]
    return tuple(
        Frame(UserLine(a.filename, a.lineno, a.function), a.base.f_globals, a.names()) for a in reversed(found)
    )


watch = NoneWatch()
