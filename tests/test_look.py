"""`pt` with options, `hist`, `plot`, `tdiff`, completion and the toolbar."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfdb
from tfdb import completion, differences, plots, render, values
from tfdb.completion import Completion
from tfdb.errors import TfdbError
from tfdb.frames import LiveFrame
from tfdb.stopping import GraphStop
from transcripts import play


def test_pt_options(tf: Any, tmp_path: Path) -> None:
    x = tf.constant([[1.0, -2.0, 3.0], [4.0, float("nan"), 6.0]])
    bf = tf.constant([1.5, 2.5], tf.bfloat16)

    def program() -> None:
        tfdb.set_trace()
        print(x.shape, bf.shape, tf.__name__)

    play(
        program,
        f"""
        ...
        (tfdb) pt x -a
        float32(2, 3) cpu:0  [1, -2, 3, 4, nan, 6] ... nan 1, first at [1, 1]
        [[ 1., -2.,  3.],
         [ 4., nan,  6.]]
        (tfdb) pt x[0, ::2] -a
        float32(2,) ... [1, 3]...
        [1., 3.]
        (tfdb) pt x -r 3,inf
        ...
        in [3, inf]: 3 of 6 (50%), at [0, 2], [1, 0], [1, 2]
        [[ 1. , -2. ,  3.*],
         [ 4.*, nan ,  6.*]]
        (tfdb) pt x -r nan
        ...
        nan: 1 of 6 (17%), at [1, 1]
        ...
        (tfdb) pt x --axis 0
        ...
        [0]  float32(3,)  12B  [1, -2, 3]...
        [1]  float32(3,)  12B  [4, nan, 6]...
        (tfdb) pt x --axis 2
        ...
        *** --axis takes 0 to 1 here, not 2
        (tfdb) pt x -r 3
        ...
        *** -r takes two numbers, LO,HI (or nan), not 3
        (tfdb) pt x -s {tmp_path}/x.npy
        ...
        {tmp_path}/x.npy: float32(2, 3) 24B
        (tfdb) pt bf -s {tmp_path}/bf.npy
        ...
        {tmp_path}/bf.npy: float32(2,) 8B (bfloat16 saved as float32)
        (tfdb) pt (x - x[0])[0]
        float32(3,) ... all zeros
        (tfdb) pt
        *** pt takes an expression, for example `pt x`
        (tfdb) pt nothing
        *** NameError: name 'nothing' is not defined
        (tfdb) c
        ...
        """,
    )
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), x.numpy())
    assert np.load(tmp_path / "bf.npy").tolist() == [1.5, 2.5]


def test_tdiff(tf: Any) -> None:
    a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    b = tf.constant([[1.0, 2.5], [float("nan"), 4.0]])

    def program() -> None:
        tfdb.set_trace()
        print(a.shape, b.shape, tf.__name__)

    play(
        program,
        """
        ...
        (tfdb) tdiff a, a
        both float32(2, 2)
          all 4 elements equal
        (tfdb) tdiff a, b
        both float32(2, 2)
          2 of 4 elements differ (50%)
          largest absolute difference 0.5 at [0, 1]: 2 and 2.5
          largest relative difference 0.2 at [0, 1]: 2 and 2.5
          1 nan or inf in one only, first at [1, 0]: 3 and nan
          not close even at rtol 0.01, atol 0.0001
        (tfdb) tdiff a, tf.cast(a, tf.float64)
        float32(2, 2) against float64(2, 2)
          dtypes differ: compared as float64
          all 4 elements equal
        (tfdb) tdiff a, a[0]
        float32(2, 2) against float32(2,)
          shapes differ: compared broadcast
          2 of 4 elements differ (50%)
        ...
        (tfdb) tdiff a, tf.ones([3])
        float32(2, 2) against float32(3,)
          the shapes cannot be broadcast
        (tfdb) tdiff {'k': a}, {'k': a + 1e-6}
        ['k']
        both float32(2, 2)
        ...
          allclose at rtol 1e-05, atol 1e-08
        (tfdb) tdiff a
        *** tdiff takes two expressions: tdiff A, B
        (tfdb) c
        ...
        """,
    )


@pytest.mark.parametrize(
    ("a", "b", "agree"),
    [
        ([1.0, np.nan], [1.0, np.nan], (0.0, 0.0)),
        ([np.inf], [np.inf], (0.0, 0.0)),
        ([np.inf], [-np.inf], None),
        ([1.0], [1.0 + 1e-4], (1e-3, 1e-6)),
        ([1 + 2j], [1 + 2j], (0.0, 0.0)),
        ([True, False], [True, True], None),
    ],
)
def test_tolerances(a: list, b: list, agree: tuple[float, float] | None) -> None:
    assert differences.difference(np.array(a), np.array(b)).agree == agree


def test_large_arrays_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.zeros((10, 7), np.float32)
    b = a.copy()
    b[8, 3], b[4, 1], b[9, 0] = 2.0, np.nan, 1e-9
    whole = differences.difference(a, b)
    monkeypatch.setattr(differences, "PIECE", 14)
    assert differences.difference(a, b) == whole
    assert whole.absolute is not None and whole.absolute[1] == (8, 3) and whole.unequal == 3
    assert whole.first_mismatch == ((4, 1), "0", "nan")


def test_texts_are_compared_too() -> None:
    found = differences.difference(np.array([b"a", b"b"]), np.array([b"a", b"c"]))
    assert found.unequal == 1 and found.first_mismatch is not None and found.first_mismatch[0] == (1,)
    assert differences.difference(np.zeros((0,)), np.zeros((0,))).note == "both are empty"


def test_hist_and_plot_in_the_terminal(tf: Any, tmp_path: Path) -> None:
    pytest.importorskip("plotext")
    pytest.importorskip("matplotlib")
    line = tf.linspace(0.0, 1.0, 50)
    image = tf.stack([tf.ones([8, 8]), tf.zeros([8, 8]), tf.zeros([8, 8])], axis=-1)[None]

    def program() -> None:
        tfdb.set_trace()
        print(line.shape, image.shape, tf.__name__)

    output = play(
        program,
        f"""
        ...
        (tfdb) hist line
        line float32(50,)
        ...
        (tfdb) plot line
        line float32(50,)
        ...
        (tfdb) plot image
        image float32(1, 8, 8, 3) · element 0 of 1
        ...
        (tfdb) plot [tf.constant(1.), tf.constant(2.)]
        [tf.constant(1.), tf.constant(2.)] float32(2,)
        ...
        (tfdb) hist line --png {tmp_path}/hist.png
        {tmp_path}/hist.png: ... bytes
        (tfdb) plot image --png {tmp_path}/image.png
        {tmp_path}/image.png: ... bytes
        (tfdb) plot 3.0
        *** plot takes an array of one axis or more, with elements in it: pt shows this one
        (tfdb) plot 'text'
        *** text cannot be drawn: numbers can
        (tfdb) hist float('nan')
        *** no finite number to count
        (tfdb) c
        ...
        """,
    )
    assert "\x1b" not in output
    assert max(map(len, output.splitlines())) <= 100
    assert (tmp_path / "hist.png").read_bytes()[:4] == b"\x89PNG"


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotext", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    made = plots.drawing(np.arange(3.0), "x")
    with pytest.raises(TfdbError, match="plots need plotext, which is not installed: pip install"):
        plots.text(made, 80, 10, False)
    with pytest.raises(TfdbError, match="plots need matplotlib"):
        plots.png([made], "x.png")


def test_heat_maps_need_no_library_and_show_what_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotext", None)
    array = np.array([[0.0, 1.0], [np.nan, 0.5]])
    assert plots.text(plots.drawing(array, "x"), 40, 10, False).splitlines()[1:3] == [" █", "×▒"]


def test_colours_are_used_only_where_there_are_some() -> None:
    array = np.array([[0.0, 1.0], [np.nan, 0.5]])
    lines = plots.text(plots.drawing(array, "x"), 40, 10, True).splitlines()
    assert [render.uncoloured(line) for line in lines[1:3]] == ["██", "×█"]
    assert len({line.split("m")[0] for line in lines[1].split("█")[:2]}) == 2
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[..., 0] = 255
    assert "\x1b[38;2;255;0;0m█" in plots.text(plots.drawing(picture, "p"), 40, 10, True)
    assert "\x1b" not in plots.text(plots.drawing(picture, "p"), 40, 10, False)


def test_large_arrays_are_reduced_before_they_are_drawn() -> None:
    small = plots.blocks(np.arange(1e6).reshape(1000, 1000), 10, 20, plots.MAP)
    assert small.shape == (10, 20) and small[0, 0] < small[-1, -1]
    values_of = np.zeros(100000)
    values_of[54321] = 7.0
    assert max(part.max() for _, part in plots.segments(values_of, 100)) == 7.0
    made = plots.histogram(np.ones(1 << 21, np.float32), "x")
    assert made.values.sum() == plots.SAMPLE and "sampled" in made.notes[0]


def test_lines_break_where_a_value_is_not_finite() -> None:
    pieces = plots.segments(np.array([1.0, 2.0, np.nan, 3.0]), 100)
    assert [list(places) for places, _ in pieces] == [[0, 1], [3]]


def test_huge_arrays_are_elided_with_advice() -> None:
    text = values.values_text(np.zeros(values.MOST_VALUES + 1, np.int8), 80)
    assert "..." in text and "save them with -s" in text


def test_values_in_a_span_are_marked_in_colour_where_there_is_some() -> None:
    array = np.array([1, 5, 9])
    assert values.values_text(array, 80, (4.0, 6.0)) == "[1 , 5*, 9 ]"
    assert values.values_text(array, 80, (4.0, 6.0), True) == f"[1, {values.MARK}5{values.UNMARK}, 9]"


class Stopped:
    """A debugger as completion sees it, at a stop with these names."""

    def __init__(self, **names: Any) -> None:
        self.curframe = type("Frame", (), {"f_globals": {}})()
        self.curframe_locals = names

    def do_pt(self) -> None: ...
    def do_plot(self) -> None: ...


@pytest.mark.parametrize(
    ("line", "word", "expected"),
    [
        ("p", "p", ["plot", "pt"]),
        ("pt lo", "lo", ["logits"]),
        ("pt -", "-", ["-a", "-r", "-s", "--axis"]),
        ("graph --p", "--p", ["--pbtxt"]),
        ("watch n", "n", ["nan", "none"]),
        ("b op", "op", ["op:"]),
        ("pt logits.sh", "logits.sh", ["logits.shape"]),
        ("ni x", "x", []),
        ("pt nothing.x", "nothing.x", []),
    ],
)
def test_completion(line: str, word: str, expected: list[str]) -> None:
    assert sorted(Completion(Stopped(logits=np.zeros(2))).candidates(line, word)) == sorted(expected)


class Hostile:
    """An object that raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    @property
    def __class__(self) -> Any:
        raise RuntimeError("class")


