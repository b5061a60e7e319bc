"""Test how settings in the coordination store reach the logs of a broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.catalog.admin.topic_admin import NewTopic
from broker.catalog.setting_changes import Change, Operation
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NotConnectedError
from broker.coordination.verbs import Session
from cluster import znodes
from cluster.admin import settings_sync
from cluster.admin.settings_sync import SettingsSync, drop_old_notices
from cluster.admin.topic_changes import TopicChanges
from logstore import LogConfig, LogStore
from mover import ReplicaMover
from support.places import fast_directory
from support.replica_nodes import wait_until
from support.topic_admins import changes_of, prepare

DEFAULTS = LogConfig(record_format="kafka", retention_ms=1_000_000)
UNLIMITED = DEFAULTS.replace(retention_ms=None)


class Broken:
    """A session that is not connected while it is broken."""

    def __init__(self, session: Session) -> None:
        self._session, self.is_broken = session, False

    def __getattr__(self, name: str) -> object:
        if self.is_broken:
            raise NotConnectedError(1)
        return getattr(self._session, name)


class Place:
    """A store with two log dirs, a coordination store, and another broker's changes."""

    def __init__(self, root: Path) -> None:
        (root / "znodes").mkdir()
        self.coordination = EmbeddedStore([str(root / "znodes")])
        self.session = self.coordination.connect()
        prepare(self.session, {1: ""})
        self.changes: TopicChanges = changes_of(self.coordination.connect())
        self.dirs = [root / "a", root / "b"]
        self.store = LogStore.open(self.dirs, admin_socket=False)
        self.link = Broken(self.session)
        self.sync = SettingsSync(self.link, self.store, DEFAULTS)  # type: ignore[arg-type]

    def create(self, name: str, partitions: int = 2, **settings: str) -> None:
        """Create a topic, and its replicas here."""
        given = [(key.replace("_", "."), value) for key, value in settings.items()]
        self.changes.create(NewTopic(name, partitions, 1, (), given))
        for number in range(partitions):
            log_dir = self.dirs[number % 2]
            self.store.create(name, number, config=self.sync.config_of(name), log_dir=log_dir)

    def set(self, name: str, **settings: str) -> None:
        """Change settings of a topic, as another broker does."""
        self.changes.alter(
            name,
            [Change(key.replace("_", "."), Operation.SET, one) for key, one in settings.items()],
        )

    def retention(self, name: str, number: int = 0) -> int | None:
        """Return a setting that a log has now."""
        found: int | None = self.store.log(name, number).config.retention_ms
        return found

    def close(self) -> None:
        self.sync.close()
        self.store.close()
        self.coordination.close()


@pytest.fixture
def place() -> Iterator[Place]:
    with fast_directory() as root:
        made = Place(root)
        yield made
        made.close()


def test_a_change_reaches_all_logs(place: Place) -> None:
    """The value "no limit" and the broker's default work, too; other topics are not read."""
    place.create("orders", retention_ms="5000")
    place.create("other", retention_ms="6000")
    assert place.retention("orders") == 5000
    place.sync.start()
    place.set("orders", retention_ms="7000", segment_bytes="2000000")
    wait_until(lambda: [place.retention("orders", one) for one in (0, 1)] == [7000, 7000])
    place.set("orders", retention_ms="-1")
    wait_until(lambda: place.retention("orders", 1) is None)
    place.changes.alter("orders", [Change("retention.ms", Operation.DELETE, None)])
    wait_until(lambda: place.retention("orders", 1) == 1_000_000)
    assert place.store.log("orders", 1).config.segment_bytes == 2_000_000
    assert place.retention("other") == 6000


def test_what_changed_before_the_start_is_read(place: Place) -> None:
    """A broker that was away gets no notice of the change."""
    place.create("orders")
    place.set("orders", retention_ms="7000")
    drop_old_notices(place.session)
    place.sync.start()
    wait_until(lambda: place.retention("orders", 1) == 7000)


