"""The quick check never accepts a batch that the full check refuses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from logstore.format import incoming, layouts
from logstore.format.batch_parts import BatchHeader
from logstore.format.kafka import record_batch as kafka
from logstore.format.kafka import regular
from support.hostile import headers_row, kafka_batch, row, zigzag

ROOM = 1 << 20


def batch_of(
    count: int, size: int, key: bytes | None = None, step_ms: int = 0, first_ms: int = 1_000
) -> bytes:
    """Make a batch of records of one size."""
    values = [random.Random(at).randbytes(size) for at in range(count)]
    keys = None if key is None else [key] * count
    times = first_ms + step_ms * np.arange(count, dtype=np.int64)
    return b"".join(kafka.frame(kafka.build_payload(values, keys, times, None), 0, 0))


# Each is recognised.
REGULAR = {
    "one record": batch_of(1, 20),
    "a few": batch_of(3, 20),
    "a run": batch_of(30, 20),
    "with keys": batch_of(20, 30, b"key"),
    "with long values": batch_of(12, 20_000, b"key"),
    "with values of two bytes' size": batch_of(20, 100),
    "offsets of two bytes": batch_of(300, 10),
    "offsets of three bytes": batch_of(9_000, 10, b"k"),
    "times that rise": batch_of(60, 20, None, 1),
    "times that become longer": batch_of(30, 20, None, 10),
    "times that become longer twice, beside long offsets": kafka_batch(
        b"".join(row(bytes(20), at // 130, at) for at in range(9_500)), 9_500, max_timestamp=78
    ),
    "times of two bytes": batch_of(70, 20, None, 100),
    "sizes that differ": kafka_batch(
        b"".join(row(b"v" * (at * 7 % 90), 0, at) for at in range(25)), 25
    ),
    "a long number": kafka_batch(
        zigzag(8) + b"\0" + b"\x80\0" + b"\0\1\2v\0" + row(offset_delta=1), 2
    ),
    "times that fall": kafka_batch(
        b"".join(row(b"value", -at, at) for at in range(25)), 25
    ),
}  # fmt: skip
# Each is sound, and more than a quick look takes in.
UNKNOWN = {
    "a run of empty values": batch_of(40, 0),
    "record headers": kafka_batch(headers_row(b"\2h\2v", 1), 1),
    "gaps": kafka_batch(row() + row(offset_delta=2), 2, last_offset_delta=2),
    "many sizes": kafka_batch(
        b"".join(row(b"v" * (at * 7 % 90), 0, at) for at in range(200)), 200
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Forget the remembered shapes."""
    regular._shapes.clear()
    yield
    regular._shapes.clear()


def header_of(data: bytes) -> BatchHeader:
    """Read a header."""
    return layouts.read_header(data, 0)


def looks_regular(data: bytes, room: int = ROOM) -> bool:
    """Make the quick check."""
    return incoming.is_plainly_sound(memoryview(data), 0, header_of(data), room)


def is_sound(data: bytes, room: int = ROOM) -> bool:
    """Make the full check, as an append does."""
    with suppress(ValueError):
        run = [(0, header_of(data))]
        layouts.check_run(memoryview(data), run, room, is_strict=True, checks_claims=True)
        return True
    return False


@pytest.mark.parametrize("name", REGULAR)
def test_usual_batches_are_recognised(name: str) -> None:
    """They are recognised at once and by shape; a wrong time or too little room is noticed."""
    data = REGULAR[name]
    room = 8 << 20
    assert is_sound(data, room)
    for _ in range(2):
        assert looks_regular(data, room)
        header = header_of(data)
        room_needed = len(data) - 61 + 320 * header.record_count
        assert looks_regular(data, room_needed) and not looks_regular(data, room_needed - 1)
        assert not looks_regular(kafka.with_max_timestamp(data, header.max_timestamp + 1), room)


@pytest.mark.parametrize("name", UNKNOWN)
def test_others_are_left_to_the_full_check(name: str) -> None:
    """These batches are valid, or the full check decides."""
    assert is_sound(UNKNOWN[name]) and not looks_regular(UNKNOWN[name])


