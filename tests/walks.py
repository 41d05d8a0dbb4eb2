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
lines that a command prints are joined by ` / `, the program's own included; `...` stands for any text.
"""

import re
from collections.abc import Callable
from itertools import zip_longest

from transcripts import PROMPTS, line_matches, record

STOP = re.compile(r"> (.*)\((\d+)\)([^()]+)\(\)(.*)")


def walk(program: Callable[[], object], table: str) -> str:
    """Run the program under the debugger, typing the table's commands; returns all that was printed.

    Raises AssertionError naming the first rows that differ.
    """
    __tracebackhide__ = True
    rows = [[part.strip() for part in re.split(r"\s\|(?:\s|$)", line, maxsplit=1)] for line in table.strip().splitlines() if line.strip()]
    commands = [row[0] for row in rows]
    output, raised = record(program, commands)
    shown = [compact(part) for part in re.split("|".join(map(re.escape, PROMPTS)), output)[1:]]
    wanted = [row[1] if len(row) > 1 else "" for row in rows]
    if len(shown) == len(rows) and all(map(line_matches, wanted, shown)):
        return output
    shown += ["<no prompt>"] * (len(rows) - len(shown))
    lines = ["the walk went another way"]
    for command, got, want in zip_longest(commands, shown, wanted, fillvalue="<end>"):
        differs = not line_matches(want, got)
        lines += [f"{'>' if differs else ' '} {command:20} | {got}"] + [f"{'wanted':>22} | {want}"] * differs
    raise AssertionError("\n".join(lines)) from raised


def compact(text: str) -> str:
    """What one command showed, on one line; the command's own echo is left out."""
    parts: list[str] = []
    place = ""
    for line in text.splitlines()[1:]:
        found = STOP.fullmatch(line)
        if line.startswith("graph stop") or not line.strip():
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
