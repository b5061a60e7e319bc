"""Test how sessions of a real ZooKeeper end: by time-out, by a close, or by another process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from broker.coordination.errors import (
    AccessDeniedError,
    CoordinationError,
    NotConnectedError,
    SessionClosedError,
    SessionExpiredError,
    SessionFailedError,
)
from broker.coordination.verbs import Event, EventKind, SessionState
from cluster import zookeeper, zookeeper_requests
from cluster.zookeeper import ZooKeeperSession, ZooKeeperStore
from support.cut_session import Cut
from support.heard import SECONDS_MAX, Heard
from support.tcp_link import TcpLink
from support.zookeeper_process import ZooKeeperProcess

DELETED, EXPIRED = EventKind.DELETED, SessionState.EXPIRED


def test_a_session_expires_while_its_connection_is_lost(make_cut: Callable[..., Cut]) -> None:
    """When it connects again, it is EXPIRED; every call raises, and no new session begins."""
    cut = make_cut(session_ms=2_000)
    gone, never = Heard[Event](), Heard[Event]()
    cut.session.create("/e", ephemeral=True)
    cut.session.watch("/a", never)
    cut.other.watch("/e", gone)
    cut.link.cut()
    assert gone.next() == Event(DELETED, "/e")
    forwarded = cut.link.forwarded
    cut.link.heal()
    cut.states.until(EXPIRED)
    calls: list[Any] = [lambda: cut.session.create("/x"), lambda: cut.session.get("/")]
    for call in calls:
        with pytest.raises(SessionExpiredError):
            call()
    cut.other.create("/a")
    assert never.all_until_now(cut.other, cut.other) == []
    assert cut.other.children("/") == ["a", "barrier"]
    cut.session.close()
    assert isinstance(cut.session, ZooKeeperSession)
    cut.session._callbacks.join(SECONDS_MAX)  # it frees the client
    assert cut.link.forwarded == forwarded + 1


def test_a_session_is_continued_after_its_process_died(
    cut: Cut, zookeeper_store: ZooKeeperStore
) -> None:
    """With id and password, the new holder gets the session's ephemeral znodes."""
    cut.session.create("/e", ephemeral=True)
    cut.cut()
    with zookeeper_store.connect(cut.session.key) as session:
        assert session.key == cut.session.key
        assert session.get("/e").ephemeral_owner == session.key.session_id
        made = session.create("/f", ephemeral=True)
        assert made.ephemeral_owner == session.key.session_id
    assert cut.other.children("/") == []
    cut.link.heal()
    cut.states.until(EXPIRED)


def test_a_session_is_closed_though_the_connection_is_lost_meanwhile(
    server: ZooKeeperProcess, zookeeper_store: ZooKeeperStore
) -> None:
    """Its holder may take it back, so the close waits for the connection."""
    victim, states = zookeeper_store.connect(), Heard[SessionState]()
    victim.on_session(states)
    with TcpLink(server.port) as link:
        store = ZooKeeperStore(
            f"127.0.0.1:{link.port}{zookeeper_store.chroot}",
            session_timeout_ms=600_000,
            request_timeout_ms=60_000,
        )
        session = store.connect(victim.key)
        link.cut()
        closer = threading.Thread(target=session.close)
        closer.start()
        closer.join(0.2)
        link.heal()
        closer.join(SECONDS_MAX)
    states.until(EXPIRED)


def test_a_session_is_closed_though_its_holder_takes_it_back(
    zookeeper_store: ZooKeeperStore,
) -> None:
    """The holder connects again and again, but the close succeeds."""
    for _ in range(20):
        victim, states = zookeeper_store.connect(), Heard[SessionState]()
        victim.on_session(states)
        victim.create("/e", ephemeral=True)
        zookeeper_store.connect(victim.key).close()
        states.until(EXPIRED)
        with zookeeper_store.connect() as session:
            assert session.children("/") == []


def test_a_call_that_waits_hears_of_the_end(cut: Cut) -> None:
    """The call ends with the session, before its time-out."""
    cut.cut()
    errors: list[CoordinationError] = []

    def read() -> None:
        try:
            cut.session.get("/")
        except CoordinationError as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    cut.session.close()
    reader.join(SECONDS_MAX)
    assert [type(error) for error in errors] == [SessionClosedError]


def test_no_server_is_a_time_out(server: ZooKeeperProcess) -> None:
    """A store that does not answer is reported, and no thread is left."""
    with TcpLink(server.port) as link:
        link.cut()
        store = ZooKeeperStore(f"127.0.0.1:{link.port}", request_timeout_ms=50)
        before = threading.active_count()
        with pytest.raises(NotConnectedError):
            store.connect()
        assert threading.active_count() <= before + 1


def test_regression_a_listener_that_is_added_during_a_loss_hears_of_it(cut: Cut) -> None:
    """It is called with the present state, and then with the next state."""
    cut.cut()
    late, states = Heard[SessionState](), cut.states
    cut.session.on_session(late)
    assert late.next() is SessionState.SUSPENDED
    cut.heal()
    assert late.next() is SessionState.CONNECTED
    assert states.all() == []


# --- sessions that fail ---------------------------------------------------------------------------


class Unsendable:
    """A request that makes the client library crash."""

    type = 1

    @staticmethod
    def serialize() -> bytes:
        """Fail."""
        raise RuntimeError("as a test wants it")


def test_regression_a_crash_of_the_client_library_is_not_an_expiry(cut: Cut) -> None:
    """ZooKeeper still has the session with its ephemeral znodes, and the error says so."""
    assert isinstance(cut.session, ZooKeeperSession)
    cut.session.create("/e", ephemeral=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda arguments: None)
        cut.session._client.send_async(Unsendable())  # type: ignore[arg-type] # the crash
        cut.states.until(SessionState.FAILED)
    calls: list[Any] = [lambda: cut.session.create("/x"), lambda: cut.session.get("/")]
    for call in calls:
        with pytest.raises(SessionFailedError, match="time-out") as caught:
            call()
        assert caught.value.session_id == cut.session.key.session_id
    assert cut.other.get("/e").ephemeral_owner == cut.session.key.session_id
    late = Heard[SessionState]()
    cut.session.on_session(late)
    assert late.next() is SessionState.FAILED
    cut.session.close()
    assert cut.states.all() == []


def test_regression_a_user_whom_the_server_refuses_is_told_so(
    zookeeper_store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user gets this error at each connect, never an expired session."""
    real = zookeeper_requests.Client

    def with_unknown_scheme(**options: Any) -> Any:
        return real(**{**options, "auth_data": [("unknown", "user:password")]})

    monkeypatch.setattr(zookeeper, "Client", with_unknown_scheme)
    for _ in range(20):
        with pytest.raises(AccessDeniedError):
            zookeeper_store.connect()


def test_regression_a_user_who_is_refused_later_is_told_so(
    cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a lost connection, the server no longer knows the user."""
    assert isinstance(cut.session, ZooKeeperSession)
    cut.cut()
    cut.session._client.auth_data.add(("unknown", "user:password"))
    cut.link.heal()
    cut.states.until(SessionState.FAILED)
    for _ in range(20):
        with pytest.raises(AccessDeniedError):
            cut.session.get("/")
    assert SessionState.EXPIRED not in cut.states.all()
