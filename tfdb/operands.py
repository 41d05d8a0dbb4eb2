"""A line of source and the type of an op it runs -> what the line writes for the op's inputs.  Pure.

Where the line has more than one expression that can be the op, or none, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from . import syntax

OPERATORS: dict[str, type[ast.operator]] = {
    "AddV2": ast.Add, "Sub": ast.Sub, "Mul": ast.Mult, "RealDiv": ast.Div, "FloorDiv": ast.FloorDiv,
    "FloorMod": ast.Mod, "Pow": ast.Pow, "MatMul": ast.MatMult, "BatchMatMulV2": ast.MatMult,
}  # fmt: skip
CALLS = {  # functions of TensorFlow, numpy or Keras that are one op of another name
    "AddV2": ("add",), "Sub": ("subtract",), "Mul": ("multiply",), "RealDiv": ("divide", "truediv", "div"),
    "Sum": ("reduce_sum", "sum"), "Mean": ("reduce_mean", "mean"), "Prod": ("reduce_prod", "prod"),
    "Max": ("reduce_max", "max", "amax"), "Min": ("reduce_min", "min", "amin"), "BatchMatMulV2": ("matmul",),
    "Pow": ("pow", "power"), "Acos": ("acos", "arccos"), "Asin": ("asin", "arcsin"), "Atanh": ("atanh", "arctanh"),
}  # fmt: skip
LONGEST = 32  # characters of an expression that still read as a name


def written(text: str, line: int, op: str) -> tuple[str, ...]:
    """What the statement at `line` writes for the inputs of its op of this type, in their order; empty when unsure."""
    statement = syntax.statement_at(text, line)
    found = list(candidates(statement, op)) if statement is not None else []
    if len(found) != 1:
        return ()
    names = [ast.unparse(each) for each in found[0]]
    return tuple(name if len(name) <= LONGEST else "" for name in names)


def candidates(statement: ast.stmt, op: str) -> Iterator[list[ast.expr]]:
    """The operands of each expression in a statement that can be an op of this type."""
    names = {op.lower(), *CALLS.get(op, ())}
    for root in syntax.head(statement):
        for node in ast.walk(root):
            if isinstance(node, ast.BinOp) and isinstance(node.op, OPERATORS.get(op, ast.BitOr)):
                yield [node.left, node.right]
            elif isinstance(node, ast.Call) and (syntax.last_name(node.func) or "").replace("_", "") in (
                names | {name.replace("_", "") for name in names}
            ):
                if node.args and not any(isinstance(each, ast.Starred) for each in node.args):
                    yield list(node.args)
