"""The doors a bad value must pass on its way into weights or results -> a gate in each, while watching.

Doors: an optimizer's `apply`, its update of each weight, `variable.assign*` by hand, a function's outputs, and
`GradientTape.gradient` in eager code.  Under a replay the same doors end it: see replay.py.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import blame, compiled, internals, internals_gate, replaying, steps
from .conditions import Watch
from .errors import Quit
from .gate import Place, Trip, check_eager, floating, gate, plant
from .steps import Step

patches = internals.Patches()
keras_patches = internals.Patches()
new_patches = internals_gate.NewPatches()
hooked: set[str] = set()


def install(watches: Sequence[Watch], on_trip: Callable[[Trip], None]) -> None:
    """Watch from now on: every tf.function traced from here on has its gates.  TensorFlow must be loaded.  Idempotent.

    `on_trip` is called at run time, before the bad values reach the weights, on the thread that found them; when it
    returns, the program goes on as it would have; `errors.Quit` raised there ends the program's outermost graph call.
    """
    gate.watches, gate.on_trip = tuple(watches), on_trip
    gate.active, gate.meant = True, None
    if not patches.saved:
        patches.replace(internals_gate.tracing_module(), "func_graph_from_py_func", lambda f: steps.tracer(f, finish))
        patches.replace(internals.function_class(), "__call__", calling)
        patches.replace(internals_gate.tape_class(), "gradient", differentiating)
        patches.replace(internals_gate.dataset_class(), "__init__", constructing)
        patches.replace(internals_gate.iterator_class(), "_next_internal", drawing)
        for name in internals_gate.READS:
            internals_gate.replace_variable_method(patches, name, reading)
        for name in (*internals_gate.ASSIGNMENTS, *internals_gate.SCATTERS):
            internals_gate.replace_variable_method(patches, name, lambda original, name=name: assigning(original, name))
    install_keras()


def install_keras() -> None:
    """Hook the Keras packages that are loaded and not hooked yet."""
    fresh = {name for name in ("keras", "tf_keras") if internals_gate.keras_loaded(name)} - hooked
    if not fresh or not patches.saved:
        return
    hooked.update(fresh)
    keras_patches.remove()
    new_patches.remove()
    for owner, name in internals_gate.optimizer_classes():
        keras_patches.replace(owner, name, lambda f, name=name: applying(f, name))
    for owner, name in internals_gate.loss_scaling_classes():
        keras_patches.replace(owner, "__init__", scaling)
        keras_patches.replace(owner, name, lambda f, name=name: applying(f, name, scaled=True))
    for owner, name in internals_gate.stock_steps():
        keras_patches.replace(owner, name, stock_step)
    for owner in internals_gate.built_classes():
        if "__new__" in owner.__dict__:  # Keras reads the signature of a layer's __init__
            new_patches.replace(owner, creating)
        else:
            keras_patches.replace(owner, "__init__", constructing)
    for owner, name in internals_gate.loss_containers():
        keras_patches.replace(owner, name, constructing)


def uninstall() -> None:
    """Put every replaced method back; gates in graphs traced before do nothing from now on.  Idempotent."""
    gate.active = False
    keras_patches.remove()
    new_patches.remove()
    patches.remove()
    hooked.clear()
    blame.built.clear()
    blame.assigned.clear()
    replaying.last_drawn.clear()
    gate.calls = steps.Calls()


def constructing(original: Callable[..., None]) -> Callable[..., None]:
    """An `__init__` that keeps the user line of the construction."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if blame.built.get(self) is None:
            blame.built.record(self, sys._getframe(1))
        original(self, *args, **kwargs)

    return __init__


