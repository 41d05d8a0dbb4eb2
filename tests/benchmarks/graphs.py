"""A training step of 2,000 ops and more -> a table: how long `lt`, `ni`, `li`, `ps` and `graph` take at a stop in it.

Run `python tests/benchmarks/graphs.py [LAYERS]`. The stop is real (set_trace() in a tf.function); each command runs
once fresh (graph and values read anew) and once again. Goals: `lt` and `ni` under a second, `graph` under two.
"""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import tensorflow as tf

import tfdb
from tfdb import executions, prompt, session

COMMANDS = ("lt", "ni Mean", "li Mean -d 8", "lo x -d 4", "ps", "graph", "lt -f nan", "lt -a")


def step_of(layers: int) -> Any:
    """A training step of a deep network, as a tf.function with a stop after the gradient."""
    weights = [tf.Variable(tf.random.normal([64, 64]) / 8.0) for _ in range(layers)]
    momenta = [tf.Variable(tf.zeros([64, 64])) for _ in range(layers)]

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            h = x
            for weight in weights:
                h = h + tf.nn.tanh(tf.matmul(h, weight)) * 0.1
            loss = tf.reduce_mean(tf.square(h - y))
        gradients = tape.gradient(loss, weights)
        tfdb.set_trace()
        for weight, momentum, gradient in zip(weights, momenta, gradients, strict=True):
            momentum.assign(0.9 * momentum + gradient)
            weight.assign_sub(0.01 * momentum)
        return loss

    return train_step


class Timed(prompt.PlainPdb):
    """A debugger that times commands at its first stop and then goes on."""

    times: dict[str, tuple[float, float]]
    ops: int = 0

    def cmdloop(self, intro: Any = None) -> None:
        """The commands, each twice."""
        if not self.times:
            graph = self.execution().place.evaluation.graph
            self.ops = len(graph.get_operations())
            for command in COMMANDS:
                self.execution_of = None
                executions.forget()
                self.times[command] = (self.seconds(command), self.seconds(command))
        self.onecmd("c")

    def seconds(self, command: str) -> float:
        """The wall time of one command."""
        start = time.perf_counter()
        self.onecmd(command)
        return time.perf_counter() - start


def main() -> None:
    """Prints the table."""
    step = step_of(int(sys.argv[1]) if len(sys.argv) > 1 else 110)
    debugger = Timed(stdin=io.StringIO(), stdout=io.StringIO(), nosigint=True, readrc=False)
    debugger.use_rawinput = False
    debugger.times = {}
    debugger.start_running()
    with session.using(debugger):
        step(tf.random.normal([32, 64]), tf.random.normal([32, 64]))
    sys.stdout.write(f"a graph of {debugger.ops} ops\n{'command':<14}{'fresh':>10}{'again':>10}\n")
    for command, (fresh, again) in debugger.times.items():
        sys.stdout.write(f"{command:<14}{fresh * 1e3:>8.0f}ms{again * 1e3:>8.0f}ms\n")


if __name__ == "__main__":
    main()