def test_completion_passes_over_objects_that_raise() -> None:
    offered = Completion(Stopped(bad=Hostile(), logits=np.zeros(2)))
    assert offered.candidates("pt lo", "lo") == ["logits"]
    assert offered.candidates("p ba", "ba") == ["bad"]
    assert offered.candidates("pt bad.x", "bad.x") == []


def test_completion_of_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plots").mkdir()
    (tmp_path / "plan.png").touch()
    (tmp_path / ".hidden").touch()
    monkeypatch.chdir(tmp_path)
    offered = Completion(Stopped(logits=np.zeros(2)))
    for line in ("plot logits --png pl", "repro pl", "graph f --svg pl", "pt logits -s pl"):
        assert sorted(offered.candidates(line, "pl")) == ["plan.png", "plots/"]
    assert offered.candidates(f"repro {tmp_path}/pla", f"{tmp_path}/pla") == [f"{tmp_path}/plan.png"]
    assert offered.candidates("repro nowhere/x", "nowhere/x") == []
    assert ".hidden" not in offered.candidates("repro ", "")


@pytest.mark.parametrize(
    ("line", "candidate", "kind"),
    [("p", "pt", "command"), ("ni Ma", "MatMul", "node"), ("pt -", "-a", "option"), ("pt lo", "logits", "value")],
)
def test_every_candidate_has_a_kind(line: str, candidate: str, kind: str) -> None:
    assert completion.kind_of(line, candidate) == kind