def test_no_change_of_a_long_head_makes_it_accept_what_is_not_sound() -> None:
    """The head of a record has more bytes than a word; each of its bits is flipped."""
    data = batch_of(90, 2, bytes(64), 100)
    assert looks_regular(data)
    number = 75
    record = regular.places_of(memoryview(data), 61, 0)
    at = 61
    for before in range(number):
        record = regular.places_of(memoryview(data), at, before)
        assert record is not None
        at = record.stop
    assert record is not None and record.head_end - record.start > regular.WORD_BYTES
    head = range(at, at + record.head_end - record.start)
    tail = range(at + record.value_at - record.start, at + record.stop - record.start)
    accepted = []
    for position in (*head, *tail):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            if looks_regular(bytes(changed)):
                accepted.append(position)
                assert is_sound(bytes(changed))
    assert {position - at for position in accepted} == {2, 3, 4, *(one - at for one in tail[1:3])}


def test_a_batch_of_many_short_runs_is_left_to_the_full_check() -> None:
    """Each search for a run takes one step for all records that follow."""
    times = [at // 5 % 2 * 100 for at in range(5 * 2 * regular.RUNS_MAX)]
    data = kafka_batch(
        b"".join(row(bytes(20), time, at) for at, time in enumerate(times)), len(times),
        max_timestamp=105,
    )  # fmt: skip
    assert is_sound(data) and not looks_regular(data)


def test_a_shape_is_remembered_and_read_again() -> None:
    """A batch with the same shape is not walked; a batch with another shape is."""
    with pytest.MonkeyPatch.context() as patch:
        assert looks_regular(batch_of(30, 20, b"key"))
        patch.setattr(regular, "times_of", lambda *_: None)
        assert looks_regular(batch_of(30, 20, b"abc", first_ms=7))
        assert not looks_regular(batch_of(30, 19, b"abcd"))
        assert not looks_regular(batch_of(30, 21, b"key"))
    for size in range(2 * regular.SHAPES_MAX):
        assert looks_regular(batch_of(5, size))
    assert len(regular._shapes) <= regular.SHAPES_MAX


@pytest.mark.parametrize("knows_shape", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        batch_of(14, 3), batch_of(14, 3, b"k"), batch_of(66, 1), batch_of(10, 2, None, 1),
        batch_of(10, 2, None, 100), batch_of(2, 2, b""), batch_of(16, 2, None, 9),
        kafka_batch(b"".join(row(b"v" * at, 0, at) for at in range(7)), 7),
    ],
)  # fmt: skip
def test_no_change_makes_it_accept_what_is_not_sound(data: bytes, knows_shape: bool) -> None:
    """Each bit is flipped, and each byte is set to values that may begin a varint."""
    accepted = 0
    for position in (*range(61, min(len(data), 300)), *range(max(len(data) - 40, 300), len(data))):
        octets = {data[position] ^ 1 << bit for bit in range(8)} | {0, 1, 0x80}
        for octet in octets - {data[position]}:
            if knows_shape:
                assert looks_regular(data)
            else:
                regular._shapes.clear()
            changed = data[:position] + bytes((octet,)) + data[position + 1 :]
            if looks_regular(changed):
                accepted += 1
                assert is_sound(changed), (position, octet)
    assert accepted > 0  # what is in a value may be anything


def test_random_cuts_and_joins_are_not_taken_for_sound() -> None:
    """Bytes are removed, doubled and moved, with any record count."""
    chance = random.Random(5)
    for number in range(2_000):
        data = bytearray(chance.choice([*REGULAR.values(), *UNKNOWN.values()])[:4_000])
        at, size = chance.randrange(61, len(data)), chance.randrange(1, 12)
        part = data[at : at + size]
        if number % 3:
            del data[at : at + size]
        else:
            data[at:at] = part
        header = header_of(bytes(data))._replace(
            size_bytes=len(data), stored_bytes=len(data) - 61,
            record_count=chance.choice((1, 2, 7, header_of(bytes(data)).record_count)),
        )  # fmt: skip
        view = memoryview(bytes(data))
        if incoming.is_plainly_sound(view, 0, header, ROOM):
            layouts.check_run(view, [(0, header)], ROOM, is_strict=True, checks_claims=True)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_records_are_recognised_once_they_are_plain(codec: int) -> None:
    """The full check decompresses the records, and then makes the quick check."""
    values = [b"%20d" % at for at in range(50)]
    payload = kafka.build_payload(values, None, 5, None, codec_id=codec)
    data = b"".join(kafka.frame(payload, 0, 0))
    assert not looks_regular(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka, "check_many", lambda *_, **__: pytest.fail("it was checked in full"))
        assert is_sound(data)
