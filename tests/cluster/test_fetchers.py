"""Test followers' fetches over sockets, with faults of leaders."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from broker.wire.error_codes import ErrorCode
from broker.wire.messages import FetchRequest, FetchResponse
from cluster.errors import BadRequestError
from cluster.pure.replica import Role
from cluster.registration import TopicIdentity
from cluster.requests import FetchAnswer, FollowerFetch
from cluster.run.fetcher import BACKOFF_SECONDS, RETRY_SECONDS, TELL_AGAIN_SECONDS, Fetcher
from cluster.run.follower_reads import Asked, answer, fault_of, read_from
from cluster.run.hosted_replica import HostedReplica
from cluster.run.peer_connection import PeerConnection
from cluster.wire.follower_fetches import FetchLimits, encode_fetches
from logstore import OffsetOutOfRangeError
from support.places import fast_directory
from support.replica_group import TOPIC, Group
from support.replica_nodes import UNLIMITED, SocketGroup, wait_until


@pytest.fixture
def group() -> Iterator[SocketGroup]:
    with fast_directory() as root:
        made = SocketGroup(root)
        with made:
            yield made


def values(count: int, letter: bytes = b"v") -> list[bytes]:
    return [letter + b"%d" % number for number in range(count)]


def are_alike(group: Group) -> bool:
    """Report whether all replicas have the same records, and know that all have them."""
    logs = [node.replica.log for node in group.nodes.values()]
    ends = {(log.log_end_offset, log.high_watermark) for log in logs if log is not None}
    return len(ends) == 1 and len(set(next(iter(ends)))) == 1


def test_records_are_replicated(group: SocketGroup) -> None:
    """Many records are replicated in order, and each produce is acknowledged."""
    group.lead(1)
    for number in range(50):
        produce = group.produce(*values(40, b"%d-" % number))
        wait_until(lambda one=produce: one.acknowledged is not None)  # type: ignore[misc]
    wait_until(lambda: are_alike(group))
    expected = group.nodes[1].values()
    assert len(expected) == 2000
    assert group.nodes[2].values() == group.nodes[3].values() == expected


def test_an_acknowledgement_takes_a_moment(group: SocketGroup) -> None:
    """The leader wakes the waiting fetches, and counts the next ones; no timer is involved."""
    group.lead(1)
    wait_until(lambda: group.socket_nodes[1].fetch_count >= 2)
    seconds = []
    for number in range(30):
        began = time.monotonic()
        produce = group.produce(b"%d" % number)
        wait_until(lambda one=produce: one.acknowledged is not None)  # type: ignore[misc]
        seconds.append(time.monotonic() - began)
    assert statistics.median(seconds) < FetchLimits().wait_ms / 1000 / 2


def test_each_leader_and_log_dir_has_a_fetcher(group: SocketGroup) -> None:
    """A fetcher exists as long as a replica follows; a leader has none."""
    group.lead(1)
    assert [len(group.socket_nodes[one].fetchers.pairs) for one in (1, 2, 3)] == [0, 1, 1]
    ((leader, log_dir),) = group.socket_nodes[2].fetchers.pairs
    assert (leader, [log_dir]) == (1, list(group.nodes[2].store.log_dirs))
    group.lead(2)
    assert [len(group.socket_nodes[one].fetchers.pairs) for one in (1, 2, 3)] == [1, 0, 1]


def test_a_new_leader_is_followed(group: SocketGroup) -> None:
    """Records that only the old leader had are removed; acknowledged records stay."""
    group.lead(1)
    first = group.produce(*values(20))
    wait_until(lambda: first.acknowledged == 20)
    for leader in (2, 3, 1):
        group.produce(*values(3, b"alone%d-" % leader), acks=1)
        group.lead(leader)
        kept = group.produce(*values(5, b"kept%d-" % leader))
        wait_until(lambda one=kept: one.acknowledged is not None)  # type: ignore[misc]
    wait_until(lambda: are_alike(group))
    found = group.nodes[1].values()
    assert found[:20] == values(20)
    assert all(value in found for leader in (1, 2, 3) for value in values(5, b"kept%d-" % leader))
    assert group.nodes[2].values() == group.nodes[3].values() == found


def test_with_flushes_a_produce_waits_for_syncs(group: SocketGroup) -> None:
    """Followers fetch again as soon as they have flushed."""
    group.lead(1, flushes=True)
    began = time.monotonic()
    for number in range(5):
        produce = group.produce(b"%d" % number)
        wait_until(lambda one=produce: one.acknowledged is not None)  # type: ignore[misc]
    assert time.monotonic() - began < 5 * BACKOFF_SECONDS
    for node in group.nodes.values():
        assert node.replica.log is not None and node.replica.log.recovery_point == 5


def test_a_leader_that_is_gone_is_asked_again(group: SocketGroup) -> None:
    """The retries have intervals; the followers continue when it is back at another port."""
    group.lead(1)
    wait_until(lambda: group.socket_nodes[1].fetch_count >= 2)
    group.socket_nodes[1].server.stop(0.1)
    node = group.socket_nodes[2]
    wait_until(lambda: node.replica.role is Role.FOLLOWER)
    group.socket_nodes[1].stop()
    group.nodes[1].store.close()
    group.start(1)
    group.lead(1)
    produce = group.produce(*values(3))
    wait_until(lambda: produce.acknowledged == 3)


def test_a_leader_that_refuses_is_not_asked_in_a_loop(group: SocketGroup) -> None:
    """A follower that knows an election first waits until the leader knows it, too."""
    group.lead(1)
    produce = group.produce(b"a")
    wait_until(lambda: produce.acknowledged == 1)
    leader = group.socket_nodes[1]
    before = leader.fetch_count
    group.nodes[1].host.broker_epoch += 1000  # it obeys no request that names its old epoch
    group.lead(1)
    wait_until(lambda: leader.fetch_count >= before + 2)
    pause = time.monotonic() + BACKOFF_SECONDS * 0.9
    count = leader.fetch_count
    wait_until(lambda: time.monotonic() > pause)
    assert leader.fetch_count - count <= 4


class RefusedReplica:
    """A follower in a leader epoch that its leader does not know yet."""

    log, name, number = None, "t", 0

    def next_fetch(self) -> tuple[int, FollowerFetch]:
        return 1, fetch_of(2)


class RefusingConnection:
    """A leader that answers each fetch with an error, and counts the fetches."""

    def __init__(self, error: ErrorCode) -> None:
        self.count, self._error = 0, error

    def ask(self, key: int, version: int, message: Any, seconds: float, large: Any) -> Any:
        self.count += 1
        row = FetchResponse.PartitionData(0, self._error, records=b"")
        topic_id = message.topics[0].topic_id
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("", topic_id, [row])])

    def interrupt(self) -> None:
        pass

    close = interrupt


@pytest.mark.parametrize(
    ("error", "count"),
    [(ErrorCode.UNKNOWN_LEADER_EPOCH, 3), (ErrorCode.KAFKA_STORAGE_ERROR, 1)],
)
def test_a_leader_that_has_not_heard_of_its_role_is_asked_again_soon(
    error: ErrorCode, count: int
) -> None:
    """Twice after each new role, then after the backoff; other errors wait for the backoff."""
    leader, replica = RefusingConnection(error), cast(HostedReplica, RefusedReplica())
    connection = cast(PeerConnection, leader)
    fetcher = Fetcher(1, "1-d", connection, FetchLimits(), time.monotonic, UNLIMITED)
    pause = sum(RETRY_SECONDS) + (BACKOFF_SECONDS - sum(RETRY_SECONDS)) / 2
    for round_number in (1, 2):
        began = time.monotonic()
        fetcher.add(replica, is_new_role=True)
        wait_until(lambda at=began + pause: time.monotonic() > at)  # type: ignore[misc]
        assert leader.count == round_number * count
    fetcher.end()
    fetcher.join()


class IdleReplica:
    """A follower whose leader has no news; it records its events."""

    log = cast(Any, object())
    log_start, name, number = 0, "t", 0

    def __init__(self) -> None:
        self.fetch_count, self.told = 0, list[FetchAnswer]()
        self.offset = 0

    def next_fetch(self) -> tuple[int, FollowerFetch] | None:
        self.fetch_count += 1
        return 1, fetch_of(1, offset=self.offset)

    def tell(self, answer: FetchAnswer) -> None:
        self.told.append(answer)


class IdleConnection(RefusingConnection):
    """A leader that answers each fetch with its high watermark, when the test allows it."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NONE)
        self.high_watermark, self.allowed = 0, threading.Semaphore(0)

    def ask(self, key: int, version: int, message: Any, seconds: float, large: Any) -> Any:
        self.allowed.acquire()
        answer = super().ask(key, version, message, seconds, large)
        row = (
            answer.responses[0]
            .partitions[0]
            ._replace(high_watermark=self.high_watermark, log_start_offset=0)
        )
        topic = answer.responses[0]._replace(partitions=[row])
        return answer._replace(responses=[topic])


