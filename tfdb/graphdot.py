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


def dot(record: GraphRecord) -> str:
    """The graph as DOT text; functions that it calls become graphs of their own inside it, each drawn once."""
    lines = [
        f"digraph {quoted(record.title or record.name)} {{",
        '  rankdir=TB; node [shape=box, style="filled,rounded", fontname=Helvetica];',
    ]
    lines += [f"  {line}" for line in drawn(record, "", set())]
    return "\n".join([*lines, "}"]) + "\n"


def drawn(record: GraphRecord, prefix: str, seen: set[str]) -> Iterator[str]:
    """The statements for one function and for those that it calls."""
    shown = {node.name for node in record.nodes if node.op not in ("NoOp",)}
    for n, (line, nodes) in enumerate(by_line(node for node in record.nodes if node.name in shown)):
        yield f"subgraph {quoted(f'cluster_{prefix}{n}')} {{ label={quoted(line_text(line))}; color=gray;"
        for node in nodes:
            look = f"label={quoted(label(node))}, fillcolor={quoted(COLOURS[node.phase])}"
            yield f"  {quoted(prefix + node.name)} [{look}];"
        yield "}"
    for node in record.nodes:
        for name in node.inputs:
            source, _, index = name.rpartition(":")
            kind = node_output(record, source, int(index or 0))
            yield f"{quoted(prefix + source)} -> {quoted(prefix + node.name)} [label={quoted(kind)}];"
        for name in node.controls:
            if name in shown and node.name in shown:
                yield f"{quoted(prefix + name)} -> {quoted(prefix + node.name)} [style=dotted];"
    for name, inner in record.functions.items():
        if name not in seen:
            seen.add(name)
            yield f"subgraph {quoted('cluster_fn_' + name)} {{ label={quoted(inner.title)}; style=dashed;"
            yield from drawn(inner, f"{name}/", seen)
            yield "}"


def node_output(record: GraphRecord, name: str, index: int) -> str:
    """The type on an edge."""
    node = record.node(name) if len(record.nodes) < 500 else None
    return str(node.outputs[index]) if node is not None and index < len(node.outputs) else ""


def label(node: Node) -> str:
    """An op's text in its box."""
    own = f"{node.op}\n{node.name}"
    return f"{own}\n{node.literal}" if node.literal and node.literal != node.name else own


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
    done = subprocess.run([program, "-Tsvg"], input=text.encode(), capture_output=True, timeout=SVG_SECONDS)
    if done.returncode:
        raise TfdbError(f"Graphviz cannot draw it: {done.stderr.decode(errors='replace').strip()[:200]}")
    return done.stdout
