"""Test the deletion of a topic: one transaction, or steps that a crash may interrupt."""

from __future__ import annotations

from typing import Any

import pytest

from broker.catalog.admin.topic_admin import NewTopic
from broker.coordination.errors import OutcomeUnknownError
from broker.coordination.verbs import Create, Operation, Session
from cluster import znodes
from cluster.admin import topic_deletion
from cluster.pure.control_exchange import Deletion
from cluster.registration import DELETED_VERSION, TopicIdentity
from cluster.state import State, encode_state
from cluster.wire.topic_ids import text_of
from support.heard import Connect
from support.topic_admins import Dying, changes_of, prepare, small_requests

STATE = State(1, 3, 1, {1: 5, 2: 5}, {}, frozenset(), 5, (1, 2), None, 1, removed=frozenset({7}))


@pytest.fixture
def session(connect: Connect) -> Session:
    session = connect()
    prepare(session, {1: "", 2: ""})
    return session


def create(session: Session, partitions: int, name: str = "orders") -> TopicIdentity:
    """Create a topic, and the states of its partitions, as a controller does."""
    topic = changes_of(session).create(NewTopic(name, partitions, 2)).topic
    path = f"{znodes.topic_path(name)}/partitions"
    session.create(path)
    for begin in range(0, partitions, 300):
        made: list[Operation] = []
        for number in range(begin, min(begin + 300, partitions)):
            made.append(Create(f"{path}/{number}"))
            made.append(Create(f"{path}/{number}/state", encode_state(STATE)))
        session.multi(made)
    return TopicIdentity(text_of(topic.id), session.get(znodes.topic_path(name)).czxid)


def kept(session: Session) -> list[znodes.NamedDeletion]:
    """Read which replicas have to be deleted."""
    return [
        znodes.parse_deletion(session.get(f"{znodes.DELETIONS}/{name}").data, name)
        for name in session.children(znodes.DELETIONS)
    ]


def test_the_replicas_are_not_forgotten(session: Session) -> None:
    """The next controller deletes them, with a later version than any state can have."""
    identity = create(session, 2)
    session.set(znodes.state_path("orders", 1), encode_state(STATE))
    before = session.zxid()
    assert topic_deletion.delete(session, "orders", identity.topic_id)
    assert session.zxid() == before + 1
    assert session.children(znodes.TOPICS) == [] == session.children(znodes.CONFIGS)
    found = {one.deletion.partition: one for one in kept(session)}
    assert found[0] == znodes.NamedDeletion(
        "orders", Deletion(identity, 0, DELETED_VERSION, frozenset({1, 2, 7}))
    )
    assert found[1].deletion.version == DELETED_VERSION


def test_another_topic_of_the_name_stays(session: Session) -> None:
    """No deletion is recorded."""
    create(session, 1)
    assert not topic_deletion.delete(session, "orders", text_of(b"another id here!"))
    assert not topic_deletion.delete(session, "nowhere", text_of(b"another id here!"))
    assert session.children(znodes.TOPICS) == ["orders"] and kept(session) == []


def test_a_topic_without_states_or_with_a_bad_one(session: Session) -> None:
    """Without a state, no replica exists; with a bad state, the assignment is used."""
    identity = create(session, 3)
    session.delete(znodes.state_path("orders", 0))
    session.set(znodes.state_path("orders", 1), b"nonsense")
    assert topic_deletion.delete(session, "orders", identity.topic_id)
    found = {one.deletion.partition: one.deletion.brokers for one in kept(session)}
    assert found == {1: frozenset({1, 2}), 2: frozenset({1, 2, 7})}
    bare = changes_of(session).create(NewTopic("bare", 1, 2)).topic
    assert topic_deletion.delete(session, "bare", text_of(bare.id))
    assert session.children(znodes.TOPICS) == []


def test_a_large_topic_is_deleted_in_steps(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash may come before each step; a start, or another deletion, completes it."""
    small_requests(monkeypatch)
    steps = 6  # the mark, three times up to three partitions, the topic
    for crash in range(steps):
        identity = create(session, 8)
        dying: Any = Dying(session, crash)
        if crash < steps - 1:
            with pytest.raises(OutcomeUnknownError):
                topic_deletion.delete(dying, "orders", identity.topic_id)
            assert session.children(znodes.TOPIC_DELETIONS) == ["orders"] * (crash > 0)
            assert session.children(znodes.TOPICS) == ["orders"]
        else:
            topic_deletion.delete(dying, "orders", identity.topic_id)
        topic_deletion.resume(session)
        is_left = crash == 0  # nothing was begun, so a start completes nothing
        assert topic_deletion.delete(session, "orders", identity.topic_id) is is_left
        assert session.children(znodes.TOPICS) == [] == session.children(znodes.CONFIGS)
        assert session.children(znodes.TOPIC_DELETIONS) == []
        assert len(kept(session)) == 8
        for name in session.children(znodes.DELETIONS):
            session.delete(f"{znodes.DELETIONS}/{name}")


def test_the_steps_fit_into_requests(session: Session) -> None:
    """The name is the longest, with more partitions than one request has room for."""
    name = "n" * 249
    identity = create(session, 900, name)
    dying: Any = Dying(session, 2)
    with pytest.raises(OutcomeUnknownError):
        topic_deletion.delete(dying, name, identity.topic_id)
    assert len(kept(session)) == topic_deletion.STEP
    assert topic_deletion.delete(session, name, identity.topic_id)
    assert session.children(znodes.TOPICS) == [] and len(kept(session)) == 900


def test_a_mark_of_another_topic_deletes_nothing(session: Session) -> None:
    """The topic of the mark is gone, and its name was used again."""
    create(session, 1)
    session.create(znodes.topic_deletion_path("orders"), text_of(b"another id here!").encode())
    session.create(znodes.topic_deletion_path("gone"), b"\xff nonsense")
    changes_of(session).resume()
    assert session.children(znodes.TOPIC_DELETIONS) == []
    assert session.children(znodes.TOPICS) == ["orders"]
