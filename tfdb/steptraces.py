"""What `retraces` was asked about -> the tf.functions that trace it: a Keras model's steps, a function's callers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from . import graphs, internals_graphs, traces
from .graphrecords import TraceRow
from .sourcemap import is_user
from .traceable import is_model
from .traces import Event, Recorder

STEPS = {
    "train_function": ("train_step", "fit", "train_on_batch", "make_train_function"),
    "test_function": ("test_step", "evaluate", "test_on_batch", "make_test_function"),
    "predict_function": ("predict_step", "predict", "predict_on_batch", "make_predict_function"),
}


MAKES_VARIABLES = "the first step makes the model's or the optimizer's variables: these two traces are usual"


@dataclass(frozen=True, slots=True)
class Behind:
    """The tf.functions that trace a value, how it belongs to them, and the user's own functions inside them.

    `groups` are the noted traces of functions that are known by their code alone.
    """

    functions: list[Any]
    note: str = ""
    python: list[Any] = field(default_factory=list)
    groups: list[tuple[str, CodeType | None, list[Event]]] = field(default_factory=list)


def behind(value: Any, recorder: Recorder) -> Behind:
    """The tf.functions whose traces answer for a value; none when nothing that was traced calls it."""
    if internals_graphs.is_function(value):
        return Behind([value])
    owner = value if is_model(value) else getattr(value, "__self__", None)
    name = getattr(value, "__name__", "")
    if is_model(owner) and (found := list(steps_of(owner, name))):
        used = {name for name, _ in found}
        what = ".".join(filter(None, [getattr(owner, "name", ""), name if owner is not value else ""]))
        note = f"{what} is traced in the step functions that Keras makes of {', '.join(ways(used))}"
        return Behind([step for _, step in found], note, own_functions(owner, used))
    inner = graphs.inner_function(value)
    if inner is not None:
        return Behind([inner])
    return callers(value, recorder)


def steps_of(model: Any, method: str) -> Iterator[tuple[str, Any]]:
    """A Keras model's step functions that were made, as (attribute, tf.function): of one method, or all.

    Keras wraps the function that takes a batch in one that draws the batch: the inner one has the user's arguments.
    """
    chosen = [name for name, methods in STEPS.items() if method in methods] or list(STEPS)
    for name in chosen:
        found = list(within(getattr(model, name, None)))
        if found:
            yield name, found[-1]


def within(value: Any, depth: int = 5) -> Iterator[Any]:
    """The tf.functions that a function is, or is made of through what it closes over, outermost first."""
    if internals_graphs.is_function(value):
        yield value
        value = internals_graphs.python_function(value)
    for cell in getattr(value, "__closure__", None) or ():
        inner = cell.cell_contents
        if depth and (internals_graphs.is_function(inner) or isinstance(inner, FunctionType)):
            yield from within(inner, depth - 1)


def ways(attributes: set[str]) -> list[str]:
    """What the user calls: fit, evaluate, predict."""
    return [f"{methods[1]}()" for name, methods in STEPS.items() if name in attributes]


def own_functions(model: Any, attributes: set[str]) -> list[Any]:
    """The methods of the user's that the steps run."""
    names = [methods[0] for name, methods in STEPS.items() if name in attributes] + ["call"]
    found = [getattr(model, name, None) for name in names]
    codes = [(each, getattr(getattr(each, "__func__", None), "__code__", None)) for each in found]
    return [each for each, code in codes if code is not None and is_user(code.co_filename)]


def callers(value: Any, recorder: Recorder) -> Behind:
    """The traced functions whose code names a plain Python function."""
    name = getattr(value, "__name__", "")
    found = [group for group in recorder.groups() if name and group[1] is not None and name in names_of(group[1])]
    text = ", ".join(dict.fromkeys(group[0] for group in found))
    if found:
        return Behind([], f"{name} is plain Python, traced as a part of {text}", [value], found)
    inside = of_code(value, recorder)
    return Behind(
        [], f"{name} makes {', '.join(each[0] for each in inside)} when it is called" if inside else "", [], inside
    )


def of_code(value: Any, recorder: Recorder) -> list[tuple[str, CodeType | None, list[Event]]]:
    """The noted traces of tf.functions that were made of this function's code, or of a function defined inside it."""
    function = internals_graphs.python_function(value) if internals_graphs.is_function(value) else value
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    own = [code, *(each for each in code.co_consts if isinstance(each, CodeType))] if code is not None else []
    return [group for group in recorder.groups() if any(group[1] is each for each in own)]


def names_of(code: CodeType) -> tuple[str, ...]:
    """The global, attribute and free names of a code object and of those in it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return (*code.co_names, *code.co_freevars, *(name for each in inner for name in names_of(each)))


def row(name: str, code: CodeType | None, events: list[Event]) -> TraceRow:
    """One line of the overview."""
    made = traces.distinct(events)
    explained = traces.explain(made)
    what = dict.fromkeys(f"{change.path} ({change.kind})" for each in explained for change in each)
    reasons = [f"because of {', '.join(what)}"] if what else []
    reasons += ["the tf.function is made anew each time"] if any(not each for each in explained[1:]) else []
    caller = next((event.trace.caller for event in events if event.trace.caller is not None), None)
    return TraceRow(name, traces.file_of(code), len(made), "; ".join(reasons), caller if code is None else None)
