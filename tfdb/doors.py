"""The doors a bad value must pass on its way into weights or results -> a gate in each, while watching.

Doors: an optimizer's `apply`, its update of each weight, `variable.assign*` by hand, a function's outputs, and
`GradientTape.gradient` in eager code.  Under a replay the same doors end it: see replay.py.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import (
    blame,
    compiled,
    elements,
    internals,
    internals_gate,
    internals_gradients,
    internals_keras,
    internals_layers,
    internals_numerics,
    replaying,
    replicas,
    sites,
    skips,
    steps,
)
from .conditions import Watch
from .errors import Quit
from .gate import RATE, Place, Trip, check_eager, floating, gate, plant
from .steps import Step
from .varnames import name_of
from .writes import Deferred, after, assigning, reading

patches = internals.Patches()
keras_patches = internals.Patches()
new_patches = internals_layers.NewPatches()
hooked: set[str] = set()


def install(
    watches: Sequence[Watch], on_trip: Callable[[Trip], None], is_told: Callable[[Trip], bool] = lambda trip: False
) -> None:
    """Watch from now on: every tf.function traced from here on has its gates.  TensorFlow must be loaded.  Idempotent.

    `on_trip` is called at run time, before the bad values reach the weights, on the thread that found them; when it
    returns, the program goes on as it would have; `errors.Quit` raised there ends the program's outermost graph call.
    Trips for which `is_told` is true are passed over.
    """
    gate.watches, gate.on_trip, gate.is_told = tuple(watches), on_trip, is_told
    gate.active, gate.meant = True, None
    elements.follow("doors", finish)
    if not patches.saved:
        patches.replace(internals.function_class(), "__call__", calling)
        patches.replace(internals_gate.tape_class(), "gradient", differentiating)
        patches.replace(internals_gate.tape_class(), "__enter__", skips.entering)
        patches.replace(internals_gate.dataset_class(), "__init__", blame.built.constructing)
        patches.replace(internals_gate.replica_thread_class(), "__init__", replicas.starting)
        patches.replace(internals_gate.replica_thread_class(), "run", replicas.running)
        internals_gradients.replace_creation(patches, sites.creating)
        for name in internals_gate.READS:
            internals_gate.replace_variable_method(patches, name, reading)
        for name in (*internals_gate.ASSIGNMENTS, *internals_gate.SCATTERS):
            internals_gate.replace_variable_method(patches, name, functools.partial(assigning, method=name))
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
        keras_patches.replace(owner, name, functools.partial(applying, method=name))
    for owner, name in internals_gate.loss_scaling_classes():
        keras_patches.replace(owner, "__init__", scaling)
        keras_patches.replace(owner, name, functools.partial(applying, method=name, scaled=True))
    for owner, name in internals_gate.stock_steps():
        keras_patches.replace(owner, name, stock_step)
    for owner in internals_layers.built_classes():
        if "__new__" in owner.__dict__:  # Keras reads the signature of a layer's __init__
            new_patches.replace(owner, blame.built.creating)
        else:
            keras_patches.replace(owner, "__init__", blame.built.constructing)
    for owner, name in internals_gate.loss_containers():
        keras_patches.replace(owner, name, blame.built.constructing)


def uninstall() -> None:
    """Put every replaced method back; gates in graphs traced before do nothing from now on.  Idempotent."""
    gate.active = False
    keras_patches.remove()
    new_patches.remove()
    patches.remove()
    elements.unfollow("doors")
    hooked.clear()
    blame.built.clear()
    blame.assigned.clear()
    skips.end()
    replaying.last_drawn.clear()
    gate.calls = steps.Calls()


def scaling(original: Callable[..., None]) -> Callable[..., None]:
    """A loss-scaling optimizer's `__init__`: from here on a tape's NaN may be a step that is going to be skipped."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        gate.scaling = True
        original(self, *args, **kwargs)

    return __init__


