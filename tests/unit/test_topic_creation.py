"""All partitions of a topic are created in one go: placed as one by one, each there or not."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from crash.power_cut import QUIET
from logstore import LogConfig, LogStore, TopicPartition
from logstore.disk import files
from logstore.errors import LogDirFullError, LogDirOfflineError, PartitionExistsError
from logstore.store.topics import topic_creation
from support.crash_model import CrashModel
from support.crashing import CrashError, crash_at
from support.faulty import FAULTS, Fault, FaultyFiles
from support.gate import SECONDS_MAX
from support.inside import abandon, wait_for_failures
from support.places import fast_directory
from support.recorder import Recorder, lay_out

CONFIG = LogConfig(retention_ms=5, segment_bytes=512)
DIRS = ("a", "b")


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


def open_store(root: Path) -> LogStore:
    return LogStore.open([root / name for name in DIRS], config=QUIET, admin_socket=False)


def check_rest(store: LogStore, count: int) -> None:
    """Each partition is whole or not there, and a second call makes the others."""
    assert store.recovery_report.is_sound, str(store.recovery_report)
    for key in store:
        assert store[key].config == CONFIG, key
    logs = store.create_topic("t", count, config=CONFIG, exist_ok=True)
    assert [log.append(b"x", durable=True) for log in logs] == [0] * count
    assert store.verify().is_sound


def test_all_are_placed_as_one_by_one(base: Path) -> None:
    """Also over a batch's end, with a cordoned log dir and a wish."""
    places: list[dict[TopicPartition, str]] = []
    for name, is_together in (("one", False), ("many", True)):
        paths = [base / name / disk for disk in "abc"]
        with (
            LogStore.open(paths, config=QUIET) as store,
            patch.object(topic_creation, "BATCH_PARTITIONS", 4),
        ):
            store.create("other", 0, log_dir=paths[0])
            store.cordon(paths[2])
            store.prefer_dir("t", 5, paths[1])
            if is_together:
                logs = store.create_topic("t", 11, config=CONFIG)
                assert [log.partition for log in logs] == list(range(11))
            else:
                logs = [store.create("t", number, config=CONFIG) for number in range(11)]
            places.append({key: Path(store[key].log_dir).name for key in store})
            assert [log.append(b"x") for log in logs] == [0] * 11
            assert all(log.config == CONFIG for log in logs)
            assert len({log.topic_id for log in logs}) == 11
        with LogStore.open(paths, config=QUIET) as store:
            assert store.recovery_report.was_clean and len(store) == 12
            assert [len(list(store["t", number])) for number in range(11)] == [1] * 11
    assert places[0] == places[1]
    assert set(Counter(places[0].values())) == {"a", "b"}


def test_one_that_is_there_refuses_all(base: Path) -> None:
    """Nothing is created then; with `exist_ok` the others are, if the configurations are equal."""
    with open_store(base) as store:
        log = store.create("t", 2, config=CONFIG)
        with pytest.raises(PartitionExistsError):
            store.create_topic("t", 4, config=CONFIG)
        with pytest.raises(PartitionExistsError, match="set_config"):
            store.create_topic("t", 4, config=LogConfig(), exist_ok=True)
        assert list(store) == [("t", 2)]
        logs = store.create_topic("t", 4, exist_ok=True)
        assert logs[2] is log and len(store) == 4
        assert store.create_topic("t", 4, exist_ok=True) == logs


def test_a_topic_id_is_that_of_all_partitions(base: Path) -> None:
    """Kafka's clients name a topic by one id; another topic's id is refused, nothing created."""
    with open_store(base) as store:
        logs = store.create_topic("t", 3, config=CONFIG, topic_id=b"i" * 16)
        assert {log.topic_id for log in logs} == {b"i" * 16}
        with pytest.raises(ValueError, match="another topic"):
            store.create_topic("u", 2, topic_id=b"i" * 16)
        assert len(store) == 3
        with pytest.raises(PartitionExistsError, match="topic id"):
            store.create_topic("t", 4, exist_ok=True, topic_id=b"j" * 16)
        more = store.create_topic("t", 4, config=CONFIG, exist_ok=True, topic_id=b"i" * 16)
        assert more[:3] == logs and more[3].topic_id == b"i" * 16
        assert len(store.cluster_id) == 32


