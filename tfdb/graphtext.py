"""Records of graphs -> text: a function's ops by user line, one op, trees of inputs and recipients, annotated source.

Every function returns text without a final newline, of lines at most `width` columns wide.
"""

from __future__ import annotations

import linecache
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from .graphrecords import FORWARD, PHASES, GraphRecord, Named, Node
from .render import pad, shorten, visible_width
from .report import UserLine

FOLD = 10  # ops of one line above which they are shown by scope
MOST_NAME = 34  # columns of a node's name
MOST_OF_LINE = 12  # ops shown of one line among others
MOST_VARIABLES = 8  # in the head; a model and its optimizer may have hundreds
MOST_TYPE = 24  # columns of its outputs' types
PLUMBING = frozenset(("Const", "Identity", "IdentityN", "NoOp", "Placeholder", "StopGradient", "PreventGradient"))
BRANCH, LOOP = ("then", "else"), ("body", "while")
ROLES = {"If": BRANCH, "StatelessIf": BRANCH, "While": LOOP, "StatelessWhile": LOOP}
NO_LINE = "no user line"


def graph_text(record: GraphRecord, width: int, everything: bool = False, current: UserLine | None = None) -> str:
    """A function: its head, then its ops by phase and user line; `everything` unfolds scopes and nested functions."""
    lines = [*head(record, width, everything), *body(record, width, everything, current)]
    return "\n".join(shorten(line, width) for line in lines)


def few(variables: Sequence[Named], everything: bool) -> list[Named]:
    """The variables, those beyond the first ones counted only."""
    if everything or len(variables) <= MOST_VARIABLES:
        return list(variables)
    rest = len(variables) - MOST_VARIABLES
    return [*variables[:MOST_VARIABLES], Named(f"… {rest} more (-a shows them)", "")]


def head(record: GraphRecord, width: int, everything: bool = False) -> Iterator[str]:
    """What a function takes, gives and holds."""
    yield f"{record.title or record.name}{signature_text(record)}"
    counts = Counter(node.phase for node in record.nodes if node.op not in PLUMBING)
    phases = ", ".join(f"{counts[phase]} {phase}" for phase in PHASES if counts[phase])
    parts = [f"{len(record.nodes)} ops" + (f": {phases}" if phases else "")]
    parts.append(f"device {', '.join(record.devices) if record.devices else 'any'}")
    parts.append("XLA on (jit_compile)" if record.xla else "XLA off")
    yield "  " + " · ".join(parts)
    for note in record.notes:
        yield f"  {note}"
    held = {each.name for each in record.variables}
    yield from named_lines("variables", few(record.variables, everything), width)
    yield from named_lines("captures", [each for each in record.captures if each.name not in held], width)


def signature_text(record: GraphRecord) -> str:
    """The arguments and results of a function."""
    arguments = ", ".join(f"{each.name}: {each.type}" for each in record.arguments)
    results = ", ".join(each.type for each in record.results)
    return f"({arguments}) -> {results or 'nothing'}"


def named_lines(title: str, items: Sequence[Named], width: int) -> Iterator[str]:
    """A list of names and types, as many on a line as there is room for."""
    line = f"  {title:<11}" if items else ""
    for n, each in enumerate(items):
        text = f"{each.name} {each.type}" + (", " if n < len(items) - 1 else "")
        if visible_width(line + text.rstrip()) > width and line.strip() != title:
            yield line.rstrip()
            line = " " * 13
        line += text
    if line:
        yield line.rstrip()


def body(
    record: GraphRecord, width: int, everything: bool, current: UserLine | None = None, indent: str = ""
) -> Iterator[str]:
    """A function's ops by phase and user line."""
    names = short_names(record.nodes)
    shown = [node for node in record.nodes if everything or not is_plumbing(node)]
    several = len({node.phase for node in shown}) > 1
    for phase in PHASES:
        groups = by_line([node for node in shown if node.phase == phase])
        if groups and (several or phase != FORWARD):
            yield f"{indent}{phase}"
        for line, nodes in groups:
            mark = "->" if current is not None and line is not None and same_line(line, current) else "  "
            yield f"{indent}{mark}{line_text(line)}"
            if len(nodes) > FOLD and not everything:
                yield from folded(nodes, record, f"{indent}      ")
            else:
                yield from unfolded(nodes, record, names, width, everything, indent)


def is_plumbing(node: Node) -> bool:
    """Whether an op only passes values along, or stands for an argument, a constant or a variable."""
    return bool(node.literal) or node.op in PLUMBING


def same_line(one: UserLine, other: UserLine) -> bool:
    """Whether two places are on the same line of the same file."""
    return (one.file, one.line) == (other.file, other.line)


def by_line(nodes: Iterable[Node]) -> list[tuple[UserLine | None, list[Node]]]:
    """The nodes of each user line, in the order of the lines' first ops."""
    groups: dict[UserLine | None, list[Node]] = {}
    for node in nodes:
        groups.setdefault(node.line, []).append(node)
    return list(groups.items())


