"""An exception -> a Wreck: the whole stack with values, and what there is to say of the error in a few lines."""

import re
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from tfdb import (
    blame,
    evidence,
    failures,
    forwardops,
    internals,
    internals_errors,
    kerasfacts,
    leaks,
    numericfaults,
    refetch,
    scenes,
    stages,
    state,
    syntax,
    tensors,
)
from tfdb.evidence import Shown, place_of, source_text, text_of
from tfdb.explain import Facts, Place, Reported, report
from tfdb.explanations import explain
from tfdb.failures import Failure
from tfdb.frames import LiveFrame, attributes_of_this_pass, live, standing
from tfdb.kept import Keeper
from tfdb.report import Report
from tfdb.retrace import Scene, Target
from tfdb.sourcemap import GENERATED_FILE, OWN, Activation, is_hidden
from tfdb.symbols import Collector, Values
from tfdb.tripreports import Origin

Entry = tuple[FrameType | LiveFrame, int]
OWN_PLACE = re.compile(rf'^ *File "{re.escape(OWN)}[^"]*", line \d+, in \w+\n(?:    .*\n)*\n?', re.M)
NEW_PASS = " and the start of a new pass over the data"
MOST_VALUES = 6  # tensors in the first lines; the others are a `p` away


@dataclass(frozen=True, slots=True, eq=False)
class Wreck:
    """What is left of a failed call: `entries` are its stack, outermost first; `notes` say where values are from.

    `origin` is the report on the bad value that the error is about, as a watch's; `layer` are lines on the Keras layer
    that it came from, `owner`.  `given` is the call of a dataset's function that failed; `calls` are those of
    `tf.function`s that were being made, with their arguments, the innermost first; `batch` is what a failing step that
    was run again took from a new pass over its data.
    """

    failure: Failure
    reported: Reported
    facts: Facts
    entries: tuple[Entry, ...]
    shown: tuple[Shown, ...]
    notes: tuple[str, ...]
    full: str
    origin: Report | None = None
    layer: tuple[str, ...] = ()
    owner: Any = None
    given: refetch.Given | None = None
    calls: tuple[Any, ...] = ()
    batch: Sequence[Any] = ()

    @property
    def sentence(self) -> str | None:
        """The explanation, where the error is one of the usual ones."""
        return explain(self.facts)

    def standing(self, at: Callable[[list[tuple[FrameType, int]]], Any]) -> Any:
        """Call `at(stack)` while real frames stand for all entries."""
        lives = [entry for entry, _ in self.entries if isinstance(entry, LiveFrame)]

        def ask(made: list[FrameType]) -> Any:
            stand_ins = iter(made)
            return at([(e if isinstance(e, FrameType) else next(stand_ins), line) for e, line in self.entries])

        with attributes_of_this_pass(lives):
            return standing(lives, ask)


def examine(error: BaseException, keeper: Keeper | None = None) -> Wreck:
    """All that can be found out about an exception; runs parts of the failed call again where that gives values."""
    failure = failures.examine(error)
    reported = report(str(failure.root))
    wreck = plain_wreck(failure, reported)
    if not internals.loaded():
        return wreck
    try:
        with keeper.pause() if keeper is not None else nullcontext(), state.set_aside():
            return with_layer(with_values(wreck, keeper), keeper)
    except Exception as problem:  # a debugger must not fail at the one moment it is needed
        note = f"tfdb could not find out more: {type(problem).__name__}: {report(str(problem)).message}"
        return replace(wreck, notes=(*wreck.notes, note))


def built_lines(keeper: Keeper | None) -> blame.Lines:
    """The lines that made layers and datasets, as far as they are known."""
    return keeper.built if keeper is not None else blame.built


def with_layer(wreck: Wreck, keeper: Keeper | None) -> Wreck:
    """The wreck with what is known of the layer that it came from."""
    if wreck.origin is not None:
        return wreck
    built = built_lines(keeper)
    if wreck.owner is not None:
        return replace(wreck, layer=(f"in {kerasfacts.told(wreck.owner, built)}",))
    lines = kerasfacts.of_frames(failures.innermost_frames(wreck.failure.root), built)
    return replace(wreck, layer=lines or kerasfacts.of_node(wreck.reported.node, built))


def with_values(wreck: Wreck, keeper: Keeper | None) -> Wreck:
    """The wreck with what TensorFlow can still tell."""
    failure, reported, error = wreck.failure, wreck.reported, wreck.failure.error
    if numericfaults.is_numeric(failure.root):
        found = numericfaults.origin_of(failure, keeper)
        if not isinstance(found, str):
            return numeric_wreck(wreck, found)
        if found is numericfaults.WRITTEN:  # a run from the variables as they are now would fail elsewhere
            return with_line_facts(with_places(wreck, found), None)
        wreck = replace(wreck, notes=(*wreck.notes, found))
    inner = keeper.error(str(error)) if keeper is not None and reported.python else None
    if inner is not None:
        return python_wreck(wreck, inner)
    if failure.traced:
        return traced_wreck(wreck)
    if reported.node and internals_errors.is_op_error(failure.root):
        return with_stage(graph_wreck(wreck, keeper), keeper)
    return with_stage(with_line_facts(wreck, None), keeper)


