"""Keep the state of one log dir, with its reason and time; each change is logged once.

Threads: conditions change under a lock of their own that is never held during a disk call. The
booleans made from them are plain attributes, which hot paths read without a lock. The reason is
written before them, so that a thread that sees a dir refuse can read the reason.
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
    """What a log dir is able to do.

    Attributes:
        is_refusing: offline or suspect: every call raises.
        is_refusing_appends: the same, or full.
        since_ms: when the state that is shown began, ms since the epoch.
        on_change: is called with the conditions before and after each change, and its reason, in
            the order of the changes: the lock is held, so it must neither wait nor raise.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.conditions = NOTHING
        self.since_ms = time.time_ns() // 1_000_000
        self.is_offline = False
        self.is_suspect = False
        self.is_full = False
        self.is_cordoned = False
        self.is_slow = False
        self.is_refusing = False
        self.is_refusing_appends = False
        self.on_change: Callable[[Conditions, Conditions, str], None] | None = None
        self._reasons: dict[LogDirState, str] = {}
        self._changing = threading.Lock()

    @property
    def state(self) -> LogDirState:
        """The gravest condition that holds."""
        return state_of(self.conditions)

    @property
    def reason(self) -> str | None:
        """Why it is in the state that is shown; None when it is online."""
        return self._reasons.get(self.state)

    @property
    def offline_reason(self) -> str | None:
        """Why it is offline; None when it is not."""
        return self._reasons.get(LogDirState.OFFLINE) if self.is_offline else None

    def change(self, event: Event, reason: str = "", *, has_remedy: bool = False) -> bool:
        """Apply an event to the dir; returns whether that changed anything.

        Args:
            has_remedy: the reason says what to do, so the log does not add the general advice.
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

    def _is_told_already(self, conditions: Conditions) -> bool:
        """Check whether another part has logged this already."""
        return False

    def _take(self, conditions: Conditions) -> None:
        """Publish the conditions to other threads; the grave ones first."""
        self.conditions = conditions
        is_offline = LogDirState.OFFLINE in conditions
        is_suspect = LogDirState.SUSPECT in conditions
        is_full = LogDirState.READ_ONLY in conditions
        self.is_refusing_appends = is_offline or is_suspect or is_full
        self.is_refusing = is_offline or is_suspect
        self.is_offline, self.is_suspect, self.is_full = is_offline, is_suspect, is_full
        self.is_cordoned = LogDirState.CORDONED in conditions
        self.is_slow = LogDirState.SLOW in conditions

    def _tell(
        self, before: Conditions, conditions: Conditions, reason: str, *, has_remedy: bool
    ) -> None:
        """Log one change, with what to do about it."""
        import logging

        warn = logging.getLogger("logstore").warning
        for state in conditions - before:
            remedy = "" if has_remedy else f"; {REMEDIES[state]}"
            warn("log dir %s is %s: %s%s", self.path, state.value, reason, remedy)
        for state in before - conditions:
            if LogDirState.OFFLINE not in conditions:
                now = state_of(conditions).value
                warn("log dir %s is no longer %s, it is %s", self.path, state.value, now)

    # --- errors for callers -----------------------------------------------------------------------

    def check(self) -> None:
        """Raise LogDirOfflineError or LogDirSuspectError if the dir serves nothing."""
        if self.is_refusing:
            raise self.refusal()

    def refusal(self) -> LogDirError:
        """Make the error for callers of a dir that serves nothing."""
        if self.is_offline:
            return self.offline_error()
        return self.suspect_error()

    def offline_error(self) -> LogDirOfflineError:
        """Make the error for callers of an offline dir."""
        return LogDirOfflineError(path=self.path, reason=self.offline_reason or "it is offline")

    def suspect_error(self, more: str = "", *, retriable: bool = True) -> LogDirSuspectError:
        """Make the error for callers of a suspect dir.

        Args:
            retriable: whether the call left nothing behind; records that may be in the log are not
                sent again.
        """
        reason = self._reasons.get(LogDirState.SUSPECT) or "it does not answer"
        return LogDirSuspectError(path=self.path, reason=reason + more, retriable=retriable)
