"""Errors of a dataset that Python iterates -> the line that made the failing stage, and the elements it was given."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from wrecks import examined, text_of

from tfdb.kept import Keeper


def uneven() -> Any:
    return tf.data.Dataset.range(4).map(lambda i: (i, tf.ones([i % 3 + 1])))


def parsed() -> Any:
    return tf.data.Dataset.from_tensor_slices(["1,2", "3,x"]).map(lambda line: tf.io.decode_csv(line, [[0.0], [0.0]]))


def batched() -> Any:
    data = uneven()
    data = data.batch(2)
    return data.prefetch(1)


def padded() -> Any:
    return uneven().padded_batch(2, padded_shapes=([], [1]))


def files(missing: str) -> Any:
    records = tf.data.TFRecordDataset([missing])
    return records.map(lambda record: record).batch(2)


@pytest.mark.parametrize(
    ("make", "stage", "values"),
    [
        (batched, "data = data.batch(2)", ["element 0[1]  float32(1,)", "element 1[1]  float32(2,)"]),
        (padded, "return uneven().padded_batch(2, padded_shapes=([], [1]))", ["element 1[1]  float32(2,)"]),
        (parsed, "return tf.data.Dataset.from_tensor_slices(", ["'3,x'"]),
    ],
)
def test_the_line_that_made_the_failing_stage_is_named(
    keeper: Keeper, make: Callable[[], Any], stage: str, values: list[str]
) -> None:
    text = text_of(examined(lambda: list(make()), keeper))
    (line,) = [line for line in text.splitlines() if "fails in element" in line]
    assert "made at test_stages.py:" in line and stage in line
    assert all(value in text for value in values), text


def test_a_source_too(keeper: Keeper, tmp_path: Path) -> None:
    text = text_of(examined(lambda: list(files(str(tmp_path / "none"))), keeper))
    assert "fails in element 0 of a TFRecordDatasetV2" in text
    assert "records = tf.data.TFRecordDataset([missing])" in text


def test_data_from_python_is_not_read_again(keeper: Keeper) -> None:
    passes = []

    def numbers() -> Iterator[list[int]]:
        passes.append(1)
        yield [1]
        yield [1, 2]

    data = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([None], tf.int32)).batch(2)
    text = text_of(examined(lambda: list(data), keeper))
    assert "fails in element" not in text
    assert len(passes) == 1


def test_an_error_after_the_data_is_not_looked_for_in_it(keeper: Keeper) -> None:
    text = text_of(examined(lambda: [tf.gather([1], n + 5) for n in tf.data.Dataset.range(2)], keeper))
    assert "fails in element" not in text
