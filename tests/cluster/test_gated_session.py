"""Test a session of the embedded store that can be cut: verbs, callbacks, expiry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NoNodeError, NotConnectedError, SessionExpiredError
from broker.coordination.verbs import Event, SessionState
from cluster.local.gated_session import GatedSession
from support.heard import Heard


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    with EmbeddedStore([str(tmp_path)]) as made:
        yield made


def test_a_cut_and_healed_session_goes_on(store: EmbeddedStore) -> None:
    """Its ephemeral znodes stay, and callbacks for missed changes are called afterwards."""
    session, other = GatedSession(store.connect(), 60.0), store.connect()
    states, heard = Heard[SessionState](), Heard[Event]()
    session.on_session(states)
    session.create("/mine", ephemeral=True)
    session.watch("/theirs", heard)
    session.cut()
    with pytest.raises(NotConnectedError):
        session.get("/mine")
    with pytest.raises(NotConnectedError):
        session.set("/mine", b"1")
    other.create("/theirs")
    other.get("/mine")
    assert heard.all_until_now(other, other) == []
    session.heal()
    assert heard.next().path == "/theirs"
    session.set("/mine", b"1")
    assert states.all() == [SessionState.SUSPENDED, SessionState.CONNECTED]
    session.close()
    with pytest.raises(NoNodeError):
        other.get("/mine")


def test_a_session_that_is_cut_for_too_long_ends(store: EmbeddedStore) -> None:
    """Its ephemeral znodes are deleted, and only its listeners are called."""
    session, other = GatedSession(store.connect(), 0.05), store.connect()
    states, heard, gone = Heard[SessionState](), Heard[Event](), Heard[Event]()
    session.on_session(states)
    session.create("/mine", ephemeral=True)
    session.watch("/theirs", heard)
    other.watch("/mine", gone)
    session.cut()
    other.create("/theirs")
    assert gone.next().path == "/mine"
    states.until(SessionState.EXPIRED)
    session.heal()
    with pytest.raises(SessionExpiredError):
        session.get("/theirs")
    assert heard.all_until_now(other, other) == []
    late = Heard[SessionState]()
    session.on_session(late)
    assert late.next() is SessionState.EXPIRED
    session.close()
    assert states.all() == []
