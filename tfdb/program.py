"""A script or module name -> the program, run as `__main__` under the debugger as `python` alone would run it."""

import io
import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tfdb.errors import TfdbError


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be run: a script's path or a module's name, and its arguments."""

    target: str
    arguments: tuple[str, ...]
    is_module: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """What to do at a stop besides the prompt: `no_prompt` ends the program with status 1, `path` gets the report."""

    no_prompt: bool = False
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A program ready to run: its code and the names that `__main__` begins with."""

    code: CodeType
    names: dict[str, Any]
    argv0: str
    folder: str


def load(program: Program) -> Loaded:
    """Compile the program.

    Raises:
        TfdbError: no such file or module, or a folder.
        SyntaxError: the program's own.
    """
    if program.is_module:
        try:
            name, spec, code = runpy._get_module_details(program.target)  # type: ignore[attr-defined]
        except ImportError as error:
            raise TfdbError(f"no module to run: {error}") from error
        path = os.path.abspath(code.co_filename)
        names = {"__file__": path, "__package__": spec.parent, "__loader__": spec.loader, "__spec__": spec}
        return Loaded(code, names, path, os.getcwd())
    path = os.path.abspath(program.target)
    if not os.path.isfile(path):
        raise TfdbError(f"{program.target} {'is a folder' if os.path.isdir(path) else 'does not exist'}")
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    names = {"__file__": path, "__package__": None, "__loader__": None, "__spec__": None}
    return Loaded(code, names, program.target, os.path.dirname(path))


def prepare(loaded: Loaded, arguments: tuple[str, ...]) -> ModuleType:
    """Make the new `__main__`, whole: spawned workers and pickles find in it what they find without a debugger."""
    main = ModuleType("__main__")
    main.__dict__.update(loaded.names, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    sys.argv[:] = [loaded.argv0, *arguments]
    sys.path[0] = loaded.folder
    return main


def run(loaded: Loaded, main: ModuleType) -> None:
    """Run the program's code in `main`; whatever it raises passes through."""
    exec(loaded.code, main.__dict__)
