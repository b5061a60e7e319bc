"""The settings of a topic change on all its partitions or on none, whatever interrupts it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.catalog import topics as catalog_module
from broker.catalog.admin import alterations
from broker.catalog.setting_changes import NO_LIMIT
from broker.catalog.settings import InvalidSettingError
from broker.catalog.topics import TopicCatalog
from broker.config import KAFKA_LOG_CONFIG
from logstore import LogConfig, LogStore, LogStoreError
from support.altering import alter, grow, retention_of, unfinished
from support.crashing import CrashError, crash_at
from support.hanging import QUIET, Caller, Watch, hang
from support.inside import abandon
from support.kafka_client import KafkaClient
from support.served_topics import Served, until

OLD, NEW = 777, 1_000_000
CONFIG = KAFKA_LOG_CONFIG.replace(retention_ms=OLD)


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / "a", tmp_path / "b"]


def altered(catalog: TopicCatalog, **changes: Any) -> None:
    """Change settings of the topic."""
    topic = catalog.get("t")
    assert topic is not None
    catalog.alter(topic, lambda config: changes)


# --- beside other changes -------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1])
def test_regression_an_alteration_beside_a_growth(dirs: list[Path], delay: float) -> None:
    """New partitions kept the old settings, while clients were told the new ones."""
    with Served(dirs) as served, KafkaClient(served.broker.bootstrap_servers) as other:
        served.client.create("t", 20, retention_ms=str(OLD))
        growth = Caller(lambda: grow(other, 60))
        threading.Event().wait(delay)
        code = alter(served.client, NEW)
        assert growth.outcome() in (0, 56) and code in (0, 56)
        wanted = NEW if code == 0 else OLD
        assert set(retention_of(served.store).values()) == {wanted}
        assert served.retention() == str(wanted)


def test_regression_an_alteration_amid_a_growth_changes_nothing(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused, if it cannot wait; it changed the old partitions nevertheless."""
    monkeypatch.setattr(catalog_module, "ALTER_SECONDS", 0.05)
    began, released = threading.Event(), threading.Event()
    with LogStore.open(dirs, config=QUIET) as store:
        catalog, create = TopicCatalog(store), store.create
        topic = catalog.create("t", 2, CONFIG)

        def slow(*arguments: Any, **options: Any) -> Any:
            began.set()
            assert released.wait(60)
            return create(*arguments, **options)

        monkeypatch.setattr(store, "create", slow)
        growth = Caller(lambda: catalog.add_partitions(topic, 4))
        assert began.wait(30)
        with pytest.raises(LogStoreError, match="still being changed"):
            catalog.alter(topic, lambda config: {"retention_ms": NEW})
        released.set()
        assert growth.outcome() is None
        assert retention_of(store) == dict.fromkeys(range(4), OLD)
        altered(catalog, retention_ms=NEW)
        assert retention_of(store) == dict.fromkeys(range(4), NEW)
        catalog.close()


def test_settings_of_one_partition_stay(dirs: list[Path]) -> None:
    """A program gave them to it; only what the client changes is changed."""
    with LogStore.open(dirs) as store:
        catalog = TopicCatalog(store)
        catalog.create("t", 3, CONFIG)
        store.set_config("t", 1, {"flush_ms": 5})
        altered(catalog, retention_ms=NEW)
        altered(catalog, flush_messages=NO_LIMIT)
        assert retention_of(store) == dict.fromkeys(range(3), NEW)
        assert [store.log("t", number).config.flush_ms for number in range(3)] == [None, 5, None]
        catalog.close()


def test_a_change_that_one_partition_cannot_take_is_refused(dirs: list[Path]) -> None:
    """Nothing is changed."""
    with LogStore.open(dirs) as store:
        catalog = TopicCatalog(store)
        catalog.create("t", 3, CONFIG)
        store.set_config("t", 1, {"retention_pressure": True})
        with pytest.raises(InvalidSettingError, match="partition 1 cannot have the new settings"):
            altered(catalog, cleanup_policy="compact")
        assert {store.log("t", number).config.cleanup_policy for number in range(3)} == {"delete"}
        assert not unfinished(store)
        catalog.close()


# --- crashes --------------------------------------------------------------------------------------