def calling(original: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.function`'s call: knows the arguments of the running call, and raises what ended it clean."""

    eagerly, local = internals_numerics.eagerly(), gate.local  # this is done at every step of the program

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not gate.active or local.busy:
            return original(self, *args, **kwargs)
        graph = None if eagerly() else internals.current_graph()
        if graph is not None:
            if is_compiled(self) and not internals.is_xla(graph):
                return compiled.graph_call(original, self, args, kwargs)
            return original(self, *args, **kwargs)
        call = gate.calls.enter(self, args, kwargs)
        if call is not None:
            call.settings = internals_keras.thread_settings()
        if local.skipping is not None:
            skips.around_call(call)
        try:
            if is_compiled(self):
                return compiled.eager_call(original, self, args, kwargs)
            return original(self, *args, **kwargs)
        except Exception:
            if gate.meant is not None:
                raise gate.meant from None
            raise
        finally:
            if call is not None and call.undo is not None:
                skips.after_call(call)
            gate.calls.leave(call)

    return __call__


def is_compiled(function: Any) -> bool:
    """Whether XLA compiles this tf.function."""
    return bool(getattr(function, "_jit_compile", False))


def finish(step: Step, outputs: Any) -> Any:
    """The end of a traced function's body: its outputs, and the small state written in it, pass a gate."""
    if step.xla and not gate.busy:
        compiled.fresh.append(step)
    if gate.busy or step.xla:
        return outputs
    values: list[Any] = []
    names: list[str] = []
    if steps.current() is step and not step.inner:
        found = leaves_of(outputs)
        found = [(name, value) for name, value in found if id(value) not in step.checked]
        values, names = floating([value for _, value in found], [name for name, _ in found])
    values += [value for graph, value, _ in step.pending if graph is step.graph]
    names += [name for graph, _, name in step.pending if graph is step.graph]
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
        if skips.leaves_out(self):
            return getattr(self, "iterations", None)
        if gate.busy or internals_numerics.under_xla():
            with contextlib.nullcontext() if gate.busy else Deferred(None):
                return original(self, grads, *args, **kwargs)
        pairs, gradients, variables = replaying.given(self, method, grads, args, kwargs)
        frame = sys._getframe(1)

        def update(more: Sequence[Any] = (), names: Sequence[str] = ()) -> Any:
            kind = "scaled" if scaled else "gradient"
            late = kind == "gradient" and internals_gate.is_stateless(self) and internals.current_graph() is not None
            passed = None if late else guard(gradients, variables, kind, self, frame, more, names)
            if skips.leaves_out(self):
                return getattr(self, "iterations", None)
            ready = after(passed, gradients)
            given = list(zip(ready, [v for _, v in pairs], strict=True)) if pairs is not None else ready
            free = scaled or (not late and internals_gate.has_finite_update(self))
            deferred = Deferred(None if free else variables, beside(more, names) if late else ([], []), optimizer=self)
            gate.local.passed = passed
            try:
                with gate.quiet(), deferred:
                    return original(self, given, *args, **kwargs)
            finally:
                gate.local.passed = None

        held = gate.local.held
        if held is None or scaled:
            return update()
        held.updates.append(update)
        return None

    return apply


def guard(
    gradients: list[Any],
    variables: list[Any],
    kind: str,
    optimizer: Any,
    frame: Any,
    more: Sequence[Any],
    labels: Sequence[str],
) -> Any | None:
    """The gate of an optimizer's gradients, which they must wait for; None in eager code and under XLA.

    The losses they are of, small state written so far, and `more` tensors under their `labels` pass it with them.
    """
    tensors, names = floating(gradients, [name_of(variable) for variable in variables])
    if not tensors:
        return None
    named = labelled(variables, gradients) if kind == "gradient" else []  # others are scaled
    if internals.current_graph() is None:
        check_eager(Place(None, kind, tuple(names)), tensors, frame, named)
        return None
    step = steps.current()
    if step is None or internals.is_xla(internals.current_graph()):
        return None
    others, more_names = beside(more, labels) if kind == "gradient" else take_pending(step)
    if kind == "gradient" and internals_gate.has_finite_update(optimizer):
        others, more_names = [*others, internals_gate.rate_of(optimizer)], [*more_names, RATE]
    place = Place(step, kind, (*names, *more_names), len(names), optimizer=optimizer)
    return plant(place, [*tensors, *others], named)


def labelled(variables: Sequence[Any], gradients: Sequence[Any]) -> list[tuple[str, Any]]:
    """Each gradient with its variable's name."""
    return list(zip([name_of(variable) for variable in variables], gradients, strict=True))


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


def take_pending(step: Step) -> tuple[list[Any], list[str]]:
    """Checks of small state that wait for the next gate in this same graph."""
    graph = internals.current_graph()
    here = [(value, name) for where, value, name in step.pending if where is graph]
    step.pending = [entry for entry in step.pending if entry[0] is not graph]
    return [value for value, _ in here], [name for _, name in here]


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
    """Eager gradients as the tape gives them: NaN is a fault here already, unless some loss is being scaled.

    TensorFlow's own tape, inside of the gradient of a `py_function`, is of none of the program's variables.
    """
    if internals_gradients.of_python_op(frame):
        return
    values, variables = steps.leaves(gradients), steps.leaves(sources)
    if gate.scaling or len(values) != len(variables) or skips.is_on():
        return
    tensors, names = floating(values, [name_of(variable) for variable in variables])
    if tensors:
        check_eager(Place(None, "tape", tuple(names)), tensors, frame, labelled(variables, values))


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
