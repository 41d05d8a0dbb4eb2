"""Every kind of local at a graph stop: run-time values inside structures, Python values as they were while tracing."""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from stops import values, visits

import tfdb
from transcripts import play


def at_stop(tf: Any, make: Callable[[Any], Any], *expressions: str, runs: tuple[float, ...] = (1.0, 2.0)) -> list[Any]:
    """The expressions in a function whose local `z` is `make(x)`, at one stop for each x."""

    @tf.function
    def function(x: Any) -> Any:
        z = make(x)
        tfdb.set_trace()
        return tf.identity(x), z is None

    return values(lambda: [function(tf.constant(run)) for run in runs], *expressions)


class Point(NamedTuple):
    x: Any
    name: str


@dataclasses.dataclass
class Pair:
    left: Any
    right: Any
    label: str = "pair"


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


KINDS: dict[str, tuple[Callable[[Any, Any], Any], str, list[Any]]] = {
    "tuple": (lambda tf, x: (x, "a", (x + 1,)), "z", [(1, "a", (2,)), (2, "a", (3,))]),
    "list": (lambda tf, x: [x, [x * 2, None]], "z", [[1, [2, None]], [2, [4, None]]]),
    "dict": (lambda tf, x: {"a": x, "b": {"c": x + 5}}, "z", [{"a": 1, "b": {"c": 6}}, {"a": 2, "b": {"c": 7}}]),
    "ordered": (
        lambda tf, x: collections.OrderedDict(a=x),
        "type(z).__name__, z['a']",
        [("OrderedDict", 1), ("OrderedDict", 2)],
    ),
    "default": (
        lambda tf, x: collections.defaultdict(int, a=x),
        "type(z).__name__, z['a'], z['none']",
        [("defaultdict", 1, 0), ("defaultdict", 2, 0)],
    ),
    "deque": (lambda tf, x: collections.deque([x], maxlen=3), "z.maxlen, z[0]", [(3, 1), (3, 2)]),
    "namedtuple": (
        lambda tf, x: Point(x, "p"),
        "z.x, z.name, type(z).__name__",
        [(1, "p", "Point"), (2, "p", "Point")],
    ),
    "dataclass": (lambda tf, x: Pair(x, [x + 1]), "z.left, z.right, z.label", [(1, [2], "pair"), (2, [3], "pair")]),
    "frozen": (lambda tf, x: Frozen(x), "z.value, type(z).__name__", [(1, "Frozen"), (2, "Frozen")]),
    "ragged": (lambda tf, x: tf.RaggedTensor.from_row_lengths([x, x, x], [1, 2]), "z", [[[1], [1, 1]], [[2], [2, 2]]]),
    "sparse": (lambda tf, x: tf.SparseTensor([[1]], [x], [3]), "tf.sparse.to_dense(z)", [[0, 1, 0], [0, 2, 0]]),
    "slices": (
        lambda tf, x: tf.IndexedSlices(x[None], tf.constant([2]), tf.constant([3])),
        "tf.convert_to_tensor(z)",
        [[0, 0, 1], [0, 0, 2]],
    ),
    "array": (lambda tf, x: tf.TensorArray(tf.float32, 2).write(0, x).write(1, x + 1), "z.stack()", [[1, 2], [2, 3]]),
    "string": (lambda tf, x: tf.strings.as_string(x, precision=1), "z", [b"1.0", b"2.0"]),
    "bool": (lambda tf, x: x > 1, "z", [False, True]),
    "complex": (lambda tf, x: tf.complex(x, -x), "z", [1 - 1j, 2 - 2j]),
    "bfloat16": (lambda tf, x: tf.cast(x, tf.bfloat16), "float(z), z.dtype.name", [(1, "bfloat16"), (2, "bfloat16")]),
    "float8": (
        lambda tf, x: tf.cast(x, tf.dtypes.experimental.float8_e4m3fn),
        "float(z), z.dtype.name",
        [(1, "float8_e4m3fn"), (2, "float8_e4m3fn")],
    ),
    "int64": (lambda tf, x: tf.cast(x, tf.int64) + 2**40, "z", [2**40 + 1, 2**40 + 2]),
    "empty": (lambda tf, x: tf.zeros([0, 3]) + x, "z.shape.as_list()", [[0, 3], [0, 3]]),
    "none": (lambda tf, x: None, "z is None, x", [(True, 1), (True, 2)]),
    "optional": (
        lambda tf, x: tf.experimental.Optional.from_value(x),
        "z.get_value()",
        [1, 2],
    ),
    "variant": (
        lambda tf, x: tf.raw_ops.TensorListFromTensor(tensor=x[None], element_shape=tf.constant([], tf.int32)),
        "z.dtype.name",
        ["variant"] * 2,
    ),
    "resource": (
        lambda tf, x: tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="here"),
        "z.dtype.name",
        ["resource"] * 2,
    ),
    "numbers": (
        lambda tf, x: [1, 2.5, "text", b"bytes", None, True],
        "z",
        [[1, 2.5, "text", b"bytes", None, True]] * 2,
    ),
    "function": (lambda tf, x: functools.partial(max, 3), "z(1)", [3, 3]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_values(tf: Any, kind: str) -> None:
    make, expression, expected = KINDS[kind]
    assert at_stop(tf, lambda x: make(tf, x), expression) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_printed(tf: Any, kind: str) -> None:
    make, _, _ = KINDS[kind]

    @tf.function
    def function(x: Any) -> Any:
        z = make(tf, x)
        tfdb.set_trace()
        return tf.identity(x), z is None

    output = play(
        lambda: function(tf.constant(1.0)), "...\n(tfdb) p z\n...\n(tfdb) pp z\n...\n(tfdb) pt z\n...\n(tfdb) c\n"
    )
    assert "could not stop" not in output
    assert "<tf.Tensor '" not in output  # as in the repr of a tensor without a value


def test_attributes_of_self(tf: Any) -> None:
    class Model:
        scale = 2.0

        def __init__(self) -> None:
            self.last: Any = None
            self.weight = tf.Variable(10.0)
            self.parts = {"k": 3}

        @tf.function
        def __call__(self, x: Any) -> Any:
            self.last = x * self.scale
            self.weight.assign_add(1.0)
            tfdb.set_trace()
            return self.last + self.weight

        @classmethod
        def name(cls, x: Any) -> Any:
            tfdb.set_trace()
            return x

    model = Model()
    found = values(
        lambda: [model(tf.constant(n)) for n in (1.0, 2.0)], "self.last", "self.weight", "self.parts['k']", "self.scale"
    )
    assert found == [(2, 11, 3, 2), (4, 12, 3, 2)]
    tracer = tf.function(Model.name)
    assert values(lambda: tracer(tf.constant(5.0)), "cls.__name__", "x") == [("Model", 5.0)]


def test_arguments(tf: Any) -> None:
    @tf.function
    def many(first: Any, *rest: Any, key: Any = None, **others: Any) -> Any:
        tfdb.set_trace()
        return first

    play(
        lambda: many(tf.constant(1), tf.constant(2), 3, key="k", more=tf.constant(4)),
        """
        graph stop · many · pass 1
        > ...many()
        -> tfdb.set_trace()
        (tfdb) a
        first = <tf.Tensor: shape=(), dtype=int32, numpy=1>
        key = 'k'
        rest = (<tf.Tensor: shape=(), dtype=int32, numpy=2>, 3)
        others = {'more': <tf.Tensor: shape=(), dtype=int32, numpy=4>}
        (tfdb) c
        """,
    )


def test_closures(tf: Any) -> None:
    @tf.function
    def outer(x: Any) -> Any:
        k = x * 10
        python = "told"

        def inner(y: Any) -> Any:
            z = y + k
            tfdb.set_trace()
            return z, python

        return inner(x + 1)

    assert values(lambda: [outer(tf.constant(n)) for n in (1.0, 2.0)], "y", "z", "k", "python") == [
        (2, 12, 10, "told"),
        (3, 23, 20, "told"),
    ]


def test_a_closure_over_the_tensors_of_an_outer_graph(tf: Any) -> None:
    @tf.function
    def outer(x: Any) -> Any:
        k = x * 10

        @tf.function
        def inner(y: Any) -> Any:
            tfdb.set_trace()
            return y + k

        return inner(x + 1)

    results = []
    assert values(lambda: results.extend(float(outer(tf.constant(n))) for n in (1.0, 2.0)), "y", "k") == [
        (2, 10),
        (3, 20),
    ]
    assert results == [12.0, 23.0]


def test_lambdas_generators_comprehensions_and_decorators(tf: Any) -> None:
    def stop(value: Any) -> Any:
        tfdb.set_trace()
        return value

    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args) + 100

        return wrapper

    @decorated
    def shifted(x: Any) -> Any:
        tfdb.set_trace()
        return x + 1

    def produce(x: Any) -> Any:
        for n in range(2):
            y = x + n
            tfdb.set_trace()
            yield y

    @tf.function
    def function(x: Any) -> Any:
        a = (lambda value: stop(value * 2))(x)
        b = [stop(item) for item in (x, a)]
        c = list(produce(x))
        return shifted(x), a, b, c

    found = visits(
        lambda: function(tf.constant(1.0)), "locals().get('value')", "locals().get('n')", "locals().get('x')"
    )
    assert [(visit.place.split(":")[0], visit.values) for visit in found] == [
        ("stop", (2, None, None)),
        ("stop", (1, None, None)),
        ("stop", (2, None, None)),
        ("produce", (None, 0, 1)),
        ("produce", (None, 1, 1)),
        ("shifted", (None, None, 1)),
    ]
    assert found[-1].stack[-2] == "wrapper: return function(*args) + 100"
    assert found[0].stack[-2:-1] == ("<lambda>: a = (lambda value: stop(value * 2))(x)",)


