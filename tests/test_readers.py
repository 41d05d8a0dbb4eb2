"""What a stop shows of tensors that TensorFlow's optimizer may rewrite: computed when asked for, from what is not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from walks import walk

import tfdb
from transcripts import record

NONE = [tf.TensorSpec([None]), tf.TensorSpec([None])]


def chain(x: Any) -> Any:
    first = x * 0.1 + 0.3
    second = tf.tanh(first @ tf.transpose(first)) * 0.7
    mean, rest = tf.reduce_mean(second, -1, keepdims=True), [second * 2.0, {"half": second / 2.0}]
    third = (second - mean) * tf.math.rsqrt(mean * mean + 1e-3)
    return third + rest[0] + rest[1]["half"]


def test_every_local_has_the_value_that_it_has_in_eager_code() -> None:
    x = tf.constant(np.random.default_rng(0).normal(size=(3, 4)), tf.float32)
    found: dict[str, Any] = {}

    def look(**values: Any) -> bool:
        found.update(values)
        return False

    def program() -> None:
        tfdb.set_trace()
        tf.function(chain)(x)

    chain.__globals__["look"] = look
    lines = chain.__code__.co_firstlineno
    asked = "look(first=first, second=second, mean=mean, rest=rest, third=third)"
    _, raised = record(program, [f"b {lines + 5}, {asked}", "c"])
    assert raised is None
    first = x * 0.1 + 0.3
    second = tf.tanh(first @ tf.transpose(first)) * 0.7
    mean = tf.reduce_mean(second, -1, keepdims=True)
    third = (second - mean) * tf.math.rsqrt(mean * mean + 1e-3)
    expected = {"first": first, "second": second, "mean": mean, "third": third}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, 1e-5, 1e-6)
    np.testing.assert_allclose(found["rest"][0], second * 2.0, 1e-5)
    np.testing.assert_allclose(found["rest"][1]["half"], second / 2.0, 1e-5)


def mismatched(x: Any, y: Any) -> Any:
    first = x + 1.0
    second = first + y
    third = second * 2.0
    return third


def failing(function: Callable[..., Any]) -> Callable[[], None]:
    def program() -> None:
        tfdb.set_trace()
        print("result", tf.function(function, input_signature=NONE)(tf.ones([3]), tf.ones([4])).numpy())

    return program


def test_no_stop_after_the_line_whose_op_fails() -> None:
    walk(
        failing(mismatched),
        """
        b mismatched | Breakpoint 1 at ...
        c            | mismatched: first = x + 1.0
        n            | mismatched: second = first + y
        n            | InvalidArgumentError: ... / program: print("result", ...
        q            | Quit: 1
        """,
    )


@pytest.mark.parametrize("condition", ["third.shape[0] > 0", "tf.reduce_sum(second) > 0"])
def test_a_condition_over_what_fails_is_no_stop_and_no_complaint(condition: str) -> None:
    line = mismatched.__code__.co_firstlineno + 4
    output, raised = record(failing(mismatched), [f"b {line}, {condition}", "c"])
    assert isinstance(raised, tf.errors.InvalidArgumentError)
    assert "graph stop" not in output and "***" not in output and "condition" not in output


def unused(x: Any, y: Any) -> Any:
    wrong = x + y  # noqa: F841
    good = x * 2.0
    return good


def test_an_op_that_nothing_needs_fails_nobody() -> None:
    """TensorFlow leaves it out of the graph that runs; a breakpoint beside it brings it back no more than `good`."""
    line = unused.__code__.co_firstlineno + 2
    output, raised = record(failing(unused), [f"b {line + 1}, good[0] < 0", "c"])
    assert raised is None and "result [2. 2. 2.]" in output


def with_condition(condition: str) -> str:
    def program() -> None:
        tfdb.set_trace()
        tf.function(chain)(tf.constant([[1.0, 2.0], [3.0, 4.0]]))

    line = chain.__code__.co_firstlineno + 4
    output, raised = record(program, [f"b {line}, {condition}", "c", "p 'it ' + 'stops'", "c"])
    assert raised is None and "Error" not in output, output
    return output


@pytest.mark.parametrize(
    "condition",
    [
        "'first' in locals() and 'third' not in locals()",
        "len(locals()) == 5 and 'second' in dir()",
        "sorted(locals()) == sorted(vars().keys())",
        "{**locals()}['first'][0, 0] > 0",
        "locals().get('first') is not None",
        "eval('first')[0, 0] > 0",
        "any(value[0, 0] > 0 for value in [first, second])",
        "all(second.shape == value.shape for value in [mean * first @ tf.transpose(first)])",
        "(lambda: first[0, 0] > 0)()",
        "(found := first)[0, 0] > 0",
    ],
)
def test_a_condition_sees_the_locals_in_any_way_that_python_has(condition: str) -> None:
    assert "'it stops'" in with_condition(condition)


def test_a_condition_may_be_false_in_a_generator() -> None:
    assert "'it stops'" not in with_condition("any(value[0, 0] > 1e9 for value in [first, second])")
