"""From the log of a pass to the op to blame, on logs written by hand: ids are small numbers, kinds are words."""

from tfdb.origin import Event, Log, find, sources, spread


def log_of(
    *events: tuple[str, tuple[int, ...], int, str], bad: dict[int, str] | None = None, data: tuple[int, ...] = ()
) -> Log:
    log = Log(kinds=dict(bad or {}), data=set(data))
    for op, inputs, output, kind in events:
        log.add(Event(op, inputs, (output,), (kind,)))
    return log


def test_an_infinity_that_becomes_nan_is_blamed_on_the_op_that_made_it() -> None:
    log = log_of(("Log", (1,), 2, "inf"), ("Mul", (2, 3), 4, "nan"), ("Sum", (4,), 5, "nan"))
    assert find(log, [5]).index == 0


def test_an_infinity_put_in_on_purpose_is_passed_over() -> None:
    log = log_of(("SelectV2", (1, 9), 2, "inf"), ("Softmax", (2,), 3, "nan"), bad={9: "inf"})
    finding = find(log, [3])
    assert finding.index == 1
    assert finding.meant == (2,)


def test_a_masked_nan_is_not_the_fault() -> None:
    log = log_of(("Log", (1,), 2, "nan"), ("SelectV2", (2, 3), 4, ""), ("Exp", (4,), 5, "inf"))
    assert find(log, [5]).index == 2


def test_a_nan_in_the_data_comes_before_every_op() -> None:
    log = log_of(
        ("MatMul", (1, 2), 3, "nan"), ("Log", (4,), 5, "nan"), ("AddV2", (3, 5), 6, "nan"), bad={1: "nan"}, data=(1,)
    )
    finding = find(log, [6])
    assert finding.root == 1
    assert finding.index is None


def test_a_gradient_of_an_op_that_overflowed_in_the_forward_pass_is_blamed_on_that_op() -> None:
    log = log_of(("Log", (1,), 2, "inf"), ("SelectV2", (2, 3), 4, ""))
    log.add(Event("Reciprocal", (1,), (5,), ("inf",), forward=0))
    log.add(Event("Mul", (5, 6), (7,), ("nan",), forward=0))
    finding = find(log, [7])
    assert (finding.index, finding.hidden) == (0, 2)


def test_a_variable_that_was_bad_before_is_the_origin() -> None:
    log = Log()
    log.add(Event("ReadVariableOp", (1,), (2,), ("nan",), variable=object()))
    log.add(Event("Mul", (2, 3), (4,), ("nan",)))
    assert find(log, [4]).index == 0


def test_finite_targets_have_no_origin() -> None:
    assert find(log_of(("Log", (1,), 2, "inf")), [1, 7]) is None


def test_sources_tell_variables_from_data() -> None:
    log = Log(data={1})
    log.add(Event("ReadVariableOp", (8,), (2,), ("",), variable=object()))
    log.add(Event("AddV2", (2, 5), (3,), ("",)))
    assert sources(log, [3]) == ([0], False)
    assert sources(log, [3, 1]) == ([0], True)


def test_the_way_of_a_bad_value_is_followed_while_it_is_bad() -> None:
    log = log_of(("Exp", (1,), 2, "inf"), ("Sub", (2, 2), 3, "nan"), ("Mean", (3,), 4, "nan"), ("Equal", (4, 4), 5, ""))
    assert [log.events[index].op for index in spread(log, 0)] == ["Sub", "Mean"]


def test_the_forward_op_is_found_by_its_tensors() -> None:
    log = log_of(("Mul", (1, 2), 3, ""), ("Mul", (1, 4), 5, ""))
    assert log.forward_of("Mul", [1], [3]) == 0
    assert log.forward_of("Mul", [4], []) == 1
    assert log.forward_of("Mul", [1], []) == 1
    assert log.forward_of("Exp", [1], [3]) is None
