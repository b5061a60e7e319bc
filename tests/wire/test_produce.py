"""Produce decoded by hand is what the codec decodes, with records that are views."""

from __future__ import annotations

import random

import pytest

from broker.wire import codec, messages
from broker.wire.byte_cursor import WireError
from broker.wire.produce import decode_produce
from broker.wire.schemas import schema_of
from support.wire_samples import sample

VERSIONS = range(*schema_of("ProduceRequest").versions)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_equals_the_codec(version: int) -> None:
    """On made-up requests, and on each of them cut short anywhere."""
    for seed in range(20):
        message = sample("ProduceRequest", version, random.Random(seed), 4)
        data = bytes(codec.encode(message, version))
        assert decode_produce(data, version) == message
        for end in range(0, len(data), 7):
            with pytest.raises(WireError):
                decode_produce(data[:end], version)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_views_of_the_frame(version: int) -> None:
    """No byte of a batch is copied on its way to the log."""
    kind = messages.ProduceRequest
    partitions = [kind.PartitionProduceData(0, b"batch"), kind.PartitionProduceData(1, None)]
    topic = kind.TopicProduceData("t" if version < 13 else "", bytes(16), partitions)
    frame = memoryview(bytearray(codec.encode(kind("tx", -1, 100, [topic]), version)))
    first, second = decode_produce(frame, version).topic_data[0].partition_data
    assert first.records == b"batch" and first.records.obj is frame.obj
    assert second == (1, None)


def test_tags_of_a_partition_are_stepped_over() -> None:
    """A later client may send some."""
    body = b"\0\xff\xff\0\0\0\1\2\2t\2\0\0\0\7\2x\1\5\2yz\0\0"
    request = decode_produce(body, 9)
    assert request == codec.decode("ProduceRequest", 9, body)
    assert request.topic_data[0].partition_data[0] == (7, b"x")
