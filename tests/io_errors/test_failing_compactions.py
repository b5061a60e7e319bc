"""Fail the N-th call of a compaction, for every N and every kind of error.

After each: only errors of ours came out, the latest record of every key is there, a log dir that
failed stays offline and any other one goes on, nothing is left over, and no descriptor leaked.
"""

from __future__ import annotations

import errno
import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from io_errors.scenarios import QUIET, SECONDS_MAX
from logstore import LogStore, LogStoreError
from support.faulty import FAULTS, MORE_FAULTS, SYNCS, Fault, FaultyFiles, no_descriptor_leaks
from support.keyed_logs import COMPACTED, Keyed
from support.places import fast_directory

NTH_MAX = 2000
STRIDE = 1 if os.environ.get("LOGSTORE_STRIDE") == "1" else 5
SHORTAGES = (errno.ENOSPC, errno.EMFILE)


@pytest.fixture(scope="module", params=["columnar", "kafka"])
def prepared(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Keyed]]:
    """Give a closed store with a log of which some is compacted, and some is not."""
    gc.freeze()
    config = COMPACTED.replace(record_format=request.param, segment_bytes=700)
    with fast_directory() as base:
        with LogStore.open(base / "made", config=QUIET) as store:
            keep = Keyed(store.create("orders", 0, config=config), key_count=6)
            keep.append(20)
            keep.log.compact()
            keep.append(8)
        yield base, keep
    gc.unfreeze()


def run_once(base: Path, keep: Keyed, fault: Fault, nth: int) -> FaultyFiles:
    """Compact with one fault, then without any."""
    root, end = base / "work", max(keep.appended) + 1
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base / "made", root)
    error: LogStoreError | None = None
    with no_descriptor_leaks(str(root)):
        store = LogStore.open(root, config=QUIET, admin_socket=False)
        log = store.log("orders", 0)
        with FaultyFiles(str(root), fault, nth) as faulty:
            try:
                log.compact()
            except LogStoreError as found:
                error = found.with_traceback(None)
                error.__cause__ = error.__context__ = None
        is_offline = not store.describe_dirs().log_dirs[0].is_live
        if any(call in SYNCS and path.endswith(".cleaned") for call, path in faulty.injected):
            assert is_offline, "a failed sync did not take the log dir offline"
        if fault.errno in SHORTAGES and fault.calls != SYNCS:
            assert not is_offline, error
        if fault.errno is None:
            assert error is None
        if not is_offline and error is not None:
            names = os.listdir(log.directory)
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        if not is_offline and not log._state.unavailable:
            keep.check(log)
            log.compact()
            keep.check(log)
            assert log.append(b"goes on", key=b"k") == end and log.verify() == []
        elif not is_offline:  # its own files are in doubt; the next start finds out
            assert fault.errno in (errno.EACCES, errno.EIO, errno.EINTR)
        store.close()
    with LogStore.open(root, config=QUIET, admin_socket=False) as store:
        log = store.log("orders", 0)
        assert store.recovery_report.is_sound, str(store.recovery_report)
        keep.check(log[:end])
        log.append(b"goes on", key=b"k", durable=True)
        log.compact()
        keep.check(log[:end])
        assert log.verify() == []
    return faulty


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("fault", [*FAULTS, *MORE_FAULTS], ids=lambda fault: fault.name)
def test_no_failing_call_of_a_compaction_loses_or_brings_back_a_record(
    prepared: tuple[Path, Keyed], fault: Fault
) -> None:
    """Whichever call to the disk fails."""
    injected = 0
    for nth in range(1, NTH_MAX, STRIDE):
        try:
            faulty = run_once(*prepared, fault, nth)
        except BaseException as error:
            error.add_note(f"{fault.name}, call {nth}")
            raise
        if not faulty.injected:
            break
        injected += 1
    print(f"io_errors: compaction, {fault.name}: {injected} calls failed")
    assert injected or not faulty.calls
