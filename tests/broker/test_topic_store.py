"""Test the topics in memory and in the coordination store, with bad, hanging or full disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import Broker
from broker.catalog import hosted_znodes, topic_store
from broker.catalog.topic_store import TopicLimitError, TopicStore
from broker.catalog.topic_znodes import Alteration, TopicRecord, record_of
from broker.catalog.topics import TopicCatalog
from broker.config import KAFKA_LOG_CONFIG
from broker.coordination import embedded
from broker.coordination.errors import CoordinationError, CopyFullError
from broker.coordination.tree import EmbeddedSettings
from logstore import LogStore, LogStoreError
from logstore.disk import files
from support.hanging import QUIET, Caller, hang

JOURNAL = "coordination-journal"


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


@pytest.fixture
def store(dirs: list[Path]) -> Iterator[LogStore]:
    with LogStore.open(dirs, config=QUIET) as opened:
        yield opened


@pytest.fixture
def topics(store: LogStore) -> Iterator[TopicStore]:
    opened = TopicStore.of(store)
    yield opened
    opened.release()


def topic(name: str, partitions: int = 2) -> TopicRecord:
    """Make a topic."""
    return record_of(name, name.encode().ljust(16, b"-"), partitions, KAFKA_LOG_CONFIG)


def read_again(store: LogStore) -> TopicStore:
    """Read the coordination store again; the caller has released the previous one."""
    opened = TopicStore.of(store)
    opened.release()
    return opened


def test_what_is_written_is_read(store: LogStore) -> None:
    """Topics, unfinished topics and deleted topics can be read again."""
    topics = TopicStore.of(store)
    topics.put(topic("t"))
    topics.put(topic("u"), unfinished_from=1)
    topics.put_all([topic("v"), topic("w")._replace(config=KAFKA_LOG_CONFIG.replace(segment_ms=5))])
    topics.put(topic("gone"))
    topics.begin_deletion(topic("gone"))
    topics.begin_deletion(topic("ended"))
    topics.end_deletion(topic("ended"))
    topics.put(topic("forgotten"), unfinished_from=0)
    topics.forget("forgotten")
    before = (topics.records, topics.unfinished, topics.deleted)
    topics.release()
    again = read_again(store)
    assert (again.records, again.unfinished, again.deleted) == before
    assert list(again.records) == ["t", "u", "v", "w"] and again.unfinished == {"u": 1}
    assert [one.name for one in again.deleted.values()] == ["gone"]


def test_the_deletion_of_an_older_topic_leaves_the_new_one(topics: TopicStore) -> None:
    """Both topics have the same name."""
    old = topic("t")._replace(id=b"o" * 16)
    topics.put(topic("t"))
    topics.begin_deletion(old)
    assert topics.known("t") == (topic("t"), None, [old])


def test_new_settings_outlive_the_process(store: LogStore) -> None:
    """Until all logs have them, or another topic replaces their topic."""
    topics = TopicStore.of(store)
    marks = {name: Alteration(topic(name).id, frozenset({"retention_ms"})) for name in "tuvwx"}
    for name, mark in marks.items():
        topics.alter(topic(name), mark)
    topics.put(topic("t", 3))
    topics.put(topic("u")._replace(id=b"o" * 16))
    topics.begin_deletion(topic("v"))
    topics.end_alteration("w")
    topics.put_all([topic("x", 3)])
    assert topics.alterations == {"t": marks["t"], "x": marks["x"]}
    topics.release()
    assert read_again(store).alterations == {"t": marks["t"], "x": marks["x"]}


def test_many_topics_share_a_change(topics: TopicStore, dirs: list[Path]) -> None:
    """Many topics share one change, so the journal has few lines."""
    many = [topic(f"topic-{number:05d}") for number in range(3000)]
    before = (dirs[0] / JOURNAL).read_bytes().count(b"\n")
    topics.put_all(many)
    assert list(topics.records.values()) == many
    assert (dirs[0] / JOURNAL).read_bytes().count(b"\n") - before < 10


def test_brokers_share_one(store: LogStore) -> None:
    """The store is closed when the last broker is closed."""
    first, second = TopicStore.of(store), TopicStore.of(store)
    assert first is second
    first.release()
    second.put(topic("t"))
    second.release()
    with pytest.raises(LogStoreError, match="no broker serves"):
        second.put(topic("u"))
    assert list(read_again(store).records) == ["t"]


def test_a_store_that_is_closed_first_closes_it(dirs: list[Path]) -> None:
    """No file of the coordination store stays open."""
    with LogStore.open(dirs) as store:
        TopicStore.of(store)
    assert not open_files(dirs[0])


def open_files(path: Path) -> list[str]:
    """List the files in a directory that this process has open."""
    names = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    links = [os.readlink(name) for name in names if os.path.islink(name)]
    return [link for link in links if link.startswith(f"{path}/")]


def test_a_damaged_copy_prevents_the_start(dirs: list[Path]) -> None:
    """The error names the file; without this file, the other copy is used."""
    with Broker.start(dirs) as broker:
        TopicStore.of(broker.store).put(topic("t"))
    journal = dirs[1] / JOURNAL
    data = bytearray(journal.read_bytes())
    data[100] ^= 1
    journal.write_bytes(data)
    with pytest.raises(LogStoreError, match=str(journal)):
        Broker.start(dirs)
    journal.unlink()
    with Broker.start(dirs) as broker:
        assert ("t", 1) in broker.store


def test_too_many_topics_are_refused(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No partition is created in the log dirs."""
    monkeypatch.setattr(hosted_znodes, "SETTINGS", EmbeddedSettings(nodes_max=20))
    catalog = TopicCatalog(store)
    with pytest.raises(TopicLimitError):
        for number in range(20):
            catalog.create(f"topic-{number}", 1, KAFKA_LOG_CONFIG)
    assert 0 < len(store) < 10
    assert len(catalog.current().by_name) == len(store)
    catalog.close()


