"""Test the same contract for the embedded store and ZooKeeper: watches and sessions."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from broker.coordination.errors import (
    SessionClosedError,
    SessionExpiredError,
)
from broker.coordination.verbs import (
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    Session,
    SessionKey,
    SessionState,
    Set,
)
from support.heard import SECONDS_MAX, Connect, Heard

CREATED, CHANGED, DELETED, CHILDREN = list(EventKind)


# --- watches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_own", [True, False])
def test_a_watch_fires_once(session: Session, other: Session, is_own: bool) -> None:
    """A watch fires at the first of two changes, even at one of its own session."""
    made = session.create("/a", b"x")
    heard = Heard[Event]()
    assert session.watch("/a", heard) == made
    writer = session if is_own else other
    writer.set("/a", b"y")
    writer.set("/a", b"z")
    assert heard.all_until_now(session, other) == [Event(CHANGED, "/a")]


def test_what_a_watch_of_a_znode_sees(session: Session, other: Session) -> None:
    """A watch of a znode sees creation, change and deletion, but no children."""
    heard = Heard[Event]()
    assert session.watch("/a", heard) is None
    other.create("/a")
    assert heard.next() == Event(CREATED, "/a")
    session.watch("/a", heard)
    other.create("/a/b")
    other.delete("/a/b")
    other.set("/a", b"")
    assert heard.next() == Event(CHANGED, "/a")
    session.watch("/a", heard)
    other.delete("/a")
    assert heard.next() == Event(DELETED, "/a")
    assert heard.all_until_now(session, other) == []


def test_what_a_watch_of_children_sees(session: Session, other: Session) -> None:
    """A watch of children sees their creation and deletion, and the parent's, but no data."""
    heard = Heard[Event]()
    session.create("/a")
    session.create("/a/b")
    assert session.watch_children("/a", heard) == ["b"]
    other.set("/a", b"")
    other.set("/a/b", b"")
    other.create("/a/c")
    assert heard.next() == Event(CHILDREN, "/a")
    assert session.watch_children("/a", heard) == ["b", "c"]
    other.delete("/a/b")
    assert heard.next() == Event(CHILDREN, "/a")
    other.delete("/a/c")
    assert session.watch_children("/a", heard) == []
    other.delete("/a")
    assert heard.next() == Event(DELETED, "/a")
    assert heard.all_until_now(session, other) == []


def test_a_change_is_readable_before_its_watch_fires(session: Session, other: Session) -> None:
    """A callback that reads and sets the watch again misses no change."""
    session.create("/n", b"0")
    seen: list[int] = []
    is_complete = threading.Event()

    def look(event: Event | None = None) -> None:
        znode = session.watch("/n", look)
        assert znode is not None
        seen.append(int(znode.data))
        if seen[-1] == 50:
            is_complete.set()

    look()
    for number in range(1, 51):
        other.set("/n", b"%d" % number)
    assert is_complete.wait(SECONDS_MAX)
    assert seen == sorted(set(seen))


def test_callbacks_come_in_the_order_of_the_changes(session: Session, other: Session) -> None:
    """This holds for all watches of a session together."""
    heard = Heard[Event]()
    paths = [f"/p{number}" for number in range(20)]
    for path in reversed(paths):
        session.watch(path, heard)
    for path in paths:
        other.create(path)
    assert [heard.next() for _ in paths] == [Event(CREATED, path) for path in paths]


def test_a_multi_fires_each_watch_once(session: Session, other: Session) -> None:
    """The watches fire in the order of the operations."""
    session.create("/a")
    heard = Heard[Event]()
    session.watch("/a", heard)
    session.watch("/a/b", heard)
    session.watch_children("/a", heard)
    other.multi([Create("/a/b"), Set("/a", b"1"), Set("/a", b"2"), Delete("/a/b")])
    expected = [Event(CREATED, "/a/b"), Event(CHILDREN, "/a"), Event(CHANGED, "/a")]
    assert heard.all_until_now(session, other) == expected


