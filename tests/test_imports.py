"""What stands among Python's finders: it sees imports, and neither slows nor changes them."""

import importlib.machinery
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tfdb.imports import ImportWatch


@pytest.fixture
def finders() -> Iterator[list[Any]]:
    """`sys.meta_path`, as it was when the test is over."""
    before = list(sys.meta_path)
    yield sys.meta_path
    sys.meta_path[:] = before


class Counting:
    """A finder that finds nothing, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        self.asked.append(name)


def test_many_watches_ask_each_finder_once_and_all_hear_of_the_module(
    finders: list[Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tfdb_found.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    heard: list[str] = []
    count = 15
    watches = [
        ImportWatch({"tfdb_found": lambda module: heard.append(module.__name__)}, lambda: True) for _ in range(count)
    ]
    counting = Counting()
    finders.insert(0, counting)
    for watch in watches:
        watch.install()
    finders.remove(counting)
    finders.insert(finders.index(watches[0]) + 1, counting)
    import tfdb_found  # type: ignore[import-not-found]

    assert (tfdb_found.value, heard, counting.asked) == (5, ["tfdb_found"] * count, ["tfdb_found"])
    with pytest.raises(ModuleNotFoundError, match="No module named 'tfdb_missing'"):
        import tfdb_missing  # type: ignore[import-not-found]  # noqa: F401
    del sys.modules["tfdb_found"]
    for watch in watches:
        watch.remove()
    assert not any(isinstance(finder, ImportWatch) for finder in finders)


def test_a_finder_that_left_no_spec_of_its_own_changes_nothing(finders: list[Any]) -> None:
    watch = ImportWatch({}, lambda: True)
    watch.install()
    assert watch.find_spec("json", None).origin == importlib.machinery.PathFinder.find_spec("json").origin  # type: ignore[union-attr]
    assert watch.find_spec("json.decoder", None) is None
    watch.remove()
    assert watch.find_spec("json", None) is None
