"""Hold moves to their rates: one ceiling for the store, others per disk and per move.

A move asks before each chunk and passes every ceiling that concerns it. A ceiling hands out
tickets in bytes: a chunk's ticket is the sum of all chunks asked for before it, and it may go when
the ceiling has *served* that many bytes, at `rate` a second. So chunks go in the order in which
they were asked for, whatever the number of threads; a rate that changes moves the ticket of
everyone who waits; and one move that is held up elsewhere holds up nobody behind it.

Over any span the bytes that went are at most `rate` x span, plus one chunk, plus what
`BURST_SECONDS` of idling saved up; that saving is what makes good for a late wake-up.

Threads: everything here is under the lock of the store's `Throttle`, and nothing waits under it
except on its own condition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from logstore.config import parse_rate

AUTOMATIC = "auto"
RATE_BEFORE_PILOT = 1 << 20  # of an automatic ceiling until it is steered

BURST_SECONDS = 0.1
CHUNK_SECONDS = 0.02
CHUNK_BYTES_MIN = 4 << 10
CHUNK_BYTES_MAX = 4 << 20
HOLD_RATE = 1  # keeps new moves from arriving before they are asked to stop; never remembered
WAIT_SECONDS_MAX = 3600.0  # a wait for longer is one more round; the system has its limit too
SECONDS_MIN = 1e-6  # less is no wait: sums of floats do not come closer than that

Clock = Callable[[], float]
Rate = int | str | None


def kept_rate(rates: object, name: str) -> Rate:
    """Give a rate of those that an earlier process left; None where it left none."""
    rate = rates.get(name) if isinstance(rates, dict) else None
    if rate == AUTOMATIC:
        return AUTOMATIC
    is_rate = type(rate) is int and rate > 0
    return rate if is_rate else None


def check_rate(rate: Rate) -> int | None:
    """Give a rate in bytes per second; None, for no ceiling, stays None.

    Raises:
        ValueError: it is not above 0: to hold a move, pause it.
    """
    if rate is None:
        return None
    bytes_per_second = parse_rate(rate, "the rate of a throttle")
    if bytes_per_second <= 0:
        raise ValueError(
            f"a throttle with a rate of {rate!r} would never end; pause the move instead"
        )
    return bytes_per_second


class Pilot(Protocol):
    """Steer automatic ceilings."""

    def start(self, throttle: Throttle) -> None:
        """Steer until nothing is taken any more; called at each chunk."""

    def stop(self) -> None:
        """Stop steering."""


class _Ceiling:
    """Count what was asked for against what a rate allows; the throttle's lock is held."""

    def __init__(self, rate: Rate, now: float) -> None:
        self.is_automatic = isinstance(rate, str) and rate == AUTOMATIC
        self.rate = RATE_BEFORE_PILOT if self.is_automatic else check_rate(rate)
        self._served = 0.0  # bytes that the rate has allowed up to `_at`
        self._asked = 0.0  # bytes of all tickets; at most BURST_SECONDS behind what is served
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
        """The rate as it was asked for."""
        return AUTOMATIC if self.is_automatic else self.rate

    def set_rate(self, rate: int | None, now: float) -> None:
        """Go on at another rate; without one, everybody who waits may go."""
        self._advance(now)
        self.rate = rate
        # What was saved up at another rate, or owed to it, does not count at this one.
        self._served = self._asked if rate is None else min(self._served, self._asked)

    def ask(self, size_bytes: int, now: float) -> float:
        """Give the ticket of a chunk."""
        self._advance(now)
        ticket = self._asked
        self._asked += size_bytes
        return ticket

    def give_back(self, size_bytes: int) -> None:
        """Take back a chunk that did not go."""
        self._asked -= size_bytes

    def seconds_until(self, ticket: float, now: float) -> float:
        """Say how long a ticket must still wait at the present rate."""
        self._advance(now)
        seconds = 0.0 if self.rate is None else (ticket - self._served) / self.rate
        return seconds if seconds > SECONDS_MIN else 0.0


