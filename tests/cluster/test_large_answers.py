"""Test that a large answer in parts has the same content as one that comes at once."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from broker.wire.byte_cursor import WireError
from broker.wire.error_codes import ErrorCode
from broker.wire.frames import decode_response, encode_response
from broker.wire.messages import FetchResponse
from cluster.errors import BadRequestError
from cluster.fetches import large_answers
from cluster.fetches.large_answers import LargeAnswer
from cluster.pure.replica import Role
from cluster.registration import TopicIdentity
from cluster.requests import FetchAnswer, FollowerFetch
from cluster.run import peer_connection
from cluster.wire.follower_fetches import (
    API,
    MAY_LACK_OFFSETS,
    VERSION,
    PartitionId,
    key_of,
)
from cluster.wire.topic_ids import bytes_of, text_of
from logstore.format.kafka import record_batch as kafka
from support.places import fast_directory
from support.replica_nodes import SocketGroup, wait_until

IDS = [text_of(bytes([number]) * 16) for number in (1, 2)]
NUMBER = 77
FIRST, EPOCH = 500, 3
SEEDS = range(40)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small answers count as large."""
    monkeypatch.setattr(large_answers, "PART_BYTES", 3000)
    monkeypatch.setattr(large_answers, "WINDOW_BYTES", 700)
    monkeypatch.setattr(large_answers, "JOINED_BYTES", 800)
    monkeypatch.setattr(peer_connection, "LARGE_BYTES", 3000)


def batches(chance: random.Random, size_bytes: int) -> bytes:
    """Make batches with consecutive offsets and epochs."""
    data, offset, epoch = b"", FIRST, EPOCH
    while len(data) < size_bytes:
        count = chance.choice((1, 3, 30, 130))
        payload = kafka.build_payload([chance.randbytes(30)] * count, None, 5, None)
        data += b"".join(kafka.frame(payload, offset, epoch))
        offset, epoch = offset + count, epoch + chance.randrange(2)
    return data


def fetch_of(topic_id: str, partition: int) -> FollowerFetch:
    return FollowerFetch(TopicIdentity(topic_id, 1), partition, 2, 102, 9, FIRST, EPOCH)


def response(chance: random.Random, sizes: list[list[int]]) -> Any:
    """Make an answer with records of about these sizes, by topic and partition."""
    aborted = FetchResponse.AbortedTransaction(5, 6)
    topics = []
    for topic_id, row in zip(IDS, sizes, strict=True):
        partitions = [
            FetchResponse.PartitionData(
                number, 0, 10_000 + number, chance.choice((-1, MAY_LACK_OFFSETS)), 20,
                aborted_transactions=chance.choice((None, [], [aborted])),
                records=batches(chance, size) if size else b"",
            )
            for number, size in enumerate(row)
        ]  # fmt: skip
        topics.append(FetchResponse.FetchableTopicResponse("", bytes_of(topic_id), partitions))
    return FetchResponse(0, ErrorCode.NONE, 0, topics)


class Sent:
    """The bytes of an answer, as a connection returns them."""

    def __init__(self, frame: bytes) -> None:
        self.frame, self.at = frame, 0

    def read(self, size: int) -> bytes:
        assert 0 < size <= len(self.frame) - self.at, "it reads what nobody sent"
        self.at += size
        return self.frame[self.at - size : self.at]


def frame_of(answer: Any) -> bytes:
    return bytes(encode_response(API, VERSION, NUMBER, answer)[4:])


def decoded(answer: Any) -> Any:
    """Send an answer in one piece."""
    return decode_response(API, VERSION, frame_of(answer))[1]


def run(
    frame: bytes, take: Callable[[FetchAnswer], object], asked: list[FollowerFetch] | None = None
) -> tuple[Any, LargeAnswer]:
    """Read an answer to a request for all its partitions, by default."""
    if asked is None:
        asked = [fetch_of(topic_id, number) for topic_id in IDS for number in range(4)]
    sent = Sent(frame)
    large = LargeAnswer(sent.read, len(frame), NUMBER, {key_of(one): one for one in asked}, take)
    message = large.run()
    assert sent.at == len(frame)
    return message, large


def not_taken(part: FetchAnswer) -> None:
    raise AssertionError(part)


