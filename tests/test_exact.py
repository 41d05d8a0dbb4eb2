"""Functions that TensorFlow rewrites, stepped through or with every line planted: the same to the bit, or listed."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfdb
from transcripts import record

ROWS, COLUMNS = 64, 32
LAST_BITS = 4
random = np.random.default_rng(0)
a, b, c, d = (tf.constant(random.normal(size=(ROWS, COLUMNS)), tf.float32) for _ in range(4))
weights, bias = (
    tf.constant(random.normal(size=(COLUMNS, 16)), tf.float32),
    tf.constant(random.normal(size=16), tf.float32),
)
images = tf.constant(random.normal(size=(4, 8, 8, 3)), tf.float32)
kernel = tf.constant(random.normal(size=(3, 3, 3, 5)), tf.float32)
scale = tf.constant(random.normal(size=5), tf.float32)


def sum_of_four(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a + b
    u = t + c
    v = u + d
    return v * 2.0


def sums_and_differences(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a - b
    u = t + c
    v = u - d
    return v


def factor(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a * c
    u = b * c
    v = t + u
    return v


def products(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a * 0.1
    u = t * 0.3
    v = u * 0.7
    return v


def sums_with_constants(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a + 0.1
    u = t + 0.3
    v = 0.7 + u
    return v


def products_and_sums(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a * 1.1
    u = t + 0.3
    v = u * 0.7
    return v


def quotients(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a / 3.0
    u = t / 7.0
    return u * 0.1


def dense(a: Any, b: Any, c: Any, d: Any) -> Any:
    h = tf.matmul(a, weights)
    i = h + bias
    j = tf.nn.relu(i)
    return j


def dense_gelu(a: Any, b: Any, c: Any, d: Any) -> Any:
    h = tf.matmul(a, weights)
    i = tf.nn.bias_add(h, bias)
    j = tf.tanh(i)
    k = tf.nn.gelu(i)
    return j + k


def scaled_conv(a: Any, b: Any, c: Any, d: Any) -> Any:
    h = tf.nn.conv2d(images, kernel, 1, "SAME")
    i = h * scale
    j = i * 0.3
    return j


def batch_norm(a: Any, b: Any, c: Any, d: Any) -> Any:
    m = tf.reduce_mean(a, 0)
    v = tf.math.reduce_variance(a, 0)
    n = (a - m) * tf.math.rsqrt(v + 1e-3)
    o = n * 1.1 + 0.2
    return o


def regularised_loss(a: Any, b: Any, c: Any, d: Any) -> Any:
    e = a - b
    s = tf.square(e)
    total = tf.reduce_mean(s)
    r = 0.01 * tf.reduce_sum(c * c) + 0.02 * tf.reduce_sum(d * d)
    t = total + r
    return t


def gradient(a: Any, b: Any, c: Any, d: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(a)
        y = a * b
        z = y + c + d
        total = tf.reduce_sum(tf.nn.sigmoid(z)) * 0.5
    g = tape.gradient(total, a)
    return g


def negated(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a - b
    u = -t
    return u + c + d


def mixed(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = (a + b) * c
    u = t + (a + b) * d
    return u


def powers(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a**2.0
    u = tf.abs(a) ** 3.0
    v = tf.sqrt(tf.abs(a))
    inverse = 1.0 / v
    return t + u + inverse


def softmax(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a - tf.reduce_max(a, -1, keepdims=True)
    e = tf.exp(t)
    return e / tf.reduce_sum(e, -1, keepdims=True)


def logs(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = tf.exp(a)
    u = tf.math.log(t + 1.0)
    v = tf.math.log1p(t)
    return u + v + tf.exp(-a)


def add_n_of_add_n(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = tf.add_n([a, b])
    u = tf.add_n([t, c, d])
    return u


def broadcast_sums(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a + a[0]
    u = t + b
    v = u + b[0]
    return v


def transposed(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = tf.transpose(a)
    u = tf.matmul(t, b)
    v = tf.transpose(u) + 1.0
    return v * 0.3


def adam(a: Any, b: Any, c: Any, d: Any) -> Any:
    m = 0.9 * a + 0.1 * b
    v = 0.99 * c + 0.01 * b * b
    return m / (tf.sqrt(tf.abs(v)) + 1e-7)


def reciprocal_root(a: Any, b: Any, c: Any, d: Any) -> Any:
    v = tf.sqrt(tf.abs(a))
    inverse = 1.0 / v
    return b + c + inverse


def loop_of_one_term(a: Any, b: Any, c: Any, d: Any) -> Any:
    s = tf.zeros_like(a)
    for _i in tf.range(3):
        s = s + a
    return s


def loop_of_products(a: Any, b: Any, c: Any, d: Any) -> Any:
    s = tf.zeros_like(a)
    for i in tf.range(3):
        s = s + b * tf.cast(i, tf.float32)
    return s


def sums_in_a_branch(a: Any, b: Any, c: Any, d: Any) -> Any:
    if tf.reduce_sum(a) > -1e9:
        t = a + b
        u = t + c
    else:
        u = a
    return u + d


def dropped(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a * 2.0
    u = tf.nn.dropout(t, 0.5)
    return u


def shown_in_a_branch(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = d * 0.1
    if tf.reduce_sum(c) > -1e9:
        u = c * 0.5
    else:
        u = c
    v = t * 0.3
    return v * 0.7 + d, u


def sum_shown_in_a_branch(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = d + c
    if tf.reduce_sum(c) > -1e9:
        u = c * 0.5
    else:
        u = c
    v = t + b
    return v + a, u


def shown_in_a_loop(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = d * 0.1
    u = c
    for _i in tf.range(3):
        u = u * 0.5
    v = t * 0.3
    return v * 0.7, u


def left_loop(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = d * 0.1
    for _i in tf.range(3):
        if tf.reduce_sum(c) > 1e9:
            break
        v = t * 0.3
        t = v * 0.7
    return t


def branchy(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a + b
    if tf.reduce_sum(c) > -1e9:
        u = t * 0.1
        v = u * 0.3
        last = v / 7.0
    else:
        last = t
    return last


def residual(a: Any, b: Any, c: Any, d: Any) -> Any:
    m = tf.matmul(a, tf.matmul(b, d, transpose_a=True))
    n = tf.matmul(c, tf.matmul(b, d, transpose_a=True))
    u = a + m
    v = u + n
    return v


def residual2(A: Any, B: Any, c: Any, d: Any) -> Any:
    m = tf.matmul(A, tf.matmul(B, d, transpose_a=True))
    n = tf.matmul(c, tf.matmul(B, d, transpose_a=True))
    u = A + m
    v = u + B
    v = v + n
    return v


def mapped(a: Any, b: Any, c: Any, d: Any) -> Any:
    def one(x: Any) -> Any:
        y = x * 0.1
        z = y * 0.3
        return z + x + 1.0

    return tf.map_fn(one, a)


def clipped(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a - tf.reduce_mean(a)
    u = t / tf.sqrt(tf.reduce_mean(t * t) + 1e-6)
    v = tf.clip_by_value(u, -1.0, 1.0)
    return v * 0.1 * 0.7


def attention(a: Any, b: Any, c: Any, d: Any) -> Any:
    s = tf.matmul(a, b, transpose_b=True)
    s = s / 5.66
    s = s * 0.3
    p = tf.nn.softmax(s)
    o = tf.matmul(p, c)
    return o + a + d


def layer_norm(a: Any, b: Any, c: Any, d: Any) -> Any:
    m, v = tf.nn.moments(a, [1], keepdims=True)
    n = (a - m) * tf.math.rsqrt(v + 1e-5)
    o = n * 1.1
    return o * 0.3 + b


def gelu(a: Any, b: Any, c: Any, d: Any) -> Any:
    x = a + b
    y = 0.5 * x * (1.0 + tf.math.erf(x / 1.4142135))
    z = tf.nn.gelu(y, approximate=True)
    return z * 0.1


def swish(a: Any, b: Any, c: Any, d: Any) -> Any:
    h = tf.matmul(a, weights)
    i = h + bias
    s = tf.sigmoid(i)
    j = i * s
    return j * 2.0


def l2_losses(a: Any, b: Any, c: Any, d: Any) -> Any:
    p = 0.01 * tf.nn.l2_loss(a)
    q = 0.02 * tf.nn.l2_loss(b)
    r = 0.03 * tf.nn.l2_loss(c)
    t = p + q
    t = t + r
    return t


def huber(a: Any, b: Any, c: Any, d: Any) -> Any:
    e = a - b
    s = tf.abs(e)
    q = tf.minimum(s, 1.0)
    total = 0.5 * q * q
    total = total + (s - q)
    return tf.reduce_mean(total)


def shapes(a: Any, b: Any, c: Any, d: Any) -> Any:
    p = tf.reshape(a, [32, 64])
    q = tf.transpose(p)
    r = tf.cast(q, tf.float64)
    r = r * 0.1
    s = tf.cast(r * 0.3, tf.float32)
    return tf.transpose(tf.reshape(s, [32, 64])) * 0.1


def stacked(a: Any, b: Any, c: Any, d: Any) -> Any:
    p = tf.exp(a)
    q = tf.exp(b)
    r = tf.concat([p, q], 0)
    s = tf.stack([p, q])
    return tf.reduce_sum(r) + tf.reduce_sum(s) + 1.0


@tf.function
def callee(x: Any, y: Any) -> Any:
    t = x * 0.1
    u = t * 0.3
    v = u + y
    last = v + x
    return last


def loop_of_two_terms(a: Any, b: Any, c: Any, d: Any) -> Any:
    s = tf.zeros_like(a)
    for _i in tf.range(3):
        s = (s + a) + b
    return s


def loop_of_two_lines(a: Any, b: Any, c: Any, d: Any) -> Any:
    s = tf.zeros_like(a)
    for _i in tf.range(3):
        t = s + a
        s = t + b
    return s


def loop_then_sum(a: Any, b: Any, c: Any, d: Any) -> Any:
    s = tf.zeros_like(a)
    for _i in tf.range(3):
        s = s + a
    return s + c + d


def loop_of_products_then_sum(a: Any, b: Any, c: Any, d: Any) -> Any:
    s = tf.zeros_like(a)
    for i in tf.range(3):
        t = s + a
        s = t + b * tf.cast(i, tf.float32)
    return s + c + d


def nested_function(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = a + b
    u = t + c
    v = callee(u, d)
    last = v + a
    return last + b


def nested_in_a_loop(a: Any, b: Any, c: Any, d: Any) -> Any:
    u = a
    for _i in tf.range(3):
        u = callee(u, d)
    return u


def shown_around_a_call(a: Any, b: Any, c: Any, d: Any) -> Any:
    t = d * 0.1
    x = callee(a, b)
    v = t * 0.3
    return v * 0.7, x


def gradient_of_a_branch(a: Any, b: Any, c: Any, d: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(a)
        y = a * b
        if tf.reduce_sum(c) > -1e9:
            z = y + c + d
            z = z * 0.1 * 0.3
        else:
            z = y
        total = tf.reduce_sum(tf.nn.sigmoid(z)) * 0.5
    g = tape.gradient(total, a)
    return g


def gradient_of_a_loop(a: Any, b: Any, c: Any, d: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(a)
        y = a * b
        for _i in tf.range(3):
            y = tf.tanh(y) * 0.1 * 7.0
        total = tf.reduce_sum(tf.nn.sigmoid(y)) * 0.5
    g = tape.gradient(total, a)
    return g


EXACT: list[Callable[..., Any]] = [
    sum_of_four, sums_and_differences, factor, products_and_sums, dense, dense_gelu, regularised_loss, negated,
    mixed, powers, softmax, logs, add_n_of_add_n, transposed, adam, loop_of_one_term, loop_of_products,
    sums_in_a_branch, dropped, clipped, swish, l2_losses, huber, shapes, stacked, products, sums_with_constants,
    quotients, scaled_conv, batch_norm, gradient, broadcast_sums, reciprocal_root, shown_in_a_branch,
    sum_shown_in_a_branch, shown_in_a_loop, left_loop, branchy, residual, residual2, mapped, attention,
    layer_norm, gelu, gradient_of_a_branch,
]  # fmt: skip

# May differ: a sum of three or more terms is added in an order that depends on which term's memory can be reused, which
# is not that of a loop's variable, or of what a function was given or gave, while a stop shows it.
FORWARDED: list[Callable[..., Any]] = [
    loop_of_two_terms, loop_of_two_lines, loop_then_sum, loop_of_products_then_sum, nested_function,
    nested_in_a_loop, shown_around_a_call, gradient_of_a_loop,
]  # fmt: skip


def run(function: Callable[..., Any]) -> list[np.ndarray]:
    tf.random.set_seed(1)
    return [np.asarray(part) for part in tf.nest.flatten(tf.function(function)(a, b, c, d))]


def under(function: Callable[..., Any], commands: list[str]) -> tuple[list[np.ndarray], str]:
    """What the function gives with these commands typed before it is traced, and all that was printed."""
    found: list[np.ndarray] = []

    def program() -> None:
        tfdb.set_trace()
        found.extend(run(function))

    output, raised = record(program, commands)
    if raised is not None:
        raise raised
    return found, output


def never_true(function: Callable[..., Any]) -> list[str]:
    """Breakpoints on all of its lines that never stop."""
    lines, first = inspect.getsourcelines(function)
    return [*(f"b {__file__}:{first + n}, False" for n in range(1, len(lines))), "c"]


def stepping(function: Callable[..., Any]) -> list[str]:
    """Steps from line to line, and into what it calls."""
    return [f"b {function.__name__}", "c", *["n", "n", "s"] * 12, "cl 1", "c", "c"]


EACH_WAY = [(each, stepping) for each in EXACT] + [(each, never_true) for each in EXACT[::5]]


@pytest.mark.parametrize(("function", "way"), EACH_WAY)
def test_results_are_the_same_to_the_last_bit(function: Callable[..., Any], way: Callable[..., list[str]]) -> None:
    plain = run(function)
    found, output = under(function, way(function))
    assert [part.tobytes() for part in found] == [part.tobytes() for part in plain], output
    assert "could not stop" not in output
    assert ("graph stop" in output) == (way is stepping)


def assert_close(found: list[np.ndarray], plain: list[np.ndarray]) -> None:
    """Raises AssertionError where a value differs by more than the last bits of the largest."""
    for part, expected in zip(found, plain, strict=True):
        np.testing.assert_allclose(part, expected, 0, LAST_BITS * np.finfo("float32").eps * np.abs(expected).max())


@pytest.mark.parametrize("function", FORWARDED)
def test_sums_of_reused_memory_differ_in_the_last_bits_at_most(function: Callable[..., Any]) -> None:
    plain = run(function)
    found, output = under(function, stepping(function))
    assert "graph stop" in output
    assert_close(found, plain)