def test_a_new_topic_is_created_while_a_log_dir_is_offline(base: Path) -> None:
    """If the caller knows that it is new; partitions on the offline log dir still refuse it."""
    with open_store(base) as store:
        store.create("old", 1, log_dir=store.log_dirs[0])
        store.take_offline(store.log_dirs[0])
        with pytest.raises(LogDirOfflineError):
            store.create_topic("t", 2)
        assert len(store.create_topic("t", 2, is_new=True)) == 2
        with pytest.raises((LogDirOfflineError, PartitionExistsError)):
            store.create_topic("old", 2, is_new=True)
        with pytest.raises(ValueError, match="exist_ok"):
            store.create_topic("u", 2, is_new=True, exist_ok=True)


@pytest.mark.parametrize(
    ("count", "error"), [(0, ValueError), (2**31 + 1, ValueError), ("3", TypeError)]
)
def test_a_wrong_count_is_refused(base: Path, count: int, error: type[Exception]) -> None:
    """Before anything is created."""
    with open_store(base) as store, pytest.raises(error):
        store.create_topic("t", count)


def test_the_syncs_of_a_batch_overlap(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk takes several at once; no sync here returns before another one runs beside it."""
    both, sync_file, sync_dir = threading.Barrier(2), files.sync_file, files.sync_dir

    def with_another(sync: Callable[[Any], None]) -> Callable[[Any], None]:
        def synced(place: Any) -> None:
            path = place if isinstance(place, str) else os.readlink(f"/proc/self/fd/{place}")
            if "/t-" in path:
                both.wait(SECONDS_MAX)
            sync(place)

        return synced

    with open_store(base) as store:
        monkeypatch.setattr(files, "sync_file", with_another(sync_file))
        monkeypatch.setattr(files, "sync_dir", with_another(sync_dir))
        assert len(store.create_topic("t", 16, config=CONFIG)) == 16


def test_a_crash_at_any_call_leaves_each_or_nothing(base: Path) -> None:
    """The next start removes what was not finished."""
    for number in range(200):
        root = base / str(number)
        store = open_store(root)
        with pytest.MonkeyPatch.context() as context:
            crash_at(context, number)
            try:
                store.create_topic("t", 5, config=CONFIG)
                is_done = True
            except CrashError:
                is_done = False
        abandon(store)
        with open_store(root) as again:
            assert not is_done or len(again) == 5
            check_rest(again, 5)
        if is_done:
            break
    assert is_done and number > 20


def test_a_power_cut_leaves_each_or_nothing(base: Path) -> None:
    """At any moment, whatever of the un-synced changes survives; after the call all is there."""
    root = base / "store"
    root.mkdir()
    with Recorder(root) as recorder:
        store = open_store(root)
        recorder.mark("begun")
        store.create_topic("t", 4, config=CONFIG)
        recorder.mark("done")
        abandon(store)
    rng = random.Random(1)
    model = CrashModel(recorder.image)
    is_begun = is_done = False
    for step, op in enumerate(recorder.ops):
        is_begun |= op == ("mark", "begun")
        is_done |= op == ("mark", "done")
        model.apply(op)
        if not is_begun:
            continue
        for turn, image in enumerate((model.lost(), model.crash(rng), model.crash(rng))):
            cut = base / f"cut-{step}-{turn}"
            lay_out(image, cut)
            with open_store(cut) as again:
                assert not is_done or len(again) == 4
                check_rest(again, 4)
        if is_done:
            break
    assert is_done


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_an_error_of_a_disk_leaves_each_or_nothing(base: Path, fault: Fault) -> None:
    """The other log dir takes what a bad one does not; a start finds no half partition."""
    for nth in range(1, 60, 3):
        root = base / str(nth)
        store = open_store(root)
        with FaultyFiles(str(root / "a"), fault, nth) as faulty:
            try:
                logs = store.create_topic("t", 4, config=CONFIG)
                assert len(logs) == 4
            except (LogDirFullError, LogDirOfflineError) as error:
                pytest.fail(f"the other log dir takes them: {error}")
        wait_for_failures(store, None)
        abandon(store)
        with open_store(root) as again:
            assert len(again) == 4
            check_rest(again, 4)
        if not faulty.injected:
            break


def test_what_stands_in_the_way_sends_one_elsewhere(base: Path) -> None:
    """The other partitions of the batch stay where they were to go."""
    with open_store(base) as store:
        (base / "a" / "t-0").mkdir()
        logs = store.create_topic("t", 4, config=CONFIG)
        assert [Path(log.log_dir).name for log in logs] == ["b", "b", "a", "b"]
        assert files.exists(str(base / "a" / "t-0"))
