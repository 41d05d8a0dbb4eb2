# ruff: noqa: E501
"""Moving through running graphs with `n`, `s`, `r`, `unt`, `u`, `c`: the line shown is the one about to run."""

import sys
from typing import Any

import tensorflow as tf
from walks import walk

import tfdb


def halved(v: Any) -> Any:
    w = v / 2.0
    if tf.reduce_sum(w) > 1.0:
        w = w - 1.0
    else:
        w = w + 1.0
    return w


@tf.function
def squared(z: Any) -> Any:
    shifted = z + 10.0
    return shifted * shifted


@tf.function
def nested_calls(x: Any) -> Any:
    y = halved(x)
    z = squared(y)
    return z + x


def run_nested_calls() -> None:
    tfdb.set_trace()
    for n in (1.0, 4.0):
        result = nested_calls(tf.constant(n))
        print("result", float(result))


def test_next_goes_over_calls_and_step_into_them() -> None:
    walk(
        run_nested_calls,
        """
        b nested_calls       | Breakpoint 1 at ...
        c                    | nested_calls: y = halved(x)
        p float(x)           | 1.0
        n                    | nested_calls: z = squared(y)
        n                    | nested_calls: return z + x
        p float(y), float(z) | (1.5, 132.25)
        n                    | --Return-- / nested_calls: return z + x
        c                    | result 133.25 / nested_calls: y = halved(x)
        p float(x)           | 4.0
        s                    | halved: w = v / 2.0
        n                    | halved: if tf.reduce_sum(w) > 1.0:
        p float(w)           | 2.0
        n                    | halved: w = w - 1.0
        s                    | halved: return w
        s                    | --Return-- / halved: return w
        retval               | <tf.Tensor: shape=(), dtype=float32, numpy=1.0>
        s                    | nested_calls: z = squared(y)
        s                    | squared: shifted = z + 10.0
        s                    | squared: return shifted * shifted
        s                    | --Return-- / squared: return shifted * shifted
        retval               | <tf.Tensor: shape=(), dtype=float32, numpy=121.0>
        n                    | nested_calls: return z + x
        s                    | --Return-- / nested_calls: return z + x
        s                    | run_nested_calls: print("result", float(result))
        p float(result)      | 125.0
        cl 1                 | Deleted breakpoint 1 at ...
        c                    | result 125.0
    """,
    )


def test_return_goes_to_the_end_of_the_function_and_until_forwards() -> None:
    walk(
        run_nested_calls,
        """
        b halved   | Breakpoint 1 at ...
        c          | halved: w = v / 2.0
        r          | --Return-- / halved: return w
        retval     | <tf.Tensor: shape=(), dtype=float32, numpy=1.5>
        r          | nested_calls: z = squared(y)
        p float(y) | 1.5
        unt        | nested_calls: return z + x
        p float(z) | 132.25
        c          | result 133.25 / halved: w = v / 2.0
        r          | --Return-- / halved: return w
        u          | nested_calls: y = halved(x)
        p float(x) | 4.0
        n          | nested_calls: z = squared(y)
        n          | nested_calls: return z + x
        cl 1       | Deleted breakpoint 1 at ...
        c          | result 125.0
    """,
    )


@tf.function
def loops(n: Any) -> Any:
    total = tf.constant(0)
    for i in tf.range(n):
        if i == 1:
            continue
        total = total + i
        if total > 4:
            break
    while total > 0:
        total = total - 3
    return total


def run_loops() -> None:
    tfdb.set_trace()
    print(int(loops(3)), int(loops(9)))


def test_loops_of_tensors_are_stepped_through_iteration_by_iteration() -> None:
    walk(
        run_loops,
        """
        b loops              | Breakpoint 1 at ...
        c                    | loops: total = tf.constant(0)
        n                    | loops: for i in tf.range(n):
        p i                  | *** NameError: name 'i' is not defined
        n                    | loops: if i == 1:
        p int(i), int(total) | (0, 0)
        n                    | loops: total = total + i
        n                    | loops: if total > 4:
        p int(i), int(total) | (0, 0)
        n                    | loops: for i in tf.range(n):
        p int(i)             | 0
        n                    | loops: if i == 1:
        p int(i)             | 1
        n                    | loops: continue
        n                    | loops: for i in tf.range(n):
        n                    | loops: if i == 1:
        p int(i), int(total) | (2, 0)
        n                    | loops: total = total + i
        n                    | loops: if total > 4:
        n                    | loops: for i in tf.range(n):
        p int(i), int(total) | (2, 2)
        n                    | loops: while total > 0:
        p int(total)         | 2
        n                    | loops: total = total - 3
        n                    | loops: while total > 0:
        p int(total)         | -1
        n                    | loops: return total
        n                    | --Return-- / loops: return total
        n                    | loops: total = tf.constant(0)
        cl 1                 | Deleted breakpoint 1 at ...
        c                    | -1 -1
    """,
    )


