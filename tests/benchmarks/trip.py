"""How long `watch nan` takes from the trip of its gate to the prompt, beside an eager step of the same model.

    python tests/benchmarks/trip.py [--rounds N] [--models mlp,cnn]

A NaN in one element of a batch makes the gate trip in a compiled step; measured is the search for its origin, which is
all that stands between the trip and the prompt.  The goal is the time of three eager steps.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from watch import MODELS  # noqa: E402

from tfdb import conditions, doors, replay  # noqa: E402


def batches(shape, batch, bad):
    """Endless batches; in bad ones the first element is NaN."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(batch, *shape)).astype("float32")
    y = generator.normal(size=(batch, 1)).astype("float32")
    if bad:
        x.flat[0] = np.nan
    return iter(tf.data.Dataset.from_tensors((x, y)).repeat())


def measure(name, rounds):
    """Seconds of eager steps and of searches for an origin: of each the first, and the median of the others."""
    keras.utils.set_random_seed(7)
    model, shape, batch = MODELS[name]()
    model.compile("adam", "mse", metrics=["mae"], run_eagerly=True)
    model.make_train_function()
    step, good, bad = model.train_function, batches(shape, batch, False), batches(shape, batch, True)
    eager = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        step(good)
        eager.append(time.perf_counter() - begin)
    searches, found = [], []

    def tripped(trip):
        begin = time.perf_counter()
        found.append(replay.find_origin(trip))
        searches.append(time.perf_counter() - begin)

    doors.install([conditions.parse("nan")], tripped)
    try:
        model.compile("adam", "mse", metrics=["mae"])
        model.make_train_function()
        step = model.train_function
        weights = model.get_weights()
        for _ in range(rounds + 1):
            step(good)
            step(bad)
            model.set_weights(weights)
    finally:
        doors.uninstall()
    assert found and found[0].report is not None
    return eager[0], statistics.median(eager[1:]), searches[0], statistics.median(searches[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", default=",".join(MODELS))
    options = parser.parse_args()
    print("model          eager step: first   later      trip: first   later     in eager steps: first   later")
    for name in options.models.split(","):
        first_eager, eager, first, later = measure(name, options.rounds)
        times = f"{first_eager * 1e3:16.0f} {eager * 1e3:7.0f} {first * 1e3:16.0f} {later * 1e3:7.0f} ms"
        print(f"{name:12} {times} {first / first_eager:21.1f} {later / eager:7.1f}")


if __name__ == "__main__":
    main()
