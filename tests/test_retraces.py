"""`retraces`: which argument changed, from what to what, who called, what to do; lines that run only at tracing."""

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfdb
from tfdb import traces
from tfdb.graphrecords import Leaf, Trace
from tfdb.tracingonly import tracing_only
from transcripts import play


def leaf(path: str, kind: str = "tensor", text: str = "", dtype: str = "", shape: Any = None) -> Leaf:
    return Leaf(path, kind, text or f"{dtype}{shape}", dtype, shape)


def test_a_change_of_shape_names_the_argument_and_the_signature(tf: Any) -> None:
    @tf.function
    def pool(tokens: Any, scale: Any) -> Any:
        return tf.reduce_sum(tokens, axis=1) * scale

    def program() -> None:
        for length in (3, 4, 5, 4):
            pool(tf.ones([2, length]), tf.constant(1.0))
        tfdb.set_trace()
        print(pool.experimental_get_tracing_count())

    play(
        program,
        """
        ...
        (tfdb) retraces pool
        pool: 3 traces for 4 calls
            1  tokens: float32(2, 3), scale: float32()
            2  tokens: float32(2, 3) -> float32(2, 4)
            3  tokens: float32(2, 4) -> float32(2, 5)
          what to do  tokens: input_signature with tf.TensorSpec([2, None], tf.float32)
                      or reduce_retracing=True takes all these shapes in one trace
        (tfdb) c
        3
        """,
    )


def test_the_line_that_called_is_told_while_a_session_watches(tf: Any) -> None:
    @tf.function
    def scaled(x: Any, n: Any) -> Any:
        return x * n

    def program() -> None:
        tfdb.set_trace()
        for n in (1, 2):
            scaled(tf.ones([2]), n)
        tfdb.set_trace()
        print("end")

    play(
        program,
        """
        ...
        (tfdb) retraces
        no trace is on record yet: python -m tfdb records them from the start
        (tfdb) c
        ...
        (tfdb) retraces scaled
        scaled: 2 traces for 2 calls
            1  x: float32(2,), n: 1   called at test_retraces.py:...
            2  n: 1 -> 2   called at test_retraces.py:...
          what to do  n: a Python value is part of the graph; pass a tensor,
                      tf.constant(n)
        (tfdb) retraces
          scaled  test_retraces.py:...    2 traces  because of n (python)
        (tfdb) retraces nothing
        *** NameError: name 'nothing' is not defined
        (tfdb) retraces print
        *** print is no tf.function, and none that was traced calls it
        (tfdb) c
        end
        """,
    )


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (lambda tf: [(tf.ones(2),), (tf.ones(2, tf.int32),)], ("x: float32(2,) -> int32(2,)", "convert to one dtype")),
        (
            lambda tf: [(tf.ones(2),), (tf.ones([2, 2]),)],
            ("x: float32(2,) -> float32(2, 2)", "tf.TensorSpec(None, tf.float32)"),
        ),
        (
            lambda tf: [([tf.ones(2)],), ([tf.ones(2)] * 2,)],
            ("x[1]: absent -> float32(2,)", "x: a list's length is part"),
        ),
        (lambda tf: [({"a": tf.ones(2)},), ({"b": tf.ones(2)},)], ("x['a']: float32(2,) -> absent", "dict keys")),
        (lambda tf: [(1.0,), (tf.ones([]),)], ("x: 1.0 -> float32()", "pass the same type")),
        (lambda tf: [("a",), ("b",)], ("x: 'a' -> 'b'", "each value needs its own graph")),
        (lambda tf: [(True,), (False,)], ("x: True -> False", "each of its values has a graph of its own")),
        (lambda tf: [(tf.Variable(1.0),), (tf.Variable([1.0]),)], ("x: float32() -> float32(1,)", "tf.TensorSpec")),
    ],
)
def test_what_changed_and_what_to_do(tf: Any, calls: Callable[[Any], list], expected: tuple[str, str]) -> None:
    @tf.function
    def f(x: Any) -> Any:
        return tf.constant(0)

    kept = calls(tf)
    for arguments in kept:
        f(*arguments)
    made = traces.history(f, (), traces.Recorder())
    explained = traces.explain(made)
    assert expected[0] in [f"{each.path}: {each.before} -> {each.after}" for each in explained[1]]
    assert any(expected[1] in line for line in traces.advice(made, False, False))


