"""The ops of a step -> its parts: forward, gradient, update; by the calls that made an op, its scope and its type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .graphrecords import FORWARD, GRADIENT, UPDATE, Node

UPDATES = re.compile(r"Assign\w*VariableOp|Resource\w*Apply\w*|ResourceScatter\w+|Assign\w*")
GRADIENT_SCOPE = re.compile(r"(^|/)(gradient_tape|gradients)/")
GRADIENT_FILES = ("eager/backprop.py", "ops/gradients_impl.py", "ops/gradients_util.py")
GRADIENT_CALLS = ("gradient", "_gradient_function", "jacobian", "batch_jacobian", "_GradientsHelper", "_Gradient")
OPTIMIZER = re.compile(r"[/\\](optimizers?|training)[/\\]\w*\.py$")
APPLY = (
    "apply",
    "apply_gradients",
    "minimize",
    "_backend_apply_gradients",
    "_internal_apply_gradients",
    "apply_updates",
)


def of_calls(frames: Sequence[tuple[str, int, str]]) -> str:
    """Which part of a step an op belongs to by the calls that made it, "" where they do not tell."""
    for file, _, name in reversed(frames):
        if name in GRADIENT_CALLS and file.endswith(GRADIENT_FILES):
            return GRADIENT
        if name in APPLY and OPTIMIZER.search(file):
            return UPDATE
    return ""


def of_name(op: Any) -> str:
    """Which part of a step an op belongs to by its scope and type."""
    if GRADIENT_SCOPE.search(op.name):
        return GRADIENT
    return UPDATE if UPDATES.fullmatch(op.type) else FORWARD


def updates_told(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes, those that compute an update from gradients moved from the forward part to the update."""
    of = {each.name: each.phase for each in nodes}
    sources = {each.name: [name.rpartition(":")[0] for name in each.inputs] for each in nodes}
    after: set[str] = set()
    for each in nodes:
        if of[each.name] == GRADIENT or any(name in after for name in sources[each.name]):
            after.add(each.name)
    into_gradient, into_update = (ancestors(nodes, sources, phase) for phase in (GRADIENT, UPDATE))
    moved = (after & into_update) - into_gradient
    return tuple(
        replace(each, phase=UPDATE) if each.phase == FORWARD and each.name in moved else each for each in nodes
    )


def ancestors(nodes: Sequence[Node], sources: Mapping[str, Sequence[str]], phase: str) -> set[str]:
    """The names of the nodes that a node of this phase takes values from, directly or not."""
    found: set[str] = set()
    for each in reversed(nodes):
        if each.phase == phase or each.name in found:
            found.update(sources[each.name])
    return found
