"""`watch` at the prompt, from code and from the command line: which stops come, where, and which do not."""

import json
import linecache
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from processes import run
from stops import watched

import tfdb
from tfdb import screens
from tfdb.report import Report
from transcripts import play

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
    done = run("-m", "tfdb", *options, program)
    assert done.returncode == 1 and "went on" not in done.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["op"], report["line"], report["function"]) == ("Sqrt", 9, "score")


def test_watches_keep_their_numbers() -> None:
    play(
        tfdb.set_trace,
        """
        ...
        (tfdb) watch nan
        watch 1  nan
        (tfdb) watch inf
        watch 2  inf
        (tfdb) watch loss > 3
        watch 3  loss > 3
        (tfdb) unwatch 2 1
        no longer: watch 1  nan
        no longer: watch 2  inf
        (tfdb) watch
        watch 3  loss > 3
        (tfdb) unwatch 1
        *** no such watch: 1; `watch` lists them
        (tfdb) watch nan
        watch 4  nan
        (tfdb) unwatch
        no longer: watch 3  loss > 3
        no longer: watch 4  nan
        (tfdb) c
        """,
    )


def test_limits_that_no_step_came_to_are_named_at_the_end(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tensorflow as tf\n\nv = tf.Variable(2.0)\nwith tf.GradientTape() as tape:\n    loss = v * v\n"
        "v.assign_sub(0.1 * tape.gradient(loss, v))\n"
    )
    limits = ("loss > 100", "grad:nothing > 1", "update > 50")
    done = run("-m", "tfdb", "--no-prompt", *(word for text in limits for word in ("-w", text)), program)
    assert done.returncode == 0
    assert [line.split(":")[0] for line in done.stdout.splitlines() if "no step came to it" in line] == [
        "watch 2  grad"
    ]


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


# -- where a stop comes -----------------------------------------------------------------------------------------------


def source(report: Report) -> str:
    """The text of the report's line, which must be in this file."""
    assert report.line is not None and report.line.file == os.path.abspath(__file__)
    return linecache.getline(report.line.file, report.line.line).strip()


def headline(report: Report) -> str:
    """The screen's first words."""
    return " ".join(screens.headline(report, 1000))


def rooted(loss: str = "mse", optimizer: str = "sgd") -> keras.Model:
    """A model with a root, which a negative number spoils."""

    class Root(keras.layers.Layer):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            return tf.sqrt(x)

    model = keras.Sequential([Root(), keras.layers.Dense(1)])
    model.compile(optimizer, loss)
    return model


X, Y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
X_BAD = np.where(np.arange(16).reshape(8, 2) == 13, -1.0, 1.0).astype("float32")


def test_a_function_without_an_optimizer() -> None:
    with watched("nan") as found:
        both(GOOD, BAD)
    assert source(found[0]) == "return tf.sqrt(x)"
    assert headline(found[0]).startswith("NaN in output")
    assert "update" not in headline(found[0])


@pytest.mark.parametrize("way", ["fit", "evaluate", "predict"])
def test_keras_training_validation_and_prediction(way: str) -> None:
    model = rooted()
    with watched("nan") as found:
        if way == "fit":
            model.fit(X_BAD, Y, batch_size=4, verbose=0, shuffle=False)
        elif way == "evaluate":
            model.evaluate(X_BAD, Y, batch_size=4, verbose=0)
        else:
            model.predict(X_BAD, batch_size=4, verbose=0)
    first = found[0]
    assert source(first) == "return tf.sqrt(x)" and first.inputs[0].blamed == (2, 1)
    assert f"{way}: " in headline(first) and "batch 2 of 2" in headline(first)
    if way == "fit":
        assert headline(first).startswith("NaN stopped before the update · step 2")
        assert "2 of 2 gradients are NaN" in headline(first) and "weights still clean" in headline(first)
    else:
        assert "update" not in headline(first) and "weights" not in headline(first)


def test_validation_within_fit_is_not_an_update() -> None:
    model = rooted()
    with watched("nan") as found:
        model.fit(X, Y, validation_data=(X_BAD, Y), verbose=0)
    assert source(found[0]) == "return tf.sqrt(x)"
    assert "update" not in headline(found[0])


