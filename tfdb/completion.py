"""A line being typed at a stop -> what its last word may become: nodes, layers, variables, watches; and the toolbar."""

from __future__ import annotations

import builtins
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

from . import graphs, listing, traceable

NODE_COMMANDS = ("ni", "li", "lo")
OWN_NAMES = (*NODE_COMMANDS, "lt", "watch", "unwatch")  # commands that take names of their own
EXPRESSION_COMMANDS = (
    "pt",
    "hist",
    "plot",
    "tdiff",
    "graph",
    "retraces",
    "p",
    "pp",
    "display",
    "whatis",
    "why",
    "rerun",
)
BREAK_COMMANDS = ("b", "break", "tbreak")
WATCH_WORDS = ("nan", "inf", "none", "grad", "update", "in", "allow", "every")
OPTIONS = {
    "pt": ("-a", "-r", "-s", "--axis"),
    "hist": ("--png", "--tb"),
    "plot": ("--png", "--tb"),
    "lt": ("-f", "-n", "-t", "-s", "-a"),
    "ni": ("-a", "-t"),
    "li": ("-d", "-t", "-c"),
    "lo": ("-d", "-t", "-c"),
    "graph": ("-a", "--dot", "--svg", "--pbtxt", "--tb"),
}
FILE_OPTIONS = ("--png", "--tb", "--dot", "--svg", "--pbtxt", "-s")
MOST_FILES = 2000
MOST = 200  # names offered at once
KINDS = {
    **dict.fromkeys(("ni", "li", "lo"), "node"),
    **dict.fromkeys(BREAK_COMMANDS, "place"),
    **dict.fromkeys(("watch", "unwatch"), "watch"),
    **dict.fromkeys(("repro", "source", "ps"), "file"),
    **dict.fromkeys(("pt", "hist", "plot", "tdiff"), "value"),
    "lt": "tensor",
}


class Completion:
    """Candidates for the word under the cursor at a stop of `debugger`; never raises, never evaluates a call."""

    def __init__(self, debugger: Any) -> None:
        self.debugger = debugger

    def candidates(self, line: str, word: str) -> list[str]:
        """What the word may become, given the line up to its end."""
        try:
            found = dict.fromkeys(each for each in self.offered(line, word) if each.startswith(word) and each != word)
        except Exception:  # a completion that fails offers nothing
            return []
        return list(found)[:MOST]

    def offered(self, line: str, word: str) -> Iterator[str]:
        """All names that may stand here."""
        command, space, rest = line.lstrip().partition(" ")
        if not space:
            yield from self.commands()
            return
        before = rest.split()[-2:] if rest[-1:] != " " else rest.split()[-1:]
        if command in ("repro", "source") or (before and before[0] in FILE_OPTIONS and word != before[0]):
            yield from self.files(word)
        elif word.startswith("-"):
            yield from OPTIONS.get(command, ())
        elif command in NODE_COMMANDS:
            yield from self.nodes()
        elif command == "lt":
            yield from self.after_lt_option(rest)
        elif command in BREAK_COMMANDS:
            yield from self.named_breakpoints(rest)
        elif command == "watch":
            yield from WATCH_WORDS
            yield from (f"grad:{name}" for name in self.variables())
        elif command == "unwatch":
            yield from self.watches()
        elif command in ("help", "h"):
            yield from self.commands()
        elif command == "ps":
            yield from self.files(word)
        if command in EXPRESSION_COMMANDS or not command.isidentifier():
            yield from self.expressions(word, functions=command in ("graph", "retraces", "rerun"))

    def commands(self) -> Iterator[str]:
        """The commands."""
        return (name.removeprefix("do_") for name in dir(self.debugger) if name.startswith("do_"))

    def nodes(self) -> Iterator[str]:
        """The ops of this execution."""
        for graph in self.debugger.graphs_in_sight():
            names = [op.name for op in graphs.operations(graph)]
            yield from names
            yield from (name.rpartition("/")[2] for name in names if "/" in name)

    def op_types(self) -> Iterator[str]:
        """The types of the ops of this execution."""
        for graph in self.debugger.graphs_in_sight():
            yield from (op.type for op in graphs.operations(graph))

    def files(self, word: str) -> Iterator[str]:
        """The files and folders that the word may name."""
        folder, _, start = word.rpartition("/")
        for entry in itertools.islice(os.scandir(os.path.expanduser(folder + "/") if "/" in word else "."), MOST_FILES):
            if entry.name.startswith(start) and (start or not entry.name.startswith(".")):
                yield (f"{folder}/" if "/" in word else "") + entry.name + ("/" if entry.is_dir() else "")

    def after_lt_option(self, rest: str) -> Iterator[str]:
        """What the option before the word takes."""
        words = rest.split()
        last = words[-2 if rest and not rest.endswith(" ") and len(words) > 1 else -1] if words else ""
        if last == "-t":
            yield from self.op_types()
        elif last == "-f":
            yield from ("nan", "inf")
        elif last == "-s":
            yield from listing.SORTS
        else:
            yield from self.nodes()

    def named_breakpoints(self, rest: str) -> Iterator[str]:
        """`op:`, `layer:` and `trace:`, with the names there are."""
        yield from ("op:", "layer:", "trace:")
        if rest.startswith("layer:"):
            yield from (f"layer:{name}" for name in self.layers())
        if rest.startswith("op:"):
            yield from (f"op:{name}" for name in self.op_types())

    def layers(self) -> Iterator[str]:
        """The names of the Keras layers in reach."""
        for value in self.visible().values():
            for layer in flattened(value):
                yield str(layer.name)

    def variables(self) -> Iterator[str]:
        """The paths of the variables of the models in reach."""
        for value in list(self.visible().values()):
            found = getattr(value, "trainable_variables", None) if is_layer(value) else None
            yield from (str(getattr(each, "path", each.name)) for each in found or ())

    def watches(self) -> Iterator[str]:
        """The numbers of the watches."""
        watches = getattr(getattr(self.debugger, "session", None), "watches", None)
        watching = getattr(watches, "watching", watches)
        yield from (str(n) for n, _ in enumerate(getattr(watching, "watches", None) or (), 1))

    def visible(self) -> dict[str, Any]:
        """The names of the current frame."""
        return {**self.debugger.curframe.f_globals, **self.debugger.curframe_locals}

    def expressions(self, word: str, functions: bool = False) -> Iterator[str]:
        """Names and attributes, of tf.functions only where one is wanted and the word has no dot."""
        names = self.visible()
        owner, dot, _ = word.rpartition(".")
        if not dot:
            tensors = [
                name for name, value in names.items() if not name.startswith("__") and is_interesting(value, functions)
            ]
            yield from tensors
            yield from (name for name in names if not name.startswith("_"))
            if not any(name.startswith(word) for name in names):
                yield from (name for name in dir(builtins) if not name.startswith("_"))
            return
        value: Any = names.get(owner.split(".")[0])
        for part in owner.split(".")[1:]:
            value = getattr(value, part)
        yield from (f"{owner}.{name}" for name in dir(value) if not name.startswith("_"))


