"""What TensorFlow and Keras say of an error -> what matters of it; and the records that explanations are made from."""

import re
from dataclasses import dataclass

NODE = re.compile(r"\{\{node ([^}]+)\}\}")
PLACE = re.compile(r'^ *File "([^"]+)", line (\d+), in (\S+)', re.MULTILINE)
TAG = re.compile(r"\{\{function_node [^}]*\}\}\s*")
KERAS = re.compile(
    r"Exception encountered when calling (?P<layer>[^\n]*?)\.?\n+(?:\x1b\[1m)?(?P<text>.*?)"
    r"(?:\x1b\[0m|\n\s*Arguments received)",
    re.S,
)
AUTOGRAPH = re.compile(r"\s*in user code:\n.*?\n {4}(?:\w+\.)*\w*(?:Error|Exception|Warning)\w*: (?P<text>.*)", re.S)
NODE_TEXT = re.compile(r" for '\{\{node [^}]*\}\} = (\w+)\[.*?\]\(.*?\)' with input shapes: (.*?)(?: and with .*|\.?$)")
OP = re.compile(r"\}\} = (\w+)\[|\[Op:(?!__|Iterator)(\w+)\]")
COMPILED = re.compile(r"graph __inference_(\w+?)_\d+\[[^\]]*\]")
NO_KERNEL = re.compile(r"(No registered '\w+' OpKernel for \w+) devices compatible with node .*")
GENERATED = re.compile(r"outer_factory\.<locals>\.inner_factory\.<locals>\.(?:tf__)?")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
PYTHON_ERROR = re.compile(
    r"(?:^|: |}} )(\w*(?:Error|Exception|Interrupt|Iteration|Exit)\b(?:: [^\n]*)?)\nTraceback \(most", re.M
)
SENTENCE = 240  # characters of a message that are worth a line; the rest is for `full`


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's."""

    filename: str
    lineno: int
    function: str

    @property
    def short(self) -> str:
        """`losses.py:24`."""
        return f"{re.split(r'[/]', self.filename.replace(chr(92), '/'))[-1]}:{self.lineno}"

    @property
    def told(self) -> str:
        """`losses.py:24 loss()`."""
        return f"{self.short} {self.function}{'' if self.function == '<module>' else '()'}"


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that took part: its name there, its dtype and shape (None: unknown), the line it came from, and what
    the op calls it."""

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    origin: str = ""
    argument: str = ""

    @property
    def text(self) -> str:
        """`kept float32(4,)`."""
        shape = "(?)" if self.shape is None else f"({', '.join('None' if n is None else str(n) for n in self.shape)}"
        shape += ("," if len(self.shape) == 1 else "") + ")" if self.shape is not None else ""
        return f"{self.name} {self.dtype}{shape}"

    @property
    def told(self) -> str:
        """The same, with the line it came from."""
        return f"{self.text} from {self.origin}" if self.origin else self.text


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of an error.

    `text` is the source text of the file of `place`; `forward` is the type of the op whose gradient the failing one is
    part of, and `place` then that op's line; `operands` are the failing op's inputs, or the tensors that the
    failing line reads.  `elements` says that a function of a dataset was being traced.  `leak` says what a leaked
    tensor is called where it is used, and where it was made.
    """

    error: str
    message: str
    place: Place | None = None
    text: str = ""
    op: str = ""
    forward: str = ""
    operands: tuple[Operand, ...] = ()
    leak: "Leak | None" = None
    function: str = ""
    has_source: bool = True
    elements: bool = False


@dataclass(frozen=True, slots=True)
class Leak:
    """A tensor of a graph used outside of it: as what, the line that made it, and the text of that line's file."""

    expression: str
    tensor: str
    made: Place
    text: str
    graph: str = ""


@dataclass(frozen=True, slots=True)
class Reported:
    """What TensorFlow's text says: its first sentence, and its whole `body` without stacks and tags.

    `node` is the one that failed and `places` where it was traced; `python` is the exception of a Python function that
    a graph called, `layer` the Keras layer whose call failed, `op` the type of the op.  What is not told is empty.
    """

    message: str
    body: str
    node: str
    places: tuple[Place, ...]
    python: str = ""
    layer: str = ""
    op: str = ""


def report(text: str) -> Reported:
    """Cut an error's text, of TensorFlow or Keras or anything, to what matters."""
    text = GENERATED.sub("", text)
    text, layer = ESCAPES.sub("", text) if "\x1b" in text else text, ""
    while found := KERAS.match(text) or AUTOGRAPH.match(text):
        text, layer = found["text"] + "\n", found.groupdict().get("layer") or layer
    if "root error(s) found" in text:
        text = re.split(r"\n +\(1\) ", re.sub(r"^.*?\(0\) (?:[A-Z_]+: +)?", "", text, flags=re.S))[0]
    places = tuple(Place(name, int(line), function) for name, line, function in PLACE.findall(text))
    nodes = NODE.findall(text)
    python = PYTHON_ERROR.search(text)
    if python:
        said = python[1].strip()
        return Reported(said, said, nodes[-1] if nodes else "", places, said, layer)
    body = text.split("Error encountered:")[-1].strip() if "Error encountered:" in text else text
    if body.startswith("Graph execution error:"):
        body = re.split(r"<stack traces unavailable>\n", body)[-1]
        ends = [found.end() for found in PLACE.finditer(body)]
        body = body[body.find("\n", ends[-1]) :] if ends else body
        body = re.sub(r"^(Graph execution error:|Detected at node[^\n]*)\n", "", body.strip(), flags=re.M)
    body = re.sub(r"\n\s*\[\[.*", "", TAG.sub("", body), flags=re.S)
    body = re.sub(r"\s*\[Op:[^\]]*\].*", "", body, flags=re.S)
    body = re.sub(r"Error in user-defined function passed to .*? transformation with iterator: [^\s]+: ", "", body)
    op = OP.search(text)
    return Reported(
        first_sentences(body), body, nodes[-1] if nodes else "", places, "", layer, (op[1] or op[2]) if op else ""
    )


def first_sentences(text: str) -> str:
    """The first paragraph of a text, on one line, cut at a sentence's end when it is long."""
    text = re.sub(r"\s+", " ", text.strip().split("\n\n")[0]).strip()
    text = NO_KERNEL.sub(r"\1)", COMPILED.sub(r"\1()", text))
    text = NODE_TEXT.sub(r" (\1, input shapes \2)", text)
    if len(text) <= SENTENCE:
        return text
    cut = text.find(". ", 20)
    return text[: cut + 1] if 0 <= cut <= SENTENCE else text[: SENTENCE - 1] + "…"
