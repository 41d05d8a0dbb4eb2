"""`tape`, `backward` and `why` at prompts: what tapes record, gradients on demand, and the program's own unharmed."""

import threading
from typing import Any

from stops import watched

import tfdb
from tfdb import tapes
from transcripts import play


def test_a_tape_and_gradients_on_demand(tf: Any) -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    found = []

    def program() -> None:
        for step in range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(w * w) * (step + 1.0)
                tfdb.set_trace()
            found.append(tape.gradient(loss, w).numpy().tolist())

    play(
        program,
        """
        > ...test_tapes.py(...)program()
        -> ...
        (tfdb) tape
        GradientTape · for one gradient · recording...
          watches w
        (tfdb) c
        > ...test_tapes.py(...)program()
        -> ...
        (tfdb) tape
        GradientTape · for one gradient · recording · opened test_tapes.py:...
          watches w
        (tfdb) tape loss
        w  float32(2,) cpu:0 8B  [4, 8]...
        (tfdb) p tape.gradient(loss, w).numpy()
        array([4., 8.], dtype=float32)
        (tfdb) tape
        GradientTape · for one gradient · recording · opened test_tapes.py:...
          watches w
        (tfdb) c
        """,
    )
    assert found == [[2.0, 4.0], [4.0, 8.0]]


def test_a_tape_that_opened_unseen_is_not_used_up(tf: Any) -> None:
    w = tf.Variable(3.0, name="w")
    found = []

    def program() -> None:
        with tf.GradientTape() as tape:
            loss = w * w
            tfdb.set_trace()
        found.append(float(tape.gradient(loss, w)))

    play(
        program,
        """
        > ...
        -> ...
        (tfdb) tape loss
        *** this tape opened before tfdb's first prompt: a gradient now would use it up
        (tfdb) tape nothing
        *** ...
        (tfdb) c
        """,
    )
    assert found == [6.0]


def test_backward_shows_the_gradient_of_an_intermediate(tf: Any) -> None:
    w = tf.Variable([1.0, 2.0], name="w")

    def program() -> None:
        for _ in range(2):
            with tf.GradientTape() as tape:
                hidden = w * 3.0
                tfdb.set_trace()
                loss = tf.reduce_sum(hidden * hidden)
            tape.gradient(loss, w)

    play(
        program,
        """
        > ...
        -> ...
        (tfdb) backward hidden
        *** this tape opened before tfdb's first prompt: a gradient now would use it up
        (tfdb) c
        > ...
        -> ...
        (tfdb) backward 3
        *** backward takes tensors, for example `backward hidden`
        (tfdb) backward hidden, w * 2.0
        (tfdb) c
        gradient of hidden  float32(2,) cpu:0 8B  [6, 12]...
        gradient of w * 2.0  None (`watch none` before the tape opens tells why)
        """,
    )


def test_a_gradient_that_is_none_is_shown_with_its_reason(tf: Any) -> None:
    w = tf.Variable([1.0, 2.0], name="w")

    def program() -> None:
        tfdb.set_trace()
        fixed = tf.constant([5.0, 6.0])
        with tf.GradientTape() as tape:
            hidden = w * 3.0
            flat = tf.round(w * fixed)
            aside = w - 1.0
            tfdb.set_trace()
            loss = tf.reduce_sum(hidden * hidden + flat)
        tape.gradient(loss, w)
        del aside

    play(
        program,
        """
        > ...
        -> ...
        (tfdb) watch none
        ...
        (tfdb) c
        > ...
        -> ...
        (tfdb) backward hidden, aside, fixed
        (tfdb) c
        gradient of hidden  float32(2,) cpu:0 8B  [6, 12]...
        gradient of aside  None: the loss is not computed from aside · test_tapes.py:...
        gradient of fixed  None: Round is flat between its steps: TensorFlow gives it no gradient · test_tapes.py:...
        """,
    )


def test_persistent_and_unwatching_tapes(tf: Any) -> None:
    def program() -> None:
        x = tf.constant(2.0)
        for _ in range(2):
            with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
                tape.watch(x)
                y = x * x
                with tape.stop_recording():
                    tfdb.set_trace()
            del y

    play(
        program,
        """
        > ...
        -> ...
        (tfdb) c
        > ...
        -> ...
        (tfdb) tape
        GradientTape · persistent · not recording · opened test_tapes.py:...
          watches 1 tensor by tape.watch(), no variables by itself
        (tfdb) tape y, x
        x  float32() cpu:0 4B  4
        (tfdb) c
        """,
    )


