"""The source text of tfdb -> what its layout promises: imports that point down, short modules, documented commands."""

import ast
import importlib
import inspect
import pdb
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tfdb

ROOT = Path(__file__).resolve().parents[1]

# From the top down: a module may import from its own row and from those below. A new module is entered here first.
ROWS = {
    "prompt": {
        "tfdb", "__main__", "prompt", "entry", "program", "interrupted", "uncaught",
        "watchstops", "spawned", "waiting", "commands", "completion", "callbacks", "extension", "remote", "terminated",
    },
    "session": {"session", "stopping", "tracestops", "headers"},
    "TensorFlow": {
        "internals", "calls", "linehooks", "frames", "sourcemap", "twins", "linetracer", "tracedlines", "blame",
        "monitoring", "gate", "replay", "tensors",
        "graphs", "dumps", "exits", "interrupts",
        "callsites", "ordering", "readers", "generated", "opbreaks",
        "tripreports", "pathways", "numericfaults", "doors", "elements",
        "replicas", "turns", "steps", "writes", "compiled", "eagerly", "varnames", "pipelines", "imports", "watching",
        "recorder", "replaying", "opwise", "masks", "skips", "told", "near",
        "sites", "tapes", "taperecords", "asked", "flows", "lostgrads", "nonegrads",
        "norms", "normgate", "normcalls", "normscopes", "normlook", "normexpr", "normslopes", "normreport",
        "gradhistory", "gradrows",
        "failures", "stages", "reach", "leaks", "symbols", "kept", "origins", "retrace", "refetch", "scenes",
        "forwardops", "kerasfacts",
        "evidence", "postmortem",
        "state", "frozen", "ring", "rerun", "compare", "probes", "repro", "rebuild", "sources",
        "evaluation", "executions", "halted", "trippedsteps", "passgrads", "forwards", "listing", "traces", "phases",
        "steptraces", "traceable", "tracingonly",
    },
    "pure": {
        "errors", "records", "structures", "blocks", "summarize", "conditions", "rules", "causes",
        "render", "report",
        "screens",
        "explain", "explanations", "explanations_data", "progress", "misuses", "syntax",
        "cuts", "cuttext", "detours", "operands", "origin", "thresholds", "gradtable",
        "edges", "graphrecords", "graphtext", "graphdot", "retracetext", "plots", "values", "differences",
    },
}  # fmt: skip
ORDER = list(ROWS)

# What each row may not import at all.
FORBIDDEN = {"pure": {"tensorflow", "keras", "tf_keras"}}

PRIVATE = re.compile(r"(tensorflow\.(python|core|compiler)|keras\.src|tf_keras\.src|tensorflow\.keras\.src)\b")

# Public names of the finished package; a name that is not built yet is absent.
PUBLIC_NAMES = {
    "set_trace", "post_mortem", "pm", "run", "runcall", "runeval", "launch_tfdb_on_exception", "iex",
    "watch", "unwatch", "summary", "record", "open_dump", "Monitor", "Pdb",
}  # fmt: skip

MODULE_LINES = 400
FUNCTION_LINES = 40


