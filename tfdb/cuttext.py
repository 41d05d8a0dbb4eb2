"""A cut in a gradient's path -> one sentence of cause in plain words, and the usual fix.  Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CutFacts:
    """The kind of a cut (see cuts.Cut), its op, its dtypes, how (see lostgrads.Answer), and the first lost name."""

    kind: str
    op: str = ""
    before: str = ""
    after: str = ""
    how: str = ""
    name: str = ""
    opened: str = ""


COMPARISONS = ("Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual", "ApproximateEqual")
STEPS = ("Round", "Rint", "Floor", "Ceil", "FloorDiv", "TruncateDiv")
INDICES = ("ArgMax", "ArgMin", "TopKV2", "Unique", "UniqueV2", "Where", "LowerBound", "UpperBound", "Bucketize")
SAMPLES = ("Multinomial", "StatelessMultinomial", "RandomPoissonV2", "StatelessRandomPoisson")

DATASETS = ("TensorSliceDataset", "TensorDataset", "SparseTensorSliceDataset", "MapDataset", "GeneratorDataset")

SMOOTH = "compute the loss from the values themselves (a probability, a logit), and compare only in metrics"
OF_OP: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (COMPARISONS, "{op} compares, and gives {after}: there is no slope in a comparison", SMOOTH),
    (STEPS, "{op} is flat between its steps: TensorFlow gives it no gradient",
     "leave it out of the loss, or let the gradient pass: x + tf.stop_gradient(tf.round(x) - x)"),
    (INDICES, "{op} gives positions ({after}), and no gradient leads from a position to the values",
     "use the values: tf.nn.softmax, tf.reduce_max, or a cross-entropy on the logits"),
    (SAMPLES, "{op} draws samples ({after}): no gradient leads through a draw",
     "use the log-probability of the sample in the loss, or a reparametrised or Gumbel-softmax sample"),
    (("Cast",), "Cast turns {before} into {after}: only floating and complex values carry a gradient",
     "stay in floating dtypes on the way to the loss"),
    (DATASETS, "{op} puts the value into a dataset: what comes out of it is a constant",
     "iterate over the inputs, and compute what is trained inside of the loop"),
    (("AsString", "StringFormat", "DecodeRaw", "EncodeBase64"), "{op} makes text: no gradient leads through it",
     "keep the numbers beside the text"),
)  # fmt: skip
OF_KIND: dict[str, tuple[str, str]] = {
    "op": ("{op} has no gradient: it turns {before} into {after}", "use a differentiable op in its place"),
    "unregistered": ("TensorFlow has no gradient function for {op}", "use another op, or tf.custom_gradient"),
    "stop_gradient": ("tf.stop_gradient ends the path here", "take it away, if this path was to be trained"),
    "python": (
        "{op} runs Python code that TensorFlow cannot differentiate",
        "write it in TensorFlow ops, or give it a gradient with tf.custom_gradient",
    ),
    "control": (
        "{op} only decides which branch is taken, or how often a loop runs: no gradient leads through a condition",
        SMOOTH,
    ),
    "assign": (
        "the value goes through a variable here ({op}), and no gradient leads back through a write",
        "use the value itself in the loss, and write the variable beside it",
    ),
    "integer": ("{name} is {before}: only floating and complex values have gradients", "make it floating"),
    "frozen": ("{name} is not trainable, and a tape watches trainable variables only",
               "make it trainable, or tape.watch() it"),
    "unwatched": ("the tape does not watch {name}: it watches trainable variables, and what it is told to",
                  "call tape.watch() on it before it is used"),
    "late": ("the tape was told to watch {name} only after {op} had used it", "call tape.watch() before it is used"),
    "replaced": ("{name} is no variable any more: {op} made a plain tensor of it, which the tape does not watch",
                 "update the variable in place: assign, assign_sub"),
    "custom": ("the custom gradient of {op} gives None here", "return a gradient for each input from it"),
    "used": ("this tape was used up by an earlier gradient", "open it with tf.GradientTape(persistent=True)"),
    "empty": (
        "there is no trainable variable to take a gradient for",
        "set trainable=True on what is to learn; a model that was not built yet has no variables: call it once before",
    ),
    "unseen": ("the ops behind this loss ran before `watch none` was on, so where the path ends is not known",
               "go on with `c` to a stop in the next step, which is seen from its beginning, and ask again"),
    "linear": ("{name} is not in the first gradient: the loss is linear in it, and what is zero everywhere "
               "comes out None", "unconnected_gradients=tf.UnconnectedGradients.ZERO gives zeros instead"),
    "disconnected": ("the loss is not computed from {name}",
                     "check that the loss uses the model's output, and that these are its variables"),
}  # fmt: skip
OUTSIDE = {
    "before": "{op} ran before the tape was opened{opened}: the tape did not see it",
    "after": "{op} ran outside of the tape opened{opened}: the tape did not see it",
    "": "{op} ran while the tape was not recording",
}
TAKEN = "{how}() takes the value out of TensorFlow here: what is made from it is a constant"
PYTHON_READ = {
    "bool": "a Python `if` decides by the value here: the loss does not depend on it smoothly",
    "numpy_function": "numpy_function hands the value to Python here, out of the tape's sight",
}


def worded(facts: CutFacts) -> tuple[str, str]:
    """(cause, fix) of a cut."""
    if facts.kind == "unrecorded":
        return fill(OUTSIDE[facts.how], facts), "compute it inside the `with tf.GradientTape()` block"
    if facts.kind == "python-value":
        return fill(PYTHON_READ.get(facts.how, TAKEN), facts), "stay in TensorFlow ops from the variables to the loss"
    if facts.kind == "op":
        for ops, cause, fix in OF_OP:
            if facts.op in ops:
                return fill(cause, facts), fix
    cause, fix = OF_KIND[facts.kind]
    return fill(cause, facts), fix


def fill(text: str, facts: CutFacts) -> str:
    """The sentence with the facts in it."""
    return text.format(
        op=facts.op or "an op",
        before=facts.before,
        after=facts.after,
        how=facts.how,
        name=facts.name,
        opened=f" at line {facts.opened}" if facts.opened else "",
    )
