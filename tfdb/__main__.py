"""The command line: `python -m tfdb [options] (SCRIPT | -m MODULE) [ARG ...]`."""

import argparse
import os
import pdb
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tfdb
from tfdb import program
from tfdb.errors import Again, Quit, TfdbError

SPARE_THREADS = 4  # inter-op threads beyond the cores: a stop holds one, and what it evaluates may need more


def parser() -> argparse.ArgumentParser:
    """The command line's options."""
    made = argparse.ArgumentParser(
        prog="python -m tfdb",
        usage="python -m tfdb [options] (SCRIPT | -m MODULE) [ARG ...]",
        description="ipdb for TensorFlow: breakpoints and values inside compiled graphs.",
        epilog="It stops at the program's first line; when a -c command set a breakpoint, it runs on to that one, "
        "and with -w or --no-prompt it starts running. End of input quits, as in pdb.",
    )
    made.add_argument("-V", "--version", action="version", version=f"tfdb {tfdb.__version__}")
    made.add_argument(
        "-c", "--command", action="append", default=[], metavar="CMD", help="a debugger command at the start"
    )
    made.add_argument(
        "-w", "--watch", action="append", default=[], metavar="COND", help="the command `watch COND` (repeatable)"
    )
    made.add_argument("--no-prompt", action="store_true", help="print the report of the first stop and exit with 1")
    made.add_argument("--report", metavar="FILE", type=Path, help="write what stopped the program as JSON")
    made.add_argument("--plain", action="store_true", help="plain pdb prompt (also chosen when stdin is no terminal)")
    made.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module")
    made.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the program and its arguments")
    return made


def chosen_program(options: argparse.Namespace) -> program.Program | None:
    """The program that the command line names."""
    words = options.module or options.script
    return program.Program(words[0], tuple(words[1:]), is_module=bool(options.module)) if words else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    made = parser()
    options = made.parse_args(arguments)
    chosen = chosen_program(options)
    if chosen is None:
        made.print_help(sys.stderr)
        return 2
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", str((os.cpu_count() or 1) + SPARE_THREADS))
    from tfdb import entry, prompt

    prompt.plain_wanted = options.plain or options.no_prompt
    ending = program.Ending(options.no_prompt, options.report)
    try:
        debugger = entry.take_over(options.command, options.watch, ending)
        return run(chosen, debugger, ending)
    except TfdbError as error:
        print("Error:", error, file=sys.stderr)
        return 2
    finally:
        entry.give_back()


def run(chosen: program.Program, debugger: Any, ending: Any) -> int:
    """Run the program once, and again for each `run`; returns the exit status."""
    while True:
        try:
            return run_once(chosen, debugger, ending)
        except pdb.Restart:
            chosen = program.Program(chosen.target, tuple(sys.argv[1:]), chosen.is_module)
            print("Restarting", chosen.target, *chosen.arguments)


def run_once(chosen: program.Program, debugger: Any, ending: Any) -> int:
    """Run the program to its end, an error or the user's `q`; returns the exit status."""
    from tfdb import entry

    try:
        loaded = program.load(chosen)
    except TfdbError as error:
        print("Error:", error, file=sys.stderr)
        return 1
    except SyntaxError:
        traceback.print_exc(limit=0)
        return 1
    main_module = program.prepare(loaded, chosen.arguments)
    try:
        entry.start(debugger)
        program.run(loaded, main_module)
        entry.stop_tracing()
        debugger.note_at_end()
    except Again:
        entry.ended(debugger)
        debugger.session.quitting = None
        raise pdb.Restart from None
    except Quit as quit:
        return exit_status(quit) if ending.no_prompt else 0
    except SystemExit as error:
        return exit_status(error)
    except pdb.Restart:
        raise
    except BaseException as error:
        return after_error(error, ending)
    finally:
        entry.stop_tracing()
        entry.ended(debugger)
    return 0


def exit_status(error: SystemExit) -> int:
    """The status that Python would end with."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def after_error(error: BaseException, ending: Any) -> int:
    """Post-mortem of an uncaught error, or its report; returns the exit status."""
    from tfdb import entry, uncaught

    entry.stop_tracing()
    with suppress(Quit):
        uncaught.after_error(error, ending)
    return 1


if __name__ == "__main__":
    sys.exit(main())
