"""Mutate encoded messages and decode them: a message or a `WireError` comes out, nothing else.

Mutants keep most of their structure: lengths, tags and marks change in place, bytes go or come,
parts are repeated, two messages are joined in the middle. One in ten is random from the first byte.
What is decoded can be encoded, and then decodes to the same.
"""

from __future__ import annotations

import functools
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from broker.wire import codec
from broker.wire.byte_cursor import Cursor, WireError
from broker.wire.fetch import decode_fetch
from broker.wire.frames import FrameSplitter, parse_request
from broker.wire.produce import decode_produce
from broker.wire.versions import MILESTONES, ApiVersions
from support.wire_samples import VERSIONS, sample

ACCEPTED = ApiVersions(MILESTONES)
BY_HAND = {"ProduceRequest": decode_produce, "FetchRequest": decode_fetch}
EDGES = [0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF]
WORDS = [
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\0\0\0", b"\0\0\xff\xff",
    b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x80\x80", b"\0\x10\0\0",
]  # fmt: skip
PEAK_BYTES_MAX = 64 << 10  # besides a multiple of the frame: plans, errors
PEAK_FACTOR = 64  # an array of structs of three bytes each comes to this


@functools.cache
def seeds() -> list[tuple[str, int, bytes]]:
    """Encode a made-up message of each version."""
    return [
        (name, version, bytes(codec.encode(sample(name, version, random.Random(seed), 3), version)))
        for name, version in VERSIONS
        for seed in range(2)
    ]


def mutant(rng: random.Random) -> tuple[str, int, bytes]:
    """Give a message's name, a version of it, and bytes that may be no such message."""
    name, version, whole = rng.choice(seeds())
    if rng.random() < 0.1:
        return name, version, rng.randbytes(rng.randrange(80))
    data = bytearray(whole)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(data) + 1)
        action = rng.randrange(7)
        if action == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif action == 1 and at < len(data):
            data[at] = rng.choice(EDGES)
        elif action == 2:
            word = rng.choice(WORDS)
            data[at : at + len(word)] = word
        elif action == 3:
            del data[at:]
        elif action == 4:
            del data[at : at + rng.randrange(9)]
        elif action == 5:
            data[at:at] = data[max(0, at - rng.randrange(40)) : at] * rng.choice([1, 1, 50])
        else:
            other = rng.choice(seeds())[2]
            data[at:] = other[rng.randrange(len(other) + 1) :]
    return name, version, bytes(data)


def look_at(name: str, version: int, data: bytes) -> bool:
    """Decode bytes, in every way there is; say whether they were a message."""
    by_hand = BY_HAND.get(name)
    if by_hand:
        check_by_hand(by_hand, name, version, data)
    try:
        message = codec.decode(name, version, data)
    except WireError as error:
        assert 0 <= error.position <= len(data) and error.reason, repr(error)
        return False
    again = codec.encode(message, version)
    assert codec.encode(codec.decode(name, version, again), version) == again
    return True


def check_by_hand(by_hand: Callable[..., Any], name: str, version: int, data: bytes) -> None:
    """Compare a decoder by hand with the codec; both ignore what follows the message."""
    try:
        expected = codec.read(name, version, Cursor(memoryview(data)))
    except WireError:
        with pytest.raises(WireError):
            by_hand(data, version)
        return
    assert by_hand(data, version) == expected


def look_at_frames(data: bytes, rng: random.Random) -> int:
    """Send bytes through the splitter and the header in pieces; count the requests they were."""
    splitter = FrameSplitter(1 << 16)
    found = 0
    at = 0
    try:
        while at < len(data):
            size = rng.randrange(1, 40)
            for frame in splitter.feed(data[at : at + size]):
                request = parse_request(frame, ACCEPTED)
                found += 1
                if not request.is_unknown_version:
                    request.message()
            at += size
    except WireError:
        pass
    return found


def peak_bytes(name: str, version: int, data: bytes) -> int:
    """Give the most memory that decoding takes at once.

    Threads that another test has left behind are counted, too. So what is too much is measured
    again: the decoder takes the same each time.
    """
    codec.plan_of(name, version)
    peak = _peak_bytes(name, version, data)
    for _ in range(3):
        if peak >= PEAK_BYTES_MAX:
            peak = min(peak, _peak_bytes(name, version, data))
    return peak


def _peak_bytes(name: str, version: int, data: bytes) -> int:
    tracemalloc.start()
    try:
        codec.decode(name, version, data)
    except WireError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak
