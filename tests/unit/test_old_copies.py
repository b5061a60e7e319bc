"""An old copy of a log dir is recognised by what other log dirs and the process recorded."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import LogStore
from logstore.disk import files
from logstore.disk.documents.generations import GENERATION_NAME, WITNESS_NAME, DirGeneration
from logstore.errors import PartitionExistsError, ReplicaIncompleteError, ReplicaOfflineError
from logstore.store.dirs import farewell, old_copies
from support.hanging import QUIET

ORDERS, PAYMENTS = ("orders", 0), ("payments", 0)


def opened(dirs: list[str]) -> LogStore:
    return LogStore.open(dirs, config=QUIET, admin_socket=False)


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Three log dirs; the second has a partition with one record, and was closed cleanly."""
    paths = [str(tmp_path / name) for name in "abc"]
    with opened(paths) as store:
        store.create(*ORDERS, log_dir=paths[1]).append(b"0")
        store.create("other", 0, log_dir=paths[0]).append(b"0")
    return paths


@pytest.fixture
def copy(dirs: list[str]) -> Callable[[], Callable[[], None]]:
    """Copy the second log dir; return a function that replaces the dir by the copy."""

    def take() -> Callable[[], None]:
        at = f"{dirs[1]}.backup"
        shutil.rmtree(at, ignore_errors=True)
        shutil.copytree(dirs[1], at)

        def restore() -> None:
            shutil.rmtree(dirs[1])
            shutil.copytree(at, dirs[1])

        return restore

    return take


Copy = Callable[[], Callable[[], None]]


def test_regression_an_old_copy_is_recognised_at_a_start(dirs: list[str], copy: Copy) -> None:
    """Its replicas are readable, not writable; each says what is missing, until its promotion."""
    with opened(dirs) as store:
        restore = copy()
        store.log(*ORDERS).extend([b"1", b"2"])
    restore()
    for _ in range(2):
        with opened(dirs) as store:
            report = store.recovery_report
            assert [entry.topic_partition for entry in report.incomplete] == [ORDERS]
            assert "records of offsets 1 to 3, which were durable, are missing" in str(report)
            assert not report.is_sound and f"log dir {dirs[1]} is an old copy" in str(report)
            log = store.log(*ORDERS)
            assert [record.value for record in log] == [b"0"]
            with pytest.raises(ReplicaIncompleteError, match="1 to 3"):
                log.append(b"x")
            store.log("other", 0).append(b"x")
            reasons = {one.path: one.reason for one in store.describe_dirs().log_dirs}
            assert "old copy" in str(reasons.pop(dirs[1])) and set(reasons.values()) == {None}
    with opened(dirs) as store:
        assert store.promote(*ORDERS)
        store.log(*ORDERS).append(b"new")
        assert all(one.reason is None for one in store.describe_dirs().log_dirs)
    with opened(dirs) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.warnings
        assert [record.value for record in store.log(*ORDERS)] == [b"0", b"new"]


def test_regression_a_replica_of_an_old_copy_that_lacks_no_known_record_says_what_may_be_missing(
    dirs: list[str], copy: Copy
) -> None:
    """The message said "records up to 1, and was last seen with records up to 1"."""
    restore = copy()
    with opened(dirs):
        pass
    restore()
    with opened(dirs) as store, pytest.raises(ReplicaIncompleteError) as caught:
        store.log(*ORDERS).append(b"x")
    assert "it has all records that are known to be durable" in str(caught.value)
    assert "ends at offset 1, and the durable records end at 1), but it may lack" in str(
        caught.value
    )


def test_regression_an_old_copy_is_recognised_when_it_is_reopened(
    dirs: list[str], copy: Copy
) -> None:
    """The process knows the recovery points, though no generation was written meanwhile."""
    with opened(dirs) as store:
        restore = copy()
        store.log(*ORDERS).append(b"1")
        store.flush()
        store.take_offline(dirs[1])
        restore()
        report = store.reopen_dir(dirs[1])
        assert "records of offsets 1 to 2, which were durable, are missing" in str(report)
        with pytest.raises(ReplicaIncompleteError):
            store.log(*ORDERS).append(b"x")
    with opened(dirs) as store:  # the next process knows it from the log dir itself
        with pytest.raises(ReplicaIncompleteError):
            store.log(*ORDERS).append(b"x")
        store.promote(*ORDERS)
        assert store.log(*ORDERS).append(b"x") == 1


def test_regression_an_incomplete_replica_that_is_gone_is_known_no_more(
    dirs: list[str], copy: Copy
) -> None:
    """It was reported on an offline log dir, although that dir had returned without it."""
    with opened(dirs) as store:
        restore = copy()
        store.log(*ORDERS).append(b"1", durable=True)
    restore()
    with opened(dirs) as store:
        assert ORDERS in store.host.replicas.incomplete
        store.take_offline(dirs[1])
        shutil.rmtree(os.path.join(dirs[1], "orders-0"))
        store.reopen_dir(dirs[1])
        assert not store.host.replicas.incomplete
        with pytest.raises(ReplicaOfflineError, match="it does not have orders-0"):
            store.log(*ORDERS)
        assert list(store) == sorted([ORDERS, ("other", 0)]) and len(store) == 2