def test_notices_that_were_dropped_are_made_up_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All topics are read again, because the changed topics are not known."""
    monkeypatch.setattr(settings_sync, "NOTICES_KEPT", 3)
    monkeypatch.setattr(settings_sync, "RETRY_SECONDS", 0.05)
    place.create("first")
    place.create("second")
    place.sync.start()
    place.set("second", retention_ms="1")
    wait_until(lambda: place.retention("second") == 1)
    seen = place.session.children(znodes.SETTING_NOTICES)
    place.link.is_broken = True
    place.set("first", retention_ms="7000")
    for number in range(5):
        place.set("second", retention_ms=str(9000 + number))
    assert len(place.session.children(znodes.SETTING_NOTICES)) == 3
    assert not set(seen) & set(place.session.children(znodes.SETTING_NOTICES))
    assert place.retention("first") == 1_000_000
    place.link.is_broken = False
    wait_until(lambda: (place.retention("first"), place.retention("second")) == (7000, 9004))


def test_a_replica_that_is_created_late_gets_the_newest_settings(place: Place) -> None:
    """The settings changed after they were read, and before the replica existed."""
    place.create("orders", partitions=1, retention_ms="5000")
    place.sync.start()
    old = place.sync.config_of("orders")
    place.set("orders", retention_ms="7000")
    wait_until(lambda: place.retention("orders") == 7000)
    place.store.create("orders", 1, config=old)
    wait_until(lambda: place.retention("orders", 1) == 7000)


def test_a_log_dir_that_returns_gets_the_settings(place: Place) -> None:
    """The other log dir gets them at once."""
    place.create("orders", retention_ms="5000")
    place.sync.start()
    place.store.take_offline(place.dirs[1])
    place.set("orders", retention_ms="7000")
    wait_until(lambda: place.retention("orders") == 7000)
    place.store.reopen_dir(place.dirs[1])
    wait_until(lambda: place.retention("orders", 1) == 7000)


def test_a_bad_setting_stays_what_it_was(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The setting is logged and not changed; the default could delete records."""
    place.create("orders", retention_ms="-1")
    place.create("other", retention_ms="-1")
    place.sync.start()
    bad = {"retention.ms": "soon", "no.such.key": "1", "segment.bytes": "3000000"}
    place.session.set(znodes.config_path("orders"), znodes.encode_config(bad))
    place.session.set(znodes.config_path("other"), b"nonsense")
    for name in ("orders", "other", "nowhere"):
        notice = znodes.encode_setting_notice(name)
        place.session.create(znodes.SETTING_NOTICE, notice, sequence=True)
    place.session.create(znodes.SETTING_NOTICE, b"nonsense", sequence=True)
    wait_until(lambda: place.store.log("orders", 0).config.segment_bytes == 3_000_000)
    place.create("new")
    place.set("new", retention_ms="7")
    wait_until(lambda: place.retention("new") == 7)
    assert place.retention("orders") is None is place.retention("other")
    assert "no.such.key" in caplog.text and "retention.ms" in caplog.text
    assert "topic other keeps its present settings" in caplog.text
    assert place.sync.config_of("other") == UNLIMITED


def test_a_topic_without_settings_in_the_store_keeps_its_own(place: Place) -> None:
    """The store may be the wrong one, and the default retention would delete records."""
    place.create("orders", retention_ms="-1")
    place.session.delete(znodes.config_path("orders"))
    place.sync.start()
    place.create("other")
    place.set("other", retention_ms="7")
    wait_until(lambda: place.retention("other") == 7)
    assert place.retention("orders") is None


