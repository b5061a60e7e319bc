"""Kafka's snapshots of producers, indexes of aborted transactions and markers, both ways."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptCheckpointError
from logstore.format import layouts
from logstore.format.kafka.files import AbortedEntry, aborted_entries
from logstore.format.kafka.markers import Marker, build_marker, read_marker
from logstore.format.kafka.snapshots import decode_snapshot, encode_snapshot
from logstore.format.producer_file import name_of, offset_of
from logstore.log.producers.kafka_snapshots import SUFFIX
from logstore.log.producers.producer_state import Producers
from logstore.log.producers.replay import snapshot_offsets
from logstore.log.read.transactions import marker_of
from support.kafka_golden import GOLDEN
from support.producers import NOW, add, end, filled, header, replayed
from support.transaction_index import encode_aborted

SNAPSHOTS = sorted(GOLDEN.rglob("*.snapshot"))
INDEXES = [path for path in sorted(GOLDEN.rglob("*.txnindex")) if path.stat().st_size]
MANY = 100_000
SECONDS_MAX = 1.0


def some() -> Producers:
    """Make a state with open, aborted and no transactions."""
    producers = Producers()
    add(producers, header(4, 0, 3), header(2, 7, transactional=True), header(4, 3))
    add(producers, header(6, 0, epoch=1, transactional=True))
    end(producers, 6, commit=False, epoch=2, coordinator_epoch=5)
    end(producers, 8, commit=True)
    return producers


def test_a_broker_wrote_snapshots_of_every_kind() -> None:
    """With producers, without, and with several after transactions."""
    sizes = {path.stat().st_size for path in SNAPSHOTS}
    assert {10, 10 + 46, 10 + 3 * 46} <= sizes and INDEXES


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: f"{path.parent.name}-{path.stem[-3:]}")
def test_what_a_broker_wrote_is_read_and_written_alike(path: Path) -> None:
    """Byte for byte, but for the order of the producers, which Kafka leaves to a hash table."""
    data, offset = path.read_bytes(), offset_of(path.name, SUFFIX)
    assert offset is not None
    snapshot = decode_snapshot(data, str(path), offset, NOW)
    producers = Producers(snapshot)
    written = encode_snapshot(producers.snapshot())
    assert len(written) == len(data) == 10 + 46 * len(producers)
    entries = [sorted(each[at : at + 46] for at in range(10, len(data), 46))
               for each in (data, written)]  # fmt: skip
    assert entries[0] == entries[1]
    if len(producers) < 2:
        assert written == data
    assert {state.used_ms for state in producers.states()} <= {NOW}


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("stopped/*/*-[0-9]")), ids=lambda path: path.name
)
def test_a_replay_of_a_brokers_log_is_what_the_broker_knew(path: Path) -> None:
    """Its last snapshot, and its indexes of aborted transactions, also of a compacted log."""
    producers, indexes = replayed(path)
    for file, entries in indexes.items():
        assert entries == (file.read_bytes() if file.exists() else b""), file
    offsets = snapshot_offsets([file.name for file in path.iterdir()], 2**62, SUFFIX)
    if not offsets:
        assert len(producers) == 0
        return
    file = path / name_of(offsets[0], SUFFIX)
    assert offsets[0] == producers.end_offset
    theirs = Producers(decode_snapshot(file.read_bytes(), str(file), offsets[0], NOW))
    ours = [state._replace(batches=state.batches[:1]) for state in producers.states()]
    assert theirs.states() == ours


def test_the_newest_batch_and_the_transaction_survive() -> None:
    """The other batches do not: Kafka's file has no room for them."""
    producers = some()
    data = encode_snapshot(producers.snapshot())
    found = Producers(decode_snapshot(data, "x", producers.end_offset, NOW))
    for before, after in zip(producers.states(), found.states(), strict=True):
        assert after == before._replace(batches=before.batches[:1])
    assert found.last_stable_offset(9) == producers.last_stable_offset(9) == 3
    assert not found.check([header(4, 4)]) and found.check([header(4, 3)])
    assert encode_snapshot(found.snapshot()) == data


