"""pdb's commands that step, which a watch's stop refuses: its frames are those of a step that has run already."""

from typing import Any

from tfdb import skips
from tfdb.commands.base import PromptBase


class SteppingCommands(PromptBase):
    """`step`, `next`, `return` and `until`, and how a frame is shown that nothing can step in."""

    def cannot_step(self, command: str) -> bool:
        """Whether this is a watch's stop; then it is said what to do instead: a step would let the update happen."""
        stop = self.graph_stop
        if stop is None or stop.reason != "watch":
            return False
        self.error(f"{command} cannot step on from a watch's stop: {skips.ways_on(stop.trip)}")
        return True

    def do_step(self, arg: str) -> Any:
        """s(tep)

        Run to the next line, in a function that is called too; from eager code into a `tf.function`'s graph.  At a
        watch's stop there is nothing to step in, for its frames hold what had run: `rerun` steps through that call.

        Example:

            (tfdb) s
        """
        return None if self.cannot_step("s") else super().do_step(arg)

    do_s = do_step

    def do_next(self, arg: str) -> Any:
        """n(ext)

        Run to the next line of this function, or until it returns.  Not at a watch's stop: `rerun` steps through that
        call.

        Example:

            (tfdb) n
        """
        return None if self.cannot_step("n") else super().do_next(arg)

    do_n = do_next

    def do_return(self, arg: str) -> Any:
        """r(eturn)

        Run until this function returns; `__return__` is its value.  Not at a watch's stop: `rerun` steps through that
        call.

        Example:

            (tfdb) r
        """
        return None if self.cannot_step("r") else super().do_return(arg)

    do_r = do_return

    def do_until(self, arg: str) -> Any:
        """unt(il) [LINE]

        Run to a line below this one (out of a loop), or to LINE.  Not at a watch's stop: `rerun` steps through that
        call.

        Example:

            (tfdb) unt 41
        """
        return None if self.cannot_step("unt") else super().do_until(arg)

    do_unt = do_until

    def format_stack_entry(self, frame_lineno: Any, *prefix: str) -> str:
        """A line of the stack; a frame that was over when the stop came says so."""
        text: str = super().format_stack_entry(frame_lineno, *prefix)
        stop = self.graph_stop
        entry = stop.live_frame(frame_lineno[0]) if stop is not None else None
        if entry is None or not entry.done:
            return text
        place, newline, rest = text.partition("\n")
        return f"{place}{FORWARD}{newline}{rest}"


FORWARD = "  (forward, done: not a caller)"
