"""Fetch by hand is what the codec makes of it, but records of a response are left out."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from broker.wire import codec, messages
from broker.wire.byte_cursor import WireError
from broker.wire.fetch import COPIED_BYTES_MAX, FileRange, decode_fetch, split_response
from broker.wire.frames import encode_response
from broker.wire.schemas import schema_of
from support.wire_samples import sample

VERSIONS = range(*schema_of("FetchRequest").versions)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_equal_the_codec(version: int) -> None:
    """On made-up requests, and on each of them cut short anywhere."""
    for seed in range(20):
        message = sample("FetchRequest", version, random.Random(seed), 4)
        data = bytes(codec.encode(message, version))
        assert decode_fetch(data, version) == decode_fetch(data + b"\0\1", version) == message
        for end in range(0, len(data), 7):
            with pytest.raises(WireError):
                decode_fetch(data[:end], version)


def sent(pieces: list[Any], files: dict[str, bytes]) -> bytes:
    """Join pieces as a socket would get them."""
    return b"".join(
        files[piece.file][piece.position : piece.position + piece.size_bytes]
        if isinstance(piece, FileRange)
        else bytes(piece)
        for piece in pieces
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_pieces_are_the_bytes_of_the_codec(version: int) -> None:
    """Records in a file, in memory, copied, empty and null: the client sees the same frame."""
    rng = random.Random(version)
    segment = rng.randbytes(20_000)
    for seed in range(20):
        whole = sample("FetchResponse", version, random.Random(seed), 4)
        topics, in_memory = [], []
        for topic in whole.responses:
            partitions, plain = [], []
            for partition in topic.partitions:
                start, size = rng.randrange(9000), rng.choice([0, 1, 300, COPIED_BYTES_MAX + 1])
                records = segment[start : start + size]
                view = rng.choice([FileRange("segment", start, size), records])
                is_null = rng.random() < 0.2
                partitions.append(partition._replace(records=None if is_null else view))
                plain.append(partition._replace(records=None if is_null else records))
            topics.append(topic._replace(partitions=tuple(partitions)))
            in_memory.append(topic._replace(partitions=tuple(plain)))
        pieces = split_response(version, 9, whole._replace(responses=tuple(topics)))
        expected = encode_response(1, version, 9, whole._replace(responses=tuple(in_memory)))
        assert sent(pieces, {"segment": segment}) == expected
        ranges = [
            partition.records
            for topic in topics
            for partition in topic.partitions
            if isinstance(partition.records, FileRange) and partition.records.size_bytes
        ]
        assert [piece for piece in pieces if isinstance(piece, FileRange)] == ranges
        assert all(piece.size_bytes if isinstance(piece, FileRange) else piece for piece in pieces)


def test_large_records_are_not_copied() -> None:
    """They are a piece of their own, and the size at the head of the frame counts them."""
    kind = messages.FetchResponse
    records = memoryview(bytes(COPIED_BYTES_MAX + 1))
    partition = kind.PartitionData(records=records)
    topic = kind.FetchableTopicResponse("t", partitions=[partition])
    head, middle, tail = split_response(12, 1, kind(responses=[topic]))
    assert middle is records
    assert not isinstance(head, FileRange) and not isinstance(tail, FileRange)
    assert struct.unpack_from(">i", head) == (len(head) + len(records) + len(tail) - 4,)


def test_a_struct_of_another_kind_is_refused() -> None:
    """A mistake of this process is a ValueError, as in the codec."""
    kind = messages.FetchResponse
    topic = kind.FetchableTopicResponse("t", partitions=[(1, 2, 3)])
    with pytest.raises(ValueError, match="is not a PartitionData"):
        split_response(12, 1, kind(responses=[topic]))
