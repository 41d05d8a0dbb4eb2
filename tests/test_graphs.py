"""`graph`, `lt`, `ni`, `li`, `lo`, `ps` on real graphs: what they print, and that looking leaves no trace."""

import html
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfdb
from tfdb import graphdot, graphs, graphtext, internals_graphs
from tfdb.commands.options import parse
from tfdb.errors import TfdbError
from tfdb.evaluation import Evaluation, Memory, Unavailable
from tfdb.graphrecords import GRADIENT, UPDATE
from transcripts import play

Program = Callable[[], object]


@pytest.fixture
def step(tf: Any) -> Program:
    """A training step written by hand, stopped at after the gradient, for two calls."""
    w = tf.Variable([[1.0], [2.0]], name="w")

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            pred = tf.matmul(x, w)
            loss = tf.reduce_mean(tf.square(pred - y))
        slope = tape.gradient(loss, w)
        tfdb.set_trace()
        w.assign_sub(0.5 * slope)
        return loss

    def program() -> None:
        x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        print("loss", train_step(x, tf.zeros([2, 1])).numpy(), w.numpy().ravel())

    return program


def test_lt_lists_the_tensors_up_to_the_stop_with_their_values(step: Program) -> None:
    play(
        step,
        """
        graph stop · train_step · pass 1
        ...
        (tfdb) lt
        11 tensors of train_step · 4 from the stop · 7 computed again
        train_step  (test_graphs.py)
          MatMul ...MatMul... :... float32(2, 1) ... [5, 11]...
        ...
          Mean ... float32() ... 73
        ...
        (tfdb) lt -n Mat -t MatMul -f 't.max() > 10'
        2 tensors of train_step · ...
        ...
        (tfdb) lt -f nan
        0 tensors of train_step
        no tensor matches
        (tfdb) lt -f oops
        *** the filter fails on every tensor: NameError: name 'oops' is not defined
        (tfdb) lt -s nonsense
        *** -s takes one of time, name, op, line, size, bad
        (tfdb) lt -n (
        *** ( is no regular expression: missing ), unterminated subpattern at position 0
        (tfdb) c
        loss 73.0 [-18. -25.]
        """,
    )


def test_ni_shows_an_op_with_its_value_and_neighbours(step: Program) -> None:
    play(
        step,
        """
        ...
        (tfdb) ni Mean -a -t
        Mean  Mean  float32()
          forward · device any
          made at     test_graphs.py:... train_step()  loss = tf.reduce_mean(tf.square(p...
          inputs      Square:0  Square  float32(2, 1)
                      Const:0  Const  int32(2,) = [0, 1]
          recipients  Identity  Identity
          attributes  T = float32
                      Tidx = int32
                      keep_dims = False
          values      float32() cpu:0 4B  73
        ...
          test_graphs.py:... train_step()  loss = tf.reduce_mean(tf.square(pred - y))
        (tfdb) ni nowhere
        *** no node nowhere here: `lt` lists them, `lt -n REGEX` looks for one
        (tfdb) ni
        *** ni takes a node's name: `lt` lists them
        (tfdb) ni AssignSubVariableOp
        AssignSubVariableOp  AssignSubVariableOp  no output
          update · device any · stateful
        ...
        (tfdb) c
        ...
        """,
    )


