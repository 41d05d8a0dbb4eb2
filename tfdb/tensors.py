"""Any TensorFlow, Keras, numpy or Python value -> a TensorSummary, or for structures one TableRow per leaf.

TensorFlow is looked up only among the modules already imported: without it no value can be one of its own. Looking at
a value must leave no trace in the program: variables are read outside open tapes and graphs under construction, sparse
values stay sparse, a TensorArray (which may clear what is read) is not read, and no error of a value gets out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .records import NonFinite, Stored, TableRow, TensorSummary
from .render import tensor_line, tensor_table
from .structures import Child, children, is_number_array, leaves
from .summarize import short_text, summarize, unquantised

MAX_ROWS = 1000  # leaves of one structure; each costs a pass over its elements
PLAIN = (bool, int, float, complex, str, bytes)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One value taken apart. `elements` is what to read (None: nothing, and `reason` says why); `place` turns the index
    of a stored element into that of the value, where they differ."""

    kind: str
    dtype: str
    shape: tuple[int | None, ...] | None
    device: str = ""
    elements: Any = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    place: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None
    layout: tuple[np.ndarray, ...] = ()


def summary(x: Any, width: int | None = None) -> str:
    """What a tensor, a variable or a structure of them is and holds: one line, or a table with one line per leaf.

    `x` is anything: tensors and variables of TensorFlow and Keras (ragged, sparse, symbolic ones too), numpy arrays,
    numbers, and lists, dicts, tuples, dataclasses, layers, models or optimizers of those. `width` is the most columns a
    line may take, by default the terminal's. Never raises because of what `x` is.
    """
    described = describe(x)
    return tensor_line(described, width) if isinstance(described, TensorSummary) else tensor_table(described, width)


def describe(value: Any) -> TensorSummary | tuple[TableRow, ...]:
    """The summary of one value; of a structure, one row per leaf, at most `MAX_ROWS` and a row that counts the rest.

    A row is named by its path (`[0]`, `['x'][1]`, `.state`), a variable in a sequence by its own path or name. An empty
    structure has no rows.
    """
    try:
        if children(value) is None:
            return describe_leaf(value)
        return tuple(_rows(value))
    except Exception as error:
        return _unreadable(value, error)


def describe_leaf(value: Any) -> TensorSummary:
    """The summary of one value that is not taken as a structure; what cannot be read says so in its notes."""
    try:
        return _summary_of(_leaf(value))
    except Exception as error:
        return _unreadable(value, error)


def to_array(value: Any) -> np.ndarray:
    """The elements of a tensor-like value as a numpy array, without a copy where the memory can be shared.

    A sparse, ragged or IndexedSlices value gives its stored values only. The array may be read-only. Raises ValueError,
    saying why, for values without elements: symbolic tensors, handles, specs, TensorArrays and the like.
    """
    return stored(value).array


def stored(value: Any) -> Stored:
    """As `to_array`, with the places of the elements in a sparse, ragged or IndexedSlices value."""
    try:
        leaf = _leaf(value)
        if leaf.elements is not None:
            return Stored(unquantised(_read(leaf.elements)), leaf.kind, leaf.shape, leaf.place, leaf.layout)
    except Exception as error:
        raise ValueError(f"cannot read this {type(value).__name__}: {_first_line(error)}") from error
    told = leaf.reason if leaf.kind not in ("object", "dataset") else ""
    raise ValueError(told or f"{'None' if value is None else article(type(value).__name__)} has no elements to show")


def article(name: str) -> str:
    """The name with "a" or "an" before it."""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name.strip('_')}"


def short_device(device: str | None) -> str:
    """`/job:localhost/replica:0/task:0/device:GPU:0` -> `gpu:0`; "" for none."""
    return ":".join(str(device).rsplit("/", 1)[-1].lower().split(":")[-2:]) if device else ""


def variable_name(value: Any) -> str:
    """A variable's path in its model (Keras) or its name (TensorFlow, without `:0`); "" for anything else."""
    tensorflow, keras = sys.modules.get("tensorflow"), sys.modules.get("keras")
    if keras is not None and isinstance(value, keras.Variable):
        return str(value.path)
    if tensorflow is not None and isinstance(value, tensorflow.Variable):
        from .varnames import name_of

        return name_of(value)
    return ""


def _rows(value: Any) -> list[TableRow]:
    rows: list[TableRow] = []
    omitted = 0
    for path, child in leaves(value):
        if len(rows) < MAX_ROWS:
            rows.append(TableRow(row_name(path, child), describe_leaf(child)))
        else:
            omitted += 1
    if omitted:
        rows.append(TableRow("…", TensorSummary("none", "", None, notes=(f"{omitted} more",))))
    return rows


def row_name(path: tuple[Child, ...], value: Any) -> str:
    """How a leaf is called in a table: its path in the structure, or a variable in a sequence by its own name."""
    name = ""
    if path and path[-1].by_position:
        try:
            name = variable_name(value)
        except Exception:  # a name is a convenience; the path always does
            name = ""
    return name or "".join(child.step for child in path).strip()