def test_what_reduce_retracing_has_widened_is_said(tf: Any) -> None:
    @tf.function(reduce_retracing=True)
    def f(x: Any) -> Any:
        return x + 1.0

    for size in (1, 2, 3):
        f(tf.ones([size, 2]))
    made = traces.history(f, (), traces.Recorder())
    assert [trace.leaves[0].shape for trace in made] == [(1, 2), (None, 2)]
    assert traces.advice(made, True, False) == [
        "x: reduce_retracing has widened it to float32(?, 2), which takes all these shapes"
    ]


def test_new_objects_are_told_from_each_other(tf: Any) -> None:
    class Config:
        pass

    @tf.function
    def f(config: Any) -> Any:
        return tf.constant(0)

    one, other = Config(), Config()
    f(one), f(other)
    made = traces.history(f, (), traces.Recorder())
    change = traces.explain(made)[1][0]
    assert change.kind == "object" and change.before != change.after and "Config object at 0x" in change.after
    assert "make it once and reuse it" in traces.advice(made, False, False)[0]


def test_the_second_trace_after_variables_were_made_is_explained(tf: Any) -> None:
    state: dict[str, Any] = {}

    @tf.function
    def count(x: Any) -> Any:
        if not state:
            state["v"] = tf.Variable(0.0)
        return state["v"].assign_add(x)

    count(tf.constant(1.0))
    count(tf.constant(1.0))
    made = traces.history(count, (), traces.Recorder())
    assert len(made) == 2
    assert traces.explain(made)[1][0].kind == "variables"
    assert "make them before" in traces.advice(made, False, False)[0]


def test_a_function_called_from_another_graph_is_not_a_retrace(tf: Any) -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return x + 1.0

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x)

    inner(tf.ones([2]))
    outer(tf.ones([2]))
    assert len(traces.history(inner, (), traces.Recorder())) == 1


def test_a_function_made_again_each_time_is_seen(tf: Any) -> None:
    def program() -> None:
        tfdb.set_trace()
        for _ in range(3):
            tf.function(lambda x: x + 1.0)(tf.ones([2]))
        tfdb.set_trace()
        print("end")

    output = play(program, "...\n(tfdb) c\n...\n(tfdb) retraces\n...\n(tfdb) c\nend")
    line = output.split("(tfdb) retraces\n")[1].splitlines()[0]
    assert "3 traces" in line and "made anew" in line


def test_twins_do_not_count_twice(tf: Any) -> None:
    @tf.function
    def f(x: Any) -> Any:
        return x + 1.0

    f(tf.ones([2]))
    twin = f._clone(f.python_function)
    twin(tf.ones([2]))
    twin(tf.ones([3]))
    made = traces.history(f, (twin,), traces.Recorder())
    assert [trace.leaves[0].shape for trace in made] == [(2,), (3,)]


def test_a_trace_is_compared_with_the_one_it_is_nearest_to() -> None:
    first = Trace((leaf("x", dtype="f", shape=(1,)), leaf("n", "python", "1", "int")))
    second = Trace((leaf("x", dtype="f", shape=(2,)), leaf("n", "python", "2", "int")))
    third = Trace((leaf("x", dtype="f", shape=(1,)), leaf("n", "python", "3", "int")))
    assert [change.path for change in traces.explain([first, second, third])[2]] == ["n"]


def test_general_shapes() -> None:
    assert traces.general_shape([(2, 3), (2, 5)]) == (2, None)
    assert traces.general_shape([(2,), (2, 5)]) is None
    assert traces.general_shape([None, (2, 5)]) is None


seen: list[Any] = []
total = 0
rng = np.random.default_rng(0)


class Meter:
    calls = 0

    def record(self, x: Any) -> Any:
        global total
        self.calls += 1
        seen.append(x)
        own = []
        own.append(x)
        total = total + 1
        print("tracing")
        noise = np.random.normal() + random.random() + rng.uniform()
        helper()
        self.count()
        table = {}
        table["x"] = x
        return x * noise

    def count(self) -> None:
        self.calls = 5


