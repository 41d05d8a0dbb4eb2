"""`repro` and `rerun` after errors that no one recorded the call of, of a data loader, and of looped constructions."""

import ast
from pathlib import Path

import pytest
from processes import run

from tfdb import sources

FIT = """
import keras
import numpy as np

import tfdb

model = keras.Sequential([keras.Input((3,), dtype="int32"), keras.layers.Embedding(5, 2), keras.layers.Flatten()])
model.add(keras.layers.Dense(1))
model.compile("sgd", "mse")
data = np.zeros((12, 3), "int32")
data[9, 1] = 6
try:
    model.fit(data, np.ones((12, 1)), batch_size=4, shuffle=False, verbose=0)
except Exception:
    tfdb.post_mortem()
print("on")
"""

CALL = """
import tensorflow as tf

import tfdb


@tf.function
def pick(table, i):
    return tf.gather(table, i)


pick(tf.ones([3]), 1)
with tfdb.launch_tfdb_on_exception():
    pick(tf.ones([3]), tf.constant(8))
"""


def test_a_fit_that_nobody_recorded(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FIT)
    printed = run("program.py", typed="repro bug.py\nrerun\nq\nc\n", cwd=tmp_path).stdout
    assert "run in a fresh process: the same: InvalidArgumentError: indices[1,1] = 6 is not in [0, 5)" in printed
    assert "re-run of Sequential.train_step() · the call that failed · eager" in printed
    assert "indices[1,1] = 6 is not in [0, 5)" in printed.rpartition("re-run of")[2]


def test_a_call_under_the_context_manager(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CALL)
    printed = run("program.py", typed="repro bug.py\nq\n", cwd=tmp_path).stdout
    assert "run in a fresh process: the same: InvalidArgumentError: indices = 8 is not in [0, 3)" in printed


LOADER = """
import keras
import numpy as np


class Data(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, number):
        row = np.ones((8, 4), "float32")
        return (row.reshape(8, 5) if number == 2 else row), np.ones((8, 1), "float32")


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = Data(workers=WORKERS)
model.fit(data, verbose=0, shuffle=False)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_data_loader_that_fails_is_run_again_and_not_the_step(tmp_path: Path, workers: int) -> None:
    (tmp_path / "program.py").write_text(LOADER.replace("WORKERS", str(workers)))
    printed = run("-m", "tfdb", "program.py", typed="c\nrerun\np number\nq\nq\n", cwd=tmp_path).stdout
    assert "re-run of __getitem__() · this frame's call · eager" in printed
    assert "train_step" not in printed


LOOPED = """
h = first(x)
for width in (32, 16):
    layer = Dense(width)
    h = layer(h)
    print(width)
    if width > 16:
        h = Dropout(0.1)(h)
        log(h)
count = 0
while count < 2:
    h = layer(h)
    train(h)
    count += 1
for epoch in range(3):
    train(h)
model = Model(x, h)
"""


def test_of_a_loop_what_makes_an_object_is_copied(tmp_path: Path) -> None:
    file = tmp_path / "looped.py"
    file.write_text(LOOPED)
    found = sources.building("h", sources.Scope(str(file), {}))
    assert [ast.unparse(each).splitlines() for each in found] == [
        ["h = first(x)"],
        [
            "for width in (32, 16):",
            "    layer = Dense(width)",
            "    h = layer(h)",
            "    if width > 16:",
            "        h = Dropout(0.1)(h)",
        ],
        ["while count < 2:", "    h = layer(h)", "    count += 1"],
    ]
    assert sources.bound_in("width", found[1]) and sources.bound_in("layer", found[1])
    assert not sources.bound_in("h", found[1]) and not sources.bound_in("Dense", found[1])
