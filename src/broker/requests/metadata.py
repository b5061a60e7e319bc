"""Answer Metadata (3), DescribeCluster (60) and DescribeTopicPartitions (75)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker.authorization.bindings import CLUSTER_NAME, Operation, ResourceType
from broker.catalog.topics import NO_ID, Topic
from broker.machines.exchange import Answer, CloseConnectionError, Pending
from broker.requests import topic_changes
from broker.requests.access.topic_checks import may_create
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    DescribeClusterResponse,
    DescribeTopicPartitionsResponse,
    MetadataResponse,
)

NULL_MEANS_ALL = 1  # the first version of Metadata in which an empty list names no topic
NULL_NAMES = 12  # the first version of Metadata whose answer may have topics without a name
NOT_ASKED = -(2**31)  # the value if the client does not ask for its operations
PARTITIONS_MAX = 2000  # the largest number of partitions in an answer to DescribeTopicPartitions
# One request creates topics for about this long. A client may name thousands of unknown topics.
CREATING_SECONDS = 5.0
UNKNOWING_SECONDS = 1.0  # how long an answer waits for the first metadata from a controller


def answer(call: Call) -> Answer | Pending:
    """Describe the brokers, and the topics that the client names.

    If this broker knows nothing about its cluster yet, the answer waits for a moment; see
    `_Unknowing`.
    """
    if not call.services.topics.is_known:
        return _Unknowing(call)
    return _answer(call)


def _answer(call: Call) -> Answer:
    services, asked = call.services, call.request.message()
    topics = services.topics.current().by_name
    names_all = asked.topics is None or (not asked.topics and call.request.version < NULL_MEANS_ALL)
    if names_all:
        rows = [_topic_row(call, asked, topic) for topic in topics.values()]
    else:
        until = services.clock() + CREATING_SECONDS
        rows = [_asked_row(call, asked, one, until) for one in asked.topics]
    leadership = services.leadership
    brokers = [
        MetadataResponse.MetadataResponseBroker(*node)
        for node in leadership.nodes(call.client.endpoint)
    ]
    return call.answer(
        MetadataResponse(
            brokers=brokers,
            cluster_id=leadership.cluster_id,
            controller_id=leadership.controller_id,
            topics=rows,
            cluster_authorized_operations=_cluster_operations(
                call, asked.include_cluster_authorized_operations
            ),
        )
    )


def _cluster_operations(call: Call, is_asked: bool) -> int:
    """Return the client's allowed operations on the cluster: bit N for operation N."""
    if not is_asked:
        return NOT_ASKED
    if not call.rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return call.rights.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def _asked_row(call: Call, message: Any, asked: Any, until: float) -> Any:
    """Describe one topic that the client named; create it if the client and the broker allow it.

    Args:
        until: create no topic after this time.
    """
    services = call.services
    Row = MetadataResponse.MetadataResponseTopic  # noqa: N806 - a class
    if asked.name is None:
        topic = services.topics.current().by_id.get(asked.topic_id)
        if topic is None:
            name = None if call.request.version >= NULL_NAMES else ""
            return Row(ErrorCode.UNKNOWN_TOPIC_ID, name, asked.topic_id)
        return _topic_row(call, message, topic)
    topic = services.topics.get(asked.name)
    if topic is not None:
        return _topic_row(call, message, topic)
    if not (message.allow_auto_topic_creation and services.config.auto_create_topics_enable):
        code = topic_changes.fault_of_name(asked.name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Row(code, asked.name)
    if not may_create(call.rights, asked.name):
        return Row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked.name)
    if services.clock() >= until:
        later = ErrorCode.LEADER_NOT_AVAILABLE  # the client asks again
        return Row(topic_changes.fault_of_name(asked.name) or later, asked.name)
    code, topic = topic_changes.auto_create(services, asked.name)
    return Row(code, asked.name) if topic is None else _topic_row(call, message, topic)


def _topic_row(call: Call, message: Any, topic: Topic) -> Any:
    Partition = MetadataResponse.MetadataResponsePartition  # noqa: N806 - a class
    rows = []
    for number in topic.partitions:
        facts = call.services.leadership.facts_of(topic.name, number)
        leader, isr, offline = facts.leader, facts.isr, facts.offline
        rows.append(
            Partition(facts.error, number, leader.id, leader.epoch, facts.replicas, isr, offline)
        )
    operations = NOT_ASKED
    if message.include_topic_authorized_operations:
        operations = call.rights.operations(ResourceType.TOPIC, topic.name)
    return MetadataResponse.MetadataResponseTopic(
        ErrorCode.NONE, topic.name, topic.id, topic.is_internal, rows, operations
    )


