"""Test a controller's reads and writes: one reign at a time, and no write after its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NotConnectedError, OutcomeUnknownError
from broker.coordination.verbs import Operation, Session, Znode
from broker.listener_config import Endpoint
from cluster import znodes
from cluster.admin import topic_deletion
from cluster.control.controller_store import ControllerStore, Elected, Reign, StateNode
from cluster.errors import BadZnodeError
from cluster.pure.control_exchange import Deletion, Deposed, WriteFailed, WriteState, Written
from cluster.registration import NO_VERSION, TopicIdentity
from cluster.state import State
from cluster.wire.topic_ids import text_of

KEY = ("orders", 0)
TOPIC_ID = text_of(b"a topic's number")
STATE = State(1, 1, 1, {1: 5}, {}, frozenset(), 5, (1,), None, 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    with EmbeddedStore([str(tmp_path)]) as opened:
        yield opened


@pytest.fixture
def one(store: EmbeddedStore) -> ControllerStore:
    made = ControllerStore(store.connect(), 1)
    made.prepare()
    made.session.create(znodes.topic_path("orders"), znodes.encode_topic(TOPIC_ID, {0: [1]}))
    return made


def write(version: int, number: int = 1) -> WriteState:
    return WriteState(KEY, TopicIdentity(TOPIC_ID, 1), STATE, version, 1, number)


def test_there_is_one_controller(store: EmbeddedStore, one: ControllerStore) -> None:
    """After the first session has ended, the next controller has a later epoch."""
    other = ControllerStore(store.connect(), 2)
    other.prepare()
    assert one.stand(0) == Reign(1, 1)
    assert other.stand(0) is None
    one.session.close()
    assert other.stand(0) == Reign(2, 2)


def test_a_state_is_written_in_the_order_of_its_versions(one: ControllerStore) -> None:
    """Each write names the version that it replaces."""
    reign = one.stand(0)
    assert reign is not None
    assert one.state(KEY) is None
    assert one.write(write(NO_VERSION), reign) == Written(KEY, 1, 0)
    assert one.write(write(NO_VERSION, 2), reign) == WriteFailed(KEY, 2)
    assert one.write(write(0, 3), reign) == Written(KEY, 3, 1)
    assert one.write(write(0, 4), reign) == WriteFailed(KEY, 4)
    assert one.state(KEY) == StateNode(STATE, 1)


LATER_ID = text_of(b"its next number!")


def create_again(session: Session) -> None:
    """Delete the topic and create it again, with another replica; its version is the same."""
    path = znodes.topic_path("orders")
    version = session.get(path).version
    assert topic_deletion.delete(session, "orders", TOPIC_ID)
    session.create(path, znodes.encode_topic(LATER_ID, {0: [2]}))
    assert session.get(path).version == version


def test_regression_a_later_topic_does_not_get_the_first_state_of_an_earlier_one(
    store: EmbeddedStore, one: ControllerStore
) -> None:
    """The later topic got the replicas of the earlier one, and states of partitions it lacks."""
    reign = one.stand(0)
    assert reign is not None
    assert one.write(write(NO_VERSION), reign) == Written(KEY, 1, 0)
    create_again(store.connect())
    for number in (0, 1):
        asked = write(NO_VERSION)._replace(key=("orders", number))
        assert one.write(asked, reign) == WriteFailed(("orders", number), 1)
        assert one.state(("orders", number)) is None
    later = write(NO_VERSION)._replace(topic=TopicIdentity(LATER_ID, 2))
    assert one.write(later, reign) == Written(KEY, 1, 0)


def test_a_first_state_is_written_beside_deletions_of_other_topics(
    store: EmbeddedStore, one: ControllerStore
) -> None:
    """The controller looks again whether the topic exists, and writes at once."""
    reign, session = one.stand(0), store.connect()
    assert reign is not None
    assert one.write(write(NO_VERSION), reign) == Written(KEY, 1, 0)
    session.create(znodes.topic_path("other"), znodes.encode_topic(LATER_ID, {0: [2]}))
    assert topic_deletion.delete(session, "other", LATER_ID)
    second = write(NO_VERSION)._replace(key=("orders", 1))
    assert one.write(second, reign) == Written(("orders", 1), 1, 0)
    assert topic_deletion.delete(session, "orders", TOPIC_ID)
    third = write(NO_VERSION)._replace(key=("orders", 2))
    assert one.write(third, reign) == WriteFailed(("orders", 2), 1)


MOVING = STATE._replace(replicas=(1, 2, 3), target=(2, 3), original=(1, 2))


def assigned(one: ControllerStore) -> dict[str, object]:
    """Return the replicas in the topic's znode."""
    document = json.loads(one.session.get(znodes.topic_path("orders")).data)
    keys = ("partitions", "adding_replicas", "removing_replicas", "else")
    return {key: document.get(key) for key in keys}