def line_text(line: UserLine | None) -> str:
    """A user line as a heading: place and text."""
    if line is None:
        return NO_LINE
    return f"{line.place} {line.function}()  {source_of(line)}"


def source_of(line: UserLine) -> str:
    """The text of a user line."""
    return linecache.getline(line.file, line.line).strip()


def short_names(nodes: Iterable[Node]) -> dict[str, str]:
    """What to call each tensor: arguments, constants and variables by their own names, also behind copies."""
    nodes = list(nodes)
    suffixes = unique_suffixes([node.name for node in nodes])
    names: dict[str, str] = {}
    for node in nodes:
        passes_on = node.op in ("Identity", "StopGradient") and node.inputs
        for index in range(max(len(node.outputs), 1)):
            own = suffixes[node.name] + (f":{index}" if index else "")
            given = names.get(node.inputs[0], own) if passes_on else own
            names[f"{node.name}:{index}"] = node.literal or given
    return names


def unique_suffixes(names: Sequence[str], least: int = 2) -> dict[str, str]:
    """For each name the shortest end of it, of `least` scopes or more, that no other name ends with."""
    ends: Counter[str] = Counter()
    for name in names:
        parts = name.split("/")
        ends.update("/".join(parts[n:]) for n in range(len(parts)))
    found = {}
    for name in names:
        parts = name.split("/")
        tails = ("/".join(parts[n:]) for n in range(max(len(parts) - least, 0), -1, -1))
        found[name] = next((tail for tail in tails if ends[tail] == 1), name)
    return found