def test_trees_of_inputs_and_recipients(step: Program) -> None:
    play(
        step,
        """
        ...
        (tfdb) li Mean
        Mean  Mean  float32()
        ├─ Square  Square  float32(2, 1)
        │  └─ sub  Sub  float32(2, 1)
        │     ├─ MatMul  MatMul  float32(2, 1)
        │     │  ├─ x  Placeholder  float32(2, 2)
        │     │  └─ MatMul/ReadVariableOp  ReadVariableOp  float32(2, 1) = w ...
        │     └─ y  Placeholder  float32(2, 1)
        └─ Const  Const  int32(2,) = [0, 1]
        (tfdb) li Mean -d 1
        Mean  Mean  float32()
        ├─ Square  Square  float32(2, 1) ...
        └─ Const  Const  int32(2,) = [0, 1]
        (tfdb) li Mean -t Placeholder
        Mean  Mean  float32()
        ├─ y  Placeholder  float32(2, 1)
        ├─ x  Placeholder  float32(2, 2)
        └─ MatMul/ReadVariableOp/resource  Placeholder  resource() = w
        (tfdb) lo sub -d 1
        sub  Sub  float32(2, 1)
        ├─ Square  Square  float32(2, 1) ...
        └─ gradient_tape/Mul  Mul  float32(2, 1) ...
        (tfdb) li Mean -d deep
        *** -d takes a number, not deep
        (tfdb) c
        ...
        """,
    )


def test_ps_annotates_the_source(step: Program) -> None:
    play(
        step,
        """
        ...
        (tfdb) ps
           ...            pred = tf.matmul(x, w)
               · MatMul  MatMul  float32(2, 1)
           ...            loss = tf.reduce_mean(tf.square(pred - y))
               · sub  Sub  float32(2, 1)
               · Square  Square  float32(2, 1)
               · Mean  Mean  float32()
        ...
        (tfdb) ps elsewhere.py
        *** no op of this graph was made in elsewhere.py
        (tfdb) c
        ...
        """,
    )


def test_graph_without_argument_is_the_one_of_the_stop(step: Program) -> None:
    play(
        step,
        """
        ...
        (tfdb) graph
        train_step(x: float32(2, 2), y: float32(2, 1)) -> float32()
          26 ops: 5 forward, 7 gradient, 2 update · device any · XLA off
          variables  w float32(2, 1)
        forward
          test_graphs.py:... train_step()  pred = tf.matmul(x, w)
              MatMul  float32(2, 1)  MatMul(x, w)
          test_graphs.py:... train_step()  loss = tf.reduce_mean(tf.square(pred - y))
              sub     float32(2, 1)  Sub(MatMul, y)
              Square  float32(2, 1)  Square(sub)
              Mean    float32()      Mean(Square, [0, 1])
        gradient
          test_graphs.py:... train_step()  slope = tape.gradient(loss, w)
        ...
        update
          test_graphs.py:... train_step()  w.assign_sub(0.5 * slope)
        ...
        (tfdb) c
        ...
        """,
    )


def test_after_the_call_the_values_are_those_of_the_execution(tf: Any) -> None:
    w = tf.Variable(2.0, name="w")

    @tf.function
    def double(x: Any) -> Any:
        tfdb.set_trace()
        y = x * w
        w.assign(100.0)
        return y + w

    def program() -> None:
        print(double(tf.constant(3.0)).numpy())
        tfdb.set_trace()
        print(w.numpy())

    play(
        program,
        """
        graph stop · double · pass 1
        ...
        (tfdb) c
        106.0
        ...
        (tfdb) lt
        2 tensors of double · 2 computed again
        double  (test_graphs.py)
          mul Mul   :... float32() cpu:0 4B  6
          add AddV2 :... float32() cpu:0 4B  106
        (tfdb) c
        100.0
        """,
    )


def test_looking_changes_no_variable_and_no_result(tf: Any) -> None:
    count = tf.Variable(0)

    @tf.function
    def tick(x: Any) -> Any:
        count.assign_add(1)
        x = x + 0.0 * tf.random.uniform([3])
        tfdb.set_trace()
        x = x + 0.0 * tf.random.normal([3])
        return tf.reduce_sum(x)

    def program() -> None:
        print(tick(tf.ones([3])).numpy(), int(count))

    play(
        program,
        """
        ...
        (tfdb) lt -a
        ...
        (tfdb) ni random_uniform/RandomUniform
        ...
          values      float32(3,) ...
        (tfdb) ni random_normal/RandomStandardNormal
        ...
          values      not available: ...
        (tfdb) c
        3.0 1
        """,
    )


