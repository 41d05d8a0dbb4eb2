"""The transcript helper itself: what matches, what does not, and what is said then."""

import io
import pdb
import sys
from collections.abc import Callable

import pytest

import transcripts
from transcripts import line_matches, mismatch, play, printed_lines, transcript_lines, typed_lines


def test_common_indentation_and_surrounding_blank_lines_do_not_count() -> None:
    assert transcript_lines("\n\n    > f.py(3)\n      -> x\n\n    (tfdb) c   \n    ") == [
        "> f.py(3)",
        "  -> x",
        "",
        "(tfdb) c",
    ]


def test_prompt_lines_are_what_is_typed() -> None:
    lines = transcript_lines("""
        > f.py(3)
        (tfdb) commands 1
        (com) p loss
        (com) end
        (tfdb)
        (tfdb) p "(tfdb) not a prompt"
        '(tfdb) not a prompt'
        (tfdb) <end>
    """)
    assert typed_lines(lines) == ["commands 1", "p loss", "end", "", 'p "(tfdb) not a prompt"', "<end>"]


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("loss 0.5", "loss 0.5"),
        ("> ...train.py(12)step()", "> /tmp/x/train.py(12)step()"),
        ("...", ""),
        ("a ... b ... c", "a 1 b  c"),
        ("array([1.], dtype=float32)", "array([1.], dtype=float32)"),
        ("x(...", "x(1, 2)"),
    ],
)
def test_lines_that_match(expected: str, printed: str) -> None:
    assert line_matches(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("loss 0.5", "loss 0.50"),
        ("loss 0.5", "a loss 0.5"),
        ("loss .", "loss 5"),
        ("a ... b", "a b"),
        ("...train.py", "train.py(1)"),
        ("", "x"),
    ],
)
def test_lines_that_do_not_match(expected: str, printed: str) -> None:
    assert not line_matches(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        (["..."], []),
        (["..."], ["a", "b"]),
        (["a", "...", "z"], ["a", "z"]),
        (["a", "...", "z"], ["a", "z", "b", "z"]),
        (["...", "b", "...", "d"], ["a", "b", "b", "c", "d"]),
        (["...", "b", "c", "...", "c"], ["b", "b", "c", "d", "c"]),
        (["x...", "..."], ["x1"]),
    ],
)
def test_texts_that_match(expected: list[str], printed: list[str]) -> None:
    assert mismatch(expected, printed) is None


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (["a"], []),
        ([], ["a"]),
        (["a", "b"], ["b", "a"]),
        (["a", "...", "z"], ["a", "b"]),
        (["a", "...", "z"], ["a", "z", "b"]),
        (["...", "b", "...", "b"], ["a", "b", "c"]),
        (["a", "c"], ["a", "b", "c"]),
    ],
)
def test_texts_that_do_not_match(expected: list[str], printed: list[str]) -> None:
    assert mismatch(expected, printed) is not None


def test_many_wildcards_take_no_exponential_time() -> None:
    assert mismatch(["...", "a"] * 40 + ["b"], ["a"] * 400) is not None


def test_a_mismatch_prints_both_sides_and_marks_the_first_difference() -> None:
    problem = mismatch(["> f.py(3)", "(tfdb) p x", "1", "(tfdb) c"], ["> f.py(3)", "(tfdb) p x", "2", "(tfdb) c"])
    assert problem is not None
    assert problem.splitlines() == [
        "the transcript is not what was printed",
        "transcript:",
        "      1 > f.py(3)",
        "      2 (tfdb) p x",
        ">>>   3 1",
        "      4 (tfdb) c",
        "",
        "printed:",
        "      1 > f.py(3)",
        "      2 (tfdb) p x",
        ">>>   3 2",
        "      4 (tfdb) c",
    ]


def test_a_mismatch_says_which_side_ended_early() -> None:
    assert ">>>   2 <nothing more>" in str(mismatch(["a", "b"], ["a"])).partition("printed:")[2]
    assert ">>>   2 <nothing more>" in str(mismatch(["a"], ["a", "b"])).partition("printed:")[0]


def test_trailing_blanks_and_empty_last_lines_do_not_count() -> None:
    assert printed_lines("a  \n\nb\n\n\n") == ["a", "", "b"]


def _plain_pdb(program: Callable[[], object], stdin: io.StringIO, stdout: io.StringIO) -> None:
    debugger = pdb.Pdb(stdin=stdin, stdout=stdout, nosigint=True, readrc=False)
    debugger.use_rawinput = False
    debugger.prompt = transcripts.PROMPTS[0]
    previous = sys.gettrace()
    try:
        debugger.runcall(program)
    finally:
        sys.settrace(previous)


@pytest.fixture
def with_plain_pdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper bound to the standard library's debugger: all of it but tfdb is real."""
    monkeypatch.setattr(transcripts, "_debug", _plain_pdb)


def _program() -> None:
    for number in range(2):
        print("number", number)


@pytest.mark.usefixtures("with_plain_pdb")
def test_a_session_is_played_and_the_programs_prints_are_part_of_it() -> None:
    output = play(
        _program,
        """
        > ...test_transcripts.py(...)_program()
        -> for number in range(2):
        (tfdb) n
        > ...test_transcripts.py(...)_program()
        -> print("number", number)
        (tfdb) p number + 41
        41
        (tfdb) c
        number 0
        number 1
        """,
    )
    assert "(tfdb) p number + 41\n41\n" in output


@pytest.mark.usefixtures("with_plain_pdb")
def test_a_wrong_expectation_fails_with_both_sides() -> None:
    with pytest.raises(AssertionError, match="(?s)transcript:.*>>> +3 number 1.*printed:.*>>> +. number 0"):
        play(_program, "...\n(tfdb) c\nnumber 1")


@pytest.mark.usefixtures("with_plain_pdb")
def test_input_that_ends_too_soon_shows_as_the_end_of_input() -> None:
    with pytest.raises(AssertionError, match="(?s)printed:.*<end>"):
        play(_program, "...\n-> for number in range(2):\n")
    play(_program, "...\n-> for number in range(2):\n(tfdb) <end>\n...")


@pytest.mark.usefixtures("with_plain_pdb")
def test_what_the_program_raises_is_the_last_line() -> None:
    def program() -> None:
        raise ValueError("bad batch\nof 3")

    play(program, "...\n(tfdb) c\nValueError: bad batch")
    with pytest.raises(AssertionError) as failure:
        play(program, "...\n(tfdb) c")
    assert isinstance(failure.value.__cause__, ValueError)
