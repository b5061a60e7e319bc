"""Hostile bytes end in a `WireError`, take little memory, and are the same to every decoder."""

from __future__ import annotations

import os
import random
import struct

import pytest

from broker.wire import codec, messages
from broker.wire.byte_cursor import Cursor
from broker.wire.frames import encode_request
from broker.wire.schemas import schema_of
from support.wire_samples import VERSIONS, sample
from wire import wire_fuzz

COUNT = int(os.environ.get("LOGSTORE_FUZZ_FRAMES", "20000"))


def test_mutants_are_messages_or_refused() -> None:
    """`LOGSTORE_FUZZ_FRAMES` sets how many; a good part of them is still a message."""
    rng = random.Random(COUNT)
    whole = 0
    for number in range(COUNT):
        name, version, data = wire_fuzz.mutant(rng)
        try:
            whole += wire_fuzz.look_at(name, version, data)
        except Exception as error:
            raise AssertionError(f"{number}: {name} {version} {data.hex()}") from error
    print(f"{COUNT} mutants, {whole} are messages")
    assert 0.02 * COUNT < whole < 0.9 * COUNT


def test_mutated_streams_of_requests() -> None:
    """Frames, headers and bodies in pieces of any size; an undamaged stream is read to its end."""
    rng = random.Random(1)
    requests = [(name, version) for name, version in VERSIONS if name.endswith("Request")]
    for number in range(COUNT // 20):
        stream = bytearray()
        sent = 0
        for name, version in rng.choices(requests, k=3):
            key = schema_of(name).key
            if key is not None and wire_fuzz.ACCEPTED.accepts(key, version):
                message = sample(name, version, rng)
                stream += encode_request(key, version, number, "client", message)
                sent += 1
        assert wire_fuzz.look_at_frames(bytes(stream), rng) == sent
        if stream:
            stream[rng.randrange(len(stream))] ^= 1 << rng.randrange(8)
            wire_fuzz.look_at_frames(bytes(stream), rng)


def test_memory_follows_the_frame() -> None:
    """Decoding takes at most a small multiple of the bytes that are really there."""
    rng = random.Random(2)
    for _ in range(COUNT // 40):
        name, version, data = wire_fuzz.mutant(rng)
        peak = wire_fuzz.peak_bytes(name, version, data)
        assert peak <= wire_fuzz.PEAK_FACTOR * len(data) + wire_fuzz.PEAK_BYTES_MAX, (name, version)


def test_declared_sizes_cost_nothing() -> None:
    """Two thousand million elements, of any type, are refused before anything is made for them."""
    huge = [struct.pack(">i", 2**31 - 1), b"\xff\xff\xff\xff\x07"]
    for name, version in VERSIONS:
        is_flexible = schema_of(name).is_flexible(version)
        for prefix in range(0, 40, 3):
            data = bytes(prefix) + huge[is_flexible] + bytes(60)
            assert wire_fuzz.peak_bytes(name, version, data) < wire_fuzz.PEAK_BYTES_MAX


def test_dense_arrays_stay_within_the_estimate() -> None:
    """The budget of a message counts about what its objects take, in the densest of frames."""
    kind = messages.DescribeTopicPartitionsRequest
    data = bytes(codec.encode(kind(topics=[kind.TopicRequest("")] * 20_000), 0))
    budget = Cursor(memoryview(data)).budget_bytes
    cursor = Cursor(memoryview(data))
    codec.read(kind.__name__, 0, cursor)
    assert wire_fuzz.peak_bytes(kind.__name__, 0, data) < 1.5 * (budget - cursor.budget_bytes)


def test_the_fuzzer_sees_a_check_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the comparison of a length with what is left, it finds what goes wrong."""

    def careless(cursor: Cursor, size: int) -> memoryview:
        cursor.at += size
        return cursor.data[cursor.at - size : cursor.at]

    monkeypatch.setattr(Cursor, "take", careless)
    rng = random.Random(3)
    with pytest.raises((AssertionError, ValueError)):
        for _ in range(2000):
            wire_fuzz.look_at(*wire_fuzz.mutant(rng))