def test_tensors_of_branches_loops_and_nested_functions_are_had(tf: Any) -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return x + 1.0

    @tf.function
    def outer(x: Any) -> Any:
        if tf.reduce_sum(x) > 0:
            x = x * 10.0
        else:
            x = -x
        for _ in tf.range(3):
            x = inner(x)
        tfdb.set_trace()
        return x

    play(
        lambda: print(outer(tf.constant([1.0, 2.0])).numpy()),
        """
        ...
        (tfdb) lt -t Mul
        1 tensor of outer · 1 computed again
        outer > cond_true (cond)  (test_graphs.py)
          cond/mul Mul :... float32(2,) ... [10, 20]...
        (tfdb) lt -t AddV2 -f 't.size==2'
        1 tensor of outer · 1 computed again
        outer > while_body (while) > inner (while/PartitionedCall)  (test_graphs.py)
          add AddV2 :... float32(2,) ... [13, 23]...
        (tfdb) c
        [13. 23.]
        """,
    )


def test_a_stop_in_a_loop_has_the_values_of_its_pass(tf: Any) -> None:
    @tf.function
    def total(n: Any) -> Any:
        acc = tf.constant(0)
        for i in tf.range(n):
            acc = acc + i * i
            tfdb.set_trace(i == 3)
        return acc

    play(
        lambda: print(total(tf.constant(5)).numpy()),
        """
        ...
        (tfdb) p int(i), int(acc)
        (3, 14)
        (tfdb) lt -n 'while/add$'
        1 tensor of while_body · 1 from the stop
        total > while_body  (test_graphs.py)
          while/add AddV2 :... int32() cpu:0 4B  14
        (tfdb) lt -t Mul
        ...
          while/mul Mul :... int32() cpu:0 4B  9
        (tfdb) c
        30
        """,
    )


def test_graph_of_a_function_by_name_folded_and_whole(tf: Any) -> None:
    @tf.function
    def choose(x: Any) -> Any:
        if tf.reduce_sum(x) > 0:
            x = tf.sqrt(x)
        return x

    def program() -> None:
        choose(tf.ones([2]))
        tfdb.set_trace()
        print(choose)

    play(
        program,
        """
        ...
        (tfdb) graph choose
        choose(x: float32(2,)) -> float32(2,)
          8 ops: 3 forward · device any · XLA off
          test_graphs.py:... choose()  if tf.reduce_sum(x) > 0:
              Sum      float32()    Sum(x, [0])
              Greater  bool()       Greater(Sum, 0.0)
              cond     float32(2,)  StatelessIf(Gre...  ▸ then cond_true 1 op, else cond_...
        (tfdb) graph choose -a
        ...
                cond_true() -> float32(2,)
        ...
                      cond/Sqrt    float32(2,)  Sqrt(x)
        ...
        (tfdb) graph choose, 2
        *** there are 1 traces: choose 1 to 1
        (tfdb) graph nothing
        *** NameError: name 'nothing' is not defined
        (tfdb) graph 3
        *** int has no graph: give a tf.function, a trace, a Keras model or a SavedModel
        (tfdb) q
        Quit: 1
        """,
    )


def test_a_function_never_traced_asks_for_arguments_and_is_traced_not_run(tf: Any) -> None:
    ran = tf.Variable(0)

    @tf.function
    def scale(x: Any, factor: Any) -> Any:
        ran.assign_add(1)
        return x * factor

    def program() -> None:
        assert tf
        tfdb.set_trace()
        print(int(ran), scale.experimental_get_tracing_count())

    play(
        program,
        """
        ...
        (tfdb) graph scale
        *** scale was never traced: give arguments for x, factor, as in `graph scale(tf.TensorSpec([None, 3]))`
        (tfdb) graph scale(tf.TensorSpec([None, 3]), factor=2.0)
        scale(x: float32(?, 3), factor: 2.0) -> float32(?, 3)
        ...
              mul...Mul(x, 2.0)
        ...
        (tfdb) graph scale()
        *** it cannot be traced for these arguments: ...
        (tfdb) c
        0 0
        """,
    )


