"""A broker finds its id in the coordination store, and takes no id that another broker has."""

from __future__ import annotations

import json

import pytest

from broker.coordination.continuity import ensure
from broker.coordination.verbs import Session, SessionKey
from broker.listener_config import Endpoint
from cluster import znodes
from cluster.errors import BadZnodeError, BrokerIdError
from cluster.presence.broker_ids import HOSTS, SEQUENCE, claim, find_id, write_host
from support.heard import Connect

NEW = {"/a": None, "/b": None}


def unexpected(argument: object) -> None:
    """Fail, because this must not be called."""
    raise AssertionError(f"it was called with {argument}")


def register(session: Session, broker: int) -> None:
    """Register an id, as a broker does."""
    ensure(session, znodes.BROKERS)
    data = znodes.encode_registration([Endpoint("PLAINTEXT", "b7", 9092)], "", {}, 0)
    session.create(znodes.broker_path(broker), data, ephemeral=True)


def test_ids_of_the_sequence_rise(session: Session, other: Session) -> None:
    """Each call uses a number up; the znode is Kafka's."""
    found = [find_id(one, None, NEW, "h", 1000) for one in (session, other, session)]
    assert found == [1001, 1002, 1003]
    assert session.get(SEQUENCE).version == 3
    assert find_id(session, None, NEW, "h", 7) == 11


def test_a_host_gets_its_last_id_again_unless_that_broker_lives(
    session: Session, other: Session
) -> None:
    """Other hosts do not get it; a configured id and the id in the log dirs count more."""
    write_host(session, "h", 5)
    write_host(session, "h", 6)
    assert json.loads(session.get(f"{HOSTS}/h").data) == {"version": 0, "broker.id": 6}
    assert find_id(session, None, NEW, "h", 1000) == 6
    assert find_id(session, None, NEW, "elsewhere", 1000) == 1001
    assert find_id(session, 3, NEW, "h", 1000) == 3
    assert find_id(session, None, {"/a": 4, "/b": None}, "h", 1000) == 4
    with pytest.raises(BrokerIdError, match="/a belongs to broker 4"):
        find_id(session, 3, {"/a": 4}, "h", 1000)
    register(other, 6)
    assert find_id(session, None, NEW, "h", 1000) == 1002


def test_the_znode_of_a_host_is_written_only_if_it_changes(session: Session) -> None:
    """One that cannot be read is replaced, but no id is taken from it."""
    write_host(session, "h", 5)
    before = session.get(f"{HOSTS}/h")
    write_host(session, "h", 5)
    assert session.get(f"{HOSTS}/h") == before
    session.set(f"{HOSTS}/h", b"{}")
    with pytest.raises(BadZnodeError, match=r"broker\.id is missing"):
        find_id(session, None, NEW, "h", 1000)
    assert find_id(session, 3, NEW, "h", 1000) == 3
    write_host(session, "h", 5)
    assert find_id(session, None, NEW, "h", 1000) == 5


def test_a_free_id_is_not_waited_for(session: Session) -> None:
    """And neither is one that this session has registered itself."""
    claim(session, 7, [], unexpected, 10.0, unexpected)
    register(session, 7)
    claim(session, 7, [session.key], unexpected, 10.0, unexpected)


def test_a_living_broker_keeps_its_id(session: Session, other: Session) -> None:
    """The error comes after one session timeout, and names the other host."""
    register(other, 7)
    waited: list[float] = []
    with pytest.raises(BrokerIdError, match="broker id 7 is registered by b7:9092"):
        claim(session, 7, [session.key], unexpected, 10.0, waited.append)
    assert 10.0 <= sum(waited) <= 16.0
    other.set(znodes.broker_path(7), b"{}")
    with pytest.raises(BrokerIdError, match="registered by an unknown host"):
        claim(session, 7, [], unexpected, 10.0, waited.append)


def test_an_id_is_taken_when_its_session_ends(session: Session, other: Session) -> None:
    """During the wait."""
    register(other, 7)
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            other.close()

    claim(session, 7, [], unexpected, 10.0, pause)
    assert len(waited) == 3


def test_the_session_of_a_process_that_is_gone_is_ended(
    session: Session, other: Session, connect: Connect
) -> None:
    """Without a wait. Only the session that has the registration is ended."""
    register(other, 7)
    ended: list[SessionKey] = []

    def end(key: SessionKey) -> None:
        ended.append(key)
        connect(key).close()

    claim(session, 7, [SessionKey(1, bytes(16)), other.key], end, 10.0, unexpected)
    assert ended == [other.key]


def test_a_session_that_cannot_be_ended_is_ended_once(session: Session, other: Session) -> None:
    """Then the broker waits as for any other, and refuses."""
    register(other, 7)
    ended: list[SessionKey] = []
    with pytest.raises(BrokerIdError, match="is registered by"):
        claim(session, 7, [other.key], ended.append, 10.0, lambda _: None)
    assert ended == [other.key]
