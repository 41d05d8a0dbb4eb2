"""The rest of a command's line -> its expression and its options, which stand at the end: `pt x[0] -r 0,1`."""

import ast
import re
from collections.abc import Sequence

from tfdb.errors import TfdbError


def parse(argument: str, flags: Sequence[str] = (), valued: Sequence[str] = ()) -> tuple[str, dict[str, str]]:
    """The text before the options, and the options with their values ("" for flags); quotes around a value go.

    Raises:
        TfdbError: an option without its value.
    """
    rest, found = argument.strip(), {}
    names = "|".join(re.escape(name) for name in valued)
    while True:
        flag = re.search(rf"(?:^|\s)({'|'.join(re.escape(name) for name in flags)})$", rest) if flags else None
        if flag:
            found[flag[1]] = ""
            rest = rest[: flag.start()].rstrip()
            continue
        value = re.search(rf"(?:^|\s)({names})[\s=]+('[^']*'|\"[^\"]*\"|\S+)$", rest) if valued else None
        if value and value[2] not in flags:
            found[value[1]] = value[2][1:-1] if value[2][0] in "'\"" else value[2]
            rest = rest[: value.start()].rstrip()
            continue
        if valued and (lacking := re.search(rf"(?:^|\s)({names})$", rest)):
            raise TfdbError(f"{lacking[1]} takes a value")
        return rest, found


def parsed(expression: str) -> ast.expr:
    """The expression's tree.

    Raises:
        TfdbError: it is no Python.
    """
    try:
        return ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        raise TfdbError(f"SyntaxError: {error.msg}") from error
