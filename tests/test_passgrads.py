"""Gradients at a stop inside a graph: those of the pass, by running it again, and never a wrong None."""

import ast
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfdb
from transcripts import play


def test_a_stop_before_the_gradient_shows_the_one_of_each_pass() -> None:
    w = tf.Variable([2.0, 3.0], name="w")
    seen: list[list[float]] = []

    @tf.function
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            hidden = w * x
            tfdb.set_trace()
            loss = tf.reduce_sum(hidden**2)
        slope, of_hidden = tape.gradient(loss, w), tape.gradient(loss, hidden)
        w.assign_sub(0.1 * slope)
        return of_hidden

    def program() -> None:
        for number in (1.0, 2.0):
            seen.append(step(tf.constant(number)).numpy().tolist())

    play(
        program,
        """
        graph stop · step · pass 1
        > ...
        -> ...
        (tfdb) backward hidden
        of the loss of test_passgrads.py:24 · this pass, run again from the call's arguments
        gradient of hidden  float32(2,) cpu:0 8B  [4, 6]...
        (tfdb) tape tf.reduce_sum(hidden), [w, x]
        this pass, run again from the call's arguments
        w  float32(2,) cpu:0 8B  all 1
        x  float32() cpu:0 4B  5
        (tfdb) display tf.norm(backward(hidden))
        display tf.norm(backward(hidden)): <tf.Tensor: shape=(), dtype=float32, numpy=7.21...>
        (tfdb) c
        graph stop · step · pass 2
        > ...
        -> ...
        display tf.norm(backward(hidden)): <tf.Tensor: shape=(), dtype=float32, numpy=11.53...>  [old: ...]
        (tfdb) backward hidden
        ...
        gradient of hidden  float32(2,) cpu:0 8B  [6.4, 9.6]...
        (tfdb) c
        """,
    )
    np.testing.assert_allclose(seen, [[4.0, 6.0], [6.4, 9.6]], rtol=1e-6)


def test_loops_branches_called_functions_and_custom_gradients() -> None:
    w = tf.Variable([2.0, 3.0], name="w")

    @tf.custom_gradient
    def reversed_slope(x: tf.Tensor) -> Any:
        return tf.identity(x), lambda upstream: -upstream * tf.reduce_sum(x)

    @tf.function
    def inner(a: tf.Tensor) -> tf.Tensor:
        b = a * a
        tfdb.set_trace()
        return b

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            total = tf.constant(0.0)
            for number in tf.range(2):
                part = w * tf.cast(number + 1, tf.float32)
                total += tf.reduce_sum(inner(part))
            start = reversed_slope(w)
            if total > 0.0:
                loss = total * 3.0 + tf.reduce_sum(tf.nn.silu(start) * 0.0 + start)
            else:
                loss = total
            tfdb.set_trace()
        return tape.gradient(loss, w)

    play(
        step,
        """
        graph stop · step > inner · pass 1
        > ...
        -> ...
        (tfdb) backward b, a
        ...
        gradient of b  float32(2,) cpu:0 8B  all 3
        gradient of a  float32(2,) cpu:0 8B  [12, 18]...
        (tfdb) c
        graph stop · step > inner · pass 2
        > ...
        -> ...
        (tfdb) backward a
        ...
        gradient of a  float32(2,) cpu:0 8B  [24, 36]...
        (tfdb) c
        graph stop · step · pass 1
        > ...
        -> ...
        (tfdb) backward start, total
        ...
        gradient of start  float32(2,) cpu:0 8B  all 1
        gradient of total  float32() cpu:0 4B  3
        (tfdb) tape loss, w
        ...
        w  float32(2,) cpu:0 8B  [55, 85]...
        (tfdb) c
        """,
    )


