"""Variables of subclassed and nested models, modules, tf_keras -> the names shown, the names that watches match."""

import threading
from typing import Any

import pytest

import tfdb
from tfdb import conditions, internals_callbacks, nonegrads, tapes, varnames
from transcripts import play


def three(keras: Any) -> Any:
    """A model of three layers, one held by an attribute of another name, one in a list, one in a nested model."""

    class Inner(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="inner")
            self.last = keras.layers.Dense(1, name="out")

        def call(self, x: Any) -> Any:
            return self.last(x)

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.enc = keras.layers.Dense(3, name="enc")
            self.aux = keras.layers.Dense(2, name="side")
            self.heads = [keras.layers.Dense(1, name="first")]
            self.inner = Inner()

        def call(self, x: Any) -> Any:
            h = self.enc(x)
            return self.inner(h), self.aux(h), self.heads[0](h)

    return Net()


def test_what_a_tape_and_a_graph_hold_is_called_by_the_keras_path(tf: Any) -> None:
    """The tf.Variables inside have the path of the Keras variable around them, all different."""
    import keras

    net = three(keras)
    x = tf.ones([2, 4])
    net(x)
    paths = [variable.path for variable in net.variables]
    with tf.GradientTape() as tape:
        net(x)
    assert sorted(varnames.name_of(variable) for variable in tape.watched_variables()) == sorted(paths)
    graph = tf.function(lambda x: net(x)).get_concrete_function(x).graph
    assert {varnames.name_of(variable) for variable in graph.variables} == set(paths)
    assert {varnames.name_of_handle(variable.handle, "") for variable in graph.variables} == set(paths)


@pytest.mark.parametrize(("scope", "stops"), [("side", 1), ("^aux/", 1), ("net/side/kernel", 1), ("enc", 0), ("zz", 0)])
def test_watch_none_matches_paths_and_attributes(tf: Any, scope: str, stops: int) -> None:
    """`in REGEX` means the Keras path, or the attributes of the model that lead there."""
    import keras

    net = three(keras)
    x = tf.ones([2, 4])
    net(x)
    names = told(tf, scope, lambda: net(x)[0], [variable.value for variable in net.trainable_variables])
    assert len(names) == stops
    assert all("net/side/kernel" in each for each in names)