def test_an_ephemeral_znode_that_goes_fires_watches(session: Session, other: Session) -> None:
    """An election notices in this way that a controller is gone."""
    other.create("/controller", ephemeral=True)
    heard = Heard[Event]()
    session.watch("/controller", heard)
    session.watch_children("/", heard)
    other.close()
    assert [heard.next(), heard.next()] == [Event(DELETED, "/controller"), Event(CHILDREN, "/")]


def test_a_callback_that_fails_hides_no_other(
    session: Session, other: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged, and the next callback is called."""
    heard = Heard[Event]()

    def fail(event: Event) -> None:
        raise RuntimeError("as a test wants it")

    session.watch("/a", fail)
    session.watch("/b", heard)
    with caplog.at_level(logging.ERROR):
        other.create("/a")
        other.create("/b")
        assert heard.next() == Event(CREATED, "/b")
    assert "as a test wants it" in caplog.text


# --- sessions -------------------------------------------------------------------------------------


def test_a_closed_session_refuses_everything(session: Session, other: Session) -> None:
    """A second close does nothing; the first close calls the listeners and removes watches."""
    states, heard = Heard[SessionState](), Heard[Event]()
    other.on_session(states)
    other.watch("/a", heard)
    other.create("/e", ephemeral=True)
    other.watch("/e", heard)
    with other:
        pass
    other.close()
    assert states.next() == SessionState.CLOSED
    for call in calls_of(other):
        with pytest.raises(SessionClosedError) as caught:
            call()
        assert caught.value.session_id == other.key.session_id
    session.create("/a")
    assert heard.all_until_now(session, session) == []


def calls_of(session: Session) -> list[Any]:
    """Return a call of each verb."""
    return [
        lambda: session.get("/"),
        lambda: session.children("/"),
        lambda: session.create("/x"),
        lambda: session.set("/", b""),
        lambda: session.delete("/x"),
        lambda: session.multi([Check("/", 0)]),
        lambda: session.watch("/", print),
        lambda: session.watch_children("/", print),
        session.zxid,
    ]


def test_a_session_that_another_process_closes_is_expired(
    session: Session, connect: Connect
) -> None:
    """Its id and password suffice; its ephemeral znodes and watches end."""
    victim = connect()
    states, heard = Heard[SessionState](), Heard[Event]()
    victim.on_session(states)
    victim.create("/e", ephemeral=True)
    victim.watch("/a", heard)
    gone = Heard[Event]()
    session.watch("/e", gone)
    connect(victim.key).close()
    assert gone.next() == Event(DELETED, "/e")
    states.until(SessionState.EXPIRED)
    for call in calls_of(victim):
        with pytest.raises(SessionExpiredError) as caught:
            call()
        assert caught.value.session_id == victim.key.session_id
    session.create("/a")
    assert heard.all_until_now(session, session) == []
    victim.close()


def test_a_session_is_taken_only_with_its_password(connect: Connect) -> None:
    """The session must also still be alive."""
    session = connect()
    with pytest.raises(SessionExpiredError):
        connect(SessionKey(session.key.session_id, b"x" * 16))
    with pytest.raises(SessionExpiredError):
        connect(SessionKey(77, session.key.password))
    session.create("/still")
    key = session.key
    session.close()
    with pytest.raises(SessionExpiredError):
        connect(key)


def test_zxids_rise(session: Session, other: Session) -> None:
    """The count includes the newest change of any session, and never falls for a reader."""
    last = session.zxid()
    for number in range(10):
        made = other.create(f"/{number}")
        now = session.zxid()
        assert made.czxid > last
        assert now >= made.czxid
        last = now


def test_regression_a_listener_that_is_added_after_the_end_hears_of_it(
    connect: Connect,
) -> None:
    """The listener is called once, whether another holder or the session itself ended it."""
    session = connect()
    second, states = connect(session.key), Heard[SessionState]()
    session.on_session(states)
    second.close()
    states.until(SessionState.EXPIRED)
    for ended, state in ((session, SessionState.EXPIRED), (second, SessionState.CLOSED)):
        late = Heard[SessionState]()
        ended.on_session(late)
        assert late.next() is state
        assert late.all() == states.all() == []
