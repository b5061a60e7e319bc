"""Play a transactional producer over a bare connection: each request, and its error code."""

from __future__ import annotations

import time
from typing import Any

from broker.wire import messages
from support.kafka_client import KafkaClient, batch_of

TRANSACTIONAL = 0x10
SECONDS = 20.0
BUSY = (14, 15, 16, 51)  # the client sends the request again
SMALL = {"transaction_state_log_num_partitions": 3, "offsets_topic_num_partitions": 2}
Place = tuple[str, int]


class RawProducer:
    """A transactional producer that does only what a test tells it."""

    def __init__(self, client: KafkaClient, name: str, timeout_ms: int = 60_000) -> None:
        self.client, self.name, self.timeout_ms = client, name, timeout_ms
        self.id = self.epoch = -1
        self.sequences: dict[Place, int] = {}

    def again(self, call: Any, *codes: int) -> int:
        """Ask until the answer is none of these codes."""
        deadline = time.monotonic() + SECONDS
        while (code := call()) in (codes or BUSY):
            assert time.monotonic() < deadline, code
        return int(code)

    def init(self, version: int = 5, **fields: Any) -> int:
        """Ask once for a producer id and an epoch."""
        answer = self.client.call(
            "InitProducerId", version, transactional_id=self.name,
            transaction_timeout_ms=self.timeout_ms, **fields,
        )  # fmt: skip
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return int(answer.error_code)

    def begin(self) -> RawProducer:
        """Ask until the producer has an epoch."""
        assert self.again(self.init) == 0
        return self

    def add(self, *places: Place, version: int = 3) -> int:
        """Add partitions; gives the code of the first."""
        Topic = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic  # noqa: N806 - a class
        topics = [Topic(topic, [number]) for topic, number in places]
        answer = self.client.call(
            "AddPartitionsToTxn", version, v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id, v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )  # fmt: skip
        row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        return int(row.partition_error_code)

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int = 11, **changed: Any
    ) -> int:
        """Append one batch; gives its error code."""
        place = topic, partition
        sequence = self.sequences.get(place, 0)
        batch = batch_of(
            *values, producer=(self.id, self.epoch, sequence), attributes=TRANSACTIONAL
        )
        fields = {"transactional_id": self.name, **changed}
        row = self.client.produce(topic, batch, partition, version, **fields)
        if not row.error_code:
            self.sequences[place] = sequence + len(values)
        return int(row.error_code)

    def end(self, *, commit: bool, version: int = 4) -> int:
        """Ask once to end the transaction."""
        answer = self.client.call(
            "EndTxn", version, transactional_id=self.name, producer_id=self.id,
            producer_epoch=self.epoch, committed=commit,
        )  # fmt: skip
        return int(answer.error_code)

    def end_raising(self, *, commit: bool, asker: tuple[int, int] | None = None) -> int:
        """Ask once to end the transaction with the newer protocol; take the id and the epoch.

        Args:
            asker: another producer id and epoch than the present ones.
        """
        producer_id, epoch = asker or (self.id, self.epoch)
        answer = self.client.call(
            "EndTxn", 5, transactional_id=self.name, producer_id=producer_id,
            producer_epoch=epoch, committed=commit,
        )  # fmt: skip
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return int(answer.error_code)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Append one batch with the newer protocol; wait for the markers before it."""
        return self.again(lambda: self.produce(topic, *values, partition=partition, version=12))

    def add_offsets(self, group: str, version: int = 4) -> int:
        """Add the offsets of a group."""
        answer = self.client.call(
            "AddOffsetsToTxn", version, transactional_id=self.name, producer_id=self.id,
            producer_epoch=self.epoch, group_id=group,
        )  # fmt: skip
        return int(answer.error_code)

    def commit_offset(
        self, group: str, topic: str, offset: int, version: int = 4, **fields: Any
    ) -> int:
        """Commit one offset as a part of the transaction."""
        request = messages.TxnOffsetCommitRequest
        row = request.TxnOffsetCommitRequestPartition(0, offset, -1, "")
        answer = self.client.call(
            "TxnOffsetCommit", version, transactional_id=self.name, group_id=group,
            producer_id=self.id, producer_epoch=self.epoch,
            topics=[request.TxnOffsetCommitRequestTopic(topic, [row])], **fields,
        )  # fmt: skip
        return int(answer.topics[0].partitions[0].error_code)

    def send_offset(self, group: str, topic: str, offset: int) -> int:
        """Commit one offset with the newer protocol; wait for the markers before it."""
        return self.again(lambda: self.commit_offset(group, topic, offset, version=5))

    def state(self) -> Any:
        """Describe the transactional id."""
        (row,) = self.client.call(
            "DescribeTransactions", transactional_ids=[self.name]
        ).transaction_states
        return row

    def wait_for(self, title: str) -> Any:
        """Wait until the transactional id is in a state."""
        deadline = time.monotonic() + SECONDS
        while (row := self.state()).transaction_state != title:
            assert time.monotonic() < deadline, row
        return row

    def finish(self, *, commit: bool) -> None:
        """End the transaction, and wait until all its markers are written."""
        assert self.end(commit=commit) == 0
        self.wait_for("CompleteCommit" if commit else "CompleteAbort")


def same(client: KafkaClient, old: RawProducer) -> RawProducer:
    """Continue as the same producer over another connection."""
    new = RawProducer(client, old.name)
    new.id, new.epoch, new.sequences = old.id, old.epoch, old.sequences
    return new


def fetch_offset(
    client: KafkaClient, group: str, topic: str, *, stable: bool = False
) -> tuple[int, int]:
    """Ask for a committed offset; gives its error code and the offset."""
    request = messages.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    asked = request.OffsetFetchRequestGroup(group, topics=topics)
    deadline = time.monotonic() + SECONDS
    while True:
        (row,) = client.call("OffsetFetch", groups=[asked], require_stable=stable).groups
        if row.error_code != 14:
            break
        assert time.monotonic() < deadline
    assert row.error_code == 0
    one = row.topics[0].partitions[0]
    return int(one.error_code), int(one.committed_offset)


def commit_simple(client: KafkaClient, group: str, topic: str, offset: int) -> None:
    """Commit an offset without a member and without a transaction."""
    request = messages.OffsetCommitRequest
    row = request.OffsetCommitRequestPartition(0, offset, -1, "")
    answer = client.call(
        "OffsetCommit", group_id=group, generation_id_or_member_epoch=-1,
        topics=[request.OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )  # fmt: skip
    assert answer.topics[0].partitions[0].error_code == 0
