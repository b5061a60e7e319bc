"""A request for each right that an API of transactions needs; see `access_probes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.authorization.bindings import CLUSTER_NAME
from broker.wire import messages as m
from support.access_probes import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Probe,
    World,
    hides,
)
from support.kafka_client import KafkaClient

NAME = "x"  # a transactional id that has a transaction with the topic `t`
OTHER_ID = 10**9  # a producer id that it does not have
ID_AND_TOPIC = 3  # the last version of AddPartitionsToTxn that clients send


def begin(client: KafkaClient) -> None:
    """Begin the transaction."""
    fields: dict[str, Any] = {"transactional_id": NAME, "transaction_timeout_ms": 600_000}
    asked = client.call("FindCoordinator", key_type=1, coordinator_keys=[NAME])
    assert asked.coordinators[0].error_code == 0
    made = client.call("InitProducerId", **fields)
    while made.error_code in (14, 15, 16):  # it is loaded
        made = client.call("InitProducerId", **fields)
    assert made.error_code == 0
    added = _partitions(made.producer_id, made.producer_epoch)
    assert not _refuses_partitions(0)(client.call("AddPartitionsToTxn", ID_AND_TOPIC, **added))


def _partitions(producer_id: int = OTHER_ID, epoch: int = 0) -> dict[str, Any]:
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", [0])
    return {
        "v3_and_below_transactional_id": NAME, "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch, "v3_and_below_topics": [topic],
    }  # fmt: skip


def _refuses_partitions(code: int) -> Callable[[Any], bool]:
    """Make the predicate that a partition has this error; 0 stands for any error."""

    def refuses(answer: Any) -> bool:
        topics = answer.results_by_topic_v3_and_below
        codes = {row.partition_error_code for one in topics for row in one.results_by_partition}
        return code in codes if code else any(codes)

    return refuses


def _verification(world: World) -> dict[str, Any]:
    asked = m.AddPartitionsToTxnRequest
    topic = asked.AddPartitionsToTxnTopic("t", [0])
    return {"transactions": [asked.AddPartitionsToTxnTransaction(NAME, OTHER_ID, 0, True, [topic])]}


def _of_producer(**fields: Any) -> dict[str, Any]:
    return {"transactional_id": NAME, "producer_id": OTHER_ID, "producer_epoch": 0, **fields}


def _markers(world: World) -> dict[str, Any]:
    asked = m.WriteTxnMarkersRequest
    topic = asked.WritableTxnMarkerTopic("absent", [0])
    return {"markers": [asked.WritableTxnMarker(OTHER_ID, 0, False, [topic], 0)]}


def _offsets(world: World) -> dict[str, Any]:
    asked = m.TxnOffsetCommitRequest
    partition = asked.TxnOffsetCommitRequestPartition(0, 1, -1, "")
    topic = asked.TxnOffsetCommitRequestTopic("t", [partition])
    return _of_producer(group_id="g", topics=[topic])


ID, TO_TOPIC, OF_GROUP = (WRITE, TRANSACTIONAL_ID, NAME), (READ, TOPIC, "t"), (READ, GROUP, "g")
TRANSACTION_PROBES: tuple[Probe, ...] = (
    Probe("AddPartitionsToTxn", WRITE, TRANSACTIONAL_ID, NAME, lambda w: _partitions(),
          ID_AND_TOPIC, [(WRITE, TOPIC, "t")], is_refused=_refuses_partitions(53)),
    Probe("AddPartitionsToTxn", WRITE, TOPIC, "t", lambda w: _partitions(), ID_AND_TOPIC, [ID],
          is_refused=_refuses_partitions(29)),
    Probe("AddPartitionsToTxn", CLUSTER_ACTION, CLUSTER, CLUSTER_NAME, _verification),
    Probe("AddOffsetsToTxn", WRITE, TRANSACTIONAL_ID, NAME, lambda w: _of_producer(group_id="g"),
          others=[OF_GROUP]),
    Probe("AddOffsetsToTxn", READ, GROUP, "g", lambda w: _of_producer(group_id="g"), others=[ID]),
    Probe("EndTxn", WRITE, TRANSACTIONAL_ID, NAME, lambda w: _of_producer(committed=False)),
    Probe("WriteTxnMarkers", CLUSTER_ACTION, CLUSTER, CLUSTER_NAME, _markers, also=[ALTER]),
    Probe("WriteTxnMarkers", ALTER, CLUSTER, CLUSTER_NAME, _markers, also=[CLUSTER_ACTION]),
    Probe("TxnOffsetCommit", WRITE, TRANSACTIONAL_ID, NAME, _offsets, others=[OF_GROUP, TO_TOPIC]),
    Probe("TxnOffsetCommit", READ, GROUP, "g", _offsets, others=[ID, TO_TOPIC]),
    Probe("TxnOffsetCommit", READ, TOPIC, "t", _offsets, others=[ID, OF_GROUP]),
    Probe("DescribeProducers", READ, TOPIC, "t", lambda w: {
        "topics": [m.DescribeProducersRequest.TopicRequest("t", [0])]}),
    Probe("DescribeTransactions", DESCRIBE, TRANSACTIONAL_ID, NAME,
          lambda w: {"transactional_ids": [NAME]}),
    Probe("DescribeTransactions", DESCRIBE, TOPIC, "t", lambda w: {"transactional_ids": [NAME]},
          others=[(DESCRIBE, TRANSACTIONAL_ID, NAME)], is_refused=hides("t")),
    Probe("ListTransactions", DESCRIBE, TRANSACTIONAL_ID, NAME, lambda w: {
        "state_filters": [], "producer_id_filters": []}, is_refused=hides(NAME)),
)  # fmt: skip
