"""A store of several log dirs is created, used, closed and opened again."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.config import LogConfig, StoreConfig
from logstore.errors import (
    LogClosedError,
    LogDirError,
    LogDirIdentityError,
    LogDirLockedError,
    PartitionExistsError,
    UnknownPartitionError,
)
from logstore.names import TopicPartition
from logstore.store.recovery_report import RecoveryProgress
from logstore.store.store import LogStore
from support.inside import abandon, keepers_of


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Name three log dirs that do not exist yet."""
    return [str(tmp_path / f"disk{number}" / "logs") for number in range(3)]


def test_a_new_store_is_made_with_its_directories(dirs: list[str]) -> None:
    """Parents included; the report is sound and empty."""
    with LogStore.open(dirs) as store:
        assert store.log_dirs == tuple(dirs)
        assert len(store) == 0
        assert list(store) == []
        assert store.recovery_report.is_sound
        assert store.recovery_report.was_clean
        assert "no record is damaged" in str(store.recovery_report)


def test_one_path_is_a_store(tmp_path: Path) -> None:
    """A str or a path, not only a list."""
    with LogStore.open(tmp_path / "logs") as store:
        store.create("orders", 0)
    with LogStore.open(str(tmp_path / "logs")) as store:
        assert ("orders", 0) in store


def test_records_survive_close_and_open(dirs: list[str]) -> None:
    """Every partition comes back in order, with its records and its configuration."""
    config = LogConfig(segment_bytes="1MiB", retention_bytes=12345678)
    with LogStore.open(dirs) as store:
        for number in range(7):
            log = store.create("orders", number, config=config)
            assert log.extend([b"%d" % number] * 10) == range(10)
    with LogStore.open(dirs) as store:
        assert list(store) == [TopicPartition("orders", number) for number in range(7)]
        for topic, number in store:
            log = store[topic, number]
            assert [record.value for record in log] == [b"%d" % number] * 10
            assert log.config == config
        assert store.recovery_report.was_clean
        assert store.recovery_report.scanned_bytes == 0
        assert len(store.recovery_report.entries) == 7


def test_the_default_configuration_is_the_stores(dirs: list[str]) -> None:
    """It is stored with the partition, and wins over later defaults."""
    mine = StoreConfig(log_config=LogConfig(index_interval_bytes=8192))
    with LogStore.open(dirs, config=mine) as store:
        store.create("orders", 0)
    with LogStore.open(dirs) as store:
        assert store.log("orders", 0).config.index_interval_bytes == 8192


def test_partitions_are_spread_and_described(dirs: list[str]) -> None:
    """Nine over three dirs make three each; figures come from memory."""
    with LogStore.open(dirs) as store:
        for number in range(9):
            store.create("orders", number).append(b"x")
        store.create("other", 0, log_dir=dirs[1])
        response = store.describe_dirs()
        assert [row.path for row in response.log_dirs] == dirs
        assert [len(row.partitions) for row in response.log_dirs] == [3, 4, 3]
        for row in response.log_dirs:
            assert row.is_live
            assert row.error is None
            assert row.state == "online"
            assert 0 < row.usable_bytes <= row.total_bytes
            assert all(p.size > 0 and not p.is_temporary for p in row.partitions if p[0] != "other")
        (row,) = store.describe_dirs([dirs[1] + "/"], ["other"]).log_dirs
        assert [(p.topic, p.partition, p.size) for p in row.partitions] == [("other", 0, 0)]
        assert '"log_dirs": [{"is_live": true, "path": ' in store.describe_dirs().to_json()
        (stranger,) = store.describe_dirs(["/nowhere"]).log_dirs
        assert (stranger.path, stranger.is_live, stranger.partitions) == ("/nowhere", False, ())
        assert stranger.error == "it is not one of the log dirs of this store"
        metrics = store.metrics()
        assert metrics.OfflineLogDirectoryCount == metrics.OfflineReplicaCount == 0
        assert metrics.partition_count == 10