def test_the_rules_see_an_answer_without_news_once() -> None:
    """The rules get it again after a while, in a new role, or if fetch or answer differs."""
    leader, replica, now = IdleConnection(), IdleReplica(), [0.0]
    hosted = cast(HostedReplica, replica)
    limits, connection = FetchLimits(), cast(PeerConnection, leader)
    fetcher = Fetcher(1, "1-d", connection, limits, lambda: now[0], UNLIMITED)

    def told_by(count: int) -> list[FetchAnswer]:
        """Answer some fetches; return the events of the replica."""
        before = replica.fetch_count
        for _ in range(count):
            leader.allowed.release()
        wait_until(lambda: replica.fetch_count == before + count)
        told, replica.told = replica.told, []
        return told

    fetcher.add(hosted, is_new_role=True)
    wait_until(lambda: replica.fetch_count == 1)
    assert [one.high_watermark for one in told_by(5)] == [0]
    leader.high_watermark = 7
    assert [one.high_watermark for one in told_by(5)] == [7]
    replica.offset = 9
    told_by(1)  # the fetch that was under way
    assert [one.request.offset for one in told_by(3)] == [9]
    now[0] += TELL_AGAIN_SECONDS
    assert len(told_by(3)) == 1
    fetcher.add(hosted, is_new_role=True)
    assert len(told_by(3)) == 1
    leader.allowed.release(10)
    fetcher.end()
    leader.allowed.release(10)
    fetcher.join()


