"""TensorFlow, Keras and Python values -> summaries and tables, with nothing about the program changed by looking."""

import collections
import dataclasses
import enum
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdb.records import NonFinite, TableRow, TensorSummary
from tfdb.tensors import describe, short_device, summary, to_array, variable_name

ROOT = Path(__file__).resolve().parents[1]


def one(value: Any) -> TensorSummary:
    found = describe(value)
    assert isinstance(found, TensorSummary)
    return found


def rows(value: Any) -> dict[str, TensorSummary]:
    found = describe(value)
    assert isinstance(found, tuple) and all(isinstance(row, TableRow) for row in found)
    return {row.name: row.summary for row in found}


@pytest.mark.parametrize(
    "dtype",
    ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint16", "uint32", "uint64"],
)
def test_eager_tensor_of_every_number_type(dtype: str) -> None:
    found = one(tf.cast(tf.constant([[0, 1, 2], [3, 4, 5]]), dtype))
    assert (found.dtype, found.shape, found.device, found.kind) == (dtype, (2, 3), "cpu:0", "tensor")
    assert (found.minimum, found.maximum, found.mean, found.values) == (0, 5, 2.5, (0, 1, 2, 3, 4, 5))


@pytest.mark.parametrize("dtype", [tf.dtypes.experimental.float8_e4m3fn, tf.dtypes.experimental.float8_e5m2])
def test_float8(dtype: tf.DType) -> None:
    found = one(tf.cast(tf.constant([1.0, 2.0]), dtype))
    assert (found.dtype, found.values, found.nbytes) == (dtype.name, (1.0, 2.0), 2)


def test_bool_complex_string_and_quantised() -> None:
    assert one(tf.constant([True, False])).values == (True, False)
    assert one(tf.constant([3 + 4j])).of == "magnitude"
    assert (one(tf.constant("cat")).dtype, one(tf.constant("cat")).values) == ("string", ("cat",))
    assert one(tf.constant(["cat", "é"])).values == ("cat", "é")
    quantised = tf.quantization.quantize([1.0, 2.0], 0.0, 3.0, tf.qint8).output
    assert (one(quantised).dtype, one(quantised).minimum) == ("qint8", -43)


def test_scalar_empty_and_nan() -> None:
    assert one(tf.constant(2.5)).values == (2.5,) and one(tf.constant(2.5)).shape == ()
    assert one(tf.zeros((0, 3))).word == "empty"
    assert one(tf.constant([[1.0, 2.0], [3.0, np.nan]])).nan == NonFinite(1, (1, 1))


def test_variables() -> None:
    variable = tf.Variable([1.0, 2.0], name="speed")
    assert (one(variable).kind, one(variable).values, one(variable).device) == ("variable", (1.0, 2.0), "cpu:0")
    variable.assign([5.0, 6.0])
    assert one(variable).values == (5.0, 6.0)
    mine = keras.Variable([[7.0]], name="mine", dtype="float32")
    assert (one(mine).kind, one(mine).values, one(mine).dtype) == ("keras variable", (7.0,), "float32")
    assert (variable_name(variable), variable_name(mine), variable_name(3)) == ("speed", "mine", "")


def test_a_variable_read_under_a_tape_is_not_watched() -> None:
    variable, mine = tf.Variable([1.0]), keras.Variable([1.0])
    with tf.GradientTape() as tape:
        assert one(variable).values == one(mine).values == (1.0,)
    assert tape.watched_variables() == ()


def test_looking_while_tracing_adds_no_op() -> None:
    variable, mine, eager = tf.Variable([1.0]), keras.Variable([2.0]), tf.constant([3.0])
    found = {}

    @tf.function(autograph=False)
    def traced(x: tf.Tensor) -> tf.Tensor:
        array = tf.TensorArray(tf.float32, 3)
        ragged = tf.RaggedTensor.from_row_lengths(x, [2, 1])
        slices = tf.IndexedSlices(x, tf.constant([0, 1, 2]))
        sparse = tf.SparseTensor(tf.zeros((3, 1), tf.int64), x, [5])
        count = len(tf.compat.v1.get_default_graph().get_operations())
        for name, value in locals().copy().items():
            found[name] = describe(value)
        found["outside"] = describe([variable, mine, eager])
        assert len(tf.compat.v1.get_default_graph().get_operations()) == count
        return x

    traced(tf.constant([1.0, 2.0, 3.0]))
    for name, shape in {"x": (3,), "ragged": (2, None), "slices": (None,), "sparse": (5,), "array": None}.items():
        assert (found[name].size, found[name].dtype, found[name].shape) == (None, "float32", shape)
        assert found[name].notes == ("no value: symbolic",)
    assert [row.summary.values for row in found["outside"]] == [(1.0,), (2.0,), (3.0,)]


