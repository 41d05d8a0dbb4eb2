"""A Target and how it failed -> a file that makes the call again in a fresh process, and fails the same way.

The file holds the program's own source of what the call needs; arguments and variables are in an `.npz` beside it.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from tfdb import compare, internals_rerun, probes, render, rerun, state
from tfdb.errors import TfdbError
from tfdb.explain import report
from tfdb.rebuild import Rebuilt, path_to
from tfdb.rerun import Target
from tfdb.sourcemap import is_hidden
from tfdb.sources import Scope

CHECK_SECONDS = 300  # for the new process, TensorFlow's import and XLA's compilation included

SAME, ALIKE, DIFFERENT = "the same", "the same kind of error, in other words", "NOT the same"

RESTORE = '''
def @restore@(variables, key):
    """Give variables, in order, the values that were saved under `key`; False when some of them are not made yet."""
    count = int(@saved@[f"{key}/count"])
    if len(variables) < count:
        return False
    for index, variable in enumerate(variables[:count]):
        value = @saved@[f"{key}/{index}"]
        dtype = tf.as_dtype(variable.dtype)
        variable.assign(tf.constant(value) if value.dtype == dtype.as_numpy_dtype else tf.bitcast(value, dtype))
    return True
'''
FINITE = '''
def @assert_finite@(values, what):
    """No value may hold nan or an infinity."""
    for index, value in enumerate(tf.nest.flatten(values, expand_composites=True)):
        array = np.asarray(value)
        if array.dtype.kind in "fc":
            assert np.isfinite(array).all(), f"{what} {index} holds nan or inf: {array}"
'''
EQUAL = '''
def @assert_as_saved@(values):
    """The results must be those that were saved."""
    for index, value in enumerate(tf.nest.flatten(values, expand_composites=True)):
        if f"result/{index}" in @saved@:
            np.testing.assert_allclose(np.asarray(value), @saved@[f"result/{index}"], rtol=1e-5)
'''

MARK = "\x1etfdb "  # before what the fresh process tells of its end
RUNNER = """
import json, runpy
try:
    {run}
    told = ["", ""]
except BaseException as error:
    told = [type(error).__name__, str(error)]
print({mark!r} + json.dumps(told))
"""

WARM = """
def @restored@():
    return all([
{restores}    ])

