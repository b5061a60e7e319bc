"""Changes of topics as transactions of a coordination store: embedded, and a real ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from broker.catalog.admin.topic_admin import NewTopic, TopicRefusedError
from broker.catalog.setting_changes import Change, Operation
from broker.catalog.topics import NO_ID, Topic
from broker.coordination.errors import NoNodeError
from broker.coordination.verbs import Session
from broker.wire.error_codes import ErrorCode
from cluster import znodes
from cluster.admin import topic_changes
from cluster.admin.topic_changes import TopicChanges
from cluster.wire.topic_ids import text_of
from support.heard import Connect
from support.topic_admins import Known, changes_of, document, prepare, settings_in

RACKS = {1: "", 2: "", 3: ""}


@pytest.fixture
def session(connect: Connect) -> Session:
    session = connect()
    prepare(session, RACKS)
    return session


@pytest.fixture
def changes(session: Session) -> TopicChanges:
    return changes_of(session)


def refused(call: Callable[[], object]) -> tuple[ErrorCode, str]:
    """Call, and return why that was refused."""
    with pytest.raises(TopicRefusedError) as caught:
        call()
    return caught.value.code, str(caught.value)


def partitions_in(session: Session, name: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = document(session, znodes.topic_path(name))["partitions"]
    return found


def test_a_topic_and_its_settings_are_created_together(
    session: Session, changes: TopicChanges
) -> None:
    """Kafka's JSON; min.insync.replicas is written, because it must not change by itself."""
    made = changes.create(NewTopic("orders", 4, 3, (), [("retention.ms", "1000")]))
    assert (made.topic.partitions, made.replication_factor) == ((0, 1, 2, 3), 3)
    lists = partitions_in(session, "orders")
    assert list(lists) == ["0", "1", "2", "3"]
    assert all(sorted(one) == [1, 2, 3] for one in lists.values())
    assert document(session, znodes.topic_path("orders"))["topic_id"] == text_of(made.topic.id)
    assert settings_in(session, "orders") == {"retention.ms": "1000", "min.insync.replicas": "2"}
    one, other = session.get(znodes.topic_path("orders")), session.get(znodes.config_path("orders"))
    assert one.czxid == other.czxid
    rows = {row.key: row for row in made.settings}
    assert rows["retention.ms"].text == "1000" and rows["min.insync.replicas"].text == "2"


def test_the_broker_gives_defaults(session: Session) -> None:
    """Partitions, replicas, and how many of them must have a record."""
    changes = changes_of(
        session, num_partitions=2, default_replication_factor=2, min_insync_replicas=1
    )
    made = changes.create(NewTopic("orders"))
    assert (len(made.topic.partitions), made.replication_factor) == (2, 2)
    assert settings_in(session, "orders") == {"min.insync.replicas": "1"}


def test_a_broker_that_allows_unclean_elections_writes_it_into_new_topics(session: Session) -> None:
    """So a change of the broker's setting changes no topic; a topic's own setting counts more."""
    changes = changes_of(session, unclean_leader_election_enable=True)
    key = "unclean.leader.election.enable"
    changes.create(NewTopic("orders", 1, 1))
    changes.create(NewTopic("safe", 1, 1, (), [(key, "false")]))
    assert settings_in(session, "orders")[key] == "true"
    assert settings_in(session, "safe")[key] == "false"


def test_a_dry_run_changes_nothing(session: Session, changes: TopicChanges) -> None:
    """Of each kind of change."""
    made = changes.create(NewTopic("orders", 1, 3), is_dry=True)
    assert made.topic == Topic("orders", NO_ID, (0,))
    assert session.children(znodes.TOPICS) == [] == session.children(znodes.CONFIGS)
    changes.create(NewTopic("orders", 1, 3))
    before = session.zxid()
    changes.add_partitions("orders", 3, None, is_dry=True)
    changes.alter("orders", [Change("retention.ms", Operation.SET, "5")], is_dry=True)
    assert session.zxid() == before


