"""`watch` at the prompt, from code and from the command line: which stops come, where, and which do not."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdb
from tfdb.report import Report
from tfdb.watching import Watching
from transcripts import play

ROOT = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def watched(*texts: str) -> Iterator[list[Report]]:
    """The reports of the stops inside the block."""
    found: list[Report] = []
    watches = Watching(lambda trip, origin: found.append(origin.report))
    watches.start(texts)
    try:
        yield found
    finally:
        watches.stop()


# -- in, allow, every -------------------------------------------------------------------------------------------------


def encoder(x: tf.Tensor) -> tf.Tensor:
    return tf.math.log(x)


def decoder(x: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(x)


@tf.function
def both(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return encoder(a) + decoder(b)


GOOD, BAD = tf.constant([1.0]), tf.constant([-1.0])


@pytest.mark.parametrize(
    "text, ops",
    [
        ("nan", ["Log", "Sqrt", "Log"]),
        ("nan in encoder", ["Log", "Log"]),
        ("nan in decoder", ["Sqrt", "Sqrt"]),
        ("nan in ^both$ allow ^encoder$", ["Sqrt", "Sqrt"]),
        ("nan in test_watches", ["Log", "Sqrt", "Log"]),
        ("nan allow test_watches", []),
        ("nan every 2", ["Log", "Log"]),
        ("nan in encoder every 2", ["Log"]),
    ],
)
def test_in_allow_and_every(text: str, ops: list[str]) -> None:
    with watched(text) as found:
        both(BAD, GOOD)
        both(GOOD, BAD)
        both(BAD, BAD)
    assert [report.op for report in found] == ops


def test_layers_and_variables_are_names_too() -> None:
    model = keras.Sequential([keras.layers.Dense(2, name="first"), keras.layers.Dense(1, name="second")])
    model.build((None, 2))
    run = tf.function(lambda x: model(x))
    model.get_layer("second").bias.assign([np.nan])
    for text, count in (("nan in second/bias", 1), ("nan in first", 0), ("nan allow bias", 0)):
        with watched(text) as found:
            run(tf.ones((1, 2)))
        assert len(found) == count, text


def test_an_op_is_named_by_the_layers_around_it() -> None:
    class Root(keras.layers.Layer):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            return keras.ops.sqrt(x)

    inner = keras.Sequential([Root(name="root")], name="inner")
    model = keras.Sequential([keras.layers.Identity(name="first"), inner], name="outer")
    for text, count in (("nan in root", 1), ("nan in ^inner$", 1), ("nan in first", 0), ("nan allow outer", 0)):
        with watched(text) as found:
            tf.function(lambda x: model(x))(BAD[None])
        assert len(found) == count, text


def test_what_is_passed_over_is_counted_apart() -> None:
    def program() -> None:
        tfdb.watch("nan allow ^encoder$")
        both(BAD, GOOD)
        both(GOOD, BAD)

    play(
        program,
        """
        ...
        NaN...
          origin    Sqrt  test_watches.py:...
        ...
        -> return tf.sqrt(x)
        (tfdb) watch
        watch 1  nan allow ^encoder$  hit 1 time  passed over 1 time
        (tfdb) unwatch 1
        no longer: watch 1  nan allow ^encoder$  hit 1 time  passed over 1 time
        (tfdb) c
        """,
    )


def test_from_the_command_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tensorflow as tf\n\n\ndef masked(x):\n    return tf.math.log(x)\n\n\n"
        "def score(x):\n    return tf.sqrt(x)\n\n\n@tf.function\ndef step(x):\n    return masked(x) + score(x)\n\n\n"
        "step(tf.constant(-1.0))\nprint('went on')\n"
    )
    options = ["--no-prompt", "--report", str(tmp_path / "report.json"), "-w", "nan allow masked"]
    done = subprocess.run(
        [sys.executable, "-m", "tfdb", *options, str(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=dict(os.environ),
        timeout=120,
    )
    assert done.returncode == 1 and "went on" not in done.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["op"], report["line"], report["function"]) == ("Sqrt", 9, "score")


# -- the program's own check ------------------------------------------------------------------------------------------


@pytest.fixture
def checking() -> Iterator[None]:
    yield
    tf.debugging.disable_check_numerics()


def masked() -> Callable[[tf.Tensor], tf.Tensor]:
    """A function with an infinity that is meant, and a NaN of its own."""

    @tf.function
    def attend(mask: tf.Tensor) -> tf.Tensor:
        scores = tf.where(mask, [1.0, 2.0], [-np.inf, -np.inf])
        return tf.nn.softmax(scores)

    return attend


@pytest.mark.parametrize("before", [True, False])
def test_enable_check_numerics_waits_until_watching_ends(
    checking: None, before: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if before:
        tf.debugging.enable_check_numerics()
    with watched("nan") as found:
        tf.debugging.enable_check_numerics()
        attend = masked()
        attend(tf.constant([True, False]))
        assert not found
        attend(tf.constant([False, False]))
        assert tf.math.log(0.0) == -np.inf
    assert [report.op for report in found] == ["Softmax"]
    assert capsys.readouterr().err.count("enable_check_numerics is set aside") == 1
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.math.log(0.0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        masked()(tf.constant([True, False]))


def test_disabling_it_while_watching_holds(checking: None) -> None:
    tf.debugging.enable_check_numerics()
    with watched("nan"):
        tf.debugging.disable_check_numerics()
    assert tf.math.log(0.0) == -np.inf