def rows_of(message: Any) -> dict[PartitionId, Any]:
    return {
        (text_of(topic.topic_id), row.partition_index): row
        for topic in message.responses
        for row in topic.partitions
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_the_parts_are_what_came(seed: int) -> None:
    """Each part has whole batches, and answers the fetch that follows the previous part."""
    chance = random.Random(seed)
    sizes = [[chance.choice((0, 100, 2500, 9000, 30_000)) for _ in range(3)] for _ in IDS]
    answer = response(chance, sizes)
    parts: dict[PartitionId, list[FetchAnswer]] = {}

    def take(part: FetchAnswer) -> None:
        parts.setdefault(key_of(part.request), []).append(part)

    message, large = run(frame_of(answer), take)
    before, after = rows_of(decoded(answer)), rows_of(message)
    assert before.keys() == after.keys()
    for key, row in before.items():
        if len(row.records) < large_answers.PART_BYTES:
            assert after[key] == row and key not in parts
            continue
        assert after[key] == row._replace(records=b"")
        assert b"".join(part.records for part in parts[key]) == row.records
        assert large.sizes[key] == len(row.records)
        expected = fetch_of(*key)
        for part in parts[key]:
            facts = row.high_watermark, part.records, None, row.log_start_offset
            may_lack = row.last_stable_offset == MAY_LACK_OFFSETS
            assert part == FetchAnswer(expected, *facts, may_lack)
            last = list(kafka_headers(part.records))[-1]
            expected = expected._replace(offset=last.last_offset + 1, last_epoch=last.leader_epoch)


def kafka_headers(records: bytes) -> Iterator[Any]:
    at = 0
    while at < len(records):
        header = kafka.read_header(records, at)
        yield header
        at += header.size_bytes
    assert at == len(records)


def test_partitions_with_an_error_and_unknown_ones_are_left_to_the_decoder() -> None:
    """Their records are in the small answer, and are not searched."""
    chance = random.Random(1)
    answer = response(chance, [[9000, 9000], [0]])
    topic = answer.responses[0]
    bad = topic.partitions[0]._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    topic = topic._replace(partitions=[bad, topic.partitions[1]])
    answer = answer._replace(responses=[topic, answer.responses[1]])
    message, large = run(frame_of(answer), not_taken, [fetch_of(IDS[0], 0)])
    assert message == decoded(answer) and not large.sizes


@pytest.mark.parametrize("seed", SEEDS[:15])
def test_a_damaged_answer_ends_with_an_error_or_is_read(seed: int) -> None:
    """The reader raises no other error, and no part has more than the received bytes."""
    chance = random.Random(seed)
    frame = bytearray(frame_of(response(chance, [[9000, 100], [9000]])))
    for _ in range(200):
        changed = bytearray(frame)
        for _ in range(chance.choice((1, 1, 3))):
            changed[chance.randrange(chance.choice((90, len(frame))))] = chance.randrange(256)
        taken: list[FetchAnswer] = []
        with suppress(BadRequestError, WireError):
            run(bytes(changed), taken.append)
        assert sum(len(part.records) for part in taken) < len(frame)


def test_an_answer_to_another_request_gives_no_part() -> None:
    """An answer that refuses the whole fetch, or ends inside a batch, gives no part, either."""
    chance = random.Random(2)
    answer = response(chance, [[9000], [0]])
    frame = frame_of(answer)
    with pytest.raises(BadRequestError, match="answered request 78"):
        run(struct.pack(">i", 78) + frame[4:], not_taken)
    refused = answer._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(BadRequestError, match="refused"):
        run(frame_of(refused), not_taken)
    records = answer.responses[0].partitions[0].records
    for end in (-1, -40):
        row = answer.responses[0].partitions[0]._replace(records=records[:end])
        topic = answer.responses[0]._replace(partitions=[row])
        taken: list[FetchAnswer] = []
        with pytest.raises(BadRequestError, match="inside a batch"):
            run(frame_of(answer._replace(responses=[topic])), taken.append)
        found = b"".join(part.records for part in taken)
        assert records.startswith(found) and list(kafka_headers(found))


def test_the_small_answer_is_like_one_that_was_decoded() -> None:
    """A diverging epoch and large records may be in the same answer."""
    answer = response(random.Random(3), [[9000, 0], [0]])
    topic = answer.responses[0]
    diverging = topic.partitions[1]._replace(diverging_epoch=FetchResponse.EpochEndOffset(2, 40))
    topic = topic._replace(partitions=[topic.partitions[0], diverging])
    answer = answer._replace(responses=[topic, answer.responses[1]])
    message, _ = run(frame_of(answer), lambda part: None)
    assert rows_of(message)[IDS[0], 1] == rows_of(decoded(answer))[IDS[0], 1]
    assert rows_of(message)[IDS[0], 1].diverging_epoch == (2, 40)


def test_followers_take_large_answers_while_leaders_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All replicas become equal, with all acknowledged records once, in order."""
    counts = [0]
    original = LargeAnswer.run

    def counted(large: LargeAnswer) -> Any:
        counts[0] += 1
        return original(large)

    monkeypatch.setattr(LargeAnswer, "run", counted)
    kept: list[bytes] = []
    with fast_directory() as root, SocketGroup(root) as group:
        for leader in (1, 2, 3, 1):
            group.lead(leader)
            for number in range(30):
                values = [b"%d-%d-%d-" % (leader, number, at) + os.urandom(60) for at in range(50)]
                produce = group.produce(*values)
                kept += values
            wait_until(lambda one=produce: one.acknowledged is not None)  # type: ignore[misc]
        assert [group.nodes[one].replica.role for one in (2, 3)] == [Role.FOLLOWER] * 2
        for broker in (1, 2, 3):
            wait_until(lambda one=broker: group.nodes[one].values() == kept)  # type: ignore[misc]
    assert counts[0] >= 4
