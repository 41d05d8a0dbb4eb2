"""What is applied to the weights -> a Crossing when a threshold is passed, before the weights change.

The doors: the last place inside an optimizer before its update (after clipping, unscaling and accumulation), the
update's own writes where the update ratio is watched, and hand-written writes of variables that a tape gave gradients
for.  Inner tapes are let pass: their gradients are not applied.  In a graph the norms and the decision are ops; Python
is called only when a threshold is passed.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import elements, internals, internals_gate, internals_norms, normcalls, normlook, normslopes, replaying, steps
from .errors import Quit
from .gate import gate
from .gradhistory import Book
from .normlook import Crossing, Given
from .norms import is_floating
from .normscopes import Group, Local, Scope, both, changes, kept
from .thresholds import COLUMNS, RATIO, SQUARES, Threshold
from .writes import after

KEPT_GROUPS = 4  # gradients of a tape that wait for being applied, at most


class NormWatch:
    """The thresholds that are on, and the history that is kept for `grads`."""

    def __init__(self) -> None:
        self.patches = internals.Patches()
        self.keras_patches = internals.Patches()
        self.hooked: set[str] = set()
        self.thresholds: tuple[Threshold, ...] = ()
        self.on_cross: Callable[[Crossing], None] = lambda crossing: None
        self.detailed = False
        self.local = Local()
        self.slopes = normslopes.Slopes()
        self.calls = steps.Calls()
        self.book = Book()
        self.current: Crossing | None = None  # while its stop lasts
        self.meant: BaseException | None = None
        self.seen: set[Threshold] = set()  # those that some step has come to
        self.fresh: list[Any] = []
        self.compiled: dict[int, list[Any]] = {}

    def install(
        self, thresholds: Sequence[Threshold], on_cross: Callable[[Crossing], None], detailed: bool = False
    ) -> None:
        """Watch from now on; functions traced from here on have their gates.  Idempotent.

        `detailed` keeps all columns of the table, not just those that the thresholds take.
        """
        self.thresholds, self.on_cross, self.meant = tuple(thresholds), on_cross, None
        self.detailed = self.detailed or detailed
        if thresholds:
            elements.follow("norms")
        if not self.patches.saved:
            self.patches.replace(internals.function_class(), "__call__", functools.partial(normcalls.calling, self))
            self.patches.replace(internals_gate.tape_class(), "gradient", self.differentiating)
            for name in internals_gate.READS:
                internals_gate.replace_variable_method(self.patches, name, self.reading)
            for name in (*internals_gate.ASSIGNMENTS, *internals_gate.SCATTERS):
                make = functools.partial(self.assigning, method=name)
                internals_gate.replace_variable_method(self.patches, name, make)
        fresh = {name for name in ("keras", "tf_keras") if internals_gate.keras_loaded(name)}
        if fresh - self.hooked:
            self.hooked = fresh
            self.keras_patches.remove()
            for what, owner, name in internals_norms.applied_doors():
                self.keras_patches.replace(owner, name, getattr(self, what))

    def remove(self) -> None:
        """Put everything back and forget the history.  Idempotent."""
        self.keras_patches.remove()
        self.patches.remove()
        elements.unfollow("norms")
        self.hooked.clear()
        self.thresholds, self.detailed = (), False
        self.calls, self.book = steps.Calls(), Book()
        self.local = Local()
        self.compiled.clear()
        self.fresh.clear()

    @property
    def is_on(self) -> bool:
        """Whether anything is measured."""
        return bool(self.patches.saved)

    @property
    def aside(self) -> bool:
        """Whether what this thread does now is no step of the program's: a replay, or the debugger's own work."""
        return self.local.quiet or replaying.active()

    @property
    def scope(self) -> Scope | None:
        """The optimizer's `apply` that this thread is in."""
        return self.local.scope

    @property
    def watches_updates(self) -> bool:
        """Whether the update ratio is wanted."""
        return self.detailed or any(threshold.kind == "update" for threshold in self.thresholds)

    def columns(self, kind: str) -> tuple[str, ...]:
        """The columns to measure at gates of this kind: gradient or update."""
        if kind == "update":
            return RATIO
        wanted = {column for threshold in self.thresholds for column in threshold.columns if column in COLUMNS}
        wanted |= {SQUARES} if self.thresholds else set()
        return tuple(column for column in COLUMNS if self.detailed or column in wanted)

    # -- what a tape gave -----------------------------------------------------------------------------------------

    def groups(self) -> deque[Group]:
        """This thread's gradients that were not applied yet, newest last."""
        if not hasattr(self.local, "groups"):
            self.local.groups = deque(maxlen=KEPT_GROUPS)
        return self.local.groups

    def differentiating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`GradientTape.gradient`: what it gives for variables may be applied."""

        def gradient(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            texts = [each.expression for each in self.thresholds if each.kind == "expression" and not self.aside]
            asked = (tape, target, sources, *args)
            given = self.slopes.given(original, texts, sys._getframe(1), asked, kwargs)
            if not self.aside:
                gradients, leaves = steps.leaves(given), [internals_gate.unwrapped(v) for v in steps.leaves(sources)]
                if len(gradients) == len(leaves) and all(map(internals_norms.is_variable, leaves)):
                    losses = [loss for loss in steps.leaves(target) if is_floating(loss)]
                    self.groups().append(Group(internals.current_graph(), leaves, gradients, losses))
            return given

        return gradient

    def losses_of(self, variables: Sequence[Any]) -> list[Any]:
        """The losses whose gradients for these variables are being applied; their groups are done with."""
        graph, ids = internals.current_graph(), {id(variable) for variable in variables}
        losses: list[Any] = []
        for group in list(self.groups()):
            seen = group.graph is graph or (group.losses and normlook.sees(graph, group.losses[0]))
            if seen and ids & {id(variable) for variable in group.variables}:
                losses += group.losses
                self.groups().remove(group)
        return losses

    # -- optimizers -----------------------------------------------------------------------------------------------

    def apply(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Keras' `apply`."""

        def apply(optimizer: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
            if self.aside:
                return original(optimizer, grads, *args, **kwargs)
            grads = list(grads)
            given = args[0] if args else kwargs.get("trainable_variables")
            if any(gradient is None for gradient in grads):  # Keras leaves them out further on
                self.book.given(internals_norms.built_for(optimizer) if given is None else list(given), grads)
            with self.within(Scope(optimizer, sys._getframe(1))):
                return original(optimizer, grads, *args, **kwargs)

        return apply

    @contextlib.contextmanager
    def within(self, scope: Scope) -> Iterator[None]:
        """Inside the block, writes are this optimizer's."""
        outer, self.local.scope = self.scope, scope
        try:
            yield
        finally:
            self.local.scope = outer

    def scaled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A loss-scaling optimizer's `apply`: the losses are scaled, what its inner optimizer applies is not."""

        def apply(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            outer, self.local.scaling = self.local.scaling, optimizer
            try:
                return original(optimizer, *args, **kwargs)
            finally:
                self.local.scaling = outer

        return apply

    def skipped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A loss-scaling optimizer leaves a step out."""

        def handle(optimizer: Any) -> Any:
            if not self.aside:
                self.book.skip()
            return original(optimizer)

        return handle

    def batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Where Keras names the variables of the gradients."""

        def _backend_apply_gradients(optimizer: Any, grads: Any, trainable_variables: Any) -> Any:
            scope = self.scope
            if scope is None and not self.aside:  # an update that the step gate put off
                with self.within(Scope(optimizer, sys._getframe(1), list(trainable_variables))):
                    return original(optimizer, grads, trainable_variables)
            if scope is not None:
                scope.variables = list(trainable_variables)
            return original(optimizer, grads, trainable_variables)

        return _backend_apply_gradients

    def clip(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Where Keras clips, after everything else: the gate of gradients."""

        def _clip_gradients(optimizer: Any, grads: Any) -> Any:
            clipped = original(optimizer, grads)
            scope = self.scope
            if self.aside or scope is None or len(scope.variables) != len(clipped):
                return clipped
            return self.applied(scope, list(clipped), waits=any(map(internals_norms.is_regrouped, clipped)))

        return _clip_gradients

    def applied(self, scope: Scope, gradients: list[Any], waits: bool = False) -> list[Any]:
        """The gradients that an optimizer applies now, to be read only after their gate; or else its writes wait.

        They do where an op between gradients and update would change in which order products are computed.
        """
        plain = [internals_gate.unwrapped(variable) for variable in scope.variables]
        given = Given("gradient", scope.variables, gradients, self.losses_of(plain), scope.frame, scope.optimizer)
        passed, scope.good = self.look(given)
        scope.graph = internals.current_graph()
        scope.ids = {id(variable) for variable in plain} if self.watches_updates else set()
        scope.passed = passed if waits else None
        return gradients if waits else after(passed, gradients)

    def write(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Where Keras writes the update."""

        def _backend_update_step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(optimizer, *args, **kwargs)
            if self.scope is not None:
                self.flush(self.scope)
                self.scope.ids = set()
            return result

        return _backend_update_step

    def pairs(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """tf_keras' `apply_gradients`."""

        def apply_gradients(optimizer: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            given = list(grads_and_vars)
            live = [(g, v) for g, v in given if g is not None]
            if self.aside or not live:
                return original(optimizer, given, *args, **kwargs)
            scope = Scope(optimizer, sys._getframe(1), [v for _, v in live], counts_first=True)
            with self.within(scope):
                ready = self.applied(scope, [g for g, _ in live])
                result = original(optimizer, list(zip(ready, scope.variables, strict=True)), *args, **kwargs)
                self.flush(scope)
                return result

        return apply_gradients

    # -- writes ---------------------------------------------------------------------------------------------------

    def assigning(self, original: Callable[..., Any], method: str) -> Callable[..., Any]:
        """`variable.assign*` and `scatter_*`."""

        def assign(variable: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            if self.aside:
                return original(variable, value, *args, **kwargs)
            scope = self.scope
            if scope is None:
                elements.writing(variable)
                value = self.by_hand(variable, value, method, sys._getframe(1))
                return original(variable, value, *args, **kwargs)
            if id(variable) in scope.ids and internals.current_graph() is scope.graph:
                scope.waiting.append((original, method, variable, value, args, kwargs))
                return None
            with scope.gated():
                return original(variable, kept(variable, value, method, scope.good), *args, **kwargs)

        return assign

    def reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A variable's reads: what waits to be written to it is written first."""

        def read(variable: Any, *args: Any, **kwargs: Any) -> Any:
            scope = self.scope
            if scope is not None and scope.waiting and not self.local.quiet:
                if any(waiting[2] is variable for waiting in scope.waiting):
                    self.flush(scope)
            return original(variable, *args, **kwargs)

        return read

    def flush(self, scope: Scope) -> None:
        """The writes of an update that waited go on, after their gate."""
        import tensorflow as tf

        waiting, scope.waiting = scope.waiting, []
        if not waiting:
            return
        with tf.name_scope("tfdb_norms"):
            variables, added = changes(waiting)
        with self.quiet():
            given = Given("update", variables, added, [], scope.frame, scope.optimizer, scope.counts_first)
            passed, good = self.look(given)
        with tf.control_dependencies([passed] if passed is not None else []), scope.gated():
            for original, method, variable, value, args, kwargs in waiting:
                value = kept(variable, value, method, both(scope.good, good))
                original(variable, value, *args, **kwargs)
        scope.good = both(scope.good, good)  # a step that is left out is not counted

    def by_hand(self, variable: Any, value: Any, method: str, frame: Any) -> Any:
        """A value that the program itself writes to a variable, after the gate of the gradients it comes of."""
        import tensorflow as tf

        if not getattr(variable, "trainable", False) or not is_floating(variable):
            return value
        graph = internals.current_graph()
        found = [g for g in self.groups() if g.graph is graph and any(v is variable for v in g.variables)]
        group = found[-1] if found else None
        passed = good = None
        if group is not None:
            if not group.looked:
                group.looked = True
                given = Given("gradient", group.variables, group.gradients, group.losses, frame, None)
                group.passed = self.look(given)
            passed, good = group.passed
        if self.watches_updates and group is not None:
            known = value if hasattr(value, "dtype") else tf.convert_to_tensor(value, variable.dtype)
            with tf.name_scope("tfdb_norms"):
                _, added = changes([(None, method, variable, known, (), {})])
            more, fine = self.look(Given("update", [variable], added, [], frame, None))
            passed, good, value = more if passed is None else passed, both(good, fine), after(more, [known])[0]
        if passed is not None and not hasattr(value, "dtype"):
            value = tf.convert_to_tensor(value, variable.dtype)
        return kept(variable, after(passed, [value])[0], method, good)

    # -- looking --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """This thread's work in the block is the debugger's own."""
        outer, self.local.quiet = self.local.quiet, True
        try:
            yield
        finally:
            self.local.quiet = outer

    def look(self, given: Given) -> tuple[Any, Any]:
        """Measure and decide; returns what the writes must wait for, and under XLA whether they may go on."""
        with self.quiet():
            return normlook.look(self, given, self.local.scaling)

    def cross(self, crossing: Crossing) -> None:
        """Hand over what was found; what `on_cross` raises ends the program's call."""
        with gate.lock:
            if self.meant is not None:
                raise self.meant
            watch = crossing.threshold
            if watch not in self.thresholds:
                return
            if not gate.count(watch):
                return
            outer, self.current = self.current, crossing
            try:
                with gate.quiet(), self.quiet():
                    self.on_cross(crossing)
            except Quit as meant:
                self.meant = meant
                raise
            finally:
                self.current = outer


norms = NormWatch()
