"""Keep the state of one log dir, with the state's reason and beginning; log each change once.

Threads: conditions change under the lock `_changing`, which is never held during a disk call. The
booleans that follow from the conditions are plain attributes, which hot paths read without a lock.
The reason is written before the booleans. So if a thread sees that a dir refuses calls, it can
always read the reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from logstore.disk.states import (
    REMEDIES,
    Conditions,
    Event,
    LogDirState,
    after,
    state_of,
)
from logstore.errors import LogDirError, LogDirOfflineError, LogDirSuspectError

NOTHING: Conditions = frozenset()


class Health:
    """The conditions of a log dir, and its state.

    Attributes:
        is_let_go: whether this process has released the dir; `refuse` sets it once.
        is_refusing: whether calls raise, because the dir is OFFLINE or SUSPECT, or was released.
        is_refusing_appends: whether appends raise, because the dir is OFFLINE, SUSPECT, OUTDATED or
            full, or was released.
        since_ms: when the current state began, in ms since the epoch.
        on_change: a function that is called after each change, in the order of the changes. The
            arguments of the function are the conditions before and after the change, and the
            reason. The lock is held during the call, so the function must neither wait nor raise.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.conditions = NOTHING
        self.since_ms = time.time_ns() // 1_000_000
        self.is_offline = False
        self.is_suspect = False
        self.is_full = False
        self.is_cordoned = False
        self.is_outdated = False
        self.is_slow = False
        self.is_let_go = False
        self.is_refusing = False
        self.is_refusing_appends = False
        self.on_change: Callable[[Conditions, Conditions, str], None] | None = None
        self._reasons: dict[LogDirState, str] = {}
        self._changing = threading.Lock()

    @property
    def state(self) -> LogDirState:
        """The most severe of the current conditions."""
        return state_of(self.conditions)

    @property
    def reason(self) -> str | None:
        """Why the dir is in its state, or None if it is online."""
        return self._reasons.get(self.state)

    @property
    def offline_reason(self) -> str | None:
        """Why the dir is offline, or None if it is not offline."""
        return self._reasons.get(LogDirState.OFFLINE) if self.is_offline else None

    def change(self, event: Event, reason: str = "", *, has_remedy: bool = False) -> bool:
        """Apply an event to the dir; return whether a condition changed.

        Args:
            has_remedy: whether the reason says what to do, so that the log message needs no general
                advice.
        """
        with self._changing:
            before, conditions = self.conditions, after(self.conditions, event)
            if conditions == before:
                return False
            for state in conditions - before:
                self._reasons[state] = reason
            if state_of(conditions) is not state_of(before):
                self.since_ms = time.time_ns() // 1_000_000
            self._take(conditions)
            if self.on_change is not None:
                self.on_change(before, conditions, reason)
        if not self._is_told_already(conditions):
            self._tell(before, conditions, reason, has_remedy=has_remedy)
        return True

    @property
    def is_away(self) -> bool:
        """Whether the dir is OFFLINE or OUTDATED, so that some of its records may be missing."""
        return self.is_offline or self.is_outdated

    def explain(self, state: LogDirState, reason: str) -> None:
        """Replace the reason why the dir is in a state, because the cause is known now."""
        with self._changing:
            self._reasons[state] = reason

    def _is_told_already(self, conditions: Conditions) -> bool:
        """Return True if no log message is needed for a change; `LogDir` overrides this method."""
        return False

    def _take(self, conditions: Conditions) -> None:
        """Publish the conditions to other threads; first set the booleans that refuse calls."""
        self.conditions = conditions
        is_offline = LogDirState.OFFLINE in conditions
        is_suspect = LogDirState.SUSPECT in conditions
        is_full = LogDirState.READ_ONLY in conditions
        is_outdated = LogDirState.OUTDATED in conditions
        is_refusing = is_offline or is_suspect or self.is_let_go
        self.is_refusing_appends = is_refusing or is_full or is_outdated
        self.is_refusing = is_refusing
        self.is_offline, self.is_suspect, self.is_full = is_offline, is_suspect, is_full
        self.is_outdated = is_outdated
        self.is_cordoned = LogDirState.CORDONED in conditions
        self.is_slow = LogDirState.SLOW in conditions

    def _tell(
        self, before: Conditions, conditions: Conditions, reason: str, *, has_remedy: bool
    ) -> None:
        """Log one change, with advice to the user."""
        import logging

        warn = logging.getLogger("logstore").warning
        for state in conditions - before:
            remedy = "" if has_remedy else f"; {REMEDIES[state]}"
            warn("log dir %s is %s: %s%s", self.path, state.value, reason, remedy)
        for state in before - conditions:
            if LogDirState.OFFLINE not in conditions:
                now = state_of(conditions).value
                warn("log dir %s is no longer %s, it is %s", self.path, state.value, now)

    def refuse(self) -> None:
        """Refuse all calls on the dir's logs from now on, because the dir is released.

        This method allocates no memory. If a close runs out of memory, some logs may stay open, and
        calls to these logs must raise an error.
        """
        with self._changing:
            self.is_let_go = self.is_refusing = self.is_refusing_appends = True

    # --- errors for callers -----------------------------------------------------------------------

    def check(self) -> None:
        """Raise LogDirOfflineError or LogDirSuspectError if the dir does not work."""
        if self.is_refusing:
            raise self.refusal()

    def check_current(self) -> None:
        """Raise an error if the dir must not get records: it does not serve, or it is an old copy.

        Raises:
            LogDirError: the dir is OUTDATED, OFFLINE or SUSPECT. Records in an old copy are lost
                when the disk with the later state comes back.
        """
        self.check()
        if self.is_outdated:
            reason = self._reasons.get(LogDirState.OUTDATED) or "it is an old copy"
            raise LogDirError(path=self.path, reason=reason)

    def refusal(self) -> LogDirError:
        """Make the error that callers get while the dir is OFFLINE, SUSPECT or released."""
        if self.is_offline:
            return self.offline_error()
        if self.is_let_go:
            reason = "this process has released it: open the store again"
            return LogDirOfflineError(path=self.path, reason=reason)
        return self.suspect_error()

    def offline_error(self) -> LogDirOfflineError:
        """Make the error that callers get while the dir is OFFLINE."""
        return LogDirOfflineError(path=self.path, reason=self.offline_reason or "it is offline")

    def suspect_error(self, more: str = "", *, retriable: bool = True) -> LogDirSuspectError:
        """Make the error that callers get while the dir is SUSPECT.

        Args:
            retriable: False if the call may have written records, so that the caller must not send
                the records again.
        """
        reason = self._reasons.get(LogDirState.SUSPECT) or "it does not answer"
        return LogDirSuspectError(path=self.path, reason=reason + more, retriable=retriable)
