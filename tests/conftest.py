"""A developer's machine -> the same quiet, colourless, 80-column process for every test, left as it was found."""

import atexit
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest

# A shell starts what it puts in the background with Ctrl-C ignored, and children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# All of this must be in place before TensorFlow, Keras or IPython is first imported.
_HOME = tempfile.mkdtemp(prefix="tfdb-home-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
os.environ.update(
    HOME=_HOME,
    USERPROFILE=_HOME,
    IPYTHONDIR=os.path.join(_HOME, ".ipython"),
    KERAS_HOME=os.path.join(_HOME, ".keras"),
    KERAS_BACKEND="tensorflow",
    TF_CPP_MIN_LOG_LEVEL="3",
    CUDA_VISIBLE_DEVICES="-1",
    MPLBACKEND="Agg",
    COLUMNS="80",
    LINES="24",
    TERM="dumb",
    PYTHONIOENCODING="utf-8",
)
for _name in (
    "PYTHONBREAKPOINT",
    "PYTHONSTARTUP",
    "PYTHONINSPECT",
    "FORCE_COLOR",
    "CLICOLOR_FORCE",
    "TF_USE_LEGACY_KERAS",
):
    os.environ.pop(_name, None)


def _dirt() -> dict[str, Any]:
    """What tfdb may have left installed in this process, by name; empty when clean. Imports nothing."""
    dirt: dict[str, Any] = {}
    if sys.version_info >= (3, 12):
        tools = [sys.monitoring.get_tool(tool_id) for tool_id in range(6)]
        if mine := [tool for tool in tools if tool and tool.startswith("tfdb")]:
            dirt["sys.monitoring tools"] = mine
    if finders := [finder for finder in sys.meta_path if type(finder).__module__.split(".")[0] == "tfdb"]:
        dirt["sys.meta_path"] = finders
    context = sys.modules.get("tensorflow.python.eager.context")
    if context is not None and context.context().op_callbacks:
        dirt["op callbacks"] = list(context.context().op_callbacks)
    session = sys.modules.get("tfdb.session")
    if session is not None and (left := session.leftovers()):
        dirt["tfdb.session.leftovers()"] = left
    return dirt


def _process_hooks() -> dict[str, Any]:
    """The process-wide hooks of Python that a debugger takes and must give back."""
    return {
        "sys.gettrace()": sys.gettrace(),
        "threading.gettrace()": threading.gettrace(),
        "sys.breakpointhook": sys.breakpointhook,
        "sys.excepthook": sys.excepthook,
        "sys.displayhook": sys.displayhook,
    }


def _seed() -> None:
    """Seeds every generator that is loaded, and no other."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if hasattr(sys.modules.get("tensorflow"), "random"):
        sys.modules["tensorflow"].random.set_seed(0)
    if hasattr(sys.modules.get("keras"), "utils"):
        sys.modules["keras"].utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def hygiene() -> Iterator[None]:
    """Each test starts with nothing of tfdb installed, with fixed seeds, and leaves the process as it found it."""
    assert _dirt() == {}, "an earlier test, or an import, left tfdb installed"
    hooks = _process_hooks()
    _seed()
    yield
    changed = {name: hook for name, hook in _process_hooks().items() if hook is not hooks[name]}
    # Given back before the verdict, so that one leak fails one test.
    sys.settrace(hooks["sys.gettrace()"])
    threading.settrace(hooks["threading.gettrace()"])
    sys.breakpointhook, sys.excepthook = hooks["sys.breakpointhook"], hooks["sys.excepthook"]
    sys.displayhook = hooks["sys.displayhook"]
    _forget_breakpoints()
    assert changed == {}, "hooks of the process that this test changed"
    assert _dirt() == {}, "left installed by this test"


def _forget_breakpoints() -> None:
    """`bdb.Breakpoint` keeps its list and its numbers on the class: the next test must start at number 1."""
    if bdb := sys.modules.get("bdb"):
        bdb.Breakpoint.next = 1
        bdb.Breakpoint.bplist = {}
        bdb.Breakpoint.bpbynumber = [None]


@pytest.fixture
def tf() -> Any:
    """TensorFlow, seeded; a test that asks for it need not import it at module level."""
    import tensorflow

    _seed()
    return tensorflow


@pytest.fixture
def keeper() -> Iterator[Any]:
    """A `Keeper`, installed: what it keeps of the calls is there for post-mortems."""
    from tfdb.kept import Keeper

    made = Keeper()
    made.install()
    yield made
    made.remove()


@pytest.fixture
def armed() -> Iterator[Any]:
    """A session at TensorFlow's doors, as under `python -m tfdb`."""
    from tfdb import prompt, session

    now = session.current(prompt.make_debugger)
    now.arm()
    yield now
    session.end()


@pytest.fixture
def no_watch_left() -> Iterator[None]:
    """What a program of the test has set with `tfdb.watch()` ends with the test."""
    from tfdb import doors, normgate
    from tfdb.told import told

    yield
    normgate.norms.remove()
    doors.uninstall()
    told.forget()