def test_regression_a_partition_that_an_old_copy_lacks_is_offline_until_it_is_given_up(
    dirs: list[str], copy: Copy
) -> None:
    """The partition is not unknown: a creation would give its offsets to other records."""
    restore = copy()
    with opened(dirs) as store:
        store.create(*PAYMENTS, log_dir=dirs[1]).append(b"0")
    restore()
    for _ in range(2):
        with opened(dirs) as store:
            with pytest.raises(ReplicaOfflineError, match="it does not have payments-0"):
                store.log(*PAYMENTS)
            with pytest.raises(PartitionExistsError):
                store.create(*PAYMENTS)
    with opened(dirs) as store:
        store.delete(*PAYMENTS)
        store.promote(*ORDERS)
        store.create(*PAYMENTS)
    with opened(dirs) as store:
        assert store.recovery_report.is_sound and PAYMENTS in store


def test_regression_a_partition_that_a_returned_old_copy_lacks_is_not_unknown(
    dirs: list[str], copy: Copy
) -> None:
    """`create` made an empty partition, and gave the offsets of lost records again."""
    restore = copy()
    with opened(dirs) as store:
        store.create(*PAYMENTS, log_dir=dirs[1]).append(b"0", durable=True)
        store.take_offline(dirs[1])
        restore()
        report = store.reopen_dir(dirs[1])
        assert [entry.topic_partition for entry in report.offline] == [PAYMENTS]
        with pytest.raises(ReplicaOfflineError, match="it does not have payments-0"):
            store.log(*PAYMENTS)
        with pytest.raises(PartitionExistsError):
            store.create(*PAYMENTS)
        store.delete(*PAYMENTS)
        assert PAYMENTS not in store and store.create(*PAYMENTS).append(b"1") == 0


def test_regression_a_deletion_that_an_old_copy_has_not_heard_of_is_asked_about(
    dirs: list[str], copy: Copy
) -> None:
    """A partition that was deleted after the copy was made does not come back writable."""
    restore = copy()
    with opened(dirs) as store:
        store.delete(*ORDERS)
    restore()
    with opened(dirs) as store:
        with pytest.raises(ReplicaIncompleteError):
            store.log(*ORDERS).append(b"x")
        store.delete(*ORDERS)
    with opened(dirs) as store:
        assert store.recovery_report.is_sound and ORDERS not in store


def test_the_right_disk_after_an_old_copy_is_served_as_if_nothing_had_been(
    dirs: list[str], copy: Copy
) -> None:
    """Until a replica of the old copy is promoted, the log dir itself is recognised."""
    restore = copy()
    with opened(dirs) as store:
        store.log(*ORDERS).append(b"1")
    shutil.copytree(dirs[1], f"{dirs[1]}.right")
    restore()
    with opened(dirs) as store:
        assert store.recovery_report.incomplete
        store.take_offline(dirs[1])
        shutil.rmtree(dirs[1])
        shutil.move(f"{dirs[1]}.right", dirs[1])
        assert store.reopen_dir(dirs[1]).is_sound
        assert store.log(*ORDERS).append(b"2") == 2
    with opened(dirs) as store:
        assert store.recovery_report.is_sound


def test_a_log_dir_that_was_away_while_the_store_restarted_is_no_old_copy(dirs: list[str]) -> None:
    """The log dir and the others have recorded the same generations."""
    with opened(dirs) as store:
        store.log(*ORDERS).append(b"1")
    os.rename(dirs[1], f"{dirs[1]}.away")
    for _ in range(3):
        with opened([dirs[0], dirs[2]]) as store:
            store.log("other", 0).append(b"x")
    os.rename(f"{dirs[1]}.away", dirs[1])
    with opened([dirs[1]]) as store:
        store.log(*ORDERS).append(b"2")
    with opened(dirs) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.warnings
        store.take_offline(dirs[1])
        store.log("other", 0).append(b"x")
        assert store.reopen_dir(dirs[1]).is_sound


def test_log_dirs_that_are_rolled_back_together_raise_no_alarm(dirs: list[str]) -> None:
    """The dirs agree with each other, so nothing is recognised; this is documented."""
    for path in dirs:
        shutil.copytree(path, f"{path}.backup")
    with opened(dirs) as store:
        store.log(*ORDERS).append(b"1")
    for path in dirs:
        shutil.rmtree(path)
        shutil.move(f"{path}.backup", path)
    with opened(dirs) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.warnings


def test_a_copy_that_went_on_by_itself_is_told_from_the_log_dir(
    dirs: list[str], copy: Copy
) -> None:
    """The two histories have starts with the same numbers, but different ids."""
    restore = copy()
    with opened(dirs) as store:
        store.log(*ORDERS).append(b"1")
    restore()
    for _ in range(3):  # alone, nobody tells it that it is an old copy
        with opened([dirs[1]]) as store:
            store.log(*ORDERS).append(b"fork")
    with opened(dirs) as store, pytest.raises(ReplicaIncompleteError):
        store.log(*ORDERS).append(b"x")


