"""Read a log whose disk dies meanwhile: a program, because a wrong engine would be killed.

    python disk_dies.py IMAGE LOG_DIR OTHER_DIR HOW

Prints what each read gave. The disk is cut by cutting the image under the loop device.
"""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from logstore import LogConfig, LogDirOfflineError, LogStore
from support.loop_disk import forget_pages

CUT_BYTES = 8 << 20
VALUE = bytes(range(256)) * 16


def read_records(log: object) -> Iterator[int]:
    for record in log:  # type: ignore[attr-defined]
        assert record.value == VALUE
        yield record.offset


def read_columns(log: object) -> Iterator[int]:
    for batch in log.read_batches(0, zero_copy=True):  # type: ignore[attr-defined]
        assert bytes(batch.values[0]) == VALUE
        yield from range(batch.count)


def read_points(log: object) -> Iterator[int]:
    for offset in range(0, log.log_end_offset, 97):  # type: ignore[attr-defined]
        assert log[offset].value == VALUE  # type: ignore[index]
        yield offset


def read_raw(log: object) -> Iterator[int]:
    for offset in range(0, log.log_end_offset, 64):  # type: ignore[attr-defined]
        assert log.read_raw(offset, 1 << 18)  # type: ignore[attr-defined]
        yield offset


def verify(log: object) -> Iterator[int]:
    yield 0
    log.verify()  # type: ignore[attr-defined]
    yield 1


READS: dict[str, Callable[[object], Iterator[int]]] = {
    "records": read_records,
    "columns": read_columns,
    "points": read_points,
    "raw": read_raw,
    "verify": verify,
}


def main() -> int:
    image, log_dir, other_dir, how = sys.argv[1:]
    heard: queue.Queue[object] = queue.Queue()  # the callback runs in a thread of its own
    with LogStore.open([log_dir, other_dir], on_log_dir_failure=heard.put) as store:
        config = LogConfig(segment_bytes="4MiB")
        log = store.create("sick", 0, log_dir=log_dir, config=config)
        other = store.create("sound", 0, log_dir=other_dir)
        for _ in range(100):
            log.extend([VALUE] * 64)
        log.flush()
    with LogStore.open([log_dir, other_dir], on_log_dir_failure=heard.put) as store:
        log, other = store.log("sick", 0), store.log("sound", 0)
        reading = READS[how](log)
        next(reading)
        forget_pages(Path(log_dir))
        os.truncate(image, CUT_BYTES)
        try:
            read = sum(1 for _ in reading)
            print(f"read all {read} and met no error")
            return 1
        except LogDirOfflineError as error:
            print(f"{how}: {error}")
            assert error.path == log_dir, error.path
        calls = (lambda: log.append(b"x"), lambda: log.read(0), lambda: store.log("sick", 0)[0])
        for call in calls:
            try:
                call()
            except LogDirOfflineError:
                continue
            print("an offline log dir served a call")
            return 1
        assert other[other.append(b"alive", durable=True)].value == b"alive"
        assert isinstance(heard.get(timeout=20), LogDirOfflineError)
    assert heard.empty()
    print("alive")
    return 0


if __name__ == "__main__":
    sys.exit(main())
