"""Test that a topic has all its partitions or does not exist, after any interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.catalog import dir_facts
from broker.catalog.old_notes import CREATED, DELETED
from broker.catalog.topic_store import TopicStore
from broker.catalog.topics import TopicCatalog
from broker.config import KAFKA_LOG_CONFIG
from broker.coordination.embedded import EmbeddedSession
from logstore import LogDirFullError, LogStore
from support.inside import abandon

CONFIG = KAFKA_LOG_CONFIG.replace(retention_ms=77_000)


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


class DeathError(BaseException):
    """Ends the process, from the test's point of view."""


def dying_after(store: LogStore, count: int, error: BaseException) -> Any:
    """Return a `create_topic` that creates some partitions and then raises."""
    create = store.create_topic

    def create_some(name: str, partitions: int, **options: Any) -> Any:
        if count:
            create(name, count, **options)
        raise error

    return create_some


def recorded(store: LogStore) -> tuple[list[str], list[str], list[str]]:
    """List the recorded topics, those that are being created, and those that are being deleted."""
    topics = TopicStore.of(store)
    deleted = [one.name for one in topics.deleted.values()]
    found = (list(topics.records), list(topics.unfinished), deleted)
    topics.release()
    return found


def partitions_of(store: LogStore, name: str) -> list[int]:
    """List the partitions that a store has of a topic."""
    return sorted(number for topic, number in store if topic == name)


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_a_crash_leaves_a_whole_topic(
    dirs: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    count: int,
) -> None:
    """The next start creates the missing partitions, with the same id and settings."""
    store = LogStore.open(dirs)
    catalog = TopicCatalog(store)
    with monkeypatch.context() as patch:
        patch.setattr(
            LogStore, "create_topic", staticmethod(dying_after(store, count, DeathError()))
        )
        with pytest.raises(DeathError):
            catalog.create("t", 4, CONFIG)
    (topic,) = TopicStore.of(store).records.values()
    abandon(store)
    with LogStore.open(dirs) as store:
        catalog = TopicCatalog(store)
        assert recorded(store) == (["t"], ["t"], [])
        catalog.start()
        assert partitions_of(store, "t") == [0, 1, 2, 3]
        logs = [store.log("t", number) for number in partitions_of(store, "t")]
        assert {log.topic_id for log in logs} == {topic.id}
        assert all(log.config == CONFIG for log in logs)
        assert recorded(store) == (["t"], [], [])
        assert "records" not in caplog.text
        catalog.close()


