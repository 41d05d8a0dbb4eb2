# ruff: noqa: E501
"""`b trace:LINE`: stops while Python traces a line, with symbolic tensors, and what a plain `b` says of such lines."""

from typing import Any

import tensorflow as tf
from walks import walk

import tfdb
from transcripts import play

seen: list[Any] = []


def scaled(a: Any) -> Any:
    rate = 0.5 ** len(seen)
    return a * rate


def traced(x: Any) -> Any:
    seen.append("trace")
    y = scaled(x)
    if tf.reduce_sum(y) > 0.0:
        z = y + 1.0
    else:
        z = y - 1.0
    for i in tf.range(2):
        z = z + tf.cast(i, tf.float32)
    return z


def run_traced() -> None:
    seen.clear()
    called = tf.function(traced)
    tfdb.set_trace()
    for n in range(4):
        out = called(tf.fill([1 + n // 2], float(n)))
        print("out", out.numpy().tolist())


def test_once_for_each_trace_with_symbolic_tensors_and_steps() -> None:
    walk(
        run_traced,
        """
        b trace:traced              | Breakpoint 1 at trace:...
        c                           | tracing · traced · ... / traced: seen.append("trace")
        p x                         | <tf.Tensor 'x:0' shape=(1,) dtype=float32>
        p (x + 1.0).shape, len(seen) | (TensorShape([1]), 0)
        n                           | tracing · traced / traced: y = scaled(x)
        s                           | tracing · traced > scaled / scaled: rate = 0.5 ** len(seen)
        r                           | tracing · traced > scaled / --Return-- / scaled: return a * rate
        u                           | traced: y = scaled(x)
        d                           | scaled: return a * rate
        n                           | tracing · traced / traced: if tf.reduce_sum(y) > 0.0:
        n                           | tracing · traced / traced: z = y + 1.0
        n                           | tracing · traced / traced: z = y - 1.0
        n                           | tracing · traced / traced: for i in tf.range(2):
        n                           | tracing · traced / traced: z = z + tf.cast(i, tf.float32)
        n                           | tracing · traced / traced: return z
        n                           | tracing · traced / --Return-- / traced: return z
        n                           | run_traced: print("out", out.numpy().tolist())
        c                           | out [0.0] / out [2.5] / tracing · traced · ... / traced: seen.append("trace")
        p x.shape                   | TensorShape([2])
        u                           | run_traced: out = called(tf.fill([1 + n // 2], float(n)))
        p n                         | 2
        n                           | run_traced: print("out", out.numpy().tolist())
        cl 1                        | Deleted breakpoint 1 at trace:...
        c                           | out [2.5, 2.5] / out [2.375, 2.375]
    """,
    )


def test_pdbs_own_commands_work_on_it() -> None:
    walk(
        run_traced,
        """
        b trace:@rate = 0.5 ** len(seen)@, a.shape[0] == 2 | Breakpoint 1 at trace:...
        tbreak trace:@z = y + 1.0@                         | Breakpoint 2 at trace:...
        b trace:@y = scaled(x)@                            | Breakpoint 3 at trace:...
        ignore 3 1                                         | Will ignore next 1 crossing of breakpoint 3.
        commands 1                                         |
        p a.shape[0], rate if "rate" in dir() else None    |
        end                                                |
        c                                                  | Deleted breakpoint 2 at trace:... / tracing · traced · ... / traced: z = y + 1.0
        unt @for i in tf.range(2):@                        | tracing · traced / traced: for i in tf.range(2):
        c                                                  | out [0.0] / out [2.5] / tracing · traced · ... / traced: y = scaled(x)
        disable 3                                          | Disabled breakpoint 3 at trace:...
        c                                                  | tracing · traced > scaled · ... / (2, None) / scaled: rate = 0.5 ** len(seen)
        r                                                  | tracing · traced > scaled / --Return-- / scaled: return a * rate
        retval                                             | <tf.Tensor 'mul:0' shape=(2,) dtype=float32>
        condition 1 False                                  | New condition set for breakpoint 1.
        c                                                  | out [2.5, 2.5] / out [2.75, 2.75]
    """,
    )


def test_the_prompt_adds_nothing_to_the_graph_that_is_traced() -> None:
    @tf.function
    def drawn(x: Any) -> Any:
        y = x * 2.0
        return y + tf.random.normal([2])

    tf.random.set_seed(7)
    plain = drawn(tf.constant([1.0, 2.0])).numpy().tolist()

    def again() -> None:
        tfdb.set_trace()
        tf.random.set_seed(7)
        print(drawn(tf.constant([1.0, 2.0])).numpy().tolist())

    walk(
        again,
        f"""
        b trace:@return y + tf.random.normal([2])@ | Breakpoint 1 at trace:...
        c                                          | drawn is traced again ... / tracing · drawn · ... / drawn: return y + tf.random.normal([2])
        p (tf.random.normal([3]) + 1.0).shape      | TensorShape([3])
        p len(tf.compat.v1.get_default_graph().get_operations()) > 0 | True
        cl 1                                       | Deleted breakpoint 1 at trace:...
        c                                          | {plain}
    """.replace("drawn is traced again ... / ", ""),
    )


def test_step_goes_on_into_the_graph_that_holds_a_breakpoint() -> None:
    walk(
        run_traced,
        """
        b @z = y + 1.0@    | Breakpoint 1 at ...
        b trace:@return z@ | Breakpoint 2 at trace:...
        c                  | tracing · traced · ... / traced: return z
        s                  | tracing · traced / --Return-- / traced: return z
        s                  | traced: seen.append("trace")
        p x.numpy()        | array([0.], dtype=float32)
        cl 1               | Deleted breakpoint 1 at ...
        cl 2               | Deleted breakpoint 2 at ...
        c                  | out [0.0] / out [2.25] / out [2.25, 2.25] / out [2.375, 2.375]
    """,
    )


def test_it_says_what_it_cannot_find() -> None:
    walk(
        run_traced,
        """
        b trace:nosuch            | *** trace: takes FILE:LINE or a function; nothing is known of 'nosuch'
        b trace:nosuch.py:3       | *** trace: takes FILE:LINE or a function; nothing is known of 'nosuch.py:3'
        b trace:tfdb              | *** trace: takes FILE:LINE or a function; nothing is known of 'tfdb'
        b trace:scaled            | Breakpoint 1 at trace:...
        cl 1                      | Deleted breakpoint 1 at trace:...
        c                         | out [0.0] / out [2.5] / out [2.5, 2.5] / out [2.75, 2.75]
    """,
    )


def test_quitting_while_tracing_ends_the_program() -> None:
    play(
        run_traced,
        """
        ...
        (tfdb) b trace:traced
        Breakpoint 1 at trace:...
        (tfdb) c
        ...
        (tfdb) q
        Quit: 1
        """,
    )


@tf.function
def counted(x: Any) -> Any:
    seen.append("counted")
    return x + 1.0


def run_counted() -> None:
    tfdb.set_trace()
    print(float(counted(tf.constant(1.0))))


def test_a_plain_breakpoint_says_that_the_line_runs_only_while_tracing() -> None:
    walk(
        run_counted,
        """
        b @seen.append("counted")@ | Breakpoint 1 at ... / line ... changes seen: at each trace, ...; b trace:test_tracing_stops.py:... stops there while Python traces it
        b @return x + 1.0@         | Breakpoint 2 at ...
        c                          | line ... makes no ops: it ran once, while tracing (b trace:test_tracing_stops.py:... stops there) / counted: seen.append("counted")
        p float(x)                 | 1.0
        cl 1                       | Deleted breakpoint 1 at ...
        c                          | counted: return x + 1.0
        c                          | 2.0
    """,
    )


def row_sum(v: Any) -> Any:
    w = v * 2.0
    return tf.reduce_sum(w)


MATRIX = [[1.0, 2.0], [3.0, 4.0]]


def run_eager_map() -> None:
    tfdb.set_trace()
    y = tf.map_fn(row_sum, tf.constant(MATRIX))
    print(y.numpy().tolist())


def test_an_eager_map_fn_whose_function_autograph_converts() -> None:
    walk(
        run_eager_map,
        """
        b row_sum          | Breakpoint 1 at ...
        c                  | eager stop · row_sum / row_sum: w = v * 2.0
        p v.numpy().tolist() | [1.0, 2.0]
        n                  | eager stop · row_sum / row_sum: return tf.reduce_sum(w)
        p w.numpy().tolist() | [2.0, 4.0]
        c                  | eager stop · row_sum / row_sum: w = v * 2.0
        p v.numpy().tolist() | [3.0, 4.0]
        u                  | run_eager_map: y = tf.map_fn(row_sum, tf.constant(MATRIX))
        d                  | row_sum: w = v * 2.0
        n                  | eager stop · row_sum / row_sum: return tf.reduce_sum(w)
        n                  | eager stop · row_sum / --Return-- / row_sum: return tf.reduce_sum(w)
        retval             | <tf.Tensor: shape=(), dtype=float32, numpy=14.0>
        n                  | run_eager_map: print(y.numpy().tolist())
        c                  | [6.0, 14.0]
    """,
    )


@tf.function
def vectorised(x: Any) -> Any:
    return tf.vectorized_map(row_sum, x)


@tf.custom_gradient
def halved(x: Any) -> Any:
    def grad(upstream: Any) -> Any:
        slope = upstream * 0.5
        return slope

    return x, grad


def jacobian(x: Any, use_pfor: bool) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = halved(x) * x
    return tape.jacobian(y, x, experimental_use_pfor=use_pfor)


def run_vectorised() -> None:
    graph_jacobian = tf.function(jacobian)
    tfdb.set_trace()
    for _ in range(2):
        print(vectorised(tf.constant(MATRIX)).numpy().tolist())
    for use_pfor in (True, False):
        print(graph_jacobian(tf.constant([1.0, 2.0]), use_pfor).numpy().tolist())


def test_bodies_that_run_as_one_say_so_once_and_stop_at_tracing() -> None:
    cannot = "cannot stop when it runs: vectorized_map or jacobian runs all its passes as one. b trace:..."
    walk(
        run_vectorised,
        f"""
        b @return tf.reduce_sum(w)@         | Breakpoint 1 at ...
        b @slope = upstream * 0.5@          | Breakpoint 2 at ...
        b trace:@return tf.reduce_sum(w)@   | Breakpoint 3 at ...
        c                                   | tracing · vectorised > row_sum · ... / row_sum: return tf.reduce_sum(w)
        p w.shape, v.shape                  | (TensorShape([2]), TensorShape([2]))
        c                                   | test_tracing_stops.py:... {cannot} / [6.0, 14.0] / [6.0, 14.0] / test_tracing_stops.py:... {cannot} / [[1.5, 0.0], [0.0, 3.0]] / grad: slope = upstream * 0.5
        p upstream.numpy().tolist()         | [1.0, 0.0]
        c                                   | grad: slope = upstream * 0.5
        p upstream.numpy().tolist()         | [0.0, 2.0]
        c                                   | [[1.5, 0.0], [0.0, 3.0]]
    """,
    )
