"""Hold the settings that clients may change while the broker runs.

    replica.alter.log.dirs.io.max.bytes.per.second   the rate of all moves (KIP-113)
    cordoned.log.dirs                                log dirs that take no new partitions

Both settings are stored durably. Every log dir stores the rate. A cordoned log dir stores its own
cordon.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from broker.catalog import dir_facts
from broker.catalog.setting_changes import Change, Operation
from broker.catalog.settings import InvalidSettingError
from logstore import LogStore
from mover import ReplicaMover

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
CORDONED = "cordoned.log.dirs"
# These settings limit the replication between brokers, which a single broker does not have. Kafka's
# tool for reassignments sets both settings with every throttle.
IGNORED = frozenset({"leader.replication.throttled.rate", "follower.replication.throttled.rate"})
FACT = "broker.alter_log_dirs_rate"  # the time of the change, and the rate; 0 means no limit
UNLIMITED = 2**63 - 1
DYNAMIC_DEFAULTS = {RATE: str(UNLIMITED), CORDONED: ""}  # in Kafka's form
DIGITS_MAX = 100  # enough for any rate; Python refuses to read thousands of digits


class FixedSettingError(InvalidSettingError):
    """Report a setting of the broker that only a restart can change."""


class DynamicSettings:
    """Hold the settings of one broker that clients may change.

    Threads: `_changing` is held during a change.
    """

    def __init__(self, store: LogStore, move_threads: int) -> None:
        self._store = store
        self._move_threads = move_threads
        self._changing = threading.Lock()
        self._rate = 0

    def start(self) -> None:
        """Apply the rate that was set last, and resume unfinished moves of an earlier process."""
        _, self._rate = dir_facts.newest(self._store, FACT)
        mover = ReplicaMover.of(self._store, self._move_threads)
        if self._rate:
            mover.set_throttled_rate(self._rate)

    def values(self) -> dict[str, str]:
        """Return the settings in Kafka's form."""
        rate = self._rate or UNLIMITED
        return {RATE: str(rate), CORDONED: ",".join(self.cordoned)}

    @property
    def cordoned(self) -> list[str]:
        """The log dirs that take no new partitions."""
        return [
            path for path in self._store.log_dirs if self._store.host.dir_named(path).is_cordoned
        ]

    def change(self, changes: Iterable[Change], *, is_dry: bool) -> None:
        """Change settings; all changes are checked before the first setting is changed.

        Raises:
            InvalidSettingError: a setting is unknown or fixed, or its value is not valid.
            LogStoreError: no log dir could store the rate.
        """
        with self._changing:
            rate, cordoned = self._wanted(changes)
            if not is_dry:
                self._apply(rate, cordoned)

    def _wanted(self, changes: Iterable[Change]) -> tuple[int, set[str]]:
        """Return the rate and the cordoned log dirs as they would be after some changes."""
        rate, cordoned = self._rate, set(self.cordoned)
        for change in changes:
            if change.key == RATE:
                rate = _rate_of(change)
            elif change.key == CORDONED:
                cordoned = self._paths_of(change, cordoned)
            elif change.key not in IGNORED:
                raise FixedSettingError(f"{change.key} cannot be changed while the broker runs")
        return rate, cordoned

    def _apply(self, rate: int, cordoned: set[str]) -> None:
        if rate != self._rate:
            dir_facts.remember(self._store, FACT, [time.time_ns(), rate])
            ReplicaMover.of(self._store).set_throttled_rate(rate or None)
            self._rate = rate
        before = set(self.cordoned)
        for path in sorted(cordoned - before):
            self._store.cordon(path)
        for path in sorted(before - cordoned):
            self._store.uncordon(path)

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
        raise InvalidSettingError(f"{RATE} is not a list, so elements cannot be added or removed")
    text = (change.text or "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        reason = f"{text[:DIGITS_MAX]!r} is not a valid number of bytes per second"
        raise InvalidSettingError(f"{RATE}: {reason}")
    rate = int(text)
    if not rate:
        raise InvalidSettingError(f"{RATE}: at a rate of 0, moves would never end")
    return 0 if rate >= UNLIMITED else rate
