"""Fail the N-th call to the disk, for every N, every kind of error and every scenario.

N runs up until a run meets no fault any more. Unless LOGSTORE_STRIDE says 1, it is every second N
for EIO and every seventh for the rarer kinds, from a first one that each run draws. After each:
only errors of ours came out, nothing acknowledged is lost, nothing is invented, nothing was
acknowledged after a failed flush, the other log dir never noticed, no descriptor leaked, and a
store opened again is whole.
"""

from __future__ import annotations

import copy
import errno
import gc
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from io_errors.scenarios import CONFIG, QUIET, SCENARIOS, SECONDS_MAX, Scenario, Session
from logstore import LogDirOfflineError, LogStore, UnknownPartitionError
from support.expectation import Expectation
from support.faulty import FAULTS, SYNCS, Fault, FaultyFiles, no_descriptor_leaks
from support.places import fast_directory
from support.writer import value_of

NTH_MAX = 2000
STRIDE = int(os.environ.get("LOGSTORE_STRIDE", "7"))
HARMLESS = (errno.ENOSPC, errno.EMFILE)  # a full disk and a full process are no broken disk


class Prepared:
    """Stores to start from: stopped in order, and crashed with a torn tail."""

    def __init__(self, base: Path) -> None:
        self.base, self.expected = base, Expectation()
        root = base / "stopped"
        with LogStore.open([root / "a", root / "b"], config=QUIET) as store:
            log = store.create("orders", 0, log_dir=root / "a", config=CONFIG)
            other = store.create("orders", 1, log_dir=root / "b", config=CONFIG)
            other.append(b"the other dir", durable=True)
            self.fill(log)
            log.flush()
            self.crash(root)

    def fill(self, log: object) -> None:
        for number in range(0, 60, 5):
            values = [value_of(9, n) for n in range(number, number + 5)]
            for i, offset in enumerate(log.extend(values)):  # type: ignore[attr-defined]
                self.expected.records[offset] = values[i]
                self.expected.end = offset + 1

    def crash(self, root: Path) -> None:
        """Copy what is on disk while the store is open, and tear its tail."""
        crashed = self.base / "crashed"
        shutil.copytree(root, crashed)
        active = sorted((crashed / "a" / "orders-0").glob("*.log"))[-1]
        active.write_bytes(active.read_bytes() + b"\0" * 7 + b"torn")
        for path in (crashed / "a" / "orders-0").glob("*.index"):
            path.unlink()

    def root(self, scenario: Scenario) -> Path:
        work = self.base / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self.base / ("stopped" if scenario.is_clean else "crashed"), work)
        return work


@pytest.fixture(scope="module")
def prepared() -> Iterator[Prepared]:
    gc.freeze()  # the check for leaks collects garbage, and need not look at all that is older
    with fast_directory() as base:
        yield Prepared(base)
    gc.unfreeze()


def run_once(prepared: Prepared, scenario: Scenario, fault: Fault, nth: int) -> FaultyFiles:
    """Run a scenario with one fault, then without faults hold the store against the account."""
    root = prepared.root(scenario)
    session = Session(root, copy.deepcopy(prepared.expected), life=nth)
    with no_descriptor_leaks(str(root)):
        if scenario.is_open:
            session.open()
        with FaultyFiles(str(root / "a"), fault, nth) as faulty:
            scenario.run(session)
        check_alive(session, fault, faulty, scenario)
        session.close()
    check_reopened(session)
    return faulty


def check_alive(session: Session, fault: Fault, faulty: FaultyFiles, scenario: Scenario) -> None:
    """With the fault gone: offline stays offline, a full disk takes records again."""
    is_open = scenario.is_open
    if session.store is None:
        return
    assert session.store.log("orders", 1).append(b"the other dir goes on") >= 1
    before = len(session.refusals)
    dirs = session.store.describe_dirs([session.dirs[0]]).log_dirs
    was_refused = any(isinstance(e, LogDirOfflineError) for e in session.refusals)
    was_offline = was_refused or not dirs[0].is_live
    done = session.extend(1, durable=True)
    if was_offline:
        assert not done, "a log dir that went offline acknowledged a record"
        # A partition whose log dir failed before it was listed is not known by its name.
        is_unknown = not is_open and isinstance(session.refusals[-1], UnknownPartitionError)
        assert isinstance(session.refusals[-1], LogDirOfflineError) or is_unknown
    elif done:
        session.read_all()
    elif is_open:
        raise AssertionError(f"not taken after the fault: {session.refusals[before:]}")
    if any(call in SYNCS and path.endswith(".log") for call, path in faulty.injected):
        assert was_offline, "a failed flush did not take the log dir offline"
    elif fault.errno in HARMLESS and is_open and fault.calls != SYNCS:
        assert not was_offline, f"{fault.name} took the log dir offline: {session.refusals}"
    if fault.errno is None:
        assert not session.refusals, "a short read or write is no error"


def check_reopened(session: Session) -> None:
    """Without faults the store opens, and holds what it acknowledged and nothing invented."""
    with LogStore.open(session.dirs, config=QUIET) as store:
        log = store.log("orders", 0)
        found = [(r.offset, r.value or b"") for r in log]
        session.expected.settle(log.log_start_offset, log.log_end_offset, found)
        assert not store.recovery_report.problems, str(store.recovery_report)
        assert log.append(b"and on it goes", durable=True) == session.expected.end
        assert store.log("orders", 1)[0].value == b"the other dir"


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_failing_call_loses_or_invents_a_record(
    prepared: Prepared, scenario: Scenario, fault: Fault
) -> None:
    """Whichever call to the disk fails, what was acknowledged stays and the errors are ours."""
    injected, stride = 0, min(STRIDE, 2) if fault.name == "EIO" else STRIDE
    for nth in range(1 + random.randrange(stride), NTH_MAX, stride):
        try:
            faulty = run_once(prepared, scenario, fault, nth)
        except BaseException as error:
            error.add_note(f"{scenario.name}, {fault.name}, call {nth}")
            raise
        if not faulty.injected:
            break
        injected += 1
    else:
        raise AssertionError(f"still faults after {NTH_MAX} calls")
    print(f"io_errors: {scenario.name}, {fault.name}: {injected} calls failed")
    assert injected >= 1 or faulty.calls < stride
