"""A watch's report -> the one screen that tells it: origin, inputs, path and fix, in the width of the terminal."""

import linecache
import os

from tfdb import render
from tfdb.report import NamedSummary, PathStep, Report, UserLine

RED, BOLD, OFF = "\x1b[31m", "\x1b[1m", "\x1b[0m"
LABEL = 10


def watch_screen(report: Report, width: int, color: bool = False) -> str:
    """The report as text, values first; `color` marks what is bad in red."""
    rows = [("origin", text) for text in origin(report)]
    rows += [("input", named(value, width - LABEL)) for value in report.inputs[:4]]
    if report.output is not None:
        rows.append(("output", named(report.output, width - LABEL)))
    rows += [(label, text) for label, text in sentences(report) if text]
    lines = [headline(report)]
    before = ""
    for label, text in rows:
        lines += wrapped("" if label == before else label, text, width)
        before = label
    if color:
        lines[0] = f"{BOLD}{RED}{lines[0]}{OFF}"
    return "\n".join(lines)


def headline(report: Report) -> str:
    """What stopped the program, when, and how far it spread."""
    if report.reason == "none-grad":
        return f"No gradient for {len(report.variables)} of {report.watched}" if report.watched else "No gradient"
    if report.reason in ("grad", "watch"):
        return limit_headline(report)
    where = {"variable": "a variable", "data": "the data", "update": "the update"}.get(report.phase, "the step")
    name = {"nan": "NaN", "inf": "Infinity"}.get(report.reason, report.reason)
    parts = [f"{name} stopped before the update" if report.variables else f"{name} in {where}"]
    if report.step is not None:
        parts.append(f"step {report.step}")
    if report.variables and report.watched:
        parts.append(f"{len(report.variables)} of {report.watched} are bad")
    return " · ".join(parts)


def limit_headline(report: Report) -> str:
    """The same for a limit that was passed."""
    parts = ["Gradients over a limit, before the update" if report.reason == "grad" else "A watch came true"]
    if report.step is not None:
        parts.append(f"step {report.step}")
    if report.variables and report.watched:
        parts.append(f"{len(report.variables)} of {report.watched} variables to blame")
    return " · ".join(parts)


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
    return f"{os.path.basename(line.file)}:{line.line} {line.function}()"


def named(value: NamedSummary, width: int) -> str:
    """One value on one line, with its name and the element to blame."""
    blamed = f"  at {list(value.blamed)}" if value.blamed else ""
    return render.tensor_line(value.summary, width=max(width - len(blamed), 20), name=value.name) + blamed


def sentences(report: Report) -> list[tuple[str, str]]:
    """The rows that are prose."""
    path = " > ".join(step_text(step) for step in report.path)
    rows = [("cause", report.cause), ("path", path), ("spread", ", ".join(report.variables)), ("fix", report.fix)]
    return rows + [("note", note) for note in report.notes]


def step_text(step: PathStep) -> str:
    """A value of the path: its name and range."""
    if step.bad or step.low is None or step.high is None:
        return f"{step.name} {step.bad}".strip()
    return f"{step.name} [{render.number(step.low)}, {render.number(step.high)}]"


def wrapped(label: str, text: str, width: int) -> list[str]:
    """A row in as many lines as it needs, the label before the first."""
    room, words, lines = max(width - LABEL - 2, 20), text.split(" "), [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [f"  {label if n == 0 else '':{LABEL}}{line}" for n, line in enumerate(lines)]
