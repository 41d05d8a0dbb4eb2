"""Commands that show tensors: one line, values, statistics by axis, pictures, differences."""

from __future__ import annotations

import ast
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdb import differences, internals_events, plots, records, render, structures, summarize, tensors, values
from tfdb.commands import options
from tfdb.commands.base import PromptBase
from tfdb.errors import TfdbError

PICTURES = ("--png", "--tb")
PLOT_HEIGHT = 18
SMALL_HEIGHT = 10  # of each of several curves
MOST_CURVES = 12

if TYPE_CHECKING:
    import numpy as np


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
            if isinstance(found, records.TensorSummary):
                self.message(render.tensor_line(found, width, color))
            else:
                self.message(render.tensor_table(found, width, color))
            if chosen:
                self.show_more(stored_of(value, "pt", expression), chosen)
        except TfdbError as error:
            self.error(str(error))

    def show_more(self, value: records.Stored, chosen: dict[str, str]) -> None:
        """What the options of `pt` ask for."""
        width, color = render.terminal_width(), self.in_colour()
        marked = values.span(chosen["-r"]) if "-r" in chosen else None
        if "--axis" in chosen:
            self.page(values.axis_text(value, chosen["--axis"], width, color))
        if marked is not None:
            self.message(values.span_text(value, marked))
        if "-a" in chosen or (marked is not None and value.array.size <= values.FEW):
            self.page(values.stored_text(value, width, marked, color))
        if "-s" in chosen:
            self.message(values.save(value, chosen["-s"]))

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

        How often the values of a tensor occur, as bars in the terminal, one for each value where they are few. --png
        writes a picture, --tb an event file for TensorBoard's histograms.

        Example:
            (tfdb) hist model.layers[0].kernel --png kernel.png
        """
        self.draw(arg, "hist")

    def do_plot(self, arg: str) -> None:
        """plot EXPRESSION [--png FILE] [--tb LOGDIR]

        A tensor as a picture in the terminal: a line for one axis or a list of numbers, one for each entry of a Keras
        history or another dict of such lists, a heat map for two axes, a picture for images (height, width, channels;
        the first of a batch). --png writes a file, --tb an event file for TensorBoard.

        Example:
            (tfdb) plot losses
            (tfdb) plot model.history
            (tfdb) plot images[0] --png first.png
        """
        self.draw(arg, "plot")

    def draw(self, arg: str, command: str) -> None:
        """`hist` and `plot`."""
        try:
            expression, chosen = options.parse(arg, (), PICTURES)
            if not expression:
                raise TfdbError(f"{command} takes an expression, for example `{command} x`")
            value = self.value_of(expression)
            curves = histories(value) if command == "plot" else {}
            arrays = {f"{expression}{name}": array for name, array in curves.items()}
            arrays = arrays or {expression: stored_of(value, command, expression).array}
            make = plots.histogram if command == "hist" else plots.drawing
            made = [make(array, titled(name, array)) for name, array in arrays.items()]
            if "--png" in chosen:
                path = Path(chosen["--png"]).expanduser()
                plots.png(made, str(path))
                self.message(f"{path}: {path.stat().st_size} bytes")
            if "--tb" in chosen:
                folder = str(Path(chosen["--tb"]).expanduser())
                for name, array in arrays.items():
                    internals_events.write_tensor(folder, name, plots.numbers(array), command == "hist")
                self.message(f"event file in {folder}: tensorboard --logdir {shlex.quote(folder)}")
            if not chosen:
                width = render.terminal_width()
                height = PLOT_HEIGHT if len(made) == 1 else SMALL_HEIGHT
                self.page("\n".join(plots.text(each, width, height, self.in_colour()) for each in made))
        except TfdbError as error:
            self.error(str(error))

    def do_tdiff(self, arg: str) -> None:
        """tdiff A, B

        What differs between two tensors or structures: shapes and dtypes first, then how many elements, the largest
        absolute and relative difference with their places, NaN in one only, and the tolerance at which they agree.
        Of structures the leaves at the same paths are compared, and those that differ are shown.

        Example:
            (tfdb) tdiff layer(x), layer(x, training=True)
        """
        try:
            a, b = self.two_values(arg)
            width = render.terminal_width()
            self.page("\n".join(differences_of(a, b, width)))
        except TfdbError as error:
            self.error(str(error))

    def two_values(self, arg: str) -> tuple[Any, Any]:
        """The values of `A, B`.

        Raises:
            TfdbError: there are not two of them.
        """
        tree = options.parsed(arg.strip())
        if not isinstance(tree, ast.Tuple) or len(tree.elts) != 2:
            raise TfdbError("tdiff takes two expressions: tdiff A, B")
        first, second = (self.value_of(ast.unparse(each)) for each in tree.elts)
        return first, second

    def in_colour(self) -> bool:
        """Whether the terminal shows colours."""
        return hasattr(self, "shell") and sys.stdout.isatty()


def stored_of(value: Any, command: str, expression: str) -> records.Stored:
    """The elements of a tensor, or of a sequence of scalars such as a history of losses.

    Raises:
        TfdbError: it has none.
    """
    try:
        return tensors.stored(value)
    except ValueError as error:
        if isinstance(value, list | tuple) and value:
            import numpy as np

            try:
                return records.Stored(np.stack([tensors.to_array(each) for each in value]))
            except ValueError:
                pass
        if (parts := parts_of(value)) is not None:
            taken = "" if not parts else f": take one, {command} {expression}{parts[0]}"
            raise TfdbError(f"this is a structure of {len(parts)} values{taken}") from error
        raise TfdbError(str(error)) from error


def parts_of(value: Any) -> list[str] | None:
    """The paths to the leaves of a structure; None for a leaf."""
    try:
        if structures.children(value) is None:
            return None
    except Exception:  # it refuses to be looked at
        return None
    inside = (
        "" if isinstance(value, Mapping | list | tuple) else ".weights" if hasattr(value, "weights") else ".variables"
    )
    found = ["".join(child.step for child in path) for path, _ in structures.leaves(value)]
    return [f"{inside}{path}" if path.startswith("[") else path for path in found]


def histories(value: Any) -> dict[str, np.ndarray]:
    """The curves of a Keras history, or of a dict of lists of numbers; none for anything else."""
    found = value if isinstance(value, Mapping) else None
    if found is None and type(value).__name__ == "History":
        found = value.history
    curves: dict[str, np.ndarray] = {}
    for key, numbers in list(found.items())[:MOST_CURVES] if found else ():
        try:
            array = tensors.to_array(numbers)
        except ValueError:
            return {}
        if array.ndim != 1 or not array.size:
            return {}
        curves[f"[{key!r}]"] = array
    return curves


def titled(name: str, array: np.ndarray) -> str:
    """What stands over a picture."""
    return f"{name} {summarize.dtype_name(array)}{records.shape_text(array.shape)}"


def differences_of(a: Any, b: Any, width: int) -> list[str]:
    """The differences of two values; of two structures, of the leaves at the same paths."""
    one, other = (
        {"".join(child.step for child in path): (path, leaf) for path, leaf in structures.leaves(v)} for v in (a, b)
    )
    if "" in one or "" in other:
        return leaf_difference(a, b, width)[1].split("\n")
    names = [f"{path}: only in the first" for path in one if path not in other]
    lines = [*names, *(f"{path}: only in the second" for path in other if path not in one)]
    shared = [path for path in one if path in other]
    equal = 0
    for path in shared:
        alike, text = leaf_difference(one[path][1], other[path][1], width)
        equal += alike
        if not alike:
            lines += [tensors.row_name(*one[path]), text]
    if equal or not shared:
        lines.append(f"{'all' if equal == len(shared) else f'{equal} of'} {len(shared)} leaves equal")
    return lines


def leaf_difference(a: Any, b: Any, width: int) -> tuple[bool, str]:
    """Whether two leaves are equal, and how they differ.

    Raises:
        TfdbError: that cannot be told.
    """
    try:
        found = differences.of_stored(tensors.stored(a), tensors.stored(b))
        return found.unequal == 0 and found.shapes[0] == found.shapes[1], differences.difference_text(found, width)
    except ValueError:
        lines = [tensors.summary(each, width) for each in (a, b)]
    if a is b:
        return True, f"both {lines[0]}: the same"
    return False, f"not compared, one has no elements\n  {lines[0]}\n  {lines[1]}"
