"""A table of commands and what each shows -> a scripted session, checked row by row.

    walk(program, '''
        b step              | Breakpoint 1 at ...
        c                   | step: total = tf.constant(0.0)
        n                   | step: return total + x
        p float(x)          | 3.0
        n                   | --Return-- / step: return total + x
        c                   | result 4.0
    ''')

The program stops first by itself (`tfdb.set_trace()`), which no row shows.  A stop is written `function: source line`;
lines that a command prints are joined by ` / `, the program's own included; `...` stands for any text.  In a command,
`@code@` is the number of the line of the program's file that reads `code`.
"""

import inspect
import linecache
import re
import sys
from collections.abc import Callable
from itertools import zip_longest

from transcripts import PROMPTS, line_matches, record

STOP = re.compile(r"> (.*)\((\d+)\)([^()]+)\(\)(.*)")


def walk(program: Callable[[], object], table: str) -> str:
    """Run the program under the debugger, typing the table's commands; returns all that was printed.

    Raises AssertionError naming the first rows that differ.
    """
    __tracebackhide__ = True
    lines = [line for line in located(table, program).splitlines() if line.strip()]
    rows = [[part.strip() for part in re.split(r"\s\|(?:\s|$)", line, maxsplit=1)] for line in lines]
    commands = [row[0] for row in rows]
    early = int(stops_on_the_call(program))
    output, raised = record(program, ["n"] * early + commands)
    shown = [compact(part) for part in re.split("|".join(map(re.escape, PROMPTS)), output)[1 + early :]]
    wanted = [row[1] if len(row) > 1 else "" for row in rows]
    if len(shown) == len(rows) and all(map(line_matches, wanted, shown)):
        return output
    shown += ["<no prompt>"] * (len(rows) - len(shown))
    report = ["the walk went another way"]
    for command, got, want in zip_longest(commands, shown, wanted, fillvalue="<end>"):
        differs = not line_matches(want, got)
        report += [f"{'>' if differs else ' '} {command:20} | {got}"] + [f"{'wanted':>22} | {want}"] * differs
    raise AssertionError("\n".join(report)) from raised


def stops_on_the_call(program: Callable[[], object]) -> bool:
    """Whether the first stop is at the eager `set_trace()` itself, as in pdb from Python 3.13 on, and not behind it."""
    return sys.version_info >= (3, 13) and "set_trace" in program.__code__.co_names


def located(table: str, program: Callable[[], object]) -> str:
    """The table with each `@code@` replaced by the number of the one line of the program's file that reads `code`."""
    lines = [line.strip() for line in linecache.getlines(inspect.getsourcefile(program) or "")]

    def number(found: re.Match[str]) -> str:
        assert lines.count(found[1]) == 1, f"{lines.count(found[1])} lines read {found[1]!r}"
        return str(lines.index(found[1]) + 1)

    return re.sub(r"@(.+?)@", number, table)


def compact(text: str) -> str:
    """What one command showed, on one line; the command's own echo is left out."""
    parts: list[str] = []
    place = ""
    for line in text.splitlines()[1:]:
        found = STOP.fullmatch(line)
        if line.startswith("graph stop") or " is traced again for breakpoints" in line or not line.strip():
            continue
        if found:
            place = found[3]
            parts.append(place + ":")
        elif line.startswith("-> ") and place:
            parts[-1] += " " + line[3:].strip()
            place = ""
        else:
            parts.append(line.strip())
    return " / ".join(parts)