def test_a_wished_log_dir_is_found_by_any_of_its_names(
    dirs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trailing slash, a symlink and a relative path lead to the log dir."""
    (tmp_path / "link").symlink_to(tmp_path / "disk2" / "logs")
    monkeypatch.chdir(tmp_path)
    with LogStore.open(dirs) as store:
        names: list[str | Path] = [
            dirs[2] + "/",
            str(tmp_path / "link"),
            "disk2/logs",
            Path(dirs[2]),
        ]
        for number, name in enumerate(names):
            assert store.create("orders", number, log_dir=name).log_dir == dirs[2]


def test_one_directory_under_two_names_is_refused(tmp_path: Path) -> None:
    """A trailing slash or a symlink does not make a second log dir."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for second in (f"{tmp_path}/a/", str(tmp_path / "b")):
        with pytest.raises(LogDirIdentityError, match="twice"):
            LogStore.open([str(tmp_path / "a"), second])
    assert list((tmp_path / "a").iterdir()) == []


@pytest.mark.parametrize("wrong", [[], [""], [b"bytes"], ["a\0b"], 7, [None]])
def test_wrong_log_dirs_are_refused(wrong: object) -> None:
    """A wrong argument is a ValueError or a TypeError."""
    with pytest.raises((ValueError, TypeError)):
        LogStore.open(wrong)  # type: ignore[arg-type]


def test_wrong_arguments_are_refused(dirs: list[str]) -> None:
    """Configuration, topic and partition are checked."""
    with pytest.raises(TypeError):
        LogStore.open(dirs, config={"broker_id": 1})  # type: ignore[arg-type]
    with LogStore.open(dirs) as store:
        for topic in ("", ".", "..", "a/b", "a\0b", "x" * 250, "ö"):
            with pytest.raises(ValueError, match="topic"):
                store.create(topic, 0)
            with pytest.raises(ValueError, match="topic"):
                store.log(topic, 0)
            assert (topic, 0) not in store
        with pytest.raises(ValueError, match="partition"):
            store.create("orders", -1)
        with pytest.raises(TypeError):
            store.create("orders", "0")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            store.create("orders", 0, config={})  # type: ignore[arg-type]
        with pytest.raises(LogDirError):
            store.create("orders", 0, log_dir="/nowhere")
        assert len(store) == 0
        assert store


def test_names_that_look_like_other_directories_are_ordinary(dirs: list[str]) -> None:
    """Topics with names like a move or a deletion are read back as topics."""
    names = ["x.move", "orders-0.delete", "a-b", "0", "stray", "x" * 200, "a.b_c-D9"]
    with LogStore.open(dirs) as store:
        for name in names:
            store.create(name, 3).append(name.encode())
    with LogStore.open(dirs) as store:
        assert [key.topic for key in store] == sorted(names)
        for name in names:
            assert store[name, 3][0].value == name.encode()
        assert store.recovery_report.warnings == []


def test_a_partition_exists_once(dirs: list[str]) -> None:
    """This also holds if 16 threads create the partition at the same time."""
    with LogStore.open(dirs) as store:
        outcomes: list[object] = []

        def create() -> None:
            try:
                outcomes.append(store.create("orders", 0))
            except PartitionExistsError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=create) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(outcome, PartitionExistsError) for outcome in outcomes) == 15
        assert len(store) == 1


def test_an_unknown_partition_is_a_lookup_error(dirs: list[str]) -> None:
    """The error names the requested partition."""
    with LogStore.open(dirs) as store:
        asks: list[Callable[[], object]] = [
            lambda: store.log("orders", 1),
            lambda: store["orders", 1],
        ]
        for ask in asks:
            with pytest.raises(UnknownPartitionError) as raised:
                ask()
            assert (raised.value.topic, raised.value.partition) == ("orders", 1)
        with pytest.raises(LookupError):
            store.delete("orders", 1)


def test_a_deleted_partition_is_gone_for_good(dirs: list[str]) -> None:
    """Its name is free at once, its files are removed, and old log objects raise an error."""
    with LogStore.open(dirs) as store:
        log = store.create("orders", 0, log_dir=dirs[0])
        log.extend([b"old"] * 5)
        log.flush()
        store.delete("orders", 0)
        assert ("orders", 0) not in store
        with pytest.raises(UnknownPartitionError):
            log.append(b"more")
        assert keepers_of(store)[dirs[0]].wait_idle(10)
        assert not [name for name in os.listdir(dirs[0]) if name.startswith("orders")]
        store.create("orders", 0, log_dir=dirs[0]).append(b"new")
    with LogStore.open(dirs) as store:
        assert [record.value for record in store["orders", 0]] == [b"new"]


def test_a_deleted_partition_leaves_its_name_without_a_past(dirs: list[str]) -> None:
    """Checkpoints of the old replica do not hide records of the new one, even after a crash."""
    with LogStore.open(dirs) as store:
        log = store.create("orders", 0, log_dir=dirs[0])
        log.extend([b"old"] * 50)
        log.delete_records_before(40)
    with LogStore.open(dirs) as store:
        store.delete("orders", 0)
        log = store.create("orders", 0, log_dir=dirs[0])
        log.extend([b"new"] * 3)
        abandon(store)
    with LogStore.open(dirs) as store:
        assert [record.value for record in store["orders", 0]] == [b"new"] * 3
        assert store.recovery_report.problems == []


