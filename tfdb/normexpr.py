"""`watch EXPRESSION` -> its value at a gate: as ops where TensorFlow can compute it, else in Python at every step.

The names are those of the user's frames inside the step, the innermost first, then of Keras' `train_step`, then of the
frame that called the step.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from . import blame, frames, internals, internals_norms, sites
from .errors import TfdbError
from .report import Frame, UserLine
from .sourcemap import Activation
from .steps import Call
from .thresholds import WORDS

said: set[str] = set()


def inside(frame: FrameType | None, call: Call | None) -> list[Activation]:
    """The activations of a stack that traces, innermost first, up to the call of the traced function."""
    outer = {id(each) for each in blame.outward(call.frame)} if call is not None else set()
    found = []
    for activation in sites.traced(frame):
        if id(activation.base) in outer:
            break
        found.append(activation)
    return found


def carried(activations: Sequence[Activation], carrier: frames.Carrier) -> tuple[frames.TracedFrame, ...]:
    """The user's frames among these, outermost first; `carrier` collects the tensors of their names."""
    users = [each for each in activations if blame.is_user_file(each.filename)]
    return tuple(carrier.frame(each, 0) for each in users)[::-1]


def passed(traced: Sequence[frames.TracedFrame], values: Sequence[Any] | None) -> tuple[Frame, ...]:
    """Such frames in one pass of the graph, with what the hook was given; None where it was given nothing."""
    made = [frames.live_without_tensors(each) if values is None else frames.live(each, values) for each in traced]
    return tuple(Frame(UserLine(each.filename, each.lineno, each.function), each.globals, each.locals) for each in made)


def names_at(activations: Sequence[Activation], call: Call | None) -> dict[str, Any]:
    """The names that an expression may use, globals among them."""
    names: dict[str, Any] = {}
    for caller in blame.user_frames(call.frame if call is not None else None)[-1:]:
        names.update(caller.f_globals)
        names.update(caller.f_locals)
    users = [each for each in reversed(activations) if blame.is_user_file(each.filename)]
    for each in users[-1:]:
        names.update(each.base.f_globals)
    for each in reversed(activations):
        if each in users or each.function == "train_step":
            names.update(each.names())
    return names


def user_part(frame: FrameType | None) -> list[Activation]:
    """The activations up to the innermost of the user's, that one included."""
    activations = list(sites.traced(frame))
    first = next((n for n, each in enumerate(activations) if blame.is_user_file(each.filename)), len(activations))
    return activations[: first + 1]


def now(expression: str, frame: FrameType | None, more: Mapping[str, Any]) -> Any:
    """The expression's value in eager code; None when it has none here, which is said once."""
    return value_of(expression, {**more, **names_at(user_part(frame), None)})


def value_of(expression: str, names: dict[str, Any]) -> Any:
    """The expression's value as an array or a bool; None when it has none, which is said once."""
    try:
        value = eval(expression, names)  # noqa: S307 (it is what the user typed)
        return np.asarray(value).astype(bool)
    except Exception as error:
        say(expression, error, names)
        return None


def say(expression: str, error: Exception, names: Collection[str] = ()) -> None:
    """Tell once why an expression cannot be watched here, with a name of those known that may have been meant."""
    if expression not in said:
        said.add(expression)
        wrong = getattr(error, "name", None) if isinstance(error, NameError) else None
        near = difflib.get_close_matches(wrong, [*names, *WORDS], 1) if wrong else []
        meant = f"; did you mean {near[0]}?" if near else ""
        text = f"{type(error).__name__}: {error}, where gradients are applied{meant}"
        sys.stderr.write(f"tfdb: watch {expression}: {text}; it is not looked at here\n")


@dataclass(eq=False)
class Asked:
    """The names of one gate in a graph."""

    names: dict[str, Any]

    def verdict(self, expression: str) -> Any:
        """Whether any element of the expression is true, as a scalar bool tensor."""
        import tensorflow as tf

        copies = internals_norms.Copies(internals.current_graph())
        try:
            names = {name: self.names[name] for name in words(expression) if name in self.names}
            value = eval(expression, {**self.names, **{n: copies.of(v) for n, v in names.items()}})  # noqa: S307
            if internals.is_symbolic(value):
                return tf.reduce_any(tf.cast(value, tf.bool))
        except NameError as error:
            say(expression, error, self.names)
            return tf.constant(False)
        except Exception as error:
            del error  # what tracing cannot compute, Python may
        return self.each_step(expression)

    def each_step(self, expression: str) -> Any:
        """The same with Python called at every step: for expressions of NumPy or of Python values."""
        import tensorflow as tf

        if internals.is_xla(internals.current_graph()):
            say(expression, TfdbError("Python cannot be called in what XLA compiles, so it is not looked at"))
            return tf.constant(False)
        copies = internals_norms.Copies(internals.current_graph())
        used = {name: copies.of(self.names[name]) for name in words(expression) if name in self.names}
        own = frames.Carrier(internals.current_graph())
        template = {name: own.template(value) for name, value in used.items()}

        def evaluate(*values: Any) -> Any:
            live = {**frames.fill_names(template, values)}
            found = value_of(expression, {**self.names, **live})
            return tf.constant(found is not None and bool(np.any(found)))

        planted = internals.plant(evaluate, own.tensors, [tf.bool])
        return tf.reshape(planted.outputs[0], [])


def words(expression: str) -> set[str]:
    """The names in an expression whose values it reads: those of which `backward` gives the gradient are left out."""
    tree = ast.parse(expression, mode="eval")
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and ast.unparse(each.func) == "backward"]
    kept = {id(name) for call in calls for argument in call.args for name in ast.walk(argument)}
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and id(each) not in kept}