def test_a_store_that_does_not_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica begins without limits, and gets its settings later; no thread ends."""
    monkeypatch.setattr(settings_sync, "RETRY_SECONDS", 0.05)
    place.link.is_broken = True
    place.changes.create(NewTopic("orders", 1, 1, (), [("retention.ms", "7000")]))
    place.sync.start()
    place.store.create("orders", 0, config=place.sync.config_of("orders"))
    assert place.retention("orders") is None
    place.link.is_broken = False
    wait_until(lambda: place.retention("orders") == 7000)


@pytest.mark.parametrize(
    "policy", ["delete", "compact", "compact,delete"], ids=["delete", "compact", "both"]
)
def test_regression_a_new_log_deletes_nothing_by_settings_that_cannot_be_read(
    place: Place, policy: str
) -> None:
    """Before, it began with the default limits, and lost records of a topic without limits."""
    defaults = LogConfig(
        record_format="kafka", retention_ms=1_000, retention_bytes=1_000, cleanup_policy=policy
    )
    place.sync = SettingsSync(place.link, place.store, defaults)  # type: ignore[arg-type]
    unlimited = defaults.replace(retention_ms=None, retention_bytes=None, cleanup_policy="delete")
    place.changes.create(NewTopic("orders", 1, 1, (), []))

    def config_with(data: bytes) -> LogConfig:
        place.session.set(znodes.config_path("orders"), data)
        return place.sync.config_of("orders")

    def config_of(**texts: str) -> LogConfig:
        named = {key.replace("_", "."): text for key, text in texts.items()}
        return config_with(znodes.encode_config(named))

    assert config_with(b"nonsense") == unlimited == place.sync.config_of("nowhere")
    assert config_of(retention_ms="soon") == defaults.replace(retention_ms=None)
    assert config_of(retention_bytes="x") == defaults.replace(retention_bytes=None)
    assert config_of(cleanup_policy="none", retention_ms="5") == unlimited
    assert config_of(retention_ms="5", segment_ms="x") == defaults.replace(retention_ms=5)
    assert config_of() == defaults


def test_a_limit_waits_for_a_policy_that_can_be_read(place: Place) -> None:
    """The topic may be compacted; then its limits delete nothing."""
    place.create("orders", partitions=1)
    bad = {"cleanup.policy": "none", "retention.ms": "5", "segment.bytes": "3000000"}
    place.session.set(znodes.config_path("orders"), znodes.encode_config(bad))
    place.store.create("orders", 1, config=place.sync.config_of("orders"))
    place.sync.start()
    wait_until(lambda: place.store.log("orders", 0).config.segment_bytes == 3_000_000)
    assert (place.retention("orders"), place.retention("orders", 1)) == (1_000_000, None)
    place.set("orders", cleanup_policy="delete")
    wait_until(lambda: [place.retention("orders", one) for one in (0, 1)] == [5, 5])


def test_regression_settings_that_go_back_while_a_log_takes_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, the change back was left out, because the log still had the old value."""
    place.create("orders", 1, retention_ms="1000")
    place.sync.start()
    wait_until(lambda: place.retention("orders") == 1000)
    real, may_set = LogStore.set_config, threading.Event()
    calls = list[object]()

    def set_config(store: LogStore, *arguments: Any) -> object:
        calls.append(arguments)
        assert may_set.wait(20)
        return real(store, *arguments)

    monkeypatch.setattr(LogStore, "set_config", set_config)
    place.set("orders", retention_ms="2000")
    wait_until(lambda: bool(calls))
    heard = list[str]()
    place.sync.on_texts = lambda name, texts: heard.append(name)
    place.set("orders", retention_ms="1000")
    wait_until(lambda: "orders" in heard)
    place.create("later", 1)
    heard.clear()
    place.set("later", retention_ms="3000")  # it is read after those of before were dealt with
    wait_until(lambda: "later" in heard)
    may_set.set()
    wait_until(lambda: len(calls) == 3 and place.retention("orders") == 1000)


def test_regression_notices_are_read_after_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a notice whose reading failed had to wait for the next notice."""
    monkeypatch.setattr(settings_sync, "RETRY_SECONDS", 0.05)
    place.create("orders", 1, retention_ms="1000")
    place.sync.start()
    wait_until(lambda: place.retention("orders") == 1000)
    real, errors = type(place.session).get, [NotConnectedError(1)]

    def get(session: Session, path: str) -> object:
        if errors and path.startswith(znodes.SETTING_NOTICES):
            raise errors.pop()
        return real(session, path)  # type: ignore[arg-type]

    monkeypatch.setattr(type(place.session), "get", get)
    place.set("orders", retention_ms="2000")
    wait_until(lambda: not errors and place.retention("orders") == 2000)


class Hung:
    """Changes of logs in one log dir; each of them waits until it is released.

    Attributes:
        places: the log dir of the log, for each change that has begun, in any log dir.
        gates: an event for each change that has begun in the hung log dir.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log_dir: Path) -> None:
        self.places, self.gates, self.is_over = list[str](), list[threading.Event](), False
        real = LogStore.set_config

        def set_config(store: LogStore, topic: str, number: int, changes: Any) -> object:
            place = store.log(topic, number).log_dir
            self.places.append(place)
            if place == str(log_dir) and not self.is_over:
                self.gates.append(gate := threading.Event())
                assert gate.wait(60)
            return real(store, topic, number, changes)

        monkeypatch.setattr(LogStore, "set_config", set_config)

    def release(self) -> None:
        """Release all changes, also those that begin later."""
        self.is_over = True
        for gate in self.gates:
            gate.set()


