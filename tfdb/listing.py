"""The tensors of an execution -> rows to show: filtered, sorted, summarised; a line on where the values come from."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import graphtext, render, tensors
from .errors import TfdbError
from .evaluation import Unavailable
from .executions import Execution, Level
from .graphrecords import Fetched, Node

MOST_ROWS = 100  # without -a; a summary costs a pass over the elements
MOST_REASONS = 5
BAD = {"nan": ("nan",), "inf": ("inf",), "nan|inf": ("nan", "inf"), "inf|nan": ("nan", "inf")}
SORTS = ("time", "name", "op", "line", "size", "bad")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tensors: a filter (nan, inf, or an expression of `t`, the array), a name and an op type, the order."""

    filter: str = ""
    name: str = ""
    op: str = ""
    sort: str = "time"
    everything: bool = False


def wanted(options: Mapping[str, str]) -> Wanted:
    """The wish that a command's options express.

    Raises:
        TfdbError: a pattern is no regular expression, or there is no such order.
    """
    filter, name, op = (options.get(each, "") for each in ("-f", "-n", "-t"))
    made = Wanted(filter, name, op, options.get("-s", "time"), "-a" in options)
    for pattern in (made.name, made.op):
        try:
            re.compile(pattern)
        except re.error as error:
            raise TfdbError(f"{pattern} is no regular expression: {error}") from error
    if made.sort not in SORTS:
        raise TfdbError(f"-s takes one of {', '.join(SORTS)}")
    return made


def nodes(execution: Execution, wish: Wanted) -> Iterator[tuple[Level, Node]]:
    """The nodes that have run and match by name and op type, outermost graph first, each graph in order."""
    for level in [*execution.levels, *(each for each in execution.all_levels() if each not in execution.levels)]:
        for node in level.record.nodes:
            if level.evaluation.order[node.name] >= level.end or not node.outputs:
                continue
            if not wish.everything and not wish.name and not wish.op and graphtext.is_plumbing(node):
                continue
            if re.search(wish.name, node.name) and (not wish.op or re.fullmatch(wish.op, node.op)):
                yield level, node


def fetch(level: Level, node: Node, test: Callable[[Any], bool] | None) -> Iterator[tuple[Fetched, Any]]:
    """The tensors of a node that pass the test, without summaries, with their values (None where there is none)."""
    for index, kind in enumerate(node.outputs):
        name = node.name + (f":{index}" if index else "")
        if kind.dtype in ("resource", "variant"):
            continue
        try:
            value = level.evaluation.fetch(level.evaluation.graph.get_tensor_by_name(f"{node.name}:{index}"))
        except Unavailable as reason:
            if test is None:
                yield Fetched(name, node, str(reason)), None
            continue
        if test is None or test(value):
            yield Fetched(name, node), value


def test_of(text: str, names: Mapping[str, Any]) -> Callable[[Any], bool] | None:
    """The filter as a function of a tensor's value.

    Raises:
        TfdbError: the expression is no Python.
    """
    if not text:
        return None
    if text in BAD:
        return lambda value: any(has_bad(tensors.to_array(value), kind) for kind in BAD[text])
    try:
        code = compile(text, "<filter>", "eval")
    except SyntaxError as error:
        raise TfdbError(f"-f takes nan, inf or an expression of t, the array: {error.msg}") from error

    def test(value: Any) -> bool:
        array = tensors.to_array(value)
        return bool(eval(code, {**names, "np": np, "t": array}))

    return test


def has_bad(array: np.ndarray, kind: str) -> bool:
    """Whether an array has a NaN, or (`inf`) an infinity."""
    try:
        return bool((np.isnan if kind == "nan" else np.isinf)(array).any())
    except TypeError:
        return False


def badness_rank(array: np.ndarray, only: str) -> int:
    """NaN before infinities before finite numbers; of those with infinities `only`, what has no NaN first."""
    if only == "inf":
        return int(has_bad(array, "nan"))
    return 0 if has_bad(array, "nan") else 1 if has_bad(array, "inf") else 2


def key(sort: str, filter: str) -> Callable[[tuple[Level, Fetched, Any]], Any]:
    """What to sort rows by that have passed a filter."""
    return {
        "name": lambda row: row[1].name,
        "op": lambda row: row[1].node.op,
        "line": lambda row: (line.file, line.line) if (line := row[1].node.line) else ("", 0),
        "size": lambda row: -(getattr(row[2], "nbytes", 0) or int(np.size(row[2]) if row[2] is not None else 0)),
        "bad": lambda row: 3 if row[2] is None else badness_rank(tensors.to_array(row[2]), filter),
    }[sort]


