"""Doors in the place of a function: whoever leaves last leaves nothing behind, in whatever order."""

import itertools

import pytest

from tfdb.internals import Patches


class Owner:
    def call(self) -> list[str]:
        return ["original"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_original_is_back_when_all_have_left(order: tuple[int, ...]) -> None:
    original = Owner.call
    parts = [Patches() for _ in range(3)]
    for number, part in enumerate(parts):
        part.replace(Owner, "call", lambda inner, number=number: lambda self: [*inner(self), str(number)])
    assert Owner().call() == ["original", "0", "1", "2"]
    left = set("012")
    for number in order:
        parts[number].remove()
        left.discard(str(number))
        assert Owner().call() == ["original", *sorted(left)]
    assert Owner.call is original
