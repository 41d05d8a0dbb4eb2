"""`help`: a table of the commands by what they are for; of one command, its manual."""

import inspect
import re
from collections.abc import Iterator

from tfdb import graphtext, render
from tfdb.commands.base import PromptBase

# tfdb's commands with what each does; then, in a line of their own, pdb's and ipdb's that belong there.
GROUPS: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "stops": (
        (
            ("b op:REGEX, b layer:NAME", "stop after each such op, each call of a Keras layer"),
            ("b trace:FILE:LINE", "stop there while Python traces the line"),
        ),
        "break tbreak condition ignore commands clear disable enable",
    ),
    "moving": (
        (
            ("skip", "leave this step's update out, and go on"),
            ("skip_hidden", "library frames in the stack, or not"),
        ),
        "next step return continue until jump up down where list longlist args",
    ),
    "tensors": (
        (
            ("pt EXPR", "a tensor in one line; -a, -r LO,HI, -s FILE, --axis"),
            ("hist EXPR, plot EXPR", "bars; a line, heat map or picture; --png, --tb"),
            ("tdiff A, B", "what differs, and at which tolerance they agree"),
        ),
        "p pp whatis display undisplay interact source pinfo",
    ),
    "graph": (
        (
            ("lt", "this execution's tensors; -f nan, -n NAME, -t OPTYPE"),
            ("ni NODE", "one op: inputs, recipients, values; -a, -t"),
            ("li NODE, lo NODE", "trees of what goes into it, of what takes it"),
            ("ps [FILE:LINE]", "your source with the ops each line made"),
            ("graph [FN]", "a function's graph by your lines; --dot, --svg, --tb"),
            ("retraces [FN]", "why it was traced again, and what to do"),
        ),
        "",
    ),
    "watches": (
        (
            ("watch COND", "stop at a bad value: nan, inf, none, near, grad > 9"),
            ("unwatch [N]", "take watches away"),
        ),
        "",
    ),
    "why": (
        (
            ("why [EXPR]", "where this stop, this NaN or this None comes from"),
            ("grads [LOSS]", "a row of gradient numbers for each variable"),
            ("tape [LOSS]", "the gradient tapes of this stop"),
            ("backward EXPR", "the gradient that comes to a tensor"),
            ("full", "TensorFlow's whole text of an error"),
        ),
        "",
    ),
    "again": (
        (
            ("rerun [FN]", "a recorded call again, eagerly, from its first line"),
            ("compare [FN]", "eagerly, as a graph, under XLA: what differs first"),
            ("repro FILE.py", "this failure as a script that runs by itself"),
        ),
        "restart run quit exit",
    ),
}
MANUALS = "help COMMAND shows its manual with an example"


class HelpCommands(PromptBase):
    """`help` as a table."""

    def do_help(self, arg: str) -> bool | None:
        """h(elp) [COMMAND]

        The commands by what they are for, or one command's manual.

        Example:

            (tfdb) help lt
        """
        function = getattr(type(self), f"do_{arg.strip()}", None)
        if function is not None and function.__module__.startswith("tfdb.") and function.__doc__:
            self.message(manual(function.__doc__, render.terminal_width()))
            return None
        if arg.strip():
            return super().do_help(arg)
        self.page("\n".join(table(self.names(), render.terminal_width())))
        return None

    do_h = do_help

    def names(self) -> list[str]:
        """All commands here that have a manual, each once: the long name of those that have a short one."""
        found: dict[object, str] = {}
        for name in sorted(name for name in dir(self) if name.startswith("do_")):
            function = inspect.unwrap(getattr(type(self), name))
            word = name.removeprefix("do_")
            if len(word) >= len(found.get(function, "")):
                found[function] = word
        return sorted(found.values())


def manual(text: str, width: int) -> str:
    """A docstring for the screen: paragraphs broken to the width, examples as they are."""
    found = []
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        is_prose = not any(line.startswith(" ") for line in paragraph.split("\n"))
        usage = number == 0
        if is_prose:
            found.append(graphtext.wrapped(" ".join(paragraph.split()), width, 4 * usage))
        else:
            found.append("\n".join(listed(line, width) for line in entries(paragraph.split("\n"))))
    return "\n\n".join(found)


def entries(lines: list[str]) -> list[str]:
    """The entries of a list in a manual, those of several lines in one."""
    found: list[str] = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if found and "(tfdb)" not in found[-1] and indent > 4 and indent == second_column(found[-1]):
            found[-1] += f" {line.strip()}"
        else:
            found.append(line)
    return found


def second_column(line: str) -> int:
    """Where the text of an entry begins: after the first gap, or else after the indentation."""
    gap = re.match(r" *\S+(?: \S+)* {2,}", line)
    return gap.end() if gap else len(line) - len(line.lstrip())


def listed(line: str, width: int) -> str:
    """A line of a list in a manual, broken so that its second column stays one; examples stay as they are."""
    if len(line) <= width or "(tfdb)" in line:
        return line
    return graphtext.wrapped(line, width, min(second_column(line), width // 2))


def words() -> set[str]:
    """The commands that the table names."""
    own = {each.split()[0] for rows, _ in GROUPS.values() for names, _ in rows for each in names.split(", ")}
    return own | {name for _, others in GROUPS.values() for name in others.split()}


def table(names: list[str], width: int) -> Iterator[str]:
    """The table, at most `width` columns wide; commands that it does not know come last."""
    wide = max(len(left) for rows, _ in GROUPS.values() for left, _ in rows)
    for group, (rows, others) in GROUPS.items():
        yield group
        for left, phrase in rows:
            yield graphtext.wrapped(f"  {left:<{wide}}  {phrase}", width, min(wide + 4, width // 2))
        known = [name for name in others.split() if name in names]
        if known:
            yield graphtext.wrapped(f"  as pdb's:  {'  '.join(known)}", width, 13)
    rest = [name for name in names if name not in words() and name not in ("help", "EOF")]
    if rest:
        yield graphtext.wrapped(f"more       {'  '.join(rest)}", width, 11)
    yield MANUALS