REFUSED: dict[str, tuple[NewTopic, ErrorCode]] = {
    "bad name": (NewTopic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no name": (NewTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "dots": (NewTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "known": (NewTopic("there.is", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
    "collides": (NewTopic("there_is", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no partition": (NewTopic("r", 0, 1), ErrorCode.INVALID_PARTITIONS),
    "fewer": (NewTopic("r", -2, 1), ErrorCode.INVALID_PARTITIONS),
    "too many": (NewTopic("r", 100_001, 1), ErrorCode.INVALID_PARTITIONS),
    "too large": (NewTopic("r", 100_000, 3), ErrorCode.POLICY_VIOLATION),
    "more replicas": (NewTopic("r", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
    "no replica": (NewTopic("r", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "both": (NewTopic("r", 1, 1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
    "gap": (NewTopic("r", -1, -1, [(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "twice": (NewTopic("r", -1, -1, [(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "same broker": (NewTopic("r", -1, -1, [(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "unknown broker": (NewTopic("r", -1, -1, [(0, [1, 9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "no broker": (NewTopic("r", -1, -1, [(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "uneven": (
        NewTopic("r", -1, -1, [(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "unknown setting": (NewTopic("r", 1, 1, (), [("no.such", "1")]), ErrorCode.INVALID_CONFIG),
    "bad value": (NewTopic("r", 1, 1, (), [("retention.ms", "x")]), ErrorCode.INVALID_CONFIG),
    "bad min": (NewTopic("r", 1, 1, (), [("min.insync.replicas", "0")]), ErrorCode.INVALID_CONFIG),
    "long min": (
        NewTopic("r", 1, 1, (), [("min.insync.replicas", "9" * 5000)]), ErrorCode.INVALID_CONFIG,
    ),
    "bad flag": (
        NewTopic("r", 1, 1, (), [("unclean.leader.election.enable", "maybe")]),
        ErrorCode.INVALID_CONFIG,
    ),
}  # fmt: skip


@pytest.mark.parametrize("is_dry", [True, False])
def test_a_refused_topic_is_not_created(
    session: Session, changes: TopicChanges, is_dry: bool
) -> None:
    """The code is Kafka's; a dry run finds the same faults, but for the size of a request."""
    changes.create(NewTopic("there.is", 1, 1))
    for case, (wanted, code) in REFUSED.items():
        if case == "too large" and is_dry:
            continue
        found, reason = refused(lambda: changes.create(wanted, is_dry=is_dry))  # noqa: B023
        assert found == code and reason, case
    assert session.children(znodes.TOPICS) == ["there.is"]
    assert session.children(znodes.CONFIGS) == ["there.is"]


def test_an_assignment_is_taken_as_it_is(session: Session, changes: TopicChanges) -> None:
    """Its order is that of the preferred leaders."""
    changes.create(NewTopic("orders", assignment=[(1, [3, 1]), (0, [2, 3])]))
    assert partitions_in(session, "orders") == {"0": [2, 3], "1": [3, 1]}


def test_one_of_many_brokers_creates_a_topic(connect: Connect, session: Session) -> None:
    """All others are told that it exists; the same for names that differ only in a dot."""
    for names in (["orders"], ["a.b", "a_b"]):
        barrier = threading.Barrier(6)

        def create(
            number: int, names: list[str] = names, barrier: threading.Barrier = barrier
        ) -> ErrorCode:
            own = changes_of(connect())
            barrier.wait()
            try:
                own.create(NewTopic(names[number % len(names)], 3, 3))
            except TopicRefusedError as error:
                return error.code
            return ErrorCode.NONE

        with ThreadPoolExecutor(6) as pool:
            codes = list(pool.map(create, range(6)))
        assert codes.count(ErrorCode.NONE) == 1
        assert set(codes) <= {
            ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION,
        }  # fmt: skip
    assert len(session.children(znodes.TOPICS)) == 2


def test_settings_of_many_brokers_do_not_overwrite_each_other(
    connect: Connect, session: Session, changes: TopicChanges
) -> None:
    """Each adds a setting; all are there in the end, and each has left a notice."""
    changes.create(NewTopic("orders", 1, 3))
    keys = ["retention.ms", "retention.bytes", "segment.ms", "flush.messages", "flush.ms"]
    sessions = [connect() for _ in keys]

    def alter(number: int) -> None:
        changes_of(sessions[number]).alter("orders", [Change(keys[number], Operation.SET, "9")])

    with ThreadPoolExecutor(len(keys)) as pool:
        list(pool.map(alter, range(len(keys))))
    found = settings_in(session, "orders")
    assert found == {**dict.fromkeys(keys, "9"), "min.insync.replicas": "2"}
    names = session.children(znodes.SETTING_NOTICES)
    data = [session.get(f"{znodes.SETTING_NOTICES}/{name}").data for name in names]
    assert [znodes.parse_setting_notice(one) for one in data] == ["orders"] * len(keys)


def test_partitions_are_added(session: Session, changes: TopicChanges) -> None:
    """The round of leaders goes on; what else the znode has stays."""
    made = changes.create(NewTopic("orders", 2, 2))
    path = znodes.topic_path("orders")
    session.set(path, session.get(path).data.replace(b"{", b'{"theirs":1,', 1))
    grown = changes.add_partitions("orders", 6, None)
    assert grown == made.topic._replace(partitions=(0, 1, 2, 3, 4, 5))
    lists = partitions_in(session, "orders")
    first = [one[0] for one in lists.values()]
    assert sorted(first) == [1, 1, 2, 2, 3, 3] and first[:3] == first[3:]
    assert document(session, path)["theirs"] == 1
    changes.add_partitions("orders", 7, [[3, 1]])
    assert partitions_in(session, "orders")["6"] == [3, 1]


def test_partitions_that_are_not_added(session: Session, changes: TopicChanges) -> None:
    """With Kafka's codes."""
    changes.create(NewTopic("orders", 2, 2))
    changes.create(NewTopic("__consumer_offsets", 2, 2))
    before = session.zxid()
    wrong: list[tuple[str, int, Any, ErrorCode]] = [
        ("nowhere", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 100_001, None, ErrorCode.INVALID_PARTITIONS),
        ("__consumer_offsets", 3, None, ErrorCode.INVALID_REQUEST),
        ("orders", 3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1, 2], [1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 3, [[1, 8]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ]
    for name, count, assignment, code in wrong:
        found, _ = refused(lambda: changes.add_partitions(name, count, assignment))  # noqa: B023
        assert found == code, (name, count, assignment)
    session.delete(znodes.broker_path(2))
    session.delete(znodes.broker_path(3))
    code, _ = refused(lambda: changes.add_partitions("orders", 3, None))
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert session.zxid() == before + 2


def test_what_is_not_there(changes: TopicChanges) -> None:
    """It cannot be described, changed or deleted."""
    for call in (
        lambda: changes.settings_of("nowhere"),
        lambda: changes.alter("nowhere", []),
        lambda: changes.delete(Topic("nowhere", b"i" * 16, ())),
    ):
        assert refused(call)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert changes.find("nowhere", NO_ID) is None is changes.find(None, b"i" * 16)


def test_a_topic_is_found(session: Session) -> None:
    """By its name in the store; by its id, if the metadata knows the id and the store has it."""
    known = Known()
    changes = changes_of(session, known)
    topic = changes.create(NewTopic("orders", 2, 3)).topic
    assert changes.find("orders", NO_ID) == topic
    assert changes.find(None, topic.id) is None
    known.show("orders", topic.id, {0: 1, 1: 1})
    assert changes.find(None, topic.id) == topic
    changes.delete(topic)
    again = changes.create(NewTopic("orders", 2, 3)).topic
    assert changes.find(None, topic.id) is None and again.id != topic.id


def test_a_deletion_is_of_one_topic(session: Session, changes: TopicChanges) -> None:
    """One that was created again under the name stays."""
    old = changes.create(NewTopic("orders", 2, 3)).topic
    changes.delete(old)
    assert session.children(znodes.TOPICS) == [] == session.children(znodes.CONFIGS)
    new = changes.create(NewTopic("orders", 2, 3)).topic
    assert refused(lambda: changes.delete(old))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert changes.find("orders", NO_ID) == new


def test_when_clients_see_a_change(session: Session) -> None:
    """A topic, when all partitions have leaders; a deletion, when the id is gone."""
    known = Known()
    changes = changes_of(session, known)
    topic = changes.create(NewTopic("orders", 2, 3)).topic
    heard: list[bool] = []
    leave = changes.watch(lambda: heard.append(changes.is_ready(topic)))
    known.show("orders", b"o" * 16, {0: 1, 1: 1})
    known.show("orders", topic.id, {0: 1})
    known.show("orders", topic.id, {0: 1, 1: -1})
    known.show("orders", topic.id, {0: 1, 1: 2})
    assert heard == [False, False, False, True] and not changes.is_gone(topic)
    leave()
    known.hide("orders")
    assert len(heard) == 4 and changes.is_gone(topic)


class Faster:
    """A session whose reads of a topic are followed by a change of another broker."""

    def __init__(self, session: Session, change: Callable[[], object], times: int) -> None:
        self._session, self._change, self.left = session, change, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def multi(self, operations: Any) -> Any:
        if self.left:
            self.left -= 1
            self._change()
        return self._session.multi(operations)


def test_a_change_is_decided_again(session: Session, changes: TopicChanges) -> None:
    """As often as another broker is faster; if that does not end, the client tries again."""
    changes.create(NewTopic("orders", 1, 3))
    path = znodes.topic_path("orders")
    slow: Any = Faster(session, lambda: session.set(path, session.get(path).data), 3)
    changes_of(slow).alter("orders", [Change("flush.ms", Operation.SET, "5")])
    assert settings_in(session, "orders")["flush.ms"] == "5" and slow.left == 0
    slow.left = topic_changes.TRIES
    code, _ = refused(
        lambda: changes_of(slow).alter("orders", [Change("flush.ms", Operation.SET, "6")])
    )
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert settings_in(session, "orders")["flush.ms"] == "5"


def test_no_setting_is_written_for_a_deleted_topic(session: Session, changes: TopicChanges) -> None:
    """Another broker deletes it between the decision and the write."""
    topic = changes.create(NewTopic("orders", 1, 3)).topic
    slow: Any = Faster(session, lambda: changes.delete(topic), 1)
    code, _ = refused(
        lambda: changes_of(slow).alter("orders", [Change("flush.ms", Operation.SET, "5")])
    )
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(NoNodeError):
        session.get(znodes.config_path("orders"))


def test_a_lost_store_is_no_answer(connect: Connect, session: Session) -> None:
    """The client asks the controller, which may still have its session."""
    lost = connect()
    changes = changes_of(lost)
    lost.close()
    assert refused(lambda: changes.create(NewTopic("orders", 1, 3)))[0] == ErrorCode.NOT_CONTROLLER
    assert session.children(znodes.TOPICS) == []


@pytest.mark.parametrize("what", ["add", "alter", "delete"])
def test_regression_a_change_does_not_reach_a_later_topic_of_the_name(
    session: Session, changes: TopicChanges, what: str
) -> None:
    """Added partitions also gave the later topic the id of the earlier one."""
    first = changes.create(NewTopic("orders", 1, 1, (), [("retention.ms", "1000")])).topic
    made: list[Topic] = []

    def swap() -> None:
        changes.delete(first)
        made.append(changes.create(NewTopic("orders", 2, 1)).topic)

    slow: Any = Faster(session, swap, 1)
    late = changes_of(slow)
    if what == "add":
        late.add_partitions("orders", 4, None)
    elif what == "alter":
        late.alter("orders", [Change("retention.bytes", Operation.SET, "7")])
    else:
        assert refused(lambda: late.delete(first))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = changes.find("orders", NO_ID)
    assert found is not None and found.id == made[0].id
    assert len(found.partitions) == (4 if what == "add" else 2)
    expected = {"min.insync.replicas": "1"}
    expected |= {"retention.bytes": "7"} if what == "alter" else {}
    assert settings_in(session, "orders") == expected
