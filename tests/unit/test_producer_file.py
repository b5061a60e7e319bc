"""Files of producers are read back unchanged, and refused if anything in them is wrong."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptCheckpointError, LogStoreError, UnsupportedFormatError
from logstore.format import producer_file
from logstore.format.kafka.markers import Marker
from logstore.format.producer_file import HEADER_BYTES, ROW_BYTES, Snapshot, decode, encode
from logstore.log.producers.producer_state import Producers
from support.producers import NOW, add, end, filled, header

TOPIC_ID = bytes(range(16))
MANY = 100_000
SECONDS_MAX = 1.0


def some() -> Producers:
    """Make a state with all that a row can have."""
    producers = Producers()
    for number in range(7):
        add(producers, header(3, number, 2 + number % 2, timestamp=NOW + number))
    add(producers, header(2**62, 0, transactional=True), header(1, 9, 4, epoch=7, columnar=True))
    add(producers, header(5, 0, transactional=True), header(6, 0, epoch=2, transactional=True))
    end(producers, 6, commit=False, epoch=3, coordinator_epoch=11)
    return producers


def read(data: bytes, offset: int, topic_id: bytes = TOPIC_ID, partition: int = 4) -> Snapshot:
    """Read a file of the log of these tests."""
    return decode(data, "/d/orders-4/x.producers", topic_id, partition, offset)


def sealed(body: bytes | bytearray) -> bytes:
    """Correct the checksum after a change of bytes."""
    return bytes(body) + xxhash.xxh3_64_digest(body)


def test_a_state_is_the_same_after_it_was_written_and_read() -> None:
    """All fields, and open and undecided transactions, are equal; a second write gives the same."""
    producers = some()
    snapshot = producers.snapshot()
    data = encode(snapshot, TOPIC_ID, 4)
    assert len(data) == HEADER_BYTES + 5 * ROW_BYTES + 16 + 8
    found = read(data, producers.end_offset)
    again = Producers(found)
    assert again.states() == producers.states() and again.end_offset == producers.end_offset
    assert found.undecided == snapshot.undecided != []
    assert encode(again.snapshot(), TOPIC_ID, 4) == data
    for watermark in (producers.end_offset - 1, producers.end_offset):
        assert again.last_stable_offset(watermark) == producers.last_stable_offset(watermark)


def test_a_state_goes_on_after_it_was_read() -> None:
    """A transaction that ended later is not open in the next file; rows are used again."""
    producers = some()
    again = Producers(read(encode(producers.snapshot(), TOPIC_ID, 4), producers.end_offset))
    for each in (producers, again):
        end(each, 5, commit=True)
        add(each, header(3, 0, epoch=1), header(77, 0))
    snapshot = again.snapshot()
    assert snapshot.rows["open_offset"][snapshot.rows["producer_id"] == 5].tolist() == [-1]
    third = Producers(again.snapshot())
    assert third.states() == again.states() == producers.states()
    assert third.last_stable_offset(99) == producers.last_stable_offset(99)


def test_forgotten_producers_are_not_written() -> None:
    """Free rows are only in memory; an empty state gives a file, too."""
    producers = Producers(expiration_ms=1)
    add(producers, header(1, 0), header(2, 0))
    producers.take(header(9, 0), producers.end_offset, NOW + 5)
    assert producers.expire(NOW + 3) == 2
    found = Producers(producers.snapshot())
    assert len(found) == 1 and found.states() == producers.states()
    add(found, header(4, 0), header(5, 0), header(6, 0))
    assert [state.producer_id for state in found.states()] == [4, 5, 6, 9]
    empty = encode(Producers().snapshot(), TOPIC_ID, 4)
    assert len(empty) == HEADER_BYTES + 8 and len(Producers(read(empty, 0))) == 0


@pytest.mark.parametrize(
    "place",
    [(bytes(16), 4, 25), (TOPIC_ID, 5, 25), (TOPIC_ID, 4, 26)],
    ids=["id", "number", "offset"],
)
def test_a_file_of_another_log_or_offset_is_refused(place: tuple[bytes, int, int]) -> None:
    """The file may have been copied or renamed, with a valid checksum."""
    producers = some()
    assert producers.end_offset == 25
    data = encode(producers.snapshot(), TOPIC_ID, 4)
    topic_id, partition, offset = place
    with pytest.raises(CorruptCheckpointError, match="belongs to partition 4"):
        read(data, offset, topic_id, partition)


def test_every_cut_and_every_bit_is_noticed() -> None:
    """The whole file is refused, and the state is rebuilt from the log."""
    producers = some()
    data = encode(producers.snapshot(), TOPIC_ID, 4)
    for length in range(len(data)):
        with pytest.raises(CorruptCheckpointError):
            read(data[:length], producers.end_offset)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        with pytest.raises(CorruptCheckpointError):
            read(bytes(changed), producers.end_offset)


def test_a_later_version_is_no_damage() -> None:
    """The file is not replaced: the error names the version."""
    body = bytearray(encode(Producers().snapshot(), TOPIC_ID, 4)[:-8])
    struct.pack_into(">I", body, 28, 2)
    with pytest.raises(UnsupportedFormatError) as caught:
        read(sealed(body), 0)
    assert caught.value.version == 2


FIELDS: list[tuple[str, Callable[[np.ndarray], None]]] = [
    ("producer_id", lambda row: row.__setitem__("producer_id", -2)),
    ("same id", lambda row: row.__setitem__("producer_id", 3)),
    ("open_offset", lambda row: row.__setitem__("open_offset", 25)),
    ("marker_offset", lambda row: row.__setitem__("marker_offset", -2)),
    ("reserved_38", lambda row: row.__setitem__("reserved_38", 1)),
    ("used_ms", lambda row: row.__setitem__("used_ms", -1)),
    ("late", lambda row: row.__setitem__("used_ms", 2**62 + 1)),
    ("last_offset", lambda row: row["batches"]["last_offset"].__setitem__(0, 25)),
    ("order", lambda row: row["batches"]["last_offset"].__setitem__(1, 24)),
    ("gap", lambda row: row["batches"]["last_offset"].__setitem__(0, -1)),
    ("offset_delta", lambda row: row["batches"]["offset_delta"].__setitem__(0, 25)),
    ("last_sequence", lambda row: row["batches"]["last_sequence"].__setitem__(2, -2)),
]


@pytest.mark.parametrize(("name", "change"), FIELDS, ids=[name for name, _ in FIELDS])
def test_an_impossible_field_is_refused(name: str, change: Callable[[np.ndarray], None]) -> None:
    """A checksum only shows that the file was not changed after it was written."""
    producers = some()
    snapshot = read(encode(producers.snapshot(), TOPIC_ID, 4), producers.end_offset)
    rows = snapshot.rows.copy()
    change(rows[1:2].reshape(()) if name != "same id" else rows[2:3].reshape(()))
    head = encode(snapshot._replace(undecided=[]), TOPIC_ID, 4)[:HEADER_BYTES]
    with pytest.raises(CorruptCheckpointError, match="cannot be the state of a producer"):
        read(sealed(head + rows.tobytes()), producers.end_offset)


@pytest.mark.parametrize(
    "pairs", [[(5, 5)], [(-1, 3)], [(3, 25)], [(3, 9), (3, 12)], [(3, 12), (4, 9)]], ids=str
)
def test_impossible_pairs_are_refused(pairs: list[tuple[int, int]]) -> None:
    """Both numbers rise, and a marker comes after its transaction's first record."""
    snapshot = some().snapshot()._replace(undecided=pairs)
    with pytest.raises(CorruptCheckpointError, match="undecided"):
        read(encode(snapshot, TOPIC_ID, 4), snapshot.offset)


