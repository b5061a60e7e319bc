"""Test sessions of a real ZooKeeper: lost connections, expiry, passwords."""

from __future__ import annotations

import struct
import threading
from typing import Any

import pytest
from kazoo import exceptions
from kazoo.protocol import serialization as wire
from kazoo.security import OPEN_ACL_UNSAFE

from broker.coordination.errors import (
    AccessDeniedError,
    CoordinationError,
    NotConnectedError,
    OutcomeUnknownError,
    UnexpectedAnswerError,
)
from broker.coordination.verbs import Event, EventKind, Session, SessionState
from cluster.zookeeper import Credentials, ZooKeeperStore
from cluster.zookeeper_requests import Multi, Refused
from support.cut_session import Cut
from support.heard import SECONDS_MAX, Heard
from support.tcp_link import TcpLink
from support.zookeeper_process import ZooKeeperProcess

CREATED, CHANGED, DELETED, CHILDREN = list(EventKind)
CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED


SHORT_MS, SESSION_MS, REQUEST_MS = 50, 600_000, 60_000


# --- lost connections -----------------------------------------------------------------------------


def test_a_write_without_an_answer_may_have_happened(cut: Cut) -> None:
    """The error says so; in this test, the write has happened."""
    cut.session.create("/a")
    heard = Heard[Event]()
    cut.other.watch("/a", heard)
    cut.link.swallow_answers()
    errors: list[CoordinationError] = []

    def write() -> None:
        try:
            cut.session.set("/a", b"x", version=0)
        except CoordinationError as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    assert heard.next() == Event(CHANGED, "/a")
    cut.cut()
    writer.join(SECONDS_MAX)
    assert [type(error) for error in errors] == [OutcomeUnknownError]
    assert "may have happened" in str(errors[0])
    cut.heal()
    assert cut.session.get("/a").data == b"x"


def test_a_call_without_a_connection_sends_nothing(cut: Cut) -> None:
    """The call waits for its time-out, and reports that nothing was changed."""
    cut.session.create("/a")
    cut.cut()
    before, cut.store.request_timeout_ms = cut.store.request_timeout_ms, SHORT_MS
    for call in (
        lambda: cut.session.set("/a", b"x"),
        lambda: cut.session.get("/a"),
        lambda: cut.session.children("/"),
        lambda: cut.session.watch("/a", print),
        cut.session.zxid,
    ):
        with pytest.raises(NotConnectedError) as caught:
            call()
        assert caught.value.session_id == cut.session.key.session_id
    cut.store.request_timeout_ms = before
    cut.heal()
    assert cut.session.get("/a").version == 0


def test_a_read_without_an_answer_can_be_repeated(cut: Cut) -> None:
    """The error does not claim that a write may have happened."""
    cut.link.swallow_answers()
    cut.store.request_timeout_ms = SHORT_MS
    with pytest.raises(NotConnectedError):
        cut.session.get("/")
    with pytest.raises(OutcomeUnknownError):
        cut.session.create("/a")


def test_a_session_outlives_its_connection(cut: Cut) -> None:
    """Its ephemeral znodes stay, and a call that waits for the connection succeeds."""
    cut.session.create("/e", ephemeral=True)
    key = cut.session.key
    cut.cut()
    assert cut.other.get("/e").ephemeral_owner == key.session_id
    cut.heal()
    assert cut.session.key == key
    cut.session.create("/e2", ephemeral=True)
    cut.session.close()
    assert "e" not in cut.other.children("/")


def test_a_server_that_starts_again_keeps_its_sessions(
    server: ZooKeeperProcess, zookeeper_store: ZooKeeperStore
) -> None:
    """Znodes, sessions and watches survive a kill -9 of the server."""
    with TcpLink(server.port) as link:
        # The client must not reach a server that is still starting: such a server may never answer,
        # and the client would wait for a whole session time-out.
        store = ZooKeeperStore(
            f"127.0.0.1:{link.port}{zookeeper_store.chroot}",
            session_timeout_ms=SESSION_MS,
            request_timeout_ms=REQUEST_MS,
        )
        with store.connect() as session:
            states, heard = Heard[SessionState](), Heard[Event]()
            session.on_session(states)
            made = session.create("/e", b"x", ephemeral=True)
            session.watch("/e", heard)
            link.cut()
            states.until(SUSPENDED)
            server.kill()
            server.start()
            link.heal()
            states.until(CONNECTED)
            assert session.get("/e") == made
            session.delete("/e")
            assert heard.next() == Event(DELETED, "/e")


# --- watches over a lost connection ---------------------------------------------------------------


def changes_of_a_znode(session: Session, kind: EventKind | None) -> None:
    """Change `/here` so that a watch sees this kind of change, or nothing."""
    if kind is CREATED:
        session.create("/missing")
    elif kind is CHANGED:
        session.set("/here", b"x")
    elif kind is DELETED:
        session.delete("/here")


