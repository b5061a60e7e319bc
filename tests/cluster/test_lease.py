"""Test how long the lease of a broker is held."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from broker.coordination.errors import NotConnectedError
from broker.coordination.verbs import SessionState
from cluster.sessions.lasting_session import LastingSession
from cluster.sessions.lease import Lease, boot_clock
from support.fake_session import FakeSession
from support.replica_nodes import wait_until


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_is_held_for_two_thirds_of_a_session_after_the_last_answer() -> None:
    """The time counts from the sending of the heartbeat, not from its answer."""
    clock, fake = Clock(), FakeSession()
    read = fake.get
    with LastingSession(lambda: fake) as session:
        lease = Lease(session, 30.0, clock)
        assert not lease.is_held

        def answer_late(path: str):  # type: ignore[no-untyped-def]
            clock.now += 5
            return read(path)

        fake.get = answer_late  # type: ignore[method-assign]
        lease.begin(fake)
        assert lease.is_held
        clock.now = 119.9
        assert lease.is_held
        clock.now = 120.0
        assert not lease.is_held
        lease.close()


def test_heartbeats_extend_it_until_they_are_not_answered() -> None:
    """The test uses a real clock and a session of 0.3 seconds."""
    fake = FakeSession()
    with LastingSession(lambda: fake) as session:
        lease = Lease(session, 0.3)
        lease.begin(fake)
        began = boot_clock()
        wait_until(lambda: boot_clock() - began > 0.5)
        assert lease.is_held
        fake.error = NotConnectedError(1)
        wait_until(lambda: not lease.is_held)
        fake.error = None
        wait_until(lambda: lease.is_held)
        lease.close()
        assert not lease.is_held


def test_regression_it_is_held_again_after_an_unexpected_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The heartbeats continue, and the log has the traceback."""
    fake = FakeSession()
    with LastingSession(lambda: fake) as session:
        lease = Lease(session, 0.3)
        lease.begin(fake)
        with patch.object(fake, "get", side_effect=RuntimeError("nobody expected this")):
            wait_until(lambda: not lease.is_held)
        wait_until(lambda: lease.is_held)
        lease.close()
    assert any(one.exc_info is not None for one in caplog.records)


def test_an_answer_in_a_new_session_counts_after_the_registration_only() -> None:
    """Before `begin`, another leader may have been elected."""
    first, second = FakeSession(), FakeSession()
    sessions = [first, second]
    with LastingSession(lambda: sessions.pop(0), 0.001) as session:
        lease = Lease(session, 0.3)
        lease.begin(first)
        first.end(SessionState.EXPIRED)
        wait_until(lambda: session.current is second)
        began = boot_clock()
        wait_until(lambda: boot_clock() - began > 0.6)
        assert not lease.is_held
        lease.begin(second)
        assert lease.is_held
        wait_until(lambda: boot_clock() - began > 1.2)
        assert lease.is_held
        lease.close()


def test_the_session_of_an_embedded_store_lives_as_long_as_the_process() -> None:
    """In this case, no heartbeat is sent."""
    clock, fake = Clock(), FakeSession()
    with LastingSession(lambda: fake) as session:
        lease = Lease(session, None, clock)
        lease.begin(fake)
        clock.now = 1e9
        fake.error = NotConnectedError(1)
        assert lease.is_held
        lease.close()
        assert not lease.is_held


def test_a_session_that_does_not_answer_holds_no_lease() -> None:
    """If the session does not answer, `begin` fails."""
    fake = FakeSession()
    with LastingSession(lambda: fake) as session:
        lease = Lease(session, 0.3)
        fake.error = NotConnectedError(1)
        with pytest.raises(NotConnectedError):
            lease.begin(fake)
        assert not lease.is_held