def test_counts_that_do_not_fit_are_refused_before_they_are_believed() -> None:
    """Four billion producers would need 672 GB."""
    body = bytearray(encode(Producers().snapshot(), TOPIC_ID, 4)[:-8])
    for position in (40, 44):
        changed = body[:]
        struct.pack_into(">I", changed, position, 2**32 - 1)
        with pytest.raises(CorruptCheckpointError, match="do not fill"):
            read(sealed(changed), 0)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), is_sealed=st.booleans())
def test_any_bytes_are_read_or_refused(seed: int, is_sealed: bool) -> None:
    """A changed file with a right checksum gives a valid state, or an error of this library."""
    rng = random.Random(seed)
    producers = some()
    body = bytearray(encode(producers.snapshot(), TOPIC_ID, 4)[:-8])
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(body))
        how = rng.randrange(3)
        if how == 0:
            body[at : at + rng.randrange(9)] = rng.randbytes(rng.randrange(9))
        elif how == 1:
            body[at : at + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7])
        else:
            body[at] ^= 1 << rng.randrange(8)
    data = sealed(body) if is_sealed else bytes(body)
    try:
        found = Producers(read(data, producers.end_offset))
    except LogStoreError:
        return
    assert encode(found.snapshot(), TOPIC_ID, 4) == data
    add(found, header(3, 0, epoch=9), header(5, 1, transactional=True))
    end(found, 5, commit=False, coordinator_epoch=99)
    found.expire(NOW * 2)
    found.last_stable_offset(found.end_offset)
    assert found.states() == Producers(found.snapshot()).states()


I16, I32, I64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(-1, 3) | I64, I16, I32, st.integers(0, 2**31 - 1), I64, st.booleans())
    ),
    coordinator_epoch=I32,
)
def test_whatever_a_peer_sent_can_be_written_and_read(
    rows: list[tuple[int, int, int, int, int, bool]], coordinator_epoch: int
) -> None:
    """A follower appends its leader's batches unchecked, and its files must be readable."""
    producers = Producers()
    for producer_id, epoch, sequence, delta, timestamp, is_marker in rows:
        head = header(
            producer_id, sequence, delta + 1, epoch=epoch, transactional=True, timestamp=timestamp
        )
        if is_marker:
            place = (producers.end_offset, NOW, Marker(True, coordinator_epoch))
            producers.take_marker(head._replace(last_offset=0), *place)
        else:
            add(producers, head)
    again = Producers(read(encode(producers.snapshot(), TOPIC_ID, 4), producers.end_offset))
    assert again.states() == producers.states() and again.end_offset == producers.end_offset


def test_names_are_offsets_of_twenty_digits() -> None:
    """Files with other names are not snapshots."""
    assert producer_file.name_of(7) == "00000000000000000007.producers"
    assert producer_file.offset_of("00000000000000000007.producers") == 7
    for name in ("7.producers", "00000000000000000007.snapshot", "0000000000000000000².producers"):
        assert producer_file.offset_of(name) is None


@pytest.mark.alone
def test_many_producers_are_written_and_read_quickly() -> None:
    """100,000 producers take well under a second each way, and so does a start."""
    producers = filled(MANY)
    start = time.thread_time()
    data = encode(producers.snapshot(), TOPIC_ID, 4)
    written = time.thread_time()
    found = read(data, producers.end_offset)
    decoded = time.thread_time()
    assert len(Producers(found)) == MANY
    restored = time.thread_time()
    print(f"written in {written - start:.3f} s, read in {restored - written:.3f} s")
    assert written - start < SECONDS_MAX and restored - decoded < SECONDS_MAX
    assert decoded - written < SECONDS_MAX and len(data) < 17_000_000
