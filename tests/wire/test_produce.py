"""Produce read and written by hand is what the codec reads and writes; records are views."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.wire import codec, messages
from broker.wire.byte_cursor import WireError
from broker.wire.frames import encode_response
from broker.wire.produce import PRODUCE, decode_produce, encode_produced
from broker.wire.schemas import schema_of
from support.wire_samples import sample

VERSIONS = range(*schema_of("ProduceRequest").versions)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_equals_the_codec(version: int) -> None:
    """On made-up requests, and on each of them cut short anywhere."""
    for seed in range(20):
        message = sample("ProduceRequest", version, random.Random(seed), 4)
        data = bytes(codec.encode(message, version))
        assert decode_produce(data, version) == decode_produce(data + b"\0\1", version) == message
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


def test_a_usual_request_is_read_by_hand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the comparison with the codec would compare the codec with itself."""
    kind = messages.ProduceRequest
    partitions = [kind.PartitionProduceData(0, b"x" * 70_000), kind.PartitionProduceData(7, b"y")]
    bodies = {}
    for version in (9, 13):
        name, topic_id = ("t", bytes(16)) if version < 13 else ("", b"i" * 16)
        message = kind(None, -1, 100, (kind.TopicProduceData(name, topic_id, tuple(partitions)),))
        bodies[version] = message, bytes(codec.encode(message, version))
    monkeypatch.setattr(codec, "read_by", None)
    for version, (message, body) in bodies.items():
        assert decode_produce(body, version) == message


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_equal_those_of_the_codec(version: int) -> None:
    """Made-up answers, with errors and without, and the usual answer."""
    for seed in range(40):
        rng = random.Random(seed)
        message = sample("ProduceResponse", version, rng, 4)
        if seed % 2:
            message = message._replace(
                node_endpoints=(), responses=tuple(map(without_errors, message.responses))
            )
        number = rng.getrandbits(31)
        assert encode_produced(version, number, message) == encode_response(
            PRODUCE, version, number, message
        )


def without_errors(topic: Any) -> Any:
    """Take the errors out of the rows of a topic."""
    default = messages.ProduceResponse.PartitionProduceResponse()
    rows = [(row.index, 0, *row[2:5], *default[5:]) for row in topic.partition_responses]
    return topic._replace(partition_responses=tuple(type(default)(*row) for row in rows))


def test_an_answer_without_errors_is_written_by_hand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the comparison with the codec would compare the codec with itself."""
    row = messages.ProduceResponse.PartitionProduceResponse(1, 0, 2, 3, 4)
    topic = messages.ProduceResponse.TopicProduceResponse("t", bytes(16), [row])
    monkeypatch.setattr(codec, "write", None)
    assert encode_produced(9, 1, messages.ProduceResponse([topic]))
