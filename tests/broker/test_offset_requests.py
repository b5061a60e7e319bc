"""Test offsets by time, special offsets, and the ends of leader epochs."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Broker
from broker.wire import messages
from logstore import LogConfig
from support.kafka_client import KafkaClient, batch_of

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def listed(
    client: KafkaClient,
    topic: str,
    timestamp: int,
    version: int = 10,
    isolation_level: int = 0,
    epoch: int = -1,
    partition: int = 0,
) -> Any:
    """Ask for the offset of one timestamp."""
    request = messages.ListOffsetsRequest
    one = request.ListOffsetsPartition(partition, epoch, timestamp)
    answer = client.call(
        "ListOffsets", version, replica_id=-1, isolation_level=isolation_level,
        topics=[request.ListOffsetsTopic(topic, [one])],
    )  # fmt: skip
    return answer.topics[0].partitions[0]


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """Make a topic with records at the times 1000 to 1900; the last but one is the latest."""
    with KafkaClient(broker.bootstrap_servers) as client:
        client.create("offsets")
        log = broker.store["offsets", 0]
        log.extend([b"a", b"b", b"c"], timestamps=[1000, 1100, 1200])
        log.extend([b"d", b"e"], timestamps=[1900, 1300])
    return "offsets"


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize(
    ("wanted", "first_version", "expected"),
    [
        (-1, 1, (-1, 5)), (-2, 1, (-1, 0)), (-3, 7, (1900, 3)), (-4, 8, (-1, 0)),
        (-5, 9, (-1, -1)), (0, 1, (1000, 0)), (1000, 1, (1000, 0)), (1001, 1, (1100, 1)),
        (1200, 1, (1200, 2)), (1201, 1, (1900, 3)), (1901, 1, (-1, -1)), (2**62, 1, (-1, -1)),
    ],
)  # fmt: skip
def test_each_version_and_point(
    client: KafkaClient,
    topic: str,
    version: int,
    wanted: int,
    first_version: int,
    expected: tuple[int, int],
) -> None:
    """Offsets are exact inside a batch; an empty result is no error; unknown points get 35."""
    row = listed(client, topic, wanted, version)
    if version < first_version:
        assert row.error_code == 35
        return
    assert (row.error_code, row.timestamp, row.offset) == (0, *expected)
    if version >= 4:
        assert row.leader_epoch == (-1 if row.offset < 0 else 0)


@pytest.mark.parametrize("codec", CODECS)
def test_times_inside_compressed_batches(client: KafkaClient, broker: Broker, codec: str) -> None:
    """A compressed batch is searched record by record."""
    config = LogConfig(record_format="kafka", compression_type=codec)
    log = broker.store.create(f"times-{codec}", 0, config=config)
    log.extend([b"x"] * 100, timestamps=list(range(5000, 5100)))
    row = listed(client, f"times-{codec}", 5042)
    assert (row.timestamp, row.offset) == (5042, 42)


def test_the_end_is_that_of_the_reader(client: KafkaClient, broker: Broker) -> None:
    """The end is the high watermark, or the last stable offset for committed reads."""
    client.create("ends")
    log = broker.store["ends", 0]
    log.append_encoded(batch_of(b"plain", timestamp=10))
    log.append_encoded(batch_of(b"open", timestamp=20, producer=(7, 0, 0), attributes=0x10))
    assert listed(client, "ends", -1).offset == 2
    assert listed(client, "ends", -1, isolation_level=1).offset == 1
    assert listed(client, "ends", 15).offset == 1
    assert listed(client, "ends", 15, isolation_level=1).offset == -1


def test_an_empty_log_and_an_unknown_one(client: KafkaClient) -> None:
    """An empty log has the offsets 0 and no timestamp; an unknown topic gets error 3."""
    client.create("empty")
    assert [listed(client, "empty", wanted).offset for wanted in (-1, -2, -3, 0)] == [0, 0, -1, -1]
    assert listed(client, "none", -1).error_code == 3
    assert listed(client, "empty", -1, partition=1).error_code == 3
    assert listed(client, "empty", -6).error_code == 35


def test_regression_a_marker_is_not_the_latest_record(client: KafkaClient, broker: Broker) -> None:
    """The marker has the broker's time, which is later; the client asks for a client's record."""
    client.create("latest")
    log = broker.store["latest", 0]
    log.append_encoded(batch_of(b"plain", timestamp=30))
    log.append_encoded(batch_of(b"done", timestamp=20, producer=(7, 0, 0), attributes=0x10))
    log.append_marker(7, 0, commit=True, coordinator_epoch=0)
    for level in (0, 1):
        row = listed(client, "latest", -3, isolation_level=level)
        assert (row.error_code, row.timestamp, row.offset) == (0, 30, 0)
    log.append_encoded(batch_of(b"open", timestamp=40, producer=(7, 0, 1), attributes=0x10))
    assert listed(client, "latest", -3).offset == 3
    assert listed(client, "latest", -3, isolation_level=1).offset == -1
    log.append_marker(7, 0, commit=False, coordinator_epoch=0)
    assert listed(client, "latest", -3, isolation_level=1).offset == 3


def ended(client: KafkaClient, topic: str, leader_epoch: int, current: int = -1) -> Any:
    """Ask for the end of a leader epoch."""
    request = messages.OffsetForLeaderEpochRequest
    one = request.OffsetForLeaderPartition(0, current, leader_epoch)
    answer = client.call(
        "OffsetForLeaderEpoch", replica_id=-1, topics=[request.OffsetForLeaderTopic(topic, [one])]
    )
    return answer.topics[0].partitions[0]


def test_leader_epochs_end_where_the_next_one_begins(client: KafkaClient, broker: Broker) -> None:
    """The answer has the largest epoch up to the wanted one; a later epoch than all is unknown."""
    client.create("leader-epochs")
    log = broker.store["leader-epochs", 0]
    for epoch, times in ((0, [10, 11]), (3, [20]), (7, [30, 31, 32])):
        log.leader_epoch = epoch
        log.extend([b"x"] * len(times), timestamps=times)
    for wanted, expected in ((0, (0, 2)), (2, (0, 2)), (3, (3, 3)), (7, (7, 6)), (9, (-1, -1))):
        row = ended(client, "leader-epochs", wanted)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (0, *expected)
    assert [listed(client, "leader-epochs", at).leader_epoch for at in (11, 20, 31, -1)] == [
        0,
        3,
        7,
        7,
    ]
    assert [ended(client, "leader-epochs", 7, at).error_code for at in (6, 7, 8)] == [74, 0, 75]
    assert [listed(client, "leader-epochs", -1, epoch=at).error_code for at in (6, 7, 8)] == [
        74,
        0,
        75,
    ]
    assert ended(client, "none", 0).error_code == 3


def test_regression_a_deleted_epoch_ends_where_the_log_begins(
    client: KafkaClient, broker: Broker
) -> None:
    """The answer must not be "unknown", or a consumer would reset its offset for no reason."""
    client.create("deleted-epoch")
    log = broker.store["deleted-epoch", 0]
    for epoch in (2, 5):
        log.leader_epoch = epoch
        log.extend([b"x", b"y"])
    log.delete_records_before(2)
    for wanted, expected in ((1, (1, 2)), (2, (2, 2)), (4, (4, 2)), (5, (5, 4)), (6, (-1, -1))):
        row = ended(client, "deleted-epoch", wanted)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (0, *expected)
    assert ended(client, "deleted-epoch", -1).end_offset == -1
