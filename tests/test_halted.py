"""After an op ended a call with an error: which variables it cannot have written, and what `lt` shows of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from processes import run

from tfdb import halted
from tfdb.explain import report

table = tf.Variable([1.0, 2.0, 3.0], name="table")
count = tf.Variable(0.0, name="count")
total = tf.Variable(0.0, name="total")


def plain(ids: Any) -> Any:
    count.assign_add(1.0)
    rows = tf.gather(table, ids)
    total.assign_add(tf.reduce_sum(rows))
    table.scatter_nd_sub([[0]], rows[:1])
    return rows


def called(ids: Any) -> Any:
    count.assign_add(1.0)
    rows = tf.function(lambda i: tf.gather(table, i))(ids)
    total.assign(tf.reduce_sum(rows))
    table.assign(rows)
    return rows


def in_branch(ids: Any) -> Any:
    rows = tf.zeros([1])
    if tf.size(ids) > 0:
        count.assign_add(1.0)
        rows = tf.gather(table, ids)
        table.scatter_nd_sub([[0]], rows[:1])
    total.assign(tf.reduce_sum(rows))
    return rows


def in_loop(ids: Any) -> Any:
    sum_of_rows = tf.constant(0.0)
    for i in ids:
        count.assign_add(1.0)
        row = tf.gather(table, i)
        sum_of_rows += row
        table.scatter_nd_sub([[0]], [row])
    total.assign(sum_of_rows)
    return ids


@pytest.mark.parametrize(
    ("function", "known"),
    [(plain, {"table", "total"}), (called, {"table", "total"}), (in_branch, {"table", "total"}), (in_loop, {"total"})],
)
def test_what_needs_the_failed_op_was_not_written(function: Callable[[Any], Any], known: set[str]) -> None:
    table.assign([1.0, 2.0, 3.0])
    concrete = tf.function(function).get_concrete_function(tf.TensorSpec([None], tf.int32))
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        concrete(tf.constant([0, 7]))
    graph = concrete.graph
    names = {id(variable.handle): variable.name.split(":")[0] for variable in (table, count, total)}
    handles = {p.name: id(v) for p, v in zip(graph.inputs[1:], concrete.captured_inputs, strict=True)}
    found = halted.unwritten(graph, handles, report(str(error.value)).node)
    assert {names[each] for each in found} == known
    assert halted.unwritten(graph, handles, "no such op") == frozenset()


PROGRAM = """
import keras
import numpy as np

ids = keras.Input((3,), dtype="int32")
rows = keras.layers.Flatten()(keras.layers.Embedding(10, 4, name="rows")(ids))
model = keras.Model(ids, keras.layers.Dense(1)(rows))
model.compile("adam", "mse")
data = np.zeros((4, 3), "int32")
data[2, 1] = 11
model.fit(data, np.ones((4, 1)), verbose=0)
"""


def test_the_table_of_an_embedding_is_known_and_a_comparison_is_not_the_last_call(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    printed = run("-m", "tfdb", "program.py", typed="c\ncompare\nlt -n GatherV2/Read\nq\n", cwd=tmp_path).stdout
    listed = printed.rpartition("tensors of")[2]
    assert "multi_step_on_iterator" in listed
    (line,) = [line for line in listed.splitlines() if "GatherV2/Read" in line]
    assert "float32(10, 4)" in line and "not available" not in line
