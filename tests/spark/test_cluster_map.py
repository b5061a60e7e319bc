"""Test the map of a cluster: the answers of several brokers, of which some may be old."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster.errors import PeerError
from cluster.run.peer_connection import PeerConnection
from cluster.spark import cluster_map
from cluster.spark.cluster_map import ClusterMap, NotKnownYetError, combined, needed_of
from logstore import TopicPartition

Answer = m.MetadataResponse
KEY = TopicPartition("t", 0)
OLD, NEW = b"o" * 16, b"n" * 16
NODES = {1: "one:1", 2: "two:2", 3: "three:3"}


def row(leader: int, epoch: int, topic_id: bytes = OLD, code: int = 0) -> Any:
    """Give the row of a topic with one partition, which all three brokers have."""
    one = Answer.MetadataResponsePartition(0, 0, leader, epoch, [1, 2, 3], [leader], [])
    return Answer.MetadataResponseTopic(code, "t", topic_id, False, [] if code else [one])


def answer(*topics: Any, brokers: tuple[int, ...] = (1, 2, 3), controller: int = 3) -> Any:
    """Give the metadata of one broker."""
    nodes = []
    for one in brokers:
        host, port = NODES[one].split(":")
        nodes.append(Answer.MetadataResponseBroker(one, host, int(port)))
    return Answer(brokers=nodes, controller_id=controller, topics=list(topics))


def asked(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], servers: str) -> ClusterMap:
    """Ask brokers that give these answers; a broker without an answer is down."""

    def ask(connection: PeerConnection, _: Any) -> Any:
        if connection.address not in answers:
            raise PeerError(address=connection.address, reason="it is down")
        return answers[connection.address]

    monkeypatch.setattr(cluster_map, "ask", ask)
    return cluster_map.cluster_map(servers, ["t"])


def test_more_than_half_of_the_brokers_are_enough() -> None:
    """In a large cluster, five brokers are enough."""
    wanted = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 8: 5, 100: 5}
    assert {count: needed_of(count) for count in wanted} == wanted


@pytest.mark.parametrize("down", [2, 3])
def test_regression_the_larger_leader_epoch_counts(
    monkeypatch: pytest.MonkeyPatch, down: int
) -> None:
    """A broker that is cut off answers first, and one of the other brokers is down."""
    new = answer(row(2, 6))
    answers = {NODES[1]: answer(row(1, 5)), NODES[2]: new, NODES[3]: new}
    del answers[NODES[down]]
    found = asked(monkeypatch, answers, NODES[1])
    assert (found.row_of(KEY).leader_id, found.row_of(KEY).leader_epoch) == (2, 6)
    assert found.brokers.keys() == {1, 2, 3}
    assert found.is_certain


def test_one_broker_of_three_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be cut off, so the question is asked again."""
    with pytest.raises(NotKnownYetError, match="only 1 of 3 brokers answer"):
        asked(monkeypatch, {NODES[1]: answer(row(1, 5))}, NODES[1])


def test_regression_a_broker_that_knows_nothing_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next server is asked; if there is none, the question is asked again."""
    nothing, new = Answer(controller_id=-1), answer(row(2, 6))
    answers = {NODES[1]: nothing, NODES[2]: new, NODES[3]: new}
    found = asked(monkeypatch, answers, f"{NODES[1]},{NODES[2]}")
    assert found.row_of(KEY).leader_id == 2
    with pytest.raises(NotKnownYetError, match="knows no brokers yet"):
        asked(monkeypatch, answers, NODES[1])


def test_a_broker_that_hangs_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers are asked at the same time, and two of three answers are enough."""
    is_over, new = threading.Event(), answer(row(2, 6))

    def ask(connection: PeerConnection, _: Any) -> Any:
        if connection.address == NODES[1]:
            assert is_over.wait(60)
        return new

    monkeypatch.setattr(cluster_map, "ask", ask)
    found = cluster_map.cluster_map(",".join(NODES.values()), ["t"])
    assert not is_over.is_set()
    is_over.set()
    assert found.row_of(KEY).leader_id == 2


def test_a_server_under_another_name_is_no_further_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that no broker advertises may belong to any broker, and does not count."""
    one = answer(row(1, 5))
    answers = {"alias:9": one, NODES[1]: one}
    with pytest.raises(NotKnownYetError, match="only 1 of 3"):
        asked(monkeypatch, answers, "alias:9")
    assert asked(monkeypatch, answers | {NODES[3]: one}, "alias:9").is_certain


def test_a_topic_is_missing_only_if_brokers_with_a_controller_say_so() -> None:
    """A broker without a controller, or one broker that has the topic, is enough for a doubt."""
    lacks = answer(row(-1, -1, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    found = combined([lacks, lacks], 2)
    assert (found.is_certain, found.topics, found.codes) == (True, {}, {})
    assert not combined([lacks, lacks._replace(controller_id=-1)], 2).is_certain
    assert combined([lacks, answer(row(1, 5))], 2).row_of(KEY).leader_id == 1
    busy = answer(row(-1, -1, code=ErrorCode.LEADER_NOT_AVAILABLE))
    assert combined([lacks, busy], 2).codes == {"t": ErrorCode.LEADER_NOT_AVAILABLE}


def test_a_topic_that_was_created_again_has_the_id_of_most_brokers() -> None:
    """If as many brokers know the old topic as the new topic, the question is asked again."""
    old, new = answer(row(1, 7, OLD)), answer(row(2, 0, NEW))
    assert combined([old, new, new], 2).topics["t"].topic_id == NEW
    assert combined([old, new], 2).codes == {"t": ErrorCode.LEADER_NOT_AVAILABLE}


def test_a_broker_that_moved_has_the_address_of_most_answers() -> None:
    """An old answer may have its old address."""
    new = answer()
    moved = [one._replace(port=99) if one.node_id == 2 else one for one in new.brokers]
    assert combined([new._replace(brokers=moved), new, new], 2).brokers[2].port == 2