@pytest.mark.parametrize("way", ["set_weights", "assign", "load_weights"])
def test_variables_at_load(way: str, tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    bad = [np.array([[np.nan], [1.0]], "float32"), np.zeros(1, "float32")]
    if way == "load_weights":
        model.set_weights(bad)
        model.save_weights(tmp_path / "bad.weights.h5")
        model.set_weights([np.ones((2, 1), "float32"), np.zeros(1, "float32")])
    with watched("nan") as found:
        if way == "set_weights":
            model.set_weights(bad)
        elif way == "assign":
            model.layers[0].kernel.assign(bad[0])
        else:
            model.load_weights(tmp_path / "bad.weights.h5")
    assert way in source(found[0])
    assert found[0].phase == "variable" and "kernel" in found[0].variables[0]
    assert "into" in headline(found[0]) and "kernel" in headline(found[0])


def test_batch_norm_statistics() -> None:
    model = keras.Sequential([keras.layers.BatchNormalization()])
    model.build((None, 2))
    spoiled = np.array([[1.0, np.inf], [1.0, -np.inf]], "float32")
    run = tf.function(lambda x: tf.reduce_sum(model(x, training=True)) * 0.0)
    with watched("nan") as found:
        run(tf.constant(spoiled))
    assert found and found[0].phase in ("data", "forward")


def test_two_optimizers_each_have_their_gate() -> None:
    generator, critic = tf.Variable([1.0, 2.0]), tf.Variable([-1.0, 3.0])
    optimizers = [keras.optimizers.Adam(), keras.optimizers.Adam()]
    for optimizer, variable in zip(optimizers, (generator, critic), strict=True):
        optimizer.build([variable])

    @tf.function
    def step() -> None:
        with tf.GradientTape(persistent=True) as tape:
            good = tf.reduce_sum(generator * generator)
            bad = tf.reduce_sum(tf.math.log(critic))
        optimizers[0].apply([tape.gradient(good, generator)], [generator])
        optimizers[1].apply([tape.gradient(bad, critic)], [critic])

    with watched("nan") as found:
        step()
    assert source(found[0]) == "bad = tf.reduce_sum(tf.math.log(critic))"
    assert headline(found[0]).startswith("NaN stopped before the update")


def test_accumulated_gradients() -> None:
    weight = tf.Variable([1.0, 1.0])
    total = tf.Variable([0.0, 0.0], trainable=False)
    optimizer = keras.optimizers.SGD()
    optimizer.build([weight])

    @tf.function
    def accumulate(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sqrt(weight * x))
        total.assign_add(tape.gradient(loss, weight))

    @tf.function
    def update() -> None:
        optimizer.apply([total / 2.0], [weight])

    with watched("nan") as found:
        accumulate(tf.constant([1.0, 1.0]))
        accumulate(tf.constant([1.0, -1.0]))
        update()
    assert source(found[0]) == "loss = tf.reduce_sum(tf.sqrt(weight * x))"
    assert found[0].inputs[0].name == "weight * x" and found[0].inputs[0].value == -1.0


def test_the_path_goes_from_the_input_to_the_weights() -> None:
    weight = tf.Variable([1.0, 0.0], name="weight")

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            squares = weight * weight
            norm = tf.sqrt(squares)
            loss = tf.reduce_sum(norm)
        weight.assign_sub(tape.gradient(loss, weight))

    with watched("nan") as found:
        step()
    lines = screens.watch_screen(found[0], 200).splitlines()
    path = next(line.split(maxsplit=1)[1] for line in lines if line.split()[:1] == ["path"])
    assert path.startswith("squares [0, 1] > norm [0, 1] > loss 1 > ") and path.endswith("> nan in weight")
    assert "0 at [1]" in next(line for line in lines if line.split()[:1] == ["input"])


def test_a_variable_that_an_op_reads_by_itself_is_named() -> None:
    weight = tf.Variable([1.0, 1.0], name="weight")
    weight.assign([1.0, np.nan])

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(x * weight)

    with watched("nan") as found:
        step(tf.ones(2))
    assert found[0].phase == "variable" and found[0].inputs[0].name == "weight"


def test_in_eager_code_a_helper_is_no_end_of_the_search() -> None:
    weight = tf.Variable([1.0, -1.0])
    optimizer = keras.optimizers.SGD()

    def apply(gradient: tf.Tensor) -> None:
        optimizer.apply([tf.convert_to_tensor(gradient.numpy())], [weight])

    with watched("nan") as found:
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(tf.sqrt(weight))
        apply(tape.gradient(loss, weight))
    assert source(found[0]) == "loss = tf.reduce_sum(tf.sqrt(weight))"
