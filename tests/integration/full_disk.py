"""Fill a disk to the last block, then free space on it: a program, because it may have to die.

    python full_disk.py LOG_DIR OTHER_DIR PLUG STEP how-it-ends

Steps: fill, or an operation that frees space. PLUG is a file of another user, which takes what is
free. Prints what the operation freed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from logstore import Log, LogConfig, LogDirFullError, LogStore
from support.keepers import wait_for_keepers

SEGMENTS = LogConfig(segment_bytes=512 << 10)
PARTITION_BYTES = 3 << 20
BLOCKS = (1 << 20, 64 << 10, 4 << 10, 512)
CUT = 4  # records that `truncate_to` keeps of its segment, so that it has to be copied


def value_of(number: int) -> bytes:
    """Give the value of a record, which nothing compresses."""
    return bytes([number % 251]) * (60 << 10)


def delete_records_before(store: LogStore, log: Log) -> None:
    log.delete_records_before(log.log_end_offset - 2)


def retention(store: LogStore, log: Log) -> None:
    store.set_config(log.topic, log.partition, {"retention_bytes": 1})
    assert log.apply_retention() > 0


def truncate_to(store: LogStore, log: Log) -> None:
    log.truncate_to(CUT)
    assert log.log_end_offset == CUT


def delete(store: LogStore, log: Log) -> None:
    store.delete(log.topic, log.partition)


FREEING: dict[str, Callable[[LogStore, Log], None]] = {
    one.__name__: one for one in (delete_records_before, retention, truncate_to, delete)
}


def plug(path: Path) -> None:
    """Take all that is free, down to the last block."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for size_bytes in BLOCKS:
        while True:
            try:
                os.posix_fallocate(fd, os.fstat(fd).st_size, size_bytes)
            except OSError:
                break
    os.close(fd)


def free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def fill(store: LogStore, log_dir: Path, other_dir: Path, taken: Path) -> None:
    """Give each operation a partition, then fill what is left, half of it by appends."""
    other = store.create("other", 0, log_dir=other_dir)
    other.append(b"on another disk", durable=True)
    taken.touch()
    for name in FREEING:
        log = store.create(name, 0, log_dir=log_dir, config=SEGMENTS)
        while log.size_bytes < PARTITION_BYTES:
            log.append(value_of(log.log_end_offset), durable=True)
    plug(taken)
    try:
        while True:
            log.append(value_of(log.log_end_offset))
    except LogDirFullError:
        pass
    plug(taken)


def free(store: LogStore, name: str, log_dir: Path) -> None:
    """Free space by one operation; what is left is read, and more is written."""
    before = free_bytes(log_dir)
    log = store.log(name, 0)
    FREEING[name](store, log)
    if name == "delete":
        assert (name, 0) not in store
        wait_for_keepers(store)
        log = store.create("instead", 0, log_dir=log_dir, config=SEGMENTS)
    for record in log:
        assert record.value == value_of(record.offset)
    store.log("other", 0).append(b"is not disturbed", durable=True)
    print(name, free_bytes(log_dir) - before)
    log.append(value_of(log.log_end_offset), durable=True)


def main(place: str, other: str, taken: str, step: str, ending: str) -> None:
    log_dir = Path(place)
    store = LogStore.open([log_dir, Path(other)])
    if step == "fill":
        fill(store, log_dir, Path(other), Path(taken))
    else:
        assert not store.recovery_report.problems, store.recovery_report
        free(store, step, log_dir)
        plug(Path(taken))
    if ending == "killed":
        os._exit(0)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
