"""Make batches of producers, fill states with them, and say what a log knows and tells of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from logstore import Log
from logstore.format import layouts, producers
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import record_batch
from logstore.format.columnar.columns import encode_cells
from logstore.format.columnar.payload import build_payload
from logstore.format.columnar.record_batch import MAGIC as COLUMNAR
from logstore.format.kafka import record_batch as kafka
from logstore.format.kafka.files import AbortedEntry
from logstore.format.kafka.header import CONTROL, TRANSACTIONAL
from logstore.format.kafka.header import MAGIC as KAFKA
from logstore.format.kafka.markers import Marker, build_marker, read_marker
from logstore.log.producers.open_transactions import Ended
from logstore.log.producers.producer_state import Producers, ProducerState
from logstore.log.producers.replay import replay
from logstore.log.producers.walk import batches_of_producers
from support.transaction_index import encode_aborted

NOW = 1_700_000_000_000


def header(
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    transactional: bool = False,
    control: bool = False,
    columnar: bool = False,
    timestamp: int = NOW - 5,
) -> BatchHeader:
    """Make the header of a batch as a client sends it: its offsets begin at 0."""
    bits = TRANSACTIONAL * transactional | CONTROL * control
    return BatchHeader(
        0, 100, 0, COLUMNAR if columnar else KAFKA, bits, count, count - 1, 39, timestamp,
        timestamp, producer_id, epoch, sequence, 39,
    )  # fmt: skip


def add(producers: Producers, *headers: BatchHeader, now_ms: int = NOW) -> int:
    """Take batches after the last one; return the offset of the first."""
    first = producers.end_offset
    for each in headers:
        producers.take(each, producers.end_offset, now_ms)
    return first


def end(
    producers: Producers,
    producer_id: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    now_ms: int = NOW,
) -> Ended | None:
    """Take a marker after the last batch."""
    marker = header(producer_id, -1, epoch=epoch, transactional=True, control=True)
    return producers.take_marker(
        marker, producers.end_offset, now_ms, Marker(commit, coordinator_epoch)
    )


def filled(count: int, batches: int = 1) -> Producers:
    """Make a state with many producers."""
    producers = Producers(producers_max=max(count, 1))
    for number in range(batches):
        for producer_id in range(count):
            add(producers, header(producer_id * 7919, number))
    return producers


def batches_of(path: Path) -> Iterator[tuple[BatchHeader, Marker | None]]:
    """Walk over a whole segment of a broker's."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        head = layouts.read_header(data, at)
        is_control = head.attributes & CONTROL
        yield head, read_marker(data, at, head) if is_control else None
        at += head.size_bytes


def replayed(directory: Path) -> tuple[Producers, dict[Path, bytes]]:
    """Replay a broker's log; give the index of aborted transactions of each segment, too."""
    producers, indexes = Producers(), {}
    for path in sorted(directory.glob("*.log")):
        ended = replay(producers, batches_of(path), NOW)
        aborted = [AbortedEntry(*each[:4]) for each in ended if each.is_aborted]
        indexes[path.with_suffix(".txnindex")] = encode_aborted(aborted)
    return producers, indexes


def sent(
    producer_id: int,
    sequence: int,
    values: tuple[bytes, ...] = (b"v",),
    *,
    epoch: int = 0,
    transactional: bool = False,
    columnar: bool = False,
    timestamp: int = NOW - 5,
    keys: list[bytes | None] | None = None,
) -> bytes:
    """Encode a batch as a producer sends it."""
    if columnar:
        payload = build_payload(encode_cells(values), len(values), timestamps=timestamp)
        data = b"".join(record_batch.frame(payload, 0, 0))
        return producers.stamp(data, producer_id, sequence, epoch)
    head = header(
        producer_id, sequence, len(values), epoch=epoch, transactional=transactional,
        timestamp=timestamp,
    )  # fmt: skip
    kafka_payload = kafka.build_payload(list(values), keys, timestamp, None, header=head)
    return b"".join(kafka.frame(kafka_payload, 0, -1))


def marker_of(producer_id: int, *, commit: bool, epoch: int = 0, coordinator: int = 0) -> bytes:
    """Encode the marker that ends a producer's transaction."""
    return build_marker(producer_id, epoch, NOW, Marker(commit, coordinator))


def known(log: Log) -> list[ProducerState]:
    """Give what a log knows of its producers, but for when they were used."""
    return [state._replace(used_ms=0) for state in log.producer_states()]


def told(log: Log) -> list[ProducerState]:
    """Give what the batches of a log tell of their producers, by a walk over all of them."""
    made = Producers()
    batches = batches_of_producers(log._state, log.log_start_offset, log.log_end_offset)
    replay(made, batches, NOW)
    return [state._replace(used_ms=0) for state in made.states()]


def snapshots_of(log: Log) -> list[int]:
    """List the offsets of a log's snapshots on the disk."""
    return sorted(int(path.name[:20]) for path in Path(log.directory).glob("*.producers"))