if not @restored@():  # some variables come with the first call
    try:
        @call@()
    except Exception:
        pass
    @restored@()
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a call failed: `kind` is error, finite (a result or variable holds nan or inf) or none; `text` in a line."""

    kind: str
    error: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """The files, the failure they show, and what came of it in a fresh process: a verdict, and what it said."""

    path: Path
    arrays: Path
    failure: Failure
    verdict: str
    said: str


def of_error(error: BaseException) -> Failure:
    """The failure that an exception is."""
    return Failure("error", type(error).__name__, first_line(str(error)))


def judge(target: Target, aside: Any, twins: Sequence[Any]) -> tuple[Failure, list[Any]]:
    """Make the call as the program does, without hooks, and say how it fails; its results.  All state is put back."""
    with aside(), state.set_aside(target.at_call) as began:
        given, error = compare.traced(target, twins, [])
        if given is None:
            assert error is not None
            return of_error(error), []
        try:
            results = probes.run(replace(given, sources=()), xla=jit(target)).outputs
        except Exception as raised:
            return of_error(raised), []
        written = [now for _, _, now in state.changed(began)]
    bad = [value for value in [*results, *written] if not is_finite(value)]
    return Failure("finite" if bad else "none", "AssertionError" if bad else ""), list(results)


def is_finite(value: Any) -> bool:
    """Whether a value holds no nan and no infinity, or is no float."""
    try:
        array = np.asarray(value)
        return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
    except (TypeError, ValueError, NotImplementedError):
        return True


def jit(target: Target) -> bool:
    """Whether the call was compiled by XLA."""
    if target.wrapped is not None:
        return internals_rerun.compiles(target.wrapped)
    return getattr(getattr(target.function, "__self__", None), "jit_compile", False) is True


def write(
    path: Path, target: Target, failure: Failure, results: Sequence[Any], scopes: Sequence[Scope], test: bool
) -> Written:
    """Write the script, or with `test` the pytest test, and its arrays, and try it in a fresh process.

    Raises:
        TfdbError: something that the call needs cannot be written, the message names it; or the call ends otherwise in
            a fresh process, and there is no file then.
    """
    rebuilt = Rebuilt(saved=free("saved", visible(target, scopes)))
    with state.set_aside(target.at_call):
        call = calling(rebuilt, target, scopes)
        objects = dict(stateful(rebuilt.objects))
        for key, variables in objects.items():
            save(rebuilt, key, variables)
    if failure.kind == "none":
        rebuilt.arrays.update({f"result/{i}": np.asarray(v) for i, v in enumerate(results) if hasattr(v, "dtype")})
    arrays = path.with_suffix(".npz")
    path.write_text(text(target, failure, rebuilt, call, objects, arrays.name, test), encoding="utf-8")
    np.savez(arrays, **rebuilt.arrays)  # type: ignore[arg-type]
    verdict, said = tried(path, failure, f"test_{target.function_name}" if test else "")
    if verdict == DIFFERENT:
        path.unlink()
        arrays.unlink()
        wanted = {"error": failure.error, "finite": "nan or inf", "none": "the same results"}[failure.kind]
        raise TfdbError(
            f"not written: in a fresh process {target.name}() ends with {rerun.shortened(said)}, not with {wanted}; "
            "the failure needs more of the program than this call"
        )
    return Written(path, arrays, failure, verdict, said)


def calling(rebuilt: Rebuilt, target: Target, scopes: Sequence[Scope]) -> str:
    """Add what the call needs; the expression that makes it."""
    for filename in dict.fromkeys(scope.filename for scope in scopes):
        rebuilt.settings(next(scope for scope in reversed(scopes) if scope.filename == filename))
    args = [rebuilt.expression(value, f"argument/{index}") for index, value in enumerate(target.args)]
    args += [f"{name}={rebuilt.expression(value, f'argument/{name}')}" for name, value in target.kwargs.items()]
    function = target.function
    owner = getattr(function, "__self__", None) or (None if inspect.isroutine(function) else function)
    if owner is not None:
        found = path_to(owner, scopes)
        if found is None:
            raise TfdbError(f"no name of the program leads to the object whose {target.name}() this is")
        expression, name, scope = found
        rebuilt.name(name, scope.names[name], scope)
        bound = expression if function is owner else f"{expression}.{function.__name__}"
    else:
        bare = inspect.unwrap(function)
        if not isinstance(bare, FunctionType):
            raise TfdbError(f"{target.name}() is no Python function with a source")
        bound = bare.__name__
        if bound == "<lambda>":
            found = path_to(target.wrapped or function, scopes)
            if found is None:
                bound = free("function", visible(target, scopes))
                rebuilt.anonymous(bound, bare, target.wrapped or bare, Scope(bare.__code__.co_filename, {}))
            else:
                bound, name, scope = found
                rebuilt.name(name, scope.names[name], scope)
        else:
            rebuilt.name(bound, target.wrapped or function, Scope(bare.__code__.co_filename, bare.__globals__))
    if target.wrapped is None and not target.eager:
        options = ", jit_compile=True" if jit(target) else ""
        spec = spec_text(target.signature) if target.signature else None
        bound = f"tf.function({bound}{options}{f', input_signature={spec}' if spec else ''})"
    return f"{bound}({', '.join(args)})"


def spec_text(spec: Any) -> str | None:
    """Python text that makes a structure of specs; None where it has others than those of dense tensors."""
    import tensorflow as tf

    if isinstance(spec, tf.TensorSpec):
        shape = None if spec.shape.rank is None else spec.shape.as_list()
        return f"tf.TensorSpec({shape}, tf.{spec.dtype.name})"
    if type(spec) is dict:
        parts = {name: spec_text(part) for name, part in spec.items()}
        return None if None in parts.values() else f"{{{', '.join(f'{n!r}: {part}' for n, part in parts.items())}}}"
    if type(spec) in (list, tuple):
        texts = [spec_text(part) for part in spec]
        return None if None in texts else f"({', '.join(map(str, texts))},)"
    return None


def visible(target: Target, scopes: Sequence[Scope]) -> set[str]:
    """The names that the call's code and the frames around it see: the file's own ones must be others."""
    names = getattr(inspect.unwrap(target.function), "__globals__", {})
    return set(names).union(*(scope.names for scope in scopes))


def free(name: str, taken: Set[str]) -> str:
    """The name, with underscores behind it while it is taken."""
    while name in taken:
        name += "_"
    return name


def stateful(objects: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The lists of variables inside rebuilt objects, by the expression that gives each list."""
    for name, value in objects.items():
        for expression, part in [(name, value), (f"{name}.optimizer", getattr(value, "optimizer", None))]:
            variables = getattr(part, "variables", None) if part is not None else None
            if isinstance(variables, list | tuple) and variables:
                yield f"{expression}.variables", list(variables)
        plain = getattr(value, "__dict__", {}) if not hasattr(value, "variables") else {}
        for attribute, part in plain.items():
            if hasattr(part, "handle") and hasattr(part, "assign"):
                yield f"[{name}.{attribute}]", [part]
            elif isinstance(getattr(part, "variables", None), list | tuple):
                yield f"{name}.{attribute}.variables", list(part.variables)


def save(rebuilt: Rebuilt, key: str, variables: Sequence[Any]) -> None:
    """Save the values of variables under a key."""
    rebuilt.arrays[f"{key}/count"] = np.array(len(variables))
    for index, variable in enumerate(variables):
        rebuilt.tensor(internals_rerun.read(internals_rerun.inner_variable(variable)), f"{key}/{index}")