@pytest.mark.parametrize("kind", [CREATED, CHANGED, DELETED, None])
def test_a_watch_sees_what_happened_while_the_connection_was_lost(
    cut: Cut, kind: EventKind | None
) -> None:
    """The watch fires once. If nothing happened, it sees the next change."""
    cut.session.create("/here")
    path = "/missing" if kind is CREATED else "/here"
    heard = Heard[Event]()
    cut.session.watch(path, heard)
    cut.cut()
    changes_of_a_znode(cut.other, kind)
    cut.heal()
    if kind is None:
        cut.other.set("/here", b"later")
    assert heard.next() == Event(kind or CHANGED, path)
    assert heard.all_until_now(cut.session, cut.other) == []


@pytest.mark.parametrize("what", ["comes", "goes", "both", "parent", "nothing"])
def test_a_watch_of_children_sees_what_happened_meanwhile(cut: Cut, what: str) -> None:
    """It sees a child that came and went, and a parent that was created again."""
    cut.session.create("/p")
    if what != "parent":
        cut.session.create("/p/a")
    heard = Heard[Event]()
    cut.session.watch_children("/p", heard)
    cut.cut()
    if what in ("comes", "both"):
        cut.other.create("/p/b")
    if what == "both":
        cut.other.delete("/p/b")
    if what == "goes":
        cut.other.delete("/p/a")
    if what == "parent":
        cut.other.delete("/p")
        cut.other.create("/p")
    cut.heal()
    if what == "nothing":
        cut.other.create("/p/c")
    assert heard.next() == Event(DELETED if what == "parent" else CHILDREN, "/p")
    assert heard.all_until_now(cut.session, cut.other) == []


def test_a_znode_that_was_created_again_meanwhile_was_deleted(cut: Cut) -> None:
    """Its data may be the same, but it is another znode."""
    cut.session.create("/here")
    heard = Heard[Event]()
    cut.session.watch("/here", heard)
    cut.cut()
    cut.other.delete("/here")
    cut.other.create("/here")
    cut.heal()
    assert heard.next() == Event(DELETED, "/here")


def test_a_znode_that_came_and_went_meanwhile_goes_unseen(cut: Cut) -> None:
    """ZooKeeper keeps no trace of it. The watch is still set, and sees the next creation."""
    heard = Heard[Event]()
    assert cut.session.watch("/missing", heard) is None
    cut.cut()
    cut.other.create("/missing")
    cut.other.delete("/missing")
    cut.heal()
    assert heard.all_until_now(cut.session, cut.other) == []
    cut.other.create("/missing")
    assert heard.next() == Event(CREATED, "/missing")


def test_watches_survive_many_losses(cut: Cut) -> None:
    """With changes before, between and after the losses, the reader ends with the last value."""
    cut.session.create("/n", b"0")
    seen: list[int] = []
    is_complete = threading.Event()

    def look(event: Event | None = None) -> None:
        while True:
            try:
                znode = cut.session.watch("/n", look)
                break
            except NotConnectedError:
                continue
        assert znode is not None
        seen.append(int(znode.data))
        if seen[-1] == 60:
            is_complete.set()

    look()
    for number in range(1, 61):
        cut.other.set("/n", b"%d" % number)
        if number % 20 == 5:
            cut.link.cut()
        elif number % 20 == 10:
            cut.link.heal()
    assert is_complete.wait(SECONDS_MAX)
    assert seen == sorted(seen)


# --- passwords and paths --------------------------------------------------------------------------


def test_znodes_for_their_creator_alone(zookeeper_store: ZooKeeperStore) -> None:
    """Another user, or none, has no access; the user itself has, on any connection."""
    hosts = f"{zookeeper_store.servers}{zookeeper_store.chroot}"
    ann = ZooKeeperStore(hosts, credentials=Credentials("ann", "1"), is_private=True)
    with ann.connect() as session:
        session.create("/secret", b"x")
    with ann.connect() as session:
        assert session.set("/secret", b"y").data == b"y"
    with pytest.raises(ValueError, match="need credentials"):
        ZooKeeperStore(hosts, is_private=True)
    for other in (
        ZooKeeperStore(hosts),
        ZooKeeperStore(hosts, credentials=Credentials("ann", "2")),
        ZooKeeperStore(hosts, credentials=Credentials("bob", "1")),
    ):
        with other.connect() as session:
            calls: list[Any] = [
                lambda: session.get("/secret"),
                lambda: session.set("/secret", b""),
                lambda: session.create("/secret/x"),
                lambda: session.watch("/secret", print),
            ]
            for call in calls:
                with pytest.raises(AccessDeniedError) as caught:
                    call()
                assert caught.value.path.startswith("/secret")


