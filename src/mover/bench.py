"""Measure how much a move in the background slows appends down."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from logstore.bench.bed import Bed
from logstore.bench.cases import Case
from logstore.bench.phases import Phase, batch_of, fill
from logstore.bench.samples import Sampler
from mover.mover import ReplicaMover
from mover.state import MoveState

IDLE, MOVING, MOVE = 0, 1, 2
PACE_SECONDS = 0.005
# If a move takes longer than the case's seconds times this factor, it is cancelled.
SECONDS_FACTOR_MAX = 4
THROTTLED_SHARE = 0.5


class MovePhase(Phase):
    """Measure how long appends to a disk wait while a replica is moved from this disk.

    A writer appends every 5 ms: first alone (worker 0 of the trace), then during the move (worker
    1). The move itself is worker 2. Worker 2 has one sample, with the bytes of the move and no
    records. If the case is "throttled", the rate of the move is half of one disk's rate. In all
    other cases, the rate is "auto". The round reports the bytes, records and seconds of the move.
    """

    name = "move"

    def __init__(self, bed: Bed, case: Case) -> None:
        super().__init__(bed, case)
        self._disk_rate = int(bed.bytes_per_second / len(bed.store_dirs))
        self._movers: list[ReplicaMover] = []

    def prepare(self) -> None:
        """Create a store with two logs on one disk: one log is moved, the other is appended to."""
        self.store = self._open_store()
        source = self.store.log_dirs[0]
        cold = self.store.create("cold", 0, log_dir=source)
        size_bytes = int(self._disk_rate * self.case.seconds * THROTTLED_SHARE)
        fill([cold], self.case._replace(batch_records=1000), size_bytes, [Sampler(0)])
        self._cold_bytes, self._cold_records = cold.size_bytes, len(cold)
        self.log = self.store.create("hot", 0, log_dir=source)
        self.store.flush()
        is_throttled = self.case.detail == "throttled"
        rate = int(self._disk_rate * THROTTLED_SHARE) if is_throttled else "auto"
        self._movers.append(ReplicaMover(self.store, intra_broker_throttled_rate=rate))

    def run(self) -> None:
        """Append without a move for half the time of the case; then append while a move runs."""
        idle, moving, moved = Sampler(IDLE), Sampler(MOVING), Sampler(MOVE)
        deadline = time.monotonic() + self.case.seconds / 2
        self._append(idle, lambda: time.monotonic() > deadline)
        began = time.perf_counter_ns()
        move = self._movers[-1].move("cold", 0, self.store.log_dirs[1])
        ended_ns: list[int] = []
        done = threading.Event()

        def wait() -> None:
            move.wait()
            ended_ns.append(time.perf_counter_ns())
            if move.state is MoveState.DONE:
                moved.add(began, self._cold_bytes, 0)
            done.set()

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        deadline = time.monotonic() + SECONDS_FACTOR_MAX * self.case.seconds
        self._append(moving, lambda: done.is_set() or time.monotonic() > deadline)
        # A cancelled move has no copy any more, and `bytes_done` is 0. So read `bytes_done` first.
        copied_bytes, stopped_ns = move.bytes_done, time.perf_counter_ns()
        move.cancel()  # this has no effect on a move that is done
        waiter.join()
        if move.error is not None and move.state is not MoveState.CANCELLED:
            raise move.error
        self.size_bytes, self.records, end_ns = self._cold_bytes, self._cold_records, ended_ns[0]
        if move.state is not MoveState.DONE:
            self.size_bytes, end_ns = copied_bytes, stopped_ns
            self.records = self._cold_records * copied_bytes // self._cold_bytes
            moved.add(began, copied_bytes, 0)
        self.samplers += [idle, moving, moved]
        self.seconds = (end_ns - began) / 1e9

    def _append(self, sampler: Sampler, is_over: Callable[[], bool]) -> None:
        values = batch_of(self.case)
        next_at = time.perf_counter()
        while not is_over():
            began = time.perf_counter_ns()
            self.log.extend(values)
            sampler.add(began, self.case.batch_bytes, self.case.batch_records)
            next_at = max(next_at + PACE_SECONDS, time.perf_counter())
            time.sleep(max(0.0, next_at - time.perf_counter()))

    def finish(self) -> None:
        """Close the mover, then close and remove the store."""
        while self._movers:
            self._movers.pop().close()
        super().finish()