def test_a_saved_model_without_source_shows_its_signatures_and_ops(tf: Any) -> None:
    class Scorer(tf.Module):
        def __init__(self) -> None:
            self.w = tf.Variable([[1.0], [2.0], [3.0]], name="w")

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
        def score(self, x: Any) -> Any:
            return tf.math.softplus(tf.matmul(x, self.w))

    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(Scorer(), folder)
        loaded = tf.saved_model.load(folder)

    def program() -> None:
        print(loaded.score(tf.ones([1, 3])).numpy().round(3))
        tfdb.set_trace()

    play(
        program,
        """
        [[6.002]]
        ...
        (tfdb) graph loaded.score
        score(x: float32(?, 3)) -> float32(?, 1)
          7 ops: 3 forward · device any · XLA off
          from a SavedModel: no Python source, so its ops have no lines
          variables  w float32(3, 1)
          no user line
              MatMul    float32(?, 1)  MatMul(x, w)
              Softplus  float32(?, 1)  Softplus(MatMul)
        (tfdb) graph loaded
          1  score(x: float32(?, 3)) -> float32(?, 1)
          2  signatures['serving_default'](x: float32(?, 3)) -> float32(?, 1)
        ...
        (tfdb) c
        """,
    )


def test_a_keras_model_is_shown_by_its_call(tf: Any) -> None:
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2, name="out")], name="small")
    source = graphs.sources(model)[0]
    record = graphs.read(source)
    text = graphtext.graph_text(record, 100)
    assert text.startswith("small(x: float32(?, 4)) -> float32(?, 2)")
    assert "MatMul(x, small/out/kernel)" in text and "test_graphs.py" not in text


def test_what_has_no_graph_says_what_to_type(tf: Any) -> None:
    import keras

    class Scaler(tf.Module):
        @tf.function
        def scale(self, x: Any) -> Any:
            return 2 * x

        def plain(self, x: Any) -> Any:
            return tf.sqrt(x)

    class Pair(keras.Model):
        def call(self, inputs: Any) -> Any:
            return inputs[0] + inputs[1]

    module, pair, dense = Scaler(), Pair(name="pair"), keras.layers.Dense(2, name="dense")
    pair([tf.ones([1, 3]), tf.ones([1, 3])])
    two, specs = tf.TensorSpec([2]), [tf.TensorSpec([None, 3])] * 2

    def program() -> None:
        tfdb.set_trace()
        print("end", module.plain(4.0), pair.name, dense.name, two, specs, tf.TensorSpec)

    play(
        program,
        """
        ...
        (tfdb) graph module
        *** Scaler has no graph of its own; its tf.functions are scale
        (tfdb) graph module.plain
        *** plain is plain Python: give arguments to trace it, as in `graph plain(tf.TensorSpec([None, 3]))`
        (tfdb) graph module.plain(tf.TensorSpec([2]))
        plain(x: float32(2,)) -> float32(2,)
        ...
              Sqrt  float32(2,)  Sqrt(x)
        (tfdb) graph pair
        *** the shapes that pair takes are not known: give them, as in `graph pair(tf.TensorSpec([None, 3]))`
        (tfdb) graph pair([tf.TensorSpec([None, 3])] * 2)
        pair(args_0[0]: float32(?, 3), args_0[1]: float32(?, 3)) -> float32(?, 3)
        ...
        (tfdb) graph dense
        *** dense was never built: call it once before
        (tfdb) graph dense(tf.TensorSpec([2, 4]))
        *** dense was never built, and this would build it: call it once before
        (tfdb) p dense.built
        False
        (tfdb) graph 3
        *** int has no graph: give a tf.function, a trace, a Keras model or a SavedModel
        (tfdb) c
        end ...
        """,
    )


