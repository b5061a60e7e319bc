"""Define in a table which conditions of a log dir each event adds and ends; this does no I/O.

A log dir can have several conditions at once: for example, a full dir can be cordoned and hang. The
*state* of a dir is its most severe condition.

    event      from                    adds        ends
    FAILED     any                     OFFLINE     READ_ONLY, SUSPECT, SLOW, OUTDATED
    STUCK      any but offline         SUSPECT
    ANSWERED   SUSPECT                             SUSPECT
    FULL       any but offline         READ_ONLY
    ROOM       READ_ONLY                           READ_ONLY
    CORDON     any                     CORDONED
    UNCORDON   CORDONED                            CORDONED
    SLOWED     any but offline         SLOW
    KEPT_UP    SLOW                                SLOW
    OUTDATED   any but offline         OUTDATED
    ACCEPTED   OUTDATED                            OUTDATED

If a `LogDir` object is OFFLINE, it stays OFFLINE. Only `reopen_dir` brings the directory back, with
a new `LogDir` object. `reopen_dir` checks the directory's identity, locks the directory, probes the
disk and recovers the logs.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class LogDirState(enum.Enum):
    """The states of a log dir; a log dir without any condition is ONLINE."""

    ONLINE = "online"
    READ_ONLY = "read-only"
    SLOW = "slow"
    CORDONED = "cordoned"
    OUTDATED = "outdated"
    SUSPECT = "suspect"
    OFFLINE = "offline"


Conditions = frozenset[LogDirState]

GRAVEST_FIRST = (
    LogDirState.OFFLINE,
    LogDirState.SUSPECT,
    LogDirState.OUTDATED,
    LogDirState.READ_ONLY,
    LogDirState.CORDONED,
    LogDirState.SLOW,
)


class Event(enum.Enum):
    """Name an event that changes the conditions of a log dir."""

    FAILED = "its disk failed, or its user took it offline"
    STUCK = "a call to its disk does not return"
    ANSWERED = "its disk answers again, and no call hangs"
    FULL = "its disk is full"
    ROOM = "its disk has room again"
    CORDON = "its user allows no new replicas in it"
    UNCORDON = "its user allows new replicas in it again"
    SLOWED = "its probes take far longer than the probes of the other log dirs"
    KEPT_UP = "its probes are again about as fast as the probes of the other log dirs"
    OUTDATED = "other log dirs recorded a later state of this log dir, so it is an old copy"
    ACCEPTED = "its user accepted the old copy as the log dir"


class Change(NamedTuple):
    """The conditions that an event adds and ends."""

    adds: Conditions
    ends: Conditions
    is_while_offline: bool = False


def _change(
    *adds: LogDirState, ends: tuple[LogDirState, ...] = (), is_while_offline: bool = False
) -> Change:
    return Change(frozenset(adds), frozenset(ends), is_while_offline)


TABLE = {
    Event.FAILED: _change(
        LogDirState.OFFLINE,
        ends=(
            LogDirState.READ_ONLY,
            LogDirState.SUSPECT,
            LogDirState.SLOW,
            LogDirState.OUTDATED,
        ),
        is_while_offline=True,
    ),
    Event.STUCK: _change(LogDirState.SUSPECT),
    Event.ANSWERED: _change(ends=(LogDirState.SUSPECT,)),
    Event.FULL: _change(LogDirState.READ_ONLY),
    Event.ROOM: _change(ends=(LogDirState.READ_ONLY,)),
    Event.CORDON: _change(LogDirState.CORDONED, is_while_offline=True),
    Event.UNCORDON: _change(ends=(LogDirState.CORDONED,), is_while_offline=True),
    Event.SLOWED: _change(LogDirState.SLOW),
    Event.KEPT_UP: _change(ends=(LogDirState.SLOW,)),
    Event.OUTDATED: _change(LogDirState.OUTDATED),
    Event.ACCEPTED: _change(ends=(LogDirState.OUTDATED,)),
}

REMEDIES = {
    LogDirState.ONLINE: "",
    LogDirState.READ_ONLY: "free some space: after that, the log dir accepts records again by "
    "itself",
    LogDirState.SLOW: "new replicas go elsewhere; check the disk, or move its replicas away",
    LogDirState.CORDONED: "uncordon it to allow new replicas in it",
    LogDirState.OUTDATED: "mount the disk with the latest state, then reopen the log dir",
    LogDirState.SUSPECT: "check the disk: when the disk answers, the log dir serves again by "
    "itself",
    LogDirState.OFFLINE: "check the disk and its mount, then reopen the log dir",
}


def after(conditions: Conditions, event: Event) -> Conditions:
    """Return the conditions that a log dir has after an event."""
    change = TABLE[event]
    if LogDirState.OFFLINE in conditions and not change.is_while_offline:
        return conditions
    return (conditions - change.ends) | change.adds


def state_of(conditions: Conditions) -> LogDirState:
    """Return the state of a log dir: its most severe condition."""
    for state in GRAVEST_FIRST:
        if state in conditions:
            return state
    return LogDirState.ONLINE
