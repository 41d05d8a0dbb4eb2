# ruff: noqa: E501
"""`b op:` and `b layer:` for names that nothing has: what is said when they are set, and at the program's end."""

import textwrap
from pathlib import Path

from test_cli import run

PROGRAM = """
    import numpy as np
    import keras

    inner = keras.Sequential([keras.layers.Dense(3, name="hidden"), keras.layers.Dropout(0.5, name="drop")], name="encoder")
    model = keras.Sequential([keras.Input((4,)), inner, keras.layers.Dense(1, name="head")])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 4), "float32"), np.ones((8, 1), "float32"), verbose=0)
    print("end")
"""


def test_names_that_there_are_not(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    typed = [
        "b layer:early",
        "b 8",
        "c",
        "b layer:hiden",
        "b layer:zzz",
        "b layer:head",
        "b op:MatMull",
        "b op:MatMul",
        "c",
        "cl 5",
        "cl 7",
        "c",
    ]
    done = run("-m", "tfdb", path, typed="\n".join(typed) + "\n")
    said = [line.removeprefix("(tfdb) ") for line in done.out.splitlines()]
    known = "drop, encoder, functional, functional_1, head, hidden"
    expected = [
        "Breakpoint 1 at layer:early",
        "Breakpoint 3 at layer:hiden",
        "no layer called hiden has been seen yet (there are: hidden): it waits for one of that name",
        "Breakpoint 4 at layer:zzz",
        f"no layer called zzz has been seen yet (there are: {known}): it waits for one of that name",
        "Breakpoint 5 at layer:head",
        "Breakpoint 6 at op:MatMull",
        "no op type is called MatMull (there are: MatMul, BatchMatMul, SparseMatMul): it waits for a node of that name",
        "Breakpoint 7 at op:MatMul",
        "end",
        "no layer matched layer:early: it never stopped",
        "no layer matched layer:hiden: it never stopped",
        "no layer matched layer:zzz: it never stopped",
        "no op type or node matched op:MatMull: it never stopped",
    ]
    named = [
        line for line in said if ":" in line and not line.startswith(("->", ">", "graph", "Deleted")) or line == "end"
    ]
    assert [line for line in named if "Breakpoint 2" not in line] == expected, done.out + done.err[-2000:]
    assert done.status == 0