def rows(execution: Execution, wish: Wanted, names: Mapping[str, Any]) -> list[tuple[Level, Fetched, Any]]:
    """All rows that match, in order; their summaries are made when they are shown.

    Raises:
        TfdbError: the filter is no expression, or fails on every tensor.
    """
    test = test_of(wish.filter, names)
    found, errors, passed = [], Counter[str](), 0
    for level, node in nodes(execution, wish):
        try:
            found += [(level, *each) for each in fetch(level, node, test)]
            passed += 1
        except Exception as error:
            errors[f"{type(error).__name__}: {error}"] += 1
    if errors and not passed:
        raise TfdbError(f"the filter fails on every tensor: {errors.most_common(1)[0][0]}")
    return found if wish.sort == "time" else sorted(found, key=key(wish.sort, wish.filter))


def table(found: Sequence[tuple[Level, Fetched, Any]], wish: Wanted, width: int, color: bool) -> str:
    """The rows as text: name, op type, user line, summary; then why values are missing."""
    shown = found if wish.everything else found[:MOST_ROWS]
    files = {row[1].node.line.file for row in shown if row[1].node.line is not None}
    named = [(row, place_text(row[1].node, len(files) > 1), name_text(row)) for row in shown]
    wide = min(max((render.visible_width(name) for *_, name in named), default=0), max(width // 3, 16))
    op_wide = min(max((len(row[1].node.op) for row, *_ in named), default=0), max(width // 8, 8))
    line_wide = min(max((len(line) for _, line, _ in named), default=0), 20)
    lines, last = [], None
    for (level, each, value), line, name in named:
        if level.title != last:
            lines.append(level.title + (f"  ({os.path.basename(next(iter(files)))})" if len(files) == 1 else ""))
            last = level.title
        parts = (
            render.pad(render.shorten(name, wide, tail=True), wide),
            render.pad(render.shorten(each.node.op, op_wide), op_wide),
            render.pad(render.shorten(line, line_wide, tail=True), line_wide),
        )
        start = f"  {' '.join(parts)} "
        if value is None:
            text = "not available"
        else:
            text = render.tensor_line(tensors.describe_leaf(value), max(width - render.visible_width(start), 10), color)
        lines.append(render.shorten(start + text, width) if not color else start + text)
    if len(found) > len(shown):
        lines.append(f"… {len(found) - len(shown)} more: -n REGEX, -t OPTYPE, -f nan|inf|EXPR choose, -a shows all")
    lines += [graphtext.wrapped(line, width, 4) for line in reasons([each for _, each, _ in shown])]
    return "\n".join(lines) if lines else "no tensor matches"


def reasons(shown: Sequence[Fetched]) -> Iterator[str]:
    """Why tensors are not available, each reason once with how many it holds for."""
    roots = Counter(root_of(each.reason) for each in shown if each.reason)
    for text, count in roots.most_common(MOST_REASONS):
        yield f"  {count} not available: {text}"
    if len(roots) > MOST_REASONS:
        yield f"  … and {len(roots) - MOST_REASONS} other reasons (ni NODE tells a tensor's)"


def root_of(reason: str) -> str:
    """A reason without the op on the way to it."""
    return re.sub(r"^needs \S+: ", "", reason)


def place_text(node: Node, with_file: bool) -> str:
    """The user's line of a node, its file only where there are several."""
    if node.line is None:
        return ""
    return node.line.place if with_file else f":{node.line.line}"


def name_text(row: tuple[Level, Fetched, Any]) -> str:
    """A tensor's name by the shortest end of it that `ni` takes."""
    level, each, _ = row
    return level.suffixes[each.node.name] + each.name.removeprefix(each.node.name)


def totals(execution: Execution, found: Sequence[tuple[Level, Fetched, Any]], xla: bool) -> str:
    """One line on where the values come from."""
    carried = sum(f"{each.name}:0" in level.carried or each.name in level.carried for level, each, _ in found)
    missing = sum(value is None for _, _, value in found)
    parts = [f"{len(found)} tensor{'s' if len(found) != 1 else ''} of {execution.place.title.rpartition(' > ')[2]}"]
    if carried:
        parts.append(f"{carried} from the stop")
    if len(found) - carried - missing:
        parts.append(f"{len(found) - carried - missing} computed again")
    if missing:
        parts.append(f"{missing} not available")
    if execution.place.evaluation.memory.as_now:
        parts.append("variables as they are now")
    return " · ".join([*parts, "without XLA"] if xla else parts)