def test_until_leaves_a_loop() -> None:
    walk(
        run_loops,
        """
        b loops | Breakpoint 1 at ...
        c       | loops: total = tf.constant(0)
        n       | loops: for i in tf.range(n):
        n       | loops: if i == 1:
        unt     | loops: total = total + i
        unt     | loops: if total > 4:
        unt     | loops: while total > 0:
        unt     | loops: total = total - 3
        unt     | loops: return total
        cl 1    | Deleted breakpoint 1 at ...
        c       | -1 -1
    """,
    )


@tf.function
def early(x: Any) -> Any:
    if x > 2.0:
        return x * 10.0
    y = x + 0.5
    if y > 1.0:
        return -y
    return y


def run_early() -> None:
    tfdb.set_trace()
    for x in (3.0, 1.0, 0.25):
        print("early", float(early(tf.constant(x))))


def test_only_the_branch_taken_is_stepped_through() -> None:
    walk(
        run_early,
        """
        b early | Breakpoint 1 at ...
        c       | early: if x > 2.0:
        n       | early: return x * 10.0
        n       | --Return-- / early: return x * 10.0
        retval  | <tf.Tensor: shape=(), dtype=float32, numpy=30.0>
        c       | early 30.0 / early: if x > 2.0:
        n       | early: y = x + 0.5
        n       | early: if y > 1.0:
        n       | early: return -y
        n       | --Return-- / early: return -y
        c       | early -1.5 / early: if x > 2.0:
        n       | early: y = x + 0.5
        n       | early: if y > 1.0:
        n       | early: return y
        n       | --Return-- / early: return y
        retval  | <tf.Tensor: shape=(), dtype=float32, numpy=0.75>
        cl 1    | Deleted breakpoint 1 at ...
        c       | early 0.75
    """,
    )


@tf.function
def unrolled(x: Any) -> Any:
    for k in range(2):
        x = x * (k + 2)
    layers = [tf.abs, tf.negative]
    for layer in layers:
        x = layer(x)
    return x


def run_unrolled() -> None:
    tfdb.set_trace()
    print(float(unrolled(tf.constant(1.5))), float(unrolled(tf.constant(-2.0))))


def test_loops_that_python_unrolls() -> None:
    walk(
        run_unrolled,
        """
        b unrolled    | Breakpoint 1 at ...
        c             | unrolled: for k in range(2):
        n             | unrolled: x = x * (k + 2)
        p k, float(x) | (0, 1.5)
        n             | unrolled: for k in range(2):
        p k, float(x) | (0, 3.0)
        n             | unrolled: x = x * (k + 2)
        p k, float(x) | (1, 3.0)
        n             | unrolled: for k in range(2):
        p k, float(x) | (1, 9.0)
        n             | unrolled: layers = [tf.abs, tf.negative]
        n             | unrolled: for layer in layers:
        n             | unrolled: x = layer(x)
        n             | unrolled: for layer in layers:
        n             | unrolled: x = layer(x)
        p float(x)    | 9.0
        c             | unrolled: for k in range(2):
        p float(x)    | -2.0
        cl 1          | Deleted breakpoint 1 at ...
        c             | -9.0 -12.0
    """,
    )


@tf.custom_gradient
def clipped(x: Any) -> Any:
    y = tf.minimum(x, 1.0)

    def grad(upstream: Any) -> Any:
        scale = upstream * 0.5
        return scale

    return y, grad


