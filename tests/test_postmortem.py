"""Programs that fail -> the user's frames, with the values of the failing call, and what is said of the error."""

import functools
import io
import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from processes import run
from wrecks import examined, frames_in, text_of

import tfdb
from tfdb import doors, postmortem, prompt, session
from tfdb.kept import Keeper

FILE = __file__
VECTOR = tf.TensorSpec([None], tf.float32)


frames_of = functools.partial(frames_in, FILE)


# -- errors of running graphs --------------------------------------------------------------------------------------


def add_up(kept: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    doubled = kept * 2.0
    return doubled + other


@tf.function(input_signature=[VECTOR, VECTOR])
def positive_sum(values: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    kept = tf.boolean_mask(values, values > 0.0)
    return add_up(kept, other)


def test_a_graph_error_has_the_frames_and_values_of_the_failing_call() -> None:
    positive_sum(tf.constant([1.0, 2.0]), tf.constant([1.0, 2.0]))
    wreck = examined(lambda: positive_sum(tf.constant([1.0, -2.0, 3.0]), tf.constant([1.0, 2.0, 3.0])))
    *_, outer, inner = frames_of(wreck)
    assert (outer.function, outer.source) == ("positive_sum", "return add_up(kept, other)")
    assert (inner.function, inner.source) == ("add_up", "return doubled + other")
    assert inner.names["kept"].numpy().tolist() == [1.0, 3.0]
    assert inner.names["doubled"].numpy().tolist() == [2.0, 6.0]
    assert outer.names["values"].numpy().tolist() == [1.0, -2.0, 3.0]
    text = text_of(wreck)
    assert "AddV2" in text and "doubled float32(2,)" in text and "other float32(3,)" in text
    assert "the graph was run again" in text


@tf.function
def walk(table: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    total = tf.constant(0.0)
    for step in tf.range(count):
        if step > 0:
            total += tf.reduce_sum(tf.gather(table, step * 2))
    return total


def test_in_a_loop_the_values_are_those_of_the_failing_iteration() -> None:
    *_, frame = frames_of(examined(lambda: walk(tf.ones([5, 2]), tf.constant(9))))
    assert frame.source.startswith("total += ")
    assert int(frame.names["step"]) == 3
    assert float(frame.names["total"]) == 4.0


@tf.function
def lookup(table: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    scaled = table * 3.0
    return tf.gather(scaled, index)


def test_nested_functions_all_have_values_and_variables_are_put_back() -> None:
    count = tf.Variable(0.0)

    @tf.function
    def outer(table: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        count.assign_add(1.0)
        moved = index + 5
        return tf.reduce_sum(lookup(table, moved))

    outer(tf.ones([8]), tf.constant([0, 1]))
    wreck = examined(lambda: outer(tf.ones([8]), tf.constant([0, 3])))
    after = float(count)
    *_, caller, called = frames_of(wreck)
    assert called.names["index"].numpy().tolist() == [5, 8]
    assert called.names["scaled"].numpy().tolist() == [3.0] * 8
    assert caller.names["moved"].numpy().tolist() == [5, 8]
    assert float(count) == after
    assert "index[1] is 8" in text_of(wreck)


@tf.function(jit_compile=True, input_signature=[VECTOR, VECTOR])
def compiled(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    twice = a * 2.0
    return twice + b


def test_a_compiled_function_too() -> None:
    *_, frame = frames_of(examined(lambda: compiled(tf.ones([2]), tf.ones([3]))))
    assert frame.names["twice"].numpy().tolist() == [2.0, 2.0]


def cut(number: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    part = tf.range(10) + number
    return tf.reshape(part, [rows, -1])


@pytest.mark.parametrize("parallel", [None, 2])
def test_a_dataset_function_has_the_element_that_fails(parallel: int | None) -> None:
    data = tf.data.Dataset.from_tensor_slices(([0, 1, 2, 3], [1, 2, 5, 3])).map(cut, parallel).batch(1).prefetch(1)
    wreck = examined(lambda: list(data))
    *_, frame = frames_of(wreck)
    assert (frame.function, int(frame.names["number"]), int(frame.names["rows"])) == ("cut", 3, 3)
    assert "element 3 fails" in text_of(wreck)


@tf.function
def total_of(data: tf.data.Dataset) -> tf.Tensor:
    total = 0.0
    for row, rows in data:
        total += tf.reduce_sum(tf.reshape(row, [rows, 2]))
    return total


def test_a_loop_over_a_dataset_in_a_graph() -> None:
    data = tf.data.Dataset.from_tensor_slices((tf.ones([3, 6]), [3, 3, 4]))
    *_, frame = frames_of(examined(lambda: total_of(data)))
    assert (int(frame.names["rows"]), float(frame.names["total"])) == (4, 12.0)


class Bag(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.table = keras.layers.Embedding(10, 2)
        self.head = keras.layers.Dense(1)

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        rows = self.table(ids)
        return self.head(rows[:, 0] + rows[:, 1])


def fit_bag(steps_per_execution: int = 1) -> None:
    ids = np.array([[1, 2], [3, 4], [5, 6], [7, 8], [9, 0], [1, 12]], "int32")
    model = Bag()
    model.compile(optimizer="sgd", loss="mse", steps_per_execution=steps_per_execution)
    model.fit(ids, np.ones((6, 1), "float32"), batch_size=2, shuffle=False, verbose=0)


@pytest.mark.parametrize("kept", [True, False])
def test_fit_has_the_batch(kept: bool, request: pytest.FixtureRequest) -> None:
    wreck = examined(fit_bag, request.getfixturevalue("keeper") if kept else None)
    *_, frame = frames_of(wreck)
    assert (frame.function, frame.source) == ("call", "rows = self.table(ids)")
    assert frame.names["ids"].numpy().tolist() == [[9, 0], [1, 12]]
    text = text_of(wreck)
    assert "ids[1,1] is 12" in text and "10 rows" in text and "batch 3 of 3" in text


def test_fit_with_several_steps_an_execution(keeper: Keeper) -> None:
    *_, frame = frames_of(examined(lambda: fit_bag(3), keeper))
    assert frame.names["ids"].numpy().tolist()[1] == [1, 12]


def test_keeping_batches_leaves_training_bit_for_bit_the_same(keeper: Keeper) -> None:
    def weights() -> list[np.ndarray]:
        keras.utils.set_random_seed(7)
        model = keras.Sequential([keras.layers.Dense(5, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
        model.compile(optimizer="adam", loss="mse")
        x = np.random.default_rng(0).normal(size=(40, 3)).astype("float32")
        model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0)
        return model.get_weights()

    with_keeper = weights()
    keeper.remove()
    assert all(np.array_equal(a, b) for a, b in zip(with_keeper, weights(), strict=True))


NAMES = ["a", "b"]


def host(index: tf.Tensor) -> np.float32:
    position = int(index) + 1
    return np.float32(len(NAMES[position]))


@pytest.mark.parametrize("door", [tf.py_function, tf.numpy_function])
def test_an_error_in_a_python_function_has_its_own_frame(door: Any, keeper: Keeper) -> None:
    @tf.function
    def call(index: tf.Tensor) -> tf.Tensor:
        return door(host, [index], tf.float32)

    call(tf.constant(0))
    wreck = examined(lambda: call(tf.constant(1)), keeper)
    *_, frame = frames_of(wreck)
    assert (frame.function, frame.source, frame.names["position"]) == (
        "host",
        "return np.float32(len(NAMES[position]))",
        2,
    )
    assert text_of(wreck).startswith("IndexError: list index out of range")


def test_a_concrete_function_shows_the_lines_and_the_inputs_of_the_op() -> None:
    concrete = positive_sum.get_concrete_function()
    wreck = examined(lambda: concrete(tf.constant([1.0, 2.0]), tf.constant([1.0, 2.0, 3.0])))
    *_, frame = frames_of(wreck)
    assert (frame.function, frame.source) == ("add_up", "return doubled + other")
    assert "float32(2,)" in text_of(wreck) and "[2, 4]" in text_of(wreck)


# -- errors while tracing ------------------------------------------------------------------------------------------


@tf.function
def grow(count: tf.Tensor) -> tf.Tensor:
    found = tf.zeros([1], tf.int32)
    for each in tf.range(count):
        found = tf.concat([found, [each]], axis=0)
    return found


def test_a_tracing_error_stands_in_the_users_line_with_values() -> None:
    wreck = examined(lambda: grow(tf.constant(4)))
    *_, frame = frames_of(wreck)
    assert (frame.function, frame.source) == ("grow", "for each in tf.range(count):")
    assert int(frame.names["count"]) == 4
    assert not any("autograph_generated" in str(entry) for entry in wreck.entries)
    assert wreck.sentence is not None and "found" in wreck.sentence and "grows it" in wreck.sentence


def half(value: tf.Tensor) -> tf.Tensor:
    part = value / 2.0
    return part + tf.constant([1.0, 2.0], tf.float64)


@tf.function
def through(value: tf.Tensor) -> tf.Tensor:
    if tf.reduce_sum(value) > 0.0:
        value = half(value)
    return value


def test_the_whole_user_stack_of_a_tracing_error_has_values() -> None:
    wreck = examined(lambda: through(tf.constant([2.0, 4.0])))
    *_, outer, inner = frames_of(wreck)
    assert (outer.function, inner.function) == ("through", "half")
    assert inner.names["part"].numpy().tolist() == [1.0, 2.0]
    assert wreck.sentence is not None and "part float32(2,)" in wreck.sentence and "float64" in wreck.sentence


def test_in_a_dataset_function_values_are_those_of_the_first_element() -> None:
    def parse(line: tf.Tensor) -> Any:
        return line.numpy().decode()

    wreck = examined(lambda: tf.data.Dataset.from_tensor_slices([b"3,4", b"5,6"]).map(parse))
    *_, frame = frames_of(wreck)
    assert (frame.function, frame.names["line"].numpy()) == ("parse", b"3,4")
    assert "first element" in text_of(wreck)


class Shift(keras.layers.Layer):
    def call(self, x: tf.Tensor) -> tf.Tensor:
        bias = tf.constant([1.0, 2.0, 3.0])
        return x + bias

    def compute_output_spec(self, x: Any) -> Any:
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)


def test_a_tracing_error_in_a_keras_layer_has_the_batch() -> None:
    model = keras.Sequential([keras.Input((3,)), Shift(dtype="mixed_float16")])
    model.compile(optimizer="sgd", loss="mse")
    wreck = examined(lambda: model.fit(np.ones((4, 3), "float32"), np.zeros((4, 3), "float32"), verbose=0))
    *_, frame = frames_of(wreck)
    assert (frame.function, frame.names["x"].dtype, tuple(frame.names["x"].shape)) == ("call", tf.float16, (4, 3))
    assert frame.names["bias"].numpy().tolist() == [1.0, 2.0, 3.0]
    assert (
        wreck.sentence is not None and "x float16(None, 3)" in wreck.sentence and "bias float32(3,)" in wreck.sentence
    )


class Net(tf.Module):
    last: Any = None

    @tf.function
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        hidden = x * 2.0
        self.last = hidden
        return tf.reduce_sum(hidden)


def test_a_leaked_tensor_is_followed_to_the_line_that_kept_it() -> None:
    net = Net()
    net(tf.constant([1.0, 2.0]))
    wreck = examined(lambda: tf.reduce_mean(net.last))
    line = next(number for number, text in enumerate(linecache.getlines(FILE), 1) if "self.last = hidden" in text)
    assert wreck.sentence is not None and f"test_postmortem.py:{line} kept it" in wreck.sentence


@tf.function(input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([None, None])])
def product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    tripled = a * 3.0
    return tf.matmul(tripled, b)


def test_a_function_traced_before_that_does_not_take_these_shapes() -> None:
    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        return product(x + 1.0, tf.ones([4, 2]))

    outer(tf.ones([2, 4]))
    *_, caller, called = frames_of(examined(lambda: outer(tf.ones([2, 3]))))
    assert (caller.function, called.function, called.source) == ("outer", "product", "return tf.matmul(tripled, b)")
    assert called.names["tripled"].numpy().tolist() == [[6.0] * 3] * 2


# -- plain errors, and the prompt ----------------------------------------------------------------------------------


def load(table: dict[str, int], key: str) -> int:
    try:
        return table[key]
    except KeyError as error:
        raise ValueError("no such key") from error


def test_the_users_own_raise_is_where_it_stands_and_names_its_cause() -> None:
    wreck = examined(lambda: load({}, "a"))
    *_, frame = frames_of(wreck)
    assert frame.source == 'raise ValueError("no such key") from error'
    assert any(note.startswith("caused by KeyError: 'a'") for note in wreck.notes)


def test_an_exception_without_traceback_has_no_stack() -> None:
    assert postmortem.examine(ValueError("never raised")).entries == ()


def session_of(program: Callable[[], object], typed: str) -> str:
    """What the prompt prints for commands typed after the program's error."""
    output = io.StringIO()
    debugger = prompt.plain_debugger(stdin=io.StringIO(typed), stdout=output)
    with session.using(debugger):
        with tfdb.launch_tfdb_on_exception():
            program()
    return output.getvalue()


def test_the_prompt_moves_between_graph_and_eager_frames() -> None:
    def program() -> None:
        sizes = [3]
        positive_sum(tf.ones([2]), tf.ones(sizes))

    text = session_of(program, "p doubled.numpy()\na\nu\np kept.numpy()\nu\np sizes\nwhy\nfull\nq\n")
    assert (
        "array([2., 2.]" in text
        and "kept = <tf.Tensor: shape=(2,)" in text
        and "array([1., 1.]" in text
        and "[3]" in text
    )
    assert "AddV2 was given shapes" in text
    assert "Detected at node" in text


def test_why_explains_an_expression() -> None:
    net = Net()
    net(tf.constant([1.0]))
    assert "kept it while" in session_of(lambda: net.last + 1.0, "why net.last\nwhy net\nq\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_no_error_passes_through(error: type[BaseException]) -> None:
    def program() -> None:
        raise error

    with pytest.raises(error):
        session_of(program, "")


def test_post_mortem_needs_an_exception() -> None:
    with pytest.raises(ValueError, match="no exception"):
        tfdb.post_mortem()


def test_a_fault_of_the_examination_leaves_the_plain_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(postmortem, "graph_wreck", fail)
    wreck = examined(lambda: positive_sum(tf.ones([2]), tf.ones([3])))
    assert wreck.entries and "RuntimeError: no luck" in text_of(wreck)


def test_an_iterator_of_the_program_loses_no_element(keeper: Keeper) -> None:
    @tf.function
    def step(iterator: Any) -> tf.Tensor:
        batch = next(iterator)
        doubled = batch * 2
        return tf.reshape(doubled, [2, -1])

    iterator = iter(tf.data.Dataset.range(9).batch(2).skip(3).concatenate(tf.data.Dataset.range(4).batch(2)))
    step(iterator)
    *_, frame = frames_of(examined(lambda: step(iterator), keeper))
    assert frame.names["doubled"].numpy().tolist() == [16]
    assert next(iterator).numpy().tolist() == [0, 1]


def test_a_loaded_function_has_the_inputs_of_the_op_without_any_python(tmp_path: Any) -> None:
    class Scorer(tf.Module):
        @tf.function(input_signature=[VECTOR, tf.TensorSpec([None], tf.int32)])
        def score(self, x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
            return tf.gather(x * 2.0, rows + 1)

    tf.saved_model.save(Scorer(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    text = text_of(examined(lambda: loaded.score(tf.constant([1.0, 2.0]), tf.constant([0, 1]))))
    assert "GatherV2" in text and "[2, 4]" in text and "[1, 2]" in text


class Two(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = keras.layers.Dense(4), keras.layers.Dense(3)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        left, right = self.left(x), self.right(x)
        return left + right


@pytest.mark.filterwarnings("ignore")
def test_an_error_while_keras_builds_a_model_has_the_values_of_an_eager_call() -> None:
    model = keras.Sequential([Two(), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    wreck = examined(lambda: model.fit(np.ones((8, 2), "float32"), np.ones((8, 1)), verbose=0))
    *_, frame = frames_of(wreck)
    assert (frame.function, tuple(frame.names["right"].shape)) == ("call", (8, 3))
    assert "eager call" in text_of(wreck)


def test_a_check_of_the_program_is_told_with_its_values() -> None:
    @tf.function
    def checked(x: tf.Tensor) -> tf.Tensor:
        most = tf.reduce_max(x)
        tf.debugging.assert_less(most, 3.0, message="too big")
        return tf.sqrt(most)

    wreck = examined(lambda: checked(tf.constant([1.0, 4.0])))
    *_, frame = frames_of(wreck)
    assert float(frame.names["most"]) == 4.0
    assert wreck.sentence is not None and "too big" in wreck.sentence and "most float32()" in wreck.sentence


def test_an_op_that_wants_too_much_memory_is_not_tried_again() -> None:
    @tf.function
    def table(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(a[:, None] * b[None, :])

    wreck = examined(lambda: table(tf.ones([6_000_000]), tf.ones([2_000_000])))
    assert wreck.sentence is not None and "(6000000, 1)" in wreck.sentence and "GiB" in wreck.sentence


# -- NaN and infinities -----------------------------------------------------------------------------------------------


def root_of_squares(scale: tf.Tensor, check: Callable[[tf.Tensor], Any]) -> Any:
    v = tf.constant([[3.0, 4.0], [0.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(v)
        squares = tf.reduce_sum(tf.square(v * scale), 1)
        norm = tf.sqrt(squares)
        loss = tf.reduce_sum(norm)
    return check(tape.gradient(loss, v))


CHECKS: dict[str, Callable[[tf.Tensor], Any]] = {
    "check_numerics": lambda gradient: tf.debugging.check_numerics(gradient, "bad"),
    "assert_all_finite": lambda gradient: tf.debugging.assert_all_finite(gradient, "bad"),
    "enable_check_numerics": tf.identity,
}


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Iterator[Callable[[tf.Tensor], Any]]:
    if request.param == "enable_check_numerics":
        tf.debugging.enable_check_numerics()
    yield CHECKS[request.param]
    tf.debugging.disable_check_numerics()


@pytest.mark.parametrize("way", ["eager", "graph"])
@pytest.mark.parametrize("check", list(CHECKS), indirect=True)
def test_a_check_of_numerics_leads_to_where_the_value_was_made(check: Callable[[tf.Tensor], Any], way: str) -> None:
    step = tf.function(root_of_squares) if way == "graph" else root_of_squares
    wreck = examined(lambda: step(tf.constant(2.0), check))
    report = wreck.origin
    assert report is not None
    assert (report.op, report.forward_op) == ("SqrtGrad", "Sqrt")
    assert report.line is not None and report.line.function == "root_of_squares"
    assert report.inputs[0].name == "squares" and report.inputs[0].blamed == (1,)
    last = frames_of(wreck)[-1]
    assert (last.function, last.source) == ("root_of_squares", "norm = tf.sqrt(squares)")
    np.testing.assert_array_equal(last.names["squares"], [100.0, 0.0])
    assert "squares is 0 at [1]" in text_of(wreck)


def test_a_check_of_numerics_in_fit_shows_the_batch(keeper: Keeper) -> None:
    class Root(keras.layers.Layer):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            return tf.sqrt(x)

    x, y = np.ones((12, 3), "float32"), np.ones((12, 1), "float32")
    x[9, 2] = -1.0
    model = keras.Sequential([Root(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    tf.debugging.enable_check_numerics()
    try:
        wreck = examined(lambda: model.fit(x, y, batch_size=4, verbose=0, shuffle=False), keeper)
    finally:
        tf.debugging.disable_check_numerics()
    assert wreck.origin is not None and wreck.origin.op == "Sqrt"
    assert wreck.origin.inputs[0].blamed == (1, 2) and wreck.origin.inputs[0].value == -1.0
    assert "batch 3 of 3" in wreck.origin.during
    assert frames_of(wreck)[-1].source == "return tf.sqrt(x)"


def test_an_infinity_that_is_meant_is_said_to_be() -> None:
    @tf.function
    def attend(mask: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(tf.where(mask, [1.0, 2.0], [-np.inf, -np.inf]))

    tf.debugging.enable_check_numerics()
    try:
        wreck = examined(lambda: attend(tf.constant([True, False])))
    finally:
        tf.debugging.disable_check_numerics()
    assert wreck.origin is None
    assert "may be meant" in text_of(wreck)


def test_an_eager_op_that_the_check_saw_is_told_with_its_inputs() -> None:
    tf.debugging.enable_check_numerics()
    try:
        wreck = examined(lambda: tf.math.log(tf.constant([1.0, -2.0])))
    finally:
        tf.debugging.disable_check_numerics()
    assert wreck.origin is not None and wreck.origin.op == "Log"
    assert wreck.origin.inputs[0].blamed == (1,)
    assert doors.patches.saved == []


NESTED_UNDER_A_TAPE = """
import tensorflow as tf

table = tf.Variable(tf.ones([10, 4]))


@tf.function
def look(ids, y):
    rows = tf.reduce_mean(tf.gather(table, ids), axis=1)
    return tf.reduce_sum(rows * y)


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None])])
def train(ids, y):
    with tf.GradientTape() as tape:
        loss = look(ids, y)
    table.assign_sub(tf.zeros_like(table))
    return loss


train(tf.constant([[1, 2]]), tf.ones([1, 4]))
train(tf.constant([[1, 2], [3, 4]]), tf.ones([3, 4]))
"""


def test_an_error_in_a_nested_function_under_a_tape_after_a_prompt(tmp_path: Path) -> None:
    script = tmp_path / "nested.py"
    script.write_text(NESTED_UNDER_A_TAPE)
    done = run("-m", "tfdb", script, typed="c\nw\n")
    assert "nested.py(10)look()" in done.stdout and "nested.py(16)train()" in done.stdout
    assert "Incompatible shapes: [2,4] vs. [3,4]" in done.stdout


class Spy(keras.layers.Layer):
    """A layer that keeps what it computes, in vain."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def call(self, x: Any) -> Any:
        self.kept.append(x * 2.0)
        return x


def mean_of_kept(spy: Spy) -> Any:
    return np.mean(spy.kept[-1])


def value_of_kept(spy: Spy) -> Any:
    last = spy.kept[-1]
    return last.numpy()


@pytest.mark.parametrize("look", [mean_of_kept, value_of_kept])
def test_a_kept_symbolic_tensor_whose_value_is_wanted_in_eager_code_is_a_leak(look: Callable[[Any], Any]) -> None:
    spy = Spy()
    keras.Sequential([keras.Input([2]), spy]).predict(np.ones([1, 2]), verbose=0)
    wreck = examined(lambda: look(spy))
    assert frames_of(wreck)[-1].function == look.__name__
    text = text_of(wreck)
    assert "is a symbolic tensor of the graph of call()" in text and "kept it while" in text
    assert "is traced into a graph" not in text


def test_an_op_with_lists_of_types_and_shapes_fails_at_the_element_that_is_bad(keeper: Keeper) -> None:
    def record(**numbers: int) -> bytes:
        lists = {name: tf.train.Int64List(value=[number]) for name, number in numbers.items()}
        features = {name: tf.train.Feature(int64_list=values) for name, values in lists.items()}
        return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())

    def parse(row: tf.Tensor) -> tf.Tensor:
        parts = tf.io.parse_single_example(row, {name: tf.io.FixedLenFeature([], tf.int64) for name in ("a", "b")})
        return parts["a"] + parts["b"]

    rows = [record(a=1, b=2), record(a=3, b=4), record(a=5)]
    dataset = tf.data.Dataset.from_tensor_slices(rows).map(parse)
    wreck = examined(lambda: list(dataset), keeper)
    frame = frames_of(wreck)[-1]
    assert frame.function == "parse" and frame.names["row"].numpy() == rows[2]
    assert "element 2 fails" in text_of(wreck)