def text(
    target: Target, failure: Failure, rebuilt: Rebuilt, call: str, objects: Mapping[str, Any], arrays: str, test: bool
) -> str:
    """The file's text."""
    file, line = target.place
    fails = {"error": f"raises {failure.error}", "finite": "gives nan or inf", "none": "gives what is saved"}
    place = f" of {os.path.basename(file)}, line {line}" if file and not is_hidden(file) else ""
    head = f'"""{target.name}(){place}: this call {fails[failure.kind]}.\n\n'
    told = "Arguments and variables are as at the call."
    if target.at_call is None and not target.eager:
        told = "Arguments are as at the call, variables as they were when this was written."
    lines = [failure.text.strip()] if failure.text else [told, *target.notes]
    head += "\n".join(lines) + '\n"""\n'
    plain = ["import os", "import sys", "import numpy as np", "import tensorflow as tf"]
    imports = plain + [each for each in rebuilt.imports if each not in plain]
    folders = [f"sys.path.insert(0, {folder!r})" for folder in rebuilt.folders]
    load = f'{rebuilt.saved} = np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "{arrays}"))'
    seed = internals_rerun.global_seed()
    seeds = [f"tf.random.set_seed({seed})"] if seed is not None else []
    made = [RESTORE] if objects else []
    made += [FINITE] if failure.kind == "finite" else [EQUAL] if failure.kind == "none" else []
    made.append(f"def @call@():\n    return {call}")
    body = textwrap.indent(body_text(failure, objects, rebuilt.variables), "    ")
    made.append(f"def {f'test_{target.function_name}' if test else '@main@'}():\n{body}")
    made += [] if test else ['if __name__ == "__main__":\n    @main@()']
    parts = [head + "\n".join(imports[:2] + folders + imports[2:]), load, *seeds, *rebuilt.statements]
    return joined([*parts, *(named(part.strip(), rebuilt) for part in made)]) + "\n"


def named(text: str, rebuilt: Rebuilt) -> str:
    """The text with a name in the place of each `@name@`: that one, or one like it where the program has it."""
    own = {"saved": rebuilt.saved}
    return re.sub(r"@(\w+)@", lambda found: own.get(found[1]) or free(found[1], rebuilt.done), text)


def joined(parts: Sequence[str]) -> str:
    """Parts of a file with blank lines around all that is more than a line."""
    lines = parts[0]
    for before, part in zip(parts, parts[1:], strict=False):
        single = "\n" not in part and ("\n" not in before or before is parts[0])
        lines += ("\n" if single and before is not parts[0] else "\n\n" if single else "\n\n\n") + part
    return lines


def body_text(failure: Failure, objects: Mapping[str, Any], variables: Sequence[str]) -> str:
    """The lines that restore the state, make the call, and assert."""
    lines = []
    if objects:
        restores = "".join(f"        @restore@({key}, {key!r}),\n" for key in objects)
        lines += [WARM.strip().format(restores=restores)]
    if failure.kind == "error":
        return "\n".join([*lines, f"@call@()  # {failure.error}: {' '.join(failure.text.split())[:80]}"])
    lines.append("@result@ = @call@()")
    if failure.kind == "none":
        return "\n".join([*lines, "@assert_as_saved@(@result@)"])
    lines.append('@assert_finite@(@result@, "result")')
    lines += [f'@assert_finite@([{name}.numpy()], "variable {name}")' for name in variables]
    lines += [f'@assert_finite@([v.numpy() for v in {key}], "one of {key}")' for key in objects]
    return "\n".join(lines)


def tried(path: Path, failure: Failure, test: str) -> tuple[str, str]:
    """Run the file in a fresh process: the verdict, and the error it ended with."""
    run = (
        f"runpy.run_path({str(path)!r})[{test!r}]()" if test else f"runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", RUNNER.format(run=run, mark=MARK)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return DIFFERENT, f"no end within {CHECK_SECONDS} s"
    told = done.stdout.rpartition(MARK)[2].splitlines() if MARK in done.stdout else []
    if not told:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return DIFFERENT, last
    name, message = json.loads(told[0])
    if failure.kind == "none":
        return (SAME, "no error") if not name else (DIFFERENT, f"{name}: {first_line(message)}")
    if name != failure.error:
        return DIFFERENT, f"{name}: {first_line(message)}" if name else "no error"
    alike = plain(failure.text) in plain(message)
    return (SAME if alike else ALIKE), f"{name}: {failure.text if alike and failure.text else first_line(message)}"


def first_line(message: str) -> str:
    """What an error says, in a line."""
    return (report(message).body.strip().splitlines() or [""])[0]


def plain(text: str) -> str:
    """The text without line breaks and colours."""
    return " ".join(render.uncoloured(text).split())