def plain_wreck(failure: Failure, reported: Reported) -> Wreck:
    """The error with its stack as it is."""
    entries = tuple((each.base, each.lineno) for each in failure.stack)
    kind = type(failure.error if internals_errors_class(failure.root) else failure.root).__name__
    facts = Facts(kind, reported.body, place_of(failure.user), text_of(failure.user), reported.op)
    full = OWN_PLACE.sub("", "".join(traceback.format_exception(failure.error)))
    notes = tuple(related_line(how, other) for how, other in failures.related(failure.error))
    calls = [call for f in internals_errors.outward(failure.deepest) if (call := internals_errors.function_call(f))]
    notes += evidence.position(failure.deepest)
    return Wreck(failure, reported, facts, entries, (), notes, full, calls=tuple(calls))


def internals_errors_class(error: BaseException) -> bool:
    """Whether the exception's class is private to a library."""
    return type(error).__name__.startswith("_")


def related_line(how: str, error: BaseException) -> str:
    """Another exception in a line, with its place."""
    user = failures.examine(error).user
    place = place_of(user)
    said = report(str(error)).message
    where = f" ({place.short} {place.function})" if place is not None else ""
    return f"{how} {type(error).__name__}{': ' + said if said else ''}{where}"


def numeric_wreck(wreck: Wreck, found: Origin) -> Wreck:
    """An error about NaN or infinities: the frames where the value was made."""
    line = found.report.line
    place = Place(line.file, line.line, line.function) if line is not None else wreck.facts.place
    facts = replace(wreck.facts, place=place, op=found.report.op or "")
    entries = numericfaults.joined(wreck.failure, found) or wreck.entries
    return replace(wreck, entries=entries, facts=facts, origin=found.report)


def python_wreck(wreck: Wreck, inner: BaseException) -> Wreck:
    """An exception of the user's Python function that a graph called: its own frames below those of the call."""
    failure = failures.examine(inner)
    frames = tuple((each.base, each.lineno) for each in failure.stack)
    said = report(str(inner))
    facts = Facts(type(inner).__name__, said.body, place_of(failure.user), text_of(failure.user))
    note = f"raised in Python code that a graph called: {wreck.facts.error} outside, these frames are its own"
    wreck = replace(wreck, entries=wreck.entries + inside_entries(wreck))
    if stages.DRAWING in wreck.full:  # the data's own code failed, not the step that wanted it
        wreck = replace(wreck, calls=())
    made = replace(wreck, failure=replace(failure, error=wreck.failure.error), reported=said, facts=facts,
                   entries=wreck.entries + frames, notes=(note, *wreck.notes))  # fmt: skip
    return with_line_facts(made, None)


def traced_wreck(wreck: Wreck) -> Wreck:
    """An error while tracing: the user's frames, with the values that their symbolic tensors have in this call."""
    failure = wreck.failure
    collector = Collector()
    frames = [collector.frame(each, number) for number, each in enumerate(failure.traced)]
    values = Values(failure.deepest)
    found = values.of(collector.tensors)
    lives = [live(frame, found) for frame in frames]
    entries = wreck.entries[: failure.inside] + tuple((frame, frame.lineno) for frame in lives)
    whole = replace(wreck, entries=entries, given=values.given)
    whole = replace(whole, facts=replace(whole.facts, elements=values.from_dataset))
    whole = forwardops.relanded(whole)
    known = any(not internals.is_symbolic(value) for value in found)
    if not known and failure.user is not None and (again := eager_wreck(whole)) is not None:
        return again
    scene = called_scene(whole, values)
    made = with_scene(whole, scene) if scene is not None else with_line_facts(whole, failure.user, values)
    return replace(made, notes=(f"raised while {traced_name(made)} was being traced; {source(values)}", *made.notes))


def source(values: Values) -> str:
    """Where the values of a function that was being traced are from."""
    if values.from_dataset:
        return "values are computed from the first element of the dataset"
    if not values.known:
        return "there are no values yet"
    return f"values are computed from this call's arguments{NEW_PASS if values.from_new_pass else ''}"