def test_the_path_of_a_store_is_its_root(zookeeper_store: ZooKeeperStore) -> None:
    """Answers and events have paths below it; a longer path is created with its parents."""
    hosts = f"{zookeeper_store.servers}{zookeeper_store.chroot}"
    inner = ZooKeeperStore(hosts + "/x/y/z")
    with inner.connect() as session, zookeeper_store.connect() as outer:
        heard = Heard[Event]()
        session.watch("/a", heard)
        outer.create("/x/y/z/a")
        assert heard.next() == Event(CREATED, "/a")
        assert session.create("/s-", sequence=True).path.startswith("/s-")
        assert session.get("/").path == "/"
        assert outer.children("/x/y/z")[0] == "a"
    with pytest.raises(ValueError, match="is not the path"):
        ZooKeeperStore("127.0.0.1:1/a//b")


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [struct.error("too short"), KeyError(7), UnicodeError("bad")])
def test_regression_an_unreadable_answer_to_a_write_leaves_its_outcome_unknown(
    zookeeper_store: ZooKeeperStore, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write has happened, so it must not look like a refusal, or like a wrong argument."""

    def fail(data: bytes, position: int) -> None:
        raise error

    with zookeeper_store.connect() as session:
        with monkeypatch.context() as patch:
            patch.setattr(Multi, "deserialize", staticmethod(fail))
            with pytest.raises(OutcomeUnknownError) as caught:
                session.create("/a", b"x")
        assert caught.value.session_id == session.key.session_id
        assert session.get("/a").data == b"x"


def test_an_answer_for_too_few_operations_leaves_the_outcome_unknown(
    zookeeper_store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content of the answer does not matter."""
    with zookeeper_store.connect() as session:
        monkeypatch.setattr(Multi, "deserialize", staticmethod(lambda data, position: []))
        with pytest.raises(OutcomeUnknownError):
            session.create("/a")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (exceptions.MarshallingError, OutcomeUnknownError),
        (exceptions.SystemZookeeperError, OutcomeUnknownError),
        (exceptions.DataInconsistency, OutcomeUnknownError),
        (exceptions.BadArgumentsError, UnexpectedAnswerError),
        (exceptions.QuotaExceededError, UnexpectedAnswerError),
    ],
)
def test_an_error_inside_the_server_leaves_the_outcome_unknown(
    zookeeper_store: ZooKeeperStore,
    error: type[Exception],
    expected: type[CoordinationError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error may have come after the write, unlike a refusal."""
    with zookeeper_store.connect() as session:

        def answer(request: object) -> Any:
            result = session._handler.async_result()
            result.set_exception(error())
            return result

        with monkeypatch.context() as patch:
            patch.setattr(session._client, "send_async", answer)
            with pytest.raises(expected):
                session.create("/a")


def test_a_refusal_with_an_unknown_code_is_a_refusal(
    zookeeper_store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later ZooKeeper may have more codes."""
    with zookeeper_store.connect() as session:
        refused = [Refused(0, -999)]
        with monkeypatch.context() as patch:
            patch.setattr(Multi, "deserialize", staticmethod(lambda data, position: refused))
            with pytest.raises(UnexpectedAnswerError, match="-999"):
                session.create("/a")


def test_an_unreadable_answer_to_a_read_is_an_error_of_the_store(
    zookeeper_store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the path, and the session can still be used."""

    def fail(data: bytes, position: int) -> None:
        raise struct.error("too short")

    with zookeeper_store.connect() as session:
        session.create("/a")
        with monkeypatch.context() as patch:
            patch.setattr(wire.GetData, "deserialize", staticmethod(fail))
            with pytest.raises(UnexpectedAnswerError, match="too short") as caught:
                session.get("/a")
        assert caught.value.path == "/a"
        assert session.get("/a").path == "/a"


def test_regression_a_path_is_used_in_whose_parent_the_user_may_not_create(
    zookeeper_store: ZooKeeperStore,
) -> None:
    """The path exists, so it need not be created. A missing path is refused."""
    hosts = f"{zookeeper_store.servers}{zookeeper_store.chroot}"
    ann = ZooKeeperStore(f"{hosts}/p", credentials=Credentials("ann", "1"), is_private=True)
    with ann.connect() as session:
        session.create("/open")
        full = f"{zookeeper_store.chroot}/p/open"
        session._client.set_acls(full, OPEN_ACL_UNSAFE)
    with ZooKeeperStore(f"{hosts}/p/open").connect() as session:
        assert session.create("/a").path == "/a"
    with pytest.raises(AccessDeniedError):
        ZooKeeperStore(f"{hosts}/p/missing").connect()