def test_a_crash_before_the_creation_leaves_no_topic(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written to the disks before the coordination store has the topic."""
    store = LogStore.open(dirs)
    catalog = TopicCatalog(store)
    monkeypatch.setattr(EmbeddedSession, "multi", staticmethod(dying))
    with pytest.raises(DeathError):
        catalog.create("t", 4, CONFIG)
    monkeypatch.undo()
    abandon(store)
    with LogStore.open(dirs) as store:
        catalog = TopicCatalog(store)
        catalog.start()
        assert not list(store) and catalog.get("t") is None
        catalog.close()


def dying(*_: Any) -> None:
    """End the process in a change of the coordination store."""
    raise DeathError


@pytest.mark.parametrize("count", [0, 2, 3])
def test_added_partitions_are_all_there_after_a_crash(
    dirs: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    count: int,
) -> None:
    """The added partitions are not reported as lost."""
    store = LogStore.open(dirs)
    catalog = TopicCatalog(store)
    topic = catalog.create("t", 2, CONFIG)
    create, left = store.create, [count]

    def create_some(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise DeathError
        return create(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(LogStore, "create", staticmethod(create_some))
        if count < 3:
            with pytest.raises(DeathError):
                catalog.add_partitions(topic, 5)
        else:
            catalog.add_partitions(topic, 5)
    abandon(store)
    with LogStore.open(dirs) as store:
        catalog = TopicCatalog(store)
        catalog.start()
        assert partitions_of(store, "t") == [0, 1, 2, 3, 4]
        assert {store.log("t", number).topic_id for number in range(5)} == {topic.id}
        assert recorded(store) == (["t"], [], []) and "records" not in caplog.text
        catalog.close()


def test_a_failure_leaves_no_partition(dirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The client may try again; a topic that existed before stays."""
    with LogStore.open(dirs) as store:
        catalog = TopicCatalog(store)
        full = LogDirFullError(path=str(dirs[0]), reason="it is full")
        with monkeypatch.context() as patch:
            patch.setattr(LogStore, "create_topic", staticmethod(dying_after(store, 2, full)))
            with pytest.raises(LogDirFullError):
                catalog.create("t", 4, CONFIG)
        assert partitions_of(store, "t") == [] and recorded(store) == ([], [], [])
        topic = catalog.create("t", 4, CONFIG)
        with pytest.raises(Exception, match="exists"):
            catalog.create("t", 4, CONFIG)
        assert catalog.get("t") == topic
        catalog.close()


def test_an_old_note_does_no_harm(dirs: list[Path]) -> None:
    """Its topic was deleted, or created again with fewer partitions, or the note is invalid."""
    with LogStore.open(dirs) as store:
        catalog = TopicCatalog(store)
        topic = catalog.create("t", 2, CONFIG)
        for note in (
            ["gone", 4, "00" * 16], ["t", 4, "00" * 16], ["t", 2, topic.id.hex()],
            ["t", "4", topic.id.hex()], ["t", 4, "no id"], [4], 7, None, {"t": 4},
        ):  # fmt: skip
            store.facts(store.log_dirs[0])[CREATED] = [note]
            if note != ["t", 2, topic.id.hex()]:
                store.facts(store.log_dirs[1])[DELETED] = [note]
            catalog.start()
            store.facts(store.log_dirs[0])[DELETED] = note
            catalog.start()
            assert partitions_of(store, "t") == [0, 1] and partitions_of(store, "gone") == []
        catalog.close()


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_a_crash_leaves_no_part_of_a_deleted_topic(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The next start deletes the rest; a later topic with the same name stays."""
    store = LogStore.open(dirs)
    catalog = TopicCatalog(store)
    topic = catalog.create("t", 4, CONFIG)
    delete, left = store.delete, [count]

    def delete_some(name: str, partition: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise DeathError
        delete(name, partition)

    with monkeypatch.context() as patch:
        patch.setattr(LogStore, "delete", staticmethod(delete_some))
        if count < 4:
            with pytest.raises(DeathError):
                catalog.delete(topic)
        else:
            catalog.delete(topic)
    abandon(store)
    with LogStore.open(dirs) as store:
        catalog = TopicCatalog(store)
        assert recorded(store) == ([], [], ["t"] if count < 4 else [])
        catalog.start()
        assert partitions_of(store, "t") == [] and recorded(store) == ([], [], [])
        catalog.create("t", 4, CONFIG)
        catalog.start()
        assert partitions_of(store, "t") == [0, 1, 2, 3]
        catalog.close()


@pytest.mark.parametrize("count", [1, 3])
def test_a_creation_of_an_earlier_version_is_finished(dirs: list[Path], count: int) -> None:
    """Every log dir has the note, which is removed."""
    topic_id = b"i" * 16
    with LogStore.open(dirs) as store:
        store.create_topic("t", count, config=CONFIG, topic_id=topic_id)
        dir_facts.remember(store, CREATED, [["t", 4, topic_id.hex()]])
        catalog = TopicCatalog(store)
        catalog.start()
        assert partitions_of(store, "t") == [0, 1, 2, 3]
        assert {store.log("t", number).topic_id for number in range(4)} == {topic_id}
        assert recorded(store) == (["t"], [], [])
        assert [store.facts(path)[CREATED] for path in store.log_dirs] == [[], []]
        catalog.close()


def test_a_deletion_of_an_earlier_version_is_finished(dirs: list[Path]) -> None:
    """Only the partitions with the id of the note are deleted."""
    topic_id = b"i" * 16
    with LogStore.open(dirs) as store:
        store.create_topic("t", 4, config=CONFIG, topic_id=topic_id)
        store.delete("t", 1)
        dir_facts.remember(store, DELETED, [["t", 4, topic_id.hex()], ["u", 1, topic_id.hex()]])
        store.create("u", 0, config=CONFIG)
        catalog = TopicCatalog(store)
        catalog.start()
        assert list(store) == [("u", 0)] and recorded(store) == (["u"], [], [])
        assert [store.facts(path)[DELETED] for path in store.log_dirs] == [[], []]
        catalog.close()
