"""`grads`: the table of the gradients of the last steps, or of an expression's."""

from __future__ import annotations

from typing import Any

from tfdb import (
    asked,
    gradrows,
    gradtable,
    internals,
    internals_gradients,
    lostgrads,
    normgate,
    render,
    sites,
    tapes,
    watchstops,
)
from tfdb.commands import options
from tfdb.commands.backward import AGAIN, BackwardCommands
from tfdb.commands.gradients import expressions
from tfdb.errors import TfdbError

NOTHING = (
    "no step was recorded yet: from now on each step is (functions that were traced before are traced again on their "
    "next call); go on, stop later, and ask again. From the start: python -m tfdb -w 'grad > 1e30', or -c grads"
)

AS_EAGER = ", run again op by op (blank where the graph's fused ops gave other values)"

SEVERAL = (
    "the program differentiates several losses for the same variables here, and what it applies is not known yet: "
    "name one, grads LOSS, VARIABLES"
)


class SeveralLosses(TfdbError):
    """The step under way has more than one gradient for a variable."""


class GradTableCommands(BackwardCommands):
    """The table of gradients at the prompt."""

    def do_grads(self, arg: str) -> None:
        """grads [LOSS [, SOURCES]] [-s name|norm|mean|max|zero|update]

        A row for each variable, in the model's order or sorted with `-s`: the l2 norm of its gradient in the last
        step, as the optimizer applied it (after clipping, unscaling and accumulation), the mean and the largest
        magnitude, the share of zeros, the norm of the update over that of the weight, and the norms of recent steps.
        Variables that got no gradient show None.  It needs no `train_step` of yours: steps are recorded from the first
        `grads` on, or, norms alone, while a `watch grad` is on.

        With an expression, the gradients of its value, computed now: it must run the model, for a loss that is there
        already has lost its tape.

        Example:

            (tfdb) grads -s norm
            (tfdb) grads loss_fn(y, model(x)), model.trainable_variables
        """
        try:
            expression, found = options.parse(arg, valued=("-s",))
            rows = self.rows_on_demand(expression) if expression else self.rows_recorded()
            if rows:
                ordered = gradtable.in_order(rows, found.get("-s", ""))
                self.message(gradtable.text(ordered, render.terminal_width(), self.in_colour()))
        except TfdbError as error:
            self.error(str(error))

    def rows_recorded(self) -> list[gradtable.Row]:
        """The rows of the last step; from the first call on all columns are kept."""
        began = watchstops.of(self.session).record()
        tapes.log.lasting = True  # a stop inside of a tape's block can ask it then
        if not internals.loaded():
            self.message("each step is recorded from the first one on")
            return []
        trip: Any = self.graph_stop.trip if self.graph_stop is not None else None
        if normgate.norms.current is None and trip is not None and trip.gradients:
            self.message(f"the step to be applied{AS_EAGER if trip.again and trip.place.step is not None else ''}")
            return gradrows.of_trip(trip)
        rows = gradrows.recorded(normgate.norms.book, normgate.norms.current)
        if not any(not row.lost for row in rows):
            return self.rows_under_way(began)
        self.message(self.heading(began))
        return rows

    def heading(self, began: bool) -> str:
        """What the rows of recorded steps are of."""
        steps = gradrows.steps_kept(list(normgate.norms.book.rings.values()))
        parts = [
            f"the step to be applied and {steps} recorded" if normgate.norms.current else f"{counted(steps)} recorded"
        ]
        if skips := normgate.norms.book.skips():
            parts.append(f"{skips} skipped by loss scaling")
        if normgate.norms.book.replicas:
            parts.append("of replica 0, before the replicas are summed")
        if began:
            parts.append("all columns from the next step on")
        return " · ".join(parts)

    def rows_under_way(self, began: bool) -> list[gradtable.Row]:
        """The rows of the step that this stop is in, where nothing is recorded yet."""
        try:
            rows = list(gradrows.rows_of(*self.gradients_under_way()))
        except SeveralLosses:
            raise
        except TfdbError:
            rows = []
        if rows:
            self.message("the step that is under way, before clipping and the like; no step was recorded yet")
        else:
            self.message(NOTHING if began else "no step was recorded yet: each is from now on; go on, and ask again")
        return rows

    def gradients_under_way(self) -> tuple[list[Any], list[Any]]:
        """(variables, gradients) of the step that this stop is in.

        Raises:
            TfdbError: no loss is known here, or its gradients cannot be had.
        """
        if self.graph_hit is not None:
            here = self.pass_here()
            leaves = list(here.variables())
            found = [here.gradients(loss.values, leaves) for loss in self.losses_here(here)]
            if any(sum(gradient is not None for gradient in each) > 1 for each in zip(*found, strict=True)):
                raise SeveralLosses(SEVERAL)
            return leaves, [next((g for g in each if g is not None), None) for each in zip(*found, strict=True)]
        wanted = asked.asked(self.activations_here())
        tape, _ = self.lasting_tape()
        targets = lostgrads.flat([wanted.target]) if wanted is not None and wanted.tape is tape else []
        if wanted is None or not targets or not all(map(lostgrads.is_tensor, targets)):
            raise TfdbError("no loss is known here")
        leaves = list(sites.flat(wanted.sources)) or list(tape.watched_variables())
        return leaves, internals_gradients.gradient(internals_gradients.handle_of(tape), targets, leaves)

    def rows_on_demand(self, expression: str) -> list[gradtable.Row]:
        """The rows of an expression's gradients."""
        parts = expressions(expression)
        if not internals.loaded():
            raise TfdbError("TensorFlow is not imported yet")
        value = self.value_of
        sources = (lambda: value(parts[1])) if len(parts) == 2 else None
        if self.graph_hit is not None:
            self.message(AGAIN)
            return list(gradrows.rows_of(*self.gradients_of_pass(*parts)))
        with normgate.norms.quiet():
            return gradrows.on_demand(lambda: value(parts[0]), sources)


def counted(steps: int) -> str:
    """How many steps."""
    return f"{steps} step{'s' if steps != 1 else ''}"
