"""What the frames of a failed graph call hold -> the Scene at the op that failed, by running the call again.

The call is that of a `tf.function`, of a function of a dataset, or of Keras' training on the batch that it had.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tfdb import evidence, internals_datasets, internals_errors, internals_gate, refetch
from tfdb.explain import Reported
from tfdb.kept import Keeper
from tfdb.retrace import Scene, Target
from tfdb.sourcemap import is_hidden


@dataclass(frozen=True, slots=True)
class Found:
    """The failing op and its values, a note that says where they are from, and the dataset's call that it was in.

    `batch` is the flat element of a new pass over the data that the call was made with.
    """

    scene: Scene
    note: str
    given: refetch.Given | None = None
    batch: Sequence[Any] = ()


def scene_of(deepest: FrameType | None, reported: Reported, dry: bool, keeper: Keeper | None) -> Found | None:
    """The failing op and its values, by running the call again.

    `deepest` is the innermost frame of the error; `dry` says that the op must not be tried again.
    """
    places = [each for each in reported.places if not is_hidden(each.filename)]
    target = Target(reported.node, (places[-1].filename, places[-1].lineno) if places else None, dry)
    frames = list(internals_errors.outward(deepest))
    for dataset in datasets_of(frames):
        found = in_dataset(dataset, target)
        if found is not None:
            return found
    for reduction in filter(None, map(internals_datasets.reduction, frames)):
        found = in_function(*reduction[:2], target, reduction[2])
        if found is not None:
            return found
    calls = [call for frame in reversed(frames) if (call := internals_errors.function_call(frame)) is not None]
    graph = next((name for frame in frames if (name := internals_errors.graph_called(frame))), "")
    if not calls:
        return None
    function, args, kwargs = calls[0]
    data = keeper.batch(graph) if keeper is not None else []
    if iterators(args, kwargs) and not data:
        return from_new_pass(function, args, kwargs, target, evidence.step_of(deepest))
    scene = refetch.Call(function, args, kwargs, data).scene(target)
    source = "with the batch it had" if data else "with the same arguments"
    return Found(scene, f"values: the graph was run again up to this op, {source}") if scene is not None else None


def from_new_pass(function: Any, args: Any, kwargs: Any, target: Target, failed: int | None) -> Found | None:
    """Try the batches of a new pass over the data one by one; `failed` is the number that failed, from 0, if known."""
    dataset = internals_gate.iterated(iterators(args, kwargs)[0])
    if dataset is None:
        return None
    repeatable = internals_datasets.is_repeatable(dataset)
    found = refetch.run_batches(function, args, kwargs, target, dataset, (failed if repeatable else None) or 0)
    if found is None:
        return None
    scene, number, batch = found
    if repeatable and number == failed:
        note = f"values: the graph was run again on batch {number + 1} of a new pass over the data"
        return Found(scene, note, batch=batch)
    why = "each pass over this data is another" if not repeatable else "the iterator has moved on"
    return Found(
        scene,
        f"values: those of the failing batch are not known, {why}; batch {number + 1} of a new pass is the first that "
        "fails at this op, the values are of that one (`python -m tfdb` keeps the batch itself)",
        batch=batch,
    )


def iterators(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The iterators among a call's arguments."""
    import tensorflow as tf

    return [each for each in tf.nest.flatten((args, kwargs)) if isinstance(each, tf.data.Iterator)]


def datasets_of(frames: Sequence[FrameType]) -> Iterator[Any]:
    """The datasets that were being iterated in these frames: by Python, or inside the called graph."""
    for frame in frames:
        call = internals_errors.function_call(frame)
        owners = iterators(call[1], call[2]) if call is not None else [frame.f_locals.get("self")]
        if call is None and frame.f_code.co_name != "_next_internal":
            continue
        yield from (found for each in owners if (found := internals_gate.iterated(each)) is not None)


def in_dataset(dataset: Any, target: Target) -> Found | None:
    """The failing op in a function of a dataset, by running that function on the dataset's elements again."""
    for wrapper, source in internals_datasets.pipeline(dataset):
        found = in_function(wrapper, source, target) or in_inner_datasets(wrapper, source, target)
        if found is not None:
            return found
    return None


def in_function(wrapper: Any, source: Any, target: Target, state: tuple[Any, ...] = ()) -> Found | None:
    """The failing op in one function of a dataset."""
    graphs = internals_errors.graph_functions(wrapper.function)
    names = {op.name for graph in graphs for op in graph.get_operations()}
    if target.node not in names and target.node.split("/")[-1] not in names:
        return None
    found = refetch.run_elements(wrapper, source, target, state)
    if found is None:
        return None
    scene, given = found
    again = f"{wrapper_name(wrapper)} was run again on the dataset's elements"
    return Found(scene, f"values: {again}; {given.what} fails", given)


def in_inner_datasets(wrapper: Any, source: Any, target: Target) -> Found | None:
    """The failing op in the datasets that a function makes of each element, as those of `flat_map` do."""
    if not internals_datasets.makes_datasets(wrapper):
        return None
    with refetch.aside():
        inner = refetch.made_of_elements(wrapper, source)
    found = (in_dataset(each, target) for each in inner)
    return next((each for each in found if each is not None), None)


def wrapper_name(wrapper: Any) -> str:
    """The user's function in a dataset."""
    function = internals_datasets.user_function(wrapper)
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return "a lambda" if name == "<lambda>" else f"{name}()"
