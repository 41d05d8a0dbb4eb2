"""Python frames -> the user's activations: AutoGraph's generated lines mapped back, its scaffolding folded away.

AutoGraph splits one user function into a generated function and closures for its branches and loops.  One `Activation`
puts them together again: the user's file, line and function, and the frames that hold its names.
"""

import functools
import inspect
import linecache
import operator
import os
import re
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from tfdb import generated, internals, internals_autograph, syntax

SCAFFOLDING = re.compile(generated.CLOSURE.pattern + r"|<(lambda|listcomp|setcomp|dictcomp|genexpr)>")
GENERATED_NAMES = re.compile(
    r"(ag__|fscope|do_return|retval_|get_state|set_state|if_body|else_body|loop_body|loop_test|break_|continue_|itr)[\d_]*"
)
GENERATED_FILE = "__autograph_generated_file"
HIDDEN_PACKAGES = (
    "tensorflow", "keras", "tf_keras", "numpy", "wrapt", "optree", "tree", "IPython", "ipdb", "pluggy", "_pytest",
)  # fmt: skip
STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


@functools.cache
def is_hidden(filename: str) -> bool:
    """Whether a file is TensorFlow's, Keras', NumPy's, the standard library's or tfdb's own: out of sight."""
    if filename.startswith("<"):
        return filename.startswith(("<frozen", "<__array_function__", "<decorator-gen", "<attrs generated"))
    if in_site_packages(filename):
        package = re.split(r"(?:site|dist)-packages[/\\]", filename)[-1]
        return re.split(r"[/\\.]", package)[0] in HIDDEN_PACKAGES
    return filename.startswith((STDLIB, OWN)) or GENERATED_FILE in filename


def is_nowhere(filename: str) -> bool:
    """Whether a function's text exists nowhere, as that of a method that dataclasses or namedtuple wrote."""
    return filename.startswith("<") and not linecache.getlines(filename)


def in_site_packages(filename: str) -> bool:
    """Whether the file is an installed package's."""
    return "site-packages" in filename or "dist-packages" in filename


@functools.cache
def is_user(filename: str) -> bool:
    """Whether stepping may stop in this file unasked: the user's own, not an installed package's."""
    return not is_hidden(filename) and not in_site_packages(filename)


@dataclass(frozen=True, slots=True)
class Activation:
    """One running call of a Python function.

    `frames` holds the generated function's frame first, then those of the branch and loop bodies open inside it.
    `code` is the user's own code object, or None where it could not be found.
    """

    filename: str
    lineno: int
    function: str
    code: CodeType | None
    frames: tuple[FrameType, ...]

    @property
    def base(self) -> FrameType:
        """The frame that lives as long as the call."""
        return self.frames[0]

    @property
    def hidden(self) -> bool:
        """Whether the frame belongs to a library and is shown on request only."""
        return is_hidden(self.filename)

    def names(self) -> dict[str, Any]:
        """The user's local names with their values; AutoGraph's own names and undefined ones are left out."""
        merged: dict[str, Any] = {}
        for frame in self.frames:
            merged.update(frame.f_locals)
        return {name: value for name, value in merged.items() if self.owns(name) and not internals.is_undefined(value)}

    def owns(self, name: str) -> bool:
        """Whether the name stands in the user's own function."""
        if GENERATED_FILE not in self.base.f_code.co_filename:
            return True
        if self.code is None:
            return GENERATED_NAMES.fullmatch(name) is None
        return name in self.code.co_varnames or name in self.code.co_cellvars or name in self.code.co_freevars


def activations(
    frame: FrameType | None,
    lines: Mapping[tuple[str, int], tuple[str, int, str]] | None = None,
    line_of: Callable[[FrameType], int] = operator.attrgetter("f_lineno"),
) -> Iterator[Activation]:
    """The activations from `frame` outwards, innermost first; library ones are included and marked hidden.

    `lines` maps generated lines to the user's; by default, it is the map of what is being traced now.  `line_of` tells
    where a frame stands: of a frame that an exception left, only the traceback knows.
    """
    if lines is None:
        lines = internals_autograph.generated_lines() if internals.loaded() else {}
    inner: list[FrameType] = []
    origin: tuple[str, int, str] | None = None
    while frame is not None:
        filename = frame.f_code.co_filename
        if GENERATED_FILE not in filename:
            if not (inner and is_hidden(filename)):
                yield Activation(filename, line_of(frame), frame.f_code.co_name, frame.f_code, (frame,))
        else:
            here = lines.get((filename, line_of(frame)))
            origin = origin or here
            if is_scaffolding(frame, (here or origin or ("", 0, ""))[2]):
                inner.append(frame)
            else:
                origin = origin or line_before(lines, frame, line_of(frame))
                if origin is not None:
                    yield converted((*origin[:2], function_of(lines, frame) or origin[2]), frame, inner)
                inner, origin = [], None
        frame = frame.f_back


