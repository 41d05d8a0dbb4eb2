"""`backward(NAME)` in a watched expression -> the gradient for that tensor, of the same call of the program's tape."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

from . import normexpr
from .errors import TfdbError

MOST_SLOPES = 64  # tensors of one step
ASKED = re.compile(r"\bbackward\(\s*([^()]+?)\s*\)")


class Slopes(threading.local):
    """A thread's gradients for tensors that expressions name in `backward(NAME)`, as the program's tape gave them."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Any]] = {}

    def names(self) -> dict[str, Any]:
        """The names that expressions have besides the program's."""
        return {"backward": self.backward}

    def asked(self, expressions: Sequence[str], frame: FrameType | None) -> list[Any]:
        """The tensors to differentiate for besides the program's sources, where `tape.gradient` is called."""
        texts = [text for expression in expressions for text in ASKED.findall(expression)]
        names = normexpr.names_at(normexpr.user_part(frame), None) if texts else {}
        found = []
        for text in dict.fromkeys(texts):
            try:
                value = eval(text, dict(names))  # noqa: S307
            except Exception as error:
                normexpr.say(f"backward({text})", error)
                continue
            if hasattr(value, "dtype") and not hasattr(value, "assign"):
                found.append(value)
        return found

    def given(self, original: Any, expressions: Sequence[str], frame: FrameType | None, args: Any, kwargs: Any) -> Any:
        """What `tape.gradient(*args, **kwargs)` gives; the gradients that expressions ask for are kept besides."""
        more = self.asked(expressions, frame)
        if not more:
            return original(*args, **kwargs)
        tape, target, sources, *rest = args
        given, slopes = original(tape, target, (sources, more), *rest, **kwargs)
        self.keep(more, slopes)
        return given

    def keep(self, tensors: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Keep what a tape gave, until the next step's."""
        if len(self.known) > MOST_SLOPES:
            self.known.clear()
        self.known.update((id(t), (t, g)) for t, g in zip(tensors, gradients, strict=True))

    def backward(self, tensor: Any) -> Any:
        """What `backward(tensor)` is in an expression.

        Raises:
            TfdbError: the tape gave none.
        """
        found = self.known.get(id(tensor), (None, None))[1]
        if found is None:
            raise TfdbError("no gradient came to this tensor; it must be a name where tape.gradient is called, "
                            "and only TensorFlow's functions may be around backward()")  # fmt: skip
        return found
