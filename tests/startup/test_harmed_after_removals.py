"""Remove records, kill the process, then lose any one small file: the log dir is no old copy.

After `truncate_to`, what other files remember of the log is more than it holds. Each place in which
the truncation is recorded must be enough without the others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from startup.small_files import OF_A_DIR, OF_A_LOG, fill, value
from support.hanging import QUIET
from support.inside import keepers_of
from support.keepers import wait_for_keepers

CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=256)
RECORDS = 90
# Without it, the log dir may be another one: it stays away, and says so.
IDENTITY = ("meta.properties",)


def truncate(store: LogStore) -> None:
    store.log("t", 0).truncate_to(10)


def truncate_within_a_batch(store: LogStore) -> None:
    store.log("t", 0).truncate_to(11)


def truncate_all(store: LogStore) -> None:
    store.log("t", 0).truncate_to(0)


def truncate_then_append(store: LogStore) -> None:
    truncate(store)
    fill(store.log("t", 0), 0, 20)
    store.log("t", 0).flush()


def truncate_twice(store: LogStore) -> None:
    truncate_then_append(store)
    store.log("t", 0).truncate_to(15)


def truncate_after_a_deletion(store: LogStore) -> None:
    store.log("t", 0).delete_records_before(8)
    truncate(store)


def delete_records(store: LogStore) -> None:
    store.log("t", 0).delete_records_before(71)


def retain(store: LogStore) -> None:
    store.set_config("t", 0, {"retention_bytes": 1024})
    assert store.log("t", 0).apply_retention()


def create_again(store: LogStore) -> None:
    log_dir = store.log("t", 0).log_dir
    store.delete("t", 0)
    wait_for_keepers(store)
    fill(store.create("t", 0, log_dir=log_dir, config=CONFIG), 0, 10)
    store.log("t", 0).flush()


REMOVALS: tuple[Callable[[LogStore], None], ...] = (
    truncate,
    truncate_within_a_batch,
    truncate_all,
    truncate_then_append,
    truncate_twice,
    truncate_after_a_deletion,
    delete_records,
    retain,
    create_again,
)
HARMS: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(missing_ok=True),
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
}


@pytest.mark.parametrize("is_checkpointed", [False, True], ids=["at once", "after a checkpoint"])
@pytest.mark.parametrize("remove", REMOVALS, ids=lambda one: one.__name__)
def test_regression_a_truncated_log_needs_no_single_file(
    tmp_path: Path, remove: Callable[[LogStore], None], *, is_checkpointed: bool
) -> None:
    """It is whole, and appends go on; without `log-dir-generation` it counted as an old copy."""
    live, killed = tmp_path / "live", tmp_path / "killed"
    dirs = [live / "a", live / "b"]
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        fill(store.create("t", 0, log_dir=dirs[0], config=CONFIG), 0, RECORDS)
        fill(store.create("t", 1, log_dir=dirs[1], config=CONFIG), 1, RECORDS)
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        remove(store)
        if is_checkpointed:
            for keeper in keepers_of(store).values():
                keeper.checkpoint()
        start, end = store.log("t", 0).log_start_offset, store.log("t", 0).log_end_offset
        shutil.copytree(live, killed)
    for name in (*OF_A_DIR, *(f"t-0/{one}" for one in OF_A_LOG)):
        if name in IDENTITY or not (killed / "a" / name).exists():
            continue
        for how, harm in HARMS.items():
            place = tmp_path / "place"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(killed, place)
            harm(place / "a" / name)
            check([place / "a", place / "b"], f"{name} {how}", start, end)


def check(dirs: list[Path], what: str, start: int, end: int) -> None:
    """Open the store twice: every record that is left is read, and more are appended."""
    for turn in range(2):
        with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
            told = f"{what}, turn {turn}: {store.recovery_report}"
            assert "old copy" not in told, told
            assert store.recovery_report.is_sound, told
            log = store.log("t", 0)
            assert log.log_end_offset == end, told
            found = {record.offset: record.value for record in log}
            wanted = {offset: value(0, offset) for offset in range(start, end)}
            assert found == wanted, told
            if turn:
                assert log.append(b"goes on", durable=True) == end