def test_replicas_change_in_the_topic_too(one: ControllerStore) -> None:
    """The topic changes with the state, so that Kafka's tools never see a difference (P1)."""
    reign = one.stand(0)
    assert reign is not None
    path = znodes.topic_path("orders")
    document = {**json.loads(one.session.get(path).data), "else": 5}
    document["partitions"]["1"] = [7]
    document["adding_replicas"]["1"] = [8]
    one.session.set(path, json.dumps(document).encode())
    assert one.write(write(NO_VERSION), reign) == Written(KEY, 1, 0)
    begun = write(0, 2)._replace(state=MOVING, is_assignment=True)
    assert one.write(begun, reign) == Written(KEY, 2, 1)
    assert assigned(one) == {
        "partitions": {"0": [1, 2, 3], "1": [7]},
        "adding_replicas": {"0": [3], "1": [8]},
        "removing_replicas": {"0": [1]},
        "else": 5,
    }
    back = MOVING._replace(target=(1, 2), original=None)
    assert one.write(write(1, 3)._replace(state=back, is_assignment=True), reign) == Written(
        KEY, 3, 2
    )
    assert assigned(one)["adding_replicas"] == {"1": [8]}
    assert assigned(one)["removing_replicas"] == {"0": [3]}
    assert one.write(write(2, 4)._replace(is_assignment=True), reign) == Written(KEY, 4, 3)
    assert assigned(one)["partitions"] == {"0": [1], "1": [7]}
    assert assigned(one)["removing_replicas"] == {}


