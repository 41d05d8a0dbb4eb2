"""The lines that `s` and `n` show in a graph, against those that Python itself runs when the function is eager."""

import ast
import linecache
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest
import tensorflow as tf

from tfdb import prompt, session, syntax

Step = tuple[str, str]  # function and source line; a return has "return" in place of the line


def ran_eagerly(function: Callable[..., Any], *args: Any) -> list[Step]:
    """What `s` shows when Python runs the function: each line of this file as it is about to run, each return.

    Two differences are meant, and taken out here: in a graph a statement of several lines is one stop, at its first,
    and so is a comprehension, in which Python up to 3.11 stops for each item.
    """
    seen: list[Step] = []

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != __file__:
            return None
        if event in ("line", "return") and not frame.f_code.co_name.endswith(("comp>", "expr>")):
            now = step(frame, event)
            if not (is_long(frame) and seen[-1:] == [now]):
                seen.append(now)
        return trace

    before = sys.gettrace()
    tf.config.run_functions_eagerly(True)
    sys.settrace(trace)
    try:
        function(*args)
    finally:
        sys.settrace(before)
        tf.config.run_functions_eagerly(False)
    return seen


def is_long(frame: FrameType) -> bool:
    """Whether the frame stands in a statement of several lines, or with a comprehension (inlined from 3.12 on)."""
    statement = syntax.statement_at("".join(linecache.getlines(__file__)), frame.f_lineno)
    if not isinstance(statement, ast.Assign | ast.Return):
        return False
    return statement.lineno != statement.end_lineno or any(isinstance(e, ast.ListComp) for e in ast.walk(statement))


def step(frame: FrameType, event: str) -> Step:
    """One step, as text."""
    lines = linecache.getlines(__file__)
    line = lines[syntax.first_line("".join(lines), frame.f_lineno) - 1].strip()
    return frame.f_code.co_name, line if event == "line" else "return"


class Stepper(prompt.PlainPdb):
    """A user who types `s` from the first line of this file on, until the function is left."""

    def __init__(self, command: str) -> None:
        super().__init__(nosigint=True, readrc=False)
        self.command, self.seen, self.problems = command, list[Step](), list[str]()
        self.over = False
        self.start_running()

    def message(self, msg: str, *args: Any, **kwargs: Any) -> None:
        pass

    def error(self, msg: str) -> None:
        self.problems.append(msg)

    def interaction(self, frame: FrameType | None, tb_or_exc: Any) -> None:
        with self.session.lock, self.session.prompting():
            self.setup(frame, tb_or_exc)
            now = self.curframe
            self.over = self.over or now.f_code.co_name == "ran_in_a_graph"
            if not self.over:
                event = "return" if "__return__" in now.f_locals else "line"
                self.seen.append(step(now, event))
            self.onecmd("c" if self.over else self.command)
            self.forget()


def ran_in_a_graph(function: Callable[..., Any], values: Sequence[float], command: str = "s") -> list[list[Step]]:
    """What a user who types only `s` (or `n`) sees of the function as a graph, for each value, from its first line."""
    called, seen = tf.function(function), []
    stepper = Stepper(command)
    with session.using(stepper):
        stepper.set_break(__file__, function.__code__.co_firstlineno, funcname=function.__name__)
        for value in values:
            stepper.seen, stepper.over = [], False
            called(tf.constant(value))
            seen.append(stepper.seen)
        stepper.clear_all_breaks()
    assert not stepper.problems, stepper.problems
    return seen


def straight(x: Any) -> Any:
    y = x * 2.0
    z = helper(y)
    return z + 1.0


def helper(v: Any) -> Any:
    w = v + 1.0
    return w * w


def branches(x: Any) -> Any:
    if x > 10.0:
        y = x
    elif x > 2.0:
        y = -x
        y = y * 2.0
    else:
        y = x + 1.0
    return y


def branch_without_else(x: Any) -> Any:
    y = x
    if x > 2.0:
        y = y * 2.0
    return y


def early(x: Any) -> Any:
    if x > 2.0:
        return x * 10.0
    y = x + 0.5
    if y > 1.0:
        return -y
    return y


def for_range(x: Any) -> Any:
    total = x
    for i in tf.range(3):
        total = total + tf.cast(i, tf.float32)
    return total


def for_tensor(x: Any) -> Any:
    total = x
    for row in tf.constant([1.0, 2.0, 3.0]):
        total = total + row
        total = total * 2.0
    return total


def for_nothing(x: Any) -> Any:
    total = x
    for row in tf.zeros([0]):
        total = total + row
    return total


def for_nested(x: Any) -> Any:
    total = x
    for i in tf.range(2):
        for j in tf.range(2):
            total = total + tf.cast(i * j, tf.float32)
    return total


def for_break(x: Any) -> Any:
    total = x
    for i in tf.range(5):
        if i == 1:
            continue
        total = total + tf.cast(i, tf.float32)
        if total > 5.0:
            break
    return total


