"""GradientTapes as they open and close, and the ops that run meanwhile -> what each tape records and what it misses.

A tape that opens after the first prompt is made to outlast the gradients that are asked for at prompts.  The `TapeLog`
of ops is on while something asks for lost gradients: it keeps, for every op of the thread, its tensors by number,
the user's line, and the tapes that were recording.  Nothing of the program's is kept alive by it.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from . import blame, internals, internals_callbacks, internals_gradients, replaying
from .cuts import SHAPE_ONLY, WITHOUT_SLOPE
from .report import UserLine
from .sites import creating, flat, key_of, site_in_graph, user_line
from .taperecords import Lost, Op, Read, Recording, Target

KEPT_OPS = 1 << 17  # of eager code: far more than one step has
KEPT_SLOPES = 1 << 12
# Writes of variables, with the place of what is written among their inputs; all but the first keep some of the old.
READ = "ReadVariableOp"
ASSIGNS = {
    "AssignVariableOp": 1, "AssignAddVariableOp": 1, "AssignSubVariableOp": 1, "ResourceStridedSliceAssign": 4,
    "ResourceScatterUpdate": 2, "ResourceScatterAdd": 2, "ResourceScatterSub": 2, "ResourceScatterNdUpdate": 2,
    "ResourceScatterNdAdd": 2, "ResourceScatterNdSub": 2,
}  # fmt: skip


class Here(threading.local):
    """One thread's tapes that are recording, the numbers of their recordings, and whether it was made to be heard."""

    def __init__(self) -> None:
        self.open: list[Any] = []
        self.active: tuple[int, ...] = ()
        self.made_heard = False