def unfolded(
    nodes: Sequence[Node], record: GraphRecord, names: Mapping[str, str], width: int, everything: bool, indent: str
) -> Iterator[str]:
    """One line an op: its name, what comes out, what it computes of what."""
    shown = {each.name: each.name if is_plumbing(each) else names.get(f"{each.name}:0", each.name) for each in nodes}
    wide = min(max(map(visible_width, shown.values()), default=0), MOST_NAME, max(width // 3, 12))
    types = {node.name: types_text(node) for node in nodes}
    type_wide = min(max((visible_width(text) for text in types.values()), default=0), MOST_TYPE)
    for node in nodes:
        name = pad(shorten(shown[node.name], wide, tail=True), wide)
        kind = pad(shorten(types[node.name], type_wide), type_wide)
        folded_calls = calls_text(node, record)
        room = max(width - len(indent) - 10 - wide - type_wide - visible_width(folded_calls), 16)
        yield f"{indent}      {name}  {kind}  {shorten(expression(node, record, names), room)}{folded_calls}"
        for called in node.calls if everything or is_wrapper(record, node) else ():
            inner = record.functions.get(called)
            if inner is not None:
                yield f"{indent}        {inner.title}{signature_text(inner)}"
                yield from body(inner, width, everything, None, indent + "        ")


def expression(node: Node, record: GraphRecord, names: Mapping[str, str]) -> str:
    """What an op computes of what; a call by the function's name."""
    inner = record.functions.get(node.calls[0]) if node.calls and node.op.endswith("PartitionedCall") else None
    taken = node.inputs if inner is None else node.inputs[: len(inner.arguments)]
    return f"{inner.title if inner else node.op}({', '.join(names.get(each, each) for each in taken)})"


def types_text(node: Node) -> str:
    """The types of an op's outputs."""
    return ", ".join(map(str, node.outputs))


def is_wrapper(record: GraphRecord, node: Node) -> bool:
    """Whether a function does little but call another, as Keras' training functions do: the other is shown at once."""
    return node.op.endswith("PartitionedCall") and sum(not is_plumbing(each) for each in record.nodes) <= FOLD


def calls_text(node: Node, record: GraphRecord) -> str:
    """The functions that an op runs, folded: how many ops each has."""
    if not node.calls:
        return ""
    roles = ROLES.get(node.op, ())
    parts = []
    for n, name in enumerate(node.calls):
        inner = record.functions.get(name)
        size = f" {count_all(inner)} op{'s' if count_all(inner) != 1 else ''}" if inner is not None else ""
        if node.op.endswith("PartitionedCall") and inner is not None:
            return f"  ▸{size}"
        parts.append(f"{roles[n] + ' ' if n < len(roles) else ''}{inner.title if inner else name}{size}")
    return f"  ▸ {', '.join(parts)}"


def count_all(record: GraphRecord) -> int:
    """The ops of a function and of all that it calls, plumbing left out."""
    own = sum(not is_plumbing(node) for node in record.nodes)
    return own + sum(count_all(inner) for inner in record.functions.values())


def folded(nodes: Sequence[Node], record: GraphRecord, indent: str) -> Iterator[str]:
    """One line a scope: its ops by type, and what comes out of the last."""
    scopes: dict[str, list[Node]] = {}
    for node in nodes:
        scopes.setdefault(node.name.rpartition("/")[0], []).append(node)
    wide = min(max(len(scope) for scope in scopes), MOST_NAME)
    for scope, members in scopes.items():
        counts = Counter(node.op for node in members)
        ops = " ".join(op + (f"×{count}" if count > 1 else "") for op, count in counts.items())
        outputs = members[-1].outputs
        calls = "".join(calls_text(node, record) for node in members)
        kind = f"  {outputs[0]}" if outputs else ""
        yield f"{indent}{pad(shorten(scope or '.', wide, tail=True), wide)}  {ops}{kind}{calls}"


def signatures_text(records: Sequence[GraphRecord], width: int) -> str:
    """The signatures that a function accepts, one a line."""
    lines = [f"{n:>3}  {record.title}{signature_text(record)}" for n, record in enumerate(records, 1)]
    return "\n".join(shorten(line, width) for line in lines)


def tree(
    root: str,
    step: Callable[[str], Sequence[str]],
    label: Callable[[str], str],
    depth: int,
    width: int,
    most: int = 400,
) -> str:
    """A tree of names below `root`, each subtree shown once; `step` gives a name's children."""
    lines: list[str] = [label(root)]
    seen: set[str] = {root}

    def walk(name: str, indent: str, level: int) -> None:
        children = step(name)
        for n, child in enumerate(children):
            if len(lines) >= most:
                return
            last = n == len(children) - 1
            again = child in seen and bool(step(child))
            lines.append(f"{indent}{'└─' if last else '├─'} {label(child)}{' (above)' if again else ''}")
            if again or level <= 1:
                if level <= 1 and not again and step(child):
                    lines[-1] += " …"
                continue
            seen.add(child)
            walk(child, indent + ("   " if last else "│  "), level - 1)

    walk(root, "", depth)
    if len(lines) >= most:
        lines.append(f"… cut at {most} lines: give a depth (-d N) or an op type (-t REGEX)")
    return "\n".join(shorten(line, width) for line in lines)


def annotated(
    file: str, lines: Sequence[int], nodes: Mapping[int, Sequence[Node]], width: int, current: int | None = None
) -> str:
    """Source lines, each followed by the ops that it made and the types of their outputs."""
    out = []
    digits = len(str(max(lines, default=1)))
    for number in lines:
        mark = "->" if number == current else "  "
        out.append(f"{mark} {number:>{digits}}  {linecache.getline(file, number).rstrip()}")
        margin = " " * (digits + 5)
        made = list(nodes.get(number, ()))
        for node in made[: MOST_OF_LINE if len(lines) > 1 else None]:
            types = ", ".join(map(str, node.outputs))
            inner = "" if node.phase == FORWARD else f"  {node.phase}"
            out.append(f"{margin}· {node.name}  {node.op}  {types}{inner}")
        if len(lines) > 1 and len(made) > MOST_OF_LINE:
            out.append(f"{margin}… {len(made) - MOST_OF_LINE} more ops (ps {number} shows all)")
    return "\n".join(shorten(line, width) for line in out)


def node_text(
    node: Node, recipients: Sequence[Node], inputs: Sequence[Node], attributes: Sequence[tuple[str, str]], width: int
) -> str:
    """All about one op: type, phase, device, inputs, recipients and, where asked for, attributes."""
    lines = [f"{node.name}  {node.op}  {', '.join(map(str, node.outputs)) or 'no output'}"]
    lines.append(f"  {node.phase} · device {node.device or 'any'}" + (" · stateful" if node.stateful else ""))
    if node.line is not None:
        lines.append(f"  made at     {line_text(node.line)}")
    by_name = {each.name: each for each in inputs}
    for n, name in enumerate(node.inputs):
        source = by_name.get(name.rpartition(":")[0])
        index = int(name.rpartition(":")[2] or 0)
        kind = str(source.outputs[index]) if source is not None and index < len(source.outputs) else ""
        literal = source.literal if source is not None else ""
        shown = f" = {literal}" if literal and literal != name.rpartition(":")[0] else ""
        lines.append(f"  {'inputs' if n == 0 else '':<10}  {name}  {source.op if source else ''}  {kind}{shown}")
    if node.controls:
        lines.append(f"  controls    {', '.join(node.controls)}")
    for n, each in enumerate(recipients):
        lines.append(f"  {'recipients' if n == 0 else '':<10}  {each.name}  {each.op}")
    for n, (name, value) in enumerate(attributes):
        lines.append(f"  {'attributes' if n == 0 else '':<10}  {name} = {value}")
    return "\n".join(shorten(line, width) for line in lines)


def wrapped(text: str, width: int, indent: int) -> str:
    """A line broken at spaces, its further lines indented."""
    layout = textwrap.TextWrapper(
        max(width, indent + 20), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return layout.fill(text)


def stack_text(node: Node, width: int) -> str:
    """The user's frames that made an op, outermost first."""
    if not node.stack:
        return "  no user frames: the op comes from a library or a SavedModel"
    return "\n".join(shorten(f"  {line_text(line)}", width) for line in node.stack)
