"""A watch's report -> the one screen that tells it: origin, inputs, path and fix, in the width of the terminal."""

import linecache
from collections.abc import Sequence

from tfdb import render
from tfdb.report import BEFORE_UPDATE, NamedSummary, PathStep, Report, UserLine

RED, OFF = "\x1b[31m", "\x1b[0m"
LABEL = 10
NAMES = {"nan": "NaN", "inf": "Infinity"}
LIMITS = {"grad": "Gradients", "loss": "Loss", "update": "Update"}
GOING_ON = {
    "update": "c goes on, with the bad update; skip goes on without it; q ends",
    "skip": "c goes on, this step's update is left out; q ends",
    "write": "c goes on, and writes it; skip leaves it out; q ends",
    "program": "c goes on as the program would; q ends",
}


def watch_screen(report: Report, width: int, color: bool = False) -> str:
    """The report as text, values first; `color` marks what is bad in red."""
    rows = [("origin", text) for text in origin(report)]
    rows += [("input", named(value, width - LABEL - 2, color)) for value in report.inputs[:4]]
    if report.output is not None:
        rows.append(("output", named(report.output, width - LABEL - 2, color)))
    rows += [(label, text) for label, text in sentences(report, color) if text]
    lines = headline(report, width, color)
    before = ""
    for label, text in rows:
        lines += wrapped("" if label == before else label, text, width)
        before = label
    return "\n".join(lines)


def headline(report: Report, width: int, color: bool = False) -> list[str]:
    """What stopped the program, when, and how far it spread; in two lines where one is too short."""
    if report.reason == "none-grad":
        lost = f"No gradient for {len(report.variables)} of {report.watched}" if report.watched else "No gradient"
        return [red(lost, color)]
    if report.place == "near":
        parts = ["A near miss", *([f"step {report.step}"] if report.step is not None else [])]
        parts += [report.during] if report.during else []
    elif report.reason in ("grad", "watch"):
        parts = limit_headline(report)
    else:
        parts = [stopped(report), *([f"step {report.step}"] if report.step is not None else [])]
        parts += [part for part in (report.during, how_many(report)) if part]
        parts += ["weights still clean"] if report.clean and report.place in BEFORE_UPDATE else []
    lines, room = [parts[0]], [render.visible_width(parts[0])]
    for part in parts[1:]:
        taken = render.visible_width(part) + 3
        if room[-1] + taken > width:
            lines.append(f"  {part}")
            room.append(taken)
        else:
            lines[-1] += f" · {part}"
            room[-1] += taken
    return [red(parts[0], color) + lines[0][len(parts[0]) :], *lines[1:]]


def stopped(report: Report) -> str:
    """What was found, and where it was on its way to."""
    kind = report.stopped or report.reason
    name = NAMES.get(kind, kind)
    into = ", ".join(report.variables[:2])
    if report.place in BEFORE_UPDATE:
        return f"{name} stopped before the update"
    if report.place == "check":
        return f"{name} ended the program"
    if report.place == "load":
        return f"{name} stopped on its way into {into}"
    if report.place == "variable":
        return f"{name} on its way into {into}"
    if report.seen:
        return f"{name} in {listed(report.seen)}"
    where = {"variable": "a variable", "data": "the data", "update": "the update"}.get(report.phase, "the step")
    return f"{name} in {where}"


def how_many(report: Report) -> str:
    """`3 of 6 gradients are NaN`, or what else was bad where it stopped; "" where the first words have said it."""
    if report.place not in BEFORE_UPDATE:
        return ""
    if not (report.variables and report.watched):
        return f"in {listed(report.seen)}" if report.seen else ""
    kind = "update" if report.phase == "update" else "gradient"
    plural = "s" if report.watched != 1 else ""
    count = len(report.variables)
    bad = {"nan": "NaN", "inf": "infinite"}.get(report.stopped or report.reason, "bad")
    return f"{count} of {report.watched} {kind}{plural} {'is' if count == 1 else 'are'} {bad}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def red(text: str, color: bool) -> str:
    """The text in the colour of what is bad."""
    return f"{RED}{text}{OFF}" if color else text


def limit_headline(report: Report) -> list[str]:
    """The parts of the headline for a limit that was passed."""
    what, _, side = report.stopped.partition(" ")
    parts = [f"{LIMITS[what]} {side} a limit, before the update" if what in LIMITS else "A watch came true"]
    if report.step is not None:
        parts.append(f"step {report.step}")
    parts += [report.during] if report.during else []
    if report.variables and report.watched:
        parts.append(f"{len(report.variables)} of {report.watched} variables to blame")
    return parts


def origin(report: Report) -> list[str]:
    """The op, the user's line and its source."""
    op = report.op or ("applied at" if report.reason in ("grad", "watch") else "a value")
    if report.forward_op and report.forward_op != report.op:
        op += f", the gradient of {report.forward_op}"
    if report.line is None:
        return [op]
    lines = [f"{op}  {place(report.line)}"]
    source = linecache.getline(report.line.file, report.line.line).strip()
    if source:
        lines.append(f"{report.line.line} | {source}")
    if report.detail is not None:
        lines.append(f"inside {place(report.detail)}")
    return lines


def place(line: UserLine) -> str:
    """`file.py:24 function()`."""
    return f"{line.place} {line.function}()"


def named(value: NamedSummary, width: int, color: bool = False) -> str:
    """One value on one line, with its name and the element to blame."""
    if not value.blamed or value.value is None:
        return render.tensor_line(value.summary, width, color, value.name)
    blamed = f"{render.number(value.value)} at {list(value.blamed)}"
    line = render.tensor_line(value.summary, max(width - len(blamed) - 2, 20), color, value.name)
    return f"{line}  {red(blamed, color)}"


def sentences(report: Report, color: bool = False) -> list[tuple[str, str]]:
    """The rows that are prose."""
    rows = [("cause", report.cause), reached(report, color), ("fix", report.fix)]
    rows += [("note", note) for note in report.notes]
    ended = report.reason in ("grad", "watch", "none-grad") or report.place in ("", "check")
    how = "skip" if report.skips else "update"
    if report.place not in BEFORE_UPDATE:
        how = "write" if report.place in ("variable", "load") else "program"
    return rows if ended and report.place != "near" else [*rows, ("then", GOING_ON[how])]


def reached(report: Report, color: bool) -> tuple[str, str]:
    """A row of the variables to blame; or of the values on the way and the variables they were about to reach."""
    if report.variables and report.reason in ("grad", "watch", "none-grad"):
        return "spread", listed(report.explained or report.variables, 8)
    steps = [step_text(step, color) for step in report.path]
    if report.variables and report.place in BEFORE_UPDATE:
        kind = report.stopped or report.reason
        steps.append(f"{red(kind, color)} in {listed(report.variables, 6)}")
    return "path", " > ".join(steps)


def step_text(step: PathStep, color: bool = False) -> str:
    """A value of the path: its name and range, or what is bad about it."""
    if step.bad or step.low is None or step.high is None:
        return f"{step.name} {red(step.bad, color)}".strip()
    low, high = render.number(step.low), render.number(step.high)
    return f"{step.name} {low}" if low == high else f"{step.name} [{low}, {high}]"


def wrapped(label: str, text: str, width: int) -> list[str]:
    """A row in as many lines as it needs, the label before the first."""
    room, words, lines = max(width - LABEL - 2, 20), text.split(" "), [""]
    for word in words:
        if lines[-1] and render.visible_width(lines[-1]) + 1 + render.visible_width(word) > room:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [f"  {label if n == 0 else '':{LABEL}}{line}" for n, line in enumerate(lines)]
