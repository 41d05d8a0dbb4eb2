"""`grads`: the table of the gradients of the last steps, or of an expression's."""

import sys

from tfdb import gradrows, gradtable, internals, render, watchstops
from tfdb.commands import options
from tfdb.commands.backward import AGAIN, BackwardCommands
from tfdb.commands.gradients import expressions
from tfdb.errors import TfdbError
from tfdb.normgate import norms

NOTHING = (
    "no step was recorded yet: from now on each step is (functions that were traced before are traced again on their "
    "next call); go on, stop later, and ask again. From the start: python -m tfdb -w 'grad > 1e30', or -c grads"
)


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
                color = hasattr(self, "shell") and sys.stdout.isatty()
                self.message(gradtable.text(ordered, render.terminal_width(), color))
        except TfdbError as error:
            self.error(str(error))

    def rows_recorded(self) -> list[gradtable.Row]:
        """The rows of the last step; from the first call on all columns are kept."""
        began = watchstops.of(self.session).record()
        rows = gradrows.recorded(norms.book, norms.current) if internals.loaded() else []
        if not any(not row.lost for row in rows):
            self.message(NOTHING if internals.loaded() else "each step is recorded from the first one on")
            return []
        steps = gradrows.steps_kept(list(norms.book.rings.values()))
        parts = [f"the step to be applied and {steps} recorded" if norms.current else f"{steps} steps recorded"]
        if skips := norms.book.skips():
            parts.append(f"{skips} skipped by loss scaling")
        if began:
            parts.append("all columns from the next step on")
        self.message(" · ".join(parts))
        return rows

    def rows_on_demand(self, expression: str) -> list[gradtable.Row]:
        """The rows of an expression's gradients."""
        parts = expressions(expression)
        if not internals.loaded():
            raise TfdbError("TensorFlow is not imported yet")
        value = self.value_of
        sources = (lambda: value(parts[1])) if len(parts) == 2 else None
        if self.graph_stop is not None and self.graph_stop.hit is not None:
            self.message(AGAIN)
            return list(gradrows.rows_of(*self.gradients_of_pass(parts[0], parts[1] if parts[1:] else None)))
        with norms.quiet():
            return gradrows.on_demand(lambda: value(parts[0]), sources)