def test_keras_tensor_specs_and_graph_variables() -> None:
    assert one(keras.Input((3,))).shape == (None, 3)
    assert one(keras.Input((3,))).notes == ("no value: symbolic",)
    assert one(tf.TensorSpec([None, 2], tf.int32)).notes == ("no value: spec",)
    assert one(tf.TensorSpec(None, tf.int32)).shape is None
    with tf.Graph().as_default():
        variable = tf.Variable([1.0])
        assert one(variable).notes == ("no value: variable of a graph",)


def test_ragged_indices_are_those_of_the_ragged_tensor() -> None:
    flat = tf.ragged.constant([[1.0, 2.0], [], [3.0, np.nan, 5.0]])
    found = one(flat)
    assert (found.kind, found.shape, found.size, found.nan) == ("ragged", (3, None), 5, NonFinite(1, (2, 1)))
    assert found.notes == ("ragged: 3 rows of 0 to 3",)
    deep = tf.ragged.constant([[[1.0]], [[2.0, 3.0], [], [4.0, np.inf]]])
    assert one(deep).posinf == NonFinite(1, (1, 2, 1))
    inner = tf.RaggedTensor.from_row_lengths(tf.constant([[1.0, 2.0], [3.0, -np.inf]]), [1, 1])
    assert one(inner).neginf == NonFinite(1, (1, 0, 1))
    for index, value in (((2, 1), flat), ((1, 2, 1), deep), ((1, 0, 1), inner)):
        assert not np.isfinite(value[index[0]][index[1]].numpy()).all()
    assert one(tf.ragged.constant([], ragged_rank=1)).word == "empty"


def test_sparse_stays_sparse() -> None:
    huge = tf.SparseTensor([[5, 7], [10**9, 3]], [1.0, np.nan], [2 * 10**9, 10**9])
    found = one(huge)
    assert (found.shape, found.size, found.nan) == ((2 * 10**9, 10**9), 2, NonFinite(1, (10**9, 3)))
    assert found.notes == ("sparse: 2 of 2000000000000000000 stored",)


def test_indexed_slices_as_embeddings_give_them() -> None:
    table = tf.Variable(tf.ones((10**6, 2)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [7, 3, 7]) * [[1.0], [np.nan], [2.0]])
    gradient = tape.gradient(loss, table)
    found = one(gradient)
    assert (found.kind, found.shape, found.size) == ("slices", (10**6, 2), 6)
    assert found.nan == NonFinite(2, (3, 0))
    assert found.notes == ("slices: 3 rows, 2 distinct",)


def test_tensor_array_is_not_cleared_by_looking() -> None:
    array = tf.TensorArray(tf.float32, 2, clear_after_read=True).write(0, 1.0).write(1, 2.0)
    assert one(array).notes == ("TensorArray of 2, not read",)
    assert (array.read(0).numpy(), array.read(1).numpy()) == (1.0, 2.0)


def test_tensor_array_of_a_graph_at_run_time() -> None:
    found = []

    @tf.function(autograph=False)
    def traced(x: tf.Tensor) -> tf.Tensor:
        array = tf.TensorArray(tf.float32, 2, element_shape=(2,)).write(0, x).write(1, x * 2.0)
        watch = tf.py_function(
            lambda flow: found.append(describe(tf.TensorArray(tf.float32, flow=flow))), [array.flow], []
        )
        with tf.control_dependencies([watch]):
            return array.stack()

    traced(tf.constant([1.0, np.nan]))
    assert found[0].notes == ("TensorArray",)
    assert (found[0].shape, found[0].nan) == ((2, 2), NonFinite(2, (0, 1)))


