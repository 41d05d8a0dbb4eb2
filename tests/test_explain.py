"""What TensorFlow says of an error, and facts around it -> what is shown of it."""

import textwrap

import pytest

from tfdb.explain import Facts, Leak, Operand, Place, report
from tfdb.explanations import explain

GRAPH_ERROR = """Graph execution error:

Detected at node while/GatherV2 defined at (most recent call last):
  File "/home/me/train.py", line 9, in <module>

  File "/home/me/train.py", line 6, in walk

indices = 6 is not in [0, 5)
\t [[{{node while/GatherV2}}]] [Op:__inference_walk_65]"""

MAP_ERROR = """{{function_node __wrapped__IteratorGetNext_output_types_1_device_/CPU:0}} Input to reshape is a tensor \
with 10 values, but the requested shape requires a multiple of 3
\t [[{{node Reshape}}]] [Op:IteratorGetNext] name: """

PYTHON_ERROR = """{{function_node __wrapped__IteratorGetNext}} Error in user-defined function passed to MapDataset:1 \
transformation with iterator: Iterator::Root::Prefetch::Map: KeyError: 2
Traceback (most recent call last):

  File "/home/me/data.py", line 15, in lookup
    value = table[k]

KeyError: 2


\t [[{{node EagerPyFunc}}]] [Op:IteratorGetNext] name: """

KERAS_ERROR = """Exception encountered when calling Shift.call().

\x1b[1mInput 'y' of 'AddV2' Op has type float32 that does not match type float16 of argument 'x'.\x1b[0m

Arguments received by Shift.call():
  • x=tf.Tensor(shape=(None, 3), dtype=float16)"""


@pytest.mark.parametrize(
    ("text", "message", "node", "python", "layer"),
    [
        (GRAPH_ERROR, "indices = 6 is not in [0, 5)", "while/GatherV2", "", ""),
        (
            MAP_ERROR,
            "Input to reshape is a tensor with 10 values, but the requested shape requires a multiple of 3",
            "Reshape",
            "",
            "",
        ),
        (PYTHON_ERROR, "KeyError: 2", "EagerPyFunc", "KeyError: 2", ""),
        (
            KERAS_ERROR,
            "Input 'y' of 'AddV2' Op has type float32 that does not match type float16 of argument 'x'.",
            "",
            "",
            "Shift.call()",
        ),
        ("division by zero", "division by zero", "", "", ""),
        ("", "", "", "", ""),
    ],
)
def test_a_message_is_cut_to_what_matters(text: str, message: str, node: str, python: str, layer: str) -> None:
    said = report(text)
    assert (said.message, said.node, said.python, said.layer) == (message, node, python, layer)


def test_the_places_of_a_message_are_the_stack_of_the_op() -> None:
    assert [(place.short, place.function) for place in report(GRAPH_ERROR).places] == [
        ("train.py:9", "<module>"),
        ("train.py:6", "walk"),
    ]


def test_a_long_message_ends_with_its_first_sentence() -> None:
    said = report("Using a symbolic tensor as a bool is not allowed. " + "You can attempt this and that. " * 20)
    assert said.message == "Using a symbolic tensor as a bool is not allowed."
    assert "attempt" in said.body


SOURCE = textwrap.dedent(
    """\
    def grow(n, x):
        acc = tf.zeros([1])
        for i in tf.range(n):
            part = acc
            acc = tf.concat([part, [i]], axis=0)
        if x > 0:
            y = x
        else:
            y = None
        if x > 1:
            return y
        self.last = y
        w = tf.Variable(1.0)
        return acc
    """
)


def facts(message: str, line: int = 3, *operands: Operand, **more: object) -> Facts:
    return Facts("ValueError", message, Place("/me/a.py", line, "grow"), SOURCE, operands=operands, **more)  # type: ignore[arg-type]


