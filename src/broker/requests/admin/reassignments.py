"""Answer AlterPartitionReassignments (45), ListPartitionReassignments (46) and ElectLeaders (43).

When Kafka's tools move replicas between log dirs, they send these requests first, and then
AlterReplicaLogDirs. `Services.replica_changes` makes the changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeVar

from broker.catalog.replica_changes import Outcome, Place
from broker.machines.exchange import Answer
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)

# the type of an unclean election: the new leader may lack records
PREFERRED, UNCLEAN = ELECTIONS = (0, 1)
SECONDS_MAX = 30.0  # a waiting request uses a thread

Value = TypeVar("Value")


def answer_alter(call: Call) -> Answer:
    """Begin or cancel reassignments."""
    Response = AlterPartitionReassignmentsResponse  # noqa: N806 - a class
    asked = call.request.message()
    wanted = {
        (topic.name, one.partition_index): one.replicas
        for topic in asked.topics
        for one in topic.partitions
    }
    found = call.services.replica_changes.alter_reassignments(wanted, _seconds(asked))
    code, outcomes = _split(found, wanted)
    topics = [
        Response.ReassignableTopicResponse(
            topic.name,
            [
                Response.ReassignablePartitionResponse(
                    one.partition_index, *outcomes[topic.name, one.partition_index]
                )
                for one in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
    if code:
        return call.answer(Response(error_code=code, error_message=code.name))
    return call.answer(Response(responses=topics, error_message=None))


def answer_list(call: Call) -> Answer:
    """List the running reassignments."""
    Response = ListPartitionReassignmentsResponse  # noqa: N806 - a class
    asked = call.request.message()
    places = None
    if asked.topics is not None:
        places = [(topic.name, one) for topic in asked.topics for one in topic.partition_indexes]
    found = call.services.replica_changes.list_reassignments(places, _seconds(asked))
    if isinstance(found, ErrorCode):
        return call.answer(Response(error_code=found, error_message=found.name))
    topics = [
        Response.OngoingTopicReassignment(
            name,
            [
                Response.OngoingPartitionReassignment(
                    number, list(one.replicas), list(one.adding), list(one.removing)
                )
                for number, one in rows.items()
            ],
        )
        for name, rows in _by_topic(found).items()
    ]
    return call.answer(Response(error_message=None, topics=topics))


def answer_elect(call: Call) -> Answer:
    """Elect the preferred leaders, or leaders that may lack records."""
    Response = ElectLeadersResponse  # noqa: N806 - a class
    asked = call.request.message()
    places = None
    if asked.topic_partitions is not None:
        places = [
            (topic.topic, one) for topic in asked.topic_partitions for one in topic.partitions
        ]
    kind = asked.election_type
    found: Mapping[Place, Outcome] | ErrorCode
    if kind in ELECTIONS:
        found = call.services.replica_changes.elect_leaders(
            places, is_unclean=kind == UNCLEAN, seconds=_seconds(asked)
        )
        code, outcomes = _split(found, places or ())
    else:
        code = ErrorCode.INVALID_REQUEST
        fault = Outcome(code, f"there is no election of type {kind}")
        outcomes = dict.fromkeys(places or (), fault)
    wanted = asked.topic_partitions
    if wanted is None:
        wanted = _by_topic(outcomes).items()
    rows = [
        Response.ReplicaElectionResult(
            name, [Response.PartitionResult(number, *outcomes[name, number]) for number in numbers]
        )
        for name, numbers in wanted
    ]
    return call.answer(Response(error_code=code, replica_election_results=rows))


def _seconds(asked: Any) -> float:
    """Return the seconds that a request may wait."""
    seconds: float = asked.timeout_ms / 1000
    return min(max(seconds, 0.0), SECONDS_MAX)


def _split(
    found: Mapping[Place, Outcome] | ErrorCode, places: Any
) -> tuple[ErrorCode, Mapping[Place, Outcome]]:
    """Return the error for the whole request, and the result for each partition."""
    if isinstance(found, ErrorCode):
        return found, dict.fromkeys(places, Outcome(found, found.name))
    return ErrorCode.NONE, found


def _by_topic(found: Mapping[Place, Value]) -> dict[str, dict[int, Value]]:
    rows: dict[str, dict[int, Value]] = defaultdict(dict)
    for (name, number), value in found.items():
        rows[name][number] = value
    return rows
