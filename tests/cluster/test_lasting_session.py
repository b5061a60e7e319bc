"""Test a session that is replaced by a new one: state, verbs, callbacks, and its end."""

from __future__ import annotations

import logging
import threading

import pytest

from broker.coordination.errors import CoordinationError, NotConnectedError
from broker.coordination.verbs import Session, SessionState
from cluster.sessions.lasting_session import LastingSession
from logstore import LogStoreError
from support.fake_session import FakeSession
from support.heard import Heard
from support.replica_nodes import wait_until


class Connections:
    """A `connect` function that returns sessions one after another, or raises errors."""

    def __init__(self, *results: FakeSession | CoordinationError) -> None:
        self.results = list(results)
        self.asked = 0

    def __call__(self) -> Session:
        self.asked += 1
        result = self.results.pop(0)
        if isinstance(result, CoordinationError):
            raise result
        return result


def test_another_session_follows_and_is_used() -> None:
    """After two failed tries, the callback gets the new session, and verbs use it."""
    first, second = FakeSession(), FakeSession()
    connect = Connections(first, NotConnectedError(1), NotConnectedError(1), second)
    renewed = Heard[Session]()
    with LastingSession(connect, 0.001) as session:
        session.on_renewal(renewed)
        session.create("/a")
        first.end(SessionState.EXPIRED)
        renewed.until(second)
        session.create("/b")
        session.set("/b", b"1")
        assert session.current is second and session.key == second.key
    assert first.paths == ["/a"] and second.paths == ["/b", "/b"]
    assert second.is_closed and connect.asked == 4


def test_states_of_all_sessions_are_heard() -> None:
    """A listener stays when a session ends."""
    first, second = FakeSession(), FakeSession()
    states = Heard[SessionState]()
    with LastingSession(Connections(first, second), 0.001) as session:
        session.on_session(states)
        first.end(SessionState.SUSPENDED)
        first.end(SessionState.FAILED)
        wait_until(lambda: session.current is second)
        wait_until(lambda: bool(second.listeners))
        second.end(SessionState.SUSPENDED)
    assert states.all() == [SessionState.SUSPENDED, SessionState.FAILED, SessionState.SUSPENDED]


def test_an_outage_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """The end is logged if the old session goes on, and if a new session begins."""
    first, second = FakeSession(), FakeSession()
    with LastingSession(Connections(first, second), 0.001) as session:
        for state in (SessionState.SUSPENDED, SessionState.SUSPENDED, SessionState.CONNECTED):
            first.end(state)
        first.end(SessionState.SUSPENDED)
        first.end(SessionState.EXPIRED)
        wait_until(lambda: session.current is second and bool(second.listeners))
    starts = [one.getMessage()[:36] for one in caplog.records]
    away, back = "the coordination store does not answ", "the coordination store answers again"
    assert starts == [away, back, away, "the session of this broker has ended", back]


def test_the_callback_is_called_again_after_an_error() -> None:
    """It is called again as long as its session lives, and then with the next session."""
    first, second, third = FakeSession(), FakeSession(), FakeSession()
    tries: list[Session] = []
    done = threading.Event()

    def register(session: Session) -> None:
        tries.append(session)
        if len(tries) == 3:
            second.end(SessionState.EXPIRED)
        if session is third:
            done.set()
            return
        raise NotConnectedError(1)

    with LastingSession(Connections(first, second, third), 0.001) as session:
        session.on_renewal(register)
        first.end(SessionState.EXPIRED)
        assert done.wait(10)
    assert tries[:3] == [second] * 3 and tries[-1] is third


def test_regression_no_unexpected_error_ends_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    """After any error, the callback is called again, and the log has the traceback."""
    first, second = FakeSession(), FakeSession()
    done = threading.Event()
    tries: list[Session] = []
    sessions, errors = Connections(first, second), list[str]()

    def connect() -> Session:
        if sessions.asked == 1 and not errors:
            errors.append("the first error")
            raise RuntimeError("the first error")
        return sessions()

    def register(session: Session) -> None:
        tries.append(session)
        if len(tries) == 1:
            raise LogStoreError("the second error")
        done.set()

    with LastingSession(connect, 0.001) as session, caplog.at_level(logging.ERROR):
        session.on_renewal(register)
        first.end(SessionState.EXPIRED)
        assert done.wait(10)
    assert tries == [second, second]
    assert [str(one.exc_info[1]) for one in caplog.records if one.exc_info] == [
        "the first error", "the second error",
    ]  # fmt: skip


def test_callbacks_are_called_in_their_order_and_each_once() -> None:
    """Only the failed callback is called again, before the later callbacks."""
    first, second = FakeSession(), FakeSession()
    calls: list[str] = []
    done = threading.Event()

    def fail_once(_: Session) -> None:
        calls.append("second")
        if calls.count("second") == 1:
            raise NotConnectedError(1)

    with LastingSession(Connections(first, second), 0.001) as session:
        session.on_renewal(lambda _: calls.append("first"))
        session.on_renewal(fail_once)
        session.on_renewal(lambda _: done.set())
        first.end(SessionState.EXPIRED)
        assert done.wait(10)
    assert calls == ["first", "second", "second"]


def test_after_a_close_no_session_is_begun() -> None:
    """If the close comes while a session begins, that session is closed."""
    first, second = FakeSession(), FakeSession()
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Connections):
        def __call__(self) -> Session:
            if self.asked:
                entered.set()
                assert go_on.wait(10)
            return super().__call__()

    session = LastingSession(Slow(first, second), 0.001)
    first.end(SessionState.EXPIRED)
    assert entered.wait(10)
    session.close()
    go_on.set()
    wait_until(lambda: second.is_closed)
    assert first.is_closed