def test_phases_are_told_apart(tf: Any) -> None:
    import keras

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def train_step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    train_step(tf.ones([2, 3]))
    record = graphs.read(graphs.sources(train_step)[-1])
    by_phase = {phase: {node.op for node in record.nodes if node.phase == phase} for phase in (GRADIENT, UPDATE)}
    assert "MatMul" in by_phase[GRADIENT] and "AssignSubVariableOp" in by_phase[UPDATE]
    assert "BiasAddGrad" not in by_phase[UPDATE]


def test_dot_and_pbtxt_and_event_files(tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @tf.function
    def f(x: Any) -> Any:
        return tf.sqrt(x) + 1.0

    def program() -> None:
        f(tf.ones([2]))
        tfdb.set_trace()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    play(
        program,
        """
        ...
        (tfdb) graph f --dot f.dot
        f.dot: ... bytes
        (tfdb) graph f --pbtxt f.pbtxt
        f.pbtxt: ... bytes
        (tfdb) graph f --tb logs
        event file in logs: tensorboard --logdir logs
        (tfdb) graph f --svg f.svg
        *** Graphviz is not installed (no `dot` on the path): use --dot FILE, or install graphviz
        (tfdb) graph f --dot nowhere/f.dot
        *** cannot write nowhere/f.dot: No such file or directory
        (tfdb) graph f --dot
        *** --dot takes a value
        (tfdb) c
        """,
    )
    text = (tmp_path / "f.dot").read_text()
    assert text.startswith('digraph "f" {') and '"Sqrt" -> "add" [label="float32(2,)"];' in text
    assert text.count("{") == text.count("}")
    assert 'op: "Sqrt"' in (tmp_path / "f.pbtxt").read_text()
    assert list((tmp_path / "logs").glob("events.*"))


def events_in(folder: Path) -> Any:
    """What TensorBoard reads of a folder."""
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard")
    made = loader.EventAccumulator(str(folder))
    made.Reload()
    return made


def test_event_files_are_what_tensorboard_reads(tf: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    values = tf.reshape(tf.range(6.0), [2, 3])

    @tf.function
    def f(x: Any) -> Any:
        tfdb.set_trace()
        return tf.sqrt(x)

    def program() -> None:
        f(values)
        tfdb.set_trace()
        print("end")

    play(
        program,
        f"""
        ...
        (tfdb) c
        ...
        (tfdb) graph f --tb {tmp_path}/graph
        event file in ...
        (tfdb) plot values --tb {tmp_path}/image
        event file in ...
        (tfdb) plot values[1] --tb {tmp_path}/line
        event file in ...
        (tfdb) hist values --tb {tmp_path}/hist
        event file in ...
        (tfdb) plot values[None, None, None] --tb {tmp_path}/none
        *** --tb takes matrices and images (1, 3 or 4 channels), not (1, 1, 1, 2, 3): give a slice
        (tfdb) c
        end
        """,
    )
    nodes = [node.name for node in events_in(tmp_path / "graph").Graph().node]
    assert "Sqrt" in nodes and not any("tfdb" in name for name in nodes)
    found = events_in(tmp_path / "image")
    assert found.Tags()["images"] == [] and found.Tags()["tensors"] == ["values"]
    width, height, png = found.Tensors("values")[0].tensor_proto.string_val[:3]
    assert (width, height) == (b"3", b"2") and png.startswith(b"\x89PNG")
    scalars = events_in(tmp_path / "line").Tensors("values[1]")
    assert [float(tf.make_ndarray(each.tensor_proto)) for each in scalars] == [3.0, 4.0, 5.0]
    buckets = tf.make_ndarray(events_in(tmp_path / "hist").Tensors("values")[0].tensor_proto)
    assert buckets[:, 2].sum() == 6.0


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_svg_groups_by_line_and_tells_the_parts_apart(tf: Any, tmp_path: Path) -> None:
    w = tf.Variable([[1.0], [2.0]], name="w")

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x @ w))
        w.assign_sub(0.5 * tape.gradient(loss, w))
        return loss

    def program() -> None:
        step(tf.ones([3, 2]))
        tfdb.set_trace()
        print("end")

    play(program, f"...\n(tfdb) graph step --svg {tmp_path}/s.svg\n... bytes\n(tfdb) c\nend")
    text = html.unescape((tmp_path / "s.svg").read_text(encoding="utf-8"))
    assert text.count("<svg") == 1 and "loss = tf.reduce_sum(tf.square(x @ w))" in text
    assert all(colour in text for colour in graphdot.COLOURS.values())
    assert all(f">{phase}<" in text for phase in ("forward", "gradient", "update"))
    assert text.count(">w<") == 1 and ">ReadVariableOp<" not in text


