"""Find bit rot in data that is rarely read: check all flushed batches at a limited rate.

The keeper of the dir calls `step` once a second. A pass checks the sealed segments of all logs. The
order is random, so that each segment is checked eventually, even if the process is often restarted.
After a pass the scrubber rests. A replica that just arrived by a move is checked first, including
its active segment. During the move, the bytes were verified only from the kernel's cache. Rot is
reported and counted. No record is removed because of rot, and no log dir goes offline. If a segment
is deleted, truncated or moved during the check, the rest of it is skipped.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from logstore.disk.calls import SYNCING, call
from logstore.log import host
from logstore.log.recovery.verification import SegmentCheck
from logstore.store.replicas import Replicas, key_of

if TYPE_CHECKING:
    from logstore.config import StoreConfig
    from logstore.disk.log_dir import LogDir
    from logstore.log.environment import Clock
    from logstore.log.log import Log

STEP_SECONDS = 1.0
# The scrubber waits this long after the opening of a log dir, so that other work can use the disk.
QUIET_MS = 60_000
# After this many bytes, the scrubber checks whether the keeper has other work.
SLICE_BYTES = 1 << 20
# The opening of a segment counts as this many bytes.
OPEN_BYTES = 4096


class Piece(NamedTuple):
    """One segment that must be checked."""

    log: Log
    base_offset: int


class Scrubber:
    """The scrubber of one log dir.

    Attributes:
        passes: the number of complete passes over the whole log dir.
    """

    def __init__(
        self,
        log_dir: LogDir,
        replicas: Replicas,
        config: StoreConfig,
        clock: Clock,
        is_wanted_elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        self.passes = 0
        self._log_dir, self._replicas, self._clock = log_dir, replicas, clock
        self._step_bytes = max(int(config.log_scrub_bytes_per_second * STEP_SECONDS), 1)
        self._interval_ms = config.log_scrub_interval_ms
        self._is_wanted_elsewhere = is_wanted_elsewhere
        # How many bytes the last step read beyond its budget, because a batch is read as a whole.
        self._debt = 0
        # The logs that this pass has not begun to check; None between two passes.
        self._logs: list[Log] | None = None
        self._pieces: deque[Piece] = deque()
        self._check: SegmentCheck | None = None
        self._log: Log | None = None  # the log that `_check` checks
        self._quiet_until_ms = self._rest_until_ms = clock.now_ms() + QUIET_MS
        self._reported: set[tuple[str, int]] = set()

    def step(self) -> None:
        """Check as many bytes as the rate allows in one second. Raises the errors of a log."""
        budget = self._step_bytes - self._debt
        while budget > 0 and not self._is_wanted_elsewhere():
            if self._check is None:
                piece = self._next()
                if piece is None:
                    break
                self._begin(piece)
                budget -= OPEN_BYTES
            budget -= self._go_on(min(max(budget, 1), SLICE_BYTES))
        self._debt = max(-budget, 0)

    # --- the choice of a segment ------------------------------------------------------------------

    def _next(self) -> Piece | None:
        """Return the next segment to check; return None if there is no work now."""
        if self._clock.now_ms() < self._quiet_until_ms:
            return None
        for log in self._replicas.take_arrived(self._log_dir):
            self._pieces.extendleft(reversed(_pieces_of(log, with_active=True)))
        while not self._pieces:
            if not self._logs and not self._turn():
                return None
            if self._logs:
                self._pieces.extend(_pieces_of(self._logs.pop()))
        return self._pieces.popleft()

    def _turn(self) -> bool:
        """End the pass, or begin the next pass after the rest; return whether a pass began."""
        now_ms = self._clock.now_ms()
        if self._logs is not None:
            self._logs = None
            self.passes += 1
            self._rest_until_ms = now_ms + self._interval_ms
        elif now_ms >= self._rest_until_ms:
            logs = self._replicas.on(self._log_dir)
            self._logs = random.sample(logs, len(logs))
            return True
        return False

    def _is_here(self, log: Log) -> bool:
        """Check whether a log is still served from this log dir."""
        replica = self._replicas.opened.get(key_of(log))
        return replica is not None and replica.log is log and replica.log_dir is self._log_dir

    # --- one segment ------------------------------------------------------------------------------

    def _begin(self, piece: Piece) -> None:
        log = piece.log
        if self._is_here(log):
            flushed_to = log.recovery_point
            self._check = host.check_of_segment(log, piece.base_offset, flushed_to, from_disk=True)
            self._log = log

    def _go_on(self, budget_bytes: int) -> int:
        """Check a further part of the segment; return how many bytes were read."""
        check, log = self._check, self._log
        if check is None or log is None:
            return 0
        self._check = None  # if `run` raises an error, this pass skips the rest of the segment
        known = len(check.found)
        with call(self._log_dir.path, SYNCING) as reading:
            done_bytes = check.run(budget_bytes, lambda _: reading.beat())
        figures = self._replicas.figures[self._log_dir.path]
        figures.scrubbed_bytes += done_bytes
        for damage in check.found[known:]:
            if (check.path, damage.position) not in self._reported:
                self._reported.add((check.path, damage.position))
                figures.corrupt_batches += 1
                self._report(log, check.path, damage.position, damage.offset, damage.reason)
        if not check.is_done and self._is_here(log):
            self._check = check
        return done_bytes

    def _report(self, log: Log, path: str, position: int, offset: int, reason: str) -> None:
        import logging

        logging.getLogger("logstore").warning(
            "rot in %s at position %d, offset %d of %s-%d: %s; 'logstore verify %s %d' shows all "
            "damage, 'logstore repair %s %d' moves the damaged bytes to a *.quarantine file",
            *(path, position, offset, log.topic, log.partition, reason),
            *(log.topic, log.partition, log.topic, log.partition),
        )


def _pieces_of(log: Log, *, with_active: bool = False) -> list[Piece]:
    """List the flushed segments of a log; include the active segment only if `with_active`."""
    flushed_to = log.recovery_point
    segments = host.segments_of(log)
    chosen = segments if with_active else segments[:-1]
    return [Piece(log, one.base_offset) for one in chosen if one.end_offset <= flushed_to]
