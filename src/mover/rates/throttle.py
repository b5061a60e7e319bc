"""Limit the rate of moves: one ceiling for the store, one for each log dir, one for each move.

Before a move copies a chunk, it asks every ceiling that applies to the move. Each ceiling gives the
chunk a ticket. The ticket is the sum of the bytes of all chunks that asked earlier. A ceiling
allows (*serves*) `rate` bytes per second. The chunk can be copied when every ceiling has served as
many bytes as its ticket says. So chunks are copied in the order in which they asked, for any number
of threads. If the rate changes, the waits of all moves change, too. If a move is slow although its
ceilings allow more, later moves do not wait for the slow move.

While nothing is copied, a ceiling saves up the bytes of at most `BURST_SECONDS`. In any span of
time, at most `rate` x span bytes are copied, plus one chunk, plus the saved bytes. The saved bytes
compensate for threads that wake up late.

Threads: the lock of the store's `Throttle` guards all state of this module. While a thread holds
this lock, it waits only on the lock's condition, which releases the lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from logstore.config import parse_rate

AUTOMATIC = "auto"
RATE_BEFORE_PILOT = 1 << 20  # the rate of an automatic ceiling until a pilot sets its rate

BURST_SECONDS = 0.1
CHUNK_SECONDS = 0.02
CHUNK_BYTES_MIN = 4 << 10
CHUNK_BYTES_MAX = 4 << 20
# This rate is so low that no new move ends before it can be paused. The rate is never stored.
HOLD_RATE = 1
# The system limits one wait, so a longer wait is divided into several waits.
WAIT_SECONDS_MAX = 3600.0
# A shorter wait counts as no wait, because sums of floats are not exact enough for shorter waits.
SECONDS_MIN = 1e-6

Clock = Callable[[], float]
Rate = int | str | None


def kept_rate(rates: object, name: str) -> Rate:
    """Return a rate that an earlier process stored, or None if the rate was not stored."""
    rate = rates.get(name) if isinstance(rates, dict) else None
    if rate == AUTOMATIC:
        return AUTOMATIC
    is_rate = type(rate) is int and rate > 0
    return rate if is_rate else None


def check_rate(rate: Rate) -> int | None:
    """Convert a rate to bytes per second; None means no ceiling and stays None.

    Raises:
        ValueError: the rate is not above 0. To stop a move, pause the move.
    """
    if rate is None:
        return None
    bytes_per_second = parse_rate(rate, "the rate of a throttle")
    if bytes_per_second <= 0:
        raise ValueError(
            f"a move at a rate of {rate!r} would never end: give a rate above 0, such as '50MB/s'; "
            "to stop a move, pause it"
        )
    return bytes_per_second


class Pilot(Protocol):
    """Set the rates of automatic ceilings."""

    def start(self, throttle: Throttle) -> None:
        """Adjust the ceilings while moves take chunks; `MoveThrottle.take` calls `start`."""

    def stop(self) -> None:
        """Stop adjusting the ceilings."""


class _Ceiling:
    """Compare the bytes that moves asked for with the bytes that a rate allows.

    The throttle's lock guards the ceiling.
    """

    def __init__(self, rate: Rate, now: float) -> None:
        self.is_automatic = isinstance(rate, str) and rate == AUTOMATIC
        self.rate = RATE_BEFORE_PILOT if self.is_automatic else check_rate(rate)
        self._served = 0.0  # how many bytes the rate had allowed at the time `_at`
        # Bytes of all chunks that asked.
        # The number is at least `_served` minus the bytes that the rate allows in BURST_SECONDS.
        self._asked = 0.0
        self._at = now

    def _advance(self, now: float) -> None:
        if self.rate is None:
            self._served = self._asked
        else:
            self._served += (now - self._at) * self.rate
            self._asked = max(self._asked, self._served - BURST_SECONDS * self.rate)
        self._at = now

    @property
    def wanted(self) -> int | str | None:
        """The rate as the user gave it."""
        return AUTOMATIC if self.is_automatic else self.rate

    def set_rate(self, rate: int | None, now: float) -> None:
        """Change the rate; if it becomes None, all waiting moves can copy their chunks."""
        self._advance(now)
        self.rate = rate
        # Bytes that were saved at the old rate cannot be used at the new rate.
        # If the new rate is None, no chunk waits any more.
        self._served = self._asked if rate is None else min(self._served, self._asked)

    def ask(self, size_bytes: int, now: float) -> float:
        """Return the ticket of a chunk."""
        self._advance(now)
        ticket = self._asked
        self._asked += size_bytes
        return ticket

    def give_back(self, size_bytes: int) -> None:
        """Cancel a ticket, because its chunk was not copied."""
        self._asked -= size_bytes

    def seconds_until(self, ticket: float, now: float) -> float:
        """Compute how many seconds a ticket still has to wait at the present rate."""
        self._advance(now)
        seconds = 0.0 if self.rate is None else (ticket - self._served) / self.rate
        return seconds if seconds > SECONDS_MIN else 0.0


class Throttle:
    """Hold the ceilings of a store, of its log dirs and of its moves, with their rates.

    Args:
        rate: bytes per second for all moves together (`intra.broker.throttled.rate` of KIP-113),
            or text like "50MB/s". None sets no ceiling. "auto" sets a ceiling that a pilot adjusts.
        pilot: adjusts each "auto" ceiling; without a pilot, such a ceiling stays at 1 MiB/s.
        clock: returns seconds that never go back.
        changed: notified when a wait can end sooner. Waits on `changed` are measured in the seconds
            of `clock`.
    """

    def __init__(
        self,
        rate: Rate = None,
        *,
        clock: Clock = time.monotonic,
        changed: threading.Condition | None = None,
        pilot: Pilot | None = None,
    ) -> None:
        self._clock = clock
        self._changed = threading.Condition() if changed is None else changed
        self._pilot = pilot
        self._automatic: set[_Ceiling] = set()
        self.waiting = 0  # how many moves wait for a chunk now
        self.taken_bytes = 0  # bytes of all chunks that moves have taken
        self._store = self._ceiling(rate)
        self._dirs: dict[str, _Ceiling] = {}

    def __repr__(self) -> str:
        rates = {path: ceiling.rate for path, ceiling in self._dirs.items()}
        return f"<Throttle {self._store.rate} dirs={rates}>"

    def rate_of(self, log_dir: str | None = None) -> int | None:
        """Return the ceiling of the store or of a log dir, or None if there is no ceiling."""
        with self._changed:
            ceiling = self._store if log_dir is None else self._dirs.get(log_dir)
            return None if ceiling is None else ceiling.rate

    def set_rate(self, rate: Rate, log_dir: str | None = None) -> None:
        """Set the ceiling of the store or of one log dir; this also affects waiting moves."""
        with self._changed:
            ceiling = self._store if log_dir is None else self._dir(log_dir)
            self._set_rate(ceiling, rate)

    def set_automatic_rate(self, rate: int | None) -> None:
        """Set every "auto" ceiling; the pilot calls this."""
        with self._changed:
            for ceiling in self._automatic:
                ceiling.set_rate(rate, self._clock())
            self._changed.notify_all()

    @property
    def is_automatic(self) -> bool:
        """Report whether any ceiling is "auto"."""
        return bool(self._automatic)

    def stop(self) -> None:
        """Stop adjusting "auto" ceilings."""
        if self._pilot is not None:
            self._pilot.stop()

    def wake(self) -> None:
        """Wake every waiting move, so that the move checks now whether it must stop."""
        with self._changed:
            self._changed.notify_all()

    def for_move(self, log_dirs: Iterable[str] = (), rate: Rate = None) -> MoveThrottle:
        """Create the throttle of one move between log dirs; `rate` is the move's own ceiling."""
        with self._changed:
            share = MoveThrottle(self, self._ceiling(rate))
        share.set_dirs(log_dirs)
        return share

    def _dir(self, log_dir: str) -> _Ceiling:
        if log_dir not in self._dirs:
            self._dirs[log_dir] = self._ceiling(None)
        return self._dirs[log_dir]

    def _ceiling(self, rate: Rate) -> _Ceiling:
        ceiling = _Ceiling(rate, self._clock())
        if ceiling.is_automatic:
            self._automatic.add(ceiling)
        return ceiling

    def _set_rate(self, ceiling: _Ceiling, rate: Rate) -> None:
        """Set the rate of a ceiling, or make the ceiling automatic.

        The caller must hold the lock.
        """
        is_automatic = isinstance(rate, str) and rate == AUTOMATIC
        bytes_per_second = RATE_BEFORE_PILOT if is_automatic else check_rate(rate)
        if not (is_automatic and ceiling.is_automatic):
            ceiling.set_rate(bytes_per_second, self._clock())
        ceiling.is_automatic = is_automatic
        (self._automatic.add if is_automatic else self._automatic.discard)(ceiling)
        self._changed.notify_all()