def loops_of_both_kinds(x: Any) -> Any:
    y = x
    while y < 30.0:
        y = y * 2.0
        for i in range(3):
            y = y + 1.0
            if i == 1:
                break
    return y


def while_loop(x: Any) -> Any:
    while x > 0.0:
        x = x - 2.0
    return x


def while_tensor_break(x: Any) -> Any:
    n = tf.constant(0)
    while n < 10:
        n = n + 1
        if n == 2:
            continue
        x = x - 1.0
        if x < 1.0:
            break
    return x


def while_else(x: Any) -> Any:
    k = tf.constant(0)
    while k < 2:
        k += 1
        x = x + 1.0
    y = x
    return y


def unrolled(x: Any) -> Any:
    for k in range(2):
        x = x * (k + 2)
    for k, f in enumerate([tf.abs, tf.negative]):
        x = f(x) + k
    return x


def with_tape(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = helper(x)
    return tape.gradient(y, x)


def try_finally(x: Any) -> Any:
    try:
        y = x + 1.0
    finally:
        z = x * 2.0
    return y + z


def try_except(x: Any) -> Any:
    try:
        y = x + 1.0
        raise ValueError("no")
    except ValueError:
        y = x - 1.0
    return y


def nested_function(x: Any) -> Any:
    def inner(v: Any) -> Any:
        u = v + x
        return u

    y = inner(x * 2.0)
    return inner(y)


def comprehension(x: Any) -> Any:
    parts = [x * k for k in range(3)]
    total = tf.add_n(parts)
    return total


def with_lambda(x: Any) -> Any:
    double = lambda v: v * 2.0  # noqa: E731
    y = double(x)
    return y


def conditional_expression(x: Any) -> Any:
    y = x if x > 2.0 else -x
    z = y + 1.0
    return z


def several_lines(x: Any) -> Any:
    y = tf.stack(
        [
            x,
            x + 1.0,
        ]
    )
    return tf.reduce_sum(y)


def and_or(x: Any) -> Any:
    if x > 1.0 and x < 5.0:
        x = x + 1.0
    if x > 100.0 or not x < 0.0:
        x = x * 2.0
    return x


def python_branches(x: Any) -> Any:
    flag = True
    if flag:
        y = x + 1.0
    else:
        y = x - 1.0
    for name in ("a", "b"):
        if name == "a":
            continue
        y = y * 2.0
    return y


def with_cond(x: Any) -> Any:
    def yes() -> Any:
        a = x + 1.0
        return a

    def no() -> Any:
        b = x - 1.0
        return b

    y = tf.cond(x > 2.0, yes, no)
    return y


def with_while_loop(x: Any) -> Any:
    def test(v: Any) -> Any:
        return v > 0.0

    def body(v: Any) -> Any:
        w = v - 1.0
        return [w]

    (y,) = tf.while_loop(test, body, [x])
    return y


@tf.custom_gradient
def clipped(x: Any) -> Any:
    y = tf.minimum(x, 1.0)

    def grad(upstream: Any) -> Any:
        scale = upstream * 0.5
        return scale

    return y, grad


def with_custom_gradient(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = clipped(x) * 3.0
    g = tape.gradient(y, x)
    return g


def inner_function(v: Any) -> Any:
    w = v * 3.0
    return w


inner_graph = tf.function(inner_function)


def calls_graph(x: Any) -> Any:
    y = inner_graph(x)
    z = y + 1.0
    return z


class Model(tf.Module):
    def __init__(self) -> None:
        self.w = tf.Variable(2.0)

    def __call__(self, x: Any) -> Any:
        y = x * self.w
        return y


model = Model()


def with_module(x: Any) -> Any:
    y = model(x)
    model.w.assign_add(0.0)
    return y


def match_statement(x: Any) -> Any:
    k = 2
    match k:
        case 1:
            x = x + 1.0
        case _:
            x = x - 1.0
    return x


def recursive(x: Any, n: int = 2) -> Any:
    if n == 0:
        return x
    y = recursive(x + 1.0, n - 1)
    return y


def over_dataset(x: Any) -> Any:
    for row in tf.data.Dataset.range(2):
        x = x + tf.cast(row, tf.float32)
    return x


def only_docstring(x: Any) -> Any:
    """A docstring."""
    # and a comment
    return x + 1.0


def is_case(value: Any) -> bool:
    """Whether a name of this file is a function to step through: one of `x`."""
    code = getattr(value, "__code__", None)
    return code is not None and value.__module__ == __name__ and code.co_varnames[:1] == ("x",)


@pytest.mark.parametrize("case", list(filter(is_case, list(globals().values()))), ids=lambda case: case.__name__)
def test_step_and_next_show_the_lines_that_python_runs(case: Callable[..., Any]) -> None:
    values = 0.25, 3.0, 20.0
    eager = [ran_eagerly(case, tf.constant(value)) for value in values]
    assert ran_in_a_graph(case, values) == eager
    own = [[each for each in steps if each[0] == case.__name__] for steps in eager]
    assert ran_in_a_graph(case, values, command="n") == own