def is_layer(value: Any) -> bool:
    """Whether the value is a Keras layer or model."""
    try:
        return traceable.is_model(value)
    except Exception:  # an object of the user's that raises when it is looked at
        return False


def kind_of(line: str, candidate: str) -> str:
    """What a candidate is, in a word: shown beside it in IPython's menu."""
    command, space, _ = line.lstrip().partition(" ")
    if not space or command in ("help", "h"):
        return "command"
    if candidate.startswith("-"):
        return "option"
    return KINDS.get(command, "name")


def flattened(value: Any) -> Iterable[Any]:
    """A model's layers, nested ones too; the layer itself."""
    if not is_layer(value):
        return ()
    inner = getattr(value, "_flatten_layers", None)
    return inner() if callable(inner) else (value, *getattr(value, "layers", ()))


def is_interesting(value: Any, functions: bool) -> bool:
    """Whether a name is worth offering first: a tensor, variable or model; where wanted, a tf.function."""
    try:
        if functions:
            return hasattr(value, "python_function") or is_layer(value) or hasattr(value, "signatures")
        return (hasattr(value, "dtype") and hasattr(value, "shape")) or is_layer(value)
    except Exception:  # an object of the user's that raises when it is looked at
        return False


def toolbar(stop: Any) -> str:
    """One line on a graph stop: function, line, pass, replica, XLA; of a watch's stop, its place; "" elsewhere."""
    if stop is None or not stop.live:
        return ""
    place = stop.live[-1]
    if stop.hit is None:
        return f"{place.function} · {os.path.basename(place.filename)}:{place.lineno} · stopped by a watch"
    point = stop.hit.point
    names = [frame.function for frame in stop.live if frame.activation and not frame.hidden] or [place.function]
    parts = [" > ".join(names), f"{os.path.basename(place.filename)}:{place.lineno}", f"pass {stop.number_of_pass}"]
    if point.replica is not None:
        parts.append(f"replica {point.replica}")
    if point.xla:
        parts.append("XLA off")
    return " · ".join(parts)
