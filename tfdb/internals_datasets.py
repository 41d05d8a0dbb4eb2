"""TensorFlow's private names for datasets and iterators of a failed call; a part of internals.py, under its rules."""

import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

from tfdb import internals_errors
from tfdb.internals import private, structured_function
from tfdb.internals_gate import inputs_of, iterator_class


def flat_element(dataset: Any, element: Any) -> list[Any]:
    """One element of a dataset as the tensors that its functions take."""
    return list(private("data.util.structure", "to_tensor_list")(dataset.element_spec, element))


def as_arguments(dataset: Any, element: Any) -> tuple[Any, ...]:
    """What the functions of a dataset take an element as, or its spec: the parts of a tuple, or the one thing."""
    return tuple(element) if isinstance(dataset.element_spec, tuple) else (element,)


def next_element(iterator: Any, optional: bool = False) -> tuple[list[Any], bool]:
    """What an iterator gives next, flat, without moving it; whether it is that, or the start of a new pass.

    With `optional` it is one variant tensor, as the op that may find no more elements gives it.

    Raises:
        Exception: whatever the dataset raises.
    """
    twin = iter(iterator._dataset)
    try:
        ignore = private("data.ops.options", "ExternalStatePolicy").IGNORE
        save = private("ops.gen_dataset_ops", "serialize_iterator")
        restore = private("ops.gen_dataset_ops", "deserialize_iterator")
        restore(twin._iterator_resource, save(iterator._iterator_resource, external_state_policy=ignore.value))
        exact = True
    except internals_errors.op_error():  # a generator's place cannot be kept
        exact = False
    if optional:
        return [twin.get_next_as_optional()._variant_tensor], exact
    return flat_element(iterator._dataset, next(twin)), exact


def is_repeatable(dataset: Any) -> bool:
    """Whether every pass over the dataset gives the same: nothing in it shuffles, draws numbers or calls Python."""
    try:
        text = dataset._as_serialized_graph().numpy()
    except (internals_errors.op_error(), ValueError, AttributeError):
        return False
    return not any(kind in text for kind in (b"Shuffle", b"Random", b"PyFunc", b"Generator"))


def batch_size(dataset: Any) -> int | None:
    """How many elements a batching dataset puts together; None for other datasets."""
    size = getattr(dataset, "_batch_size", None)
    return int(size) if size is not None else None


def resource_of(iterator: Any) -> Any:
    """The tensor that stands for an iterator in graphs."""
    return iterator._iterator_resource


def let_go_of_iterators() -> None:
    """Free what every eager iterator holds in TensorFlow, after its threads have ended; none gives elements again.

    Left out are those that other threads, daemons of the program's, are at; such a thread waits where it would take
    the next element, since Python is about to end it.
    """
    main, owner = threading.main_thread(), cast(Any, iterator_class())
    original = owner._next_internal

    def next_internal(iterator: Any) -> Any:
        if threading.current_thread() is not main:
            threading.Event().wait()
        return original(iterator)

    owner._next_internal = next_internal
    iterators: list[Any] = [each for each in gc.get_objects() if type(each) is owner]
    used = used_by_others()
    for iterator in iterators:
        if id(iterator) not in used:
            iterator._iterator_resource = None


def used_by_others() -> set[int]:
    """What the frames of all other threads have among their locals, by id."""
    used: set[int] = set()
    for thread, frame in sys._current_frames().items():
        at: FrameType | None = frame if thread != threading.get_ident() else None
        while at is not None:
            used.update(map(id, at.f_locals.values()))
            at = at.f_back
    return used


def pipeline(dataset: Any) -> list[tuple[Any, Any]]:
    """The functions of a dataset and of those it is made from, source first, each with its input dataset."""
    found, inputs = [], inputs_of(dataset)
    for source in inputs:
        found += pipeline(source)
    if inputs and not hasattr(dataset, "_dataset"):
        found += [(function, inputs[0]) for function in dataset._functions()]
    return found


def user_function(wrapper: Any) -> Callable[..., Any]:
    """The user's function in a tf.data wrapper."""
    return wrapper._func


def spec_of(value: Any) -> Any:
    """The spec of a value, structures and all."""
    return private("data.util.structure", "type_spec_from_value")(value)


def makes_datasets(wrapper: Any) -> bool:
    """Whether a function of a dataset makes a dataset of each element."""
    return isinstance(wrapper.output_structure, private("data.ops.dataset_ops", "DatasetSpec"))


def reduction(frame: FrameType) -> tuple[Any, Any, tuple[Any, ...]] | None:
    """Of the frame of a dataset's `reduce`: its function, the dataset, and the state it began with."""
    names = frame.f_locals
    if frame.f_code.co_name != "reduce" or not isinstance(names.get("wrapped_func"), structured_function()):
        return None
    return names["wrapped_func"], names["self"], (names["initial_state"],)


def first_batch(frame: FrameType) -> tuple[Any, Any] | None:
    """Of the frame of Keras' `fit` or its kin, the model and the first batch of a new pass over its data."""
    names = frame.f_locals
    source = getattr(names.get("epoch_iterator"), "_get_iterator", None)
    if "trainer" not in frame.f_code.co_filename or "self" not in names or source is None:
        return None
    return names["self"], next(iter(source()))
