"""Programs that fail -> their wrecks, and what the prompt would show of them."""

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfdb import postmortem
from tfdb.commands.errors import postmortem_lines
from tfdb.kept import Keeper
from tfdb.postmortem import Wreck


@dataclass(frozen=True)
class Frame:
    """One of the user's frames of a wreck: the function, the text of its line, and its names."""

    function: str
    source: str
    names: dict[str, Any]


def examined(program: Callable[[], object], keeper: Keeper | None = None) -> Wreck:
    """The wreck of a program that must fail."""
    try:
        program()
    except Exception as error:
        return postmortem.examine(error, keeper)
    raise AssertionError("the program did not fail")


def frames_in(file: str, wreck: Wreck) -> list[Frame]:
    """The frames of the file, outermost first, as the prompt would show them."""

    def at(stack: list[Any]) -> list[Frame]:
        return [
            Frame(each.f_code.co_name, linecache.getline(file, line).strip(), dict(each.f_locals))
            for each, line in stack
            if each.f_code.co_filename == file
        ]

    return wreck.standing(at)


def text_of(wreck: Wreck) -> str:
    return "\n".join(postmortem_lines(wreck, 160))
