"""Answer AlterPartitionReassignments (45), ListPartitionReassignments (46) and ElectLeaders (43).

With one broker, no replica can be on another broker, so no reassignment ever runs. When Kafka's
tools move replicas between log dirs, they send these requests first, and then AlterReplicaLogDirs.
"""

from __future__ import annotations

from typing import Any

from broker.machines.exchange import Answer
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)

ELECTIONS = (0, 1)  # 0 is preferred; 1 is unclean: the new leader may lack records


def _has(call: Call, name: str, partition: int) -> bool:
    topic = call.services.topics.get(name)
    return topic is not None and partition in topic.partitions


def answer_alter(call: Call) -> Answer:
    """Accept the present replicas; refuse other brokers, and refuse to cancel a reassignment."""
    Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse  # noqa: N806 - a class
    topics = [
        Topic(topic.name, [_altered(call, topic.name, one) for one in topic.partitions])
        for topic in call.request.message().topics
    ]
    return call.answer(AlterPartitionReassignmentsResponse(responses=topics, error_message=None))


def _altered(call: Call, name: str, asked: Any) -> Any:
    Row = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse  # noqa: N806 - a class
    replicas = list(call.services.leadership.replica_ids)
    code, reason = ErrorCode.NONE, None
    if not _has(call, name, asked.partition_index):
        code, reason = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
    elif asked.replicas is None:
        code, reason = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is under way"
    elif list(asked.replicas) != replicas:
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        reason = f"the brokers are {replicas}, not {list(asked.replicas)}"
    return Row(asked.partition_index, code, reason)


def answer_list(call: Call) -> Answer:
    """Return an empty list, because no reassignment runs."""
    return call.answer(ListPartitionReassignmentsResponse(error_message=None))


def answer_elect(call: Call) -> Answer:
    """Answer that no election is needed, because this broker leads each partition."""
    Response = ElectLeadersResponse  # noqa: N806 - a class
    asked, rows = call.request.message(), []
    is_known = asked.election_type in ELECTIONS
    fault = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    for topic in asked.topic_partitions or ():
        results = []
        for number in topic.partitions:
            code, reason = ErrorCode.ELECTION_NOT_NEEDED, "this broker leads it"
            if fault:
                code, reason = fault, f"there is no election of type {asked.election_type}"
            elif not _has(call, topic.topic, number):
                code, reason = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
            results.append(Response.PartitionResult(number, code, reason))
        rows.append(Response.ReplicaElectionResult(topic.topic, results))
    return call.answer(Response(error_code=fault, replica_election_results=rows))
