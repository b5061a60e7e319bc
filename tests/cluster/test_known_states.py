"""A broker notices that all its log dirs were restored from an old image (P4)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NotConnectedError
from broker.coordination.verbs import Session
from cluster import znodes
from cluster.presence import registering
from cluster.presence.known_states import STATES, KnownStates
from support.registered_dirs import Broker

PATH = f"{STATES}/1"


@pytest.fixture
def coordination(tmp_path: Path) -> Iterator[EmbeddedStore]:
    (tmp_path / "coordination").mkdir()
    with EmbeddedStore([str(tmp_path / "coordination")]) as store:
        session = store.connect()
        for path in znodes.PARENTS:
            session.create(path)
        yield store


def stop(one: Broker) -> None:
    """Stop a broker in order."""
    one.store.flush()
    one.registering.withdraw()
    one.session.close()
    one.store.close()


def take_image(root: Path) -> None:
    for name in "ab":
        shutil.copytree(root / name, root / "image" / name)


def restore_image(root: Path) -> None:
    for name in "ab":
        shutil.rmtree(root / name)
        shutil.copytree(root / "image" / name, root / name)


def append(one: Broker, value: bytes) -> None:
    for number, path in enumerate(one.store.log_dirs):
        if ("t", number) not in one.store:
            one.store.create("t", number, log_dir=path)
        one.store.log("t", number).append(value)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_regression_an_image_of_a_clean_stop_is_not_whole(
    tmp_path: Path, coordination: EmbeddedStore, is_stopped: bool
) -> None:
    """It has the mark of a clean stop, but lacks the records that were acknowledged later."""
    one = Broker(tmp_path, coordination.connect()).start()
    append(one, b"old")
    stop(one)
    take_image(tmp_path)
    one = Broker(tmp_path, coordination.connect()).start()
    assert max(one.since) < one.host.broker_epoch, "after a clean stop, nothing is lost"
    append(one, b"acknowledged")
    stop(one) if is_stopped else one.kill()
    restore_image(tmp_path)
    one = Broker(tmp_path, coordination.connect()).start()
    epoch = one.host.registration_epoch
    assert one.since == [epoch, epoch]
    assert [one.host.dirs[path].flushed_since for path in one.store.log_dirs] == [epoch, epoch]
    one.kill()
    one = Broker(tmp_path, coordination.connect()).start()
    assert one.since == [epoch, epoch], "from now on, it is whole again"
    one.kill()


def test_regression_an_image_of_a_running_broker_is_not_whole(
    tmp_path: Path, coordination: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was restored in the same boot; the broker stores the states from time to time."""
    monkeypatch.setattr(registering, "REMEMBER_SECONDS", 0.0)
    one = Broker(tmp_path, coordination.connect()).start()
    append(one, b"old")
    take_image(tmp_path)
    append(one, b"acknowledged")
    one.store.flush()
    for path in one.store.log_dirs:
        log_dir = one.store.host.replicas.find_dir(path)
        assert log_dir is not None
        log_dir.generation.step({})  # as after a checkpoint
    assert one.registering.is_late
    one.registering.repeat()
    one.kill()
    restore_image(tmp_path)
    one = Broker(tmp_path, coordination.connect()).start()
    assert one.since == [one.host.registration_epoch] * 2
    one.kill()


def test_a_killed_broker_is_whole(tmp_path: Path, coordination: EmbeddedStore) -> None:
    """However often it is killed, and whenever its states were stored."""
    one = Broker(tmp_path, coordination.connect()).start()
    since = one.since
    for number in range(3):
        append(one, b"%d" % number)
        one.store.flush()
        one.kill()
        one = Broker(tmp_path, coordination.connect()).start()
        assert one.since == since
    one.kill()


def test_states_that_cannot_be_read(tmp_path: Path, coordination: EmbeddedStore) -> None:
    """Nobody knows whether the log dirs are old copies, so they count as old copies."""
    one = Broker(tmp_path, coordination.connect()).start()
    rows = json.loads(one.session.get(PATH).data)["log_dirs"]
    one.kill()
    session = coordination.connect()
    good = {"version": 1, "log_dirs": rows}
    bad = [1, "x"], "x", [1, 2, 3], [-1, "x", 0], [1, "x", 2**70], [1, "x" * 999, 0]
    for data in (b"", b"{}", *(json.dumps(good | {"log_dirs": {"d": r}}).encode() for r in bad)):
        session.set(PATH, data)
        one = Broker(tmp_path, coordination.connect())
        assert KnownStates(session, 1).old_copies(one.store) == {*one.store.log_dirs}
        one.kill()
    one = Broker(tmp_path, coordination.connect()).start()
    assert one.since == [one.host.registration_epoch] * 2
    assert {*json.loads(session.get(PATH).data)["log_dirs"]} == {*rows}
    one.kill()


class Cut:
    """A session that does not answer some writes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.is_cut = True

    def set(self, path: str, data: bytes) -> object:
        if self.is_cut and path == PATH:
            raise NotConnectedError(0)
        return self._session.set(path, data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)


def test_states_are_stored_later(tmp_path: Path, coordination: EmbeddedStore) -> None:
    """If the coordination store does not answer, the broker starts, and stores them later."""
    cut = Cut(coordination.connect())
    one = Broker(tmp_path, cut).start()  # type: ignore[arg-type]
    assert one.registering.is_late
    with pytest.raises(NotConnectedError):
        one.registering.repeat()
    cut.is_cut = False
    one.registering.repeat()
    assert not one.registering.is_late
    assert len(json.loads(one.session.get(PATH).data)["log_dirs"]) == 2
    one.kill()
