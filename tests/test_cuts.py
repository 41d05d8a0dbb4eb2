"""The walk from a loss to a variable, on graphs built by hand; no TensorFlow."""

import pytest

from tfdb.cuts import Cone, Cut, Node, find, most_blamed
from tfdb.cuttext import OF_KIND, CutFacts, worded

INTEGERS = {"bool", "int32", "int64", "string"}


def cone(*nodes: Node, **dtypes: str) -> Cone:
    """The cone of the tensor "loss"; tensors are float32 unless `dtypes` says otherwise."""

    def dtype(key: object) -> str:
        return dtypes.get(str(key), "float32")

    return Cone(
        ["loss"], lambda key: [n for n in nodes if key in n.outputs], dtype, lambda key: dtype(key) not in INTEGERS
    )


def op(name: str, inputs: str, output: str, **more: object) -> Node:
    """A node; inputs are separated by spaces."""
    return Node(name, tuple(inputs.split()), (output,), **more)  # type: ignore[arg-type]


def test_a_comparison_is_the_cut_and_not_the_cast_that_takes_it() -> None:
    walk = cone(
        op("Mul", "w x", "p"),
        op("Greater", "p half", "hit", passes=(False, False)),
        op("Cast", "hit", "hard"),
        op("Mean", "hard", "loss"),
        hit="bool",
    )
    (cut,) = find(walk, ["w"])
    assert (cut.kind, cut.node and cut.node.op, cut.dtypes) == ("op", "Greater", ("float32", "bool"))


def test_a_stop_gradient_that_no_tape_records_is_what_it_is() -> None:
    """TensorFlow stops recording around it, so it looks like an op that ran outside of the tape."""
    walk = cone(
        op("MatMul", "x w", "h"),
        op("StopGradient", "h", "held", passes=(False,), kind="stop_gradient", recorded=False),
        op("Mean", "held", "loss"),
    )
    (cut,) = find(walk, ["w"])
    assert (cut.kind, cut.node and cut.node.op) == ("stop_gradient", "StopGradient")


def test_a_connected_variable_has_no_cut() -> None:
    assert find(cone(op("Mul", "w x", "p"), op("Mean", "p", "loss")), ["w"]) == []


def test_a_variable_that_the_loss_does_not_use() -> None:
    assert find(cone(op("Mean", "p", "loss")), ["w"]) == [Cut("disconnected")]


def test_a_condition_beside_a_connected_value_is_no_cut() -> None:
    """where(z >= 0, z, 0) of a cross-entropy: the comparison loses nothing, the real cut is before z."""
    walk = cone(
        op("PyFunc", "w", "z", passes=(False,), kind="python"),
        op("GreaterEqual", "z zero", "positive", passes=(False, False)),
        op("SelectV2", "positive z zero", "loss"),
        positive="bool",
    )
    (cut,) = find(walk, ["w"])
    assert (cut.kind, cut.node and cut.node.op) == ("python", "PyFunc")


def test_of_two_cuts_in_a_row_the_one_near_the_loss_is_named() -> None:
    walk = cone(
        op("Round", "w", "a", passes=(False,)),
        op("Mul", "a two", "b"),
        op("Floor", "b", "c", passes=(False,)),
        op("Sum", "c", "loss"),
    )
    assert [cut.node.op for cut in find(walk, ["w"]) if cut.node] == ["Floor"]


def test_what_is_cut_on_purpose_comes_last() -> None:
    walk = cone(
        op("StopGradient", "w", "a", passes=(False,), kind="stop_gradient"),
        op("Round", "w", "b", passes=(False,)),
        op("Square", "b", "c"),
        op("Add", "a c", "loss"),
    )
    assert [cut.kind for cut in find(walk, ["w"])] == ["op", "stop_gradient"]


def test_ops_outside_of_the_tape_are_followed_to_the_first() -> None:
    walk = cone(
        op("Mul", "w x", "p"),
        op("Sub", "p y", "e", recorded=False),
        op("Square", "e", "s", recorded=False),
        op("Mean", "s", "loss", recorded=False),
    )
    (cut,) = find(walk, ["w"])
    assert (cut.kind, cut.node and cut.node.op) == ("unrecorded", "Sub")


def test_an_integer_variable_is_its_own_cut() -> None:
    walk = cone(op("ReadVariableOp", "w", "v"), op("Cast", "v", "f"), op("Sum", "f", "loss"), v="int32", w="resource")
    assert [cut.kind for cut in find(walk, ["w"])] == ["integer"]


def test_a_loss_of_integers() -> None:
    walk = cone(op("ArgMax", "w axis", "loss", passes=(False, False)), loss="int64", axis="int32")
    (cut,) = find(walk, ["w"])
    assert cut.node is not None and cut.node.op == "ArgMax"


def test_a_loop_is_walked_once() -> None:
    walk = cone(
        Node("", ("start", "next"), ("state",)),
        op("Mul", "state w", "grown"),
        op("Rint", "grown", "next", passes=(False,)),
        op("Sum", "next", "loss"),
    )
    (cut,) = find(walk, ["w"])
    assert cut.node is not None and cut.node.op == "Rint"


def test_the_cut_of_most_variables_is_blamed() -> None:
    round_, floor = op("Round", "a", "b"), op("Floor", "b", "c")
    cuts = [[Cut("op", round_, depth=3)], [Cut("op", floor, depth=5)], [Cut("op", floor, depth=5)], []]
    assert most_blamed(cuts) == Cut("op", floor, depth=5)
    assert most_blamed([[], []]) is None


@pytest.mark.parametrize("kind", [*OF_KIND, "unrecorded", "python-value"])
def test_every_kind_has_its_words(kind: str) -> None:
    how = {"unrecorded": "before", "python-value": "float"}.get(kind, "")
    cause, fix = worded(CutFacts(kind, "Mul", "float32", "int32", how, "dense/kernel", "12"))
    assert cause and fix and "{" not in cause + fix


def test_a_comparison_is_explained_as_one() -> None:
    cause, fix = worded(CutFacts("op", "Greater", "float32", "bool"))
    assert cause.startswith("Greater compares, and gives bool") and "logit" in fix
