"""Kill a process that appends and compacts, again and again; each time the log is whole.

The record at an offset is known from the offset alone. A kill takes nothing from the page cache. So
the latest record of each key is there, wherever the kill came, and no other record is but right.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crash.power_cut import QUIET
from logstore import Log, LogStore
from support.keyed_logs import COMPACTED
from support.places import environment, fast_directory

KILLS = int(os.environ.get("LOGSTORE_COMPACTION_KILLS", "12"))
SECONDS_MAX = 0.25  # from the first line of a process to its kill
KEYS = 9


def key_of(offset: int) -> bytes:
    return b"key %d" % (offset * offset % 31 % KEYS)


def value_of(offset: int) -> bytes:
    return b"%d" % offset * (offset % 17)


def append_and_compact(root: str, layout: str) -> None:
    """Work until the end comes."""
    with LogStore.open(root, config=QUIET, admin_socket=False) as store:
        config = COMPACTED.replace(record_format=layout, segment_bytes=600)
        log = store.create("orders", 0, config=config, exist_ok=True)
        print("begun", flush=True)
        while True:
            for _ in range(20):
                end = log.log_end_offset
                offsets = range(end, end + 1 + end % 4)
                log.extend([value_of(o) for o in offsets], keys=[key_of(o) for o in offsets])
            log.flush()
            log.compact()


def check(log: Log) -> None:
    """Compare what is left with what the offsets say."""
    found = {record.offset: (record.key, record.value) for record in log}
    assert all(row == (key_of(o), value_of(o)) for o, row in found.items())
    latest = {key_of(offset): offset for offset in range(log.log_end_offset)}
    assert set(latest.values()) <= found.keys()
    assert log.verify() == []


@pytest.mark.timeout(60 + 4 * KILLS)
@pytest.mark.parametrize("layout", ["columnar", "kafka"])
def test_a_killed_compaction_loses_and_brings_back_nothing(layout: str) -> None:
    """And the next process goes on where it was."""
    rng, swaps, ends = random.Random(layout), 0, [0]
    with fast_directory() as base:
        for _ in range(KILLS):
            command = [sys.executable, __file__, str(base / "logs"), layout]
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
                assert process.stdout is not None and process.stdout.readline() == b"begun\n"
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(rng.random() * SECONDS_MAX)
                process.send_signal(signal.SIGKILL)
            directory = base / "logs" / "orders-0"
            swaps += sum(path.suffix in (".cleaned", ".swap") for path in directory.iterdir())
            with LogStore.open(base / "logs", config=QUIET, admin_socket=False) as store:
                assert store.recovery_report.is_sound, str(store.recovery_report)
                log = store.log("orders", 0)
                check(log)
                left = [path.name for path in Path(log.directory).iterdir()]
                assert not [name for name in left if name.endswith((".cleaned", ".swap"))]
                ends.append(log.log_end_offset)
                if rng.random() < 0.3:
                    log.compact()
                    check(log)
    print(f"kill: compaction, {layout}: {KILLS} kills, {swaps} files in the middle")
    assert ends == sorted(ends) and ends[-1] > 0


if __name__ == "__main__":
    append_and_compact(*sys.argv[1:])