def test_completion_of_layers_and_variables(tf: Any) -> None:
    import keras

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, name="head")], name="net")
    offered = Completion(Stopped(model=model))
    assert offered.candidates("b layer:h", "layer:h") == ["layer:head"]
    assert offered.candidates("watch grad:net/head/k", "grad:net/head/k") == ["grad:net/head/kernel"]


def test_completion_and_toolbar_at_a_real_stop(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @tf.function(jit_compile=True)
    def f(x: Any) -> Any:
        y = tf.sqrt(x)
        tfdb.set_trace()
        return y

    found: dict[str, Any] = {}

    def note(debugger: Any, arg: str) -> None:
        found["nodes"] = Completion(debugger).candidates("ni Sq", "Sq")
        found["types"] = Completion(debugger).candidates("lt -t Sq", "Sq")
        found["ops"] = Completion(debugger).candidates("b op:S", "op:S")
        found["bar"] = completion.toolbar(debugger.graph_stop)

    from tfdb import prompt

    monkeypatch.setattr(prompt.PlainPdb, "do_note", note, raising=False)
    play(lambda: f(tf.constant(4.0)), "...\n(tfdb) note\n(tfdb) c")
    assert found["nodes"] == ["Sqrt"] and found["types"] == ["Sqrt"] and found["ops"] == ["op:Sqrt"]
    assert found["bar"].startswith("f · test_look.py:") and found["bar"].endswith(" · pass 1 · XLA off")


def test_the_toolbar_at_a_watchs_stop_tells_the_origin() -> None:
    place = LiveFrame("losses.py", 24, "distance", 24, (), {}, {}, (), 0, False)
    stop = GraphStop(None, [], [place], [], 0, "watch", "<watch>")
    assert completion.toolbar(stop) == "distance · losses.py:24 · stopped by a watch"


def test_the_toolbar_is_empty_in_eager_code() -> None:
    assert completion.toolbar(None) == ""
