"""How batches are put together for a trip to the JVM; no Spark is started for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from logstore.format.batch import RecordBatch
from logstore.format.kafka import record_batch as kafka
from logstore.spark.read.columns import BYTES_MIN, ArrowColumns

CELL = bytes(BYTES_MIN // 2)


def batches(count: int, given: dict[str, Any]) -> Iterator[RecordBatch]:
    """Give batches of one large record each, stored in a few KiB."""
    payload = kafka.build_payload(
        [given.get("value")], [given.get("key")], 5, given.get("headers"), codec_id=4
    )
    assert payload.size_bytes < 64 * 1024
    for number in range(count):
        data = b"".join(kafka.frame(payload, number, 0))
        yield kafka.decode(data, 0)


@pytest.mark.parametrize(
    "given", [{"value": CELL}, {"key": CELL}, {"headers": [(("name", CELL),)]}]
)
def test_regression_compressed_batches_count_as_what_they_were_restored_to(
    given: dict[str, Any],
) -> None:
    """Kafka's do not say how much that is: thousands of them came to more than Arrow can hold."""
    taken = 0

    def counted() -> Iterator[RecordBatch]:
        nonlocal taken
        for batch in batches(12, given):
            taken += 1
            yield batch

    found = ArrowColumns("t", 0, ("key", "value", "headers")).stream(counted())
    for number, batch in enumerate(found, 1):
        assert (batch.num_rows, taken) == (2, 2 * number)
    assert taken == 12


def test_regression_a_time_that_spark_has_not_names_its_record() -> None:
    """Arrow's error named neither the record nor a way to read the others."""
    payload = kafka.build_payload([b"v", b"w"], None, np.array([5, 2**62]), None)
    batch = kafka.decode(b"".join(kafka.frame(payload, 7, 0)), 0)
    with pytest.raises(ValueError, match=r"record 8 of t-3 has the timestamp 46116\d+ ms"):
        list(ArrowColumns("t", 3, ("value", "timestamp")).stream([batch]))
    (found,) = ArrowColumns("t", 3, ("value", "offset")).stream([batch])
    assert found.column("offset").to_pylist() == [7, 8]
