"""Test that readers of committed records see exactly the committed records, from any offset.

Random transactions of several producers overlap in one partition. A reader leaves out the aborted
records as Kafka's clients do: by the list in the answer, and the markers among the batches.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker import Broker
from logstore.format import layouts
from logstore.format.batch_parts import BatchHeader
from logstore.log.read import aborted_index, file_range
from support.kafka_client import KafkaClient, batch_of
from support.transaction_requests import SMALL, RawProducer

PRODUCERS, STEPS = 4, 80
ABORT_KEY = b"\x00\x00\x00\x00"


def batches_of(records: Any) -> Iterator[tuple[BatchHeader, list[bytes], list[bytes]]]:
    """Decode the batches of an answer, also the markers: the header, the keys, the values."""
    data = bytes(records or b"")
    while data:
        header = layouts.read_header(data, 0)
        batch = layouts.kafka_layout().decode_all(data, 0, header)
        yield header, batch.keys.to_list(), batch.values.to_list()
        data = data[header.size_bytes :]


def committed_of(row: Any, offset: int) -> tuple[list[bytes], int]:
    """Return the committed values of an answer, and the next offset, as a client computes them."""
    waiting = [(one.first_offset, one.producer_id) for one in row.aborted_transactions]
    heapq.heapify(waiting)
    aborted: set[int] = set()
    values: list[bytes] = []
    for header, keys, found in batches_of(row.records):
        while waiting and waiting[0][0] <= header.last_offset:
            aborted.add(heapq.heappop(waiting)[1])
        if header.attributes & 0x20:
            if keys == [ABORT_KEY]:
                aborted.discard(header.producer_id)
        elif not (header.attributes & 0x10 and header.producer_id in aborted):
            skipped = max(0, offset - header.base_offset)
            values += found[skipped:]
        offset = header.last_offset + 1
    return values, offset


def read(client: KafkaClient, offset: int, max_bytes: int) -> list[bytes]:
    """Read on from an offset until there is nothing more."""
    values: list[bytes] = []
    while True:
        row = client.fetch("mixed", offset, isolation_level=1, partition_max_bytes=max_bytes)
        assert row.last_stable_offset <= row.high_watermark
        if not row.records:
            assert offset == row.last_stable_offset
            return values
        found, offset = committed_of(row, offset)
        assert offset <= row.last_stable_offset, "a reader went beyond the last stable offset"
        values += found


def test_committed_records_from_every_offset() -> None:
    """The result is the same for answers with one batch, with some batches and with all."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with Broker.start(config=SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create("mixed")
        producers = [RawProducer(client, f"mixed-{one}").begin() for one in range(PRODUCERS)]
        open_rows: list[list[tuple[int, bytes]] | None] = [None] * PRODUCERS
        kept: list[tuple[int, bytes]] = []  # offset and value of what was committed
        end = 0
        for step in range(STEPS):
            number = rng.randrange(PRODUCERS)
            producer, rows = producers[number], open_rows[number]
            if rng.random() < 0.15:
                client.produce("mixed", batch_of(b"plain-%d" % step))
                kept.append((end, b"plain-%d" % step))
                end += 1
            elif rows is None or rng.random() < 0.6:
                if rows is None:
                    rows = open_rows[number] = []
                    assert producer.again(lambda one=producer: one.add(("mixed", 0))) == 0
                values = [b"%d-%d-%d" % (number, step, one) for one in range(rng.randint(1, 3))]
                assert producer.produce("mixed", *values) == 0
                rows += [(end + one, value) for one, value in enumerate(values)]
                end += len(values)
            else:
                is_commit = rng.random() < 0.5
                producer.finish(commit=is_commit)
                kept += rows if is_commit else []
                open_rows[number] = None
                end += 1
        stable = min([rows[0][0] for rows in open_rows if rows], default=end)
        kept = sorted(row for row in kept if row[0] < stable)
        for offset in range(stable + 1):
            expected = [value for at, value in kept if at >= offset]
            for max_bytes in {0: (1, 300, 1 << 20)}.get(offset, (rng.choice((400, 1 << 20)),)):
                assert read(client, offset, max_bytes) == expected, (seed, offset, max_bytes)


def test_aborted_records_are_not_read_while_their_segment_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The segment is removed between the read of its records and the search for aborted ones."""
    with Broker.start(config=SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create("gone", segment_bytes="1000", segment_ms="3600000")
        producer = RawProducer(client, "gone").begin()
        assert producer.send("gone", b"aborted") == 0
        assert producer.end_raising(commit=False) == 0
        producer.wait_for("CompleteAbort")
        for _ in range(4):
            row = client.produce("gone", batch_of(b"x" * 400))
            assert row.error_code == 0
        real, changes = file_range.read_range, [broker.store.log("gone", 0).delete_records_before]

        def raced(*args: Any) -> Any:
            found = real(*args)
            if changes:
                changes.pop()(4)
            return found

        monkeypatch.setattr(file_range, "read_range", raced)
        monkeypatch.setattr(aborted_index, "read_range", raced)

        row = client.fetch("gone", 0, isolation_level=1, partition_max_bytes=100)
        assert not changes
        assert row.error_code == 1 or b"aborted" not in committed_of(row, 0)[0]