def function_of(lines: Mapping[tuple[str, int], tuple[str, int, str]], frame: FrameType) -> str | None:
    """The name of the function that a generated frame runs: AutoGraph gives a nested `def` the name it defines."""
    code = frame.f_code
    places = [(code.co_filename, code.co_firstlineno + n) for n in (0, 1)]  # AutoGraph's decorator may come first
    return next((lines[place][2] for place in places if place in lines), None)


def line_before(
    lines: Mapping[tuple[str, int], tuple[str, int, str]], frame: FrameType, lineno: int
) -> tuple[str, int, str] | None:
    """The user's line nearest above a generated line that AutoGraph mapped to none, as its own `return`."""
    code = frame.f_code
    above = (lines.get((code.co_filename, line)) for line in range(lineno - 1, code.co_firstlineno - 1, -1))
    return next((found for found in above if found is not None), None)


def is_scaffolding(frame: FrameType, function: str) -> bool:
    """Whether AutoGraph made this closure for a branch, a loop or an expression inside the user's `function`."""
    name = frame.f_code.co_name
    if name == "<lambda>" and frame.f_code.co_argcount:  # AutoGraph's own take no arguments, but for a lambda's body
        return frame.f_back is not None and frame.f_back.f_code.co_name == "with_function_scope"
    if SCAFFOLDING.fullmatch(name) is None or name == "<lambda>" == named(function):
        return False
    return name.startswith("<") or frame.f_code.co_firstlineno in generated.closures(frame.f_code.co_filename)


def named(function: str) -> str:
    """The function's name as Python has it; AutoGraph calls every lambda `lambda`."""
    return "<lambda>" if function in ("lambda", "Lambda") else function


def converted(origin: tuple[str, int, str], base: FrameType, inner: list[FrameType]) -> Activation:
    """The activation of a generated function, at the user's line `origin`."""
    filename, lineno, function = origin
    name = "<lambda>" if base.f_code.co_name == "<lambda>" else named(function)
    for entity in converted_entities(base):
        code = getattr(entity, "__code__", None)
        if code is None:
            continue
        shift = shift_of_wrapper(entity, code) if code.co_name == name else 0
        found = find_code(code, name, lineno + shift)
        if found is not None:
            line = statement_line(found.co_filename, lineno + shift)
            return Activation(found.co_filename, line, name, found, (base, *reversed(inner)))
    return Activation(filename, statement_line(filename, lineno), name, None, (base, *reversed(inner)))


@functools.lru_cache(maxsize=4096)
def statement_line(filename: str, lineno: int) -> int:
    """The first line of the statement; AutoGraph maps one of several lines to any of them."""
    return syntax.first_line("".join(linecache.getlines(filename)), lineno)


def converted_entities(base: FrameType) -> Iterator[Any]:
    """The user's functions that AutoGraph's callers around a generated frame hold, innermost first."""
    frame = base.f_back
    while frame is not None:
        if frame.f_code.co_name == "converted_call":
            yield frame.f_locals.get("target_entity")
        frame = frame.f_back


def shift_of_wrapper(entity: Any, code: CodeType) -> int:
    """What AutoGraph's lines of a `functools.wraps` wrapper lack: it counts them from the wrapped function's first."""
    if not hasattr(entity, "__wrapped__"):
        return 0
    try:
        return code.co_firstlineno - inspect.getsourcelines(entity)[1]
    except (OSError, TypeError):
        return 0


def find_code(code: CodeType, name: str, lineno: int) -> CodeType | None:
    """The innermost code object called `name` that has the line, in `code` or nested in it."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found = find_code(constant, name, lineno)
            if found is not None:
                return found
    return code if code.co_name == name and has_line(code, lineno) else None


def has_line(code: CodeType, lineno: int) -> bool:
    """Whether the line lies in the code object's range, nested functions included."""
    first, last = line_range(code)
    return first <= lineno <= last


@functools.cache
def line_range(code: CodeType) -> tuple[int, int]:
    """The first and last line of a code object, nested functions included."""
    lines = [line for _, _, line in code.co_lines() if line]
    lasts = [line_range(constant)[1] for constant in code.co_consts if isinstance(constant, CodeType)]
    return code.co_firstlineno, max([code.co_firstlineno, *lines, *lasts])