def test_handles_and_variants() -> None:
    assert one(tf.Variable(1.0).handle).notes == ("no value: resource",)
    variant = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=3, element_dtype=tf.float32)
    assert (one(variant).dtype, one(variant).notes) == ("variant", ("no value: variant",))


def test_datasets_and_their_elements() -> None:
    dataset = tf.data.Dataset.from_tensor_slices({"x": np.arange(6.0).reshape(3, 2), "y": [b"a", b"b", b"c"]}).batch(2)
    assert one(dataset).notes[0].startswith("elements {'x': TensorSpec")
    found = rows(next(iter(dataset)))
    assert found["['x']"].values == (0, 1, 2, 3) and found["['y']"].values == ("a", "b")
    assert one(iter(dataset)).kind == "dataset"


@pytest.mark.parametrize(
    ("value", "dtype", "values"),
    [
        (3, "int", (3,)), (2.5, "float", (2.5,)), (True, "bool", (True,)), (1j, "complex", (1j,)),
        ("cat", "str", ("cat",)), (b"cat", "bytes", ("cat",)), (np.float32(2), "float32", (2.0,)),
        (np.float64(2), "float64", (2.0,)), (enum.IntEnum("Mode", "A B").B, "Mode", (2,)), ([1, 2], "int64", (1, 2)),
        (((1.0, 2.0), (3.0, 4.0)), "float64", (1.0, 2.0, 3.0, 4.0)), (float("nan"), "float", None),
    ],
)  # fmt: skip
def test_python_and_numpy_values(value: Any, dtype: str, values: tuple | None) -> None:
    found = one(value)
    assert found.dtype == dtype
    assert found.values == values if values is not None else found.nan == NonFinite(1, ())


def test_none_huge_numbers_and_other_objects() -> None:
    assert (one(None).kind, one(None).dtype, summary(None)) == ("none", "None", "None")
    assert one(10**30).notes == ("1" + "0" * 30,)
    assert one(10**5000).size is None
    assert one(object).dtype == "type"
    assert one(lambda: 0).dtype == "function"
    assert one(np.ma.masked_array([1, 2], [True, False])).notes == ("mask ignored",)


def test_structures_keep_order_and_name_their_leaves() -> None:
    point = collections.namedtuple("point", "x y")

    @dataclasses.dataclass
    class State:
        step: Any
        inner: Any = None

    value = {"b": [tf.constant(1.0), None], "a": point(tf.zeros(3), State(tf.constant(2.0)))}
    assert list(rows(value)) == ["['b'][0]", "['b'][1]", "['a'].x", "['a'].y.step", "['a'].y.inner"]
    assert rows(value)["['a'].y.step"].values == (2.0,)
    assert rows([]) == rows({}) == {}
    assert list(rows([1, tf.constant(2)])) == ["[0]", "[1]"]
    assert list(rows([[1, 2], [3]])) == ["[0]", "[1]"]


def test_gradients_with_none() -> None:
    used, unused = tf.Variable([1.0, 2.0]), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.sqrt(used - 1.0))
    found = rows(tape.gradient(loss, [used, unused]))
    assert found["[0]"].posinf == NonFinite(1, (0,))
    assert found["[1]"].kind == "none"


def small_model() -> keras.Model:
    layers = [keras.layers.Dense(3, name="hidden"), keras.layers.Dense(1, name="out")]
    model = keras.Sequential([keras.Input((4,)), *layers], name="small")
    model.compile("adam", "mse")
    return model


def test_models_layers_and_optimizers_list_their_weights() -> None:
    model = small_model()
    names = ["small/hidden/kernel", "small/hidden/bias", "small/out/kernel", "small/out/bias"]
    for value in (model, model.weights, tuple(model.trainable_variables)):
        assert list(rows(value)) == names
    assert list(rows(model.layers[0])) == names[:2]
    assert any(re.fullmatch(r"adam(_\d+)?/learning_rate", name) for name in rows(model.optimizer))

    class Module(tf.Module):
        def __init__(self) -> None:
            self.w = tf.Variable([1.0], name="w")

    assert rows(Module())["w"].values == (1.0,)
    assert list(rows({"mine": Module()})) == ["w"]


