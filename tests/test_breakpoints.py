# ruff: noqa: E501
"""`b` and its kin on lines of running graphs: conditions, counts and commands see each pass's own values."""

from typing import Any

import pytest
import tensorflow as tf
from walks import walk

import tfdb

seen: list[str] = []


@tf.function
def rooted(p: Any) -> Any:
    shifted = p - 1.0

    # the root of what is left
    # fmt: off
    root = tf.sqrt(
        tf.abs(
            shifted
        )
    )
    # fmt: on
    seen.append("traced")
    if tf.reduce_any(shifted < 0.0):
        root = -root
    for i in tf.range(2):
        root = root + tf.cast(i, tf.float32)
    k = tf.constant(0)
    while k < 2:
        k = k + 1
    return root * 2.0


def run_rooted() -> None:
    tfdb.set_trace()
    for n in range(4):
        value = rooted(tf.constant([float(n), 5.0]))
        print("value", n, value.numpy().tolist())


def test_condition_over_values_of_the_pass() -> None:
    walk(
        run_rooted,
        """
        b @if tf.reduce_any(shifted < 0.0):@, tf.reduce_any(p > 2.5) and p[0] > 1 | Breakpoint 1 at ...
        c                                                                         | value 0 [0.0, -2.0] / value 1 [2.0, 6.0] / rooted: if tf.reduce_any(shifted < 0.0):
        p p.numpy().tolist()                                                      | [2.0, 5.0]
        condition 1 p[0] == 3                                                     | New condition set for breakpoint 1.
        c                                                                         | value 2 [4.0, 6.0] / rooted: if tf.reduce_any(shifted < 0.0):
        p p.numpy().tolist()                                                      | [3.0, 5.0]
        cl 1                                                                      | Deleted breakpoint 1 at ...
        c                                                                         | value 3 [4.828427314758301, 6.0]
    """,
    )


def test_condition_that_fails_stops_and_says_why() -> None:
    walk(
        run_rooted,
        """
        b @if tf.reduce_any(shifted < 0.0):@, undefined_name > 0 | Breakpoint 1 at ...
        c                                                        | the condition of breakpoint 1 failed: NameError: name 'undefined_name' is not defined / rooted: if tf.reduce_any(shifted < 0.0):
        condition 1 p > 1                                        | New condition set for breakpoint 1.
        c                                                        | value 0 [0.0, -2.0] / the condition of breakpoint 1 failed: ValueError: The truth value of an array with more than one element is ambiguous. Use a.any() or a.all() / rooted: if tf.reduce_any(shifted < 0.0):
        cl 1                                                     | Deleted breakpoint 1 at ...
        c                                                        | value 1 [2.0, 6.0] / value 2 [4.0, 6.0] / value 3 [4.828427314758301, 6.0]
    """,
    )


def test_temporary_breakpoint_stops_once() -> None:
    walk(
        run_rooted,
        """
        tbreak @root = -root@ | Breakpoint 1 at ...
        c                     | Deleted breakpoint 1 at ...
        p p.numpy().tolist()  | [0.0, 5.0]
        c                     | value 0 [0.0, -2.0] / value 1 [2.0, 6.0] / value 2 [4.0, 6.0] / value 3 [4.828427314758301, 6.0]
    """,
    )


def test_ignore_disable_and_enable_count_each_pass() -> None:
    walk(
        run_rooted,
        """
        b rooted                                              | Breakpoint 1 at ...
        ignore 1 2                                            | Will ignore next 2 crossings of breakpoint 1.
        c                                                     | value 0 [0.0, -2.0] / value 1 [2.0, 6.0] / rooted: shifted = p - 1.0
        p float(p[0])                                         | 2.0
        disable 1                                             | Disabled breakpoint 1 at ...
        tbreak @root = root + tf.cast(i, tf.float32)@, i == 1 | Breakpoint 2 at ...
        c                                                     | Deleted breakpoint 2 at ...
        p int(i), float(p[0])                                 | (1, 2.0)
        enable 1                                              | Enabled breakpoint 1 at ...
        c                                                     | value 2 [4.0, 6.0] / rooted: shifted = p - 1.0
        b                                                     | Num Type         Disp Enb   Where / 1   breakpoint   keep yes   at ... / breakpoint already hit 4 times
        cl 1                                                  | Deleted breakpoint 1 at ...
        c                                                     | value 3 [4.828427314758301, 6.0]
    """,
    )


def test_commands_run_at_each_stop() -> None:
    walk(
        run_rooted,
        """
        b @root = root + tf.cast(i, tf.float32)@, p[0] == 2 | Breakpoint 1 at ...
        commands 1                                          |
        silent                                              |
        p int(i), float(root[0])                            |
        c                                                   |
        c                                                   | value 0 [0.0, -2.0] / value 1 [2.0, 6.0] / (0, 1.0) / (1, 1.0) / value 2 [4.0, 6.0] / value 3 [4.828427314758301, 6.0]
    """,
    )


def test_silent_leaves_out_the_heading_too() -> None:
    text = walk(
        run_rooted,
        """
        b @root = root + tf.cast(i, tf.float32)@, p[0] == 2 | Breakpoint 1 at ...
        commands 1                                          |
        silent                                              |
        end                                                 |
        c                                                   | value 0 [0.0, -2.0] / value 1 [2.0, 6.0]
        c                                                   |
        c                                                   | value 2 [4.0, 6.0] / value 3 [4.828427314758301, 6.0]
    """,
    )
    assert "graph stop" not in text


