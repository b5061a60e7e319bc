"""Create and delete partitions during writes; no disk is reported as failed because of this."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logstore.config import LogConfig
from logstore.disk import files
from logstore.errors import (
    LogDirError,
    LogDirOfflineError,
    LogStoreError,
    PartitionExistsError,
    UnknownPartitionError,
)
from logstore.log.log import Log
from logstore.store import creation
from logstore.store.store import LogStore
from support.inside import abandon, keepers_of


def test_a_crash_between_the_note_and_the_renaming_completes_the_deletion(tmp_path: Path) -> None:
    """The user requested the deletion, so the next start completes it."""
    store = LogStore.open(tmp_path)
    store.create("orders", 0).append(b"x")
    store.create("orders", 1).append(b"y")
    creation._note_deletion(store["orders", 0])
    abandon(store)
    with LogStore.open(tmp_path) as store:
        assert [key.partition for key in store] == [1]
        (keeper,) = keepers_of(store).values()
        assert keeper.wait_idle(10)
        assert not list(tmp_path.glob("orders-0*"))
        store.create("orders", 0)


def test_a_crash_after_the_renaming_completes_the_deletion(tmp_path: Path) -> None:
    """The next start purges the directory that records the deletion."""
    store = LogStore.open(tmp_path)
    log = store.create("orders", 0)
    log.append(b"x")
    creation._note_deletion(log)
    (log_dir,) = store.host.replicas.log_dirs
    creation.rename_away(log, log_dir, next(iter(store)))
    abandon(store)
    with LogStore.open(tmp_path) as store:
        assert len(store) == 0
        assert "purged" in str(store.recovery_report)
    with LogStore.open(tmp_path) as store:
        assert not list(tmp_path.glob("orders-0*"))
        assert store.recovery_report.warnings == []


def test_no_disk_is_blamed_for_what_is_deleted(tmp_path: Path) -> None:
    """Appends, rolls, flushes and reads run while partitions of one name come and go."""
    config = LogConfig(segment_bytes=512)
    odd: list[Exception] = []
    with LogStore.open(tmp_path) as store:
        is_over = threading.Event()

        def work(number: int) -> None:
            while not is_over.is_set():
                try:
                    log = store.log("orders", 0)
                    value = b"%d" % number * 40
                    for _ in range(20):
                        log.append(value)
                    log.flush()
                    for record in log.read(log.log_start_offset, max_records=50):
                        assert record.value in (b"0" * 40, b"1" * 40)
                except LogDirOfflineError as error:
                    odd.append(error)
                except LogStoreError:
                    pass
                except Exception as error:  # noqa: BLE001 - the test looks at them
                    odd.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        store.create("orders", 0, config=config)
        for thread in threads:
            thread.start()
        for _ in range(60):
            store.delete("orders", 0)
            with pytest.raises(UnknownPartitionError):
                store.delete("orders", 0)
            store.create("orders", 0, config=config)
        is_over.set()
        for thread in threads:
            thread.join()
        assert odd == []
        assert store.metrics().OfflineLogDirectoryCount == 0
        assert store.verify().is_sound
    with LogStore.open(tmp_path) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert store.recovery_report.was_clean


def test_a_close_among_appends_and_rolls_is_an_orderly_one(tmp_path: Path) -> None:
    """Writers are refused, and every later start finds a clean close."""
    config = LogConfig(segment_bytes=512)
    for turn in range(20):
        with LogStore.open(tmp_path) as store:
            assert store.recovery_report.was_clean, turn
            log = store.log("orders", 0) if turn else store.create("orders", 0, config=config)
            is_started = threading.Event()

            def work(log: object = log, is_started: threading.Event = is_started) -> None:
                try:
                    while True:
                        log.append(b"x" * 40)  # type: ignore[attr-defined]
                        is_started.set()
                except LogStoreError:
                    is_started.set()

            thread = threading.Thread(target=work)
            thread.start()
            assert is_started.wait(10)
            (keeper,) = keepers_of(store).values()
            keeper.retain()
        thread.join()


def create_on_either(store: LogStore, key: tuple[str, int], dirs: list[str]) -> Log:
    """Choose the log dirs in the test, as a cluster's broker does for a new replica."""
    topic_id = key[0].encode().ljust(16, b".")
    try:
        return store.create(*key, log_dir=dirs[0], topic_id=topic_id)
    except LogDirError:
        return store.create(*key, log_dir=dirs[1], topic_id=topic_id, is_new=True)


@pytest.mark.parametrize("name", ["mkdir", "open_file", "fsync", "rename", "pwritev"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_creation_that_fails_half_way_never_makes_two_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int, is_chosen: bool
) -> None:
    """The new copy outranks what a failed dir kept, even after that dir returns."""
    dirs = [str(tmp_path / f"disk{number}") for number in range(2)]
    real = getattr(files, name)
    for nth in range(12):
        key = (f"t{nth}", 0)
        calls: list[str] = []

        def fail(*arguments: object, calls: list[str] = calls, nth: int = nth) -> object:
            first = arguments[0]
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)
            if "disk0/t" in path:
                calls.append(path)
                if len(calls) > nth:
                    raise OSError(code, os.strerror(code), path)
            return real(*arguments)

        with LogStore.open(dirs) as store:
            with monkeypatch.context() as patch:
                patch.setattr(files, name, fail)
                log = create_on_either(store, key, dirs) if is_chosen else store.create(*key)
            log.append(b"x", durable=True)
            for one in store.describe_dirs().log_dirs:
                if one.error is not None:
                    store.reopen_dir(one.path)
            assert [record.value for record in store[key]] == [b"x"]
        with LogStore.open(dirs) as store:
            assert [record.value for record in store[key]] == [b"x"]
            assert store.recovery_report.is_sound, str(store.recovery_report)
        if len(calls) <= nth:
            return
    raise AssertionError("a creation takes too many calls")


