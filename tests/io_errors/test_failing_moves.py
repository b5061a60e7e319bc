"""Fail the N-th call of a move, at its source and at its target, for many N and every error.

LOGSTORE_STRIDE=1 takes every N; else it is every third for EIO, and every ninth for the rest, from
a first one that each run draws. After each: the move is DONE, or FAILED with an error of ours; what
was acknowledged is there, once; no harmless error took a log dir offline; the third log dir never
noticed; nothing is left that a later start might take for the log; and the next mover ends what can
be ended.
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
from io_errors.scenarios import CONFIG, QUIET, without_frames
from logstore import LogDirOfflineError, LogStore, LogStoreError
from mover import MoveState, ReplicaMover
from mover.copying import copy_segments, early_sync
from support.expectation import Expectation
from support.faulty import FAULTS, Fault, FaultyFiles, no_descriptor_leaks
from support.gate import SECONDS_MAX, Gate
from support.keepers import wait_for_keepers
from support.one_thread import threads_at_once
from support.places import fast_directory
from support.writer import value_of

NTH_MAX = 1000
STRIDE = int(os.environ.get("LOGSTORE_STRIDE", "9"))
STRIDE_EIO = min(STRIDE, 3)
HARMLESS = (errno.ENOSPC, errno.EMFILE)
DIRS = ("a", "b", "c")


def open_store(root: Path) -> LogStore:
    return LogStore.open([root / name for name in DIRS], config=QUIET, admin_socket=False)


class Account:
    """Appends to the log that moves, and knows what was acknowledged."""

    def __init__(self, expected: Expectation) -> None:
        self.expected, self.number = expected, 0
        self.errors: list[LogStoreError] = []

    def extend(self, store: LogStore, count: int) -> None:
        first, self.number = self.number, self.number + count
        values = [value_of(self.expected.life, n) for n in range(first, first + count)]
        self.expected.hear(f"I extend {first} {count}".encode())
        try:
            offsets = store.log("orders", 0).extend(values, durable=True)
        except LogStoreError as error:
            self.errors.append(without_frames(error))
        else:
            self.expected.hear(f"A extend {first} {count} {offsets[0]}".encode())


@pytest.fixture(scope="module")
def prepared() -> Iterator[tuple[Path, Expectation]]:
    """Give a store that was closed in order, and what is in it."""
    gc.freeze()
    expected = Expectation()
    with fast_directory() as base:
        with open_store(base / "stopped") as store:
            log = store.create("orders", 0, log_dir=base / "stopped" / "a", config=CONFIG)
            store.create("orders", 1, log_dir=base / "stopped" / "c").append(b"not concerned")
            for number in range(0, 30, 5):
                values = [value_of(9, n) for n in range(number, number + 5)]
                for offset, value in zip(log.extend(values), values, strict=True):
                    expected.records[offset], expected.end = value, offset + 1
        yield base, expected
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _every_chunk_is_written_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A small log has the disk asked to take its bytes at once, as a large one has.

    What is synced beside the copying is so in its turn, or no call would have its number.
    """
    monkeypatch.setattr(copy_segments, "WRITEBACK_BYTES", 1)
    monkeypatch.setattr(copy_segments, "EARLY_SYNC_BYTES", 1000)
    with threads_at_once(early_sync):
        yield


def run_once(base: Path, expected: Expectation, where: str, fault: Fault, nth: int) -> FaultyFiles:
    """Move with one fault, then without faults look what is there."""
    root = base / "work"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base / "stopped", root)
    expected = copy.deepcopy(expected)
    expected.begin(nth)
    account = Account(expected)
    with no_descriptor_leaks(str(root)):
        store = open_store(root)
        with FaultyFiles(str(root / where), fault, nth) as faulty:
            state, error = move(store, root, account)
        check_after(store, state, error, fault, account)
        try:
            store.close()
        except LogStoreError as failure:
            without_frames(failure)
        store.close()
        del store
        error = None
    check_reopened(root, expected)
    return faulty


def move(store: LogStore, root: Path, account: Account) -> tuple[MoveState, LogStoreError | None]:
    """Move the log while it is appended to."""
    with ReplicaMover(store, num_replica_move_threads=1) as mover:
        gate = Gate(1500)
        gate.before = lambda: account.extend(store, 2) if gate.passed in (0, 2) else None
        mover._moves.throttle = gate  # type: ignore[assignment]
        try:
            one = mover.move("orders", 0, root / "b")
        except LogStoreError as error:
            return MoveState.FAILED, without_frames(error)
        state = one.wait(SECONDS_MAX)
        assert (state is MoveState.FAILED) == (one.error is not None)
        if one.error is not None:
            without_frames(one.error)
        return state, one.error


def check_after(
    store: LogStore,
    state: MoveState,
    error: LogStoreError | None,
    fault: Fault,
    account: Account,
) -> None:
    """With the fault gone, the store says where things are."""
    assert state in (MoveState.DONE, MoveState.FAILED), state
    if fault.errno is None:
        assert (state, account.errors) == (MoveState.DONE, []), error
    assert not store.host.replicas.running_moves
    assert store.log("orders", 1).append(b"it goes on", durable=True) >= 1
    offline = [d.path for d in store.describe_dirs().log_dirs if not d.is_live]
    if fault.errno in HARMLESS and not fault.name.endswith("sync"):
        assert not offline, error
    if not offline:
        account.extend(store, 1)
        assert not account.errors or fault.errno is not None
    elif error is not None and not isinstance(error, LogDirOfflineError):
        assert len(offline) == 1


def check_reopened(root: Path, expected: Expectation) -> None:
    """Without faults all that was acknowledged is there, and the moves are ended."""
    with open_store(root) as store:
        with ReplicaMover(store) as mover:
            for one in mover.moves():
                assert one.wait(SECONDS_MAX) is MoveState.DONE, one.error
        wait_for_keepers(store)
        log = store.log("orders", 0)
        found = [(r.offset, r.value or b"") for r in log]
        expected.settle(log.log_start_offset, log.log_end_offset, found)
        assert not store.recovery_report.problems, str(store.recovery_report)
        assert log.append(b"and on it goes", durable=True) == expected.end
        names = sorted(p.name for d in "ab" for p in (root / d).glob("orders-0*") if p.is_dir())
        strays = [name for name in names if name.endswith(".stray")]
        assert [name for name in names if name not in strays] == ["orders-0"]


@pytest.mark.timeout(scenarios.SECONDS_MAX)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("where", ["a", "b"], ids=["source", "target"])
def test_no_failing_call_of_a_move_loses_a_record(
    prepared: tuple[Path, Expectation], where: str, fault: Fault
) -> None:
    """Whichever call fails, there is one whole log, and the errors are ours."""
    injected, stride = 0, STRIDE_EIO if fault.name == "EIO" else STRIDE
    for nth in range(1 + random.randrange(stride), NTH_MAX, stride):
        try:
            faulty = run_once(*prepared, where, fault, nth)
        except BaseException as error:
            error.add_note(f"{where}, {fault.name}, call {nth}")
            raise
        injected += len(faulty.injected)
        if not faulty.injected:
            break
    else:
        pytest.fail("the move never ends")
    assert injected > 0 or faulty.calls < stride
