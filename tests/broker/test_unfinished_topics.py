"""A topic has all its partitions or does not exist, whatever ends its creation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.catalog.topics import TopicCatalog
from broker.catalog.unfinished_topic import CREATED, DELETED
from broker.config import KAFKA_LOG_CONFIG
from logstore import LogDirFullError, LogStore
from support.inside import abandon

CONFIG = KAFKA_LOG_CONFIG.replace(retention_ms=77_000)


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


class DeathError(BaseException):
    """Ends the process, as far as the test goes."""


def dying_after(store: LogStore, count: int, error: BaseException) -> Any:
    """Return a `create_topic` that creates some partitions and then raises."""
    create = store.create_topic

    def create_some(name: str, partitions: int, **options: Any) -> Any:
        if count:
            create(name, count, **options)
        raise error

    return create_some


def partitions_of(store: LogStore, name: str) -> list[int]:
    """List the partitions that a store has of a topic."""
    return sorted(number for topic, number in store if topic == name)


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_a_crash_leaves_a_whole_topic_or_none(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The next start creates what is missing, with the same id and settings."""
    store = LogStore.open(dirs)
    catalog = TopicCatalog(store)
    with monkeypatch.context() as patch:
        patch.setattr(
            LogStore, "create_topic", staticmethod(dying_after(store, count, DeathError()))
        )
        with pytest.raises(DeathError):
            catalog.create("t", 4, CONFIG)
    abandon(store)
    with LogStore.open(dirs) as store:
        catalog = TopicCatalog(store)
        catalog.finish()
        assert partitions_of(store, "t") == ([0, 1, 2, 3] if count else [])
        logs = [store.log("t", number) for number in partitions_of(store, "t")]
        assert len({log.topic_id for log in logs}) <= 1
        assert all(log.config == CONFIG for log in logs)
        assert {tuple(store.facts(path)[CREATED]) for path in store.log_dirs} == {()}
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
        assert partitions_of(store, "t") == []
        topic = catalog.create("t", 4, CONFIG)
        with pytest.raises(Exception, match="exists"):
            catalog.create("t", 4, CONFIG)
        assert catalog.get("t") == topic
        catalog.close()


def test_an_old_note_does_no_harm(dirs: list[Path]) -> None:
    """Of a topic that was deleted, or made anew with fewer partitions; or of something else."""
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
            catalog.finish()
            store.facts(store.log_dirs[0])[DELETED] = note
            catalog.finish()
            assert partitions_of(store, "t") == [0, 1] and partitions_of(store, "gone") == []
        catalog.close()


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_a_crash_leaves_no_part_of_a_deleted_topic(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The next start deletes the rest; a topic of the same name that came later stays."""
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
        note = [path for path in store.log_dirs if store.facts(path)[DELETED]]
        assert bool(note) == (count < 4)
        catalog.finish()
        assert partitions_of(store, "t") == []
        catalog.create("t", 4, CONFIG)
        catalog.finish()
        assert partitions_of(store, "t") == [0, 1, 2, 3]
        catalog.close()
