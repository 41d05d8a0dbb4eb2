"""Tensors that a hook is to show -> the tensors that it takes instead, and the values of a pass, computed when asked.

TensorFlow's optimizer regroups sums and products, folds constants and fuses what follows a matrix product, but only
where nothing else reads the values between: a hook that did would change the program's last bits.  So a hook takes what
nothing is rewritten across, and the rest is computed again from that, op by op, and only where somebody looks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tfdb import internals, internals_graphs
from tfdb.errors import NotReached

ELEMENTWISE = (
    "Abs Add AddN AddV2 BiasAdd Cast Div DivNoNan Erf Exp Expm1 Identity Inv Log1p Maximum Minimum Mul Neg Pow RealDiv "
    "Reciprocal Rsqrt Sigmoid Sign Softplus Sqrt Square SquaredDifference Sub Tanh"
)
SHAPING = "ExpandDims Pad Reshape Squeeze Transpose"
PRODUCTS = "BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv2D Conv3D DepthwiseConv2dNative MatMul"
NORMALISING = "FusedBatchNormV3 Mean"
REWRITTEN = frozenset(f"{ELEMENTWISE} {SHAPING} {PRODUCTS} {NORMALISING}".split())
MOST_OPS = 300  # computed again for one tensor; what takes more is read itself

Key = tuple[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """An op to run again: what it takes and what it gives."""

    op: Any
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Cone:
    """How to compute a tensor: the ops to run, by what they give, and the tensors to begin with."""

    key: Key
    steps: dict[Key, Step]
    taken: tuple[Any, ...]
    places: tuple[Key, ...]


class Reading:
    """What a hook takes (`taken`) so that each of `tensors` can be shown."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.tensors = list(tensors)
        self.taken: list[Any] = []
        self.places: dict[Key, int] = {}
        self.constants: dict[Key, Any] = {}
        self.runs: dict[int, Callable[[Sequence[Any]], list[Any]]] = {}
        self.cones = [cone(tensor) for tensor in self.tensors]
        for each in self.cones:
            for key, tensor in zip(each.places, each.taken, strict=True):
                if key not in self.places:
                    self.places[key] = len(self.taken)
                    self.taken.append(tensor)

    def constant(self, step: Step) -> list[Any]:
        """The value of a Const, made once."""
        key = step.outputs[0]
        if key not in self.constants:
            self.constants[key] = internals_graphs.constant_tensor(step.op)
        return [self.constants[key]]

    def run(self, step: Step, inputs: Sequence[Any]) -> list[Any]:
        """What an op gives."""
        if step.op.type == "Const":
            return self.constant(step)
        if id(step.op) not in self.runs:
            self.runs[id(step.op)] = internals_graphs.eager_op(step.op)
        try:
            return self.runs[id(step.op)](inputs)
        except Exception as error:
            raise NotReached(f"{step.op.name} failed") from error


class PassValues(Sequence[Any]):
    """The values of one pass in the order of a reading's tensors; `given` is what the hook took."""

    def __init__(self, reading: Reading, given: Sequence[Any]) -> None:
        self.reading = reading
        self.given = given
        self.known: dict[Key, Any] = {}

    def __len__(self) -> int:
        return len(self.reading.tensors)

    def __getitem__(self, index: Any) -> Any:
        wanted = self.reading.cones[index]
        value = self.at_hand(wanted.key)
        return self.compute(wanted) if value is None else value

    def at_hand(self, key: Key) -> Any:
        """A value that was taken, or computed before; None for any other."""
        place = self.reading.places.get(key)
        return self.given[place] if place is not None else self.known.get(key)

    def compute(self, wanted: Cone) -> Any:
        """Run the ops that a value is still in need of.

        Raises:
            NotReached: one of them fails, as it does in the program's own graph.
        """
        with internals_graphs.unrecorded():
            waiting = [wanted.key]
            while waiting:
                step = wanted.steps[waiting[-1]]
                missing = [key for key in step.inputs if self.at_hand(key) is None]
                waiting += missing
                if not missing:
                    waiting.pop()
                    made = self.reading.run(step, [self.at_hand(key) for key in step.inputs])
                    self.known.update(zip(step.outputs, made, strict=False))
        return self.known[wanted.key]

    def carried(self, hook: Any) -> list[tuple[Any, Any]]:
        """Each tensor of the hook's own graph whose value is at hand, with that value."""
        found = dict(zip(map(key_of, hook.inputs), zip(hook.inputs, self.given, strict=False), strict=False))
        for n, tensor in enumerate(self.reading.tensors):
            if tensor.graph is hook.graph and key_of(tensor) not in found:
                found[key_of(tensor)] = tensor, self[n]
        return list(found.values())


def key_of(tensor: Any) -> Key:
    """What tells a tensor from all others."""
    return id(tensor.graph), tensor.name


def outside(tensor: Any) -> Any:
    """The tensor of the graph around that a placeholder of a loop's or branch's body stands for, or the tensor."""
    while tensor.op.type == "Placeholder" and internals.is_control_flow_body(tensor.graph):
        around = next((other for other, own in tensor.graph.captures if own is tensor), None)
        if around is None or not internals.is_symbolic(around):
            return tensor
        tensor = around
    return tensor


def is_rewritten(op: Any) -> bool:
    """Whether the optimizer may rewrite what an op gives together with what is made of it."""
    if op.type == "Mean" and not op.get_attr("keep_dims"):
        return False
    return op.type in REWRITTEN and bool(op.outputs[0].dtype.is_floating or op.outputs[0].dtype.is_complex)


def cone(tensor: Any) -> Cone:
    """How to compute a tensor from what nothing is rewritten across; found once for all hooks of its graph."""
    graph = tensor.graph
    found: dict[str, Cone] | None = getattr(graph, "tfdb_cones", None)
    if found is None:
        found = graph.tfdb_cones = {}
    if tensor.name not in found:
        steps, taken = walk(tensor)
        key = key_of(outside(tensor))
        if len(steps) > MOST_OPS:
            steps, taken, key = {}, [tensor], key_of(tensor)
        found[tensor.name] = Cone(key, steps, tuple(taken), tuple(map(key_of, taken)))
    return found[tensor.name]


def walk(tensor: Any) -> tuple[dict[Key, Step], list[Any]]:
    """The ops that a tensor is computed from, as far as they may be rewritten, and the tensors that these begin with.

    The walk ends early where the ops are more than `MOST_OPS`.
    """
    steps: dict[Key, Step] = {}
    taken: list[Any] = []
    waiting, seen = [outside(tensor)], set[Key]()
    while waiting and len(steps) <= MOST_OPS:
        each = waiting.pop()
        if key_of(each) in seen:
            continue
        op = each.op
        if op.type != "Const" and not is_rewritten(op):
            seen.add(key_of(each))
            taken.append(each)
            continue
        inputs = [outside(part) for part in op.inputs]
        step = Step(op, tuple(map(key_of, inputs)), tuple(map(key_of, op.outputs)))
        seen.update(step.outputs)
        steps.update(dict.fromkeys(step.outputs, step))
        waiting += inputs
    return steps, taken