def _summary_of(leaf: _Leaf) -> TensorSummary:
    facts = TensorSummary(leaf.kind, leaf.dtype, leaf.shape, leaf.device, notes=leaf.notes)
    if leaf.elements is None:
        return replace(facts, notes=(*((leaf.reason,) if leaf.reason else ()), *leaf.notes))
    found = summarize(_read(leaf.elements), kind=leaf.kind, dtype=leaf.dtype or None, device=leaf.device)
    nbytes = None if leaf.kind == "number" else found.nbytes
    found = replace(found, shape=leaf.shape, nbytes=nbytes, notes=leaf.notes)
    if leaf.place is None:
        return found
    nan, posinf, neginf = (
        facts and NonFinite(facts.count, leaf.place(facts.first)) for facts in (found.nan, found.posinf, found.neginf)
    )
    return replace(found, nan=nan, posinf=posinf, neginf=neginf)


def _leaf(value: Any) -> _Leaf:
    if value is None:
        return _Leaf("none", "None", None)
    if isinstance(value, np.ndarray | np.generic):
        masked = ("mask ignored",) if isinstance(value, np.ma.MaskedArray) else ()
        return _Leaf("array", "", value.shape, elements=np.asarray(value), notes=masked)
    if isinstance(value, int) and value.bit_length() > 63:
        return _Leaf("number", type(value).__name__, None, reason=short_text(value))
    if isinstance(value, PLAIN):
        return _Leaf("number", type(value).__name__, None, elements=np.asarray(_unsubclassed(value)))
    if isinstance(value, list | tuple):
        if not is_number_array(value):  # children() takes it apart, unless it is too deep or within itself
            return _Leaf("object", type(value).__name__, None, reason=f"{len(value)} elements, not shown")
        array = np.asarray(value)
        return _Leaf(type(value).__name__, "", array.shape, elements=array)
    for module, reader in (("tensorflow", _tensorflow_leaf), ("keras", _keras_leaf)):
        found = reader(sys.modules[module], value) if module in sys.modules else None
        if found is not None:
            return found
    if type(value).__name__ == "KerasTensor":  # of any Keras generation
        dtype = getattr(value.dtype, "name", str(value.dtype))
        return _Leaf("keras tensor", dtype, _shape(value.shape), reason="no value: symbolic")
    if callable(getattr(value, "__array__", None)) and hasattr(value, "dtype"):
        array = np.asarray(value)
        return _Leaf("array", "", array.shape, elements=array)
    return _Leaf("object", type(value).__name__, None, reason=short_text(value))


def _tensorflow_leaf(tf: Any, value: Any) -> _Leaf | None:
    if isinstance(value, tf.Variable):
        return _variable_leaf(tf, value)
    if isinstance(value, tf.Tensor):
        return _tensor_leaf(tf, value)
    if isinstance(value, tf.RaggedTensor):
        inner = _tensor_leaf(tf, value.flat_values)
        return replace(inner, kind="ragged", shape=_shape(value.shape), **_ragged_facts(value, inner))
    if isinstance(value, tf.SparseTensor):
        return _sparse_leaf(tf, value)
    if isinstance(value, tf.IndexedSlices):
        return _slices_leaf(tf, value)
    if isinstance(value, tf.TensorArray):
        return _tensor_array_leaf(tf, value)
    if isinstance(value, tf.TypeSpec):
        dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
        name = getattr(dtype, "name", type(value).__name__)
        return _Leaf("spec", name, None if shape is None else _shape(shape), reason="no value: spec")
    if isinstance(value, tf.data.Dataset | tf.data.Iterator):
        return _Leaf("dataset", type(value).__name__.strip("_"), None, reason=f"elements {value.element_spec}")
    return None


def _tensor_leaf(tf: Any, value: Any) -> _Leaf:
    dtype, shape = value.dtype.name, _shape(value.shape)
    if tf.is_symbolic_tensor(value):
        return _Leaf("tensor", dtype, shape, reason="no value: symbolic")
    device = short_device(value.device)
    if dtype in ("resource", "variant"):
        return _Leaf("tensor", dtype, shape, device, reason=f"no value: {dtype}")
    return _Leaf("tensor", dtype, shape, device, elements=value)


def _variable_leaf(tf: Any, value: Any) -> _Leaf:
    notes: tuple[str, ...] = ()
    if isinstance(value, tf.distribute.DistributedValues):
        replicas = value.values
        notes = (f"replica 0 of {len(replicas)}",) if len(replicas) > 1 else ()
        value = replicas[0]
    leaf = _Leaf("variable", value.dtype.name.removesuffix("_ref"), _shape(value.shape), notes=notes)
    if tf.is_symbolic_tensor(value.handle):
        return replace(leaf, reason="no value: variable of a graph")
    leaf = replace(leaf, device=short_device(value.device))
    with tf.init_scope():  # reading through the value's own methods would be seen by open tapes
        if not tf.raw_ops.VarIsInitializedOp(resource=value.handle):
            return replace(leaf, reason="no value: not initialised")
        return replace(leaf, elements=tf.raw_ops.ReadVariableOp(resource=value.handle, dtype=value.dtype))