def test_no_tape(tf: Any) -> None:
    def program() -> None:
        tfdb.set_trace()
        ""

    play(
        program,
        """
        > ...
        -> ...
        (tfdb) tape
        no GradientTape is open here
        (tfdb) c
        """,
    )


def test_why_in_a_graph_needs_no_watch(tf: Any) -> None:
    """The ops of a function's graph are there to be walked when the gradient comes out None."""
    w = tf.Variable([1.0, 2.0], name="w")

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            hard = tf.cast(w > 1.5, tf.float32)
            loss = tf.reduce_sum(hard)
        if tape.gradient(loss, w) is None:
            raise ValueError("No gradients provided for any variable.")
        return loss

    tapes.log.install(ops=False)
    try:
        play(
            lambda: run_to_error(step),
            """
            ValueError: No gradients provided for any variable.
            ...
            (tfdb) why
            ...
            ...Greater  test_tapes.py:... step()
            ...hard = tf.cast(w > 1.5, tf.float32)
            ...
            (tfdb) q
            ...
            """,
        )
    finally:
        tapes.log.remove()


def run_to_error(function: Any) -> None:
    """Call a function, and open a post-mortem on what it raises."""
    try:
        function()
    except ValueError as error:
        tfdb.post_mortem(error.__traceback__)


def test_why_after_a_late_watch_says_how_to_get_it(tf: Any) -> None:
    """What ran before `watch none` is not known: nothing is claimed of it, and the next step is explained."""
    w = tf.Variable([1.0, 2.0], name="w")

    def program() -> None:
        for _ in range(2):
            with tf.GradientTape() as tape:
                hard = tf.round(w * 1.5)
                loss = tf.reduce_sum(hard)
                tfdb.set_trace()
            tape.gradient(loss, w)

    play(
        program,
        """
        > ...
        -> ...
        (tfdb) why w
        *** which ops made this loss is known while `watch none` is on: `watch none` now, then `c` to a stop...
        (tfdb) watch none
        ...
        (tfdb) why w
        *** the ops behind this loss ran before `watch none` was on, ...: go on with `c` to a stop in the next step...
        (tfdb) c
        No gradient for 1 of 1
          origin    ...test_tapes.py:... program()
        ...
          cause     the ops behind this loss ran before `watch none` was on...where
        ...
        (tfdb) c
        > ...
        -> ...
        (tfdb) why w
        ...
          origin    Round  test_tapes.py:... program()
        ...
        (tfdb) unwatch
        ...
        (tfdb) c
        """,
    )


def test_tapes_of_other_threads_are_known(tf: Any) -> None:
    def work() -> None:
        v = tf.Variable([1.0, 2.0], name="v")
        with tf.GradientTape() as tape:
            before = tf.round(v * 2.0)
            loss = tf.reduce_sum(before)
        tape.gradient(loss, v)

    with watched("none") as found:
        for _ in range(2):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        with tf.GradientTape() as tape:  # the other thread's tape is none of this one's
            w = tf.Variable(3.0)
            loss = w * 2.0
        assert float(tape.gradient(loss, w)) == 2.0
    assert [report.op for report in found] == ["Round", "Round"]
    assert [report.line.function for report in found] == ["work", "work"]


def test_a_prompt_in_another_thread_has_its_tape(tf: Any) -> None:
    def program() -> None:
        w = tf.Variable(3.0, name="w")

        def work() -> None:
            for _ in range(2):
                with tf.GradientTape() as tape:
                    loss = w * w
                    tfdb.set_trace()
                del loss, tape

        thread = threading.Thread(target=work, name="worker")
        thread.start()
        thread.join()

    play(
        program,
        """
        > ...
        -> ...
        (tfdb) c
        > ...
        -> ...
        (tfdb) tape
        GradientTape · for one gradient · recording · opened test_tapes.py:...
          watches w
        (tfdb) tape loss
        w  float32() cpu:0 4B  6
        (tfdb) c
        """,
    )


def test_why_at_a_stop_in_a_running_graph_needs_no_watch(tf: Any) -> None:
    cut, connected = tf.Variable([1.0], name="cut"), tf.Variable([2.0], name="connected")

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.round(cut * 3.0) + connected)
        grads = tape.gradient(loss, [connected, cut])
        tfdb.set_trace()
        return grads[0]

    play(
        step,
        """
        graph stop · step · pass 1
        > ...
        -> ...
        (tfdb) why cut
        No gradient for 1 of 1
          origin    Round...
        ...
        (tfdb) why connected
        connected is connected to the loss: nothing cuts the gradient
        (tfdb) why grads[-1]
        No gradient for 1 of 1
          origin    Round...
        ...
        (tfdb) c
        """,
    )