def test_mixed_precision_shows_the_stored_type() -> None:
    layer = keras.layers.Dense(2, dtype="mixed_float16")
    layer.build((None, 3))
    assert {row.dtype for row in rows(layer).values()} == {"float32"}


REPLICAS = """
import tensorflow as tf
from tfdb.tensors import describe
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    variable = tf.Variable([1.0, 2.0], name="shared")
result = strategy.run(lambda: tf.constant([3.0]) + float(tf.distribute.get_replica_context().replica_id_in_sync_group))
for row in describe({"x": result, "v": [variable]}):
    print(row.name, row.summary.device, row.summary.values, *row.summary.notes)
"""


def test_replicas() -> None:
    run = subprocess.run([sys.executable, "-c", REPLICAS], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert run.stdout.split("\n") == [
        "['x'] replica 0 cpu:0 (3.0,)",
        "['x'] replica 1 cpu:1 (4.0,)",
        "shared cpu:0 (1.0, 2.0) replica 0 of 2",
        "",
    ], run.stderr


def test_extension_type() -> None:
    class Masked(tf.experimental.ExtensionType):
        values: tf.Tensor
        mask: tf.Tensor

    found = rows(Masked(values=[1.0, 2.0], mask=[True, False]))
    assert (found[".values"].values, found[".mask"].values) == ((1.0, 2.0), (True, False))


class Sour:
    """Everything about it raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}\nand more")


class Shy:
    """Looks like an array until it is read."""

    dtype, shape = np.dtype("float32"), (2,)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise OSError("gone")


def test_values_that_raise_become_notes() -> None:
    assert one(Sour()).notes[0].startswith("cannot be read: RuntimeError: no ")
    assert one(Shy()).notes == ("cannot be read: OSError: gone",)
    found = rows([Sour(), tf.constant(1.0), Shy()])
    assert found["[1]"].values == (1.0,) and found["[0]"].size is found["[2]"].size is None
    assert "cannot be read" in summary([Sour()])


def test_a_structure_within_itself_ends() -> None:
    loop: list[Any] = [tf.constant(1.0)]
    loop.append({"self": loop})
    assert list(rows(loop)) == ["[0]", "[1]['self']"]
    deep: Any = tf.constant(1.0)
    for _ in range(50):
        deep = {"d": deep}
    assert len(rows(deep)) == 1


def test_large_structures_are_cut_and_counted() -> None:
    found = describe([None] * 1500)
    assert isinstance(found, tuple) and len(found) == 1001
    assert found[-1].summary.notes == ("500 more",)


def test_to_array_shares_memory_and_explains_itself() -> None:
    tensor = tf.random.normal((100, 100))
    assert np.shares_memory(to_array(tensor), to_array(tensor))
    assert to_array(keras.Variable([1.0])).tolist() == [1.0]
    assert to_array(tf.sparse.from_dense([[0.0, 2.0]])).tolist() == [2.0]
    with pytest.raises(ValueError, match="no value: symbolic"):
        to_array(keras.Input((3,)))
    with pytest.raises(ValueError, match="no value: resource"):
        to_array(tf.Variable(1.0).handle)
    with pytest.raises(ValueError, match="gone"):
        to_array(Shy())


def test_short_device() -> None:
    assert short_device("/job:localhost/replica:0/task:0/device:CPU:0") == "cpu:0"
    assert short_device("/job:worker/replica:0/task:1/device:GPU:3") == "gpu:3"
    assert short_device("/device:TPU:1") == short_device("TPU:1") == "tpu:1"
    assert short_device(None) == short_device("") == ""


def test_summary_is_text_within_the_width() -> None:
    assert summary(tf.constant([1.0, 2.0]), 80) == "float32(2,) cpu:0 8B  [1, 2]  μ 1.5 σ 0.5"
    text = summary(small_model(), 50)
    assert len(text.split("\n")) == 4 and max(map(len, text.split("\n"))) <= 50
