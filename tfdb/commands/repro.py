"""The command that writes a recorded call into a file of its own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from tfdb import internals_rerun, progress, repro, rerun, sources
from tfdb.commands.base import PromptBase
from tfdb.errors import TfdbError


class ReproCommands(PromptBase):
    """`repro`."""

    def do_repro(self, arg: str) -> None:
        """repro FILE.py [FUNCTION] [--test]

        Write a script, or with `--test` a pytest test, that makes the failing call again in a fresh process: the source
        of the function and of what it needs, its arguments and variables in an .npz file beside it, the seed, and the
        assertion that fails.  After an error that is the error itself; otherwise, that no result or variable is nan or
        infinite; for a call that does not fail, that the results are those of now.  The file is run once to see whether
        it does fail the same way; if not, it is taken away again, and what came instead is said.

        Example:

            (tfdb) repro bug.py
            (tfdb) repro test_bug.py train_step --test
        """
        try:
            path, expression, test = repro_options(arg)
            if self.graph_stop is not None and internals_rerun.spare_threads() < 1:
                raise TfdbError("no thread is left to run a graph at this stop: set TF_NUM_INTEROP_THREADS=4")
            target = self.target(expression)
            wreck = self.wreck
            if wreck is not None and not expression:
                failure, results = repro.of_error(wreck.failure.error), list[Any]()
                if target.eager:  # its own error, not the one that a graph makes of it
                    failure = repro.Failure("error", wreck.facts.error, wreck.reported.message)
            else:
                with self.session.door.last_kept(), progress.told(f"running {target.name}() again", self.stdout):
                    failure, results = repro.judge(target, self.undisturbed, self.substitutes(target))
            scopes = [scope for view in self.views() for scope in scopes_of(view)]
            with progress.told(f"running {path.name} in a fresh process", self.stdout):
                written = repro.write(path, target, failure, results, scopes, test)
        except (TfdbError, ValueError, OSError) as error:
            self.error(str(error))
            return
        self.message(f"written: {written.path} and {written.arrays.name}")
        said = f"{written.verdict}: {rerun.shortened(written.said)}"
        self.message(f"run in a fresh process: {said}")


def scopes_of(view: rerun.FrameView) -> list[sources.Scope]:
    """Where the names of a frame are looked up: its locals, what is global beside them, and the globals alone."""
    beside = {name: value for name, value in view.globals.items() if name not in view.locals}
    function = "" if view.function == "<module>" else view.function
    inner = sources.Scope(view.filename, {**view.locals, **beside}, function)
    return [inner, sources.Scope(view.filename, view.globals)]


def repro_options(arg: str) -> tuple[Path, str, bool]:
    """The file to write, the expression that names a function, and whether a test is wanted."""
    words = shlex.split(arg)
    test = "--test" in words
    words = [word for word in words if word != "--test"]
    if not words or not words[0].endswith(".py"):
        raise ValueError("repro takes a file name: repro FILE.py [FUNCTION] [--test]")
    return Path(words[0]).absolute(), " ".join(words[1:]), test