def test_hooks_do_not_show_in_files_or_text(tf: Any, tmp_path: Path) -> None:
    @tf.function
    def f(x: Any) -> Any:
        tfdb.set_trace()
        return tf.sqrt(x)

    output = play(
        lambda: f(tf.ones([2])),
        f"""
        ...
        (tfdb) graph
        ...
        (tfdb) graph --pbtxt {tmp_path}/f.pbtxt
        ...
        (tfdb) graph --dot {tmp_path}/f.dot
        ...
        (tfdb) c
        """,
    )
    for text in (output, (tmp_path / "f.pbtxt").read_text(), (tmp_path / "f.dot").read_text()):
        assert "EagerPyFunc" not in text


def test_commands_without_a_graph_say_so(tf: Any) -> None:
    def program() -> None:
        tfdb.set_trace()
        print("on")

    play(
        program,
        """
        ...
        (tfdb) lt
        *** no graph has run yet: stop in a tf.function, or after one was called
        (tfdb) ni x
        *** no graph has run yet: stop in a tf.function, or after one was called
        (tfdb) graph
        *** no graph has run yet: stop in a tf.function, or after one was called
        (tfdb) c
        on
        """,
    )


def evaluated(function: Any, *args: Any) -> Evaluation:
    """All of a traced function computed again from these arguments."""
    concrete = function.get_concrete_function(*args)
    values = [*args, *concrete.captured_inputs]
    feeds = {place.name: value for place, value in zip(concrete.graph.inputs, values, strict=True)}
    held = {id(v): read for v in values if (read := internals_graphs.read_variable(v)) is not None}
    made = Evaluation(concrete.graph, feeds, Memory(held, True))
    made.run_to(len(made.operations))
    return made


def test_a_whole_keras_step_is_played_without_touching_it(tf: Any) -> None:
    import keras

    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(8, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01)

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    x, y = tf.random.normal([6, 4]), tf.ones([6, 1])
    train_step(x, y)
    before = [variable.numpy() for variable in [*model.variables, *optimizer.variables]]
    made = evaluated(train_step, x, y)
    after = [variable.numpy() for variable in [*model.variables, *optimizer.variables]]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert not made.reasons
    played = float(made.fetch(made.graph.outputs[0]))
    assert played == pytest.approx(float(train_step(x, y)), rel=1e-6)
    for variable in model.trainable_variables:
        np.testing.assert_allclose(
            made.memory.values[id(variable.value.handle)], variable.numpy(), rtol=1e-5, atol=1e-7
        )


def test_fused_updates_are_played_on_copies(tf: Any) -> None:
    v = tf.Variable([1.0, 2.0])

    @tf.function
    def update(x: Any) -> Any:
        tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=0.5, delta=x)
        v.scatter_add(tf.IndexedSlices(tf.constant([10.0]), tf.constant([1])))
        return v + 0.0

    made = evaluated(update, tf.constant([2.0, 2.0]))
    assert made.fetch(made.graph.outputs[0]).numpy().tolist() == [0.0, 11.0]
    assert v.numpy().tolist() == [1.0, 2.0]


