"""The command that runs a recorded call in three ways, and the text of what it finds."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tfdb import compare, internals_rerun, progress, render, rerun
from tfdb.commands.base import PromptBase
from tfdb.errors import TfdbError


class CompareCommands(PromptBase):
    """`compare`."""

    def do_compare(self, arg: str) -> None:
        """compare [FUNCTION]

        Run a tf.function's recorded call eagerly, as a graph and compiled by XLA, each from the same arguments and
        variables, and show where outputs, gradients (of the sum of the outputs) and updated variables differ, and the
        first op and line where they part: a NaN that only XLA makes, an index that it clamps, a check that it drops, a
        Python value that was frozen into the graph.  Rounding is no difference: up to 2e-5 of the largest magnitude for
        float32, 1e-9 for float64, 4e-3 for float16 and 3e-2 for bfloat16, by the coarsest type in the function.  All
        state is put back.

        Example:

            (tfdb) compare
            (tfdb) compare distance
        """
        try:
            if self.graph_stop is not None and internals_rerun.spare_threads() < 1:
                raise TfdbError("no thread is left to run a graph at this stop: set TF_NUM_INTEROP_THREADS=4")
            target = self.target(arg.strip())
            doing = f"running {target.name}() eagerly, as a graph and by XLA"
            with self.session.door.last_kept(), progress.told(doing, self.stdout):
                found = compare.compare(target, self.undisturbed, self.substitutes(target))
        except TfdbError as error:
            self.error(str(error))
            return
        for line in lines(found):
            self.message(line)


def lines(found: compare.Comparison) -> Iterator[str]:
    """The comparison, line by line."""
    target = found.target
    graded = any(name.startswith("gradient") for name, _ in found.rows)
    gradients = " · gradients of the sum of the outputs" if graded else ""
    yield f"{target.name}() · {target.call} · {rerun.state_sentence(target)}{gradients}"
    for note in found.notes:
        yield f"  {note}"
    for way in found.ways:
        if way.error is not None:
            yield f"  {way.name:6} {error_line(way.name, way.error)}"
        elif way.ungraded is not None:
            yield f"  {way.name:6} has no gradients: {error_line(way.name, way.ungraded)}"
    yield from table(found)
    for parting in found.partings:
        yield from parting_lines(parting)
    yield from found.findings
    yield from conclusion(found)


def conclusion(found: compare.Comparison) -> Iterator[str]:
    """The last line, where the rest says nothing."""
    ran = [way.name for way in found.ways if way.error is None]
    if any(gap.matters for _, row in found.rows for gap in row.values()) or found.findings:
        return
    if len(ran) == len(found.ways):
        yield f"no difference beyond rounding{largest(found)}"
    elif ran:
        yield f"only {ran[0]} runs through" if len(ran) == 1 else f"{' and '.join(ran)} agree"


def largest(found: compare.Comparison) -> str:
    """`; the largest is 2.3e-07, XLA's output at [0, 1]`, where the results are not the same to the bit."""
    rounded = [(gap.largest, way, name, gap.index) for name, row in found.rows for way, gap in row.items()
               if gap.kind == "rounding"]  # fmt: skip
    if not rounded:
        return ""
    amount, way, name, index = max(rounded)
    owner = "XLA's" if way == "XLA" else f"the {way}'s"
    return f"; the largest is {render.number(amount)}, in {owner} {name}{f' at {list(index)}' if index else ''}"


def table(found: compare.Comparison) -> Iterator[str]:
    """A line for each result, a column for each way but the first."""
    columns = [way.name for way in found.ways if way.error is None and way.name != found.base]
    if not columns:
        return
    cells = [(name, [difference_text(row[column]) for column in columns]) for name, row in found.rows]
    wide = max(len(name) for name in [f"against {found.base}", *(name for name, _ in cells)])
    widths = [max(len(texts[i]) for texts in [columns, *(texts for _, texts in cells)]) for i in range(len(columns))]
    for name, texts in [(f"against {found.base}", columns), *cells]:
        yield "  " + "  ".join([name.ljust(wide), *(t.ljust(w) for t, w in zip(texts, widths, strict=True))]).rstrip()


def difference_text(gap: compare.Difference) -> str:
    """A difference in a few words."""
    if gap.kind == "same":
        return f"same, with {gap.first}" if gap.first else "same"
    if gap.kind == "rounding":
        return f"same up to {render.number(gap.largest)}"
    if gap.kind == "missing":
        return "none"
    if gap.kind == "unlike":
        return f"{gap.first} became {gap.second}"
    place = f" at {list(gap.index)}" if gap.index else ""
    first, second = told(gap.first), told(gap.second)
    if first == second and isinstance(gap.first, float):
        first, second = f"{gap.first:.7g}", f"{gap.second:.7g}"
    return f"{gap.count} differ: {first} became {second}{place}"


def told(value: object) -> str:
    """A scalar in few characters."""
    return render.number(value) if isinstance(value, bool | int | float | complex) else repr(value)


def error_line(name: str, error: Exception) -> str:
    """How a way failed: the error's type and the line of its text that says most."""
    unable = "XLA cannot compile it: " if name == "XLA" and "compil" in str(error) else ""
    return f"{unable}{type(error).__name__}: {rerun.shortened(rerun.said(error))}"


def parting_lines(parting: compare.Parting) -> Iterator[str]:
    """Where two ways part."""
    first, second = parting.ways
    op = f"{parting.op}, the gradient of {parting.forward}" if parting.forward else parting.op
    file, line, function = parting.line or ("", 0, "")
    where = f"{os.path.basename(file)}:{line} {function}()" if file else "no line of yours"
    yield f"{first} and {second} part at {op} · {where}"
    gap = parting.difference
    change = "" if gap.kind == "unlike" else f"{difference_text(gap)}, "
    yield f"  {change}{parting.cause}"
