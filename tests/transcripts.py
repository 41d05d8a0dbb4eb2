"""One text that is both script and expectation -> a scripted debugging session, matched line by line.

    play(program, '''
        > ...losses.py(24)distance()
        -> return tf.sqrt(squared)
        (tfdb) p squared.shape
        TensorShape([8])
        (tfdb) c
        ...
    ''')

Lines that start with a prompt are what the user types. All else, the program's own prints included, must come out in
this order. `...` in a line stands for any text; as a whole line it stands for any lines, or none. `(tfdb) <end>` is the
end of input. What the program raises becomes the last line: its type's name, a colon, the first line of its message.
"""

import contextlib
import io
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

PROMPTS = ("(tfdb) ", "(com) ")
END = "<end>"
_ANY = "..."


def play(program: Callable[[], object], transcript: str) -> str:
    """Runs `program` under a debugger that is fed the transcript's input; returns all that was printed.

    Raises AssertionError, with both sides printed, when that is not what the transcript says.
    """
    __tracebackhide__ = True
    expected = transcript_lines(transcript)
    output, raised = record(program, typed_lines(expected))
    if problem := mismatch(expected, printed_lines(output)):
        raise AssertionError(problem) from raised
    return output


def transcript_lines(transcript: str) -> list[str]:
    """The transcript's lines without common indentation, trailing blanks and surrounding empty lines."""
    return printed_lines(textwrap.dedent(transcript).lstrip("\n"))


def printed_lines(text: str) -> list[str]:
    """The lines of `text` without trailing blanks; empty lines at its end do not count."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def typed_lines(expected: Sequence[str]) -> list[str]:
    """What the user types, in order: the transcript's prompt lines without the prompt."""
    return [typed for line in expected if (typed := _typed(line)) is not None]


def _typed(line: str) -> str | None:
    for prompt in PROMPTS:
        if (line + " ").startswith(prompt):
            return line[len(prompt) :]
    return None


def mismatch(expected: Sequence[str], printed: Sequence[str]) -> str | None:
    """Both sides with the first difference marked, or None when `printed` is what `expected` describes."""
    i, j = 0, 0
    furthest = (0, 0)
    retry: tuple[int, int] | None = None  # the last whole-line wildcard, and the first line it has not swallowed yet
    while j < len(printed) or i < len(expected):
        furthest = max(furthest, (i, j))
        if i < len(expected) and expected[i] == _ANY:
            retry, i = (i, j), i + 1
        elif i < len(expected) and j < len(printed) and line_matches(expected[i], printed[j]):
            i, j = i + 1, j + 1
        elif retry is not None and retry[1] < len(printed):
            retry = (retry[0], retry[1] + 1)
            i, j = retry[0] + 1, retry[1]
        else:
            return _both_sides(expected, printed, furthest)
    return None


def line_matches(expected: str, printed: str) -> bool:
    """Whether one line is what the transcript says, each `...` in it standing for any text."""
    pattern = ".*".join(re.escape(part) for part in expected.split(_ANY))
    return re.fullmatch(pattern, printed) is not None


def _both_sides(expected: Sequence[str], printed: Sequence[str], difference: tuple[int, int]) -> str:
    sides = (("transcript", expected, difference[0]), ("printed", printed, difference[1]))
    blocks = []
    for title, lines, at in sides:
        shown = [*lines, "<nothing more>"] if at >= len(lines) else lines
        body = (f"{'>>>' if number == at else '   '} {number + 1:3} {line}" for number, line in enumerate(shown))
        blocks.append("\n".join([f"{title}:", *body]))
    return "the transcript is not what was printed\n" + "\n\n".join(blocks)


class _Typist(io.StringIO):
    """A stdin that echoes what is read from it, as a terminal does, so that the output reads as the transcript does."""

    def __init__(self, lines: Sequence[str], echo: io.StringIO) -> None:
        super().__init__()
        self._lines: Iterator[str] = iter(lines)
        self._echo = echo

    def readline(self, size: int | None = -1, /) -> str:
        line = next(self._lines, END)
        if line == END:
            # pdb prints the line feed itself when its input ends.
            self._echo.write(END)
            return ""
        self._echo.write(line + "\n")
        return line + "\n"


def record(program: Callable[[], object], typed: Sequence[str]) -> tuple[str, BaseException | None]:
    """What a session prints while the debugger is fed `typed`, and what the program raised, or None."""
    output = io.StringIO()
    raised: BaseException | None = None
    try:
        with contextlib.redirect_stdout(output):
            _debug(program, _Typist(typed, output), output)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raised = error
        output.write(": ".join([type(error).__name__, *str(error).splitlines()[:1]]) + "\n")
    return output.getvalue(), raised


def _debug(program: Callable[[], object], stdin: io.StringIO, stdout: io.StringIO) -> None:
    """The one place that knows how tfdb is handed its input and output."""
    from tfdb import prompt, session

    with session.using(prompt.plain_debugger(stdin=stdin, stdout=stdout)):
        program()