def test_an_effect_is_refused_with_its_reason(tf: Any) -> None:
    @tf.function
    def noisy(x: Any) -> Any:
        return tf.random.uniform([2]) * x + tf.numpy_function(lambda: np.float32(1), [], tf.float32)

    made = evaluated(noisy, tf.constant(1.0))
    with pytest.raises(Unavailable, match="is not run again: it draws new numbers at each run"):
        made.fetch(made.graph.outputs[0])


@pytest.mark.parametrize(
    ("argument", "expression", "options"),
    [
        ("x", "x", {}),
        ("x -a", "x", {"-a": ""}),
        ("x[0] -r -inf,0 -a", "x[0]", {"-r": "-inf,0", "-a": ""}),
        ("-f 't.max() > 1' -n a", "", {"-f": "t.max() > 1", "-n": "a"}),
        ("a -b", "a -b", {}),
        ("f(x, -a) - a", "f(x, -a) - a", {}),
    ],
)
def test_options_stand_at_the_end(argument: str, expression: str, options: dict[str, str]) -> None:
    assert parse(argument, ("-a",), ("-r", "-f", "-n")) == (expression, options)


def test_an_option_without_its_value_is_an_error() -> None:
    with pytest.raises(TfdbError, match="-r takes a value"):
        parse("x -r", ("-a",), ("-r",))


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_lines_are_never_wider_than_the_terminal(step: Program, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    commands = ("lt -a", "graph -a", "ps", "ni Mean -a", "li Mean", "graph")
    output = play(step, "...\n" + "\n...\n".join(f"(tfdb) {each}" for each in [*commands, "c"]) + "\n...")
    shown = output.split("(tfdb) lt -a\n")[1].rsplit("(tfdb) c", 1)[0].splitlines()
    assert max(map(len, shown)) <= columns


def test_dot_of_nested_functions_has_each_once(tf: Any) -> None:
    @tf.function
    def inner(x: Any) -> Any:
        return tf.sqrt(x)

    @tf.function
    def outer(x: Any) -> Any:
        return inner(x) + inner(x * 2.0)

    outer(tf.ones([2]))
    text = graphdot.dot(graphs.read(graphs.sources(outer)[0]))
    assert text.count('label="Sqrt"') == 1
    assert text.count("{") == text.count("}")


def test_inside_keras_fit_the_batch_and_all_that_comes_of_it_are_at_hand(tf: Any) -> None:
    import keras

    class Scale(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.g = self.add_weight(shape=(shape[-1],), initializer="ones", name="g")

        def call(self, x: Any) -> Any:
            y = x * self.g
            tfdb.set_trace()
            return y + 1.0

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones"), Scale()])
    model.compile("sgd", "mse", jit_compile=False)

    def program() -> None:
        tfdb.set_trace()
        model.fit(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 1)), batch_size=2, verbose=0, shuffle=False)
        print("end")

    play(
        program,
        """
        ...
        (tfdb) c
        ...
        (tfdb) lt -t 'MatMul|Mul|BiasAdd|AddV2'
        3 tensors of one_step_on_data · 2 from the stop · 1 computed again
        multi_step_on_iterator > one_step_on_data  (test_graphs.py)
          ...MatMul ... float32(2, 1) ... [3, 7]...
        ...
        (tfdb) ni nothing
        *** no node nothing here: `lt` lists them, `lt -n REGEX` looks for one
        (tfdb) c
        end
        """,
    )


def test_graph_of_what_is_called_through_a_tf_function(tf: Any) -> None:
    class Net(tf.Module):
        @tf.function
        def __call__(self, x: Any) -> Any:
            return tf.sqrt(x)

    net = Net()
    net(tf.ones([2]))
    assert [source.title for source in graphs.sources(net)] == ["__call__"]