def test_comprehension_variables_at_the_prompt(tf: Any) -> None:
    @tf.function
    def function(x: Any) -> Any:
        tfdb.set_trace()
        return x

    expressions = [
        "[x + n for n in range(2)]",
        "(lambda y: x + y)(5)",
        "{n: float(x) for n in 'ab'}",
        "sorted(locals())",
    ]
    assert values(lambda: function(tf.constant(1.0)), *expressions) == [([1, 2], 6, {"a": 1, "b": 1}, ["x"])]


def test_python_values_are_those_of_tracing(tf: Any) -> None:
    seen: list[int] = []
    record = {"count": 0}

    @tf.function
    def function(x: Any) -> Any:
        collected = []
        for n in range(3):
            seen.append(n)
            record["count"] += 1
            collected.append(x + n)
            tfdb.set_trace()
        return collected

    found = values(
        lambda: [function(tf.constant(n)) for n in (1, 5)], "n", "list(seen)", "record['count']", "collected"
    )
    first = [(0, [0], 1, [1]), (1, [0, 1], 2, [1, 2]), (2, [0, 1, 2], 3, [1, 2, 3])]
    assert found == [*first, *((n, kept, count, [x + 4 for x in xs]) for n, kept, count, xs in first)]


def test_variables_show_their_value_at_that_point(tf: Any) -> None:
    class Holder:
        def __init__(self) -> None:
            self.count = tf.Variable(0)

    holder = Holder()
    shown = tf.Variable(100)

    @tf.function
    def bump() -> None:
        holder.count.assign_add(1)
        tfdb.set_trace()
        shown.assign_sub(1)

    @tf.function
    def function(x: Any) -> Any:
        tfdb.set_trace()
        holder.count.assign_add(10)
        tfdb.set_trace()
        for _ in tf.range(2):
            holder.count.assign_add(x)
            tfdb.set_trace()
            bump()
        holder.count.assign(0)
        shown.assign(100)
        return x

    found = values(lambda: [function(tf.constant(n)) for n in (100, 200)], "holder.count", "shown")
    first = [(0, 100), (10, 100), (110, 100), (111, 100), (211, 99), (212, 99)]
    second = [(0, 100), (10, 100), (210, 100), (211, 100), (411, 99), (412, 99)]
    assert found == [*first, *second]


