"""Commands that show tensors: one line, values, statistics by axis, pictures, differences."""

import ast
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tfdb import differences, internals_events, plots, render, tensors, values
from tfdb.commands import options
from tfdb.commands.base import PromptBase
from tfdb.errors import TfdbError
from tfdb.records import TensorSummary

PICTURES = ("--png", "--tb")
PLOT_HEIGHT = 18


class TensorCommands(PromptBase):
    """`pt`, `hist`, `plot`, `tdiff`."""

    def do_pt(self, arg: str) -> None:
        """pt EXPRESSION [-a] [-r LO,HI] [-s FILE.npy] [--axis N]

        One line on a tensor: dtype and shape, device and size, the range with a histogram, mean and deviation over the
        finite values, the share of zeros, and how many values are nan or infinite and where the first is.  A list,
        dict or other structure of tensors becomes a table with a line for each.  Slices are Python's: `pt x[0, :3]`.
        -a prints the values too; -r counts those from LO to HI (inf, -inf and nan may be given) and marks them among
        the values; -s saves the array; --axis N gives a line of statistics for each index of that axis.  Options stand
        at the end: write (x - a) for a difference.

        Example:
            (tfdb) pt logits
            (tfdb) pt x[0] -r -inf,0
            (tfdb) pt grads[2] -s grad.npy
        """
        try:
            expression, chosen = options.parse(arg, ("-a",), ("-r", "-s", "--axis"))
            if not expression:
                raise TfdbError("pt takes an expression, for example `pt x`")
            value = self.value_of(expression)
            found = tensors.describe(value)
            width, color = render.terminal_width(), self.in_colour()
            if isinstance(found, TensorSummary):
                self.message(render.tensor_line(found, width, color))
            else:
                self.message(render.tensor_table(found, width, color))
            if chosen:
                self.show_more(array_of(value), chosen)
        except TfdbError as error:
            self.error(str(error))

    def show_more(self, array: np.ndarray, chosen: dict[str, str]) -> None:
        """What the options of `pt` ask for."""
        width, color = render.terminal_width(), self.in_colour()
        marked = values.span(chosen["-r"]) if "-r" in chosen else None
        if "--axis" in chosen:
            self.page(values.axis_text(array, chosen["--axis"], width, color))
        if marked is not None:
            self.message(values.span_text(array, marked))
        if "-a" in chosen or (marked is not None and array.size <= values.FEW):
            self.page(values.values_text(array, width, marked, color))
        if "-s" in chosen:
            self.message(values.save(array, chosen["-s"]))

    def page(self, text: str) -> None:
        """Show a text, through a pager where it is longer than the terminal."""
        height = shutil.get_terminal_size((80, 24)).lines
        if self.in_colour() and text.count("\n") + 1 > height:
            from IPython.core.page import pager_page

            pager_page(text, screen_lines=height)
        else:
            self.message(text)

    def do_hist(self, arg: str) -> None:
        """hist EXPRESSION [--png FILE] [--tb LOGDIR]

        How often the values of a tensor occur, as bars in the terminal; --png writes a picture, --tb an event file for
        TensorBoard's histograms.

        Example:
            (tfdb) hist model.layers[0].kernel --png kernel.png
        """
        self.draw(arg, "hist")

    def do_plot(self, arg: str) -> None:
        """plot EXPRESSION [--png FILE] [--tb LOGDIR]

        A tensor as a picture in the terminal: a line for one axis or a list of numbers, a heat map for two, a picture
        for images (height, width, channels; the first of a batch). --png writes a file, --tb an event file for
        TensorBoard.

        Example:
            (tfdb) plot losses
            (tfdb) plot images[0] --png first.png
        """
        self.draw(arg, "plot")

    def draw(self, arg: str, command: str) -> None:
        """`hist` and `plot`."""
        try:
            expression, chosen = options.parse(arg, (), PICTURES)
            if not expression:
                raise TfdbError(f"{command} takes an expression, for example `{command} x`")
            array = array_of(self.value_of(expression))
            title = f"{expression} {array.dtype.name}{differences.shape_text(array.shape)}"
            make = plots.histogram if command == "hist" else plots.drawing
            if "--png" in chosen:
                plots.png(make(array, title), chosen["--png"])
                self.message(f"{chosen['--png']}: {Path(chosen['--png']).stat().st_size} bytes")
            if "--tb" in chosen:
                folder = chosen["--tb"]
                internals_events.write_tensor(folder, expression, array, command == "hist")
                self.message(f"event file in {folder}: tensorboard --logdir {folder}")
            if not chosen:
                width = render.terminal_width()
                self.message(plots.text(make(array, title), width, PLOT_HEIGHT, self.in_colour()))
        except TfdbError as error:
            self.error(str(error))

    def do_tdiff(self, arg: str) -> None:
        """tdiff A, B

        What differs between two tensors or structures: shapes and dtypes first, then how many elements, the largest
        absolute and relative difference with their places, NaN in one only, and the tolerance at which they agree.

        Example:
            (tfdb) tdiff layer(x), layer(x, training=True)
        """
        try:
            a, b = self.two_values(arg)
            width = render.terminal_width()
            self.message("\n".join(differences_of(a, b, width)))
        except TfdbError as error:
            self.error(str(error))

    def two_values(self, arg: str) -> tuple[Any, Any]:
        """The values of `A, B`.

        Raises:
            TfdbError: there are not two of them.
        """
        try:
            tree = ast.parse(arg.strip(), mode="eval").body
        except SyntaxError as error:
            raise TfdbError(f"SyntaxError: {error.msg}") from error
        if not isinstance(tree, ast.Tuple) or len(tree.elts) != 2:
            raise TfdbError("tdiff takes two expressions: tdiff A, B")
        first, second = (self.value_of(ast.unparse(each)) for each in tree.elts)
        return first, second

    def in_colour(self) -> bool:
        """Whether the terminal shows colours."""
        return hasattr(self, "shell") and sys.stdout.isatty()


def array_of(value: Any) -> np.ndarray:
    """The elements of a tensor, or of a sequence of scalars such as a history of losses.

    Raises:
        TfdbError: it has none.
    """
    try:
        return tensors.to_array(value)
    except ValueError as error:
        if isinstance(value, list | tuple) and value:
            try:
                stacked = np.stack([tensors.to_array(each) for each in value])
                return stacked
            except ValueError:
                pass
        raise TfdbError(str(error)) from error


def differences_of(a: Any, b: Any, width: int) -> list[str]:
    """The differences of two values; of two structures, of the leaves at the same paths."""
    from tfdb.structures import leaves

    one, other = ({"".join(child.step for child in path): leaf for path, leaf in leaves(value)} for value in (a, b))
    if set(one) == {""} or set(other) == {""}:
        return [differences.difference_text(differences.difference(array_of(a), array_of(b)), width)]
    lines = [f"{path}: only in {'the first' if path in one else 'the second'}" for path in one.keys() ^ other.keys()]
    for path in one:
        if path in other:
            lines.append(path.strip())
            found = differences.difference(array_of(one[path]), array_of(other[path]))
            lines.append(differences.difference_text(found, width))
    return lines
