"""What `watch nan` costs, beside TensorFlow's own checks: step time, tracing time and peak memory, as ratios to plain.

    python tests/benchmarks/watch.py [--rounds N] [--models mlp,cnn] [--modes plain,gate] [--json FILE]

Every mode trains its own copy of the same model on the same batches.  The modes take turns, a few steps at a time, in
one process, so that whatever else the machine does falls on all of them; the ratio is the median of those of rounds.
tfdb's modes stand at all the doors that `python -m tfdb -w` stands at, those of breakpoints among them.
Tracing time and memory come from one fresh process a mode.  "same" says whether the weights after all the rounds are
bit for bit those of the plain run.
"""

import argparse
import io
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[2]))

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfdb import conditions, doors, prompt, session, thresholds  # noqa: E402
from tfdb.normgate import norms  # noqa: E402

MODES = ("plain", "gate", "grad", "update", "check_numerics", "curt_health", "eager")
LIMITS = {"grad": "grad > 1e30", "update": "update > 1e30"}
STEPS = {"tiny": 60, "mlp": 12, "cnn": 6, "transformer": 4}  # a turn takes some tens of milliseconds


def tiny():
    return keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)]), (16,), 32


def mlp():
    layers = [keras.layers.Dense(512, "relu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)] * 1
    layers += [keras.layers.Dense(512, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((256,)), *layers]), (256,), 256


def cnn():
    layers = []
    for filters in (16, 32):
        layers += [
            keras.layers.Conv2D(filters, 3, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(),
        ]
    layers += [keras.layers.Flatten(), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((32, 32, 3)), *layers]), (32, 32, 3), 64


def transformer():
    x = inputs = keras.Input((32, 64))
    for _ in range(4):
        a = keras.layers.MultiHeadAttention(4, 16, dropout=0.1)(x, x)
        x = keras.layers.LayerNormalization()(x + a)
        h = keras.layers.Dense(64)(keras.layers.Dense(256, "gelu")(x))
        x = keras.layers.LayerNormalization()(x + keras.layers.Dropout(0.1)(h))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.GlobalAveragePooling1D()(x))), (32, 64), 32


MODELS = {"tiny": tiny, "mlp": mlp, "cnn": cnn, "transformer": transformer}


class Subject:
    """One model in one mode: `run(n)` trains n steps and returns the seconds of each."""

    def __init__(self, name, mode):
        keras.utils.set_random_seed(7)
        self.mode = mode
        self.model, shape, batch = MODELS[name]()
        self.model.compile("adam", "mse", metrics=["mae"], run_eagerly=mode == "eager")
        generator = np.random.default_rng(3)
        x = generator.normal(size=(batch * 8, *shape)).astype("float32")
        y = generator.normal(size=(batch * 8, 1)).astype("float32")
        self.batches = iter(tf.data.Dataset.from_tensor_slices((x, y)).batch(batch).cache().repeat())
        with watched(mode, tracing=True):
            self.model.make_train_function()
            begin = time.perf_counter()
            self.model.train_function(self.batches)
            self.first = time.perf_counter() - begin

    def run(self, count):
        with watched(self.mode):
            self.model.train_function(self.batches)  # the first call after a change of doors is slow
            begin = time.perf_counter()
            for _ in range(count):
                self.model.train_function(self.batches)
            return (time.perf_counter() - begin) / count


class watched:  # noqa: N801
    """A mode, switched on for a block; what it put into graphs while tracing stays there."""

    def __init__(self, mode, tracing=False):
        self.mode, self.tracing = mode, tracing

    def __enter__(self):
        if self.mode == "gate" or self.mode in LIMITS:
            self.session = session.using(prompt.plain_debugger(io.StringIO(), io.StringIO()))
            self.session.__enter__().arm()
        if self.mode == "gate":
            doors.install([conditions.parse("nan")], lambda trip: sys.exit(f"tripped: {trip}"))
        elif self.mode in LIMITS:
            norms.install([thresholds.parse(LIMITS[self.mode])], lambda crossing: sys.exit(f"passed: {crossing}"))
        elif self.mode == "check_numerics" and self.tracing:
            tf.debugging.enable_check_numerics()
        elif self.mode == "curt_health" and self.tracing:
            tf.debugging.experimental.enable_dump_debug_info(tempfile.mkdtemp(), "CURT_HEALTH", 1000)

    def __exit__(self, *_):
        if self.mode == "gate" or self.mode in LIMITS:
            self.session.__exit__(None, None, None)
        if self.mode == "gate":
            doors.uninstall()
        elif self.mode in LIMITS:
            norms.remove()
        elif self.mode == "check_numerics" and self.tracing:
            tf.debugging.disable_check_numerics()
        elif self.mode == "curt_health" and self.tracing:
            tf.debugging.experimental.disable_dump_debug_info()


def compare(name, modes, rounds):
    """Ratios of the step time to plain, and whether the weights are the same bits."""
    subjects = {mode: Subject(name, mode) for mode in modes}
    times = {mode: [] for mode in modes}
    for number in range(rounds + 2):
        order = list(modes) if number % 2 else list(modes)[::-1]
        for mode in order:
            seconds = subjects[mode].run(STEPS[name])
            if number >= 2:
                times[mode].append(seconds)
    plain = subjects["plain"].model.get_weights()
    rows = {}
    for mode in modes:
        same = all(np.array_equal(a, b) for a, b in zip(plain, subjects[mode].model.get_weights(), strict=True))
        ratios = [a / b for a, b in zip(times[mode], times["plain"], strict=True)]
        rows[mode] = {"ms": 1e3 * statistics.median(times[mode]), "ratio": statistics.median(ratios), "same": same}
    return rows


def fresh(name, mode):
    """(seconds to the first step, peak memory in MiB) of a new process."""
    out = subprocess.run([sys.executable, __file__, "--one", name, mode], capture_output=True, text=True, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def one(name, mode):
    """The child of `fresh`."""
    subject = Subject(name, mode)
    subject.run(STEPS[name])
    print(json.dumps([subject.first, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--no-fresh", action="store_true", help="leave out tracing time and memory")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "MODE"), help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.one:
        return one(*settings.one)
    modes, results = settings.modes.split(","), {}
    print(f"{'model':12}{'mode':16}{'ms/step':>9}{'ratio':>8}{'same':>6}{'first step s':>14}{'peak MiB':>10}")
    for name in settings.models.split(","):
        results[name] = compare(name, modes, settings.rounds)
        for mode, row in results[name].items():
            row["first"], row["peak"] = (math.nan, math.nan) if settings.no_fresh else fresh(name, mode)
            print(
                f"{name:12}{mode:16}{row['ms']:9.2f}{row['ratio']:8.3f}{row['same']!s:>6}"
                f"{row['first']:14.2f}{row['peak']:10.0f}",
                flush=True,
            )
    for mode in modes:
        mean = math.exp(statistics.fmean(math.log(rows[mode]["ratio"]) for rows in results.values()))
        print(f"{'geometric mean':28}{mode:16}{mean:8.3f}")
    if settings.json:
        settings.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
