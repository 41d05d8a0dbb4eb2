"""One eager pass of a step -> a Log of its ops, or a Capture of one op of it with the user's frames.

The pass runs the user's own function on real values, so its frames are the user's own lines.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from . import (
    blame,
    internals,
    internals_autograph,
    internals_callbacks,
    internals_gate,
    internals_gradients,
    internals_rerun,
    replaying,
    steps,
)
from .errors import TfdbError
from .origin import Event, Log
from .replaying import Pass, Reached, kind_of
from .report import Frame, UserLine

READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}
WRITES = {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"}


Probe = Callable[[str, Any, Any], "list[np.ndarray] | None"]


class Found(BaseException):
    """The op looked for has run.  Not an Exception: the program must not catch it."""


@dataclass(eq=False)
class Capture:
    """What was seen of one op: its stack, the user's frames (outermost first), its values, and its attributes."""

    op: str
    site: blame.Site
    frames: tuple[Frame, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Outcome:
    """How a pass ended: its log, what was bad at the doors, the error an op raised, and the ops captured."""

    recorder: Recorder
    log: Log
    run: Pass
    error: BaseException | None = None
    failed: Capture | None = None
    captured: dict[int, Capture] = field(default_factory=dict)
    outputs: Any = None


@dataclass(eq=False)
class Draws:
    """What the stateful random ops of a pass gave: the first pass draws, the passes after it get the same again."""

    values: list[tuple[str, Any]] = field(default_factory=list)
    position: int = 0


class Recorder:
    """The op callback of a pass; `wanted` are the indices of ops to capture, after the last of which the pass ends."""

    def __init__(
        self,
        base: FrameType,
        arguments: Sequence[Any],
        wanted: Sequence[int] = (),
        probe: Probe | None = None,
        draws: Draws | None = None,
    ) -> None:
        self.log = Log()
        self.probe = probe
        self.draws = draws if draws is not None else Draws()
        self.draws.position = 0
        self.probed: tuple[int, list[np.ndarray]] | None = None
        self.base = base
        self.wanted = set(wanted)
        self.last = max(wanted, default=-1)
        self.captured: dict[int, Capture] = {}
        self.variables: dict[int, Any] = {}
        self.written: dict[int, tuple[int, ...]] = {}
        self.forward: int | None = None
        self.arguments: dict[int, Any] = {}
        self.roots: dict[int, Any] = {}
        self.take(arguments)

    def take(self, arguments: Sequence[Any]) -> None:
        """Tensors that come from outside of the step: its arguments, elements of a dataset."""
        for value in arguments:
            if hasattr(value, "_id"):
                self.log.data.add(value._id)
                self.arguments[value._id] = value

    def on_op(self, op: str, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        """Log one eager op."""
        if graph is not None:
            return
        op = op.decode() if isinstance(op, bytes) else op  # the operators of tensors pass their name as C has it
        for value in inputs:
            self.note_read(value, sys._getframe(1))
            self.note_root(value)
        kinds = tuple(kind_of(value) for value in outputs)
        ids = tuple(getattr(value, "_id", id(value)) for value in inputs)
        variable = self.variables.get(ids[0]) if op in READS and ids else None
        if op in WRITES:
            kept = () if op == "AssignVariableOp" else self.written.get(ids[0], ())
            self.written[ids[0]] = (*kept, *ids[1:])
        elif variable is not None and ids[0] in self.written:
            ids, variable = (*ids, *self.written[ids[0]]), None
        event = Event(op, ids, tuple(value._id for value in outputs), kinds, self.forward, variable, replaying.beside())
        index = self.log.add(event)
        if self.probe is not None and not any(kinds) and (found := self.probing(op, inputs, attrs)):
            self.probed = index, found
            raise Found
        if index in self.wanted:
            self.captured[index] = self.capture(op, inputs, outputs, attrs, sys._getframe(1))
            if index >= self.last:
                raise Found

    def probing(self, op: str, inputs: Any, attrs: Any) -> list[np.ndarray]:
        """The op's outputs by another way of running it, when that makes bad ones of finite inputs."""
        assert self.probe is not None
        if any(self.log.kinds.get(getattr(value, "_id", -1)) for value in inputs):
            return []
        with internals_callbacks.without_op_callbacks(), internals_gate.eager_functions(False):
            found = self.probe(op, inputs, attrs or ()) or []
        return found if any(kind_of(array) for array in found) else []

    def note_read(self, value: Any, caller: FrameType) -> None:
        """Log the read of a variable that an op was given itself: the fast path reads it without a callback."""
        key = getattr(value, "_id", None)
        if key is None or key in self.log.kinds or key in self.log.data:
            return
        kind = internals_gate.variable_class()
        given: Iterator[Any] = (each for each in caller.f_locals.values() if isinstance(each, kind))
        variable = next((each for each in given if each.dtype == value.dtype and each.shape == value.shape), None)
        if variable is not None and kind_of(value) == self.kind_held(variable):
            handle = variable.handle._id
            written = self.written.get(handle, ())
            made = Event("ReadVariableOp", (handle, *written), (key,), (kind_of(value),), self.forward)
            made.variable = None if written else variable
            self.log.add(made)

    def kind_held(self, variable: Any) -> str:
        """The `badness` of what a variable holds."""
        with internals_callbacks.without_op_callbacks():
            return kind_of(internals_rerun.read(variable))

    def calling_python(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`numpy_function` in eager code calls Python without an op: what it makes is logged as made by one."""

        def py_func_common(func: Any, inp: Any, *args: Any, **kwargs: Any) -> Any:
            import tensorflow as tf

            result = original(func, inp, *args, **kwargs)
            inputs = [value for value in tf.nest.flatten(inp) if hasattr(value, "_id")]
            outputs = [value for value in tf.nest.flatten(result) if hasattr(value, "_id")]
            if replaying.active() and outputs and outputs[0]._id not in self.log.producer:
                self.on_op("PyFunc", inputs, (), outputs)
            return result

        return py_func_common

    @staticmethod
    def calling_eagerly(original: Callable[..., Any]) -> Callable[..., Any]:
        """`py_function` in eager code: its body runs here, so that its ops are seen, and those of its gradient."""

        def call(*args: Any, **kwargs: Any) -> Any:
            here = replaying.active() and internals.current_graph() is None
            eager = kwargs.get("use_eager_py_func") and not kwargs.get("is_grad_func") and not args
            if here and eager and all(map(is_dense, [*kwargs["inp"], *dtypes_of(kwargs["Tout"])])):
                return in_place(kwargs["func"], kwargs["inp"], kwargs["Tout"])
            return original(*args, **kwargs)

        return call

    def drawing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A stateful random op in eager code: its kernel's state cannot be put back, so its values are kept."""

        def draw(*args: Any, **kwargs: Any) -> Any:
            if not replaying.active() or internals.current_graph() is not None:
                return original(*args, **kwargs)
            draws, self.draws.position = self.draws, self.draws.position + 1
            if draws.position <= len(draws.values):
                op, value = draws.values[draws.position - 1]
                self.on_op(op, (), (), [value])
                return value
            value = original(*args, **kwargs)
            draws.values.append((self.log.events[-1].op if self.log.events else "RandomUniform", value))
            return value

        return draw

    def note_root(self, value: Any) -> None:
        """Keep the kind of a tensor that no op of this pass made."""
        key = getattr(value, "_id", None)
        if key is None or key in self.log.kinds:
            return
        kind = kind_of(value)
        self.log.kinds[key] = kind
        if kind:
            self.roots[key] = value

    def capture(self, op: str, inputs: Any, outputs: Any, attrs: Any, frame: FrameType) -> Capture:
        """What is on the stack and in the tensors now."""
        site = blame.site_of(frame, self.base)
        frames = [f for f in blame.user_frames(frame) if f in set(between(frame, self.base))]
        live = tuple(Frame(blame.line_of(f), f.f_globals, dict(f.f_locals)) for f in frames)
        names = attrs or ()
        attributes = {names[i]: names[i + 1] for i in range(0, len(names) - 1, 2) if isinstance(names[i], str)}
        return Capture(op, site, live, tuple(inputs), tuple(outputs), attributes)

    def around_gradient(
        self, op: str, inputs: Sequence[Any], outputs: Sequence[Any], compute: Callable[[], Any]
    ) -> Any:
        """Ops run by an op's gradient function belong to that op."""
        if not replaying.active():  # a gradient of another thread of the program
            return compute()
        outer = self.forward
        taken, made = ([getattr(v, "_id", -1) for v in values] for values in (inputs, outputs))
        self.forward = self.log.forward_of(op, taken, made)
        try:
            return compute()
        finally:
            self.forward = outer

    def reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A variable's read methods: they tell whose handle it is."""

        def read(variable: Any, *args: Any, **kwargs: Any) -> Any:
            handle = getattr(variable.handle, "_id", None)
            if handle is not None:
                self.variables[handle] = variable
            return original(variable, *args, **kwargs)

        return read


def dtypes_of(given: Any) -> list[Any]:
    """The dtypes that a program gives for the outputs of a Python function: one, or a list of them."""
    return list(given) if isinstance(given, list | tuple) else [given]


def is_dense(value: Any) -> bool:
    """Whether a value, or what stands for an output's dtype, is none of composite tensors."""
    import tensorflow as tf

    composite = tf.is_tensor(value) and not isinstance(value, tf.Tensor | tf.Variable)
    return not composite and not isinstance(value, tf.TypeSpec)


def in_place(function: Callable[..., Any], values: Any, dtypes: Any) -> Any:
    """What `py_function` gives, from ops of this very thread."""
    import tensorflow as tf

    made = function(*[tf.convert_to_tensor(value) for value in values])
    outputs = list(made) if isinstance(made, list | tuple) else [] if made is None else [made]
    known = dtypes_of(dtypes)
    tensors = [tf.convert_to_tensor(value, dtype) for value, dtype in zip(outputs, known, strict=False)]
    return tensors if isinstance(dtypes, list | tuple) else tensors[0]


def between(frame: FrameType | None, base: FrameType) -> Iterator[FrameType]:
    """The frames from `frame` outward up to, and without, `base`."""
    for caller in blame.outward(frame):
        if caller is base:
            return
        yield caller


def run(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    before: Sequence[tuple[Any, Any]],
    *,
    updating: bool = False,
    wanted: Sequence[int] = (),
    probe: Probe | None = None,
    drawn: Sequence[Any] | None = None,
    tape: bool = False,
    rereads: bool = False,
    draws: Draws | None = None,
) -> Outcome:
    """Run a step's function eagerly from the state `before` (variable, value) and log it; all state is put back.

    `drawn` are the elements that its iterators gave; with `rereads`, loops over datasets that none of them is for read
    theirs from the start.  Nothing the program raises comes out of here.
    """
    import tensorflow as tf

    base = sys._getframe(0)
    recorder = Recorder(base, tf.nest.flatten((args, dict(kwargs)), expand_composites=True), wanted, probe, draws)
    current = Pass(updating, tape, list(drawn or ()), position=lambda: len(recorder.log.events))
    current.rereads, current.take = rereads, recorder.take
    elements = [current.drawn, [element for _, element in replaying.last_drawn.values()]]
    recorder.take(tf.nest.flatten(elements, expand_composites=True))
    outcome = Outcome(recorder, recorder.log, current, captured=recorder.captured)
    current.put(before)
    replaying.local.current = current
    try:
        with passing(recorder):
            outcome.outputs = function(*args, **kwargs)
    except (Reached, Found):
        pass
    except Exception as error:  # the program's own, or an op's: a finding either way
        outcome.error = error
        outcome.failed = failure(error, base)
    finally:
        replaying.local.current = None
        with internals_callbacks.without_op_callbacks():
            current.restore()
    return outcome


def failure(error: BaseException, base: FrameType) -> Capture:
    """Where an error was raised: its traceback's frames, inside of the pass."""
    trace, frames = error.__traceback__, []
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    user = [(f, n) for f, n in frames if blame.is_user_file(f.f_code.co_filename)]
    lines = tuple(UserLine(blame.line_of(f).file, n, f.f_code.co_name) for f, n in user)
    live = tuple(Frame(line, f.f_globals, dict(f.f_locals)) for line, (f, _) in zip(lines, user, strict=True))
    inner = frames[-1][0] if frames else None
    site = blame.site_of(inner, base)
    site = blame.Site(lines[-1] if lines else None, lines, site.detail, site.owners, site.called, site.layers)
    return Capture(failed_op(error), site, live, (), ())


def failed_op(error: BaseException) -> str:
    """The op type in TensorFlow's message (`{{function_node __wrapped__OP_device_...}}`), or the error's class."""
    _, _, rest = str(error).partition("__wrapped__")
    return rest.partition("_device_")[0].partition("}}")[0] or type(error).__name__


def calling_concrete(original: Callable[..., Any]) -> Callable[..., Any]:
    """A concrete function's call: its Python source runs, so that ops are seen, and no thread for a graph is needed.

    Without source, as in a saved model, it runs as a graph; where that would wait for this very thread, it is refused.
    """

    def __call__(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not replaying.active() or internals.current_graph() is not None:
            return original(function, *args, **kwargs)
        step = getattr(function.graph, steps.MARK, None)
        if isinstance(step, steps.Step):
            return step.function(*args, **kwargs)
        if internals_rerun.spare_threads() < 1:
            raise TfdbError("a concrete function without Python source needs a second inter-op thread at a stop")
        return original(function, *args, **kwargs)

    return __call__


@contextlib.contextmanager
def passing(recorder: Recorder) -> Iterator[None]:
    """The hooks of one pass: eager functions, op and gradient callbacks, variable reads, the random state put back."""
    patches = internals.Patches()
    for name in internals_gate.READS:
        internals_gate.replace_variable_method(patches, name, recorder.reading)
    internals_gradients.replace_python_calls(patches, recorder.calling_python)
    internals_gradients.replace_eager_calls(patches, recorder.calling_eagerly)
    for owner, name in internals_rerun.random_makers():
        patches.replace(owner, name, recorder.drawing)
    patches.replace(internals_gate.iterator_class(), "_create_iterator", replaying.creating)
    patches.replace(internals_rerun.concrete_function_class(), "__call__", calling_concrete)
    with contextlib.ExitStack() as stack:
        stack.callback(patches.remove)
        for aside in (
            internals_gate.eager_functions(),
            np.errstate(all="ignore"),
            internals_autograph.unconverted(),
            internals_gate.random_state(),
            internals_callbacks.without_op_callbacks(),
            internals_gate.gradient_function(recorder.around_gradient),
            internals_callbacks.op_callback(recorder.on_op),
        ):
            stack.enter_context(aside)
        yield
