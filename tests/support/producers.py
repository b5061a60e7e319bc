"""Make headers of producers' batches, fill states with them, and replay the logs of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from logstore.format import layouts
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.record_batch import MAGIC as COLUMNAR
from logstore.format.kafka.files import AbortedEntry
from logstore.format.kafka.header import CONTROL, TRANSACTIONAL
from logstore.format.kafka.header import MAGIC as KAFKA
from logstore.format.kafka.markers import Marker, read_marker
from logstore.format.kafka.transaction_index import encode_aborted
from logstore.log.producers.open_transactions import Ended
from logstore.log.producers.producer_state import Producers
from logstore.log.producers.replay import replay

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