def test_a_crash_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start finds the old settings, or delivers the new ones to all partitions."""
    found = []
    for number in range(1000):
        dirs = [tmp_path / f"{number}" / name for name in "ab"]
        store = LogStore.open(dirs, config=QUIET)
        catalog = TopicCatalog(store)
        catalog.create("t", 3, CONFIG)
        is_whole = True
        with monkeypatch.context() as patch:
            crash_at(patch, number)
            try:
                altered(catalog, retention_ms=NEW)
            except (CrashError, LogStoreError):
                is_whole = False
        abandon(store)
        found.append(settings_after_start(dirs, {OLD, NEW}))
        if is_whole:
            break
    print(found)
    assert found[0] == OLD and found[-1] == NEW and found.count(NEW) > 4


def settings_after_start(dirs: list[Path], allowed: set[int]) -> int:
    """Start anew, and check that all partitions have the settings that clients see."""
    with LogStore.open(dirs, config=QUIET) as store:
        catalog = TopicCatalog(store)
        catalog.start()
        topic = catalog.get("t")
        assert topic is not None
        (value,) = set(retention_of(store).values())
        assert value in allowed and catalog.config_of(topic).retention_ms == value
        assert catalog._recorded.records["t"].config.retention_ms == value
        assert not unfinished(store)
        catalog.close()
    return value


def test_crashes_of_the_starts_after_a_crash(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start continues with the new settings."""
    store = LogStore.open(dirs, config=QUIET)
    catalog = TopicCatalog(store)
    catalog.create("t", 8, CONFIG)
    with monkeypatch.context() as patch:
        patch.setattr(store, "set_config", dying)
        with pytest.raises(CrashError):
            altered(catalog, retention_ms=NEW)
    assert retention_of(store) == dict.fromkeys(range(8), OLD)
    abandon(store)
    partly = 0
    for number in range(1000):
        store = LogStore.open(dirs, config=QUIET)
        catalog = TopicCatalog(store)
        is_unfinished = unfinished(store) == ["t"]
        with monkeypatch.context() as patch, suppress(CrashError):
            crash_at(patch, number)
            catalog.start()
        partly += len(set(retention_of(store).values())) == 2
        topic = catalog.get("t")
        assert topic is not None and catalog.config_of(topic).retention_ms == NEW
        abandon(store)
        if not is_unfinished:
            break
    assert partly and settings_after_start(dirs, {NEW}) == NEW


def dying(*_: Any) -> None:
    """End the process."""
    raise CrashError


# --- log dirs that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_dir_that_is_away(dirs: list[Path], *, restarts: bool) -> None:
    """The new settings count at once, and its partitions get them when it returns."""
    with Served(dirs) as served:
        served.client.create("t", 4, retention_ms=str(OLD))
        away = served.on(dirs[1])
        served.store.take_offline(dirs[1])
        assert alter(served.client, NEW) == 0
        kept = {number: NEW for number in range(4) if number not in away}
        assert away and kept and retention_of(served.store) == kept
        assert served.retention() == str(NEW) and unfinished(served.store) == ["t"]
        if not restarts:
            served.store.reopen_dir(dirs[1])
            until(lambda: retention_of(served.store) == dict.fromkeys(range(4), NEW))
            until(lambda: not unfinished(served.store))
    with Served(dirs) as served:
        assert retention_of(served.store) == dict.fromkeys(range(4), NEW)
        assert served.retention() == str(NEW) and not unfinished(served.store)