def answer_cluster(call: Call) -> Answer:
    """Describe the brokers."""
    leadership = call.services.leadership
    asked = call.request.message()
    if asked.endpoint_type != 1:
        return call.answer(
            DescribeClusterResponse(
                error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message="this is a broker; controllers have no listener for clients",
                endpoint_type=asked.endpoint_type,
            )
        )
    brokers = [
        DescribeClusterResponse.DescribeClusterBroker(*node)
        for node in leadership.nodes(call.client.endpoint)
    ]
    return call.answer(
        DescribeClusterResponse(
            cluster_id=leadership.cluster_id,
            controller_id=leadership.controller_id,
            brokers=brokers,
            cluster_authorized_operations=_cluster_operations(
                call, asked.include_cluster_authorized_operations
            ),
        )
    )


def answer_topic_partitions(call: Call) -> Answer:
    """Describe topics in the order of their names, up to a limit of partitions.

    If some partitions do not fit, the answer has a cursor. The client sends the cursor to ask for
    the rest.
    """
    services, asked = call.services, call.request.message()
    is_known = services.topics.is_known
    known, rights = services.topics.current().by_name, call.rights
    names = sorted(
        {one.name for one in asked.topics}
        or (name for name in known if rights.sees(Operation.DESCRIBE, ResourceType.TOPIC, name))
    )
    start = ("", 0) if asked.cursor is None else tuple(asked.cursor)
    left = min(max(asked.response_partition_limit, 1), PARTITIONS_MAX)
    Response = DescribeTopicPartitionsResponse  # noqa: N806 - a class
    rows, next_cursor = [], None
    for name in names:
        if name < start[0]:
            continue
        topic = known.get(name)
        if topic is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not is_known:  # after this code, clients ask again
                unknown = ErrorCode.LEADER_NOT_AVAILABLE
            code = topic_changes.fault_of_name(name) or unknown
            rows.append(Response.DescribeTopicPartitionsResponseTopic(code, name, NO_ID))
            continue
        first = start[1] if name == start[0] else 0
        wanted = [number for number in topic.partitions if number >= first]
        partitions = [_described(services, name, number) for number in wanted[:left]]
        rows.append(
            Response.DescribeTopicPartitionsResponseTopic(
                ErrorCode.NONE,
                name,
                topic.id,
                topic.is_internal,
                partitions,
                rights.operations(ResourceType.TOPIC, name),
            )
        )
        left -= len(partitions)
        if len(partitions) < len(wanted):
            next_cursor = Response.Cursor(name, wanted[len(partitions)])
            break
    return call.answer(Response(topics=rows, next_cursor=next_cursor))


def _described(services: Services, name: str, number: int) -> Any:
    facts = services.leadership.facts_of(name, number)
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
        facts.error, number, facts.leader.id, facts.leader.epoch, facts.replicas, facts.isr,
        facts.elr, facts.suspects, facts.offline,
    )  # fmt: skip


class _Unknowing(Pending):
    """A Metadata request to a broker that knows nothing about its cluster yet.

    Usually a controller sends the metadata within a few milliseconds, and the request waits for
    this. If no metadata comes, the answer must not say that a topic does not exist:

    - A request for all topics, or only for the brokers, gets an answer without brokers and topics.
      Clients keep what they know, and ask again (Java's, and librdkafka).
    - If a request names topics, the connection is closed, and the client asks another broker. An
      answer that has the named topics, but no brokers, does harm: librdkafka from 2.10 on removes
      all brokers that it knows, and may never connect again. An answer without topics also does
      harm: Java's admin client would assume that the topics do not exist.
    """

    def __init__(self, call: Call) -> None:
        asked = call.request.message()
        super().__init__(call.services.clock() + UNKNOWING_SECONDS)
        request = replace(call.request, decoded=asked, body=memoryview(b""))
        self._call, self._names_topics = call._replace(request=request), bool(asked.topics)
        self._leave: Callable[[], None] | None = None

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` after each change of the metadata."""
        self._leave = self._call.services.topic_admin.watch(wake)

    def look(self, *, is_last: bool) -> Answer | None:
        """Answer if this broker now knows its cluster."""
        if self._call.services.topics.is_known:
            return _answer(self._call)
        if not is_last:
            return None
        if self._names_topics:
            raise CloseConnectionError(
                "this broker has no metadata from a controller yet, so the client must ask another "
                "broker for its topics"
            )
        return _answer(self._call)

    def close(self) -> None:
        """Stop watching."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()