def eager_wreck(wreck: Wreck) -> Wreck | None:
    """An error while Keras builds a model, where nothing has a value: the same error of an eager call of the model."""
    error = refetch.run_eagerly(internals_errors.outward(wreck.failure.deepest))
    again = failures.examine(error) if error is not None else None
    if again is None or place_of(again.user) != place_of(wreck.failure.user):
        return None
    inner = next(n for n, each in enumerate(again.stack) if not each.hidden)
    frames = tuple((each.base, each.lineno) for each in again.stack[inner:])
    note = "raised while Keras built the model; values are those of an eager call of it on the first batch"
    entries = wreck.entries[: wreck.failure.inside] + frames
    made = replace(wreck, entries=entries, notes=(note, *wreck.notes))
    return with_line_facts(made, None)


def called_scene(wreck: Wreck, values: Values) -> Scene | None:
    """The op of a function traced before, whose shapes do not fit a call of it that was being traced now."""
    running = False
    for frame in internals_errors.outward(wreck.failure.deepest):
        running = running or bool(internals_errors.graph_called(frame))
        call = internals_errors.function_call(frame)
        if GENERATED_FILE in frame.f_code.co_filename or not is_hidden(frame.f_code.co_filename):
            return None
        if call is not None and running and wreck.reported.node:
            function, args, kwargs = call
            args, kwargs = values.filled((args, kwargs))
            return refetch.Call(function, args, kwargs).scene(Target(wreck.reported.node))
    return None


def traced_name(wreck: Wreck) -> str:
    """The outermost function of the user's that was being traced."""
    user = next((each for each in wreck.failure.traced if not each.hidden), None)
    if user is not None:
        return f"{user.function}()"
    return "Keras' step" if evidence.position(wreck.failure.deepest) else "the function"


def graph_wreck(wreck: Wreck, keeper: Keeper | None) -> Wreck:
    """A run-time error of a graph: the user's frames inside the graph, at the op that failed."""
    dry = wreck.facts.error == "ResourceExhaustedError"
    found = scenes.scene_of(wreck.failure.deepest, wreck.reported, dry, keeper)
    if found is None:
        return graph_alone(with_places(wreck))
    scene, note = found.scene, found.note
    if not scene.certain:
        note += "; the op did not fail again by itself, they are of its last pass"
    return with_scene(replace(wreck, notes=(note, *wreck.notes), given=found.given, batch=found.batch), scene)


def with_stage(wreck: Wreck, keeper: Keeper | None) -> Wreck:
    """The wreck of an error in a dataset with the stage that failed, and what that was given."""
    if stages.DRAWING not in wreck.full:
        return wreck
    dataset = next(scenes.datasets_of(list(internals_errors.outward(wreck.failure.deepest))), None)
    stage = stages.failing(dataset) if dataset is not None else None
    if stage is None:
        return wreck
    line = stages.told(stage, built_lines(keeper))
    shown = (*wreck.shown, *stages.given(stage))[:MOST_VALUES]
    return replace(wreck, shown=shown, notes=((line,) if line else ()) + wreck.notes)


def graph_alone(wreck: Wreck) -> Wreck:
    """A run-time error of a graph whose Python is not at hand: the failing op's inputs, if they can be computed."""
    run = next(
        (r for f in internals_errors.outward(wreck.failure.deepest) if (r := internals_errors.graph_run(f))), None
    )
    if run is None or wreck.facts.error == "ResourceExhaustedError":
        return with_line_facts(wreck, None)
    try:
        scene = refetch.fetch_inputs(*run, wreck.reported.node)
    except Exception:  # what is computed on the way may fail as the op did
        scene = None
    if scene is None:
        return with_line_facts(wreck, None)
    note = "values: the op's inputs were computed from the graph and what it was called with"
    return with_scene(replace(wreck, notes=(*wreck.notes, note)), scene)


def with_scene(wreck: Wreck, scene: Scene) -> Wreck:
    """The wreck with the frames and inputs of the failing op."""
    entries = wreck.entries + tuple((frame, frame.lineno) for frame in scene.frames)
    user = next((frame for frame in reversed(scene.frames) if not frame.hidden), None)
    if scene.error:
        first = f"run again, an op that comes before {wreck.reported.node} fails, which the optimizer had left out"
        reported = report(scene.error)
        facts = replace(wreck.facts, message=reported.body)
        notes = (f"{first}: {reported.message}", *wreck.notes)
        wreck = replace(wreck, reported=replace(wreck.reported, node=scene.node), facts=facts, notes=notes)
    operands = tuple(evidence.input_operand(each) for each in scene.inputs)
    shown = [
        Shown(each.name or each.argument, tensors.describe_leaf(each.value), "", each.origin)
        for each in scene.inputs
        if evidence.is_shown(scene.op, each)
    ]
    shown += evidence.arguments_of(user, {each.name for each in shown}) if user is not None else []
    place = Place(user.filename, user.lineno, user.function) if user is not None else wreck.facts.place
    text = source_text(place.filename) if place is not None else ""
    forward = scene.gradient.forward if scene.gradient is not None else ""
    facts = replace(wreck.facts, place=place, text=text, op=scene.op, forward=forward, operands=operands)
    made = replace(wreck, entries=entries, facts=facts, shown=tuple(shown[:MOST_VALUES]), owner=scene.layer)
    return forwardops.told(made, scene.node)