def test_a_topic_that_is_too_large_keeps_no_other_from_being_recorded(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is still served, as in earlier versions."""
    store.create_topic("large", 300, config=KAFKA_LOG_CONFIG)
    store.create_topic("small", 1, config=KAFKA_LOG_CONFIG)
    monkeypatch.setattr(
        hosted_znodes, "SETTINGS", EmbeddedSettings(store_bytes_max=4000, disk_seconds_max=30.0)
    )
    catalog = TopicCatalog(store)
    catalog.start()
    topics = TopicStore.of(store)
    assert list(topics.records) == ["small"]
    assert {name: len(one.partitions) for name, one in catalog.current().by_name.items()} == {
        "large": 300, "small": 1,
    }  # fmt: skip
    topics.release()
    catalog.close()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, dirs: list[Path]) -> list[bool]:
    """Make journals unable to grow while a log dir has its ballast; [False] frees space."""
    write, is_full = files.write_fully, [False]

    def refusing(fd: int, *arguments: object) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if is_full[0] and path.name.startswith(JOURNAL) and ballast(path.parent).exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(fd, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "write_fully", refusing)
    return is_full


def ballast(path: Path) -> Path:
    """Return the file that keeps space in reserve."""
    return path / "log-dir-ballast"


def test_topics_are_deleted_although_all_disks_are_full(
    store: LogStore, full: list[bool], dirs: list[Path]
) -> None:
    """The record of the deletion uses the space of the ballast."""
    catalog = TopicCatalog(store)
    made = catalog.create("t", 2, KAFKA_LOG_CONFIG)
    for path in dirs:
        store.host.dir_named(path).ballast.keep()
    full[0] = True
    catalog.delete(made)
    full[0] = False
    assert catalog.get("t") is None and not list(store)
    catalog.close()
    assert not read_again(store).records


def test_a_disk_that_hangs_holds_no_change_of_topics(
    store: LogStore, dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal in the other log dir suffices; a waiting change is refused."""
    topics = TopicStore.of(store)
    monkeypatch.setattr(topic_store, "BUSY_SECONDS", 0.05)
    with hang(monkeypatch, str(dirs[0]), "pwritev", "pwrite", "fdatasync") as disk:
        first = Caller(lambda: topics.put(topic("t")))
        assert disk.began.wait(30)
        with pytest.raises(LogStoreError, match="has not ended"):
            topics.put(topic("u"))
        assert first.outcome() is None and list(topics.records) == ["t"]
    topics.refresh()
    topics.put(topic("u"))
    topics.release()
    assert list(read_again(store).records) == ["t", "u"]


def test_a_log_dir_that_was_away_gets_what_it_lacks(store: LogStore, dirs: list[Path]) -> None:
    """Even if only this log dir is left, the topics in memory are written into it."""
    topics = TopicStore.of(store)
    topics.put(topic("t"))
    store.take_offline(dirs[1])
    topics.leave_out(str(dirs[1]), "a test")
    topics.put(topic("u"))
    topics.begin_deletion(topic("t"))
    store.take_offline(dirs[0])
    topics.leave_out(str(dirs[0]), "a test")
    with pytest.raises(LogStoreError, match="no log dir can take a change"):
        topics.put(topic("v"))
    store.reopen_dir(dirs[1])
    topics.put(topic("w"))
    topics.release()
    again = read_again(store)
    assert list(again.records) == ["u", "w"] and len(again.deleted) == 1


def test_regression_log_dirs_that_work_in_turn_do_not_fork(
    store: LogStore, dirs: list[Path]
) -> None:
    """Each log dir was used without the other. Then the next start of the broker was refused."""
    topics, names = TopicStore.of(store), [f"t{number}" for number in range(6)]
    for number, name in enumerate(names):
        away = dirs[number % 2]
        store.take_offline(away)
        topics.leave_out(str(away), "a test")
        topics.put(topic(name))
        other = dirs[1 - number % 2]
        store.take_offline(other)
        topics.leave_out(str(other), "a test")
        store.reopen_dir(away)
        topics.put(topic(f"{name}-more"))
        store.reopen_dir(other)
        if number % 3 == 0:
            topics.refresh()
    topics.release()
    again = read_again(store)
    assert sorted(again.records) == sorted([*names, *(f"{name}-more" for name in names)])


def test_a_broker_stops_although_its_only_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker does not wait for the hanging change of a topic."""
    monkeypatch.setattr(topic_store, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(hosted_znodes, "SETTINGS", EmbeddedSettings(disk_seconds_max=0.1))
    monkeypatch.setattr(embedded, "CALLBACK_SECONDS_MAX", 0.05)
    with LogStore.open(tmp_path, config=QUIET) as store:
        topics = TopicStore.of(store)
        with hang(monkeypatch, str(tmp_path), "pwritev", "pwrite", "fdatasync") as disk:
            change = Caller(lambda: topics.put(topic("t")))
            assert disk.began.wait(30)
            topics.release()
            assert not change.is_back()
        change.outcome()
    assert not open_files(tmp_path)


def test_a_start_without_any_space_reads_the_topics_later(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker serves the topics in the log dirs; no topic is forgotten or created."""
    with LogStore.open(dirs, config=QUIET) as store:
        catalog = TopicCatalog(store)
        catalog.create("t", 1, KAFKA_LOG_CONFIG)
        topics = TopicStore.of(store)
        topics.put(topic("away", 1))
        topics.release()
        catalog.close()
    with LogStore.open(dirs, config=QUIET) as store:
        error = CopyFullError(str(dirs[0] / JOURNAL))

        def refuse(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(hosted_znodes, "EmbeddedStore", refuse)
        catalog = TopicCatalog(store)
        catalog.start()
        assert list(catalog.current().by_name) == ["t"]
        with pytest.raises(LogStoreError, match="no log dir can take a change"):
            catalog.create("u", 1, KAFKA_LOG_CONFIG)
        monkeypatch.undo()
        with pytest.raises(LogStoreError, match="had not been read yet"):
            catalog.create("away", 1, KAFKA_LOG_CONFIG)
        catalog.create("u", 1, KAFKA_LOG_CONFIG)
        assert {"t", "u", "away"} == {*catalog.current().by_name}
        catalog.close()


def test_documents_outlive_the_broker_and_a_disk(dirs: list[Path]) -> None:
    """Every log dir has a copy of the documents."""
    with LogStore.open(dirs, config=QUIET) as store:
        catalog = TopicCatalog(store)
        catalog.documents.change("quotas", lambda now: {"alice": b"1"})
        catalog.close()
        with pytest.raises(CoordinationError, match="no broker serves the store"):
            catalog.documents.change("quotas", lambda now: {"alice": b"2"})
    for _, lost in (dirs, dirs[::-1]):
        lost.rename(lost.with_suffix(".away"))
        lost.write_text("not a directory")
        with LogStore.open(dirs, config=QUIET) as store:
            catalog = TopicCatalog(store)
            catalog.documents.follow("quotas", lambda found: None)
            assert dict(catalog.documents.documents("quotas")) == {"alice": b"1"}
            catalog.close()
        lost.unlink()
        lost.with_suffix(".away").rename(lost)
