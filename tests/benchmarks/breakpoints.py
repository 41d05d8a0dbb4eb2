"""What breakpoints cost, each beside what it is compared with, interleaved in one run.

    python tests/benchmarks/breakpoints.py [ROUNDS]

1. Time to the end of the first training step, one breakpoint set before `import tensorflow` (and never reached):
   plain Python, `python -m tfdb`, `python -m pdb`; on the clock, and in seconds of the processor, which other
   programs on the machine disturb less. Compiled modules are kept between the runs, as they usually are.
2. A planted line whose condition is false: microseconds a pass.
3. A step without planted lines, while a breakpoint is set elsewhere: ratio to the same step without a debugger.
"""

import io
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import tensorflow as tf

def never():
    return None

model = tf.keras.Sequential([tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(tf.zeros((32, 8)), tf.zeros((32, 1)), batch_size=32, verbose=0)
print("done")
"""


def first_step(arguments: Sequence[str], typed: str, compiled: str) -> tuple[float, float]:
    """Seconds that a program takes as a process of its own: on the clock, of the processor."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        began, used = time.perf_counter(), processor_seconds()
        done = subprocess.run(
            [sys.executable, *arguments, str(program)], input=typed, capture_output=True, text=True,
            env={**environment, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": compiled},
        )  # fmt: skip
        taken = time.perf_counter() - began, processor_seconds() - used
    assert "done" in done.stdout, done.stdout + done.stderr
    return taken


def starts(rounds: int) -> None:
    """Table 1."""
    ways = {
        "plain": ((), ""),
        "python -m tfdb": (("-m", "tfdb"), "b never\nc\nq\n"),
        "python -m pdb": (("-m", "pdb"), "b never\nb 5\nc\nq\n"),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as compiled:
        for number in range(rounds + 1):
            for name, (arguments, typed) in ways.items():
                one = first_step(arguments, typed, compiled)
                if number:  # the first round compiles
                    taken[name].append(one)
    print(f"\n1. to the first step, one breakpoint set before the import  (Python {sys.version.split()[0]})")
    print(f"   {rounds} rounds        clock: min   median   ratio    processor: min   median   ratio")
    for name, times in taken.items():
        shown = ""
        for which in (0, 1):
            mine, plain = ([each[which] for each in some] for some in (times, taken["plain"]))
            median = statistics.median(mine)
            shown += f"   {min(mine):7.2f} s {median:7.2f} s {median / statistics.median(plain):5.2f}x"
        print(f"   {name:16}{shown}")


def processor_seconds() -> float:
    """What the processes that have ended have used of the processor, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(call: Callable[[], Any], passes: int) -> float:
    """Seconds a call takes: the fastest tenth of so many, for other processes only add to it."""
    taken = []
    for _ in range(passes):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.quantiles(taken, n=10)[0]


def functions() -> tuple[Any, Any, Any]:
    """Two small functions of the same work, and a training step."""
    import tensorflow as tf

    x, weight = tf.random.normal([64, 64]), tf.Variable(tf.random.normal([512, 512]))
    batch = tf.random.normal([512, 512])

    @tf.function
    def planted() -> Any:
        y = x + 1.0
        return y

    @tf.function
    def twin_of_it() -> Any:
        y = x + 1.0
        return y

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(batch @ weight))
        weight.assign_sub(1e-6 * tape.gradient(loss, weight))
        return loss

    return planted, twin_of_it, step


def passes_and_steps(rounds: int) -> None:
    """Tables 2 and 3: plain and debugged calls in turn, in one process, traced by bdb as under `python -m tfdb`."""
    from tfdb import prompt, session

    planted, plain, step = functions()
    line = planted.python_function.__code__.co_firstlineno + 2
    for function in (planted, plain, step):
        function()
    costs, ratios = [], []
    for _ in range(rounds):
        before, bare = timed(step, 200), timed(plain, 1000)
        debugger = prompt.plain_debugger(io.StringIO(), io.StringIO())
        with session.using(debugger) as now:
            assert debugger.set_break(__file__, line, cond="x is None") is None
            sys.settrace(debugger.trace_dispatch)
            planted(), step()
            costs.append((timed(planted, 1000) - bare) / len(now.planter.hooks))
            ratios.append(timed(step, 200) / before)
            debugger.clear_all_breaks()
    print(f"\n2. a planted line whose condition is false  {statistics.median(costs) * 1e6:6.1f} us a pass")
    print(f"3. a step without planted lines, a breakpoint elsewhere  {statistics.median(ratios):6.3f}x")


def main() -> None:
    """Print the three tables."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    starts(rounds)
    sys.path.insert(0, str(ROOT))
    passes_and_steps(max(rounds, 5))


if __name__ == "__main__":
    main()
