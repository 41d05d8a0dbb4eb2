"""tfdb's own errors: each message says what happened and what to do next."""


class TfdbError(Exception):
    """An error of the debugger itself, never of the program; shown at the prompt in one line."""


class Incompatible(TfdbError):
    """A private TensorFlow name that tfdb stands on is not where it was."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__(
            f"TensorFlow {version} has no {name}: this tfdb does not know that release. Graph stops are off; "
            "upgrade tfdb, or use TensorFlow 2.21."
        )


class NotReached(TfdbError):
    """A line's value cannot be computed: an op before it fails, and so will the program's graph, where it runs."""


class Quit(SystemExit):
    """The user's `q`: ends the program through `finally` blocks, without a traceback."""


class Again(Quit):
    """The user's `run` at a stop inside a graph: ends the program as `q` does, to start it again."""
