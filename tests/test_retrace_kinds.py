"""`retraces` on the usual ways to have a function traced again: the reason, from what to what, who called, advice."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfdb
from transcripts import play

Kind = tuple[Any, list[tuple[Any, ...]]]  # a tf.function and the arguments of its calls


class Settings:
    """A plain object that a function takes."""

    factor = 2.0


def last_batch(tf: Any) -> Kind:
    return tf.function(lambda batch: tf.reduce_mean(batch)), [(tf.ones([size, 3]),) for size in (8, 8, 8, 5)]


def counter(tf: Any) -> Kind:
    return tf.function(lambda x, step: x * step), [(tf.ones([2]), n) for n in range(3)]


def new_object(tf: Any) -> Kind:
    return tf.function(lambda x, settings: x * settings.factor), [(tf.ones([2]), Settings()) for _ in range(3)]


def growing_list(tf: Any) -> Kind:
    return tf.function(lambda losses: tf.add_n(losses)), [([tf.ones([])] * n,) for n in (1, 2, 3)]


def dtypes(tf: Any) -> Kind:
    return tf.function(lambda x: 2 * x), [(tf.ones([2]),), (np.ones([2]),), (np.ones([2], np.float32),)]


def keys(tf: Any) -> Kind:
    one = tf.ones([])
    batches = [{"a": one, "b": one}, {"b": one, "a": one}, {"a": one, "b": one, "c": one}]
    return tf.function(lambda batch: batch["a"]), [(batch,) for batch in batches]


def optional(tf: Any) -> Kind:
    x = tf.ones([2])
    return tf.function(lambda x, mask=None: x if mask is None else x * mask), [(x,), (x, x), (x, None)]


def words(tf: Any) -> Kind:
    f = tf.function(lambda x, mode: x if mode == "train" else -x)
    return f, [(tf.ones([2]), mode) for mode in ("train", "eval", "test")]


def variables(tf: Any) -> Kind:
    made: list[Any] = []

    @tf.function
    def f(x: Any) -> Any:
        if not made:
            made.append(tf.Variable(1.0))
        return x * made[0]

    return f, [(tf.ones([2]),)] * 2


def ranks(tf: Any) -> Kind:
    return tf.function(lambda x: tf.reduce_sum(x)), [(tf.ones([4]),), (tf.ones([4, 4]),)]


def mixed(tf: Any) -> Kind:
    return tf.function(lambda rate: 2 * rate), [(0.1,), (tf.constant(0.1),), (tf.Variable(0.1),)]


@pytest.mark.parametrize(
    ("kind", "traced", "change", "advice"),
    [
        (last_batch, 2, "batch: float32(8, 3) -> float32(5, 3)", "drop_remainder=True"),
        (counter, 3, "step: 1 -> 2", "tf.constant(step)"),
        (new_object, 3, "settings: Settings object at 0x... -> Settings object at 0x...", "make it once and reuse it"),
        (growing_list, 3, "losses[2]: absent -> float32()", "losses: a list's length"),
        (dtypes, 2, "x: float32(2,) -> float64(2,)", "convert to one dtype"),
        (keys, 2, "batch['c']: absent -> float32()", "the same structure"),
        (optional, 2, "mask: None -> float32(2,)", "None and a tensor are two graphs"),
        (words, 3, "mode: 'eval' -> 'test'", "each value needs its own graph"),
        (variables, 2, "the first call made variables", "make them before"),
        (ranks, 2, "x: float32(4,) -> float32(4, 4)", "tf.TensorSpec(None, tf.float32)"),
        (mixed, 3, "rate: 0.1 -> float32()", "pass the same type"),
    ],
)
@pytest.mark.parametrize("stepped", [False, True], ids=["plain", "with twins"])
def test_kinds(tf: Any, kind: Callable[[Any], Kind], traced: int, change: str, advice: str, stepped: bool) -> None:
    f, calls = kind(tf)

    def program() -> None:
        tfdb.set_trace()
        for arguments in calls:
            f(*arguments)
        tfdb.set_trace()
        print("end")

    last = program.__code__.co_firstlineno + 5
    start = f"...\n(tfdb) b {__file__}:{last}\n...\n" if stepped else "...\n"
    output = play(program, f"{start}(tfdb) c\n...\n(tfdb) retraces f\n...\n(tfdb) retraces\n...\n(tfdb) c\n...")
    shown, _, listed = output.partition("(tfdb) retraces f\n")[2].partition("(tfdb) retraces\n")
    text = " ".join(shown.split())
    assert f": {traced} traces" in text.partition(" 1 ")[0]
    assert all(piece in text for piece in change.split("...")), shown
    assert advice in text, shown
    assert "called at test_retrace_kinds.py:" in text
    assert f" {traced} traces" in listed, listed
    assert max(map(len, shown.splitlines())) <= 80


def test_a_strategys_scope_is_a_context_of_its_own(tf: Any) -> None:
    f = tf.function(lambda x: 2 * x)

    def program() -> None:
        tfdb.set_trace()
        f(tf.ones([2]))
        with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
            f(tf.ones([2]))
        tfdb.set_trace()
        print("end")

    play(
        program,
        """
        ...
        (tfdb) c
        ...
        (tfdb) retraces f
        <lambda>: 2 traces for 2 calls
            1  x: float32(2,)   called at test_retrace_kinds.py:...
            2  context: an eager call -> in a strategy's cross-replica context
               called at test_retrace_kinds.py:...
          what to do  called in a strategy's cross-replica context: each device or outer
                      graph needs a trace
        (tfdb) c
        end
        """,
    )


def test_a_breakpoint_in_the_function_adds_no_trace(tf: Any) -> None:
    @tf.function
    def f(x: Any, step: Any) -> Any:
        return x * step

    def program() -> None:
        tfdb.set_trace()
        for _ in range(2):
            for n in range(3):
                f(tf.ones([2]), n)
        tfdb.set_trace()
        print("end")

    line = f.python_function.__code__.co_firstlineno + 2
    output = play(
        program,
        f"""
        ...
        (tfdb) b {__file__}:{line}
        ...
        (tfdb) c
        graph stop · f · pass 1
        ...
        (tfdb) cl 1
        ...
        (tfdb) c
        ...
        (tfdb) retraces
          f  test_retrace_kinds.py:...    3 traces  because of step (python)
        (tfdb) retraces f
        f: 3 traces...
        ...
        (tfdb) c
        end
        """,
    )
    assert "anew" not in output


def test_a_function_made_in_a_loop_or_a_call(tf: Any) -> None:
    def predict(x: Any) -> Any:
        @tf.function
        def inner(x: Any) -> Any:
            return x + 1

        return inner(x)

    def program() -> None:
        tfdb.set_trace()
        for _ in range(3):
            predict(tf.ones([2]))
        tfdb.set_trace()
        print("end")

    play(
        program,
        """
        ...
        (tfdb) c
        ...
        (tfdb) retraces
          inner  test_retrace_kinds.py:...    3 traces  the tf.function is made anew
        ... each time
        (tfdb) retraces predict
        predict makes inner when it is called
        inner: 3 traces
            1  x: float32(2,)   called at test_retrace_kinds.py:...
            2  the same arguments again: another tf.function object (make it once,
               outside loops and calls)   called at test_retrace_kinds.py:...
        ...
        (tfdb) c
        end
        """,
    )


def test_a_models_steps_answer_for_its_methods(tf: Any) -> None:
    import keras

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.top = keras.layers.Dense(1)
            self.calls = 0

        def call(self, x: Any) -> Any:
            self.calls += 1
            return self.top(x)

    def program() -> None:
        model = Net()
        model.compile("sgd", "mse", jit_compile=False)
        tfdb.set_trace()
        for size in (2, 3):
            model.predict_on_batch(np.ones((size, 2), np.float32))
        model.fit(np.ones((4, 2)), np.ones((4, 1)), batch_size=2, verbose=0)
        tfdb.set_trace()
        print("end", model.name)

    play(
        program,
        """
        ...
        (tfdb) retraces model
        *** model is no tf.function, and none that was traced calls it
        (tfdb) c
        ...
        (tfdb) retraces model.train_step
        ....train_step is traced in the step functions that Keras makes of fit()
        one_step_on_data: 1 trace
            1  data[0]: float32(2, 2), data[1]: float32(2, 1)
               called at test_retrace_kinds.py:...
          these lines run only while tracing:
            test_retrace_kinds.py:...  self.calls += 1
                changes self.calls: at each trace, not at each call...
        ...
        (tfdb) retraces model.predict_on_batch
        ....predict_on_batch is traced in the step functions that Keras makes of
          predict()
        one_step_on_data_distributed: 3 traces
            1  data[0][0]: float32(2, 2)   called at test_retrace_kinds.py:...
            2  the first call made variables: traced again without making them
               called at test_retrace_kinds.py:...
            3  data[0][0]: float32(2, 2) -> float32(?, 2)
               called at test_retrace_kinds.py:...
          what to do  the first step makes the model's or the optimizer's variables:
                      these two traces are usual
        ...
        (tfdb) retraces model.nothing
        *** AttributeError: ...
        (tfdb) c
        end ...
        """,
    )