def test_headers_of_branches_and_loops_and_return() -> None:
    walk(
        run_rooted,
        """
        tbreak @if tf.reduce_any(shifted < 0.0):@ | Breakpoint 1 at ...
        tbreak @return root * 2.0@                | Breakpoint 2 at ...
        b @for i in tf.range(2):@                 | Breakpoint 3 at ...
        b @while k < 2:@                          | Breakpoint 4 at ...
        c                                         | Deleted breakpoint 1 at ...
        c                                         | rooted: for i in tf.range(2):
        c                                         | rooted: for i in tf.range(2):
        c                                         | rooted: for i in tf.range(2):
        p int(i)                                  | 1
        c                                         | rooted: while k < 2:
        p int(k)                                  | 0
        c                                         | rooted: while k < 2:
        p int(k)                                  | 1
        c                                         | rooted: while k < 2:
        p int(k)                                  | 2
        c                                         | Deleted breakpoint 2 at ...
        p root.numpy().tolist()                   | [0.0, -1.0]
        b                                         | Num Type         Disp Enb   Where / 3   breakpoint   keep yes   at ... / breakpoint already hit 3 times / 4   breakpoint   keep yes   at ... / breakpoint already hit 3 times
        cl 3                                      | Deleted breakpoint 3 at ...
        cl 4                                      | Deleted breakpoint 4 at ...
        c                                         | value 0 [0.0, -2.0] / value 1 [2.0, 6.0] / value 2 [4.0, 6.0] / value 3 [4.828427314758301, 6.0]
    """,
    )


def test_statements_of_several_lines() -> None:
    walk(
        run_rooted,
        """
        b @tf.abs(@                | Breakpoint 1 at ...
        b @root = tf.sqrt(@        | Breakpoint 2 at ...
        c                          | rooted: root = tf.sqrt(
        p shifted.numpy().tolist() | [-1.0, 4.0]
        n                          | rooted: seen.append("traced")
        c                          | value 0 [0.0, -2.0] / rooted: root = tf.sqrt(
        p shifted.numpy().tolist() | [0.0, 4.0]
        cl 1                       | Deleted breakpoint 1 at ...
        cl 2                       | Deleted breakpoint 2 at ...
        c                          | value 1 [2.0, 6.0] / value 2 [4.0, 6.0] / value 3 [4.828427314758301, 6.0]
    """,
    )


def test_blank_lines_and_comments_are_refused_as_in_pdb() -> None:
    walk(
        run_rooted,
        """
        b @# the root of what is left@ | *** Blank or comment
        b rooted.nothing               | *** The specified object 'rooted.nothing' is not a function or was not found along sys.path.
        c                              | value 0 [0.0, -2.0] / value 1 [2.0, 6.0] / value 2 [4.0, 6.0] / value 3 [4.828427314758301, 6.0]
    """,
    )


def test_a_line_that_makes_no_ops_says_so() -> None:
    seen.clear()
    walk(
        run_rooted,
        """
        b @seen.append("traced")@ | Breakpoint 1 at ... / line ... changes seen: at each trace, not at each call; ...
        c                         | line ... makes no ops: it ran once, while tracing (b trace:test_breakpoints.py:... stops there) / rooted: seen.append("traced")
        p float(p[0]), seen       | (0.0, ['traced'])
        c                         | value 0 [0.0, -2.0] / line ... makes no ops: it ran once, while tracing (b trace:test_breakpoints.py:... stops there) / rooted: seen.append("traced")
        p float(p[0]), seen       | (1.0, ['traced'])
        cl 1                      | Deleted breakpoint 1 at ...
        c                         | value 1 [2.0, 6.0] / value 2 [4.0, 6.0] / value 3 [4.828427314758301, 6.0]
    """,
    )


def test_until_a_line_and_no_jump_in_a_graph() -> None:
    walk(
        run_rooted,
        """
        b rooted                 | Breakpoint 1 at ...
        c                        | rooted: shifted = p - 1.0
        jump @return root * 2.0@ | *** a graph runs in its own order: jump works in eager code only (try `rerun`)
        unt @k = tf.constant(0)@ | rooted: k = tf.constant(0)
        unt @return root * 2.0@  | rooted: return root * 2.0
        cl 1                     | Deleted breakpoint 1 at ...
        c                        | value 0 [0.0, -2.0] / value 1 [2.0, 6.0] / value 2 [4.0, 6.0] / value 3 [4.828427314758301, 6.0]
    """,
    )


def run_with_prints() -> None:
    x = tf.constant([3.0, 1.0])
    tfdb.set_trace()
    y = x * 2.0
    rooted(y)
    y = x * 3.0
    rooted(y)


@pytest.mark.filterwarnings("ignore:assigning None to 1 unbound local")
def test_jump_works_in_eager_code() -> None:
    walk(
        run_with_prints,
        """
        b rooted             | Breakpoint 1 at ...
        jump @y = x * 3.0@   | run_with_prints: y = x * 3.0
        c                    | rooted: shifted = p - 1.0
        p p.numpy().tolist() | [9.0, 3.0]
        cl 1                 | Deleted breakpoint 1 at ...
        c                    |
    """,
    )
