"""A graph call that failed -> its Scene, by running it again: the function, a dataset's function, or batch by batch.

The function is traced under a clone that the program never sees, and called with the same arguments up to the op that
failed.  What the program prints is kept back, and variables are put back.
"""

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from tfdb import internals, internals_datasets, internals_errors
from tfdb.explain import report
from tfdb.origins import origin
from tfdb.retrace import Input, Retrace, Scene, Target

SECONDS = 20.0  # for finding the element of a dataset that fails


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Within the block Python is not traced and what the program prints is not seen: it printed it once before."""
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        with contextlib.redirect_stdout(io.StringIO()), internals_errors.silent_log():
            yield
    finally:
        sys.settrace(trace)


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A function of a dataset and the arguments it failed on: the parts of one element, `what` says of which.

    `signature` are the specs that it was traced with, one for each argument.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    what: str
    signature: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a `tf.function` to make again; `data` is what the iterators in its graph gave."""

    function: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    data: Sequence[Sequence[Any]] = ()

    def scene(self, target: Target) -> Scene | None:
        """Make the call up to the failing op; None when that op is not met.

        Where another op fails before it, the scene is of that one: TensorFlow's optimizer had left it out, or it was
        slower.
        """
        found, error = self.run(target, False)
        if found is None and target.place is not None:
            found, _ = self.run(target, True)
        if found is None and error is not None and internals_errors.is_op_error(error):
            target = Target(report(str(error)).node)
            found = self.run(target, False)[0] if target.node else None
            found = replace(found, error=str(error)) if found is not None else None
        if found is None or found.gradient is None or not found.certain:
            return found
        return self.run(replace(target, gradient=found.gradient), False)[0] or found

    def run(self, target: Target, by_line: bool) -> tuple[Scene | None, BaseException | None]:
        """One run of a clone that the program never sees: the scene, and the error that ended it."""
        retrace = Retrace(target, by_line, self.data)
        with aside(), retrace.installed():
            retrace.clones[id(self.function)] = internals_errors.clone(self.function)
            error = run_clone(retrace.clones[id(self.function)], self.args, self.kwargs)
        return retrace.found, error


def run_clone(clone: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> BaseException | None:
    """Trace the clone, call it, and put the variables back that it wrote; the error that it raised."""
    try:
        graph = clone.get_concrete_function(*args, **kwargs).graph
    except Exception as error:
        return error
    before = [(variable, variable.read_value()) for variable in graph.variables]
    try:
        clone(*args, **kwargs)
    except Exception as error:
        return error
    finally:
        for variable, value in before:
            variable.assign(value)
    return None


def run_elements(
    wrapper: Any, dataset: Any, target: Target, began_with: tuple[Any, ...] = ()
) -> tuple[Scene, Given] | None:
    """Call a function of a dataset on its elements up to the one that fails; a reduction's `began_with` its state.

    A new pass over the data: where it is shuffled, another element may come first.
    """
    import tensorflow as tf

    state = began_with
    signature = (*map(internals_datasets.spec_of, state), *taken_with(state, dataset, dataset.element_spec))
    retrace = Retrace(target, False, ())
    began = time.monotonic()
    with aside(), retrace.installed():
        user = internals_datasets.user_function(wrapper)
        function = tf.function(user, input_signature=list(signature))
        retrace.clones[id(function)] = function
        try:
            for number, element in enumerate(dataset):
                args = (*state, *taken_with(state, dataset, element))
                try:
                    result = function(*args)
                except Exception:
                    given = Given(user, args, f"element {number}", signature)
                    return (retrace.found, given) if retrace.found is not None else None
                state = (result,) if state else ()
                if time.monotonic() - began > SECONDS:
                    return None
        except Exception:
            return None
    return None


def taken_with(state: tuple[Any, ...], dataset: Any, element: Any) -> tuple[Any, ...]:
    """What a function of a dataset takes an element as; a reduction, which has a state, takes it whole."""
    return (element,) if state else internals_datasets.as_arguments(dataset, element)


def made_of_elements(wrapper: Any, dataset: Any) -> list[Any]:
    """What a function makes of the elements of a dataset, called eagerly, as far as it can be had in time."""
    function = internals_datasets.user_function(wrapper)
    began, made = time.monotonic(), list[Any]()
    try:
        for element in dataset:
            made.append(function(*internals_datasets.as_arguments(dataset, element)))
            if time.monotonic() - began > SECONDS / 4:
                break
    except Exception:  # it may need what only a graph has
        return made
    return made


def run_batches(
    function: Any, args: Sequence[Any], kwargs: dict[str, Any], target: Target, dataset: Any, first: int
) -> tuple[Scene, int, list[Any]] | None:
    """Call a function that takes an iterator on each batch of a new pass from `first` on, up to one that fails.

    Returns the scene, the number of that batch from 0, and the batch, flat.
    """
    began = time.monotonic()
    try:
        for number, batch in enumerate(dataset.skip(first), first):
            data = [internals_datasets.flat_element(dataset, batch)]
            found = Call(function, args, kwargs, data).scene(target)
            if found is not None and found.certain:
                return found, number, data[0]
            if found is None or time.monotonic() - began > SECONDS:
                return None
    except Exception:
        return None
    return None


def run_eagerly(frames: Iterable[FrameType]) -> BaseException | None:
    """Call the model of a `fit` eagerly on the first batch of its data; what that raises, or None."""
    import keras

    with aside():
        for frame in frames:
            try:
                found = internals_datasets.first_batch(frame)
            except Exception:
                return None
            if found is not None:
                model, batch = found
                try:
                    x = keras.utils.unpack_x_y_sample_weight(batch)[0]
                    # A Sequential builds itself symbolically before it runs: its layers are called in its place.
                    for layer in model.layers if isinstance(model, keras.Sequential) else [model]:
                        x = layer(x)
                except Exception as error:
                    return error
                return None
    return None


def fetch_inputs(graph: Any, values: Sequence[Any], node: str) -> Scene | None:
    """The inputs of an op of a graph that ran on `values`, by running only what they need; no Python is needed.

    Ops of functions that the graph calls are found too, those of branches and loops are not.
    """
    op = next((op for op in graph.get_operations() if op.name == node), None)
    if op is not None:
        found = needed(graph, values, op)
        names = internals_errors.op_facts(op)[1]
        lines = [origin(tensor) for tensor in op.inputs]
        return Scene(op.type, node, tuple(map(Input, names, [""] * len(names), found, lines)), (), True)
    for caller in graph.get_operations():
        for name in internals.called_functions(caller.node_def.attr) if "PartitionedCall" in caller.type else ():
            child = internals_errors.child_graph(graph, name)
            scene = fetch_inputs(child, needed(graph, values, caller), node) if child is not None else None
            if scene is not None:
                return scene
    return None


def needed(graph: Any, values: Sequence[Any], op: Any) -> list[Any]:
    """The values of an op's inputs."""
    known = {id(tensor): value for tensor, value in zip(graph.inputs, values, strict=True)}
    wanted = [tensor for tensor in op.inputs if id(tensor) not in known]
    if wanted:
        ops = internals_errors.ancestors(wanted)
        known.update(zip(map(id, wanted), internals_errors.run_part(ops, graph.inputs, values, wanted), strict=True))
    return [known[id(tensor)] for tensor in op.inputs]