def scaling(original: Callable[..., None]) -> Callable[..., None]:
    """A loss-scaling optimizer's `__init__`: from here on a tape's NaN may be a step that is going to be skipped."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        gate.scaling = True
        original(self, *args, **kwargs)

    return __init__


def creating(make: Callable[..., Any]) -> Callable[..., Any]:
    """A `__new__` that keeps the user line of the construction."""

    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        value = make(cls, *args, **kwargs)
        blame.built.record(value, sys._getframe(1))
        return value

    return __new__


def calling(original: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.function`'s call: knows the arguments of the running call, and raises what ended it clean."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if gate.busy:
            return original(self, *args, **kwargs)
        graph = internals.current_graph()
        if graph is not None:
            outputs = original(self, *args, **kwargs)
            if is_compiled(self) and not internals.is_xla(graph):
                compiled.after_call(self, args, kwargs, graph)
            return outputs
        call = gate.calls.enter(self, args, kwargs)
        try:
            outputs = original(self, *args, **kwargs)
            if is_compiled(self):
                compiled.after_call(self, args, kwargs, None)
            return outputs
        except Exception:
            if gate.meant is not None:
                raise gate.meant from None
            raise
        finally:
            gate.calls.leave(call)

    return __call__


def is_compiled(function: Any) -> bool:
    """Whether XLA compiles this tf.function."""
    return bool(getattr(function, "_jit_compile", False))


def finish(step: Step, outputs: Any) -> Any:
    """The end of a traced function's body: its outputs, and the small state written in it, pass a gate."""
    if gate.busy:
        return outputs
    values, names = [], []
    if steps.current() is step and not step.inner:
        found = leaves_of(outputs)
        found = [(name, value) for name, value in found if id(value) not in step.checked]
        values, names = floating([value for _, value in found], [name for name, _ in found])
    values += [value for graph, value, _ in step.pending if graph is step.graph]
    names += [name for graph, _, name in step.pending if graph is step.graph]
    if step.xla:
        compiled.finish(step, [v for v in values if internals.is_symbolic(v)], names)
        return outputs
    symbolic = [(v, n) for v, n in zip(values, names, strict=True) if internals.is_symbolic(v)]
    if symbolic:
        plant(Place(step, "output", tuple(n for _, n in symbolic)), [v for v, _ in symbolic])
    return outputs


def leaves_of(outputs: Any) -> list[tuple[str, Any]]:
    """A function's outputs as (path, tensor); composite tensors are taken apart."""
    import tensorflow as tf

    flat = tf.nest.flatten(outputs, expand_composites=True)
    if isinstance(outputs, dict) and len(flat) == len(outputs):
        return [(str(name), outputs[name]) for name in sorted(outputs)]
    return [(f"output {index}" if len(flat) > 1 else "output", value) for index, value in enumerate(flat)]