@tf.function
def differentiated(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = clipped(x) * 3.0
    g = tape.gradient(y, x)
    return g


def run_differentiated() -> None:
    tfdb.set_trace()
    for n in (1.0, 2.0):
        print("gradient", float(differentiated(tf.constant(n))))


def test_step_goes_into_a_custom_gradient() -> None:
    walk(
        run_differentiated,
        """
        b differentiated  | Breakpoint 1 at ...
        c                 | differentiated: with tf.GradientTape() as tape:
        s                 | differentiated: tape.watch(x)
        s                 | differentiated: y = clipped(x) * 3.0
        s                 | clipped: y = tf.minimum(x, 1.0)
        s                 | clipped: def grad(upstream: Any) -> Any:
        s                 | clipped: return y, grad
        s                 | --Return-- / clipped: return y, grad
        s                 | differentiated: with tf.GradientTape() as tape:
        s                 | differentiated: g = tape.gradient(y, x)
        s                 | grad: scale = upstream * 0.5
        p float(upstream) | 3.0
        s                 | grad: return scale
        p float(scale)    | 1.5
        s                 | --Return-- / grad: return scale
        s                 | differentiated: return g
        p float(g)        | 1.5
        n                 | --Return-- / differentiated: return g
        n                 | gradient 1.5 / run_differentiated: for n in (1.0, 2.0):
        cl 1              | Deleted breakpoint 1 at ...
        c                 | gradient 1.5
    """,
    )


def test_step_goes_from_eager_code_into_a_function_and_next_over_it() -> None:
    walk(
        run_nested_calls,
        """
        n | run_nested_calls: result = nested_calls(tf.constant(n))
        n | run_nested_calls: print("result", float(result))
        n | result 133.25 / run_nested_calls: for n in (1.0, 4.0):
        s | run_nested_calls: result = nested_calls(tf.constant(n))
        s | nested_calls: y = halved(x)
        r | --Return-- / nested_calls: return z + x
        n | run_nested_calls: print("result", float(result))
        c | result 125.0
    """,
    )


def test_next_over_a_call_that_holds_a_breakpoint_stops_there() -> None:
    walk(
        run_nested_calls,
        """
        b squared  | Breakpoint 1 at ...
        n          | run_nested_calls: result = nested_calls(tf.constant(n))
        n          | squared: shifted = z + 10.0
        p float(z) | 1.5
        n          | squared: return shifted * shifted
        n          | --Return-- / squared: return shifted * shifted
        n          | nested_calls: return z + x
        n          | --Return-- / nested_calls: return z + x
        n          | run_nested_calls: print("result", float(result))
        n          | result 133.25 / run_nested_calls: for n in (1.0, 4.0):
        n          | run_nested_calls: result = nested_calls(tf.constant(n))
        n          | squared: shifted = z + 10.0
        n          | squared: return shifted * shifted
        p float(z) | 1.0
        cl 1       | Deleted breakpoint 1 at ...
        c          | result 125.0
    """,
    )


def test_up_then_next_runs_on_to_the_callers_next_line() -> None:
    walk(
        run_nested_calls,
        """
        b halved | Breakpoint 1 at ...
        c        | halved: w = v / 2.0
        u        | nested_calls: y = halved(x)
        n        | nested_calls: z = squared(y)
        c        | result 133.25 / halved: w = v / 2.0
        u        | nested_calls: y = halved(x)
        u        | run_nested_calls: result = nested_calls(tf.constant(n))
        p n      | 4.0
        n        | run_nested_calls: print("result", float(result))
        cl 1     | Deleted breakpoint 1 at ...
        c        | result 125.0
    """,
    )


def test_display_follows_the_values() -> None:
    changed = "loops: if total > 4: / display int(total): 2  [old: 0]"
    if sys.version_info >= (3, 13):  # pdb shows what is displayed first
        changed = " / ".join(reversed(changed.split(" / ")))
    walk(
        run_loops,
        """
        b loops              | Breakpoint 1 at ...
        c                    | loops: total = tf.constant(0)
        n                    | loops: for i in tf.range(n):
        display int(total)   | display int(total): 0
        n                    | loops: if i == 1:
        n                    | loops: total = total + i
        n                    | loops: if total > 4:
        n                    | loops: for i in tf.range(n):
        n                    | loops: if i == 1:
        n                    | loops: continue
        n                    | loops: for i in tf.range(n):
        n                    | loops: if i == 1:
        n                    | loops: total = total + i
        n                    | CHANGED
        n                    | loops: for i in tf.range(n):
        n                    | loops: while total > 0:
        n                    | loops: total = total - 3
        undisplay int(total) |
        n                    | loops: while total > 0:
        n                    | loops: return total
        cl 1                 | Deleted breakpoint 1 at ...
        c                    | -1 -1
    """.replace("CHANGED", changed),
    )


def split(v: Any) -> Any:
    half = v / 2.0
    return half


def loop_with_calls(x: Any) -> Any:
    total = tf.constant(0.0)
    for item in x:
        total += split(item)
        late = total * 10.0
        total = late / 10.0
    return total


def test_step_enters_what_was_traced_before_the_breakpoint_in_the_loops_next_pass() -> None:
    def program() -> None:
        tfdb.set_trace()
        print("result", float(tf.function(loop_with_calls)(tf.constant([2.0, 4.0]))))

    walk(
        program,
        """
        b @late = total * 10.0@   | Breakpoint 1 at ...
        c                         | ...loop_with_calls: late = total * 10.0
        n                         | ...loop_with_calls: total = late / 10.0
        n                         | ...loop_with_calls: for item in x:
        n                         | ...loop_with_calls: total += split(item)
        s                         | ...split: half = v / 2.0
        p float(v)                | 4.0
        n                         | ...split: return half
        n                         | --Return-- / ...split: return half
        c                         | ...loop_with_calls: late = total * 10.0
        p float(total)            | 3.0
        cl 1                      | Deleted breakpoint 1 at ...
        c                         | result 3.0
        """,
    )


def test_step_goes_along_a_datasets_functions_from_the_first_that_held_a_breakpoint() -> None:
    def parse(v: Any) -> Any:
        first = split(v)
        second = first * 3.0
        return second

    def augment(v: Any) -> Any:
        more = v + 0.5
        return more

    def program() -> None:
        tfdb.set_trace()
        data = tf.data.Dataset.from_tensor_slices([2.0, 4.0]).map(parse).map(augment)
        print("result", [float(v) for v in data])

    walk(
        program,
        """
        b @second = first * 3.0@  | Breakpoint 1 at ...
        c                         | ...parse: second = first * 3.0
        s                         | ...parse: return second
        s                         | --Return-- / ...parse: return second
        s                         | ...augment: more = v + 0.5
        p float(v)                | 3.0
        s                         | ...augment: return more
        s                         | --Return-- / ...augment: return more
        s                         | ...parse: first = split(v)
        s                         | ...split: half = v / 2.0
        p float(v)                | 4.0
        cl 1                      | Deleted breakpoint 1 at ...
        c                         | result [3.5, 6.5]
        """,
    )


def in_numpy(v: Any) -> Any:
    three = v * 3.0
    return three


@tf.function
def calls_numpy(x: Any) -> Any:
    y = tf.numpy_function(in_numpy, [x], tf.float32)
    return y * 2.0


def run_calls_numpy() -> None:
    tfdb.set_trace()
    result = calls_numpy(tf.constant(1.5))
    print("result", float(result))


def test_step_out_of_python_that_a_graph_calls_goes_on_behind_the_graphs_call() -> None:
    walk(
        run_calls_numpy,
        """
        b in_numpy       | Breakpoint 1 at ...
        c                | in_numpy: three = v * 3.0
        n                | in_numpy: return three
        n                | --Return-- / in_numpy: return three
        n                | run_calls_numpy: print("result", float(result))
        p float(result)  | 9.0
        cl 1             | Deleted breakpoint 1 at ...
        c                | result 9.0
        """,
    )


def test_step_out_of_python_that_a_planted_function_calls_goes_on_in_that_function() -> None:
    walk(
        run_calls_numpy,
        """
        b in_numpy       | Breakpoint 1 at ...
        b calls_numpy    | Breakpoint 2 at ...
        c                | calls_numpy: y = tf.numpy_function(in_numpy, [x], tf.float32)
        c                | in_numpy: three = v * 3.0
        r                | --Return-- / in_numpy: return three
        s                | calls_numpy: return y * 2.0
        p float(y)       | 4.5
        n                | --Return-- / calls_numpy: return y * 2.0
        n                | run_calls_numpy: print("result", float(result))
        c                | result 9.0
        """,
    )
