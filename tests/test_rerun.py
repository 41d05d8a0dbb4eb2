"""`rerun`: recorded calls again, eagerly, under the debugger, and everything as it was afterwards."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfdb
from tfdb import frozen, session
from tfdb.errors import TfdbError
from tfdb.ring import Ring
from transcripts import play


def armed(program: Callable[[], object]) -> Callable[[], object]:
    """The program with tfdb at TensorFlow's doors from its start, as under `python -m tfdb`."""

    def run() -> object:
        session._current[-1].arm()
        return program()

    return run


def test_a_call_is_run_again_at_its_first_line_and_the_prompt_comes_back(tf: Any) -> None:
    @tf.function
    def grow(n: Any) -> Any:
        total = tf.zeros([], tf.int32)
        for i in tf.range(n):
            total += i
        return total

    def program() -> None:
        grow(tf.constant(4))
        tfdb.set_trace()
        print("done")

    play(armed(program), """
        > ...test_rerun.py(...)program()
        -> print("done")
        (tfdb) rerun
        re-run of grow() · call 1 · eager · variables as now (it writes none)
        > ...test_rerun.py(...)grow()
        -> total = tf.zeros([], tf.int32)
        (tfdb) n
        > ...test_rerun.py(...)grow()
        -> for i in tf.range(n):
        (tfdb) p int(n)
        4
        (tfdb) r
        --Return--
        > ...test_rerun.py(...)grow()...
        -> return total
        (tfdb) c
        re-run of grow() returned int32() cpu:0 4B  6
        no variable changed (...)
        > ...test_rerun.py(...)program()
        -> print("done")
        (tfdb) p tf.__name__
        'tensorflow'
        (tfdb) c
        done
    """)  # fmt: skip


def test_every_variable_is_bit_identical_afterwards(tf: Any) -> None:
    import keras

    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.1)
    x, y = tf.ones([8, 3]), tf.ones([8, 1])
    found: list[list[bytes]] = []

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    def everything() -> None:
        found.append([np.asarray(value).tobytes() for value in [*model.variables, *optimizer.variables]])

    def program() -> None:
        step(x, y)
        step(x, y)
        everything()
        tfdb.set_trace()
        everything()

    output = play(armed(program), """
        > ...program()
        -> everything()
        (tfdb) rerun step
        re-run of step() · call 2 · eager · variables as now (not known at the call)
        > ...step()
        -> with tf.GradientTape() as tape:
        (tfdb) c
        re-run of step() returned float32() ...
        put back: ... and ... more (... of ... variables had changed)
        > ...program()
        -> everything()
        (tfdb) c
    """)  # fmt: skip
    assert found[0] == found[1]
    assert "14 of" in output


def test_keep_keeps_what_the_re_run_writes(tf: Any) -> None:
    v = tf.Variable(1.0, name="v")

    @tf.function
    def add(x: Any) -> Any:
        return v.assign_add(x)

    def program() -> None:
        add(tf.constant(2.0))
        tfdb.set_trace()
        print("v", v.numpy())

    play(armed(program), """
        ...
        (tfdb) rerun --keep
        ...
        (tfdb) c
        re-run of add() returned ...
        kept: v (1 of ... variables had changed)
        ...
        (tfdb) c
        v 5.0
    """)  # fmt: skip


def test_at_a_graph_stop_the_call_in_progress_starts_from_its_own_state(tf: Any) -> None:
    v = tf.Variable(1.0, name="v")

    @tf.function
    def add(x: Any) -> Any:
        v.assign_add(x)
        y = v * 2.0
        return y

    def program() -> None:
        tfdb.set_trace()
        add(tf.constant(2.0))
        add(tf.constant(4.0))
        print("v", v.numpy())

    play(armed(program), """
        ...
        (tfdb) b add
        Breakpoint 1 at ...
        (tfdb) c
        graph stop · add · pass 1
        > ...add()
        -> v.assign_add(x)
        (tfdb) c
        graph stop · add · pass 2
        > ...add()
        -> v.assign_add(x)
        (tfdb) n
        graph stop ...
        > ...add()
        -> y = v * 2.0
        (tfdb) p float(v)
        7.0
        (tfdb) rerun
        re-run of add() · call 2 · eager · variables as at the call
        > ...add()
        -> v.assign_add(x)
        (tfdb) p float(v), float(x)
        (3.0, 4.0)
        (tfdb) c
        re-run of add() returned float32() cpu:0 4B  14
        put back: v (1 of ... variables had changed)
        > ...add()
        -> y = v * 2.0
        (tfdb) p float(v)
        7.0
        (tfdb) rerun -n 1
        re-run of add() · call 1 · eager · variables as at the call
        > ...add()
        -> v.assign_add(x)
        (tfdb) p float(v), float(x)
        (1.0, 2.0)
        (tfdb) q
        re-run of add() ended by q
        ...
        (tfdb) cl 1
        Deleted breakpoint 1 at ...
        (tfdb) c
        v 7.0
    """)  # fmt: skip