def _keras_leaf(keras: Any, value: Any) -> _Leaf | None:
    if isinstance(value, keras.Variable):
        if "tensorflow" not in sys.modules:
            return replace(_leaf(value.value), kind="keras variable")
        with sys.modules["tensorflow"].init_scope():  # in a mixed-precision layer its value is a cast, a new tensor
            return replace(_leaf(value.value), kind="keras variable")
    return None


def _ragged_facts(value: Any, inner: _Leaf) -> dict[str, Any]:
    if inner.elements is None:
        return {}
    splits = [_read(partition) for partition in value.nested_row_splits]
    lengths = np.diff(splits[0])
    rows = f"ragged: {lengths.size} rows of {lengths.min()} to {lengths.max()}" if lengths.size else "ragged: no rows"

    def place(index: tuple[int, ...]) -> tuple[int, ...]:
        flat, tail = index[0], index[1:]
        for partition in reversed(splits):
            row = int(np.searchsorted(partition, flat, side="right")) - 1
            flat, tail = row, (flat - int(partition[row]), *tail)
        return (flat, *tail)

    return {"notes": (rows,), "place": place, "layout": tuple(splits)}


def _sparse_leaf(tf: Any, value: Any) -> _Leaf:
    inner = _tensor_leaf(tf, value.values)
    shape = _shape(value.shape)
    if inner.elements is None:
        return replace(inner, kind="sparse", shape=shape)
    indices = _read(value.indices)
    total = int(np.prod([int(size) for size in _read(value.dense_shape)], dtype=object))
    return replace(
        inner,
        kind="sparse",
        shape=shape,
        notes=(f"sparse: {len(indices)} of {total} stored",),
        layout=(indices,),
        place=lambda index: tuple(int(i) for i in indices[index[0]]),
    )


def _slices_leaf(tf: Any, value: Any) -> _Leaf:
    inner = _tensor_leaf(tf, value.values)
    known = value.dense_shape is not None and not tf.is_symbolic_tensor(value.dense_shape)
    shape = tuple(int(size) for size in _read(value.dense_shape)) if known else (None, *(inner.shape or ())[1:])
    if inner.elements is None:
        return replace(inner, kind="slices", shape=shape)
    indices = _read(value.indices)
    distinct = np.unique(indices).size
    twice = f", {distinct} distinct" if distinct < indices.size else ""
    return replace(
        inner,
        kind="slices",
        shape=shape,
        notes=(f"slices: {indices.size} rows{twice}",),
        layout=(indices,),
        place=lambda index: (int(indices[index[0]]), *index[1:]),
    )


def _read(elements: Any) -> np.ndarray:
    """An eager tensor or array as numpy, sharing memory on the CPU."""
    return elements if isinstance(elements, np.ndarray) else np.asarray(elements)


def _shape(shape: Any) -> tuple[int | None, ...] | None:
    if getattr(shape, "rank", 0) is None:
        return None
    return tuple(None if size is None else int(size) for size in shape)


def _tensor_array_leaf(tf: Any, value: Any) -> _Leaf:
    """Only an array that is a tensor list (a graph's, at run time) can be read without clearing its elements."""
    leaf = _Leaf("tensor array", value.dtype.name, _shape(value.element_shape))
    if tf.is_symbolic_tensor(value.flow):
        return replace(leaf, reason="no value: symbolic")
    with tf.init_scope():
        leaf = replace(leaf, reason=f"TensorArray of {int(value.size())}, not read")
        if value.flow.dtype == tf.variant:
            shape = tf.raw_ops.TensorListElementShape(input_handle=value.flow, shape_type=tf.int32)
            elements = tf.raw_ops.TensorListStack(
                input_handle=value.flow, element_shape=shape, element_dtype=value.dtype
            )
            return replace(leaf, shape=_shape(elements.shape), elements=elements, reason="", notes=("TensorArray",))
    return leaf


def _unsubclassed(value: Any) -> Any:
    """Enum members and other subclasses of plain types as the plain type, so that numpy takes them as values."""
    plain = next(kind for kind in PLAIN if isinstance(value, kind))
    return value if type(value) is plain else plain(value)


def _unreadable(value: Any, error: Exception) -> TensorSummary:
    return TensorSummary("object", type(value).__name__, None, notes=(f"cannot be read: {_first_line(error)}",))


def _first_line(error: Exception) -> str:
    try:
        text = str(error).strip().split("\n")[0]
    except Exception:  # its own __str__ may raise as well
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
