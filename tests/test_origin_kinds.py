"""Where the replay finds the origin: random draws, Python functions, accumulators, converted losses, strategies."""

from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from processes import run
from stops import watched

from tfdb.report import Report


@pytest.fixture
def reports() -> Iterator[list[Report]]:
    with watched("nan") as found:
        yield found


def line_of(function: Callable[..., object], offset: int) -> int:
    """The number of the line that many lines below the `def` of a function."""
    return function.__code__.co_firstlineno + offset


def rare(w: tf.Variable) -> tf.Tensor:
    u = tf.random.uniform([8], -0.2, 20.0)
    return tf.reduce_sum(tf.math.log(u * w))


def test_random_numbers_are_drawn_again_until_the_value_is_bad_again(reports: list[Report]) -> None:
    w = tf.Variable(tf.ones(8))

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = rare(w)
        w.assign_sub(0.0 * tape.gradient(loss, w))
        return loss

    tf.random.set_seed(1)
    for _ in range(300):
        step()
        if reports:
            break
    report = reports[0]
    assert report.line is not None
    assert (report.op, report.line.line) == ("Log", line_of(rare, 2))
    assert any("stateful tf.random" in note for note in report.notes)


def spread(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return (x - x.mean()) / x.std()


def standardised(x: tf.Tensor, w: tf.Variable) -> tf.Tensor:
    h = tf.numpy_function(spread, [x], tf.float32)
    return tf.reduce_sum(tf.reshape(h, [4]) * w)


def test_what_a_python_function_makes_is_charged_to_its_call(reports: list[Report]) -> None:
    w = tf.Variable(tf.ones(4))

    @tf.function
    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = standardised(x, w)
        w.assign_sub(tape.gradient(loss, w))

    step(tf.constant([1.0, 2.0, 3.0, 4.0]))
    assert not reports
    step(tf.constant([2.0, 2.0, 2.0, 2.0]))
    assert (reports[0].op, reports[0].line and reports[0].line.line) == ("PyFunc", line_of(standardised, 1))


def length(x: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_sum(tf.square(x), -1))


def test_a_gradient_on_its_way_into_an_accumulator(reports: list[Report]) -> None:
    w, total = tf.Variable(tf.ones([2, 2])), tf.Variable(tf.zeros([2, 2]), trainable=False)

    @tf.function
    def micro(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(length(tf.matmul(x, w)))
        total.assign_add(tape.gradient(loss, w))

    micro(tf.constant([[1.0, 2.0], [0.0, 0.0]]))
    assert (reports[0].forward_op, reports[0].line and reports[0].line.line) == ("Sqrt", line_of(length, 1))


def likelihood(y: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    return -tf.reduce_sum(y * tf.math.log(p), axis=-1)


def test_a_loss_function_that_tf_keras_converts_is_the_users(reports: list[Report]) -> None:
    model = tf_keras.Sequential([tf_keras.layers.Dense(3, activation="softmax")])
    model.compile("sgd", likelihood)
    x = np.random.default_rng(0).normal(size=(16, 5)).astype(np.float32) * 1e4
    model.fit(x, np.eye(3, dtype=np.float32)[np.arange(16) % 3], verbose=0)
    assert reports[0].line is not None and reports[0].line.function == "likelihood"


def compiled() -> keras.Model:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    return model


def test_a_loss_by_name_is_charged_to_compile(reports: list[Report]) -> None:
    x = np.full((8, 1), 1e25, np.float32)
    compiled().fit(x, -x, verbose=0)
    assert reports[0].line is not None
    assert (reports[0].op, reports[0].line.line) == ("Square", line_of(compiled, 2))


def half() -> keras.Model:
    model = keras.Sequential([keras.Input((2,), dtype="float16"), keras.layers.Dense(1, dtype="float16")])
    model.compile(optimizer=keras.optimizers.Adam(1e-3, epsilon=1e-8), loss="mse")
    return model


def test_an_update_is_charged_to_the_line_that_made_the_optimizer(reports: list[Report]) -> None:
    x = np.array([[1.0, 0.0]] * 8, np.float16)
    half().fit(x, np.ones((8, 1), np.float16), verbose=0)
    assert reports[0].line is not None
    assert (reports[0].phase, reports[0].line.line) == ("update", line_of(half, 2))


def noisy() -> keras.Model:
    class Sampling(keras.layers.Layer):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            noise = keras.random.normal(tf.shape(x))
            return x + tf.exp(x * 100.0) * noise

    model = keras.Sequential([keras.Input((3,)), Sampling(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_keras_random_numbers_of_no_seed_are_those_of_the_step(reports: list[Report]) -> None:
    keras.utils.set_random_seed(0)
    noisy().fit(np.ones((8, 3), np.float32), np.ones((8, 1)), verbose=0)
    assert reports[0].op == "Exp", reports[0].cause


def test_a_loop_over_a_distributed_dataset(reports: list[Report]) -> None:
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    x = np.arange(1, 13, dtype=np.float32).reshape(12, 1)
    x[7] = 0
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(2))
    w = tf.Variable([[1.0]])

    def one(batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.math.log(tf.matmul(batch, w)))
        w.assign_sub(0.01 * tape.gradient(loss, w))
        return loss

    @tf.function
    def epoch(data: tf.data.Dataset) -> tf.Tensor:
        total = 0.0
        for batch in data:
            total += strategy.run(one, args=(batch,))
        return total

    epoch(data)
    assert len(reports) == 1
    report = reports[0]
    assert (report.op, report.line and report.line.line) == ("Log", line_of(one, 2))
    assert report.phase == "forward"


def mean_log(data: tf.data.Dataset) -> tf.Tensor:
    total, count = 0.0, 0.0
    for batch in data:
        total += tf.reduce_mean(tf.math.log(batch))
        count += 1.0
    return total / count


ROWS = tf.data.Dataset.from_tensor_slices([3.0, 2.0, -1.0, 4.0])
SPOILED = tf.data.Dataset.from_tensor_slices([3.0, 2.0, float("nan"), 4.0])


@pytest.mark.parametrize("captured", [False, True])
def test_a_bad_result_of_a_loop_over_a_dataset_is_found_in_its_pass(reports: list[Report], captured: bool) -> None:
    evaluate = tf.function((lambda: tf.function(mean_log)(ROWS)) if captured else mean_log)
    evaluate() if captured else evaluate(ROWS)
    (report,) = reports
    assert (report.op, report.line and report.line.line) == ("Log", line_of(mean_log, 3))
    assert "-1" in report.cause
    assert any("from its first element" in note for note in report.notes)


def test_a_nan_in_the_data_of_a_loop_is_charged_to_the_data(reports: list[Report]) -> None:
    tf.function(mean_log)(SPOILED)
    (report,) = reports
    assert report.phase == "data", report.cause


class NoWarmup(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        return 0.001 * tf.minimum(step / 0.0, 1.0)


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_learning_rate_that_a_schedule_makes_nan(reports: list[Report], eagerly: bool) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(NoWarmup()), "mse", run_eagerly=eagerly)
    model.fit(np.ones((8, 3), np.float32), np.ones((8, 1)), verbose=0)
    report = reports[0]
    assert (report.op, report.line and report.line.line) == ("RealDiv", line_of(NoWarmup.__call__, 2)), report.cause
    assert report.phase == "update" and report.clean


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_learning_rate_that_is_infinite(reports: list[Report], eagerly: bool) -> None:
    class Finder(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
            if batch == 2:
                self.model.optimizer.learning_rate = 1e-3 * 10.0**60

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(1e-3), "mse", run_eagerly=eagerly)
    model.fit(np.ones((32, 3), np.float32), np.ones((32, 1)), batch_size=8, verbose=0, callbacks=[Finder()])
    report = reports[0]
    assert report.line is not None and report.line.line == line_of(Finder.on_train_batch_begin, 2)
    assert "learning_rate holds 1 inf" in report.cause and "1 and only one" not in report.cause


def returns(price: tf.Tensor, close: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.stack([(close - price) / price, price]), close


@pytest.mark.parametrize("in_graph", [False, True])
def test_batches_of_a_hand_written_loop_are_charged_to_the_map(reports: list[Report], in_graph: bool) -> None:
    price = np.array([1.0, 2.0, 0.0, 3.0], np.float32)
    data = tf.data.Dataset.from_tensor_slices((price, price * 0)).map(returns).batch(2)
    w = tf.Variable([[1.0], [1.0]])

    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.matmul(x, w)[:, 0] - y)
        w.assign_sub(0.1 * tape.gradient(loss, w))

    run = tf.function(step) if in_graph else step
    for x, y in data:
        run(x, y)
    report = reports[0]
    assert (report.op, report.line and report.line.line) == ("RealDiv", line_of(returns, 1)), report.cause
    assert report.phase == "data"


def test_a_layer_whose_initializer_gave_nan(reports: list[Report]) -> None:
    table = np.array([[0.0, 1.0], [np.nan, np.nan]], np.float32)
    layer = keras.layers.Embedding(2, 2, embeddings_initializer=keras.initializers.Constant(table))
    line = test_a_layer_whose_initializer_gave_nan.__code__.co_firstlineno + 2
    model = keras.Sequential([layer, keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(np.array([[0], [1]]), np.ones((2, 1)), verbose=0)
    report = reports[0]
    assert (report.phase, report.line and report.line.line) == ("variable", line)
    assert f"since the Embedding of line {line} of test_origin_kinds.py made it" in report.cause


ONE_THREAD = """
import tensorflow as tf

tf.config.threading.set_inter_op_parallelism_threads(1)
w = tf.Variable([1.0, 2.0])


@tf.function
def inner(x):
    if tf.reduce_sum(x) > -100.0:
        y = tf.math.log(x)
    else:
        y = x
    return y


concrete = inner.get_concrete_function(tf.TensorSpec([2]))


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(concrete(x * w))
    w.assign_sub(0.1 * tape.gradient(loss, w))
    return tf.cond(loss > 0.0, lambda: loss, lambda: -loss)


for number in range(4):
    step(tf.constant([1.0, 2.0 - number]))
"""


def test_one_inter_op_thread_and_concrete_functions_do_not_hang(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(ONE_THREAD)
    done = run("-m", "tfdb", "--no-prompt", "-w", "nan", "one.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "origin    Log  one.py:11 inner()" in done.stdout


def test_a_nan_that_numpy_made_is_named_as_in_the_users_frame(reports: list[Report]) -> None:
    rewards, w = np.full(4, 0.5, "float32"), tf.Variable(tf.ones(4))
    with np.errstate(all="ignore"):
        advantage = (rewards - rewards.mean()) / rewards.std()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w * advantage)
    w.assign_sub(tape.gradient(loss, w))
    assert (reports[0].op, reports[0].phase) == ("Const", "data")
    assert "advantage holds 4 NaN" in reports[0].cause


@pytest.mark.parametrize("written", [np.inf, np.array([0.0, np.inf, 0.0, np.inf], "float32")])
def test_an_infinity_that_the_program_writes_may_leave_a_step(written: float | np.ndarray) -> None:
    w = tf.Variable(tf.ones(4))

    @tf.function
    def step(x: tf.Tensor, divisor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * x)
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss, tf.where(x > 0.0, x / divisor, x) + written

    with watched("nan", "inf") as found:
        step(tf.ones(4), tf.ones(4))
        assert not found
        step(tf.ones(4), tf.constant([1.0, 1.0, 0.0, 1.0]))
        assert [report.op for report in found] == ["RealDiv"]


def test_an_infinity_among_data_that_a_step_holds_is_reported() -> None:
    table = np.array([0.5, np.inf, 2.0, 3.0], "float32")

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        return x * table

    with watched("inf") as found:
        step(tf.ones(4))
    assert [report.op for report in found] == ["Const"]


def test_a_variable_that_was_nan_from_its_start_is_charged_to_the_line_that_made_it(reports: list[Report]) -> None:
    scale = tf.Variable(np.array([1.0, np.nan], np.float32), name="scale")
    line = test_a_variable_that_was_nan_from_its_start_is_charged_to_the_line_that_made_it.__code__.co_firstlineno + 1
    w = tf.Variable(1.0)

    @tf.function
    def step(i: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.square(w * scale[i])
        w.assign_sub(0.1 * tape.gradient(loss, w))

    step(tf.constant(0))
    step(tf.constant(1))
    report = reports[0]
    assert (report.phase, report.variables, report.line and report.line.line) == ("variable", ("scale",), line)
    assert f"since line {line} of test_origin_kinds.py made it" in report.cause


def share(p: tf.Tensor) -> tf.Tensor:
    return p / tf.reduce_max(p)


def root(p: tf.Tensor) -> list[tf.Tensor]:
    return [tf.sqrt(tf.reduce_sum(p * p)), p]


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(
    "body, kinds, op, forward_op", [(share, tf.float32, "RealDiv", None), (root, [tf.float32] * 2, "SqrtGrad", "Sqrt")]
)
def test_ops_in_a_py_function_are_found_and_those_of_its_gradient(
    reports: list[Report], body: Callable[..., object], kinds: object, op: str, forward_op: str | None, in_graph: bool
) -> None:
    w = tf.Variable([1.0, 2.0], name="w")

    def step(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            made = tf.nest.flatten(tf.py_function(body, [w * x], kinds))
            loss = tf.square(tf.reduce_sum(made[0]) - 1.0)
        w.assign_sub(0.1 * tape.gradient(loss, w))

    run_step = tf.function(step) if in_graph else step
    run_step(tf.constant([1.0, 2.0]))
    assert not reports
    run_step(tf.constant([0.0, 0.0]))
    report = reports[0]
    assert (report.op, report.forward_op, report.line and report.line.line) == (op, forward_op, line_of(body, 1))
    assert report.variables == ("w",)


def test_a_py_function_of_composite_tensors_is_run_as_it_is(reports: list[Report]) -> None:
    spec = tf.RaggedTensorSpec([None, None], tf.float32)

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        ragged = tf.py_function(lambda r: r * 2.0, [tf.RaggedTensor.from_row_lengths(x, [1, 1])], spec)
        return tf.math.log(tf.reduce_sum(ragged))

    step(tf.constant([1.0, -2.0]))
    assert reports[0].op == "Log"
    assert "not a number" in reports[0].cause


def test_the_headline_names_what_the_gate_saw_where_the_pass_ended_at_another_door() -> None:
    policy = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("adam", lambda y, p: tf.reduce_mean(tf.square(tf.cast(y, "float16") - tf.cast(p, "float16")), -1))
        with watched("nan", "inf") as found:
            model.fit(np.ones((8, 2)), np.full((8, 1), 900.0), verbose=0)
    finally:
        keras.mixed_precision.set_global_policy(policy)
    assert [(report.reason, report.stopped, report.op) for report in found[:1]] == [("inf", "inf", "Square")]