def test_deleting_on_a_full_disk_works(dirs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion, which makes room, must not need room."""
    import errno

    from logstore.disk import files

    with LogStore.open(dirs) as store:
        store.create("orders", 0, log_dir=dirs[0]).append(b"x")

        def fail(fd: int, buffers: object, position: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(files, "pwritev", fail)
            store.delete("orders", 0)
            assert keepers_of(store)[dirs[0]].wait_idle(10)
        assert not [name for name in os.listdir(dirs[0]) if name.startswith("orders")]


def test_a_closed_store_says_so(dirs: list[str]) -> None:
    """Every call raises LogClosedError; closing again does nothing."""
    store = LogStore.open(dirs)
    log = store.create("orders", 0)
    assert store.close() == ()
    assert store.close() == ()
    for call in (
        lambda: store.log("orders", 0),
        lambda: store.create("orders", 1),
        lambda: store.delete("orders", 0),
        lambda: list(store),
        lambda: len(store),
        lambda: ("orders", 0) in store,
        store.flush,
        store.describe_dirs,
        store.metrics,
        store.verify,
        lambda: log.append(b"x"),
    ):
        with pytest.raises(LogClosedError):
            call()
    assert "closed" in repr(store)


def test_a_second_opener_is_refused_with_the_pid(dirs: list[str]) -> None:
    """The refusal changes nothing: the close of the owner still counts as clean."""
    with LogStore.open(dirs) as store:
        store.create("orders", 0).append(b"x")
        for some in (dirs, dirs[1:]):
            with pytest.raises(LogDirLockedError) as raised:
                LogStore.open(some)
            assert raised.value.pid == os.getpid()
    with LogStore.open(dirs) as store:
        assert store.recovery_report.was_clean


def test_a_crash_is_told_from_an_orderly_close(dirs: list[str]) -> None:
    """After a crash the report says so, and the store opens with all flushed records."""
    store = LogStore.open(dirs)
    store.create("orders", 0).extend([b"x"] * 100)
    store.flush()
    abandon(store)
    with LogStore.open(dirs) as store:
        assert not store.recovery_report.was_clean
        assert len(store["orders", 0]) == 100
        assert "without a clean close" in str(store.recovery_report)


def test_a_start_that_dies_half_way_leaves_no_clean_marker(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start recovers (KAFKA-10471, KAFKA-15375)."""
    with LogStore.open(dirs) as store:
        store.create("orders", 0)

    def die(progress: RecoveryProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LogStore.open(dirs, progress=die)
    with LogStore.open(dirs) as store:
        assert not store.recovery_report.was_clean


def test_progress_is_told_log_by_log(dirs: list[str]) -> None:
    """The last call reports that all logs are done."""
    with LogStore.open(dirs) as store:
        for number in range(5):
            store.create("orders", number)
    told: list[RecoveryProgress] = []
    with LogStore.open(dirs, progress=told.append):
        pass
    assert [one.logs_done for one in told] == [1, 2, 3, 4, 5]
    assert {one.logs_total for one in told} == {5}


def test_close_leaves_no_thread_and_no_descriptor(dirs: list[str]) -> None:
    """After ten opens and closes, the process has as many threads and descriptors as before."""
    gc.collect()  # what earlier tests left in cycles would be closed in between
    before, threads = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    for number in range(10):
        with LogStore.open(dirs) as store:
            store.create("orders", number).append(b"x")
    # A thread of an earlier test may end in between.
    assert len(os.listdir("/proc/self/fd")) <= before
    assert set(threading.enumerate()) <= threads


def test_verify_reads_everything_and_reports(dirs: list[str]) -> None:
    """The report of undamaged logs has no problem; one partition can be verified alone."""
    with LogStore.open(dirs) as store:
        for number in range(3):
            store.create("orders", number).extend([b"x"] * 10)
        seen: list[TopicPartition] = []
        report = store.verify(progress=lambda key, number, total: seen.append(key))
        assert report.is_sound
        assert len(report.logs) == len(seen) == 3
        assert "3 logs verified, 0 problems" in str(report)
        assert len(store.verify("orders", 1).logs) == 1
        with pytest.raises(UnknownPartitionError):
            store.verify("orders", 9)


def test_many_threads_use_one_store(dirs: list[str]) -> None:
    """Creating, appending, listing and deleting at once gives what was requested."""
    errors: list[Exception] = []
    with LogStore.open(dirs) as store:

        def work(topic: str) -> None:
            try:
                for number in range(20):
                    store.create(topic, number).append(b"x")
                    list(store)
                    store.describe_dirs()
                    if number % 2:
                        store.delete(topic, number)
            except Exception as error:  # noqa: BLE001 - the test looks at them
                errors.append(error)

        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(store) == 40
    with LogStore.open(dirs) as store:
        assert len(store) == 40
