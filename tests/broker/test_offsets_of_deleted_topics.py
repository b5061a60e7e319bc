"""Test that the offsets of a deleted topic are deleted, even if another disk hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from broker import Broker, BrokerConfig
from broker.coordinator.offsets_topic import NAME, OFFSETS
from broker.wire import messages
from logstore import LogConfig, LogStore
from support.hanging import QUIET, Hang, hang
from support.kafka_client import KafkaClient

SECONDS = 30.0
SICK, WELL = "b", "a"  # a group in the partition on the disk that hangs, and another group
Asked = messages.OffsetCommitRequest
Group = messages.OffsetFetchRequest.OffsetFetchRequestGroup


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    """Return a store of two log dirs, each with a partition of groups; a topic is in the second."""
    with LogStore.open([tmp_path / "sick", tmp_path / "well"], config=QUIET) as store:
        for number, path in enumerate(store.log_dirs):
            store.create(NAME, number, log_dir=path, config=OFFSETS.config)
        well = store.log_dirs[1]
        store.create("t", 0, log_dir=well, config=LogConfig(record_format="kafka"))
        yield store


@pytest.fixture
def servers(store: LogStore) -> Iterator[str]:
    config = BrokerConfig(offsets_topic_num_partitions=2)
    with Broker.start(store=store, config=config) as broker:
        yield broker.bootstrap_servers


def commit(client: KafkaClient, group: str, offset: int) -> int:
    row = Asked.OffsetCommitRequestPartition(0, offset, -1, "")
    topics = [Asked.OffsetCommitRequestTopic(name="t", partitions=[row])]
    (topic,) = client.call(
        "OffsetCommit", 9, group_id=group, generation_id_or_member_epoch=-1, topics=topics
    ).topics
    code: int = topic.partitions[0].error_code
    return code


def committed(client: KafkaClient, group: str) -> int | None:
    """Return the offset that a group has committed; None if it has none."""
    (found,) = client.call("OffsetFetch", 8, groups=[Group(group, topics=None)]).groups
    assert not found.error_code
    offsets = [row.committed_offset for topic in found.topics for row in topic.partitions]
    return offsets[0] if offsets else None


def wait_until_none(client: KafkaClient, group: str) -> None:
    deadline, pause = time.monotonic() + SECONDS, threading.Event()
    while committed(client, group) is not None:
        assert time.monotonic() < deadline
        pause.wait(0.02)


def commit_until_done(client: KafkaClient, group: str) -> None:
    """Commit the first offset of a group; the groups may still be loading."""
    deadline, pause = time.monotonic() + SECONDS, threading.Event()
    while code := commit(client, group, 5):
        assert time.monotonic() < deadline, code
        pause.wait(0.02)


def delete_topic(client: KafkaClient) -> int:
    topics = [messages.DeleteTopicsRequest.DeleteTopicState("t")]
    (row,) = client.call("DeleteTopics", 6, topics=topics, timeout_ms=1000).responses
    code: int = row.error_code
    return code


def hang_groups(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[Hang]:
    """Let writes to the partition of groups in the first log dir hang."""
    return hang(monkeypatch, f"{store.log_dirs[0]}/{NAME}-0", "pwritev", "pwrite")


def test_regression_a_disk_of_groups_that_hangs(
    store: LogStore, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeleteTopics waited for the disk of the groups; so did the offsets on all other disks."""
    with KafkaClient(servers) as client:
        for group in (SICK, WELL):
            commit_until_done(client, group)
        with hang_groups(store, monkeypatch) as disk:
            assert delete_topic(client) == 0
            assert disk.began.wait(SECONDS)
            wait_until_none(client, WELL)
        wait_until_none(client, SICK)


def test_regression_a_late_deletion_keeps_the_offsets_of_a_new_topic(
    store: LogStore, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion of the offsets of the old topic also deleted offsets of the new topic."""
    with KafkaClient(servers) as client:
        for group in (SICK, "d"):  # the disk hangs at the first group of this partition
            commit_until_done(client, group)
        with hang_groups(store, monkeypatch) as disk:
            assert delete_topic(client) == 0
            assert disk.began.wait(SECONDS)
            client.create("t")
            assert committed(client, "d") is None
        commit_until_done(client, "d")
        wait_until_none(client, SICK)
        assert committed(client, "d") == 5
