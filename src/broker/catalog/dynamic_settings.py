"""Hold the settings that clients may change while the broker runs.

    replica.alter.log.dirs.io.max.bytes.per.second   the rate of all moves (KIP-113)
    cordoned.log.dirs                                log dirs that take no new partitions
    leader.replication.throttled.rate                what a leader sends to throttled followers
    follower.replication.throttled.rate              what a throttled follower fetches (KIP-73)

All settings are stored durably. Every log dir stores the rates. A cordoned log dir stores its own
cordon. A broker without a cluster has no followers, so it accepts and ignores the last two
settings.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from broker.catalog import dir_facts
from broker.catalog.setting_changes import Change, Operation
from broker.catalog.settings import InvalidSettingError
from logstore import LogStore, LogStoreError
from mover import ReplicaMover

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
CORDONED = "cordoned.log.dirs"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
# A log dir stores the time of the change and the rate. The rate 0 means no limit.
FACTS = {
    RATE: "broker.alter_log_dirs_rate",
    LEADER_RATE: "broker.leader_replication_rate",
    FOLLOWER_RATE: "broker.follower_replication_rate",
}
UNLIMITED = 2**63 - 1
DYNAMIC_DEFAULTS = {CORDONED: "", **dict.fromkeys(FACTS, str(UNLIMITED))}  # in Kafka's form
BUSY_SECONDS = 5.0  # how long a change waits for another change, whose disk may hang
DIGITS_MAX = 100  # more digits than any rate has; Python refuses to convert thousands of digits


SetRate = Callable[[str, int | None], object]  # a key of `FACTS`, and bytes per second


class FixedSettingError(InvalidSettingError):
    """Report a setting of the broker that cannot be changed while the broker runs."""


class DynamicSettings:
    """Hold the settings of one broker that clients may change.

    Threads: `_changing` is held during a change.
    """

    def __init__(self, store: LogStore, move_threads: int, set_rate: SetRate | None = None) -> None:
        """Apply nothing until `start`.

        Args:
            set_rate: this function gets the rates of replication; None if there is no replication.
        """
        self._store = store
        self._move_threads = move_threads
        self._set_rate = set_rate
        self._changing = threading.Lock()
        self._rates = dict.fromkeys(FACTS if set_rate is not None else (RATE,), 0)

    def start(self) -> None:
        """Apply the stored rates, and resume the unfinished moves of an earlier process."""
        mover = ReplicaMover.of(self._store, self._move_threads)
        for key in self._rates:
            _, self._rates[key] = dir_facts.newest(self._store, FACTS[key])
        if self._rates[RATE]:
            mover.set_throttled_rate(self._rates[RATE])
        for key, rate in self._rates.items():
            if rate and key != RATE and self._set_rate is not None:
                self._set_rate(key, rate)

    @property
    def has_replication(self) -> bool:
        """Report whether this broker is one of a cluster."""
        return self._set_rate is not None

    def values(self) -> dict[str, str]:
        """Return the settings in Kafka's form."""
        rates = {key: str(rate or UNLIMITED) for key, rate in self._rates.items()}
        return {**rates, CORDONED: ",".join(self.cordoned)}

    @property
    def cordoned(self) -> list[str]:
        """The log dirs that take no new partitions."""
        return [
            path for path in self._store.log_dirs if self._store.host.dir_named(path).is_cordoned
        ]

    def change(self, changes: Iterable[Change], *, is_dry: bool) -> None:
        """Change settings. All changes are checked before the first setting is changed.

        Raises:
            InvalidSettingError: a setting is unknown or fixed, or its value is not valid.
            LogStoreError: no log dir could store the rate, or a log dir could not store its cordon.
                The other changes are made.
        """
        if not self._changing.acquire(timeout=BUSY_SECONDS):
            raise LogStoreError("another change of settings has not ended; try again")
        try:
            rates, cordoned = self._wanted(changes)
            if not is_dry:
                self._apply(rates, cordoned)
        finally:
            self._changing.release()

    def _wanted(self, changes: Iterable[Change]) -> tuple[dict[str, int], set[str]]:
        """Return the rates and the cordoned log dirs after some changes."""
        rates, cordoned = dict(self._rates), set(self.cordoned)
        for change in changes:
            if change.operation not in Operation.__members__.values():
                raise InvalidSettingError(f"{change.key}: there is no operation {change.operation}")
            if change.key in rates:
                rates[change.key] = _rate_of(change)
            elif change.key == CORDONED:
                cordoned = self._paths_of(change, cordoned)
            elif change.key not in FACTS:
                raise FixedSettingError(f"{change.key} cannot be changed while the broker runs")
        return rates, cordoned

    def _apply(self, rates: dict[str, int], cordoned: set[str]) -> None:
        for key, rate in rates.items():
            if rate == self._rates[key]:
                continue
            latest_ns, _ = dir_facts.newest(self._store, FACTS[key])
            now_ns = max(time.time_ns(), latest_ns + 1)  # the clock may have been set back
            dir_facts.remember(self._store, FACTS[key], [now_ns, rate])
            if key == RATE:
                ReplicaMover.of(self._store).set_throttled_rate(rate or None)
            elif self._set_rate is not None:
                self._set_rate(key, rate or None)
            self._rates[key] = rate
        before = set(self.cordoned)

        def write(path: str) -> None:
            (self._store.cordon if path in cordoned else self._store.uncordon)(path)

        for error in dir_facts.write_at_once(sorted(cordoned ^ before), write).values():
            raise error

    def _paths_of(self, change: Change, before: set[str]) -> set[str]:
        if change.operation == Operation.DELETE:
            return set()
        given = {part.strip() for part in (change.text or "").split(",") if part.strip()}
        unknown = given - {*self._store.log_dirs, "*"}
        if unknown:
            raise InvalidSettingError(
                f"{CORDONED}: {sorted(unknown)} are not log dirs of this broker"
            )
        if "*" in given:
            given = set(self._store.log_dirs)
        if change.operation == Operation.APPEND:
            return before | given
        return before - given if change.operation == Operation.SUBTRACT else given


def _rate_of(change: Change) -> int:
    if change.operation == Operation.DELETE:
        return 0
    if change.operation != Operation.SET:
        raise InvalidSettingError(
            f"{change.key} is not a list, so elements cannot be added or removed"
        )
    text = (change.text or "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        reason = f"{text[:DIGITS_MAX]!r} is not a valid number of bytes per second"
        raise InvalidSettingError(f"{change.key}: {reason}")
    rate = int(text)
    if not rate:
        raise InvalidSettingError(f"{change.key}: at a rate of 0, the copying would never end")
    return 0 if rate >= UNLIMITED else rate
