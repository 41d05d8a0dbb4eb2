"""Every example runs as it is, shows its fault, and the stop that its docstring describes reveals the cause."""

import functools
import re

import processes
import pytest
from processes import ROOT

# Where each example's docstring says to stop.
STOPS = {
    "regression.py": "return tf.reduce_mean(tf.square(errors))",
    "keras_fit.py": "return tf.reduce_mean(losses)",
    "pipeline.py": "image = tf.cast(image, tf.float32) / 255.0",
    "exploding_rnn.py": "state = self.cell(value, state)",
}


def line_of(example: str, code: str) -> int:
    """The number of the one line of the example that reads `code`."""
    lines = (ROOT / "examples" / example).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.strip() == code]
    return number


def run(*arguments: str, typed: str = "") -> str:
    """What the command prints on its standard output; it must end with status 0."""
    done = processes.run(*arguments, typed=typed)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout


@functools.cache
def plain_output(example: str) -> str:
    return run(f"examples/{example}")


def debugged_output(example: str, *typed: str, condition: str = "") -> str:
    """Output of a run that stops at the example's line, does what is typed, and goes on without the breakpoint.

    Also proves that the program printed the same, to the last digit, as it does without the debugger.
    """
    stop = f"b examples/{example}:{line_of(example, STOPS[example])}{condition}"
    output = run("-m", "tfdb", f"examples/{example}", typed="\n".join([stop, "c", *typed, "cl 1", "c", ""]))
    assert "Breakpoint 1 at" in output
    for line in plain_output(example).splitlines():
        assert line in output, f"not printed under the debugger: {line}\n{output}"
    return output


def losses(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss (\S+)", output)]


def test_every_example_is_tested() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {*STOPS, "set_trace.py"}


@pytest.mark.parametrize("example", STOPS)
def test_the_docstring_names_the_line_to_stop_at(example: str) -> None:
    text = (ROOT / "examples" / example).read_text()
    assert re.findall(rf"b examples/{example}:(\d+)", text) == [str(line_of(example, STOPS[example]))]
    assert "set_trace" not in text and "breakpoint(" not in text


def test_regression_does_not_fit_its_line() -> None:
    output = plain_output("regression.py")
    assert losses(output)[-1] > 2.0
    assert "expected y = 3 x - 1" in output


def test_keras_fit_stays_above_the_loss_it_should_reach() -> None:
    assert losses(plain_output("keras_fit.py"))[-1] > 0.5


def test_pipeline_stays_near_chance() -> None:
    accuracies = re.findall(r"accuracy (\S+)", plain_output("pipeline.py"))
    assert float(accuracies[-1]) < 0.75


def test_exploding_rnn_ends_in_nan() -> None:
    numbers = losses(plain_output("exploding_rnn.py"))
    assert numbers[0] < 1000.0
    assert numbers[-1] != numbers[-1]


def test_the_stop_in_regression_shows_errors_of_every_pair() -> None:
    output = debugged_output("regression.py", "p ('shapes', *(tuple(x.shape) for x in (predictions, targets, errors)))")
    assert "('shapes', (64, 1), (64,), (64, 64))" in output


def test_the_stop_in_keras_fit_shows_scores_that_are_probabilities_already() -> None:
    output = debugged_output("keras_fit.py", "p 'rows', scores.numpy().sum(axis=1).round(3).tolist()")
    assert f"('rows', {[1.0] * 32})" in output


def test_the_stop_in_the_pipeline_shows_an_image_that_is_scaled_already() -> None:
    output = debugged_output("pipeline.py", "p 'bright', float(tf.reduce_max(image)) <= 1.0, image.dtype.name")
    assert "('bright', True, 'float32')" in output


def test_the_conditional_stop_in_exploding_rnn_is_where_the_state_has_grown() -> None:
    output = debugged_output(
        "exploding_rnn.py", "p 'norm', float(tf.norm(state)), 'at', int(step)", condition=", tf.norm(state) > 1e4"
    )
    (found,) = re.findall(r"\('norm', (\S+), 'at', (\d+)\)", output)
    assert float(found[0]) > 1e4
    assert 0 < int(found[1]) < 20


def test_set_trace_stops_at_each_pass_with_that_passs_values() -> None:
    typed = ["p 'first', mean.numpy().ravel().tolist()", "c", "p 'second', deviation.numpy().ravel().tolist()", "c", ""]
    output = run("examples/set_trace.py", typed="\n".join(typed))
    assert "('first', [2.0, 5.0])" in output
    assert re.search(r"\('second', \[2\.16\d*, 0\.0\]\)", output)
    assert "[[-1.22, 0.0, 1.22], [-1.02, -0.34, 1.36]]" in output
    assert "[nan, nan, nan]" in output