def test_attributes_of_modules_and_of_tf_keras(tf: Any) -> None:
    """Lists, nested modules and layers of tf_keras are matched by their attributes too."""
    tf_keras = pytest.importorskip("tf_keras")

    class Part(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable([1.0], name="weight")

    class Whole(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.parts, self.aux = [Part(), Part()], Part()

    whole, net = Whole(), three(tf_keras)
    x = tf.ones([2, 4])
    net(x)
    known = varnames.known_as(["weight"])
    assert {"parts/0/w", "parts/1/w", "aux/w"} <= set(known)
    assert [len(told(tf, scope, lambda: whole.aux.w, [whole.parts[0].w])) for scope in ("parts/0", "zz")] == [1, 0]
    assert len(told(tf, "^aux/kernel", lambda: net(x)[0], net.trainable_variables)) == 1


def told(tf: Any, scope: str, loss: Any, sources: Any) -> list[tuple[str, ...]]:
    """What the watch stopped for, by the names of the trip's place."""
    stops: list[tuple[str, ...]] = []
    watch = conditions.parse(f"none in {scope}")
    nonegrads.watch.install([watch], lambda trip, origin: stops.append(tuple(trip.place.names)))
    try:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(loss())
        tape.gradient(value, sources)
    finally:
        nonegrads.watch.remove()
    return stops


def test_variables_that_nothing_of_keras_owns_are_not_searched_for_forever(tf: Any) -> None:
    """A program that makes variables of one name in each step is not slowed down by searches for owners."""
    import keras  # noqa: F401

    for _ in range(6):
        assert varnames.name_of(tf.Variable(1.0, name="made_each_step")) == "made_each_step"
    assert varnames.paths.in_vain["made_each_step"] == varnames.IN_VAIN


def test_all_variables_of_a_module_take_two_searches(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables with names of their own are not searched for one by one; Keras' are found by the same searches."""
    import keras

    layer = keras.layers.Dense(1, name="beside")
    layer.build((None, 2))
    made = [tf.Variable([1.0], name=f"block_{number}/w") for number in range(8)]
    searched = []
    search = varnames.Paths.search
    monkeypatch.setattr(varnames.Paths, "search", lambda paths: searched.append(search(paths)))
    assert [varnames.name_of(each) for each in made] == [f"block_{number}/w" for number in range(8)]
    assert varnames.name_of(layer.kernel._value) == "beside/kernel"
    assert len(searched) <= 2


def test_what_is_hooked_on_one_thread_or_in_a_graph_is_unhooked_from_any_place(tf: Any) -> None:
    """Op callbacks are each thread's own: taken away elsewhere, or while set aside, they are gone and nothing fails."""
    seen: list[str] = []

    def on_op(op: str, *_: Any, **__: Any) -> None:
        seen.append(op)

    internals_callbacks.remove_op_callback(on_op)
    thread = threading.Thread(target=internals_callbacks.remove_op_callback, args=(on_op,))
    thread.start()
    thread.join()
    internals_callbacks.add_op_callback(on_op)
    with internals_callbacks.without_op_callbacks():
        internals_callbacks.remove_op_callback(on_op)
    tf.constant(1.0) + 1.0
    assert not seen

    @tf.function  # type: ignore[untyped-decorator]
    def traced(x: Any) -> Any:
        internals_callbacks.add_op_callback(on_op)
        return x + 1.0

    traced(tf.constant(1.0))
    seen.clear()
    tf.constant(1.0) + 1.0
    assert seen, "eager ops are heard after a callback was added in a graph"
    internals_callbacks.remove_op_callback(on_op)


@pytest.mark.parametrize("where", ["thread", "aside"])
def test_the_log_of_ops_is_put_back_from_anywhere(tf: Any, where: str) -> None:
    """`watch none` set on one thread is taken away on another, or in a block without callbacks."""
    nonegrads.watch.install([conditions.parse("none")], lambda trip, origin: None)
    if where == "thread":
        thread = threading.Thread(target=nonegrads.watch.remove)
        thread.start()
        thread.join()
    else:
        with internals_callbacks.without_op_callbacks():
            nonegrads.watch.remove()
    tf.constant(1.0) + 1.0
    assert not tapes.log.logging and not tapes.log.ops
    tf.constant(1.0) + 1.0


def test_why_of_a_gradient_that_is_there(tf: Any) -> None:
    """Nothing is cut: its values are told, and the variable it belongs to."""
    v, w = tf.Variable([2.0], name="v"), tf.Variable([1.0], name="w")

    def program() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * 3.0 + w)
        grads = tape.gradient(loss, [v, w])
        tfdb.set_trace()
        del grads

    play(
        program,
        """
        > ...
        -> ...
        (tfdb) why grads[0]
        grads[0], the gradient of v, is there, nothing cuts it: float32(1,)...3...
        (tfdb) c
        """,
    )


def test_unnamed_variables_of_a_module_are_called_by_their_attributes(tf: Any) -> None:
    """A module's variables that were given no name are shown, and matched, as the program reaches them."""

    class Part(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable([1.0])

    class Whole(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.enc, self.aux = Part(), Part()

    net = Whole()
    stops: list[tuple[str, ...]] = []
    nonegrads.watch.install([conditions.parse("none in aux")], lambda trip, origin: stops.append(trip.place.names))
    try:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(net.enc.weight * 2.0)
        tape.gradient(value, [net.enc.weight, net.aux.weight])
    finally:
        nonegrads.watch.remove()
    assert [tuple(each) for each in stops] == [("net.aux.weight",)]