def applying(original: Callable[..., Any], method: str, scaled: bool = False) -> Callable[..., Any]:
    """An optimizer's `apply` or `apply_gradients`."""

    def apply(self: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        if replaying.active():
            return replaying.apply(self, method, scaled, original, grads, args, kwargs)
        if gate.busy:
            return original(self, grads, *args, **kwargs)
        pairs = [tuple(pair) for pair in grads] if method == "apply_gradients" else None
        gradients = [g for g, _ in pairs] if pairs is not None else list(grads)
        variables = targets(self, pairs, args, kwargs, len(gradients))
        frame = sys._getframe(1)

        def update(more: Sequence[Any] = (), names: Sequence[str] = ()) -> Any:
            kind = "scaled" if scaled else "gradient"
            late = kind == "gradient" and internals_gate.is_stateless(self) and internals.current_graph() is not None
            passed = None if late else guard(gradients, variables, kind, frame, more, names)
            ready = after(passed, gradients)
            given = list(zip(ready, [v for _, v in pairs], strict=True)) if pairs is not None else ready
            finite = not late and internals_gate.has_finite_update(self)
            deferred = Deferred(None if scaled or finite else variables, beside(more, names) if late else ([], []))
            with gate.quiet(), compiled_guard(gradients, variables, scaled), deferred:
                return original(self, given, *args, **kwargs)

        held = getattr(gate.local, "held", None)
        if held is None or scaled:
            return update()
        held.updates.append(update)
        return None

    return apply


@contextlib.contextmanager
def compiled_guard(gradients: list[Any], variables: list[Any], scaled: bool) -> Iterator[None]:
    """In an XLA graph: every write inside the block keeps the old value when a gradient is not finite."""
    graph = internals.current_graph()
    step = compiled.of(graph) if graph is not None and not scaled and internals.is_xla(graph) else None
    if step is None:
        yield
        return
    tensors, names = floating(gradients, [name_of(variable) for variable in variables])
    gate.local.compiled = compiled.check(step, compiled.GRADIENT, tensors, names)
    try:
        yield
    finally:
        gate.local.compiled = None


def targets(optimizer: Any, pairs: Any, args: Any, kwargs: Any, count: int) -> list[Any]:
    """The variables that gradients are applied to, one per gradient."""
    if pairs is not None:
        return [variable for _, variable in pairs]
    given = args[0] if args else kwargs.get("trainable_variables")
    given = getattr(optimizer, "_trainable_variables", []) if given is None else given
    return list(given) if len(list(given)) == count else [None] * count


def guard(
    gradients: list[Any], variables: list[Any], kind: str, frame: Any, more: Sequence[Any], labels: Sequence[str]
) -> Any | None:
    """The gate of an optimizer's gradients, which they must wait for; None in eager code and under XLA.

    The losses they are of, small state written so far, and `more` tensors under their `labels` pass it with them.
    """
    tensors, names = floating(gradients, [name_of(variable) for variable in variables])
    if not tensors:
        return None
    if internals.current_graph() is None:
        check_eager(Place(None, kind, tuple(names)), tensors, frame)
        return None
    step = steps.current()
    if step is None or internals.is_xla(internals.current_graph()):
        return None
    others, named = beside(more, labels) if kind == "gradient" else take_pending(step)
    return plant(Place(step, kind, (*names, *named), len(names)), [*tensors, *others])


def beside(more: Sequence[Any], labels: Sequence[str]) -> tuple[list[Any], list[str]]:
    """What passes a gate with an optimizer's values: small state written so far, the losses, `more` with its labels."""
    step = steps.current()
    if step is None or internals.is_xla(internals.current_graph()):
        return [], []
    others, named = take_pending(step)
    losses = [loss for graph, loss in step.losses if graph is internals.current_graph()]
    results, given = floating(list(more), list(labels))
    step.checked.update(map(id, [*losses, *results]))
    return [*others, *losses, *results], [*named, *["loss"] * len(losses), *given]


def after(passed: Any | None, gradients: list[Any]) -> list[Any]:
    """The gradients, to be read only after the gate; whatever an optimizer does without them need not wait."""
    import tensorflow as tf

    if passed is None:
        return gradients
    with tf.control_dependencies([passed]):
        return [identity(gradient) for gradient in gradients]


def identity(value: Any) -> Any:
    """The same tensor, in a place of its own in the order of ops."""
    import tensorflow as tf

    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(tf.identity(value.values), value.indices, value.dense_shape)
    return None if value is None else tf.identity(value)


def take_pending(step: Step) -> tuple[list[Any], list[str]]:
    """Checks of small state that wait for the next gate in this same graph."""
    graph = internals.current_graph()
    here = [(value, name) for where, value, name in step.pending if where is graph]
    step.pending = [entry for entry in step.pending if entry[0] is not graph]
    return [value for value, _ in here], [name for _, name in here]


def name_of(variable: Any) -> str:
    """A variable's name: Keras' path where there is one, else TensorFlow's without `:0`."""
    if variable is None:
        return "?"
    return getattr(variable, "path", None) or str(getattr(variable, "name", "variable")).removesuffix(":0")


@dataclass(eq=False)
class Deferred:
    """While an optimizer runs, writes to its weights wait until all of them have passed one gate.

    A weight that is read while a write of it waits (decay, constraints) gets all waiting writes first, so the
    program's order holds.
    """

    variables: list[Any] | None
    beside: tuple[list[Any], list[str]] = field(default_factory=lambda: ([], []))
    waiting: list[tuple[Callable[..., Any], str, Any, Any, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    graph: Any = None
    outer: Any = None

    def __enter__(self) -> Deferred:
        self.graph = internals.current_graph()
        self.outer = getattr(gate.local, "deferred", None)
        self.ids = {id(internals_gate.unwrapped(v)) for v in self.variables or () if v is not None}
        gate.local.deferred = self if self.variables is not None else None
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.flush()
        gate.local.deferred = self.outer

    def takes(self, variable: Any) -> bool:
        """Whether a write of this variable, now, is one of those that wait."""
        return id(variable) in self.ids and internals.current_graph() is self.graph

    def flush(self) -> None:
        """Let the waiting writes go on, after their gate."""
        import tensorflow as tf

        waiting, self.waiting = self.waiting, []
        if not waiting:
            return
        tensors, names = floating([w[3] for w in waiting], [name_of(w[2]) for w in waiting])
        if self.graph is None:
            check_eager(Place(None, "update", tuple(names)), tensors, sys._getframe(1))
            passed = []
        else:
            passed = self.gated(tensors, names)
        with tf.control_dependencies(passed):
            for original, method, variable, value, args, kwargs in waiting:
                if self.graph is not None and internals.is_xla(self.graph):
                    value = compiled.assigned(self.graph, variable, value, method)
                original(variable, identity(value), *args, **kwargs)


    def gated(self, tensors: list[Any], names: list[str]) -> list[Any]:
        """The gate of the waiting values in a graph: what their writes must wait for."""
        import tensorflow as tf

        if internals.is_xla(self.graph):
            step, good = compiled.of(self.graph), getattr(gate.local, "compiled", None)
            if step is not None and (update := compiled.check(step, compiled.UPDATE, tensors, names)) is not None:
                gate.local.compiled = update if good is None else tf.logical_and(good, update)
            return []
        step = steps.current()
        (others, labels), self.beside = self.beside, ([], [])
        place = Place(step, "update", (*names, *labels), len(names))
        return [plant(place, [*tensors, *others])] if step is not None and tensors else []


def reading(original: Callable[..., Any]) -> Callable[..., Any]:
    """A variable's reads: what waits to be written to it is written first."""

    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        deferred = getattr(gate.local, "deferred", None)
        if deferred is not None and deferred.waiting and id(self) in deferred.ids:
            if deferred.graph is None or deferred.graph is internals.current_graph():
                deferred.flush()
            else:
                with deferred.graph.as_default():
                    deferred.flush()
        return original(self, *args, **kwargs)

    return read


def assigning(original: Callable[..., Any], method: str) -> Callable[..., Any]:
    """`variable.assign*` and `scatter_*`."""

    def assign(self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if replaying.active():
            return replaying.assign(original, method, self, value, args, kwargs)
        if not gate.active:
            return original(self, value, *args, **kwargs)
        deferred = getattr(gate.local, "deferred", None)
        graph = internals.current_graph()
        if deferred is not None:
            if deferred.takes(self):
                deferred.waiting.append((original, method, self, value, args, kwargs))
                return None
        elif not gate.busy:
            value = entering(self, value, method, graph, sys._getframe(1))
        if graph is not None and internals.is_xla(graph):
            value = compiled.assigned(graph, self, value, method)
        elif graph is not None and (step := steps.current()) is not None:
            steps.remember(step, self)
        return original(self, value, *args, **kwargs)

    return assign


def entering(variable: Any, value: Any, method: str, graph: Any, frame: Any) -> Any:
    """A value on its way into a variable by the program's own hand, after its gate."""
    import tensorflow as tf

    if not (variable.dtype.is_floating or variable.dtype.is_complex):
        return value
    names = (name_of(variable),)
    if graph is None:
        blame.assigned.record(variable, frame)
        known = hasattr(getattr(value, "dtype", None), "is_floating")
        tensors, _ = floating([value if known else tf.convert_to_tensor(value, variable.dtype)], names)
        kind = "update" if method != "assign" and variable.trainable else "variable" if by_hand(frame) else "load"
        if tensors:
            check_eager(Place(None, kind, names), tensors, frame)
        return value
    step = steps.current()
    if step is None or internals.is_xla(graph):
        return value
    value = value if hasattr(value, "dtype") else tf.convert_to_tensor(value, variable.dtype)
    tensors, _ = floating([value], names)
    if not tensors or not internals.is_symbolic(tensors[0]):
        return value
    if not variable.trainable and steps.is_small(variable):
        if not internals_gate.in_metric(frame):  # what a metric holds comes out as its result
            step.pending.append((graph, tensors[0], names[0]))
        return value
    passed = plant(Place(step, "update", names), tensors)
    with tf.control_dependencies([passed]):
        return identity(value)


def by_hand(frame: Any) -> bool:
    """Whether the user's own line assigns the variable, and not a library that loads or restores weights for it."""
    for caller in blame.outward(frame):
        if blame.is_user_file(caller.f_code.co_filename):
            return True
        if caller.f_code.co_name not in ("assign", "_direct_assign", "door", "error_handler", "_assign"):
            return False
    return False


def differentiating(original: Callable[..., Any]) -> Callable[..., Any]:
    """`GradientTape.gradient`: in eager code the place where a bad gradient is seen first."""

    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        if replaying.active():
            return replaying.gradient(original, self, target, sources, args, kwargs)
        graph = internals.current_graph()
        if not gate.busy and graph is None:
            gradients = original(self, target, sources, *args, **kwargs)
            check_gradients(gradients, sources, sys._getframe(1))
            return gradients
        if not gate.busy and (step := steps.current()) is not None:
            scalars = [t for t in steps.leaves(target) if internals.is_symbolic(t) and t.shape.rank == 0]
            step.losses += [(graph, t) for t in scalars]
        return original(self, target, sources, *args, **kwargs)

    return gradient


def check_gradients(gradients: Any, sources: Any, frame: Any) -> None:
    """Eager gradients as the tape gives them: NaN is a fault here already, unless some loss is being scaled."""
    values, variables = steps.leaves(gradients), steps.leaves(sources)
    if gate.scaling or len(values) != len(variables):
        return
    tensors, names = floating(values, [name_of(variable) for variable in variables])
    if tensors:
        check_eager(Place(None, "tape", tuple(names)), tensors, frame)


def drawing(original: Callable[..., Any]) -> Callable[..., Any]:
    """`next` of an iterator: a step can be run again with the same element."""

    def _next_internal(self: Any) -> Any:
        if replaying.active():
            return replaying.draw(self)
        element = original(self)
        if not gate.busy:
            graph = internals.current_graph()
            if graph is None:
                replaying.last_drawn[id(self)] = (self, element)
            elif (step := steps.current()) is not None:
                step.drawn.append(element)
        return element

    return _next_internal


def stock_step(original: Callable[..., Any]) -> Callable[..., Any]:
    """Keras' own `train_step`: the metrics pass the gradients' gate too, the update comes after it.

    That saves a branch, and changes nothing: what `compute_metrics` reads is not what an optimizer writes.
    """

    def train_step(self: Any, data: Any) -> Any:
        graph = internals.current_graph()
        if gate.busy or graph is None or internals.is_xla(graph) or not internals_gate.is_stock(self):
            return original(self, data)
        held = gate.local.held = Held()
        try:
            outputs = original(self, data)
        finally:
            gate.local.held = None
        for update in held.updates:
            update(list(outputs.values()), list(outputs))
        return outputs

    return train_step


@dataclass(eq=False)
class Held:
    """Updates of a stock train step that wait for its metrics."""

    updates: list[Callable[[list[Any], list[str]], None]] = field(default_factory=list)


__all__ = ["Quit", "install", "install_keras", "uninstall"]
