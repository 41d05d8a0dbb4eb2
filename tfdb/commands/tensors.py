"""Commands that show tensors."""

import sys

from tfdb import render, tensors
from tfdb.records import TensorSummary


class TensorCommands:
    """`pt`."""

    def do_pt(self, arg: str) -> None:
        """pt EXPRESSION

        One line on a tensor: dtype and shape, device and size, the range with a histogram, mean and deviation over the
        finite values, the share of zeros, and how many values are nan or infinite and where the first is.  A list,
        dict or other structure of tensors becomes a table with a line for each.

        Example: `pt logits`, `pt x[0]`, `pt model.weights`, `pt tape.gradient(loss, w)`
        """
        if not arg:
            self.error("pt takes an expression, for example `pt x`")  # type: ignore[attr-defined]
            return
        try:
            value = self._getval(arg)  # type: ignore[attr-defined]
        except Exception:
            return
        color = hasattr(self, "shell") and sys.stdout.isatty()
        found = tensors.describe(value)
        width = render.terminal_width()
        show = render.tensor_line if isinstance(found, TensorSummary) else render.tensor_table
        self.message(show(found, width=width, color=color))  # type: ignore[attr-defined,arg-type]
