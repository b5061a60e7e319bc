"""Check the requests about topics, except requests about records and settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.authorization.authorizer import Rights
from broker.authorization.bindings import CLUSTER_NAME, Operation
from broker.requests.access.checks import (
    CLUSTER,
    MESSAGE,
    NO_TOPIC,
    TOPIC,
    Asking,
    Checked,
    Refused,
    adding,
    each,
    each_topic,
    split,
)
from broker.wire.messages import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
    DescribeTopicPartitionsResponse,
    ListOffsetsResponse,
    MetadataResponse,
    OffsetForLeaderEpochResponse,
)

NO_ID = bytes(16)
NULL_MEANS_ALL = 1  # the first version of Metadata in which an empty list names no topic
NULL_NAMES = 12  # the first version of Metadata whose answer may have topics without a name
DELETED_BY_ID = 6  # the first version of DeleteTopics that names topics by their ids, too


def _offsets_row(topic: Any) -> Any:
    Row = ListOffsetsResponse.ListOffsetsPartitionResponse  # noqa: N806 - a class
    rows = [Row(one.partition_index, NO_TOPIC) for one in topic.partitions]
    return ListOffsetsResponse.ListOffsetsTopicResponse(topic.name, rows)


check_list_offsets = each_topic(
    Operation.DESCRIBE, "topics", ListOffsetsResponse, "topics", _offsets_row
)


def _epochs_row(topic: Any) -> Any:
    Row = OffsetForLeaderEpochResponse.EpochEndOffset  # noqa: N806 - a class
    rows = [Row(NO_TOPIC, one.partition) for one in topic.partitions]
    return OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic.topic, rows)


check_epochs = each(
    "topics",
    lambda topic, asking: (
        asking.sees(Operation.CLUSTER_ACTION, CLUSTER)
        or asking.may(Operation.DESCRIBE, TOPIC, topic.topic)
    ),
    OffsetForLeaderEpochResponse,
    "topics",
    _epochs_row,
)


def _deleted_records_row(topic: Any) -> Any:
    Row = DeleteRecordsResponse.DeleteRecordsPartitionResult  # noqa: N806 - a class
    rows = [Row(one.partition_index, -1, NO_TOPIC) for one in topic.partitions]
    return DeleteRecordsResponse.DeleteRecordsTopicResult(topic.name, rows)


check_delete_records = each_topic(
    Operation.DELETE, "topics", DeleteRecordsResponse, "topics", _deleted_records_row
)
check_create_partitions = each_topic(
    Operation.ALTER, "topics", CreatePartitionsResponse, "results",
    lambda topic: CreatePartitionsResponse.CreatePartitionsTopicResult(
        topic.name, NO_TOPIC, MESSAGE
    ),
)  # fmt: skip


# --- Metadata, DescribeTopicPartitions ------------------------------------------------------------


def check_metadata(asked: Any, asking: Asking) -> Checked | Refused:
    """Show only topics that the client may describe.

    If the client must not describe a topic, the answer is the same as for a missing topic.
    """
    if asked.topics is None or (not asked.topics and asking.version < NULL_MEANS_ALL):
        return Checked(asked, _showing(asking, ()))
    allowed, refused = split(asked.topics, lambda topic: _may_describe(topic, asking))
    Row = MetadataResponse.MetadataResponseTopic  # noqa: N806 - a class
    unnamed = None if asking.version >= NULL_NAMES else ""
    rows = [
        Row(NO_TOPIC, unnamed, one.topic_id) if one.name is None else Row(NO_TOPIC, one.name)
        for one in refused
    ]
    if allowed or asking.version >= NULL_MEANS_ALL:
        return Checked(asked._replace(topics=allowed), _showing(asking, rows))
    # In version 0, a request without topics asks for all topics, so the handler returns all topics.
    # Replace these topics by the rows of the refused topics.
    return Checked(asked._replace(topics=()), lambda answer: answer._replace(topics=rows))


def _may_describe(topic: Any, asking: Asking) -> bool:
    name = topic.name if topic.name is not None else asking.name_of(topic.topic_id)
    return name is None or asking.may(Operation.DESCRIBE, TOPIC, name)


def _showing(asking: Asking, refused: Sequence[Any]) -> Callable[[Any], Any]:
    """Make the function that adds rows, and leaves out topics that the client must not know."""

    def finish(answer: Any) -> Any:
        shown = [
            row
            for row in answer.topics
            if not row.name or asking.sees(Operation.DESCRIBE, TOPIC, row.name)
        ]
        return answer._replace(topics=[*shown, *refused])

    return finish


def check_topic_partitions(asked: Any, asking: Asking) -> Checked | Refused:
    """Describe only topics that the client may describe.

    If the client asks for all topics, the handler chooses the topics, because the cursor must name
    a topic that the client may describe.
    """
    if not asked.topics:
        return Checked(asked)
    check = each_topic(
        Operation.DESCRIBE, "topics", DescribeTopicPartitionsResponse, "topics",
        lambda topic: DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
            NO_TOPIC, topic.name, NO_ID
        ),
    )  # fmt: skip
    return check(asked, asking)


# --- CreateTopics, DeleteTopics -------------------------------------------------------------------


def may_create(rights: Rights, name: str) -> bool:
    """Report whether a client may create a topic."""
    return rights.sees(Operation.CREATE, CLUSTER, CLUSTER_NAME) or rights.may(
        Operation.CREATE, TOPIC, name
    )


def check_create_topics(asked: Any, asking: Asking) -> Checked | Refused:
    """Create only topics that the client may create; show only settings that it may see."""
    allowed, refused = split(asked.topics, lambda topic: may_create(asking.rights, topic.name))
    rows = [
        CreateTopicsResponse.CreatableTopicResult(
            name=name, error_code=NO_TOPIC, error_message=MESSAGE, configs=None
        )
        for name in dict.fromkeys(topic.name for topic in refused)
    ]
    if not allowed:
        return Refused(CreateTopicsResponse(topics=rows))

    def finish(answer: Any) -> Any:
        made = [_without_settings(row, asking) for row in answer.topics]
        return answer._replace(topics=[*made, *rows])

    return Checked(asked._replace(topics=allowed), finish)


def _without_settings(row: Any, asking: Asking) -> Any:
    if row.error_code or asking.sees(Operation.DESCRIBE_CONFIGS, TOPIC, row.name):
        return row
    return row._replace(
        topic_config_error_code=NO_TOPIC, num_partitions=-1, replication_factor=-1, configs=None
    )


def check_delete_topics(asked: Any, asking: Asking) -> Checked | Refused:
    """Delete only topics that the client may delete; do not reveal the name of a topic id."""
    Row = DeleteTopicsResponse.DeletableTopicResult  # noqa: N806 - a class
    if asking.version < DELETED_BY_ID:
        allowed, refused = split(
            asked.topic_names, lambda name: asking.may(Operation.DELETE, TOPIC, name)
        )
        rows = [Row(name, NO_ID, NO_TOPIC, MESSAGE) for name in refused]
        return _deleting(asked._replace(topic_names=allowed), allowed, rows)
    allowed, rows = [], []
    for one in asked.topics:
        name = one.name if one.name is not None else asking.name_of(one.topic_id)
        if name is None or asking.may(Operation.DELETE, TOPIC, name):
            allowed.append(one)
        else:
            is_known = one.name is not None or asking.sees(Operation.DESCRIBE, TOPIC, name)
            rows.append(Row(name if is_known else None, one.topic_id, NO_TOPIC, MESSAGE))
    return _deleting(asked._replace(topics=allowed), allowed, rows)


def _deleting(asked: Any, allowed: list[Any], rows: list[Any]) -> Checked | Refused:
    if not allowed:
        return Refused(DeleteTopicsResponse(responses=rows))
    return Checked(asked, adding("responses", rows))