def test_new_partitions_get_what_counts(dirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the first partition could not take its new settings yet."""
    with LogStore.open(dirs, config=QUIET) as store:
        catalog, set_config = TopicCatalog(store), store.set_config
        topic = catalog.create("t", 2, CONFIG)

        def refusing(name: str, partition: int, changes: Any) -> LogConfig:
            if partition == 0:
                raise LogStoreError("a test")
            return set_config(name, partition, changes)

        with monkeypatch.context() as patch:
            patch.setattr(store, "set_config", refusing)
            altered(catalog, retention_ms=NEW)
        catalog.add_partitions(topic, 4)
        assert retention_of(store) == {0: OLD, 1: NEW, 2: NEW, 3: NEW}
        altered(catalog, flush_messages=7)
        assert retention_of(store) == dict.fromkeys(range(4), NEW) and not unfinished(store)
        catalog.close()


def test_a_log_dir_that_returns_while_the_topic_grows(
    dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions get their settings when the growth has ended."""
    monkeypatch.setattr(catalog_module, "CHANGE_SECONDS", 0.05)
    began, released = threading.Event(), threading.Event()
    with LogStore.open(dirs, config=QUIET) as store:
        catalog, create = TopicCatalog(store), store.create
        topic = catalog.create("t", 4, CONFIG)
        store.take_offline(dirs[1])
        altered(catalog, retention_ms=NEW)
        assert unfinished(store) == ["t"]

        def slow(*arguments: Any, **options: Any) -> Any:
            began.set()
            assert released.wait(60)
            return create(*arguments, **options)

        monkeypatch.setattr(store, "create", slow)
        growth = Caller(lambda: catalog.add_partitions(topic, 6))
        assert began.wait(30)
        with monkeypatch.context() as patch:
            missed: list[str] = []
            patch.setattr(alterations.LOG, "warning", lambda text, *_: missed.append(text))
            store.reopen_dir(dirs[1])
            until(lambda: any("delivered later" in text for text in missed))
        released.set()
        assert growth.outcome() is None
        assert retention_of(store) == dict.fromkeys(range(6), NEW) and not unfinished(store)
        catalog.close()


def test_all_log_dirs_of_a_topic_are_away(dirs: list[Path]) -> None:
    """Its settings are changed, and described, nevertheless."""
    with Served(dirs) as served:
        served.store.cordon(dirs[0])
        served.client.create("t", 2, retention_ms=str(OLD))
        served.store.take_offline(dirs[1])
        assert alter(served.client, NEW) == 0 and served.retention() == str(NEW)
    with Served(dirs) as served:
        assert retention_of(served.store) == dict.fromkeys(range(2), NEW)


def test_a_topic_of_the_same_name_does_not_get_them(dirs: list[Path]) -> None:
    """A topic was deleted while a log dir lacked its settings."""
    with Served(dirs) as served:
        served.client.create("t", 4, retention_ms=str(OLD))
        served.store.take_offline(dirs[1])
        assert alter(served.client, NEW) == 0 and served.delete() == 0
        served.store.reopen_dir(dirs[1])
        until(lambda: not [key for key in served.store if key[0] == "t"])
        served.client.create("t", 4, retention_ms=str(OLD))
        assert not unfinished(served.store)
    with Served(dirs) as served:
        assert retention_of(served.store) == dict.fromkeys(range(4), OLD)


@pytest.mark.parametrize("last", [OLD, NEW + 1])
def test_a_slow_log_dir_gets_the_last_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """A later alteration does not wait for the thread of an earlier one, which begins again."""
    began, released = threading.Event(), threading.Event()
    with LogStore.open(tmp_path, config=QUIET) as store:
        catalog, set_config = TopicCatalog(store), store.set_config
        catalog.create("t", 3, CONFIG)
        slow = 0 if last == OLD else 1

        def slowly(name: str, partition: int, changes: Any) -> LogConfig:
            if partition == slow:
                began.set()
                assert released.wait(60)
            return set_config(name, partition, changes)

        monkeypatch.setattr(store, "set_config", slowly)
        monkeypatch.setattr(alterations, "DELIVERY_SECONDS_MAX", 0.05)
        altered(catalog, retention_ms=NEW)
        assert began.is_set() and unfinished(store) == ["t"]
        altered(catalog, retention_ms=last)
        assert retention_of(store) == {0: OLD if slow == 0 else NEW, 1: OLD, 2: OLD}
        assert unfinished(store) == ["t"]
        released.set()
        until(lambda: not unfinished(store))
        assert retention_of(store) == dict.fromkeys(range(3), last)
        catalog.close()


@pytest.fixture
def hung(dirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, ...]]:
    """Let a log dir hang amid an alteration; give the store, its topics and the way out."""
    with LogStore.open(dirs, config=QUIET) as store:
        watch, catalog = Watch(store), TopicCatalog(store)
        catalog.create("t", 6, CONFIG)
        here = [number for number in range(6) if store.log("t", number).log_dir == str(dirs[0])]
        with hang(monkeypatch, str(dirs[1]), "fsync", "rename") as disk:
            change = Caller(lambda: altered(catalog, retention_ms=NEW))
            assert disk.began.wait(30)
            until(lambda: {retention_of(store)[number] for number in here} == {NEW})

            def is_back() -> bool:
                watch.suspect()
                return change.is_back()

            until(is_back)
            assert change.outcome() is None
            yield store, catalog, watch, disk, here
        catalog.close()


def test_a_log_dir_that_hangs(hung: tuple[Any, ...]) -> None:
    """The others have the settings; its partitions get those of the last change."""
    store, catalog, watch, disk, here = hung
    assert unfinished(store) == ["t"]
    altered(catalog, retention_ms=NEW + 1)
    assert {store.log("t", number).config.retention_ms for number in here} == {NEW + 1}
    topic = catalog.get("t")
    assert catalog.config_of(topic).retention_ms == NEW + 1
    disk.released.set()

    def is_delivered() -> bool:
        watch.look()
        return not unfinished(store)

    until(is_delivered)
    assert retention_of(store) == dict.fromkeys(range(6), NEW + 1)


def test_a_store_that_is_closed_amid_a_hang(hung: tuple[Any, ...]) -> None:
    """The abandoned thread ends without harm."""
    _, catalog, _, disk, _ = hung
    assert isinstance(catalog.config_of(catalog.get("t")), LogConfig)
    disk.released.set()


def test_brokers_of_one_store_agree(tmp_path: Path) -> None:
    """Each of them describes the settings that the other has changed."""
    with (
        LogStore.open(tmp_path) as store,
        Broker.start(store=store) as first,
        Broker.start(store=store) as second,
        KafkaClient(first.bootstrap_servers) as one,
        KafkaClient(second.bootstrap_servers) as other,
    ):
        one.create("t", 2, retention_ms=str(OLD))
        assert alter(other, NEW) == 0 and alter(one, NEW + 1) == 0
        assert retention_of(store) == dict.fromkeys(range(2), NEW + 1)