@pytest.fixture
def hung(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    """A disk that hangs in each change of a log in the first log dir."""
    made = Hung(monkeypatch, place.dirs[0])
    yield made
    made.release()


def test_regression_settings_reach_a_replica_that_left_a_hung_log_dir(
    place: Place, hung: Hung
) -> None:
    """Before, the thread that hung kept the task of the partition, for every log dir."""
    place.create("orders", 1, retention_ms="1000")
    place.sync.start()
    place.set("orders", retention_ms="2000")
    wait_until(lambda: hung.places == [str(place.dirs[0])])
    place.store.take_offline(place.dirs[0])
    place.store.remove_dir(place.dirs[0], lost=True)
    place.store.create("orders", 0, config=place.sync.config_of("orders"))
    place.set("orders", retention_ms="3000")
    wait_until(lambda: place.retention("orders") == 3000)
    hung.release()  # the old thread drops its task
    place.set("orders", retention_ms="4000")
    wait_until(lambda: place.retention("orders") == 4000)


def test_regression_settings_reach_a_replica_that_moved_off_a_hung_log_dir(
    place: Place, hung: Hung
) -> None:
    """The log dir still serves. The thread of the other log dir applies the newest settings."""
    place.create("orders", 1, retention_ms="1000")
    place.sync.start()
    place.set("orders", retention_ms="2000")
    wait_until(lambda: len(hung.gates) == 1)
    with ReplicaMover(place.store) as mover:
        mover.move("orders", 0, place.dirs[1]).wait(60)
    wait_until(lambda: place.retention("orders") == 2000)
    place.set("orders", retention_ms="3000")
    wait_until(lambda: place.retention("orders") == 3000)
    count = len(hung.places)
    hung.release()  # the old thread sets 2000 once more; then the settings are compared again
    wait_until(lambda: len(hung.places) > count and place.retention("orders") == 3000)


def test_regression_settings_reach_a_log_dir_that_returns_while_its_thread_hangs(
    place: Place, hung: Hung
) -> None:
    """Before, the new settings waited in the queue of the thread that hung."""
    place.create("orders", 1, retention_ms="1000")
    place.sync.start()
    place.set("orders", retention_ms="2000")
    wait_until(lambda: len(hung.gates) == 1)
    place.store.take_offline(place.dirs[0])
    place.store.reopen_dir(place.dirs[0])
    wait_until(lambda: len(hung.gates) == 2)  # in another thread
    place.set("orders", retention_ms="3000")
    hung.is_over = True
    hung.gates[1].set()
    wait_until(lambda: place.retention("orders") == 3000)
    count = len(hung.places)
    hung.gates[0].set()  # this thread sets 2000 once more; then the settings are compared again
    wait_until(lambda: len(hung.places) > count and place.retention("orders") == 3000)


def test_a_log_that_is_created_again_has_another_place(place: Place) -> None:
    """A task of the deleted topic does not stand for the new topic of the same name."""
    place.create("orders", 1)
    old = settings_sync.place_of(place.store.log("orders", 0))
    place.store.delete("orders", 0)
    place.store.create("orders", 0, config=DEFAULTS, log_dir=place.dirs[0])
    new = settings_sync.place_of(place.store.log("orders", 0))
    assert new == old._replace(topic_id=new.topic_id) != old
