"""Traces and their differences -> text: how often, which argument changed from what to what, who called, what to do."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from .graphrecords import Change, Trace, TraceRow, TracingOnly
from .graphtext import wrapped
from .report import UserLine

MOST_TRACES = 20
MOST_ALIKE = 3
GLUE = "\xa0"  # a blank at which no line is broken


def retraces_text(
    name: str, traces: Sequence[Trace], explained: Sequence[Sequence[Change]], advice: Sequence[str],
    tracing_only: Sequence[tuple[str, Sequence[TracingOnly]]], width: int,
) -> str:  # fmt: skip
    """All about the traces of one function."""
    lines = [heading(name, traces), *(wrapped(row, width, 7).replace(GLUE, " ") for row in rows(traces, explained))]
    lines += [wrapped(f"  {'what to do' if n == 0 else '':<12}{text}", width, 14) for n, text in enumerate(advice)]
    found = [(file, each) for file, lines in tracing_only for each in lines]
    lines += [wrapped(line, width, 8) for line in tracing_lines(found)]
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
    return f"   called{GLUE}at{GLUE}{caller.place}" if caller is not None else ""


def tracing_lines(found: Sequence[tuple[str, TracingOnly]]) -> Iterator[str]:
    """The lines that run only at tracing, each with its file."""
    if found:
        yield "  these lines run only while tracing:"
    for file, each in found:
        yield f"    {os.path.basename(file)}:{each.line}  {each.text}"
        yield f"        {each.why}"


def overview(entries: Sequence[TraceRow], width: int) -> str:
    """A line a function, the most often traced first: name, place, number of traces, what changed most.

    Of a library's functions that one line had made again and again only the first few are shown.
    """
    if not entries:
        return "no trace is on record yet: python -m tfdb records them from the start"
    by_line: Counter[Any] = Counter((entry.name, entry.caller) for entry in entries if entry.caller is not None)
    seen = Counter[Any]()
    shown = []
    for entry in sorted(entries, key=lambda entry: -entry.count):
        key = (entry.name, entry.caller)
        seen[key] += 1
        if seen[key] <= MOST_ALIKE or by_line[key] == 0:
            place = entry.place or (f"for {entry.caller.place}" if entry.caller else "")
            shown.append((entry.name, place, entry.count, entry.why))
    wide = max(len(name) for name, *_ in shown)
    places = max(len(place) for _, place, *_ in shown)
    lines = []
    for name, place, count, what in shown:
        start = f"  {name:<{wide}}  {place:<{places}}  {count:>3} trace{'s' if count != 1 else ' '}  "
        lines.append(wrapped((start + what).rstrip(), width, min(len(start), width // 2)))
    lines += [wrapped(made_anew(key[0], key[1], count), width, 4) for key, count in by_line.items() if count > 1]
    return "\n".join(lines)


def made_anew(name: str, caller: UserLine, count: int) -> str:
    """What many step functions of one line mean."""
    return f"  {caller.place} had {count} {name} made: a new model, or compile() again, makes its steps anew each time"