X = Operand("kept", "float32", (4,), "a.py:2")
Y = Operand("weights", "float32", (3,), "a.py:4")


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (
            facts("Incompatible shapes: [4] vs. [3]", 3, X, Y, op="AddV2"),
            ("AddV2", "kept float32(4,) from a.py:2", "weights"),
        ),
        (
            facts("Dimensions must be equal, but are 4 and 3 for '{{node a}} = A[](x, y)' with input shapes: [4], [3]"),
            ("[4]", "[3]"),
        ),
        (
            facts("indices[1,2] = 12 is not in [0, 10)", 3, Operand("ids", "int32", (2, 3), "", "indices")),
            ("ids[1,2] is 12", "10 rows", "0 to 9"),
        ),
        (
            facts("segment_ids[4] = 99 is out of range [0, 8)", 3, op="UnsortedSegmentSum"),
            ("segment_ids[4] is 99", "8 rows", "0 to 7"),
        ),
        (facts("Received a label value of 4 which is outside the valid range of [0, 4).  Label"), ("4", "0 to 3")),
        (
            facts("'acc' has shape (1,) before the loop, but shape (2,) after one iteration. Use tf.autograph"),
            ("acc", "line 3", "(1,)", "(2,)", "line 5 grows it"),
        ),
        (
            facts("'acc' has dtype int32 before the loop, but dtype float32 after one iteration"),
            ("acc", "int32", "float32", "line 5"),
        ),
        (facts("'y' is None at the end of the else branch.", 6), ("y is None", "else branch (line 9)", "line 6")),
        (facts("'y' must also be initialized in the else branch", 6), ("y", "else branch", "line 7")),
        (facts("the else branch must also have a return statement.", 10), ("else branch", "line 10", "line 11")),
        (
            facts("'y' has dtype float32 in the main branch, but dtype int32 in the else branch", 6),
            ("float32 in the main branch (line 7)", "int32 in the else branch (line 9)"),
        ),
        (
            facts(
                "Input 'y' of 'AddV2' Op has type float32 that does not match type float16 of argument 'x'.",
                3,
                Operand("x", "float16", (None, 3)),
                Operand("bias", "float32", (3,)),
            ),
            ("float32 meets float16", "x float16(None, 3)", "bias float32(3,)"),
        ),
        (facts("tf.function only supports singleton tf.Variables created on the first call.", 13), ("a.py:13",)),
        (
            facts(
                "Binding inputs to tf.function failed due to "
                "`Can not cast TensorSpec(shape=(2, 3), dtype=tf.int32, name=None) to "
                "TensorSpec(shape=(None, 3), dtype=tf.float32, name=None)`. Received args: () for signature: "
                "(x: TensorSpec(shape=(None, 3), dtype=tf.float32, name=None))."
            ),
            ("x: float32(None, 3)", "int32(2, 3)"),
        ),
        (
            facts("Using a symbolic `tf.Tensor` as a Python `bool` is not allowed.", 3, has_source=False),
            ("no source of grow()",),
        ),
        (facts("'SymbolicTensor' object has no attribute 'numpy'"), ("grow()", "tf.py_function")),
        (
            facts("OOM when allocating tensor with shape[100000,100000] and type float on CPU:0", 3, op="Mul"),
            ("Mul", "[100000,100000]", "37.3 GiB"),
        ),
        (facts("A KerasTensor cannot be used as input to a TensorFlow function. A KerasTensor is"), ("keras.ops",)),
        (
            facts(
                "Input 0 with name 'None' of layer 'wide' is incompatible with the layer: expected axis -1 of input "
                "shape to have value 4, but received input with shape (None, 5)"
            ),
            ("'wide'", "4 values in axis -1", "(None, 5)"),
        ),
        (
            facts("Input 0 of layer 'c' is incompatible with the layer: expected min_ndim=4, found ndim=2. "
                  "Full shape received: (4, 5)"),
            ("4 dimensions", "gets 2", "(4, 5)"),
        ),
        (
            facts("Arguments `target` and `output` must have the same shape. Received: target.shape=(None, 1), "
                  "output.shape=(None, 3)"),
            ("labels have shape (None, 1)", "sparse"),
        ),
        (facts("A non-persistent GradientTape can only be used to compute one set of gradients"), ("persistent=True",)),
        (
            facts("as_list() is not defined on an unknown TensorShape.", 3, X, Operand("img", "float32", None)),
            ("img float32(?)", "set_shape()"),
        ),
        (
            facts("Expected int32, but got None of type 'NoneType'.", 3, X, Operand("x", "float32", (None, 3))),
            ("x float32(None, 3)", "tf.shape(x)[i]"),
        ),
        (facts("'SymbolicTensor' object does not support item assignment"), ("tensor_scatter_nd_update",)),
        (facts("Failed to convert a NumPy array to a Tensor (Unsupported object type list)."), ("unequal length",)),
        (
            facts("Cannot add tensor to the batch: number of elements does not match. Shapes are: [tensor]: [2], "
                  "[batch]: [1]"),
            ("[1] and [2]", "padded_batch"),
        ),
        (
            facts("Cannot batch tensors with different shapes in component 0. First element had shape [3] and element "
                  "1 had shape [5]."),
            ("[3]", "[5]", "padded_batch"),
        ),
        (facts("0-th value returned by pyfunc_0 is double, but expects float"), ("gives float64", "says float32")),
        (
            facts("Detected unsupported operations when trying to compile f() on XLA_CPU_JIT: AsString (No registered"),
            ("cannot compile AsString", "jit_compile"),
        ),
        (
            facts("Detected unsupported operations when trying to compile f() on XLA_CPU_JIT: DebugIdentityV2 (No"),
            ("DebugIdentityV2", "enable_dump_debug_info", "jit_compile"),
        ),
        (
            facts("cannot compute __inference_f_7 as input #0(zero-based) was expected to be a float tensor but is a "
                  "int32 tensor"),
            ("takes a float32 tensor", "given int32"),
        ),
        (
            facts("Value for attr 'T' of int32 is not in the list of allowed values: bfloat16, half, float"),
            ("does not take int32", "bfloat16, half, float"),
        ),
    ],
)  # fmt: skip
def test_the_usual_errors_are_explained(given: Facts, parts: tuple[str, ...]) -> None:
    sentence = explain(given)
    assert sentence is not None
    assert not [part for part in parts if part not in sentence], sentence


