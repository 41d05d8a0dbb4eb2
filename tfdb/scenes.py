"""What the frames of a failed graph call hold -> the Scene at the op that failed, by running the call again.

The call is that of a `tf.function`, of a function of a dataset, or of Keras' training on the batch that it had.
"""

from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from tfdb import evidence, internals_datasets, internals_errors, internals_gate, refetch
from tfdb.explain import Reported
from tfdb.kept import Keeper
from tfdb.retrace import Scene, Target
from tfdb.sourcemap import is_hidden


def scene_of(
    deepest: FrameType | None, reported: Reported, dry: bool, keeper: Keeper | None
) -> tuple[Scene, str] | None:
    """The failing op and its values, by running the call again, and a note that says how.

    `deepest` is the innermost frame of the error; `dry` says that the op must not be tried again.
    """
    places = [each for each in reported.places if not is_hidden(each.filename)]
    target = Target(reported.node, (places[-1].filename, places[-1].lineno) if places else None, dry)
    frames = list(internals_errors.outward(deepest))
    for dataset in datasets_of(frames):
        found = in_dataset(dataset, target)
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
    return (scene, f"values: the graph was run again up to this op, {source}") if scene is not None else None


def from_new_pass(
    function: Any, args: Any, kwargs: Any, target: Target, failed: int | None
) -> tuple[Scene, str] | None:
    """Try the batches of a new pass over the data one by one; `failed` is the number that failed, from 0, if known."""
    dataset = internals_gate.iterated(iterators(args, kwargs)[0])
    if dataset is None:
        return None
    repeatable = internals_datasets.is_repeatable(dataset)
    found = refetch.run_batches(function, args, kwargs, target, dataset, (failed if repeatable else None) or 0)
    if found is None:
        return None
    scene, number = found
    if repeatable and number == failed:
        return scene, f"values: the graph was run again on batch {number + 1} of a new pass over the data"
    why = "each pass over this data is another" if not repeatable else "the iterator has moved on"
    return scene, (
        f"values: those of the failing batch are not known, {why}; batch {number + 1} of a new pass is the first that "
        "fails at this op, the values are of that one (`python -m tfdb` keeps the batch itself)"
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


def in_dataset(dataset: Any, target: Target) -> tuple[Scene, str] | None:
    """The failing op in a function of a dataset, by running that function on the dataset's elements again."""
    last = target.node.split("/")[-1]
    for wrapper, source in internals_datasets.pipeline(dataset):
        names = {
            op.name for graph in internals_errors.graph_functions(wrapper.function) for op in graph.get_operations()
        }
        if target.node in names or last in names:
            found = refetch.run_elements(wrapper, source, target)
            if found is not None:
                scene, number = found
                return (
                    scene,
                    f"values: {wrapper_name(wrapper)} was run again on the dataset's elements; element {number} fails",
                )
    return None


def wrapper_name(wrapper: Any) -> str:
    """The user's function in a dataset."""
    name = getattr(internals_datasets.user_function(wrapper), "__name__", "a function")
    return "a lambda" if name == "<lambda>" else f"{name}()"
