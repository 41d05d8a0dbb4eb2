"""`help`: every command in one table, and each command's manual, within the width of the terminal."""

import re
from typing import Any

import pytest

import tfdb
from tfdb import completion
from tfdb.commands import helping
from tfdb.prompt import Commands, plain_debugger
from transcripts import play

OPTION = re.compile(r"(?<![\w-])--?[a-z]+")


def own_commands() -> list[str]:
    """The names of the commands that tfdb adds or changes."""
    classes = [each for each in Commands.__mro__ if each.__module__.startswith("tfdb.")]
    return sorted({name.removeprefix("do_") for each in classes for name in vars(each) if name.startswith("do_")})


def test_the_table_names_every_command_of_tfdb() -> None:
    short = {"a", "b", "h", "help", "j", "EOF", "q", "exit", "n", "s", "r", "unt"}
    assert set(own_commands()) - helping.words() <= short


def test_the_table_and_the_completion_know_the_options_of_the_manuals() -> None:
    rows = [row for rows, _ in helping.GROUPS.values() for row in rows]
    told = {name.split()[0]: set(OPTION.findall(phrase)) for names, phrase in rows for name in names.split(", ")}
    usage = {name: OPTION.findall(getattr(Commands, f"do_{name}").__doc__.split("\n")[0]) for name in own_commands()}
    assert not {name for name, options in told.items() if not options <= set(usage.get(name, ()))}
    assert {name: tuple(usage[name]) for name in completion.OPTIONS} == completion.OPTIONS


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_table_fits_and_leaves_nothing_out(width: int) -> None:
    debugger = plain_debugger()
    lines = "\n".join(helping.table(debugger.names(), width)).split("\n")
    assert max(map(len, lines)) <= width
    shown = set(" ".join(lines).replace(",", " ").split())
    assert not [name for name in debugger.names() if name not in shown and name != "EOF"]
    if width == 80:
        assert len(lines) <= 48


@pytest.mark.parametrize("name", own_commands())
@pytest.mark.parametrize("width", [60, 80])
def test_manuals_fit(name: str, width: int) -> None:
    text = helping.manual(getattr(Commands, f"do_{name}").__doc__, width)
    prose = [line for line in text.split("\n") if not line.startswith("    ")]
    assert max(map(len, prose)) <= width
    assert "Example" in text


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_list_in_a_manual_keeps_its_second_column(width: int) -> None:
    text = helping.manual(Commands.do_watch.__doc__, width).split("\n")
    first = next(number for number, line in enumerate(text) if line.startswith("    grad > 100 "))
    last = next(number for number, line in enumerate(text) if line.startswith("    loss > 10 "))
    column = text[first].index("the l2")
    for line in text[first : last + 1]:
        assert line[column - 1] == " " and line[column] != " " and len(line) <= width
    assert "largest magnitude, grad.mean the mean one" in " ".join(" ".join(text).split())


def test_help_at_the_prompt(tf: Any) -> None:
    def program() -> None:
        tfdb.set_trace()
        print("end", tf.__name__)

    play(
        program,
        """
        ...
        (tfdb) help
        stops
          b op:REGEX, ...
        ...
        tensors
          pt EXPR ...
        ...
        help COMMAND shows its manual with an example
        (tfdb) help ni
        ni NODE [-a] [-t]
        ...
        Example:
            (tfdb) ni MatMul
        ...
        (tfdb) h unt
        unt...
        ...
        (tfdb) help nothing
        *** No help for 'nothing'
        (tfdb) c
        end tensorflow
        """,
    )
