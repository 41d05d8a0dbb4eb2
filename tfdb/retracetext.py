"""Traces and their differences -> text: how often, which argument changed from what to what, who called, what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from .graphrecords import Change, Trace, TracingOnly
from .graphtext import wrapped
from .render import shorten
from .report import UserLine

MOST_TRACES = 20


def retraces_text(
    name: str, traces: Sequence[Trace], explained: Sequence[Sequence[Change]], advice: Sequence[str],
    tracing_only: Sequence[TracingOnly], file: str, width: int,
) -> str:  # fmt: skip
    """All about the traces of one function."""
    lines = [heading(name, traces), *(wrapped(row, width, 7) for row in rows(traces, explained))]
    lines += [wrapped(f"  {'what to do' if n == 0 else '':<12}{text}", width, 14) for n, text in enumerate(advice)]
    lines += [wrapped(line, width, 8) for line in tracing_lines(tracing_only, file)]
    return "\n".join(lines)


def heading(name: str, traces: Sequence[Trace]) -> str:
    """How often a function was traced, for how many calls."""
    calls = [trace.calls for trace in traces]
    known = [count for count in calls if count is not None]
    served = f" for {sum(known)} call{'s' if sum(known) != 1 else ''}" if known and len(known) == len(calls) else ""
    return f"{name}: {len(traces)} trace{'s' if len(traces) != 1 else ''}{served}"


def rows(traces: Sequence[Trace], explained: Sequence[Sequence[Change]]) -> Iterator[str]:
    """One line a trace: its number, what made it necessary, who called."""
    for n, (trace, changed) in enumerate(zip(traces, explained, strict=True), 1):
        if n > MOST_TRACES:
            yield f"      … {len(traces) - MOST_TRACES} more"
            return
        what = "; ".join(change_text(each) for each in changed)
        if n == 1:
            what = ", ".join(f"{leaf.path}: {leaf.text}" for leaf in trace.leaves) or "no arguments"
        what = what or "the same arguments again: another tf.function object (make it once, outside loops and calls)"
        yield f"  {n:>3}  {what}{place_text(trace.caller)}"


def change_text(change: Change) -> str:
    """One change."""
    if change.kind == "variables":
        return "the first call made variables: traced again without making them"
    return f"{change.path}: {change.before} -> {change.after}"


def place_text(caller: UserLine | None) -> str:
    """Who called."""
    return f"   called at {os.path.basename(caller.file)}:{caller.line}" if caller is not None else ""


def tracing_lines(found: Sequence[TracingOnly], file: str) -> Iterator[str]:
    """The lines that run only at tracing."""
    if found:
        yield "  these lines run only while tracing:"
    for each in found:
        yield f"    {os.path.basename(file)}:{each.line}  {each.text}"
        yield f"        {each.why}"


def overview(entries: Sequence[tuple[str, str, int, str]], width: int) -> str:
    """A line a function: name, place, number of traces, what changed most."""
    if not entries:
        return "nothing was traced yet"
    wide = max(len(name) for name, *_ in entries)
    places = max(len(place) for _, place, *_ in entries)
    lines = []
    for name, place, count, what in entries:
        lines.append(
            f"  {name:<{wide}}  {place:<{places}}  {count:>3} trace{'s' if count != 1 else ' '}  {what}".rstrip()
        )
    return "\n".join(shorten(line, width) for line in lines)
