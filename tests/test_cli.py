"""`python -m tfdb` in processes of its own: ways to start, what goes in and out, how it ends."""

import json
import os
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import processes
import pytest
from processes import ROOT

import tfdb
from transcripts import play


@dataclass(frozen=True)
class Done:
    """How a process ended, and what it printed."""

    status: int
    out: str
    err: str


def run(*arguments: Any, typed: str = "", cwd: Path = ROOT, env: dict[str, str] | None = None) -> Done:
    """Run Python with these arguments, `typed` on its standard input."""
    done = processes.run(*arguments, typed=typed, cwd=cwd, env=env)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def script(tmp_path: Path) -> Any:
    """Writes a program's text to a file; returns its path."""

    def write(text: str, name: str = "program.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


PLAIN = """
    import sys

    def main():
        print("arguments", sys.argv[1:])
        print("main", __name__, __file__.endswith("program.py"))

    main()
    sys.exit(7)
"""


def test_version_and_help() -> None:
    assert run("-m", "tfdb", "-V").out == f"tfdb {tfdb.__version__}\n"
    done = run("-m", "tfdb", "--help")
    assert done.status == 0 and "(SCRIPT | -m MODULE)" in done.out


def test_no_program_is_a_usage_error() -> None:
    done = run("-m", "tfdb")
    assert done.status == 2 and "usage" in done.err


def test_missing_script_and_missing_module(tmp_path: Path) -> None:
    missing = run("-m", "tfdb", tmp_path / "none.py")
    assert (missing.status, missing.out) == (1, "") and "does not exist" in missing.err
    module = run("-m", "tfdb", "-m", "no_such_module_here")
    assert module.status == 1 and "no module to run" in module.err and "Traceback" not in module.err


def test_it_stops_at_the_first_line_and_passes_arguments_and_status_on(script: Any) -> None:
    done = run("-m", "tfdb", script(PLAIN), "--rate", "0.1", "-c", typed="p 'here', __name__\nc\n")
    assert done.status == 7
    assert "program.py(2)<module>()\n-> import sys\n" in done.out
    assert "('here', '__main__')" in done.out
    assert "arguments ['--rate', '0.1', '-c']\nmain __main__ True" in done.out


def test_a_module_and_its_arguments(script: Any) -> None:
    path = script(PLAIN)
    done = run("-m", "tfdb", "-m", "program", "x", "--plain", typed="c\n", cwd=path.parent)
    assert done.status == 7
    assert "arguments ['x', '--plain']" in done.out


def test_commands_before_the_start(script: Any) -> None:
    done = run("-m", "tfdb", "--plain", "-c", "b main", "-c", "c", "-c", "p 'in', __name__", script(PLAIN), typed="c\n")
    assert done.status == 7
    assert "Breakpoint 1" in done.out and "program.py(5)main()" in done.out


def test_an_exit_message_goes_to_stderr(script: Any) -> None:
    done = run("-m", "tfdb", script("raise SystemExit('no data')"), typed="c\n")
    assert done.status == 1 and done.err.endswith("no data\n")


def test_quit_and_end_of_input_end_with_status_0_at_the_first_line(script: Any) -> None:
    for typed in ("q\n", ""):
        done = run("-m", "tfdb", script(PLAIN), typed=typed)
        assert (done.status, "Traceback" in done.err, "arguments" in done.out) == (0, False, False)


GRAPH = """
    import {module}
    import tensorflow as tf

    @tf.function
    def double(x):
        y = x * 2
        {stop}
        return y

    for number in (1.0, 2.0):
        print("result", float(double(tf.constant(number))))
"""


@pytest.mark.parametrize(
    ("module", "stop"),
    [
        ("sys", "breakpoint()"),
        ("pdb", "pdb.set_trace()"),
        ("ipdb", "ipdb.set_trace()"),
        ("tfdb", "tfdb.set_trace()"),
    ],
)
def test_every_debuggers_stop_works_in_traced_code(script: Any, module: str, stop: str) -> None:
    path = script(GRAPH.format(module=module, stop=stop))
    done = run("-m", "tfdb", path, typed="c\np 'y is', float(y)\nc\np 'y is', float(y)\nc\n")
    assert done.status == 0, done.err
    assert re.findall(r"\('y is', (\S+)\)", done.out) == ["2.0", "4.0"]
    assert re.findall(r"result (\S+)", done.out) == ["2.0", "4.0"]
    assert f"program.py(8)double()\n-> {stop}" in done.out


def test_breakpoint_hook_by_environment(script: Any) -> None:
    path = script(GRAPH.format(module="sys", stop="breakpoint()"))
    done = run(path, typed="p 'y is', float(y)\nc\nc\n", env={"PYTHONBREAKPOINT": "tfdb.set_trace"})
    assert done.status == 0, done.err
    assert "('y is', 2.0)" in done.out


PLACES = {
    "function": """
        @tf.function
        def f(x):
            tfdb.set_trace()
            return x
        f(tf.constant(1.0))
    """,
    "nested": """
        @tf.function
        def g(x):
            tfdb.set_trace()
            return x
        @tf.function
        def f(x):
            return g(x) + 1
        f(tf.constant(1.0))
    """,
    "branch in a loop": """
        @tf.function
        def f(x):
            for n in tf.range(3):
                if n > 0:
                    tfdb.set_trace()
                    x += 1.0
            return x
        f(tf.constant(1.0))
    """,
    "xla": """
        @tf.function(jit_compile=True)
        def f(x):
            tfdb.set_trace()
            return x
        f(tf.constant(1.0))
    """,
    "dataset": """
        def f(x):
            tfdb.set_trace()
            return x
        for each in tf.data.Dataset.range(100).map(f):
            pass
    """,
    "parallel dataset": """
        def f(x):
            tfdb.set_trace()
            return x
        for each in tf.data.Dataset.range(100).map(f, num_parallel_calls=4).prefetch(2):
            pass
    """,
    "generator": """
        def numbers():
            for n in range(100):
                tfdb.set_trace()
                yield n
        for each in tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.int32)):
            pass
    """,
    "map_fn": """
        def f(x):
            tfdb.set_trace()
            return x
        tf.function(lambda: tf.map_fn(f, tf.range(100)))()
    """,
    "gradient": """
        @tf.custom_gradient
        def f(x):
            def grad(g):
                tfdb.set_trace()
                return g
            return x, grad
        @tf.function
        def slope(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return tape.gradient(y, x)
        slope(tf.constant(1.0))
    """,
    "fit": """
        import keras
        class Look(keras.layers.Layer):
            def call(self, x):
                tfdb.set_trace()
                return x * 2
        model = keras.Sequential([keras.Input([1]), Look(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(tf.zeros([64, 1]), tf.zeros([64, 1]), batch_size=2, verbose=0)
    """,
    "eager": """
        for n in range(100):
            x = tf.constant(n)
            tfdb.set_trace()
            n = int(x)
    """,
    "thread": """
        import threading
        @tf.function
        def f(x):
            tfdb.set_trace()
            return x
        def work():
            f(tf.constant(1.0))
            print("reached the end")
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """,
}


def place_script(script: Any, place: str) -> Path:
    text = textwrap.dedent(PLACES[place]).strip()
    return script(f"import tfdb\nimport tensorflow as tf\n{text}\nprint('reached the end')\n")


@pytest.mark.parametrize(
    ("place", "typed"),
    [("function", "q"), ("function", ""), ("parallel dataset", "q"), ("generator", "q"), ("fit", "q"), ("thread", "q")],
)
def test_quitting_is_prompt_and_clean(script: Any, place: str, typed: str) -> None:
    done = run("-m", "tfdb", place_script(script, place), typed="c\n" + typed)
    assert ("(tfdb)" in done.out, done.status, "reached the end" in done.out) == (True, 0, False)
    assert "Graph execution error" not in done.err + done.out
    assert "Traceback" not in done.err, done.err


@pytest.mark.parametrize(("place", "typed"), [("function", "q"), ("function", ""), ("dataset", "q"), ("eager", "")])
def test_quitting_without_the_command_line(script: Any, place: str, typed: str) -> None:
    done = run(place_script(script, place), typed=typed)
    assert (done.status, "reached the end" in done.out) == (1, False)
    assert "Graph execution error" not in done.err + done.out
    assert "Traceback" not in done.err, done.err


@pytest.mark.parametrize("typed", ["q", "<end>"])
@pytest.mark.parametrize("place", [place for place in PLACES if place != "thread"])
def test_quitting_raises_one_clean_exception_in_the_program(tf: Any, script: Any, place: str, typed: str) -> None:
    path = place_script(script, place)
    code = compile(path.read_text(), str(path), "exec")
    output = play(lambda: exec(code, {"__name__": "place"}), f"...\n(tfdb) {typed}\n...Quit: 1\n")
    assert "reached the end" not in output


def test_users_finally_and_except_blocks_see_the_quit(script: Any) -> None:
    path = script("""
        import tfdb
        import tensorflow as tf

        @tf.function
        def f(x):
            tfdb.set_trace()
            return x

        try:
            f(tf.constant(1.0))
        except Exception as error:
            print("swallowed", type(error))
        finally:
            print("cleaned up")
        print("reached the end")
    """)
    done = run("-m", "tfdb", path, typed="c\nq\n")
    assert (done.status, "cleaned up" in done.out, "swallowed" in done.out, "reached" in done.out) == (
        0,
        True,
        False,
        False,
    )


@pytest.mark.parametrize("way", [["-m", "tfdb"], []])
def test_one_inter_op_thread(script: Any, way: list[str]) -> None:
    path = script("""
        import tfdb
        import tensorflow as tf
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.threading.set_intra_op_parallelism_threads(1)

        @tf.function
        def helper(x):
            total = x
            for n in tf.range(3):
                total += 1.0
            return total

        @tf.function
        def f(x):
            y = helper(x)
            tfdb.set_trace()
            return y

        print("results", float(f(tf.constant(1.0))), float(f(tf.constant(2.0))))
    """)
    typed = "p 'y', float(y), float(helper(y)), float(tf.reduce_sum(y + tf.ones([3])))\nc\n"
    done = run(*way, path, typed=("c\n" if way else "") + typed * 2)
    assert done.status == 0, done.err
    assert "('y', 4.0, 7.0, 15.0)" in done.out and "('y', 5.0, 8.0, 18.0)" in done.out
    assert "results 4.0 5.0" in done.out


def test_two_replicas_each_stop(script: Any) -> None:
    path = script("""
        import tfdb
        import tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            weight = tf.Variable(1.0)

        @tf.function
        def step(batch):
            def replica(x):
                y = tf.reduce_sum(x) * weight
                tfdb.set_trace()
                return y
            return strategy.reduce("sum", strategy.run(replica, args=(batch,)), axis=None)

        data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(8, output_type=tf.float32).batch(4))
        print("results", [float(step(batch)) for batch in data])
    """)
    done = run("-m", "tfdb", path, typed="c\n" + "p 'y', float(y)\nc\n" * 4)
    assert done.status == 0, done.err
    assert sorted(re.findall(r"\('y', (\S+)\)", done.out)) == ["1.0", "13.0", "5.0", "9.0"]
    assert "results [6.0, 22.0]" in done.out
    quitting = run("-m", "tfdb", path, typed="c\nq\n")
    assert (quitting.status, "Traceback" in quitting.err, "Graph execution" in quitting.err) == (0, False, False)


def test_spawned_workers_start_as_without_the_debugger(script: Any) -> None:
    path = script("""
        import multiprocessing

        def square(number):
            return number * number

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                print("squares", pool.map(square, range(4)))
    """)
    done = run("-m", "tfdb", path, typed="c\n")
    assert (done.status, "squares [0, 1, 4, 9]" in done.out) == (0, True), done.err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_worker_without_a_terminal_goes_on_with_a_notice(script: Any) -> None:
    path = script("""
        import multiprocessing
        import tfdb

        def work(number):
            tfdb.set_trace()
            return number * number

        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(1) as pool:
                print("squares", pool.map(work, range(2)))
    """)
    done = run("-m", "tfdb", path, typed="c\n")
    assert (done.status, "squares [0, 1]" in done.out) == (0, True), done.err
    assert "no terminal for the stop at" in done.err and "going on" in done.err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers get their environment in another way here")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_breakpoint_in_a_worker_that_starts_anew_goes_on_with_one_notice(script: Any, method: str) -> None:
    path = script(f"""
        import multiprocessing
        import os

        def work(number):
            breakpoint()
            return number * number

        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print("squares", pool.map(work, range(3)), os.environ.get("PYTHONBREAKPOINT"))
    """)
    done = run("-m", "tfdb", path, typed="c\n")
    assert (done.status, "squares [0, 1, 4] None" in done.out) == (0, True), done.err
    assert done.err.count("no terminal for the stop at") == 1


def test_a_worker_without_a_terminal_goes_on_in_graphs_too(script: Any) -> None:
    path = script("""
        import multiprocessing

        def work(number):
            import tensorflow as tf

            @tf.function
            def double(x):
                y = x * 2
                breakpoint()
                return y

            return [int(double(tf.constant(n))) for n in (number, 5)]

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print("doubles", pool.map(work, [4]))
    """)
    done = run("-m", "tfdb", path, typed="c\n")
    assert (done.status, "doubles [[8, 10]]" in done.out) == (0, True), done.err


def test_importing_tfdb_imports_neither_tensorflow_nor_ipython() -> None:
    code = "import tfdb, sys; print([name for name in ('tensorflow', 'IPython', 'numpy') if name in sys.modules])"
    assert run("-c", code).out == "[]\n"


def test_an_uncaught_error_ends_with_status_1(script: Any) -> None:
    done = run("-m", "tfdb", script("x = 1\nraise ValueError('bad batch')"), typed="c\np 'x is', x\nq\n")
    assert done.status == 1
    assert "bad batch" in done.out + done.err and "('x is', 1)" in done.out


FAILING = """
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None])])
    def add(a, b):
        total = a + b
        return total

    print(add(tf.ones([2]), tf.ones([2])).numpy())
    print(add(tf.ones([2]), tf.ones([3])).numpy())
"""


def test_an_uncaught_error_is_reported_where_nobody_can_be_asked(script: Any, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = run("-m", "tfdb", "--no-prompt", "--report", report, script(FAILING))
    assert done.status == 1
    assert "Incompatible shapes" in done.out and "Traceback" in done.err
    written = json.loads(report.read_text())
    assert (written["reason"], written["line"], written["function"], written["op"]) == ("exception", 6, "add", "AddV2")
    assert "[2] and [3]" in written["cause"]


def test_a_breakpoint_on_an_op_set_at_a_graph_stop_ends_cleanly(script: Any) -> None:
    typed = "b 6\nc\nb op:AddV2\nc\nc\np inputs\nq\n"
    done = run("-m", "tfdb", script(FAILING.replace("tf.ones([3])", "tf.ones([2])")), typed=typed)
    assert done.status == 0, done.err
    assert "after op:AddV2" in done.out and "Traceback" not in done.err


def test_without_a_prompt_an_error_is_told_by_the_users_frames_and_the_screen(tmp_path: Path) -> None:
    path = tmp_path / "step.py"
    path.write_text(
        "import tensorflow as tf\n\n@tf.function\ndef step(z):\n    return tf.gather(z, [5])\n\nstep(tf.ones((2, 3)))\n"
    )
    done = run("-m", "tfdb", "--no-prompt", path)
    assert done.status == 1
    told = done.err[done.err.index("Traceback") :].splitlines()
    told = [line for line in told if line.strip("~^ ")]  # Python 3.13 marks the whole call
    assert told == [
        "Traceback (most recent call last):",
        f'  File "{path}", line 7, in <module>',
        "    step(tf.ones((2, 3)))",
    ]
    assert "indices[0] is 5" in done.out and "step.py:5 step()" in done.out
    assert "Detected at node" not in done.out and "`full`" not in done.out
