"""A graph's record -> Graphviz DOT: ops boxed by user line, the parts of a step told apart by colour."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator

from .errors import TfdbError
from .graphrecords import FORWARD, GRADIENT, UPDATE, GraphRecord, Node
from .graphtext import by_line, line_text

COLOURS = {FORWARD: "#dbe9f6", GRADIENT: "#fde5cd", UPDATE: "#d9f0d3"}
SVG_SECONDS = 120.0
LONGEST_LITERAL = 24  # characters of a constant in the box of an op


def dot(record: GraphRecord) -> str:
    """The graph as DOT text; functions that it calls become graphs of their own inside it, each drawn once."""
    lines = [
        f"digraph {quoted(record.title or record.name)} {{",
        '  rankdir=TB; node [shape=box, style="filled,rounded", fontname=Helvetica];',
    ]
    lines += [f"  {line}" for line in drawn(record, "", set())]
    lines += [f"  {line}" for line in legend({node.phase for node in record.nodes})]
    return "\n".join([*lines, "}"]) + "\n"


def legend(phases: set[str]) -> Iterator[str]:
    """What the colours mean, where there are several."""
    if len(phases) > 1:
        yield 'subgraph "cluster_legend" { label=""; style=invis;'
        for phase in (phase for phase in COLOURS if phase in phases):
            yield f"  {quoted('legend ' + phase)} [label={quoted(phase)}, fillcolor={quoted(COLOURS[phase])}];"
        yield "}"


def drawn(record: GraphRecord, prefix: str, seen: set[str]) -> Iterator[str]:
    """The statements for one function and for those that it calls.

    A variable is one node, its reads are left out; small constants stand in the boxes of the ops that take them.
    """
    hidden = {node.name for node in record.nodes if node.op == "NoOp" or is_small_constant(node) or is_read(node)}
    named = {node.name: node for node in record.nodes}
    for n, (line, nodes) in enumerate(by_line(node for node in record.nodes if node.name not in hidden)):
        yield f"subgraph {quoted(f'cluster_{prefix}{n}')} {{ label={quoted(line_text(line))}; color=gray;"
        for node in nodes:
            yield f"  {quoted(prefix + node.name)} [{look(node, named)}];"
        yield "}"
    for node in record.nodes:
        if node.name in hidden:
            continue
        for name in node.inputs:
            source, _, index = name.rpartition(":")
            kind = node_output(named.get(source), int(index or 0))
            while source in named and is_read(named[source]):
                source = named[source].inputs[0].rpartition(":")[0]
            if source not in hidden:
                yield f"{quoted(prefix + source)} -> {quoted(prefix + node.name)} [label={quoted(kind)}];"
        for name in node.controls:
            if name not in hidden:
                yield f"{quoted(prefix + name)} -> {quoted(prefix + node.name)} [style=dotted];"
    for name, inner in record.functions.items():
        if name not in seen:
            seen.add(name)
            yield f"subgraph {quoted('cluster_fn_' + name)} {{ label={quoted(inner.title)}; style=dashed;"
            yield from drawn(inner, f"{name}/", seen)
            yield "}"


def is_small_constant(node: Node) -> bool:
    """Whether a node is a constant that is shown by its value."""
    return node.op == "Const" and bool(node.literal) and len(node.literal) <= LONGEST_LITERAL


def is_read(node: Node) -> bool:
    """Whether a node only reads a variable."""
    return node.op == "ReadVariableOp" and bool(node.inputs)


def node_output(node: Node | None, index: int) -> str:
    """The type on an edge; nothing for a variable's handle."""
    text = str(node.outputs[index]) if node is not None and index < len(node.outputs) else ""
    return "" if text.startswith("resource") else text


def look(node: Node, named: dict[str, Node]) -> str:
    """The attributes of an op's box; a variable or argument has a shape of its own."""
    if node.op == "Placeholder":
        shape = "cylinder" if node.outputs and node.outputs[0].dtype == "resource" else "ellipse"
        return f'label={quoted(node.literal or node.name)}, shape={shape}, style=filled, fillcolor="#ffffff"'
    given = [named.get(name.rpartition(":")[0]) for name in node.inputs]
    constants = [each.literal for each in given if each is not None and is_small_constant(each)]
    with_constants = [f"with {', '.join(constants)}"] if constants else []
    literal = [node.literal] if node.literal and node.literal != node.name else []
    text = "\n".join([node.op, *([node.name] if node.name != node.op else []), *literal, *with_constants])
    return f"label={quoted(text)}, fillcolor={quoted(COLOURS[node.phase])}"


def quoted(text: str) -> str:
    """A DOT string."""
    return json.dumps(text, ensure_ascii=False)


def svg(text: str) -> bytes:
    """DOT text drawn by Graphviz.

    Raises:
        TfdbError: Graphviz is not installed, or cannot draw it.
    """
    program = shutil.which("dot")
    if program is None:
        raise TfdbError("Graphviz is not installed (no `dot` on the path): use --dot FILE, or install graphviz")
    try:
        done = subprocess.run([program, "-Tsvg"], input=text.encode(), capture_output=True, timeout=SVG_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise TfdbError(f"Graphviz took more than {SVG_SECONDS:.0f} s: the graph is too large to draw") from error
    if done.returncode:
        raise TfdbError(f"Graphviz cannot draw it: {done.stderr.decode(errors='replace').strip()[:200]}")
    return done.stdout