COUNTS: list[int] = []
scale = 2.0


def test_side_effects_and_frozen_values_are_named_and_undone(tf: Any) -> None:
    class Meter:
        def __init__(self) -> None:
            self.calls = 0

        @tf.function
        def record(self, x: Any) -> Any:
            self.calls += 1
            COUNTS.append(1)
            y = x * scale
            return y + np.random.rand()

    meter = Meter()

    def program() -> None:
        meter.record(tf.constant([1.0, 2.0]))
        tfdb.set_trace()
        print("calls", meter.calls, len(COUNTS))

    COUNTS.clear()
    play(armed(program), """
        ...
        (tfdb) rerun meter.record
        re-run of record() · call 1 · eager · variables as now (it writes none)
        unlike the graph: line ... `self.calls += 1`, line ... `COUNTS.append(1)` ran at tracing only, ...
        unlike the graph: line ... `return y + np.random.rand()` is of the tracing, and anew now (test_rerun.py)
        read now; the graph holds the values of its tracing: scale = 2.0
        > ...record()
        -> self.calls += 1
        (tfdb) c
        ...
        (tfdb) c
        calls 1 1
    """)  # fmt: skip


def test_an_error_of_the_re_run_is_told_with_its_line(tf: Any) -> None:
    @tf.function
    def pick(table: Any, i: Any) -> Any:
        return tf.gather(table, i)

    def program() -> None:
        with pytest.raises(tf.errors.InvalidArgumentError):
            pick(tf.constant([1.0, 2.0]), tf.constant([5]))
        tfdb.set_trace()
        print("on")

    play(armed(program), """
        ...
        (tfdb) rerun
        ...
        -> return tf.gather(table, i)
        (tfdb) c
        re-run of pick() ended with InvalidArgumentError: ...indices[0] = 5 is not in [0, 2)... at ...test_rerun.py:...
        ...
        (tfdb) c
        on
    """)  # fmt: skip


def test_nested_functions_are_stepped_into(tf: Any) -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return x + 1.0

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x) * 2.0

    def program() -> None:
        outer(tf.constant(1.0))
        tfdb.set_trace()
        print("on")

    play(armed(program), """
        ...
        (tfdb) rerun outer
        ...
        -> return inner(x) * 2.0
        (tfdb) s
        --Call--
        > ...inner()
        ...
        (tfdb) s
        > ...inner()
        -> return x + 1.0
        (tfdb) c
        re-run of outer() returned float32() cpu:0 4B  4
        ...
        (tfdb) c
        on
    """)  # fmt: skip


def test_set_trace_and_breakpoints_stop_in_a_re_run(tf: Any) -> None:
    @tf.function
    def f(x: Any) -> Any:
        y = x + 1.0
        tfdb.set_trace()
        z = y * 2.0
        return z

    def program() -> None:
        f(tf.constant(1.0))
        tfdb.set_trace()
        print("on")

    play(armed(program), """
        graph stop · f · pass 1
        ...
        -> ...
        (tfdb) c
        > ...program()
        -> print("on")
        (tfdb) rerun
        re-run of f() ...
        > ...f()
        -> y = x + 1.0
        (tfdb) c
        > ...f()
        -> z = y * 2.0
        (tfdb) p float(y)
        2.0
        (tfdb) c
        re-run of f() returned float32() cpu:0 4B  4
        ...
        (tfdb) p len(tf.__name__)
        10
        (tfdb) c
        on
    """)  # fmt: skip


def test_the_last_batch_of_fit_is_run_again(tf: Any) -> None:
    import keras

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.out = keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.out(x)

    def program() -> None:
        model = Net()
        model.compile(optimizer="sgd", loss="mse")
        x = np.arange(12, dtype="float32").reshape(6, 2)
        model.fit(x, x[:, :1], batch_size=2, shuffle=False, verbose=0)
        tfdb.set_trace()
        print("on")

    play(armed(program), """
        ...
        (tfdb) rerun
        re-run of Net.train_step() · batch 3 · eager · ...
        > ...call()
        -> return self.out(x)
        (tfdb) p x.numpy().tolist()
        [[8.0, 9.0], [10.0, 11.0]]
        (tfdb) c
        ...
        (tfdb) c
        on
    """)  # fmt: skip