def with_places(wreck: Wreck, note: str = "no values in the graph's frames: its function is not at hand") -> Wreck:
    """Without values, the user's lines inside the graph as TensorFlow's message tells them."""
    found = inside_entries(wreck)
    if not found:
        return wreck
    return replace(at_frames(wreck, [frame for frame, _ in found]), notes=(note, *wreck.notes))


def at_frames(wreck: Wreck, frames: Sequence[LiveFrame]) -> Wreck:
    """The wreck with these frames below the others, at the last of them."""
    last = frames[-1]
    place = Place(last.filename, last.lineno, last.function)
    facts = replace(wreck.facts, place=place, text=source_text(place.filename))
    return replace(wreck, entries=wreck.entries + tuple((frame, frame.lineno) for frame in frames), facts=facts)


def inside_entries(wreck: Wreck) -> tuple[tuple[LiveFrame, int], ...]:
    """The user's lines inside the graph, as TensorFlow's message tells them, without values."""
    eager = {(each.filename, each.function) for each in wreck.failure.stack}
    places = [each for each in wreck.reported.places if not is_hidden(each.filename)]
    last = max((n for n, each in enumerate(places) if (each.filename, each.function) in eager), default=-1)
    inside = places[last + 1 :]
    if wreck.reported.python:
        inside = [each for each in inside if (each.filename, each.function) not in python_places(wreck.failure.root)]
    return tuple((evidence.place_frame(each, globals_of(wreck, each.filename)), each.lineno) for each in inside)


def python_places(error: BaseException) -> set[tuple[str, str]]:
    """The files and functions of the Python traceback in the text of a graph's error."""
    text = str(error).split("\nTraceback (most recent call last)")[-1]
    return {(each.filename, each.function) for each in report(text).places}


def globals_of(wreck: Wreck, filename: str) -> dict[str, Any]:
    """The globals of a file's frames, if one is on the stack."""
    for each in wreck.failure.stack:
        if each.filename == filename:
            return each.base.f_globals
    return {}


def with_line_facts(wreck: Wreck, traced: Activation | None, values: Values | None = None) -> Wreck:
    """The tensors that the failing op or line reads, as they stand in its frame, and what the line itself tells."""
    entry = next((e for e, _ in reversed(wreck.entries) if not is_hidden(evidence.filename_of(e))), None)
    place = wreck.facts.place
    if entry is None or place is None:
        return wreck
    names, symbols = evidence.locals_of(entry), traced.names() if traced is not None else evidence.locals_of(entry)
    found = [(name, evidence.looked_up(name, symbols, entry), evidence.looked_up(name, names, entry), "")
             for name in syntax.names_read(wreck.facts.text, place.lineno)]  # fmt: skip
    frames = failures.innermost_frames(wreck.failure.root) if values is not None else ()
    op = next((op for frame in frames if (op := internals_errors.failing_op(frame)) is not None), None)
    if op is not None and values is not None:
        called = {id(symbol): name for name, symbol, _, _ in found}
        inputs = [(called.get(id(each), name), each, values.filled(each), name) for name, each in op[1]]
        found = inputs + [each for each in found if each[0] not in {name for name, *_ in inputs}]
    found = [each for each in found if evidence.tells(each[1])]
    if not found or (op is None and wreck.failure.traced and all(each.hidden for each in wreck.failure.traced)):
        found = evidence.library_arguments(wreck.failure, values) or found
    found = [each for each in found if not evidence.is_resource(each[1])]
    operands = [
        replace(evidence.operand(name, symbol, evidence.made_by(symbol)), argument=role)
        for name, symbol, _, role in found
    ]
    shown = [
        evidence.shown_value(name, symbol, value)
        for name, symbol, value, role in found
        if role not in evidence.SETTINGS
    ]
    facts = replace(
        wreck.facts,
        op=op[0] if op else wreck.facts.op,
        operands=tuple(operands),
        has_source=evidence.has_source(traced),
    )
    eager = traced is None and not wreck.failure.traced
    leak = leaks.leak_of(facts, entry, wreck.failure.deepest, eager)
    made = replace(wreck, facts=replace(facts, leak=leak), shown=tuple(shown[:MOST_VALUES]))
    inside = leaks.frames_of_use(wreck.failure.deepest, leak.tensor) if leak is not None and eager else ()
    return replace(at_frames(made, inside), notes=(leaks.taken(inside), *made.notes)) if inside else made
