"""Test that the topic of the groups is completed after faults, and keeps its size."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.catalog import dir_facts
from broker.catalog.topics import TopicCatalog
from broker.coordinator import internal_topic
from broker.coordinator.offsets_topic import NAME, OFFSETS, OffsetsTopic
from logstore import LogDirFullError, LogStore
from support.hanging import QUIET, Caller

PARTITIONS = 4
CONFIG, FACT = OFFSETS.config, OFFSETS.fact


class Case:
    """A store over two log dirs, and its internal topic; a test moves the clock."""

    def __init__(self, dirs: list[Path]) -> None:
        self.seconds = 100.0
        self.store = LogStore.open(dirs, config=QUIET)
        self.topics = TopicCatalog(self.store)
        self.topic = OffsetsTopic(self.topics, PARTITIONS, lambda: self.seconds)

    @property
    def numbers(self) -> list[int]:
        return [number for name, number in self.store if name == NAME]


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case([tmp_path / "a", tmp_path / "b"])
    with made.store:
        yield made
        made.topics.close()


def test_regression_a_deleted_topic_is_created_again(case: Case) -> None:
    """A client may delete the topic. Before, all groups were refused until a restart."""
    assert case.topic.ensure() == PARTITIONS
    found = case.topics.get(NAME)
    assert found is not None
    case.topics.delete(found)
    assert case.topic.partition_count == 0 and case.numbers == []
    assert case.topic.ensure() == PARTITIONS and case.numbers == list(range(PARTITIONS))


def test_regression_partitions_that_a_full_disk_refused_are_tried_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are created later, not at each request. Before, they were missing until a restart."""
    case.store.create(NAME, 0, config=CONFIG)
    dir_facts.remember(case.store, FACT, PARTITIONS)

    def full(*_: object, **__: object) -> None:
        raise LogDirFullError(path="a", reason="the disk is full")

    monkeypatch.setattr(case.store, "create", full)
    assert case.topic.ensure() == PARTITIONS
    monkeypatch.undo()
    assert case.topic.ensure() == PARTITIONS and case.numbers == [0]
    case.seconds += internal_topic.RETRY_SECONDS
    assert case.topic.ensure() == PARTITIONS and case.numbers == list(range(PARTITIONS))


@pytest.mark.parametrize("has_some", [False, True])
def test_regression_a_disk_that_hangs_during_the_creation_holds_one_thread(
    case: Case, monkeypatch: pytest.MonkeyPatch, *, has_some: bool
) -> None:
    """Before, each request for a group waited for the disk, until no thread was left."""
    monkeypatch.setattr(internal_topic, "LOCK_SECONDS", 0.05)
    if has_some:
        dir_facts.remember(case.store, FACT, PARTITIONS)
        case.store.create(NAME, 0, config=CONFIG)
    began, released = threading.Event(), threading.Event()

    def hanging(*_: object, **__: object) -> None:
        began.set()
        assert released.wait(60)
        raise LogDirFullError(path="a", reason="the disk is full")

    name = "create" if has_some else "create_topic"
    monkeypatch.setattr(case.store, name, hanging)
    first = Caller(case.topic.ensure)
    assert began.wait(30)
    case.seconds += internal_topic.RETRY_SECONDS
    second = Caller(case.topic.ensure)
    if has_some:  # other groups have their partition
        assert second.outcome() == PARTITIONS
    else:
        assert "still being created" in str(second.outcome())
    assert not first.is_back()
    released.set()


def test_regression_a_log_dir_that_is_added_later_remembers_the_number(
    case: Case, tmp_path: Path
) -> None:
    """Without this, replacing all disks one by one would change the partition of each group."""
    case.topic.ensure()
    case.store.add_dir(tmp_path / "c")
    assert case.topic.ensure() == PARTITIONS
    assert [case.store.facts(path)[FACT] for path in case.store.log_dirs] == [PARTITIONS] * 3


def test_a_number_is_remembered_only_if_it_is_certain(case: Case, tmp_path: Path) -> None:
    """If a log dir of Kafka is away, it may have the largest partition."""
    for number, path in enumerate(case.store.log_dirs):
        case.store.create(NAME, number, config=CONFIG, log_dir=path)
    case.store.take_offline(tmp_path / "b")
    dir_facts.spread(case.store, FACT, 1)
    assert case.store.facts(tmp_path / "a").get(FACT) is None
    case.store.reopen_dir(tmp_path / "b")
    dir_facts.spread(case.store, FACT, 2)
    assert dir_facts.largest(case.store, FACT) == 2
