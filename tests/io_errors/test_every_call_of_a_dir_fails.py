"""Fail the N-th call of administration, checkpoints and the start after a half-finished move.

For each scenario and each kind of error, once and for good, N runs until a run meets no fault any
more when LOGSTORE_STRIDE is 1; else LOGSTORE_DRAWN calls are drawn by LOGSTORE_SEED. After each:
only errors of ours came out; the other log dirs serve; the dir that failed comes back by
`reopen_dir` or `add_dir`, or at the next start; no record is lost or invented; a clean-shutdown
marker stands only where all was closed in order; no descriptor and no thread is left.
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

from io_errors import scenarios
from io_errors.dir_scenarios import DIR_SCENARIOS, DirScenario, DirSession
from io_errors.scenarios import CONFIG, IS_WHOLE, QUIET
from logstore import LogStore, LogStoreError, ReplicaError
from logstore.disk.documents.checkpoint import read_document
from logstore.disk.failures import PROCESS_IS_FULL
from logstore.store.upkeep.keeper import DirKeeper
from support.expectation import Expectation
from support.faulty import (
    FAULTS,
    LOCKS,
    MORE_FAULTS,
    SYNCS,
    Fault,
    FaultyFiles,
    no_descriptor_leaks,
    no_thread_leaks,
)
from support.inside import keepers_of, wait_for_failures
from support.places import fast_directory
from support.writer import value_of

NTH_MAX = 3000
SEED = int(os.environ.get("LOGSTORE_SEED", "0"))
DRAWN = int(os.environ.get("LOGSTORE_DRAWN", "1"))
SECONDS_MAX = 30.0
ALL_FAULTS = (*FAULTS, *MORE_FAULTS)
HARMLESS = (errno.ENOSPC, errno.EMFILE)


class Prepared:
    """Stores to start from: stopped in order, and crashed with a torn tail."""

    def __init__(self, base: Path) -> None:
        self.base, self.expected = base, Expectation()
        self.counts: dict[tuple[object, ...], int] = {}
        root = base / "stopped"
        dirs = [root / "a", root / "b", root / "z"]
        with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
            log = store.create("orders", 0, log_dir=root / "a", config=CONFIG)
            other = store.create("orders", 1, log_dir=root / "z", config=CONFIG)
            other.append(b"the other dir", durable=True)
            for number in range(0, 60, 5):
                values = [value_of(9, n) for n in range(number, number + 5)]
                for offset, value in zip(log.extend(values), values, strict=True):
                    self.expected.records[offset], self.expected.end = value, offset + 1
            log.flush()
            self.crash(root)
        for name in ("stopped", "crashed"):
            (base / name / "c").mkdir()

    def crash(self, root: Path) -> None:
        """Copy what is on disk while the store is open, and tear its tail."""
        shutil.copytree(root, self.base / "crashed")
        replica = self.base / "crashed" / "a" / "orders-0"
        active = sorted(replica.glob("*.log"))[-1]
        active.write_bytes(active.read_bytes() + b"\0" * 7 + b"torn")
        for path in replica.glob("*.index"):
            path.unlink()

    def root(self, scenario: DirScenario) -> Path:
        work = self.base / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self.base / ("stopped" if scenario.is_clean else "crashed"), work)
        if scenario.stage is not None:
            scenario.stage(work, self.expected.end)
        return work


@pytest.fixture(scope="module")
def prepared() -> Iterator[Prepared]:
    gc.freeze()  # the check for leaks collects garbage, and need not look at all that is older
    with fast_directory() as base:
        yield Prepared(base)
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _keepers_have_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenarios do the keepers' work, so that the N-th call is the same in every run."""
    monkeypatch.setattr(
        DirKeeper, "start", lambda keeper: keeper._guard("purge", keeper.purge_covered)
    )


def run_once(prepared: Prepared, scenario: DirScenario, fault: Fault, nth: int) -> FaultyFiles:
    """Run a scenario with one fault, then without faults hold the store against the account."""
    root = prepared.root(scenario)
    session = DirSession(root, copy.deepcopy(prepared.expected), life=nth)
    with no_thread_leaks(), no_descriptor_leaks(str(root)):
        if scenario.before is not None:
            session.open()
            scenario.before(session)
        with FaultyFiles(str(root / scenario.under), fault, nth) as faulty:
            scenario.run(session)
            if session.store is not None:
                wait_for_failures(session.store, SECONDS_MAX)
        if session.store is None:  # only a shortage of the process may keep a store closed
            assert fault.errno in PROCESS_IS_FULL and session.refusals[-1].retriable
            session.open()
        check_others(session, scenario, fault, faulty)
        if nth % 2:
            heal(session, scenario)
        kept_from_clean = unclean_dirs(session.serving())
        session.close()
    check_markers(root, prepared.base / "stopped", kept_from_clean)
    check_reopened(session)
    return faulty