def test_huge_locals_are_not_copied(tf: Any) -> None:
    huge = list(range(1_000_000))
    nested = [[0] * 500 for _ in range(500)]

    @tf.function
    def function(x: Any) -> Any:
        mine, deep = huge, nested
        tfdb.set_trace()
        return x, len(mine), len(deep)

    assert values(lambda: function(tf.constant(1.0)), "mine is huge", "len(deep)", "x") == [(True, 500, 1.0)]


def test_a_container_that_holds_itself(tf: Any) -> None:
    def make(x: Any) -> Any:
        loop: list[Any] = [x]
        loop.append(loop)
        return loop

    assert at_stop(tf, make, "z[0]", "z[1][0]") == [(1, 1), (2, 2)]


def test_objects_that_fight_being_looked_at(tf: Any) -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

        def __getattr__(self, name: str) -> Any:
            raise ValueError(name)

    @tf.function
    def function(x: Any) -> Any:
        rude = Rude()
        tfdb.set_trace()
        return x, rude is None

    play(
        lambda: function(tf.constant(1.0)),
        """
        ...
        (tfdb) p rude
        ...RuntimeError...
        (tfdb) p float(x) / 0
        *** ZeroDivisionError: float division by zero
        (tfdb) p nothing
        *** NameError: name 'nothing' is not defined
        (tfdb) p x + 1
        <tf.Tensor: shape=(), dtype=float32, numpy=2.0>
        (tfdb) c
        """,
    )


def test_everything_can_be_evaluated_at_the_prompt(tf: Any) -> None:
    import keras

    @tf.function
    def helper(value: Any) -> Any:
        total = tf.constant(0.0)
        for n in tf.range(3):
            total += value * tf.cast(n, tf.float32)
        return total

    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, kernel_initializer="ones")])
    weight = tf.Variable(3.0)

    @tf.function
    def function(x: Any) -> Any:
        y = x * weight
        tfdb.set_trace()
        return helper(y), model(tf.reshape(y, [1, 1]))

    play(
        lambda: function(tf.constant(2.0)),
        """
        ...
        (tfdb) p helper(y)
        <tf.Tensor: shape=(), dtype=float32, numpy=18.0>
        (tfdb) p float(model(tf.reshape(y, [1, 1]))[0, 0])
        6.0
        (tfdb) !with tf.GradientTape() as tape: loss = weight ** 2
        (tfdb) p float(tape.gradient(loss, weight))
        6.0
        (tfdb) !extra = y + 1
        (tfdb) p float(extra)
        7.0
        (tfdb) pp {"y": float(y)}
        {'y': 6.0}
        (tfdb) p [float(each) for each in tf.data.Dataset.range(2).map(lambda n: n * 2)]
        [0.0, 2.0]
        (tfdb) whatis y
        <class '...EagerTensor'>
        (tfdb) display float(y)
        display float(y): 6.0
        (tfdb) n
        ...
        (tfdb) c
        """,
    )
