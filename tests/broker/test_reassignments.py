"""Test that requests about leaders and replicas reach `ReplicaChanges`, and are answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.catalog.replica_changes import Outcome, Reassignment, SoleReplicas
from broker.listener_config import Endpoint
from broker.machines.exchange import Client
from broker.quotas.quotas import Quotas
from broker.requests.admin import reassignments
from broker.requests.services import Call, Services
from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from broker.wire.frames import decode_response, encode_request, parse_request
from broker.wire.versions import ApiVersions

APIS = ApiVersions(("admin",))
ELECT, ALTER, LIST = 43, 45, 46
HANDLERS = {
    ELECT: reassignments.answer_elect,
    ALTER: reassignments.answer_alter,
    LIST: reassignments.answer_list,
}
ORDERS, OTHER = ("orders", 0), ("orders", 2)


class Recorder:
    """Remember what was asked, and answer what was prepared."""

    def __init__(self, found: Any) -> None:
        self.found, self.asked = found, list[Any]()

    def _answer(self, *asked: Any, **named: Any) -> Any:
        self.asked.append((*asked, *named.values()))
        return self.found

    elect_leaders = alter_reassignments = list_reassignments = _answer


def asked(changes: Any, key: int, message: Any) -> Any:
    """Call a handler, with the bytes of a request and of its answer."""
    version = APIS.announced[[row.key for row in APIS.announced].index(key)].last
    frame = bytes(encode_request(key, version, 9, "test", message))[4:]
    services = cast(Services, SimpleNamespace(replica_changes=changes, quotas=Quotas()))
    client = Client(Endpoint("PLAINTEXT", "b1", 9092), "c")
    call = Call(services, parse_request(memoryview(frame), APIS), client)
    (answer,) = HANDLERS[key](call)
    assert isinstance(answer, bytes | bytearray)
    return decode_response(key, version, memoryview(answer)[4:])[1]


def election(places: dict[str, list[int]] | None, kind: int = 0, timeout_ms: int = 5000) -> Any:
    Topic = m.ElectLeadersRequest.TopicPartitions  # noqa: N806 - a class
    topics = None if places is None else [Topic(*one) for one in places.items()]
    return m.ElectLeadersRequest(kind, topics, timeout_ms)


def rows_of(answer: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (topic.topic, [(row.partition_id, row.error_code) for row in topic.partition_result])
        for topic in answer.replica_election_results
    ]


@pytest.mark.parametrize("kind", [0, 1])
def test_elections_of_partitions(kind: int) -> None:
    """The answer has the partitions in the order of the request; the wait is bounded."""
    changes = Recorder({ORDERS: Outcome(), OTHER: Outcome(ErrorCode.ELECTION_NOT_NEEDED, "why")})
    answer = asked(changes, ELECT, election({"orders": [2, 0]}, kind, 99_000))
    assert changes.asked == [([OTHER, ORDERS], bool(kind), reassignments.SECONDS_MAX)]
    assert answer.error_code == 0 and rows_of(answer) == [("orders", [(2, 84), (0, 0)])]
    assert answer.replica_election_results[0].partition_result[0].error_message == "why"


def test_elections_of_all_partitions() -> None:
    """The answer has the partitions that were elected, or should have been."""
    changes = Recorder({ORDERS: Outcome(), ("x", 1): Outcome(ErrorCode.NOT_CONTROLLER, "")})
    answer = asked(changes, ELECT, election(None))
    assert changes.asked == [(None, False, 5.0)]
    assert rows_of(answer) == [("orders", [(0, 0)]), ("x", [(1, 41)])]


def test_another_broker_is_the_controller() -> None:
    """The code is for the whole request, and makes clients look for the controller."""
    changes = Recorder(ErrorCode.NOT_CONTROLLER)
    answer = asked(changes, ELECT, election({"orders": [0]}))
    assert answer.error_code == 41 and rows_of(answer) == [("orders", [(0, 41)])]
    assert asked(changes, ELECT, election(None)).error_code == 41
    assert asked(changes, ALTER, alteration([1])).error_code == 41
    listed = asked(changes, LIST, m.ListPartitionReassignmentsRequest(5000, None))
    assert (listed.error_code, listed.topics) == (41, ())


def test_there_is_no_third_election() -> None:
    """An unknown type of election is refused without asking `ReplicaChanges`."""
    changes = Recorder({})
    answer = asked(changes, ELECT, election({"orders": [0]}, 2))
    assert answer.error_code == 42 and rows_of(answer) == [("orders", [(0, 42)])]
    assert changes.asked == []


def alteration(*wanted: list[int] | None) -> Any:
    Request = m.AlterPartitionReassignmentsRequest  # noqa: N806 - a class
    rows = [Request.ReassignablePartition(2 * n, one) for n, one in enumerate(wanted)]
    return Request(timeout_ms=-1, topics=[Request.ReassignableTopic("orders", rows)])


def test_reassignments_begin_and_are_cancelled() -> None:
    """Each partition has its own result."""
    failed = Outcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "none")
    changes = Recorder({ORDERS: Outcome(), OTHER: failed})
    answer = asked(changes, ALTER, alteration([2, 3], None))
    assert changes.asked == [({ORDERS: (2, 3), OTHER: None}, 0.0)]
    (topic,) = answer.responses
    assert (answer.error_code, topic.name) == (0, "orders")
    found = [(row.partition_index, row.error_code, row.error_message) for row in topic.partitions]
    assert found == [(0, 0, None), (2, 85, "none")]


def test_reassignments_are_listed() -> None:
    """Running reassignments of all partitions, or of some, are listed by topic."""
    changes = Recorder({ORDERS: Reassignment((1, 2, 3), (3,), (1,))})
    Request = m.ListPartitionReassignmentsRequest  # noqa: N806 - a class
    topics = [Request.ListPartitionReassignmentsTopics("orders", [0, 2])]
    for wanted, places in ((topics, [ORDERS, OTHER]), (None, None)):
        (topic,) = asked(changes, LIST, Request(5000, wanted)).topics
        assert changes.asked.pop() == (places, 5.0)
        (row,) = topic.partitions
        found = row.replicas, row.adding_replicas, row.removing_replicas
        assert (topic.name, row.partition_index) == ORDERS
        assert found == ((1, 2, 3), (3,), (1,))


def test_a_broker_alone_moves_nothing() -> None:
    """A broker without a cluster accepts only the present replicas."""
    sole = SoleReplicas(4, lambda name, partition: (name, partition) == ORDERS)
    assert sole.list_reassignments(None, 1) == {}
    assert sole.elect_leaders(None, is_unclean=False, seconds=1) == {}
    found = sole.elect_leaders([ORDERS, OTHER], is_unclean=False, seconds=1)
    assert not isinstance(found, ErrorCode)
    assert [found[one].code for one in (ORDERS, OTHER)] == [84, 3]
    for replicas, code in (([4], 0), ([5], 39), ([], 39), (None, 85)):
        altered = sole.alter_reassignments({ORDERS: replicas, OTHER: replicas}, 1)
        assert not isinstance(altered, ErrorCode)
        assert [altered[one].code for one in (ORDERS, OTHER)] == [code, 3]