class MoveThrottle:
    """Apply all ceilings that concern one move; call `Throttle.for_move` to make this object."""

    def __init__(self, throttle: Throttle, own: _Ceiling) -> None:
        self._throttle = throttle
        self._changed = throttle._changed
        self._clock = throttle._clock
        self._own = own
        self._ceilings = [throttle._store, own]

    @property
    def rate(self) -> int | None:
        """The lowest ceiling at present, in bytes per second."""
        rates = [ceiling.rate for ceiling in self._ceilings if ceiling.rate is not None]
        return min(rates, default=None)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk. Chunks are small, so that callers of `pause` wait only milliseconds."""
        rate = self.rate
        if rate is None:
            return CHUNK_BYTES_MAX
        return min(max(int(rate * CHUNK_SECONDS), CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)

    def rates_to_keep(self, before: dict[str, Rate] | None) -> dict[str, Rate] | None:
        """Return the rates that a later process should use, or None if there is no ceiling.

        Args:
            before: the rates that an earlier process stored. While the store's rate is `HOLD_RATE`,
                this function returns `before` unchanged.
        """
        with self._changed:
            own, store = self._own.wanted, self._throttle._store.wanted
        if store == HOLD_RATE:
            return before
        return None if own is store is None else {"move": own, "store": store}

    def set_dirs(self, log_dirs: Iterable[str]) -> None:
        """Apply the ceilings of the move's present source and target, not of earlier log dirs.

        The source changes if another move of the replica ends before this move begins. A chunk that
        is already waiting continues to wait for the ceilings of the earlier log dirs.
        """
        throttle = self._throttle
        with self._changed:
            dirs = [throttle._dir(path) for path in dict.fromkeys(log_dirs)]
            self._ceilings = [throttle._store, self._own, *dirs]

    def set_rate(self, rate: Rate) -> None:
        """Set the ceiling of this move alone."""
        with self._changed:
            self._throttle._set_rate(self._own, rate)

    def end(self) -> None:
        """End the move: the pilot no longer adjusts the move's own ceiling."""
        with self._changed:
            self._throttle._automatic.discard(self._own)

    def take(self, size_bytes: int, is_stopped: Callable[[], bool]) -> bool:
        """Wait until a chunk may be copied; return False if `is_stopped` returns True before that.

        `is_stopped` is called before the wait, and again whenever the wait is woken, for example by
        `Throttle.wake`. The throttle's lock is held while `is_stopped` runs, so `is_stopped` must
        not wait. If this method returns False, the bytes of the chunk are not counted.
        """
        throttle = self._throttle
        if throttle._automatic and throttle._pilot is not None:
            throttle._pilot.start(throttle)
        with self._changed:
            if is_stopped():
                return False
            now, ceilings = self._clock(), self._ceilings
            tickets = [(ceiling, ceiling.ask(size_bytes, now)) for ceiling in ceilings]
            throttle.waiting += 1
            try:
                while seconds := max(ceiling.seconds_until(at, now) for ceiling, at in tickets):
                    self._changed.wait(min(seconds, WAIT_SECONDS_MAX))
                    if is_stopped():
                        self._give_back(ceilings, size_bytes)
                        return False
                    now = self._clock()
            except BaseException:  # if the wait is interrupted, the chunk is not copied
                self._give_back(ceilings, size_bytes)
                raise
            finally:
                throttle.waiting -= 1
            throttle.taken_bytes += size_bytes
        return True

    def _give_back(self, ceilings: Iterable[_Ceiling], size_bytes: int) -> None:
        for ceiling in ceilings:
            ceiling.give_back(size_bytes)
        self._changed.notify_all()
