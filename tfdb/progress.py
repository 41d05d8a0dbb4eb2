"""Work that takes longer than a user waits without wondering -> one line that says what is going on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

PATIENCE = 1.0  # seconds


@contextmanager
def told(text: str, terminal: IO[str]) -> Iterator[None]:
    """Within the block, write the text once it takes longer than `PATIENCE`; to a terminal only, not to files."""
    if not terminal.isatty():
        yield
        return
    timer = threading.Timer(PATIENCE, write, (f"{text} …\n", terminal))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def write(text: str, terminal: IO[str]) -> None:
    """Write the text at once."""
    terminal.write(text)
    terminal.flush()
