"""Check the requests of idempotent and transactional producers, and requests about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.authorization.bindings import Operation
from broker.requests.access.checks import (
    CLUSTER,
    GROUP,
    MESSAGE,
    NO_CLUSTER,
    NO_GROUP,
    NO_TOPIC,
    NO_TRANSACTIONAL_ID,
    TOPIC,
    TRANSACTIONAL_ID,
    Asking,
    Checked,
    Refused,
    adding,
    each_topic,
    split,
)
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
    WriteTxnMarkersResponse,
)

BATCHED = 4  # the first version of AddPartitionsToTxn with several transactions: for brokers only


def _may_write(asked: Any, asking: Asking) -> bool:
    return asking.may(Operation.WRITE, TRANSACTIONAL_ID, asked.transactional_id)


def check_producer_id(asked: Any, asking: Asking) -> Checked | Refused:
    """Give an id to a client if it may append to any topic, or be an idempotent producer."""
    if asked.transactional_id is not None:
        return Checked(asked) if _may_write(asked, asking) else _no_id(NO_TRANSACTIONAL_ID)
    if asking.rights.sees_any(Operation.WRITE, TOPIC) or asking.may(
        Operation.IDEMPOTENT_WRITE, CLUSTER
    ):
        return Checked(asked)
    return _no_id(NO_CLUSTER)


def _no_id(code: ErrorCode) -> Refused:
    return Refused(InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))


# --- the steps of a transaction -------------------------------------------------------------------


def check_add_partitions(asked: Any, asking: Asking) -> Checked | Refused:
    """Add partitions only if the client may append to all of them."""
    if asking.version >= BATCHED:
        if asking.may(Operation.CLUSTER_ACTION, CLUSTER):
            return Checked(asked)
        return Refused(AddPartitionsToTxnResponse(error_code=NO_CLUSTER))
    topics = asked.v3_and_below_topics
    is_owner = asking.may(Operation.WRITE, TRANSACTIONAL_ID, asked.v3_and_below_transactional_id)
    if not is_owner:
        return _no_partitions([(topic, NO_TRANSACTIONAL_ID) for topic in topics])
    allowed, refused = split(topics, lambda topic: asking.may(Operation.WRITE, TOPIC, topic.name))
    if not refused:
        return Checked(asked)
    left = [(topic, ErrorCode.OPERATION_NOT_ATTEMPTED) for topic in allowed]
    return _no_partitions([*left, *((topic, NO_TOPIC) for topic in refused)])


def _no_partitions(topics: Sequence[tuple[Any, ErrorCode]]) -> Refused:
    Response = AddPartitionsToTxnResponse  # noqa: N806 - a class
    rows = [
        Response.AddPartitionsToTxnTopicResult(
            topic.name,
            [Response.AddPartitionsToTxnPartitionResult(one, code) for one in topic.partitions],
        )
        for topic, code in topics
    ]
    return Refused(Response(results_by_topic_v3_and_below=rows))


def check_add_offsets(asked: Any, asking: Asking) -> Checked | Refused:
    """Add a group's offsets to a transaction if the client may read the group."""
    if not _may_write(asked, asking):
        return Refused(AddOffsetsToTxnResponse(error_code=NO_TRANSACTIONAL_ID))
    if not asking.may(Operation.READ, GROUP, asked.group_id):
        return Refused(AddOffsetsToTxnResponse(error_code=NO_GROUP))
    return Checked(asked)


def check_end(asked: Any, asking: Asking) -> Checked | Refused:
    """End a transaction of a transactional id that the client may use."""
    if _may_write(asked, asking):
        return Checked(asked)
    return Refused(EndTxnResponse(error_code=NO_TRANSACTIONAL_ID))


def _offsets_row(topic: Any, code: ErrorCode) -> Any:
    Row = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition  # noqa: N806 - a class
    rows = [Row(one.partition_index, code) for one in topic.partitions]
    return TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(topic.name, rows)


_check_offset_topics = each_topic(
    Operation.READ, "topics", TxnOffsetCommitResponse, "topics",
    lambda topic: _offsets_row(topic, NO_TOPIC),
)  # fmt: skip


def check_commit_offsets(asked: Any, asking: Asking) -> Checked | Refused:
    """Commit offsets of topics that the client may read, for a group that it may read."""
    code = ErrorCode.NONE
    if not _may_write(asked, asking):
        code = NO_TRANSACTIONAL_ID
    elif not asking.may(Operation.READ, GROUP, asked.group_id):
        code = NO_GROUP
    if code:
        rows = [_offsets_row(topic, code) for topic in asked.topics]
        return Refused(TxnOffsetCommitResponse(topics=rows))
    return _check_offset_topics(asked, asking)


def check_markers(asked: Any, asking: Asking) -> Checked | Refused:
    """Write the markers of a transaction for a broker, or for an administrator's client."""
    is_allowed = asking.sees(Operation.ALTER, CLUSTER) or asking.may(
        Operation.CLUSTER_ACTION, CLUSTER
    )
    if is_allowed:
        return Checked(asked)
    Response = WriteTxnMarkersResponse  # noqa: N806 - a class
    Row = Response.WritableTxnMarkerPartitionResult  # noqa: N806 - a class
    markers = [
        Response.WritableTxnMarkerResult(
            marker.producer_id,
            [
                Response.WritableTxnMarkerTopicResult(
                    topic.name, [Row(one, NO_CLUSTER) for one in topic.partition_indexes]
                )
                for topic in marker.topics
            ],
        )
        for marker in asked.markers
    ]
    return Refused(Response(markers=markers))


# --- questions ------------------------------------------------------------------------------------


def _producers_row(topic: Any) -> Any:
    Row = DescribeProducersResponse.PartitionResponse  # noqa: N806 - a class
    rows = [Row(one, NO_TOPIC, MESSAGE) for one in topic.partition_indexes]
    return DescribeProducersResponse.TopicResponse(topic.name, rows)


check_producers = each_topic(
    Operation.READ, "topics", DescribeProducersResponse, "topics", _producers_row
)


def check_describe(asked: Any, asking: Asking) -> Checked | Refused:
    """Describe transactions that the client may describe, with topics that it may describe."""
    allowed, refused = split(
        asked.transactional_ids,
        lambda name: asking.may(Operation.DESCRIBE, TRANSACTIONAL_ID, name),
    )
    State = DescribeTransactionsResponse.TransactionState  # noqa: N806 - a class
    finish = adding("transaction_states", [State(NO_TRANSACTIONAL_ID, name) for name in refused])

    def shown(answer: Any) -> Any:
        rows = [
            row._replace(
                topics=[
                    one for one in row.topics if asking.sees(Operation.DESCRIBE, TOPIC, one.topic)
                ]
            )
            for row in answer.transaction_states
        ]
        return finish(answer._replace(transaction_states=rows))

    return Checked(asked._replace(transactional_ids=allowed), shown)


def check_list(asked: Any, asking: Asking) -> Checked | Refused:
    """List only transactional ids that the client may describe."""

    def shown(answer: Any) -> Any:
        rows = [
            row
            for row in answer.transaction_states
            if asking.sees(Operation.DESCRIBE, TRANSACTIONAL_ID, row.transactional_id)
        ]
        return answer._replace(transaction_states=rows)

    return Checked(asked, shown)