@dataclass(frozen=True)
class Module:
    """One source file of tfdb, parsed."""

    path: Path

    @property
    def name(self) -> str:
        """Dotted name below the package, `tfdb` for the package itself: `commands.graph`, `session`."""
        parts = self.path.relative_to(ROOT / "tfdb").with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__") or "tfdb"

    @property
    def part(self) -> str:
        """The name under which ROWS lists it; `internals_keras` belongs with `internals`."""
        first = self.name.split(".")[0]
        return "internals" if first.startswith("internals") else first

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"), str(self.path))

    @property
    def row(self) -> str:
        return next((row for row, names in ROWS.items() if self.part in names), "none")

    def at(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


MODULES = [Module(path) for path in sorted((ROOT / "tfdb").rglob("*.py"))]


def imports(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Every module that this one imports, wherever in its text: `tfdb.x` for its own, the full name for others."""
    package = ["tfdb", *module.path.relative_to(ROOT / "tfdb").parts[:-1]]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            source = base if node.level else node.module or ""
            yield from ((node, f"{source}.{alias.name}") for alias in node.names)


def own_part(imported: str) -> str | None:
    """The part of tfdb that `tfdb.x.y` belongs to, `tfdb` for a name of the package itself, None for other packages."""
    head, *rest = imported.split(".")
    if head != "tfdb":
        return None
    exists = rest and ((ROOT / "tfdb" / f"{rest[0]}.py").exists() or (ROOT / "tfdb" / rest[0]).is_dir())
    return Module(ROOT / "tfdb" / f"{rest[0]}.py").part if exists else "tfdb"


def row_of(part: str) -> str:
    return next((row for row, names in ROWS.items() if part in names), "none")


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def commands() -> Iterator[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every `do_x` in tfdb."""
    for module in MODULES:
        yield from ((module, function) for function in functions(module) if function.name.startswith("do_"))


def test_every_module_has_a_row() -> None:
    homeless = [module.name for module in MODULES if module.row == "none"]
    assert not homeless, f"enter them in ROWS: {homeless}"


def test_imports_point_down() -> None:
    upward = [
        f"{module.at(node)} ({module.row}) imports {imported} ({row_of(part)})"
        for module in MODULES
        for node, imported in imports(module)
        if (part := own_part(imported)) and module.row != "none" and row_of(part) != "none"
        if ORDER.index(row_of(part)) < ORDER.index(module.row)
    ]
    assert not upward, "\n".join(upward)


def test_the_pure_row_does_not_know_tensorflow() -> None:
    offenders = [
        f"{module.at(node)} imports {imported}"
        for module in MODULES
        for node, imported in imports(module)
        if imported.split(".")[0] in FORBIDDEN.get(module.row, set())
    ]
    assert not offenders, "\n".join(offenders)


def test_private_names_are_in_internals_only() -> None:
    offenders = []
    for module in MODULES:
        if module.part == "internals":
            continue
        offenders += [f"{module.at(n)} imports {name}" for n, name in imports(module) if PRIVATE.match(name)]
        docstrings = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
        offenders += [
            f"{module.at(node)} names {node.value!r}"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if PRIVATE.match(node.value) and id(node) not in docstrings
        ]
        dotted = [(node, ast.unparse(node)) for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)]
        offenders += [
            f"{module.at(node)} reaches for {name}"
            for node, name in dotted
            if PRIVATE.match(re.sub(r"^tf\b", "tensorflow", name))
        ]
    assert not offenders, "\n".join(offenders)


def test_only_the_command_line_prints() -> None:
    offenders = [
        module.at(node)
        for module in MODULES
        if module.name != "__main__"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not offenders, "\n".join(offenders)


def test_no_bare_except() -> None:
    offenders = [
        module.at(node)
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert not offenders, "\n".join(offenders)


def test_modules_are_short_and_say_what_they_are() -> None:
    offenders = []
    for module in MODULES:
        lines = len(module.path.read_text(encoding="utf-8").splitlines())
        if lines > MODULE_LINES:
            offenders.append(f"{module.at(module.tree)} has {lines} lines, {MODULE_LINES} at most")
        if module.tree.body and not ast.get_docstring(module.tree):
            offenders.append(f"{module.at(module.tree)} has no docstring")
    assert not offenders, "\n".join(offenders)


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The function's lines from `def` to its end, its docstring not counted."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def test_functions_are_short() -> None:
    offenders = [
        f"{module.at(function)} {function.name} has {lines} lines, {FUNCTION_LINES} at most"
        for module in MODULES
        for function in functions(module)
        if (lines := code_lines(function)) > FUNCTION_LINES
    ]
    assert not offenders, "\n".join(offenders)


def manual_fault(name: str, manual: str) -> str | None:
    """What a command's docstring lacks: the usage line, a blank line, prose, and an example, indented."""
    lines = inspect.cleandoc(manual).splitlines()
    plain_usage = re.sub(r"[()]", "", lines[0]) if lines else ""
    if not plain_usage.startswith(name):
        return f"the first line is not its usage: {lines[:1]}"
    if len(lines) < 3 or lines[1]:
        return "no blank line after the usage"
    if not any(line.startswith("    ") and not line.isspace() for line in lines[3:]):
        return "no example (a line indented by four)"
    return None


def test_every_command_has_a_manual() -> None:
    faults = [
        f"{module.at(function)} {function.name}: {fault}"
        for module, function in commands()
        if (fault := manual_fault(function.name.removeprefix("do_"), ast.get_docstring(function) or ""))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("manual", "fault"),
    [
        ("pt EXPR\n\nOne line about a tensor.\n\n    (tfdb) pt loss", None),
        ("p(rint)t EXPR\n\nProse.\n    (tfdb) printt loss", "usage"),
        ("", "usage"),
        ("Print a tensor.\n\nProse.\n\n    pt loss", "usage"),
        ("pt EXPR\nProse.\n\n    pt loss", "blank"),
        ("pt EXPR\n\n    pt loss", "example"),
        ("pt EXPR\n\nProse.\n", "example"),
    ],
)
def test_what_counts_as_a_manual(manual: str, fault: str | None) -> None:
    found = manual_fault("pt", manual)
    assert found is None if fault is None else fault in str(found)


def test_every_command_of_its_own_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = {function.name.removeprefix("do_") for _, function in commands() if not hasattr(pdb.Pdb, function.name)}
    missing = sorted(name for name in names if not re.search(rf"`{name}\b", readme))
    assert not missing, f"not in the command table of README.md: {missing}"


def fresh_python(program: str) -> str:
    """What `program` prints in a new interpreter that imports nothing by itself."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("heavy", ["tensorflow", "keras", "numpy", "IPython", "prompt_toolkit"])
def test_importing_tfdb_loads_nothing_heavy(heavy: str) -> None:
    assert fresh_python(f"import sys, tfdb; print({heavy!r} in sys.modules)") == "False\n"


def test_the_names_that_load_on_first_use_are_modules() -> None:
    assert tfdb._LATER <= {module.name for module in MODULES if "." not in module.name}


def test_a_program_that_runs_on_to_a_breakpoint_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nx = 1\nprint('loaded', *sys.modules)\n")
    command = [sys.executable, "-m", "tfdb", "-c", "b 3", "-c", "c", str(program)]
    done = subprocess.run(command, input="p x\nc\n", capture_output=True, text=True, cwd=ROOT, timeout=120)
    loaded = set(done.stdout.rsplit("loaded ", 1)[-1].split())
    assert done.returncode == 0 and {"tfdb.session", "tfdb.prompt", "tfdb.linehooks"} <= loaded, done.stdout
    said_at_the_breakpoint = {"tracingonly", "graphrecords"}  # whether its line runs in graphs
    late = {f"tfdb.{name}" for name in tfdb._LATER - said_at_the_breakpoint}
    assert not loaded & (late | {"numpy", "tensorflow", "keras", "IPython"})


def test_public_names_are_those_of_the_design_and_are_all_there() -> None:
    program = "import tfdb; print(*tfdb.__all__); print(*(n for n in tfdb.__all__ if not hasattr(tfdb, n)))"
    names, missing = fresh_python(program).split("\n")[:2]
    assert not missing
    assert set(names.split()) <= PUBLIC_NAMES
    assert len(set(names.split())) == len(names.split())


def test_the_top_level_holds_nothing_else() -> None:
    if not (git := shutil.which("git")):
        pytest.skip("git is not installed")
    tracked = subprocess.run([git, "ls-files"], capture_output=True, text=True, cwd=ROOT)
    if tracked.returncode:
        pytest.skip(f"not a checkout that git reads: {tracked.stderr.strip()}")
    top = {line.split("/")[0] for line in tracked.stdout.splitlines() if not line.startswith(".")}
    assert top <= {"pyproject.toml", "README.md", "LICENSE", "tfdb", "tests", "examples"}


def test_what_is_patched_on_a_late_module_is_patched_on_the_module_itself_and_put_back() -> None:
    module = importlib.import_module("tfdb.differences")
    late, before = tfdb._Later("tfdb.differences"), module.PIECE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late, "PIECE", 14)
        assert module.PIECE == 14
    assert module.PIECE == before and vars(late) is vars(module)