def test_what_cannot_be_run_again_is_said(tf: Any) -> None:
    @tf.function
    def f(x: Any) -> Any:
        return x

    def program() -> None:
        _ = f
        tfdb.set_trace()
        f(tf.constant(1.0))
        tfdb.set_trace()
        print("on")

    play(armed(program), """
        ...
        (tfdb) rerun
        *** no call of a tf.function was recorded, and no frame here can be run again
        (tfdb) rerun nothing
        *** nothing: NameError: name 'nothing' is not defined
        (tfdb) rerun f
        *** no call of f was recorded
        (tfdb) c
        ...
        (tfdb) rerun f -n 3
        *** 1 calls of f are kept; kept are f (call 1)
        (tfdb) rerun -n
        *** -n takes a number of calls: rerun [FUNCTION] [-n K] [--keep]
        (tfdb) rerun -l
        latest  f · call 1 · 4B · variables not kept
        1 call, 4B at most; the limit is 8 calls, 256MiB
        (tfdb) c
        on
    """)  # fmt: skip


def test_the_ring_is_bounded_in_calls_and_bytes(tf: Any) -> None:
    @tf.function
    def f(x: Any) -> Any:
        return x

    ring = Ring(most_calls=3, most_bytes=1000)
    for size in (10, 10, 10, 10):
        ring.called(f, (tf.zeros([size]),), {})
    assert [record.number for record in ring] == [2, 3, 4]
    assert ring.nbytes == 120
    ring.called(f, ({"a": [tf.zeros([200])]},), {"b": tf.zeros([30])})
    assert [record.number for record in ring] == [4, 5] or ring.nbytes <= 1000
    ring.called(f, (tf.zeros([10_000]),), {})
    assert [record.number for record in ring] == [6]
    with pytest.raises(TfdbError, match="1 calls of f are kept"):
        ring.latest(f, 1)


def test_small_arrays_are_kept_as_they_were_at_the_call(tf: Any) -> None:
    @tf.function
    def f(x: Any) -> Any:
        return x

    ring = Ring()
    small, large = np.zeros(10), np.zeros(100_000)
    ring.called(f, (small, large), {})
    small[0], large[0] = 1, 1
    record = ring.latest(f)
    assert record.args[0][0] == 0
    assert record.args[1] is large
    assert record.borrowed


def test_a_function_that_is_gone_leaves_no_count(tf: Any) -> None:
    ring = Ring(most_calls=1)

    @tf.function
    def kept(x: Any) -> Any:
        return x

    def call() -> None:
        @tf.function
        def gone(x: Any) -> Any:
            return x

        ring.called(gone, (), {})

    call()
    ring.called(kept, (), {})
    gc.collect()
    assert len(ring.numbers) == 1


def test_effects_are_read_from_the_source() -> None:
    state: dict[str, int] = {}
    seen: list[int] = []

    def function(self: Any, x: Any) -> Any:
        global scale
        local = []
        local.append(x)
        seen.append(x)
        state["a"] = x
        self.last = x
        if x:
            print("x")
        scale = 3.0
        noise = np.random.normal(size=3)
        self.metric.update_state(x)
        return local, noise

    assert [(each.text, each.kind) for each in frozen.effects(function)] == [
        ("seen.append(x)", "effect"),
        ("state['a'] = x", "effect"),
        ("self.last = x", "effect"),
        ("print('x')", "effect"),
        ("scale = 3.0", "effect"),
        ("noise = np.random.normal(size=3)", "random"),
    ]


def test_what_arguments_take_is_counted_now_and_then_and_what_may_change_is_copied_each_time() -> None:
    ring = Ring(most_bytes=100_000)
    function = tf.function(lambda *args, **kwargs: args)
    array = np.zeros(10, "float32")
    for n in range(12):
        ring.called(function, (tf.zeros([5000]), tf.constant(n)), {})
        array[:] = n
        ring.called(function, (array,), {"more": [array]})
    kept = [each for each in ring if each.args[0] is not array and len(each.args) == 1]
    assert len(list(ring)) == 8 and len(kept) == 4
    for each in kept:
        assert each.args[0][0] == each.kwargs["more"][0][0] == each.number // 2 - 1
    assert all(each.nbytes == 20_004 for each in ring if len(each.args) == 2)
    for _ in range(9):
        ring.called(function, (tf.zeros([20_000]),), {})
    assert len(list(ring)) == 1  # of the program's 720 kB