def helper() -> None:
    seen.clear()


def test_lines_that_run_only_at_tracing_are_found() -> None:
    found = tracing_only(Meter().record)
    first = Meter.record.__code__.co_firstlineno
    assert [(each.line - first, each.text) for each in found if first <= each.line < first + 9] == [
        (2, "self.calls += 1"),
        (3, "seen.append(x)"),
        (6, "total = total + 1"),
        (7, "print('tracing')"),
        (8, "noise = np.random.normal() + random.random() + rng.uniform()"),
    ]
    why = {each.text.split("(")[0].split(" ")[0]: each.why for each in found}
    assert "changes self.calls" in why["self.calls"]
    assert "tf.print" in why["print"]
    assert "the graph keeps that value" in why["noise"]
    assert {"seen.clear()", "self.calls = 5"} <= {each.text for each in found}


def test_a_function_without_source_has_no_such_lines() -> None:
    names: dict[str, Any] = {}
    exec("def f(x):\n    print(x)\n", names)
    assert tracing_only(names["f"]) == []


def test_retraces_points_at_lines_that_run_only_at_tracing(tf: Any) -> None:
    meter = Meter()
    record = tf.function(meter.record, autograph=False)

    def program() -> None:
        record(tf.ones([2]))
        tfdb.set_trace()
        print("end", record)

    play(
        program,
        """
        tracing
        ...
        (tfdb) retraces record
        record: 1 trace for 1 call
            1  x: float32(2,)
          these lines run only while tracing:
            test_retraces.py:...  self.calls += 1
                changes self.calls: at each trace, not at each call (a tf.Variable would
                count calls)
        ...
        (tfdb) c
        end ...
        """,
    )


def test_the_steps_of_keras_models_are_told_apart(tf: Any) -> None:
    import keras

    def fit(size: int) -> None:
        model = keras.Sequential([keras.layers.Input((size,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(np.ones((4, size)), np.ones((4, 1)), batch_size=2, verbose=0)
        model.predict(np.ones((4, size)), verbose=0)

    def program() -> None:
        tfdb.set_trace()
        fit(2)
        fit(3)
        tfdb.set_trace()
        print("end")

    output = play(program, "...\n(tfdb) c\n...\n(tfdb) retraces\n...\n(tfdb) c\nend")
    listed = output.split("(tfdb) retraces\n")[1]
    steps = re.findall(r"^  (one_step_on_data) +for test_retraces\.py:\d+ +(\d) trace", listed, re.MULTILINE)
    assert [name for name, _ in steps] == ["one_step_on_data"] * 2
    assert "had 2 one_step_on_data made: a new model" in listed


def test_of_two_dtypes_the_usual_one_is_advised() -> None:
    kinds = [("float32", 2), ("float32", 3), ("float64", 4)]
    leaves = [Leaf("x", "tensor", f"{dtype}({size},)", dtype, (size,)) for dtype, size in kinds]
    (text,) = traces.advice([Trace((leaf,)) for leaf in leaves], False, False)
    assert "tf.TensorSpec([None], tf.float32)" in text and "convert the others to float32" in text


def test_the_call_that_is_stopped_in_is_counted(tf: Any) -> None:
    @tf.function
    def halved(x: Any) -> Any:
        tfdb.set_trace()
        return x / 2

    def program() -> None:
        for number in (1.0, 2.0):
            halved(tf.constant(number))
        print("end", float(halved(tf.constant([4.0]))[0]))

    play(
        program,
        """
        ...
        (tfdb) u
        ...
        (tfdb) retraces halved
        halved: 1 trace
        ...
        (tfdb) c
        ...
        (tfdb) u
        ...
        (tfdb) retraces halved
        halved: 1 trace for 2 calls
        ...
        (tfdb) c
        ...
        (tfdb) u
        ...
        (tfdb) retraces halved
        halved: 2 traces...
        ...
        (tfdb) c
        end 2.0
        """,
    )
