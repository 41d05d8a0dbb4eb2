"""A stack entry and the tensors in it -> the facts that explanations are made from."""

import linecache
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np

from tfdb import failures, internals, internals_errors, origins, syntax, tensors
from tfdb.explain import Operand, Place
from tfdb.failures import Failure
from tfdb.frames import LiveFrame
from tfdb.records import TensorSummary
from tfdb.retrace import Input
from tfdb.sourcemap import Activation, is_hidden
from tfdb.symbols import Values

SETTINGS = (
    "axis",
    "concat_dim",
    "reduction_indices",
    "split_dim",
    "dim",
    "perm",
)  # inputs of ops that say how, not what
TRAINERS = ("fit", "evaluate", "predict")


@dataclass(frozen=True, slots=True)
class Shown:
    """A tensor worth a line: what it is called, its summary, its symbolic dtype and shape if it was one, its line."""

    name: str
    summary: TensorSummary
    symbolic: str = ""
    origin: str = ""


def shown_value(name: str, symbol: Any, value: Any) -> Shown:
    """A tensor of a failing line: its value, and what it was traced as."""
    was = kind_of(symbol) if internals.is_symbolic(symbol) else ""
    return Shown(name, tensors.describe_leaf(value), was, made_by(symbol))


def made_by(value: Any) -> str:
    """The user's line that made a tensor of a graph, or ""."""
    return origins.origin(value) if internals.is_symbolic(value) else ""


def filename_of(entry: FrameType | LiveFrame) -> str:
    """The file of a stack entry."""
    return entry.filename if isinstance(entry, LiveFrame) else entry.f_code.co_filename


def function_of(entry: FrameType | LiveFrame) -> str:
    """The name of the function of a stack entry."""
    return entry.function if isinstance(entry, LiveFrame) else entry.f_code.co_name


def locals_of(entry: FrameType | LiveFrame) -> Mapping[str, Any]:
    """The local names of a stack entry."""
    return entry.locals if isinstance(entry, LiveFrame) else entry.f_locals


def globals_here(entry: FrameType | LiveFrame) -> dict[str, Any]:
    """The global names of a stack entry."""
    return entry.globals if isinstance(entry, LiveFrame) else entry.f_globals


def looked_up(expression: str, names: Mapping[str, Any], entry: FrameType | LiveFrame) -> Any:
    """The value of a name or dotted name in a frame, or None."""
    try:
        return eval(expression, {**globals_here(entry), **names})
    except Exception:
        return None


def operand(name: str, value: Any, origin: str) -> Operand:
    """A tensor as explanations name it."""
    dtype = getattr(getattr(value, "dtype", None), "name", "") or str(getattr(value, "dtype", ""))
    shape = getattr(value, "shape", None)
    rank = getattr(shape, "rank", 0)
    extents = None if shape is None or rank is None else tuple(None if n is None else int(n) for n in shape)
    return Operand(name, dtype, extents, origin)


def kind_of(tensor: Any) -> str:
    """A tensor's dtype and static shape: `float32(None, 3)`."""
    return operand("", tensor, "").text.strip()


def input_operand(each: Input) -> Operand:
    """An input of the failing op as explanations name it."""
    found = operand(each.name or each.argument, each.value, each.origin)
    shape = each.shape if is_resource(each.value) else found.shape
    return replace(found, shape=shape, argument=each.argument)


def is_resource(value: Any) -> bool:
    """Whether a tensor is a handle, with nothing to show."""
    return getattr(getattr(value, "dtype", None), "name", "") in ("resource", "variant")


def is_shown(op: str, each: Input) -> bool:
    """Whether an input of the failing op tells something: no handle, no setting, no text of an assertion."""
    if is_resource(each.value) or each.argument in SETTINGS:
        return False
    return op != "Assert" or getattr(each.value, "dtype", None) not in ("string", "bool")


def place_frame(place: Place, names: dict[str, Any]) -> LiveFrame:
    """A frame of which only the place is known."""
    function = syntax.function_around(source_text(place.filename), place.lineno)
    first = function.lineno if function is not None and function.lineno <= place.lineno else 1
    return LiveFrame(place.filename, place.lineno, place.function, first, (), names, {}, (), 0, False)


def tells(value: Any) -> bool:
    """Whether a value that a failing line reads is worth a line: a tensor, an array, a number, a text."""
    return internals_errors.is_tensor_like(value) or isinstance(
        value, np.ndarray | np.generic | int | float | str | bytes
    )


def library_arguments(failure: Failure, values: Values | None) -> list[tuple[str, Any, Any, str]]:
    """The tensors that the innermost library function of a failed call was given: name, symbol, value, role."""
    for frame in failures.innermost_frames(failure.root):
        for each in internals_errors.outward(frame):
            if not is_hidden(each.f_code.co_filename):
                break
            code, names = each.f_code, each.f_locals
            given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            found = [(name, names[name]) for name in given if hasattr(names.get(name), "dtype")]
            found = [(name, value) for name, value in found if internals_errors.is_tensor_like(value)]
            if found:
                return [(name, each, values.filled(each) if values else each, "") for name, each in found]
    return []


def arguments_of(frame: LiveFrame, known: set[str]) -> list[Shown]:
    """The arguments of a frame inside a graph that are tensors with values and not shown yet."""
    found = [(name, frame.locals.get(name)) for name in frame.arguments if name not in known]
    return [
        Shown(name, tensors.describe_leaf(value))
        for name, value in found
        if internals_errors.is_tensor_like(value) and not internals.is_symbolic(value) and not is_resource(value)
    ]


def has_source(activation: Activation | None) -> bool:
    """Whether the source text of the function can be read."""
    return activation is None or bool(linecache.getlines(activation.filename, activation.base.f_globals))


def place_of(activation: Activation | None) -> Place | None:
    """Where an activation stands."""
    return Place(activation.filename, activation.lineno, activation.function) if activation is not None else None


def text_of(activation: Activation | None) -> str:
    """The source text of an activation's file."""
    return source_text(activation.filename, activation.base.f_globals) if activation is not None else ""


def source_text(filename: str, names: dict[str, Any] | None = None) -> str:
    """The text of a source file, "" when it cannot be read."""
    return "".join(linecache.getlines(filename, names))


def trainer_names(frame: FrameType | None) -> tuple[str, dict[str, Any]] | None:
    """The method of Keras' that was training, and its names, when it was at a step."""
    for each in internals_errors.outward(frame):
        name, names = each.f_code.co_name, each.f_locals
        if name in TRAINERS and "trainer" in each.f_code.co_filename and "begin_step" in names:
            return name, names
    return None


def step_of(frame: FrameType | None) -> int | None:
    """The number of the batch, from 0, that Keras' training was at; None where no step is one batch."""
    found = trainer_names(frame)
    if found is None:
        return None
    begin = found[1]["begin_step"]
    return begin if found[1].get("end_step", begin) <= begin else None


def position(frame: FrameType | None) -> tuple[str, ...]:
    """Where in Keras' training this was: epoch and batch."""
    found = trainer_names(frame)
    if found is None:
        return ()
    method, names = found
    batches = getattr(names.get("epoch_iterator"), "num_batches", None)
    first, last = names["begin_step"] + 1, names.get("end_step", 0) + 1
    batch = f"batch {first}" if last <= first else f"one of batches {first} to {last}"
    batch += f" of {batches}" if batches else ""
    epoch = f"epoch {names['epoch'] + 1} of {names['epochs']}, " if "epoch" in names and "epochs" in names else ""
    return (f"{method}: {epoch}{batch}",)