class TapeLog:
    """The record of this process's tapes and, while `install`ed on a thread, of its ops."""

    def __init__(self) -> None:
        self.patches = internals.Patches()
        self.op_patches = internals.Patches()
        self.numbers = itertools.count(1)
        self.recordings: weakref.WeakKeyDictionary[Any, Recording] = weakref.WeakKeyDictionary()
        self.here = Here()
        self.ops: dict[int, Op] = {}
        self.assigns: list[Op] = []
        self.reads: list[Read] = []
        self.in_graphs: weakref.WeakKeyDictionary[Any, dict[str, tuple[Any, ...]]] = weakref.WeakKeyDictionary()
        self.targets: weakref.WeakKeyDictionary[Any, list[Target]] = weakref.WeakKeyDictionary()
        self.slopes: deque[Any] = deque(maxlen=KEPT_SLOPES)  # the latest gradients, by name
        self.python_calls: dict[bytes, UserLine | None] = {}
        self.killers: dict[str, bool] = {}
        self.logging = False
        self.lasting = False
        self.lost: Lost | None = None
        self.trouble: Exception | None = None
        self.at_prompt: Callable[[], bool] = lambda: False

    # -- installing -----------------------------------------------------------------------------------------------

    def install(self, ops: bool = True) -> None:
        """Know the tapes from now on, and with `ops` what this thread computes.  Idempotent."""
        if not self.patches.saved:
            tape = internals_gradients.tape_class()
            self.patches.replace(tape, "_push_tape", self.pushing)
            self.patches.replace(tape, "_pop_tape", self.popping)
            self.patches.replace(tape, "watch", self.watching)
            self.patches.replace(tape, "gradient", self.differentiating)
        if ops and not self.logging:
            self.logging = True
            internals_gradients.replace_record(self.op_patches, self.recording)
            internals_gradients.replace_values(self.op_patches, self.reading)
            internals_gradients.replace_python_calls(self.op_patches, self.calling_python)
            internals_gradients.replace_creation(self.op_patches, creating)
            internals_callbacks.add_op_callback(self.on_op)
            self.op_patches.replace(threading.Thread, "run", self.running)

    def running(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The life of a thread that the program starts: its ops are heard too."""

        def run(thread: threading.Thread) -> None:
            self.hear()
            try:
                original(thread)
            finally:
                self.leave()

        return run

    def hear(self) -> None:
        """Hear this thread's ops while ops are kept; on one that ran before, as long as a tape is open."""
        if self.logging and not internals_gradients.hears(self.on_op):
            internals_callbacks.add_op_callback(self.on_op)
            self.here.made_heard = True

    def leave(self) -> None:
        """Hear this thread no more, if `hear` was what did it."""
        if self.here.made_heard:
            internals_callbacks.remove_op_callback(self.on_op)
            self.here.made_heard = False

    def remove(self) -> None:
        """Put everything back and forget what was seen.  Idempotent."""
        self.remove_ops()
        self.patches.remove()
        self.lasting, self.lost = False, None
        self.targets.clear()
        self.slopes.clear()

    def remove_ops(self) -> None:
        """Keep no ops from now on, and forget those that were kept.  Idempotent."""
        if self.logging:
            internals_callbacks.remove_op_callback(self.on_op)
        self.logging = False
        self.op_patches.remove()
        self.clear()

    def clear(self) -> None:
        """Forget every op."""
        self.ops.clear()
        self.assigns.clear()
        self.reads.clear()
        self.in_graphs.clear()

    # -- tapes ----------------------------------------------------------------------------------------------------

    def pushing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A tape begins to record; its native tape is made to outlast gradients asked for at the prompt."""

        def _push_tape(tape: Any) -> None:
            # a lasting tape in a graph would change the functions that it differentiates, and so the program
            lasting = self.logging or (self.lasting and internals.current_graph() is None)
            if lasting and internals_gradients.handle_of(tape) is None and not internals_gradients.is_recording(tape):
                line = user_line(sys._getframe(1))
                self.hear()
                made = Recording(next(self.numbers), line, next(self.numbers), logged=self.logging)
                made.thread = threading.current_thread().name
                self.recordings[tape] = made
                internals_gradients.push_lasting(tape)
            else:
                original(tape)
            self.here.open.append(tape)
            self.renew()

        return _push_tape

    def popping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A tape stops recording, for good or for a while."""

        def _pop_tape(tape: Any) -> None:
            original(tape)
            self.here.open[:] = [each for each in self.here.open if each is not tape]
            self.renew()
            if not self.here.open:
                self.leave()

        return _pop_tape

    def differentiating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`GradientTape.gradient`: what the user asks for at a prompt does not use the tape up."""

        def gradient(tape: Any, *args: Any, **kwargs: Any) -> Any:
            recording = self.recordings.get(tape)
            if recording is None or not self.at_prompt():
                if recording is not None and recording.asked:
                    tell(tape, recording, args[0] if args else kwargs.get("target"), sys._getframe(1))
                return self.noting(original, tape, args, kwargs, sys._getframe(1))
            with internals_gradients.aside(tape):
                return original(tape, *args, **kwargs)

        return gradient

    def noting(self, original: Callable[..., Any], tape: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """A gradient of the program's; one with a None in it is kept in mind, for `why`, until the next."""
        import tensorflow as tf

        found = original(tape, *args, **kwargs)
        given = dict(zip(("target", "sources"), args, strict=False)) | kwargs
        if (graph := internals.current_graph()) is not None:
            self.note_target(graph, given.get("target"), given.get("sources"), frame)
        flat_found = tf.nest.flatten(found)
        self.slopes.extend(name_of(each) for each in flat_found if hasattr(each, "dtype"))
        lost = any(each is None for each in flat_found)
        self.lost = Lost(tape, given.get("target"), given.get("sources")) if lost else None
        return found

    def note_target(self, graph: Any, target: Any, sources: Any, frame: FrameType | None) -> None:
        """Remember, as long as the graph lives, what is differentiated in it."""
        leaves = [t for t in flat(target) if internals.is_symbolic(t) and t.graph is graph]
        if leaves:
            trains = any(hasattr(source, "handle") for source in flat(sources))
            made = Target(tuple(tensor.name for tensor in leaves), user_line(frame), trains)
            self.targets.setdefault(graph, []).append(made)

    def targets_in(self, graph: Any) -> list[Target]:
        """What is differentiated in a graph: for variables, where any is, else for tensors."""
        found = self.targets.get(graph, [])
        return [each for each in found if each.trains] or found

    def renew(self) -> None:
        """The recordings that go on now."""
        known = [self.recordings[tape].number for tape in self.here.open if tape in self.recordings]
        self.here.active = tuple(known)

    def watching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`GradientTape.watch`, keeping what is watched."""

        def watch(tape: Any, tensor: Any) -> Any:
            if tape in self.recordings:
                self.recordings[tape].watched += [key_of(t) for t in flat(tensor)]
            return original(tape, tensor)

        return watch

    def recording_of(self, tape: Any) -> Recording | None:
        """What is known of a tape; None when it opened before the log did."""
        return self.recordings.get(tape) if tape is not None else None

    # -- ops ------------------------------------------------------------------------------------------------------

    def on_op(self, op: str, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        """TensorFlow's callback after every op, of eager code and of graphs being traced."""
        del op_name
        if not self.logging:  # taken away at a prompt of another thread
            internals_callbacks.remove_op_callback(self.on_op)
            return
        try:
            if graph is None and op in ("EagerPyFunc", b"EagerPyFunc"):
                self.python_calls[internals_gradients.token_of(attrs)] = user_line(sys._getframe(1))
            self.note(op, inputs, outputs, graph)
        except Exception as error:  # an op of the program must not fail for the debugger's sake
            self.trouble = error

    def note(self, op: str, inputs: Any, outputs: Any, graph: Any) -> None:
        """Keep one op."""
        op = op.decode() if isinstance(op, bytes) else op
        if replaying.active() or not outputs and op not in ASSIGNS:
            return
        stopped = internals_gradients.is_stopped()
        tapes = () if stopped and op not in internals.CALLING_OPS and not op.startswith("__") else self.here.active
        if graph is not None:
            if outputs:
                site = site_in_graph(sys._getframe(1)) if self.may_cut(op, inputs, outputs) else None
                self.in_graphs.setdefault(graph, {})[outputs[0].op.name] = (tapes, site)
                if op == "EagerPyFunc":
                    self.python_calls[outputs[0].op.get_attr("token")] = user_line(sys._getframe(1))
            return
        self.keep(op, inputs, outputs, tapes, sys._getframe(1))

    def keep(self, op: str, inputs: Any, outputs: Any, tapes: tuple[int, ...], frame: FrameType) -> None:
        """Keep one op of eager code."""
        op = op.decode() if isinstance(op, bytes) else op
        site = blame.site_of(frame) if self.may_cut(op, inputs, outputs) else None
        line = site.line if site is not None else blame.user_line(frame)
        self.read_unseen(inputs, tapes, frame.f_back, line)
        ids = tuple(key_of(value) for value in inputs), tuple(key_of(value) for value in outputs)
        dtypes = tuple(value.dtype for value in (*inputs, *outputs))
        made = Op(op, *ids, dtypes, next(self.numbers), tapes, line, site)
        if not tapes:
            made.stack = tuple(map(blame.line_of, blame.user_frames(frame)))
        if op.startswith("__"):
            function = internals_gradients.calling_function(frame)
            made.graph = weakref.ref(function) if function is not None else None
        for key in made.outputs:
            self.ops[key] = made
        if op in ASSIGNS:
            self.assigns.append(made)
        if len(self.ops) > KEPT_OPS:
            self.forget_half()

    def read_unseen(self, inputs: Any, tapes: tuple[int, ...], call: FrameType | None, line: UserLine | None) -> None:
        """Variables that an op was given themselves: TensorFlow reads them without telling; `call` is the op's own."""
        unknown = [value for value in inputs if key_of(value) not in self.ops and value.dtype.is_floating]
        given = [v for v in call.f_locals.values() if hasattr(v, "handle")] if unknown and call is not None else []
        for value in unknown:
            fitting = [n for n, v in enumerate(given) if (v.dtype, v.shape) == (value.dtype, value.shape)]
            if fitting:
                handle, keys = given.pop(fitting[0]).handle, (key_of(value),)
                dtypes = (handle.dtype, value.dtype)
                self.ops[keys[0]] = Op(READ, (key_of(handle),), keys, dtypes, next(self.numbers), tapes, line)

    def forget_half(self) -> None:
        """Drop the older half of what was kept."""
        for key in list(itertools.islice(self.ops, KEPT_OPS // 2)):
            del self.ops[key]
        oldest = next(iter(self.ops.values())).number
        self.assigns = [each for each in self.assigns if each.number >= oldest]
        self.reads = [each for each in self.reads if each.number >= oldest]

    def may_cut(self, op: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Whether an op of this type, with these dtypes, may have no gradient for an input that could have one."""
        if op not in self.killers:
            self.killers[op] = (
                op not in SHAPE_ONLY
                and not op.startswith("__")
                and (internals_gradients.registered(op) is not True or op in WITHOUT_SLOPE)
            )
        if self.killers[op]:
            return True
        return op == "Cast" and not internals_gradients.is_trainable(outputs[0].dtype)

    def recording(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What TensorFlow puts on the tapes by itself: calls of functions, and custom gradients."""

        def record_operation(op_type: str, output_tensors: Any, input_tensors: Any, *rest: Any, **more: Any) -> Any:
            outputs, inputs = list(output_tensors), list(input_tensors)
            if outputs and not any(internals.is_symbolic(value) for value in outputs) and not replaying.active():
                known = self.ops.get(key_of(outputs[0]))
                if known is not None and known.op.startswith("__"):
                    known.tapes = self.here.active
                elif known is None or not set(map(key_of, inputs)) <= set(known.inputs):
                    self.keep(op_type, inputs, outputs, self.here.active, sys._getframe(1))
                    self.ops[key_of(outputs[0])].kind = "custom"
            return original(op_type, output_tensors, input_tensors, *rest, **more)

        return record_operation

    def reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The value of a tensor goes into plain Python."""

        def _numpy(tensor: Any) -> Any:
            frame = sys._getframe(1)
            if frame.f_code.co_name == "door" and frame.f_back is not None:
                frame = frame.f_back
            name = frame.f_code.co_name.strip("_")
            if name in ("numpy", "float", "int", "bool", "index", "complex", "array") and not replaying.active():
                line = user_line(frame)
                if line is not None:
                    self.reads.append(Read(key_of(tensor), name, line, next(self.numbers)))
                    if len(self.reads) > KEPT_OPS:
                        del self.reads[: KEPT_OPS // 2]
            return original(tensor)

        return _numpy

    def converting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`keras.ops.convert_to_numpy`, which takes a tensor's memory past `numpy()`."""

        def convert_to_numpy(x: Any) -> Any:
            line = user_line(sys._getframe(1)) if hasattr(x, "_id") and not internals.is_symbolic(x) else None
            if line is not None:
                self.reads.append(Read(key_of(x), "convert_to_numpy", line, next(self.numbers)))
            return original(x)

        return convert_to_numpy

    def calling_python(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`numpy_function` in eager code, where it is a plain call."""

        def py_func_common(func: Any, inp: Any, *args: Any, **kwargs: Any) -> Any:
            line = user_line(sys._getframe(1)) if internals.executing_eagerly() else None
            for value in inp:
                if line is not None and hasattr(value, "_id"):
                    self.reads.append(Read(key_of(value), "numpy_function", line, next(self.numbers)))
            return original(func, inp, *args, **kwargs)

        return py_func_common


def name_of(tensor: Any) -> Any:
    """What names a tensor for a while: its number, or its graph and its name there."""
    return (id(tensor.graph), tensor.name) if internals.is_symbolic(tensor) else key_of(tensor)


def tell(tape: Any, recording: Recording, target: Any, frame: FrameType) -> None:
    """Give those who asked the gradients of the tensors that they named, once; the program's own come after."""
    asked, recording.asked = recording.asked, []
    handle = internals_gradients.handle_of(tape)
    targets = [each for each in flat(target) if hasattr(each, "dtype")]
    if handle is None or not targets or any(internals.is_symbolic(each) for each in targets):
        return
    found = internals_gradients.gradient(handle, targets, [tensor for tensor, _ in asked])
    for (_, say), gradient in zip(asked, found, strict=True):
        say(gradient, targets, frame)


log = TapeLog()