def test_an_older_copy_yet_is_recognised_after_a_promotion(dirs: list[str], copy: Copy) -> None:
    """The doubts in a copy count only for the time at which they were written."""
    with opened(dirs) as store:
        store.create(*PAYMENTS, log_dir=dirs[1]).append(b"0")
    restore = copy()
    with opened(dirs) as store:
        store.log(*ORDERS).append(b"1")
    restore()
    with opened(dirs) as store:
        store.promote(*ORDERS)
        restore = copy()  # payments is in doubt in it, orders is not
        store.promote(*PAYMENTS)
        store.log(*ORDERS).append(b"1")
    restore()
    with opened(dirs) as store:
        for key in (ORDERS, PAYMENTS):
            with pytest.raises(ReplicaIncompleteError):
                store.log(*key).append(b"x")


@pytest.mark.parametrize("name", [GENERATION_NAME, WITNESS_NAME])
@pytest.mark.parametrize("data", [None, b"", b"{}\n", b"x" * 100])
def test_a_file_that_is_lost_or_damaged_raises_no_alarm(
    dirs: list[str], name: str, data: bytes | None
) -> None:
    """The content of the file is unknown; the recovery points in other dirs are enough."""
    for path in dirs:
        os.unlink(f"{path}/{name}")
        if data is not None:
            Path(path, name).write_bytes(data)
    with opened(dirs) as store:
        report = store.recovery_report
        assert report.is_sound and bool(report.warnings) is (data is not None)
        store.log(*ORDERS).append(b"1")
    with opened(dirs) as store:
        assert not store.recovery_report.warnings


def test_an_old_copy_whose_file_is_lost_is_recognised_by_its_records(
    dirs: list[str], copy: Copy
) -> None:
    """A copy from before there were generations has no such file."""
    os.unlink(f"{dirs[1]}/{GENERATION_NAME}")
    restore = copy()
    with opened(dirs) as store:
        store.log(*ORDERS).append(b"1")
    restore()
    with opened(dirs) as store, pytest.raises(ReplicaIncompleteError, match="offsets 1 to 2"):
        store.log(*ORDERS).append(b"x")


@pytest.mark.parametrize("name", [GENERATION_NAME, WITNESS_NAME])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("loses_copy", [False, True])
def test_a_crash_around_each_write_raises_no_alarm_and_loses_no_detection(
    dirs: list[str],
    copy: Copy,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    number: int,
    loses_copy: bool,
) -> None:
    """A start that ends just before or after a file is replaced has no effect."""
    restore = copy()
    with opened(dirs) as store:
        store.log(*ORDERS).append(b"1")

    class Killed(BaseException):
        pass

    count, real = 0, files.rename

    def rename(source: str, target: str) -> None:
        nonlocal count
        if os.path.basename(target) == name:
            if count >= number:
                raise Killed
            count += 1
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", rename)
        with pytest.raises(Killed):
            opened(dirs)
    if loses_copy:
        restore()
    with opened(dirs) as store:
        assert store.recovery_report.is_sound is not loses_copy


def test_regression_log_dirs_that_one_thread_closes_do_not_wait_for_each_other(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other thread could end the wait, so each log dir would wait for the whole limit."""
    monkeypatch.setattr(farewell, "SECONDS_MAX", 3600.0)
    with opened(dirs) as store:
        goodbye = farewell.Farewell(store.host.replicas.log_dirs, None)
        goodbye.wait()
        waiting = threading.Thread(target=goodbye.wait)
        waiting.start()
        for log_dir in store.host.replicas.log_dirs:
            assert waiting.is_alive()
            goodbye.arrive(log_dir)
        waiting.join()


def test_a_store_of_one_log_dir_writes_no_generation(tmp_path: Path) -> None:
    """No other log dir could record the generation."""
    with opened([str(tmp_path / "a")]) as store:
        store.create(*ORDERS).append(b"0")
    assert not os.path.exists(tmp_path / "a" / GENERATION_NAME)


def test_only_two_others_keep_the_recovery_points(tmp_path: Path) -> None:
    """All dirs record the generation; the recovery points are worth only two files."""
    dirs = [str(tmp_path / name) for name in "abcde"]
    with opened(dirs) as store:
        store.create(*ORDERS, log_dir=dirs[1]).append(b"0")
        directory_id = store.describe_dirs().log_dirs[1].directory_id
        ids = [one.directory_id for one in store.describe_dirs().log_dirs]
    kept = 0
    for path, id_ in zip(dirs, ids, strict=True):
        if path != dirs[1]:
            generation = DirGeneration(path)
            generation.directory_id = id_
            assert generation.load() == []
            kept += generation.seen[directory_id].offsets == {ORDERS: 1}
    assert kept == old_copies.WITNESSES
