"""Tensors of a graph -> what the user calls them, and the user's lines that made them."""

import os
from collections.abc import Sequence
from typing import Any

from tfdb import internals, internals_errors, varnames
from tfdb.sourcemap import Activation, is_hidden

SAME = {  # ops whose output the user knows by the name of this input
    "Identity": 0, "Cast": 0, "ReadVariableOp": 0, "PlaceholderWithDefault": 0, "StopGradient": 0, "SelectV2": 2,
    "EnsureShape": 0, "Reshape": 0, "ExpandDims": 0, "Squeeze": 0,
}  # fmt: skip


def known_names(stack: Sequence[Activation]) -> dict[int, str]:
    """What the innermost user frame calls its tensors: ids -> names."""
    here = next((each for each in stack if not each.hidden), None)
    found: dict[int, str] = {}
    for name, value in here.names().items() if here is not None else ():
        found.setdefault(id(value), name)
        if isinstance(value, tuple | list):
            for number, item in enumerate(value):
                found.setdefault(id(item), f"{name}[{number}]")
    return found


def name_of(tensor: Any, names: dict[int, str]) -> str:
    """What the user calls a tensor: a local, a variable, or what it was cast or read from; "" when unnamed."""
    for _ in range(8):
        if id(tensor) in names:
            return names[id(tensor)]
        variable = variable_of(tensor)
        if variable is not None:
            return varnames.name_of(variable)
        outer = outside(tensor)
        if outer is not None:
            tensor = outer
            continue
        if tensor.op.type not in SAME:
            return ""
        tensor = tensor.op.inputs[SAME[tensor.op.type]]
    return ""


def outside(tensor: Any) -> Any:
    """The symbolic tensor that a graph took from around it under this placeholder, or None."""
    outer = internals_errors.captured(tensor.graph).get(id(tensor)) if tensor.op.type == "Placeholder" else None
    return outer if outer is not None and internals.is_symbolic(outer) else None


def variable_of(tensor: Any) -> Any:
    """The variable whose resource a tensor is, or None."""
    outer = internals_errors.captured(tensor.graph).get(id(tensor)) if tensor.op.type == "Placeholder" else None
    if outer is None or not hasattr(tensor.graph, "variables"):
        return None
    return next((variable for variable in tensor.graph.variables if variable.handle is outer), None)


def variable_shape(tensor: Any) -> tuple[int | None, ...] | None:
    """The shape of the variable whose resource a tensor is."""
    variable = variable_of(tensor)
    return tuple(variable.shape) if variable is not None and variable.shape.rank is not None else None


def origin(tensor: Any) -> str:
    """The user's line that made a tensor of a graph: `losses.py:24`; "" for arguments and constants outside."""
    if tensor.op.type == "Placeholder":
        outer = outside(tensor)
        return origin(outer) if outer is not None else ""
    if tensor.op.type == "ReadVariableOp":
        return ""
    lines = internals_errors.places_inside(tensor.op)
    lines = [each for each in lines if not is_hidden(each[0])]
    return f"{os.path.basename(lines[-1][0])}:{lines[-1][1]}" if lines else ""