@pytest.mark.parametrize("message", ["division by zero", "", "list index out of range", "no such file: shapes.txt"])
def test_other_errors_are_left_unexplained(message: str) -> None:
    assert explain(facts(message)) is None


def test_missing_arguments_are_explained_for_elements_of_a_dataset_only() -> None:
    message = "<lambda>() missing 1 required positional argument: 'y'"
    assert explain(facts(message)) is None
    assert "components" in (explain(facts(message, elements=True)) or "")


def test_a_compiled_function_is_called_by_its_name() -> None:
    text = (
        "Detected unsupported operations when trying to compile graph __inference_f_7[_XlaMustCompile=true,x=1] on "
        "XLA_CPU_JIT: AsString (No registered 'AsString' OpKernel for XLA_CPU_JIT devices compatible with node "
        "{{node AsString}}){{node AsString}}\nThe op is created at:"
    )
    assert report(text).message == (
        "Detected unsupported operations when trying to compile f() on XLA_CPU_JIT: AsString (No registered 'AsString' "
        "OpKernel for XLA_CPU_JIT)"
    )


def test_a_leak_names_the_line_that_kept_the_tensor() -> None:
    leak = Leak("net.last", "y:0", Place("/me/a.py", 7, "grow"), SOURCE)
    sentence = explain(Facts("TypeError", "out of scope", Place("/me/b.py", 40, "main"), leak=leak))
    assert sentence is not None
    assert "net.last" in sentence and "a.py:12 kept it" in sentence and "b.py:40 uses it" in sentence


def test_without_source_an_explanation_does_without_lines() -> None:
    given = Facts("ValueError", "'acc' has shape (1,) before the loop, but shape (2,) after one iteration.")
    assert explain(given) is not None


def test_of_several_root_errors_the_first_counts() -> None:
    text = (
        "Graph execution error:\n\n2 root error(s) found.\n  (0) INVALID_ARGUMENT:  Incompatible shapes: [2] vs. [3]\n"
        "\t [[{{node replica_1/add}}]]\n\t [[Identity]]\n  (1) INVALID_ARGUMENT:  Incompatible shapes: [2] vs. [3]\n"
        "\t [[{{node add}}]]\n0 successful operations.\n0 derived errors ignored. [Op:__inference_step_20]"
    )
    said = report(text)
    assert (said.message, said.node) == ("Incompatible shapes: [2] vs. [3]", "replica_1/add")


def test_wrapping_by_keras_and_autograph_is_taken_off() -> None:
    text = (
        'in user code:\n\n    File "/me/a.py", line 15, in call  *\n        h = self.c(x)\n\n'
        "    ValueError: Exception encountered when calling Cell.call().\n\n\x1b[1min user code:\n\n"
        '    File "/me/a.py", line 10, in call  *\n        return tf.reshape(k, [-1, 7])\n\n'
        "    ValueError: Dimension size must be evenly divisible by 7 but is 60 for '{{node c/Reshape}} = "
        "Reshape[T=DT_FLOAT](c/stack, c/shape)' with input shapes: [5,3,4], [2].\n\x1b[0m\n\n"
        "Arguments received by Cell.call():\n  • x=tf.Tensor(shape=(5, 3, 2), dtype=float32)"
    )
    said = report(text)
    shown = "Dimension size must be evenly divisible by 7 but is 60 (Reshape, input shapes [5,3,4], [2])"
    assert (said.message, said.node, said.layer) == (shown, "c/Reshape", "Cell.call()")


WHILE = """import tensorflow as tf
def beam(x, steps):
    def cond(i, s):
        return i < steps
    def body(i, s):
        s = tf.concat([s, s[:, -1:]], axis=1)
        return i + 1, s
    return tf.while_loop(cond, body, [tf.constant(0), x])
"""


def test_a_variable_of_while_loop_is_found_in_its_body() -> None:
    message = (
        "Input tensor `x:0` enters the loop with shape (2, 3), but has shape (2, 4) after one iteration. To allow the "
        "shape to vary across iterations, use the `shape_invariants` argument of tf.while_loop to specify a "
        "less-specific shape."
    )
    found = explain(Facts("ValueError", message, Place("beam.py", 8, "beam"), WHILE))
    assert found is not None
    assert found.startswith("s enters the loop with shape (2, 3) and leaves its body with (2, 4): line 6 changes it")
    assert "shape_invariants" in found and "autograph" not in found


def test_a_gradient_function_that_forgets_an_argument() -> None:
    found = explain(
        Facts("InternalError", "Recorded operation 'clip' returned too few gradients. Expected 4 but received 2")
    )
    assert found is not None
    assert "clip() defines returns too few gradients: one for each argument" in found