def fetch_of(epoch: int, topic: TopicIdentity = TOPIC, offset: int = 0) -> FollowerFetch:
    return FollowerFetch(topic, 0, 2, 102, epoch, offset, -1)


def test_a_fetch_that_cannot_be_answered_gets_its_error(group: SocketGroup) -> None:
    """An old epoch, a new epoch, another topic, and a missing leader each have an error."""
    group.lead(1)
    replica = group.nodes[1].replica

    def error(fetch: FollowerFetch) -> ErrorCode:
        return fault_of(fetch, replica, replica.serve(fetch))

    assert error(fetch_of(1)) is ErrorCode.NONE
    assert error(fetch_of(0)) is ErrorCode.FENCED_LEADER_EPOCH
    assert error(fetch_of(2)) is ErrorCode.UNKNOWN_LEADER_EPOCH
    other = TopicIdentity("a" * 21 + "A", 1)
    assert error(fetch_of(1, other)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert fault_of(fetch_of(1), None, None) is ErrorCode.UNKNOWN_TOPIC_ID
    follower = group.nodes[2].replica
    assert fault_of(fetch_of(1), follower, follower.serve(fetch_of(1))) is (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def test_a_bad_fetch_is_refused(group: SocketGroup) -> None:
    """A fetch without a follower, or with a negative offset, is not counted."""
    group.lead(1)
    message = encode_fetches([fetch_of(1)], FetchLimits())
    bad = message._replace(replica_state=FetchRequest.ReplicaState(-1, 5))
    with pytest.raises(BadRequestError):
        answer(Asked(bad, 15, 1), group.socket_nodes[1].find, 0.0, 1 << 20, UNLIMITED)


def test_a_deletion_during_a_fetch_is_no_answer_for_ever(group: SocketGroup) -> None:
    """A follower gets the whole batch that has the log start, or begins again later."""
    group.lead(1)
    group.produce(b"a", b"b", b"c")
    group.produce(b"d")
    log = group.nodes[1].replica.log
    assert log is not None
    wait_until(lambda: log.high_watermark == 4)
    log.delete_records_before(2)
    with read_from(log, 0, 1) as found:
        assert (found.first_offset, found.next_offset) == (0, 3)
    log.delete_records_before(3)
    with pytest.raises(OffsetOutOfRangeError):
        read_from(log, 0, 1)
    served = group.nodes[1].replica.serve(fetch_of(1))
    assert served is not None and (served.diverging, served.log_start) == ((-1, 3), 3)