def test_regression_the_second_start_of_a_service_takes_the_partition_that_is_there(
    tmp_path: Path,
) -> None:
    """A service calls `create` at every start: its log continues, on any disk."""
    dirs = [tmp_path / "disk1", tmp_path / "disk2"]
    config = LogConfig(segment_bytes="1MiB")
    for start in range(3):
        with LogStore.open(dirs) as store:
            log = store.create("orders", 0, config=config, exist_ok=True, log_dir=dirs[start % 2])
            assert log.append(b"x") == start
            assert log.log_dir == str(dirs[0])
            assert store.create("orders", 0, exist_ok=True) is log
            with pytest.raises(PartitionExistsError, match="exist_ok=True"):
                store.create("orders", 0)


def test_a_partition_of_another_configuration_is_refused_with_every_difference(
    tmp_path: Path,
) -> None:
    """The error names each key with the stored and the given value; nothing changes."""
    with LogStore.open(tmp_path) as store:
        stored = LogConfig(segment_bytes=1 << 20, retention_ms=5)
        log = store.create("orders", 0, config=stored)
        given = stored.replace(retention_ms=7, compression_type="lz4")
        with pytest.raises(PartitionExistsError) as raised:
            store.create("orders", 0, config=given, exist_ok=True)
        assert raised.value.differences == {
            "retention_ms": (5, 7), "compression_type": ("none", "lz4"),
        }  # fmt: skip
        assert "retention_ms is 5, not 7" in str(raised.value)
        assert "compression_type is 'none', not 'lz4'" in str(raised.value)
        assert log.config == stored


def test_exist_ok_makes_up_no_second_copy(tmp_path: Path) -> None:
    """While an offline log dir may have the partition, it is neither found nor created."""
    dirs = [tmp_path / "disk1", tmp_path / "disk2"]
    with LogStore.open(dirs) as store:
        store.create("orders", 0, log_dir=dirs[0])
        store.take_offline(dirs[0])
        with pytest.raises(LogDirOfflineError):
            store.create("orders", 0, exist_ok=True)
        with pytest.raises(ValueError, match="exist_ok"):
            store.create("orders", 0, exist_ok=True, is_new=True)
        with pytest.raises(TypeError, match="exist_ok"):
            store.create("orders", 1, exist_ok="yes")  # type: ignore[arg-type]


def test_many_threads_that_ask_for_one_partition_get_one_log(tmp_path: Path) -> None:
    """With exist_ok, all threads get the log, whichever creates it."""
    with LogStore.open(tmp_path) as store, ThreadPoolExecutor(8) as pool:
        for number in range(20):
            made = [pool.submit(store.create, "t", number, exist_ok=True) for _ in range(8)]
            assert len({id(one.result()) for one in made}) == 1


def test_a_given_topic_id_is_kept_whichever_way_it_is_written(tmp_path: Path) -> None:
    """16 bytes, hex digits and Kafka's base64 give the same id, which survives a restart."""
    given = bytes(range(240, 256))
    ways: list[bytes | str] = [given, given.hex(), given.hex().upper(), "8PHy8_T19vf4-fr7_P3-_w"]
    with LogStore.open(tmp_path) as store:
        for number, way in enumerate(ways):
            assert store.create("orders", number, topic_id=way).topic_id == given
        other = store.create("orders", 9)
        assert other.topic_id != given
        assert store.create("orders", 0, exist_ok=True, topic_id=given).topic_id == given
        with pytest.raises(PartitionExistsError, match=given.hex()):
            store.create("orders", 0, exist_ok=True, topic_id=other.topic_id)
    with LogStore.open(tmp_path) as store:
        assert {store["orders", number].topic_id for number in range(4)} == {given}


@pytest.mark.parametrize(
    "given",
    [b"", bytes(15), bytes(16), bytes(17), "", "0" * 32, "f" * 31, "g" * 32, "A" * 22,
     "AAAAAAAAAAAAAAAAAAAAAQ", "8PHy8_T19vf4-fr7_P3-_x", "8PHy8/T19vf4+fr7/P3+/w", "é" * 32],
    ids=repr,
)  # fmt: skip
def test_a_wrong_topic_id_is_refused(tmp_path: Path, given: bytes | str) -> None:
    """Kafka's two reserved ids, and letters that Kafka does not use, are refused, too."""
    with LogStore.open(tmp_path) as store:
        with pytest.raises(ValueError, match="topic_id"):
            store.create("orders", 0, topic_id=given)
        assert len(store) == 0


def test_a_topic_id_of_another_topic_is_refused(tmp_path: Path) -> None:
    """If both topics are created at the same time, at most one of them gets the id."""
    with LogStore.open(tmp_path) as store, ThreadPoolExecutor(8) as pool:
        taken = store.create("orders", 0).topic_id
        with pytest.raises(ValueError, match="belongs to orders-0"):
            store.create("clicks", 0, topic_id=taken)
        store.create("orders", 1, topic_id=taken)
        store.delete("orders", 0)
        store.delete("orders", 1)
        store.create("clicks", 0, topic_id=taken)
        for number in range(10):
            wanted = os.urandom(16)
            made = [
                pool.submit(store.create, f"t{number}-{one}", 0, topic_id=wanted)
                for one in range(8)
            ]
            assert sum(one.exception() is None for one in made) <= 1
            assert sum(store[key].topic_id == wanted for key in store) <= 1
        assert not store.host.replicas.claimed_ids