class Throttle:
    """All ceilings of a store; the moves take their shares through `for_move`.

    Args:
        rate: bytes per second for all moves together (`intra.broker.throttled.rate` of KIP-113),
            or text like "50MB/s"; None sets no ceiling, "auto" one that a pilot steers.
        pilot: steers what is "auto"; without one that stays at 1 MiB/s.
        clock: seconds that never go back.
        changed: notified when a wait may be over sooner; waiting on it takes the clock's seconds.
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
        self.waiting = 0  # moves that wait for a chunk now
        self.taken_bytes = 0  # of all chunks that went
        self._store = self._ceiling(rate)
        self._dirs: dict[str, _Ceiling] = {}

    def __repr__(self) -> str:
        rates = {path: ceiling.rate for path, ceiling in self._dirs.items()}
        return f"<Throttle {self._store.rate} dirs={rates}>"

    def rate_of(self, log_dir: str | None = None) -> int | None:
        """Give the ceiling of the store, or the one of a log dir; None where there is none."""
        with self._changed:
            ceiling = self._store if log_dir is None else self._dirs.get(log_dir)
            return None if ceiling is None else ceiling.rate

    def set_rate(self, rate: Rate, log_dir: str | None = None) -> None:
        """Set the ceiling of the store or of one log dir, for what waits already too."""
        with self._changed:
            ceiling = self._store if log_dir is None else self._dir(log_dir)
            self._set_rate(ceiling, rate)

    def set_automatic_rate(self, rate: int | None) -> None:
        """Set every ceiling that is "auto"; for the pilot."""
        with self._changed:
            for ceiling in self._automatic:
                ceiling.set_rate(rate, self._clock())
            self._changed.notify_all()

    @property
    def is_automatic(self) -> bool:
        """Tell whether there is a ceiling to steer."""
        return bool(self._automatic)

    def stop(self) -> None:
        """Steer no ceiling any more."""
        if self._pilot is not None:
            self._pilot.stop()

    def wake(self) -> None:
        """Let every move that waits look at once whether it is to stop."""
        with self._changed:
            self._changed.notify_all()

    def for_move(self, log_dirs: Iterable[str] = (), rate: Rate = None) -> MoveThrottle:
        """Give a move between log dirs its share, under a ceiling of its own if wanted."""
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
        """Set a ceiling to a rate, or have it steered; the lock is held."""
        is_automatic = isinstance(rate, str) and rate == AUTOMATIC
        bytes_per_second = RATE_BEFORE_PILOT if is_automatic else check_rate(rate)
        if not (is_automatic and ceiling.is_automatic):
            ceiling.set_rate(bytes_per_second, self._clock())
        ceiling.is_automatic = is_automatic
        (self._automatic.add if is_automatic else self._automatic.discard)(ceiling)
        self._changed.notify_all()


class MoveThrottle:
    """What one move has to pass before each chunk; made by `Throttle.for_move`."""

    def __init__(self, throttle: Throttle, own: _Ceiling) -> None:
        self._throttle = throttle
        self._changed = throttle._changed
        self._clock = throttle._clock
        self._own = own
        self._ceilings = [throttle._store, own]

    @property
    def rate(self) -> int | None:
        """The narrowest ceiling at present, in bytes per second."""
        rates = [ceiling.rate for ceiling in self._ceilings if ceiling.rate is not None]
        return min(rates, default=None)

    @property
    def chunk_bytes(self) -> int:
        """How much to ask for at once: a few milliseconds' worth, so that a pause is prompt."""
        rate = self.rate
        if rate is None:
            return CHUNK_BYTES_MAX
        return min(max(int(rate * CHUNK_SECONDS), CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)

    def rates_to_keep(self, before: dict[str, Rate] | None) -> dict[str, Rate] | None:
        """Give the rates to go on with in a later process; none where there is no ceiling.

        Args:
            before: those that an earlier process left: they stay while the store's moves are held.
        """
        with self._changed:
            own, store = self._own.wanted, self._throttle._store.wanted
        if store == HOLD_RATE:
            return before
        return None if own is store is None else {"move": own, "store": store}

    def set_dirs(self, log_dirs: Iterable[str]) -> None:
        """Pass the ceilings of these log dirs, the move's source and target, and of no others.

        The source changes when another move of the replica has ended. A chunk that waits passes
        the ceilings that it has asked.
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
        """End the move: its own ceiling need not be steered any more."""
        with self._changed:
            self._throttle._automatic.discard(self._own)

    def take(self, size_bytes: int, is_stopped: Callable[[], bool]) -> bool:
        """Wait until a chunk may go; False when `is_stopped` says so first, and nothing is taken.

        `is_stopped` is asked before the wait and whenever `Throttle.wake` is called. It is called
        under the throttle's lock, so it must not wait.
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
            except BaseException:  # interrupted: it will not go
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
