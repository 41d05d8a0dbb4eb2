"""A traced activation and the values of one pass -> a real frame with the user's file, line, name and locals.

While a graph is traced, a `Carrier` turns a frame's locals into a template in which `Filled` parts stand for whatever
holds tensors.  When the graph runs, `fill` makes those parts from that pass's values, and `standing` turns the result
into frame objects that pdb can use.
"""

import copy
import dataclasses
import functools
import inspect
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType, MemberDescriptorType
from typing import Any

from tfdb import internals
from tfdb.sourcemap import Activation

MOST_ITEMS = 1000  # in one container; a longer one is shown as it is
MOST_ITEMS_ALTOGETHER = 10_000  # looked at for one hook
DEPTH = 6
COPIED = (list, dict, OrderedDict, defaultdict)  # the program may change them before the end of tracing
PLAIN = (str, bytes, int, float, complex, type(None), type)


@dataclasses.dataclass(frozen=True, slots=True)
class Filled:
    """A part of a template that is made anew each pass: `make(values)` gives it."""

    make: Callable[[Sequence[Any]], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class TracedFrame:
    """A user's frame as it was traced: where it stood, and its locals as a template."""

    filename: str
    lineno: int
    function: str
    firstlineno: int
    arguments: tuple[str, ...]
    globals: dict[str, Any]
    locals: MutableMapping[str, Any]
    attributes: tuple[tuple[Any, str, Any], ...]
    activation: int
    hidden: bool


@dataclasses.dataclass(frozen=True, slots=True)
class LiveFrame(TracedFrame):
    """A frame of one pass: what `TracedFrame` promised, with values in the places of its `Filled` parts.

    `done` says that it is none of the stack: a forward frame to look into, whose line had run before the stop.
    """

    done: bool = False


class Carrier:
    """Collects the tensors that a hook in `graph` has to carry, each once."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.tensors: list[Any] = []
        self.slots: dict[int, int] = {}
        self.items = 0

    def frame(self, activation: Activation, number: int) -> TracedFrame:
        """The activation with its tensors put among those to carry; library frames keep their place only."""
        names = {} if activation.hidden else activation.names()
        code = activation.code or activation.base.f_code
        templates = {name: self.template(value, of_closure=name in code.co_freevars) for name, value in names.items()}
        shown = {name: part for name, part in templates.items() if not internals.is_symbolic(part)}
        return as_it_stands(activation, number, shown, tuple(self.attributes(names.values(), code)))

    def attributes(self, objects: Iterable[Any], code: CodeType) -> Iterator[tuple[Any, str, Filled]]:
        """The attributes of local objects, named in the function's own code, that hold tensors of the graph."""
        named = attribute_names(code)
        for value in objects:
            state = own_state(value)
            for name in named & state.keys():
                part = self.template(state[name])
                if type(part) is Filled:
                    yield state, name, part

    def slot(self, tensor: Any, of_closure: bool = False) -> Filled | None:
        """The place of a tensor among the hook's inputs, or None where the graph cannot see it.

        What a function finds in its closure its graph takes from the graph around it.
        """
        if id(tensor) not in self.slots:
            if not internals.visible(tensor, self.graph, of_closure):
                return None
            self.slots[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        index = self.slots[id(tensor)]
        return Filled(lambda values: values[index])

    def template(self, value: Any, depth: int = DEPTH, of_closure: bool = False) -> Any:
        """The value, or a `Filled` where it is or holds tensors of the graph.

        Plain lists and dictionaries are copied: the program may change them between this line and the end of tracing.
        A value whose own methods fail is shown as it is: one such local must not cost the stop.
        """
        try:
            return value if isinstance(value, PLAIN) or depth == 0 else self.filled(value, depth, of_closure)
        except Exception:
            return value

    def filled(self, value: Any, depth: int, of_closure: bool) -> Any:
        """`template` of what is no plain value; the user's classes may raise anything."""
        if internals.is_symbolic(value):
            return self.slot(value, of_closure) or value
        if internals.is_symbolic_array(value):
            flow = self.slot(value.flow)
            return value if flow is None else Filled(lambda values: internals.with_flow(value, flow.make(values)))
        if internals.is_composite(value):
            return self.composite(value)
        items = children(value)
        if items is None or self.items > MOST_ITEMS_ALTOGETHER:
            return value
        self.items += len(items)
        parts = [self.template(item, depth - 1) for item in items]
        if any(type(part) is Filled for part in parts) or type(value) in COPIED:
            empty = value.copy() if type(value) in COPIED else value
            return Filled(lambda values: rebuild(empty, fill(parts, values)))
        return value

    def composite(self, value: Any) -> Any:
        """The template of a RaggedTensor, SparseTensor, IndexedSlices or the like."""
        import tensorflow as tf

        flat = tf.nest.flatten(value, expand_composites=True)
        parts = [self.template(part) for part in flat if part is not value]  # a variable is its own only part
        if not any(type(part) is Filled for part in parts):
            return value
        spec = tf.type_spec_from_value(value)
        return Filled(lambda values: tf.nest.pack_sequence_as(spec, fill(parts, values), expand_composites=True))


def as_it_stands(
    activation: Activation, number: int, names: dict[str, Any], attributes: tuple[tuple[Any, str, Any], ...] = ()
) -> TracedFrame:
    """The frame of an activation, at the line that it stands on, with these locals and attributes."""
    code = activation.code or activation.base.f_code
    return TracedFrame(
        activation.filename,
        activation.lineno,
        activation.function,
        code.co_firstlineno,
        arguments(code),
        activation.base.f_globals,
        names,
        attributes,
        number,
        activation.hidden,
    )


def fill(parts: Iterable[Any], values: Sequence[Any]) -> list[Any]:
    """The parts of a template with this pass's values in their places."""
    return [part.make(values) if type(part) is Filled else part for part in parts]


def fill_names(template: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    """A frame's locals of this pass."""
    return dict(zip(template, fill(template.values(), values), strict=True))


def live(frame: TracedFrame, values: Sequence[Any]) -> LiveFrame:
    """The traced frame with this pass's values."""
    return LiveFrame(
        frame.filename,
        frame.lineno,
        frame.function,
        frame.firstlineno,
        frame.arguments,
        frame.globals,
        fill_names(frame.locals, values),
        tuple((state, name, part.make(values)) for state, name, part in frame.attributes),
        frame.activation,
        frame.hidden,
    )


class LazyNames(MutableMapping[str, Any]):
    """A frame's locals of one pass, filled as they are asked for."""

    def __init__(self, template: Mapping[str, Any], values: Sequence[Any], more: Mapping[str, Any]) -> None:
        self.parts = {**more, **template}
        self.values_of_pass = values

    def __getitem__(self, name: str) -> Any:
        part = self.parts[name]
        if type(part) is Filled:
            part = self.parts[name] = part.make(self.values_of_pass)
        return part

    def __contains__(self, name: object) -> bool:
        return name in self.parts

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __setitem__(self, name: str, value: Any) -> None:
        self.parts[name] = value

    def __delitem__(self, name: str) -> None:
        del self.parts[name]


def lazy(frame: TracedFrame, values: Sequence[Any], more: Mapping[str, Any]) -> LiveFrame:
    """`live` for a condition, which asks for few names; `more` are locals that the frame itself may lack."""
    place = live(dataclasses.replace(frame, locals={}, attributes=()), ())
    return dataclasses.replace(place, locals=LazyNames(frame.locals, values, more))


def live_without_tensors(frame: TracedFrame) -> LiveFrame:
    """The traced frame where this pass's values are not known: names that stand for tensors are left out."""
    known = {name: value for name, value in frame.locals.items() if type(value) is not Filled}
    return live(dataclasses.replace(frame, locals=known, attributes=()), ())


def children(value: Any) -> list[Any] | None:
    """What a container holds, in order, or None for what is no container or a very long one."""
    if isinstance(value, dict):
        return list(value.values()) if len(value) <= MOST_ITEMS else None
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(value) if len(value) <= MOST_ITEMS else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return None


class Slots:
    """The attributes in an object's `__slots__`, used as its `__dict__` would be."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.places = slots(type(value))

    def keys(self) -> set[str]:
        """The names that have a value."""
        return {name for name in self.places if self.get(name) is not None}

    def get(self, name: str) -> Any:
        """The value, None where there is none."""
        try:
            return self.places[name].__get__(self.value)
        except AttributeError:
            return None

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.places[name].__set__(self.value, value)


def slots(kind: type) -> dict[str, Any]:
    """The places that a class's `__slots__` made, by attribute name."""
    return {
        name: place
        for each in reversed(kind.__mro__)
        if "__slots__" in vars(each)
        for name, place in vars(each).items()
        if isinstance(place, MemberDescriptorType)
    }


def own_state(value: Any) -> Any:
    """An object's `__dict__` or slots, without a call of the user's `__getattr__` or `__class__`; empty for a class."""
    if issubclass(type(value), type):
        return {}
    try:
        state = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return Slots(value)
    return state if type(state) is dict else {}


def rebuild(value: Any, items: list[Any]) -> Any:
    """The container again with other items in the order that `children` gives.

    Its type is kept; where that cannot be made from them it is a plain dictionary, or else a list.
    """
    try:
        return rebuild_as_it_is(value, items)
    except Exception:
        names = list(dict.keys(value)) if isinstance(value, dict) else []
        return dict(zip(names, items, strict=True)) if len(names) == len(items) else items


def rebuild_as_it_is(value: Any, items: list[Any]) -> Any:
    """The container of the same type; a class of the user's may refuse."""
    if isinstance(value, defaultdict):
        return defaultdict(value.default_factory, zip(value, items, strict=True))
    if isinstance(value, dict):
        return type(value)(zip(value, items, strict=True))
    if isinstance(value, tuple):
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list | deque):
        return list(items) if isinstance(value, list) else deque(items, value.maxlen)
    if isinstance(value, set | frozenset):
        return items  # tensors cannot be hashed by value, so a set of them cannot be made again
    again = copy.copy(value)
    for field, item in zip(dataclasses.fields(value), items, strict=True):
        object.__setattr__(again, field.name, item)
    return again


@functools.cache
def attribute_names(code: CodeType) -> frozenset[str]:
    """The names that a function's code, nested functions included, may read as attributes."""
    nested = [attribute_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(code.co_names).union(*nested)


def arguments(code: CodeType) -> tuple[str, ...]:
    """The names of a function's arguments, in order, `*args` and `**kwargs` last."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


@functools.lru_cache(maxsize=4096)
def call_line(filename: str, function: str, firstlineno: int, lineno: int) -> CodeType:
    """Code that calls `__enter__` on the given line of the given function."""
    padding = "\n" * max(lineno - firstlineno, 0)
    code = compile(padding + "__enter__()", filename, "exec", dont_inherit=True)
    return code.replace(co_name=function, co_firstlineno=min(firstlineno, lineno))


def is_stand_in(code: CodeType) -> bool:
    """Whether the code only stands for a user's line: `call_line` made it."""
    return code.co_names == ("__enter__",) and not code.co_varnames


def standing(stack: Sequence[LiveFrame], at: Callable[[list[FrameType]], Any]) -> Any:
    """Call `at(frames)` while a real frame object stands for each entry of `stack`, outermost first.

    The frames' `f_locals` are the dictionaries of `stack` themselves, so that what the user assigns stays.
    """
    made: list[FrameType] = []

    def enter() -> Any:
        __tracebackhide__ = True
        if made:
            del made[-1].f_locals["__enter__"]
        if len(made) == len(stack):
            return at(made)
        frame = stack[len(made)]

        def step() -> None:
            made.append(sys._getframe(1))
            result.append(enter())

        frame.locals["__enter__"] = step
        exec(call_line(frame.filename, frame.function, frame.firstlineno, frame.lineno), frame.globals, frame.locals)

    result: list[Any] = []
    outcome = enter()
    return result[0] if result else outcome


@contextmanager
def attributes_of_this_pass(stack: Iterable[LiveFrame]) -> Iterator[None]:
    """Within the block `self.x` reads this pass's value where tracing left a symbolic tensor; put back after."""
    saved = []
    try:
        for frame in stack:
            for state, name, value in frame.attributes:
                saved.append((state, name, state.get(name), value))
                state[name] = value
        yield
    finally:
        for state, name, before, value in reversed(saved):
            if state.get(name) is value:
                state[name] = before
