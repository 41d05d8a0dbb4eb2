"""State taken and put back: every kind of variable, the random generators, Python values."""

from typing import Any

import numpy as np
import pytest

from tfdb import state
from tfdb.state import PythonState


def test_every_kind_of_variable_is_put_back_bit_by_bit(tf: Any) -> None:
    dtypes = ["float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "bool", "complex64"]
    variables = [tf.Variable(tf.cast(tf.constant([0, 1, 3]), dtype)) for dtype in dtypes]
    odd = tf.Variable(np.array([0x7FC00123, 0xFF800000, 0x80000000], "uint32").view("float32"))  # nan with a payload
    text = tf.Variable(["a", "b"])
    unshaped = tf.Variable([1.0], shape=tf.TensorShape(None))
    before = [variable.numpy().tobytes() for variable in [*variables, odd]]
    with state.set_aside():
        for variable in variables:
            variable.assign(tf.zeros_like(variable))
        odd.assign([1.0, 2.0, 3.0])
        text.assign(["c", "d"])
        unshaped.assign([[1.0, 2.0]])
    assert [variable.numpy().tobytes() for variable in [*variables, odd]] == before
    assert text.numpy().tolist() == [b"a", b"b"]
    assert unshaped.numpy().tolist() == [1.0]


def test_optimizer_seeds_metrics_and_generators_are_put_back(tf: Any) -> None:
    import keras

    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
    model.fit(x, y, verbose=0)
    generator = tf.random.Generator.from_seed(3)

    def everything() -> list[bytes]:
        kept = [*model.variables, *model.optimizer.variables, *model.metrics_variables, generator.state]
        return [np.asarray(variable).tobytes() for variable in kept]

    before = everything()
    with state.set_aside():
        model.fit(x, y, verbose=0)
        generator.normal([3])
        assert everything() != before
    assert everything() == before


def test_a_variable_made_before_its_first_value_does_not_matter(tf: Any) -> None:
    store: list = []

    @tf.function
    def make() -> Any:
        if not store:
            store.append(tf.Variable(1.0))
        return store[0].assign_add(1.0)

    with state.set_aside():
        make()
    assert float(make()) == 3.0


def test_random_numbers_go_on_as_if_nothing_had_run(tf: Any) -> None:
    import random

    def draws() -> list[float]:
        return [random.random(), float(np.random.rand()), float(tf.random.normal([])), float(tf.random.uniform([]))]

    def seed() -> None:
        random.seed(1)
        np.random.seed(1)
        tf.random.set_seed(1)

    seed()
    expected = [draws(), draws()]
    seed()
    found = [draws()]
    with state.set_aside():
        draws()
        tf.random.set_seed(5)
        draws()
    assert [*found, draws()] == expected


def test_the_state_at_the_call_is_set_and_then_the_present_one(tf: Any) -> None:
    v = tf.Variable(1.0)
    then = state.take([v])
    v.assign(2.0)
    with state.set_aside(then) as began:
        assert float(v) == 1.0
        v.assign_add(5.0)
        assert [variable is v for variable, _, _ in state.changed(began)].count(True) == 1
    assert float(v) == 2.0


def test_what_the_block_writes_stays_on_demand(tf: Any) -> None:
    v = tf.Variable(1.0)
    with state.set_aside(keep=True):
        v.assign(4.0)
    assert float(v) == 4.0


def test_state_is_put_back_after_an_error(tf: Any) -> None:
    v = tf.Variable(1.0)
    with pytest.raises(ZeroDivisionError), state.set_aside():
        v.assign(4.0)
        _ = 1 / 0
    assert float(v) == 1.0


def test_a_kept_value_takes_no_memory_until_the_variable_is_written(tf: Any) -> None:
    v = tf.Variable(tf.ones([1000]))
    kept = state.take([v])
    assert state.changed(kept) == []
    v.scatter_nd_update([[3]], [7.0])
    (found,) = state.changed(kept)
    assert found[0] is v
    assert float(found[1][3]) == 1.0
    assert float(found[2][3]) == 7.0
    assert kept.nbytes == 4000


def test_equal_names_are_told_apart(tf: Any) -> None:
    first, second = tf.Variable(1.0, name="w"), tf.Variable(2.0, name="w")
    assert list(state.names([first, second]).values()) == ["w", "w (2)"]


def test_python_values_and_the_contents_of_containers_are_put_back(tf: Any) -> None:
    tensor = tf.constant([1.0, 2.0])
    namespace: dict[str, Any] = {"count": 1, "seen": [tensor], "by_name": {"a": tensor}, "names": {"a"}}
    kept = PythonState.take([(namespace, name) for name in ["count", "seen", "by_name", "names", "new"]])
    seen = namespace["seen"]
    namespace["count"] += 1
    namespace["new"] = 3
    seen.append(tf.constant([3.0]))
    namespace["by_name"]["b"] = tensor
    namespace["names"] = {"c"}
    kept.put()
    assert namespace["count"] == 1
    assert "new" not in namespace
    assert namespace["seen"] is seen
    assert seen == [tensor] or seen[0] is tensor and len(seen) == 1
    assert list(namespace["by_name"]) == ["a"]
    assert namespace["names"] == {"a"}