def test_replicas_do_not_change_beside_another_change_of_the_topic(
    one: ControllerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the topic was changed, created again, or deleted after the read, the state stays."""
    reign = one.stand(0)
    assert reign is not None
    one.write(write(NO_VERSION), reign)
    begun = write(0, 2)._replace(state=MOVING, is_assignment=True)
    path, change = znodes.topic_path("orders"), znodes.with_assignment

    def change_late(*arguments: Any) -> bytes:
        one.session.set(path, one.session.get(path).data)
        return change(*arguments)

    monkeypatch.setattr(znodes, "with_assignment", change_late)
    assert one.write(begun, reign) == WriteFailed(KEY, 2)
    monkeypatch.undo()
    other = begun._replace(topic=TopicIdentity(text_of(b"another's number"), 1))
    assert one.write(other, reign) == WriteFailed(KEY, 2)
    one.session.set(path, b"{}")
    assert one.write(begun, reign) == WriteFailed(KEY, 2)
    assert one.state(KEY) == StateNode(STATE, 0)


def test_a_reign_that_has_ended_writes_nothing(store: EmbeddedStore, one: ControllerStore) -> None:
    """It writes nothing, even if its session lives and the version matches."""
    reign = one.stand(0)
    assert reign is not None
    one.session.delete(znodes.CONTROLLER)
    other = ControllerStore(store.connect(), 2)
    later = other.stand(0)
    assert later is not None
    assert one.write(write(NO_VERSION), reign) == Deposed()
    assert one.state(KEY) is None
    assert other.write(write(NO_VERSION), later) == Written(KEY, 1, 0)
    assert one.write(write(0), reign) == Deposed()


def test_an_election_whose_answer_is_lost_is_read_back(one: ControllerStore) -> None:
    """The election succeeded if the znode belongs to this session."""

    class Losing:
        """A session whose next `multi` is done, but whose answer is lost."""

        def __init__(self, session: Session, *, happens: bool) -> None:
            self._session, self._happens = session, happens

        def __getattr__(self, name: str) -> object:
            return getattr(self._session, name)

        def multi(self, operations: object) -> object:
            if self._happens:
                self._session.multi(operations)  # type: ignore[arg-type]
            raise OutcomeUnknownError(1)

    session = one.session
    one.session = Losing(session, happens=False)  # type: ignore[assignment]
    assert one.stand(0) is None
    one.session = Losing(session, happens=True)  # type: ignore[assignment]
    reign = one.stand(0)
    assert reign == Reign(1, 1)
    assert one.write(write(NO_VERSION), reign) == WriteFailed(KEY, 1)
    one.session = session
    assert one.state(KEY) == StateNode(STATE, 0)


class Deaf:
    """A session whose next changes are done or not, but which gets no answer."""

    def __init__(self, session: Session, *, happens: bool) -> None:
        self._session, self._happens, self._is_lost = session, happens, False
        self.key = session.key

    def get(self, path: str) -> Znode:
        """Read a znode, until an answer was lost."""
        if self._is_lost:
            raise NotConnectedError(self.key.session_id)
        return self._session.get(path)

    def multi(self, operations: list[Operation]) -> None:
        """Do the change, and lose the connection."""
        self._is_lost = True
        if self._happens:
            self._session.multi(operations)
        raise OutcomeUnknownError(self.key.session_id)


@pytest.mark.parametrize("happens", [True, False])
def test_regression_an_election_that_cannot_be_read_back(
    store: EmbeddedStore, one: ControllerStore, happens: bool
) -> None:
    """The znode of an election that this broker does not know of prevents no election."""
    session, other = one.session, ControllerStore(store.connect(), 2)
    one.session = Deaf(session, happens=happens)  # type: ignore[assignment]
    with pytest.raises(NotConnectedError):
        one.stand(0)
    assert (other.elected() is not None) == happens
    one.session = session
    assert one.stand(0) == Reign(1 + happens, 1 + happens)
    assert other.stand(0) is None


def test_regression_the_end_of_a_reign_that_was_not_written(
    store: EmbeddedStore, one: ControllerStore
) -> None:
    """The broker, and another one after it, can still become controller in later epochs."""
    assert one.stand(0) == Reign(1, 1)
    session, other = one.session, ControllerStore(store.connect(), 2)
    one.session = Deaf(session, happens=False)  # type: ignore[assignment]
    one.resign()
    assert other.stand(0) is None
    one.session = session
    assert one.stand(0) == Reign(2, 2)
    one.resign()
    assert other.stand(0) == Reign(3, 3)


def test_the_znode_of_another_controller_is_not_deleted(
    store: EmbeddedStore, one: ControllerStore
) -> None:
    """Even if this session reads an outdated state, the znode is not deleted."""
    assert one.stand(0) == Reign(1, 1)
    before = {path: one.session.get(path) for path in (znodes.CONTROLLER, znodes.CONTROLLER_EPOCH)}
    other = ControllerStore(store.connect(), 2)
    one.resign()
    assert other.stand(0) == Reign(2, 2)
    session = one.session

    class Late:
        """A session that reads an outdated state."""

        key, multi = session.key, session.multi

        def get(self, path: str) -> Znode:
            """Read an outdated znode."""
            return before[path]

    one.session = Late()  # type: ignore[assignment]
    one.resign()
    assert one.stand(0) is None
    assert other.elected() == Elected(2, 2)


def test_what_cannot_be_read_is_left_out(
    one: ControllerStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker with wrong data affects no other broker; the log names it."""
    good = znodes.encode_registration([Endpoint("PLAINTEXT", "b1", 9092)], "", {}, 0)
    for name, data in (("1", good), ("2", b"{}"), ("x", good)):
        one.session.create(f"{znodes.BROKERS}/{name}", data, ephemeral=True)
    assert list(one.brokers()) == [1]
    for path in ("/brokers/ids/2", "'x'"):
        assert path in caplog.text
    assert one.settings("orders") == ({}, 0)
    made = one.session.create(znodes.config_path("orders"), znodes.encode_config({"a": "b"}))
    assert one.settings("orders") == ({"a": "b"}, made.mzxid)


def test_a_topic_that_cannot_be_read_exists(one: ControllerStore) -> None:
    """Its replicas are not deleted, unlike the replicas of a deleted topic."""
    one.session.create(znodes.topic_path("bad"), b"[]")
    assert one.topic_names() == {"orders", "bad"}
    assert [one.has_topic(name) for name in ("orders", "bad", "gone")] == [True, True, False]
    with pytest.raises(BadZnodeError):
        one.topic("bad")
    assert one.topic("gone") is None
    found = one.topic("orders")
    assert found is not None and found.partitions == {0: (1,)}


def test_a_deletion_is_kept_until_it_is_complete(
    one: ControllerStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The next controller reads the deletion; an unreadable deletion is logged."""
    topic = TopicIdentity(TOPIC_ID, 1)
    kept = znodes.NamedDeletion("orders", Deletion(topic, 0, 7, frozenset({1, 2})))
    one.keep(kept)
    one.keep(kept)
    one.session.create(f"{znodes.DELETIONS}/other", b"{}")
    assert one.deletions() == [kept]
    assert "/admin/replica_deletions/other" in caplog.text
    one.forget(topic, 0)
    one.forget(topic, 0)
    assert one.deletions() == []


@pytest.mark.parametrize("data", [b"", b"-1", b"x", b"99999999999", b"2147483648", b"2147483647"])
def test_a_bad_controller_epoch_is_refused(one: ControllerStore, data: bytes) -> None:
    """The next epoch would be unknown."""
    one.session.set(znodes.CONTROLLER_EPOCH, data)
    with pytest.raises(BadZnodeError):
        one.stand(0)


def test_regression_the_last_controller_epoch_is_read_back(one: ControllerStore) -> None:
    """No epoch is written that cannot be read."""
    one.session.set(znodes.CONTROLLER_EPOCH, b"2147483646")
    assert one.stand(0) == Reign(2147483647, 2)
    assert znodes.parse_controller_epoch(one.session.get(znodes.CONTROLLER_EPOCH).data) == 2**31 - 1
    one.resign()
    with pytest.raises(BadZnodeError, match="no epoch is left after 2147483647"):
        one.stand(0)


def test_a_bad_state_is_refused(one: ControllerStore) -> None:
    """The controller must not decide from a bad state."""
    reign = one.stand(0)
    assert reign is not None
    one.write(write(NO_VERSION), reign)
    one.session.set(znodes.state_path(*KEY), b"{}")
    with pytest.raises(BadZnodeError):
        one.state(KEY)


def test_the_states_of_a_large_topic_cost_one_change_each(one: ControllerStore) -> None:
    """Only the first write finds that a parent is missing; existing parents are used."""
    reign = one.stand(0)
    assert reign is not None
    session, changes = one.session, []

    class Counting:
        """Counts the changes, and refuses reads."""

        def __init__(self, *, may_read: bool) -> None:
            self.get = session.get if may_read else None

        def multi(self, operations: Any) -> Any:
            changes.append([*operations])
            return session.multi(changes[-1])

    one.session = Counting(may_read=True)  # type: ignore[assignment]
    assert one.write(write(NO_VERSION), reign) == Written(KEY, 1, 0)
    assert len(changes) == 2
    one.session = Counting(may_read=False)  # type: ignore[assignment]
    for number in range(1, 4):
        key = (KEY[0], number)
        assert one.write(write(NO_VERSION)._replace(key=key), reign) == Written(key, 1, 0)
    assert len(changes) == 5
    one.session = Counting(may_read=True)  # type: ignore[assignment]
    session.delete(znodes.state_path(*key))
    assert one.write(write(NO_VERSION)._replace(key=key), reign) == Written(key, 1, 0)
    assert one.write(write(NO_VERSION)._replace(key=key), reign) == WriteFailed(key, 1)
