"""`lt` and `ni` after a graph call is over: what variables held before it wrote them, while, and after."""

from collections.abc import Callable
from typing import Any

import tfdb
from transcripts import play


def writer(tf: Any) -> tuple[Callable[[Any], Any], list[Any]]:
    """A function that reads variables before and after it writes them: replaced, added to, and in a nested call."""
    replaced, added, nested = tf.Variable(1.0), tf.Variable([1.0, 2.0]), tf.Variable(3.0)

    @tf.function
    def inner() -> None:
        nested.assign(nested * 2.0)

    @tf.function
    def work(x: Any) -> Any:
        first = tf.multiply(replaced, x, name="first")
        replaced.assign(10.0 * x)
        second = tf.add(replaced, 1.0, name="second")
        added.assign_add([1.0, 1.0])
        third = tf.multiply(added, 2.0, name="third")
        inner()
        fourth = tf.multiply(nested, 2.0, name="fourth")
        return first + second + tf.reduce_sum(third) + fourth

    return work, [replaced, added, nested]


def test_what_was_not_kept_is_said_and_kept_from_the_next_call_on(tf: Any) -> None:
    work, _ = writer(tf)

    def program() -> None:
        tfdb.set_trace()
        for x in (2.0, 3.0):
            work(tf.constant(x))
            tfdb.set_trace()

    play(
        program,
        """
        ...
        (tfdb) c
        ...
        (tfdb) lt -n first|second|third$|fourth$ -t Mul|AddV2
        4 tensors of work · 3 computed again · 1 not available · variables as they are
            now
        work ...
          first  Mul   ... not available
          second AddV2 ... float32() cpu:0 4B  21
          third  Mul   ... [4, 6]...
          fourth Mul   ... float32() cpu:0 4B  12
          1 not available: ... is written by this call, and what it held before...
        ...
          the next call of this function keeps it
        (tfdb) c
        ...
        (tfdb) lt -n first|second|third$|fourth$ -t Mul|AddV2
        4 tensors of work · 4 computed again
        work ...
          first  Mul   ... float32() cpu:0 4B  60
          second AddV2 ... float32() cpu:0 4B  31
          third  Mul   ... [6, 8]...
          fourth Mul   ... float32() cpu:0 4B  24
        (tfdb) c
        """,
    )


def test_a_call_that_n_goes_over_keeps_what_its_variables_held(tf: Any) -> None:
    work, variables = writer(tf)

    def program() -> None:
        tfdb.set_trace()
        work(tf.constant(2.0))
        variables[0].assign(99.0)  # lt is about the call, not about now
        print("end")

    play(
        program,
        """
        ...
        -> work(tf.constant(2.0))
        (tfdb) n
        ...
        (tfdb) n
        ...
        -> print("end")
        (tfdb) lt -n first|second|third$|fourth$ -t Mul|AddV2
        4 tensors of work · 4 computed again
        work ...
          first  Mul   ... float32() cpu:0 4B  2
          second AddV2 ... float32() cpu:0 4B  21
          third  Mul   ... [4, 6]...
          fourth Mul   ... float32() cpu:0 4B  12
        (tfdb) c
        end
        """,
    )


def test_calls_that_n_does_not_go_over_itself_keep_nothing(tf: Any) -> None:
    work, _ = writer(tf)

    def helper() -> None:
        work(tf.constant(2.0))

    def program() -> None:
        tfdb.set_trace()
        helper()
        print("end")

    play(
        program,
        """
        ...
        (tfdb) n
        ...
        (tfdb) lt -n first$
        1 tensor of work · 1 not available...
        ...
        (tfdb) c
        end
        """,
    )


def test_graphs_that_run_for_what_the_user_types_are_not_the_programs_last_call(tf: Any) -> None:
    work, _ = writer(tf)
    ready = tf.function(lambda x: x + 1.0).get_concrete_function(tf.constant(1.0))

    def program() -> None:
        tfdb.set_trace()
        result = work(tf.constant(2.0))
        print("end", ready(result).numpy())

    play(
        program,
        """
        ...
        (tfdb) n
        ...
        (tfdb) p tf.vectorized_map(lambda v: v * 2.0, tf.stack([result, result])).shape
        TensorShape([2])
        (tfdb) p ready(result).shape
        TensorShape([])
        (tfdb) lt -n first$
        1 tensor of work · 1 computed again
        ...
        (tfdb) c
        end 46.0
        """,
    )