def check_others(
    session: DirSession, scenario: DirScenario, fault: Fault, faulty: FaultyFiles
) -> None:
    """The store serves, and only the log dir of the failing call may be offline."""
    store = session.serving()
    failed = str(session.root / scenario.under)
    offline = [d for d in store.host.replicas.log_dirs if d.is_offline]
    assert [d.path for d in offline if d.path != failed] == [], offline
    assert store.log("orders", 1).append(b"the other dir goes on", durable=True) >= 1
    if fault.errno is None:
        assert not session.refusals, f"a short read or write is no error: {session.refusals}"
        assert not offline, offline
    elif scenario.name in ("checkpoint", "scrub", "create, roll, delete"):
        if any(call in SYNCS and path.endswith(".log") for call, path in faulty.injected):
            assert offline, "a failed flush did not take the log dir offline"
        elif fault.errno in HARMLESS:
            assert not offline or "sync" in fault.name, offline


def heal(session: DirSession, scenario: DirScenario) -> None:
    """With the fault gone the log dir comes back in the running store, and all that is in it."""
    store, path = session.serving(), str(session.root / scenario.under)
    log_dir = store.host.replicas.find_dir(path)
    if log_dir is None:
        assert session.add(scenario.under), session.refusals
    elif log_dir.is_offline:
        assert session.bring_back(scenario.under), session.refusals
    if session.extend(1, durable=True):
        session.read_all()
    else:  # a single bad file takes one replica, until its log dir is opened again
        assert isinstance(session.refusals[-1], ReplicaError), session.refusals


def unclean_dirs(store: LogStore) -> set[str]:
    """Name the log dirs that must not be closed as clean."""
    replicas = store.host.replicas
    bad = {d.path for d in replicas.log_dirs if d.is_offline or d.not_loaded}
    return bad | {one.log_dir.path for one in replicas.offline.values() if one.log_dir is not None}


def check_markers(root: Path, stopped: Path, unclean: set[str]) -> None:
    """A marker that counts is of an orderly close, or of the last one and nothing was changed."""
    for name in ("a", "b", "z", "c"):
        marker, lock = start_id(root / name, ".clean-shutdown"), start_id(root / name, ".lock")
        if marker is None or marker != lock:
            continue
        if marker == start_id(stopped / name, ".lock"):
            for path in (stopped / name).rglob("*.log"):
                same = root / name / path.relative_to(stopped / name)
                assert same.read_bytes() == path.read_bytes(), f"{same} changed, and looks clean"
        else:
            assert str(root / name) not in unclean, f"{name} was not whole, and looks clean"


def start_id(log_dir: Path, name: str) -> object:
    try:
        return (read_document(str(log_dir / name)) or {}).get("start_id")
    except (LogStoreError, OSError):
        return None


def check_reopened(session: DirSession) -> None:
    """Without faults the store opens, and holds what it acknowledged and nothing invented."""
    dirs = [*session.dirs, session.root / "c"]
    with LogStore.open(dirs, config=QUIET, admin_socket=False, format_new=True) as store:
        assert not store.recovery_report.problems, str(store.recovery_report)
        log = store.log("orders", 0)
        found = [(r.offset, r.value or b"") for r in log]
        session.expected.settle(log.log_start_offset, log.log_end_offset, found)
        assert log.append(b"and on it goes", durable=True) == session.expected.end
        assert store.log("orders", 1)[0].value == b"the other dir"
        fresh = len(store.log("fresh", 3)) if ("fresh", 3) in store else None
        assert fresh in session.fresh_may_be, (fresh, session.fresh_may_be)
        assert store.host.replicas.log_dirs[0].is_cordoned in session.may_be_cordoned
        for keeper in keepers_of(store).values():
            keeper.run_due(0.0)
    names = [p.name for d in "abc" for p in (session.root / d).glob("orders-0*") if p.is_dir()]
    left = [name for name in names if not name.endswith((".stray", ".move"))]
    assert left == ["orders-0"], names


def nths(prepared: Prepared, scenario: DirScenario, fault: Fault) -> Iterator[int]:
    """Give the calls to fail: all, one after the other, or a drawn sample of those there are."""
    if IS_WHOLE:
        yield from range(1, NTH_MAX)
        raise AssertionError(f"still faults after {NTH_MAX} calls")
    draw = random.Random(f"{SEED} {scenario.name} {fault.name}")
    kind = (scenario.name, fault.calls, fault.errno)
    if kind not in prepared.counts:
        prepared.counts[kind] = run_once(prepared, scenario, fault, NTH_MAX).calls
    calls = prepared.counts[kind]
    yield from sorted(draw.sample(range(1, calls + 1), min(DRAWN, calls)))


@pytest.mark.timeout(scenarios.SECONDS_MAX)
@pytest.mark.parametrize("scenario", DIR_SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_failing_call_of_a_log_dir_harms_another(
    prepared: Prepared, scenario: DirScenario
) -> None:
    """Whichever call fails, one log dir is affected, comes back, and holds what it was given."""
    for fault in ALL_FAULTS:
        failed = missed = 0
        for nth in nths(prepared, scenario, fault):
            try:
                faulty = run_once(prepared, scenario, fault, nth)
            except BaseException as error:
                error.add_note(f"{scenario.name}, {fault.name}, call {nth}, seed {SEED}")
                raise
            failed, missed = (failed + 1, 0) if faulty.injected else (failed, missed + 1)
            if missed == 2:  # an odd N and an even one, which differ in what a full disk refuses
                break
        print(f"io_errors: {scenario.name}, {fault.name}: {failed} calls failed, seed {SEED}")
        is_met = fault.calls != LOCKS or scenario.name.startswith(("start", "reopen"))
        assert failed or not IS_WHOLE or not is_met