def test_inside_fit_with_dropout_and_batch_normalisation() -> None:
    keras.utils.set_random_seed(1)
    seen: list[np.ndarray] = []

    class Block(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [
                keras.layers.Dense(4, "gelu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)
            ]  # fmt: skip

        def call(self, x: Any, training: bool | None = None) -> Any:
            first = self.parts[0](x)
            last = self.parts[2](self.parts[1](first, training=training), training=training)
            tfdb.set_trace(True)
            return last

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.head = Block(), keras.layers.Dense(1)

        def call(self, x: Any, training: bool | None = None) -> Any:
            return self.head(self.block(x, training=training))

    net = Net()
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    net.compile(keras.optimizers.SGD(0.1), keras.losses.MeanSquaredError())
    net.build((4, 3))

    def program() -> None:
        net.fit(x, x[:, :1], batch_size=4, verbose=0, shuffle=False)
        seen.extend(net.get_weights())

    printed = play(
        program,
        """
        graph stop · call... · pass 1
        > ...
        -> ...
        (tfdb) backward first
        of the loss of test_passgrads.py:... · this pass, run again from the call's arguments
        gradient of first  float32(4, 4) ...
        (tfdb) p KEPT.append([backward(first), first, self.parts[0].kernel.numpy(), x])
        None
        (tfdb) c
        ...
        (tfdb) p KEPT.append(self.parts[0].kernel.numpy())
        None
        (tfdb) c
        """,
    )
    assert "run again" in printed
    (slope, first, kernel, batch), after = KEPT
    with tf.GradientTape() as tape:
        layer = keras.layers.Dense(4, "gelu")
        layer.build((4, 3))
        layer.kernel.assign(kernel)
        made = layer(batch)
    np.testing.assert_allclose(made, first, rtol=1e-4, atol=1e-5)
    by_chain = tape.gradient(made, layer.kernel.value, output_gradients=slope)
    np.testing.assert_allclose(kernel - after, 0.1 * by_chain.numpy(), rtol=1e-3, atol=1e-6)


KEPT: list[Any] = []


def test_what_cannot_be_run_again_is_refused_and_never_none() -> None:
    w = tf.Variable([2.0, 3.0], name="w")

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            start = w * 3.0
            noisy = tf.reshape(tf.py_function(lambda a: a * 3.0, [start], tf.float32), [2])
            apart = w * 2.0
            tfdb.set_trace()
            loss = tf.reduce_sum(noisy) + tf.reduce_sum(apart)
        return tape.gradient(loss, w)

    play(
        step,
        """
        graph stop · step · pass 1
        > ...
        -> ...
        (tfdb) backward start
        *** the gradient goes through EagerPyFunc, and ...
        (tfdb) backward noisy, apart
        ...
        gradient of noisy  float32(2,) cpu:0 8B  all 1
        gradient of apart  float32(2,) cpu:0 8B  all 1
        (tfdb) tape tf.reduce_sum(apart), w
        ...
        w  float32(2,) cpu:0 8B  all 2
        (tfdb) grads tf.reduce_sum(noisy), w
        ...
        *** the gradient goes through EagerPyFunc, and ...
        (tfdb) backward start * 2
        *** start * 2 is no tensor of this pass: ...
        (tfdb) c
        """,
    )


def test_what_was_drawn_before_the_stop_is_that_of_this_pass() -> None:
    w = tf.Variable([2.0, 3.0], name="w")

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            noise = tf.random.normal([2])
            start = w * 3.0
            noisy = start * noise
            tfdb.set_trace()
            loss = tf.reduce_sum(noisy)
        return tape.gradient(loss, w)

    play(
        step,
        """
        graph stop · step · pass 1
        ...
        (tfdb) p bool(tf.reduce_all(backward(start) == noise))
        True
        (tfdb) c
        """,
    )


def test_both_losses_of_a_gan_and_none_where_there_is_no_path() -> None:
    make, judge = tf.Variable([[2.0]], name="make"), tf.Variable([[3.0]], name="judge")

    @tf.function
    def train_step(z: tf.Tensor) -> Any:
        with tf.GradientTape() as first, tf.GradientTape() as second:
            fake = z @ make
            real = tf.ones([1, 1])
            loss = -tf.reduce_sum(fake @ judge)
            other = tf.reduce_sum(fake @ judge) - tf.reduce_sum(real @ judge)
        found = first.gradient(loss, [make]), second.gradient(other, [judge])
        tfdb.set_trace()
        return found

    play(
        lambda: train_step(tf.constant([[5.0]])),
        """
        graph stop · train_step · pass 1
        > ...
        -> ...
        (tfdb) grads loss, [make, judge]
        this pass, run again from the call's arguments
        variable  shape   norm  mean|g|  max|g|  zero
        make      (1, 1)    15       15      15    0%
        judge     (1, 1)    10       10      10    0%
        (tfdb) tape other, make
        ...
        make  float32(1, 1) cpu:0 4B  [15]
        (tfdb) backward fake
        of the loss of test_passgrads.py:... · this pass, run again from the call's arguments
        gradient of fake  float32(1, 1) cpu:0 4B  [-3]
        of the loss of test_passgrads.py:... · this pass, run again from the call's arguments
        gradient of fake  float32(1, 1) cpu:0 4B  [3]
        (tfdb) p backward(fake)
        *** tfdb.errors.TfdbError: several losses depend on this tensor: the command `backward` shows each
        (tfdb) tape tf.reduce_sum(real), make
        ...
        make  None
        (tfdb) c
        """,
    )


def test_a_gradient_that_is_none_is_shown_with_its_reason() -> None:
    w = tf.Variable([2.0, 3.0], name="w")

    @tf.function
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            fixed = tf.ones([2])
            inner = w * x
            steep = tf.cast(inner * fixed, tf.int32)
            aside = w - 1.0
            loss = tf.reduce_sum(w * 2.0 + tf.cast(steep, tf.float32))
        found = tape.gradient(loss, w)
        tfdb.set_trace()
        del aside
        return found

    play(
        lambda: step(tf.constant(1.5)),
        """
        graph stop · step · pass 1
        > ...
        -> ...
        (tfdb) backward inner, aside, fixed
        of the loss of test_passgrads.py:... · this pass, run again from the call's arguments
        gradient of inner  None: Cast turns float32 into int32: only floating and complex values carry a gradient · test_passgrads.py:...
        gradient of aside  None: the loss is not computed from aside · test_passgrads.py:...
        gradient of fixed  None: Cast turns float32 into int32: only floating and complex values carry a gradient · test_passgrads.py:...
        (tfdb) tape loss, [w, inner]
        this pass, run again from the call's arguments
        w  float32(2,) cpu:0 8B  all 2
        inner  None: Cast turns float32 into int32: only floating and complex values carry a gradient · test_passgrads.py:...
        (tfdb) c
        """,  # noqa: E501
    )


def test_random_numbers_and_python_before_the_stop_are_those_of_the_pass() -> None:
    w = tf.Variable([2.0, 3.0], name="w")
    generator = tf.random.Generator.from_seed(3)
    seen: list[Any] = []

    @tf.function
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            hidden = w * x + tf.random.normal([2])
            kept = tf.nn.dropout(hidden + 5.0, 0.2) * generator.normal([2])
            kept *= tf.numpy_function(lambda a: a + 1.0, [x], tf.float32)
            loss = tf.reduce_sum(kept**2)
            tfdb.set_trace()
        return tape.gradient(loss, [w, hidden])

    def program() -> None:
        for number in (1.0, 2.0):
            seen.append([each.numpy() for each in step(tf.constant(number))])

    shown = play(
        program,
        """
        graph stop · step · pass 1
        > ...
        -> ...
        (tfdb) p backward(hidden).numpy().tolist()
        [...]
        (tfdb) c
        graph stop · step · pass 2
        > ...
        -> ...
        (tfdb) p backward(hidden).numpy().tolist()
        [...]
        (tfdb) tape loss, w
        this pass, run again from the call's arguments
        w  float32(2,) ...
        (tfdb) c
        """,
    )
    told = [ast.literal_eval(line) for line in shown.splitlines() if line.startswith("[")]
    np.testing.assert_allclose(told, [of_hidden for _, of_hidden in seen], rtol=1e-5)


def test_what_the_pass_draws_later_or_elsewhere_is_refused_with_the_stop_that_has_it() -> None:
    w = tf.Variable([2.0, 3.0], name="w")

    @tf.function
    def inner(h: tf.Tensor) -> tf.Tensor:
        tfdb.set_trace()
        return h * 2.0

    @tf.function
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            hidden = w * x
            hidden = inner(hidden)
            hidden = tf.nn.dropout(hidden, 0.5)
            for _ in tf.range(2):
                hidden += tf.random.normal([2]) * hidden
            loss = tf.reduce_sum(tf.py_function(lambda a: a * 2.0, [hidden], tf.float32))
            last = loss * 1.0
            tfdb.set_trace()
        return tape.gradient(last, w)

    drawn = "is not run again: it draws new numbers at each run"
    play(
        lambda: step(tf.constant(1.0)),
        f"""
        graph stop · step > inner · pass 1
        > ...
        -> ...
        (tfdb) backward h
        *** the loss mul_1: RandomUniform of ... {drawn}; a stop behind that line, in step(), has what it gave
        (tfdb) c
        graph stop · step · pass 1
        > ...
        -> ...
        (tfdb) backward loss
        of the loss of ...
        gradient of loss  float32() cpu:0 4B  1
        (tfdb) backward hidden
        *** ... it calls Python; there are gradients for what it gave, none for what was before it
        (tfdb) tape last, w
        *** the gradient goes through while, and ... and of a loop's passes only the one of the stop is known
        (tfdb) tape hidden, w
        *** the gradient goes through while, and ... and of a loop's passes only the one of the stop is known
        (tfdb) c
        """,
    )