def test_a_damaged_snapshot_is_refused() -> None:
    """Every cut, every bit, another offset, and fields that no log has."""
    producers = some()
    data = encode_snapshot(producers.snapshot())
    wrong = [data[:length] for length in range(len(data))]
    for position in range(len(data)):
        wrong.append(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
    row = struct.Struct(">qhiqiqiq")
    for entry in (
        (-1, 0, 0, 0, 0, 0, 0, -1),
        (1, 0, -2, 0, 0, 0, 0, -1),
        (1, 0, 0, 3, 4, 0, 0, -1),
        (1, 0, 0, 3, -1, 0, 0, -1),
        (1, 0, 0, -2, 0, 0, 0, -1),
        (1, 0, 0, 0, 0, 0, 0, 8),
    ):
        rest = struct.pack(">I", 1) + row.pack(*entry)
        wrong.append(struct.pack(">HI", 1, crc32c(rest)) + rest)
    twice = struct.pack(">I", 2) + 2 * row.pack(1, 0, 0, 0, 0, 0, 0, -1)
    wrong.append(struct.pack(">HI", 1, crc32c(twice)) + twice)
    for each in wrong:
        with pytest.raises(CorruptCheckpointError):
            decode_snapshot(each, "x", producers.end_offset, NOW)
    with pytest.raises(CorruptCheckpointError):
        decode_snapshot(data, "x", producers.end_offset - 5, NOW)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_snapshot_is_read_or_refused(seed: int) -> None:
    """Mutated rows with a right checksum give a state that works, or an error of ours."""
    rng = random.Random(seed)
    producers = some()
    rest = bytearray(encode_snapshot(producers.snapshot())[6:])
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(rest))
        rest[at : at + 8] = rng.choice([rng.randbytes(8), b"\xff" * 8, bytes(8), rest[:8]])
    data = struct.pack(">HI", 1, crc32c(rest)) + rest
    try:
        found = Producers(decode_snapshot(data, "x", producers.end_offset, NOW))
    except CorruptCheckpointError:
        return
    add(found, header(2, 8, transactional=True))
    end(found, 2, commit=True)
    assert len(encode_snapshot(found.snapshot())) == 10 + 46 * len(found)


@pytest.mark.parametrize("path", INDEXES, ids=lambda path: path.parent.name)
def test_an_index_of_aborted_transactions_is_written_as_a_broker_does(path: Path) -> None:
    """Byte for byte."""
    entries, fault = aborted_entries(path.read_bytes())
    assert fault is None and encode_aborted(entries) == path.read_bytes()


def test_what_a_marker_ends_goes_into_the_index() -> None:
    """An end has the fields of an entry; no entries are no bytes."""
    producers = Producers()
    add(producers, header(2, 0, transactional=True), header(3, 0, transactional=True))
    ended = end(producers, 3, commit=False)
    assert ended is not None and ended.is_aborted
    entry = AbortedEntry(*ended[:4])
    assert aborted_entries(encode_aborted([entry])) == ([(3, 1, 2, 0)], None)
    assert encode_aborted([]) == b""


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_index_is_read_up_to_its_fault(seed: int) -> None:
    """Mutated indexes give the entries before the first fault, which are written alike."""
    rng = random.Random(seed)
    data = bytearray(encode_aborted([AbortedEntry(7, 3 * n, 3 * n + 2, 3 * n) for n in range(4)]))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data))
        data[at : at + 8] = rng.choice([rng.randbytes(8), b"\xff" * 8, bytes(8), b""])
    entries, fault = aborted_entries(bytes(data))
    assert encode_aborted(entries) == data[: 34 * len(entries)]
    assert (fault is None) == (34 * len(entries) == len(data))


@pytest.mark.parametrize("is_commit", [False, True])
def test_a_marker_is_a_sound_control_batch(is_commit: bool) -> None:
    """Readers of transactions and the check of an append both accept it."""
    data = build_marker(77, 3, NOW, Marker(is_commit, 12))
    head = layouts.read_header(data, 0)
    assert layouts.fault(data, 0, 0) is None and head.size_bytes == len(data) == 78
    assert (head.producer_id, head.producer_epoch, head.base_sequence) == (77, 3, -1)
    assert head.attributes == 0x30 and head.record_count == 1 and head.max_timestamp == NOW
    assert read_marker(data, 0, head) == (is_commit, 12)
    assert marker_of(data, 0, head) == ("commit" if is_commit else "abort")
    layouts.check_run(memoryview(data), [(0, head)], 1 << 20, is_strict=True, checks_claims=True)


def test_markers_that_a_broker_wrote_are_read() -> None:
    """Three committed and two aborted transactions, by two producers."""
    found = []
    for path in sorted(GOLDEN.glob("stopped/*/transactions-0/*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            head = layouts.read_header(data, at)
            if head.attributes & 0x20:
                found.append(read_marker(data, at, head))
                same = build_marker(
                    head.producer_id, head.producer_epoch, head.max_timestamp,
                    found[-1] or Marker(False, 0),
                )  # fmt: skip
                assert same[16:] == data[at + 16 : at + head.size_bytes]
            at += head.size_bytes
    assert [marker.is_commit for marker in found if marker] == [True, True, False, False, True]


def test_another_control_batch_is_no_marker() -> None:
    """KRaft has some; an unreadable one is none either."""
    data = build_marker(1, 0, NOW, Marker(True, 0))
    head = layouts.read_header(data, 0)
    assert read_marker(data[:70] + b"\xff" * 8, 0, head) is None
    assert read_marker(data.replace(b"\0\0\0\1\x0c", b"\0\0\0\4\x0c"), 0, head) is None


@pytest.mark.alone
def test_many_producers_are_quick_in_kafkas_format_too() -> None:
    """100,000 in less than a second each way."""
    producers = filled(MANY)
    snapshot = producers.snapshot()
    start = time.thread_time()
    data = encode_snapshot(snapshot)
    written = time.thread_time()
    found = decode_snapshot(data, "x", producers.end_offset, NOW)
    done = time.thread_time()
    print(f"written in {written - start:.3f} s, read in {done - written:.3f} s")
    assert len(found.rows) == MANY
    assert written - start < SECONDS_MAX and done - written < SECONDS_MAX
