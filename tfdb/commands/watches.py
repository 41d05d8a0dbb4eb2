"""Commands that watch for bad values: `watch`, `unwatch`, and `why` at a watch's stop."""

from typing import Any

from tfdb import render, screens, watchstops
from tfdb.commands.base import PromptBase
from tfdb.errors import TfdbError


class WatchCommands(PromptBase):
    """The session's watches at the prompt."""

    def do_watch(self, arg: str) -> None:
        """watch [nan|inf|none|near|LIMIT [in REGEX] [allow REGEX] [every N] | EXPRESSION [every N]]

        Stop before a bad value reaches the weights, at the line that made it: `nan` for the first NaN, or the infinity
        that becomes one; `inf` for any infinity that matters; `none` for a gradient that is lost.  `in` limits it to
        origins whose layer, function, file, variable or input has a name that matches (layers and functions around it
        count too), `allow` leaves those out; the program goes on there, silently.  `every` stops at each N-th bad step
        only.  Nothing is added per op: one check stands between the gradients and the update.  Without an argument:
        the list, with how often each has stopped, and how often it was passed over.

        `near` stops where an op comes near an edge, before there is a NaN: an element at which the square of the op's
        slope overflows its dtype (that square is what Adam's second moment and gradient norms sum up), and in float16
        and bfloat16 any result within 2x of overflow.  In float32 that is: the log of, or a division by, less than
        5.4e-20; rsqrt below 9.0e-14; sqrt of 0; exp above 44.4; acos and asin a rounding step from -1 or 1; a power as
        steep.  Forward ops only, not the optimizer's own; each line stops once (`every N`: each N-th near miss), the
        list counts the others.  Every such op is looked at, so it is as slow as `enable_check_numerics`; functions that
        XLA compiles are not looked at.

        A LIMIT is one of these, with > >= < or <= and a number.  It is decided before the update; a NaN is over it.

            grad > 100          the l2 norm of all gradients together, as they are applied: after clipping, unscaling
                                (mixed precision) and accumulation.  grad.max is their largest magnitude, grad.mean
                                the mean one
            grad:REGEX > 5      the same for each variable whose name matches: one over the limit is enough
            update > 0.1        the l2 norm of the whole update over that of the weights before it; update:REGEX for
                                each variable (weights that are all zero have no ratio)
            loss > 10           what the gradient is taken of, before loss scaling

        For hand-written updates (`w.assign_sub(...)`) the gradients are those that the tape gave for the variable.
        With a limit, `in` and `allow` choose the variables that count.  An EXPRESSION is looked at at the same place,
        over the names of the step; it costs nothing much where TensorFlow can compute it.  In one, `backward(NAME)` is
        the gradient that came to a tensor with that name where `tape.gradient` is called.

        At the stop `c` goes on as the program would have, bad update included: that is one fault, and what comes of it
        later does not stop again.  `skip` goes on without the update; `q` ends.  `n`, `s`, `r` and `unt` are refused:
        the frames hold what had run, and in a graph `rerun` steps through that call.

        Example:

            (tfdb) watch nan in decoder
            (tfdb) watch grad:kernel > 5
            (tfdb) watch tf.reduce_max(logits) > 50
            (tfdb) watch tf.norm(backward(hidden)) > 10
            (tfdb) watch
        """
        watches = watchstops.of(self.session)
        if not arg.strip():
            for line in watches.listing() or ["no watches"]:
                self.message(line)
            return
        try:
            watches.start([arg])
        except TfdbError as error:
            self.error(str(error))
            return
        self.message(watches.listing()[-1])

    def do_skip(self, arg: str) -> Any:
        """skip

        At a stop of `watch`: go on without this update.  Weights, the optimizer's slots and its count of iterations
        stay as they are at the stop, metrics and batch statistics that are bad already get the values that the step
        began with.  In a graph the update is taken back when the call is over, so of a function that runs several steps
        in one call (`steps_per_execution`, a loop over a dataset) the steps after this one are left out too.  In eager
        code nothing is written until the next gradient tape is opened.  `c` goes on with the bad update instead.

        Example:

            (tfdb) skip
        """
        if arg.strip():
            self.error("skip takes no argument: it leaves out the update of this stop")
            return None
        try:
            self.message(f"skipped: {watchstops.of(self.session).skip()}")
        except TfdbError as error:
            self.error(str(error))
            return None
        return self.do_continue("")

    def do_unwatch(self, arg: str) -> None:
        """unwatch [NUMBER ...]

        Take watches away by their numbers, or all of them.

        Example:

            (tfdb) unwatch 1
        """
        watches = watchstops.of(self.session)
        try:
            gone = watches.remove([int(word) for word in arg.split()])
        except ValueError:
            self.error(f"no such watch: {arg}; `watch` lists them")
            return
        for line in gone or ["no watches"]:
            self.message(f"no longer: {line}" if gone else line)

    def do_why(self, arg: str) -> None:
        """why [EXPRESSION]

        Explain this stop: at a watch's stop the origin, its inputs, the cause, the way the bad value went and a fix;
        after an error, what went wrong and which lines had a part in it.  With a variable, why its gradient is None;
        with a tensor that left its graph, the line that let it out.

        Example:

            (tfdb) why
            (tfdb) why model.layers[0].kernel
        """
        stop = self.graph_stop
        if arg.strip() or stop is None or stop.report is None:
            super().do_why(arg)
            return
        color = self.in_colour()
        self.message(screens.watch_screen(stop.report, render.terminal_width(), color))
