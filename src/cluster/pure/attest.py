"""Keep the `whole_since` of each log dir: since this epoch, the log dir has lost no record.

This is rule P4. Each log dir stores a `DirEntry`. For each log dir, there is also a *failure
record* on tmpfs, which exists until the machine is rebooted. Because a reboot empties tmpfs, the
entries of the other log dirs note the failure, too. At a start, the entry, the failure record and
the notes determine the next `whole_since`:

| found at a start | whole_since | flushed_since |
|---|---|---|
| no entry, or the dir cannot be synced | the new epoch | the new epoch |
| an old copy of the log dir, such as a restored image | the new epoch | the new epoch |
| a failure is recorded, or noted in another log dir | the new epoch | the new epoch |
| the mark of a clean stop | unchanged | unchanged |
| the same boot, but the record is missing | the new epoch | the new epoch |
| another boot, and the notes of another log dir are lost | the new epoch | the new epoch |
| another boot: the power may have failed | the new epoch | unchanged |
| the same boot, but another mount | the new epoch | unchanged |
| the same boot and mount: at most the process was killed | unchanged | unchanged |

The coordination store has the last known state of each log dir. If a log dir lacks this state, it
is an old copy. Its entry describes an earlier time, so the entry counts as missing.

A loss of any written record advances `whole_since`. Only a loss of flushed records advances
`flushed_since`. A topic with `flush.before.ack` uses `flushed_since`, because such a topic loses
nothing if the power fails (P24).

A log dir that joins a running broker counts as failed until the registration names it. The
`whole_since` of a log dir that has just joined is the epoch of that registration. A log dir that is
removed counts as failed until the registration is written without it. So if a replica was lost with
this log dir, the replica is created again only at a later registration epoch (P3, P17).

The broker must be registered before it determines the `whole_since` of its log dirs. If the session
ends while a log dir returns, the write of the registration is lost or too old, and the broker asks
for the write again.

A container gets a new mount and a new tmpfs at each start. So in a container, the numbers stay the
same only if the broker was stopped cleanly.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cluster.host_dirs import DirEntry, LogDir, LogDirs


class FailureRecord(enum.Enum):
    """The contents of the failure record of a log dir on tmpfs."""

    NONE = "none"
    RECORDED = "recorded"
    MISSING = "missing"


class DirFound(NamedTuple):
    """Event: a start found a log dir that works. Before this event, the broker must be registered.

    Attributes:
        entry: the entry of the log dir; None if no entry can be read.
        is_noted: whether another log dir notes that this log dir has failed (`noted_failures`).
        lacks_notes: whether another log dir has no entry. The notes of a log dir without an entry
            are lost.
        is_synced: whether `syncfs` succeeded. `syncfs` also reports failed writes of a process that
            was killed.
    """

    dir_id: str
    entry: DirEntry | None
    record: FailureRecord
    boot_id: str
    mount_id: str
    is_synced: bool = True
    is_noted: bool = False
    lacks_notes: bool = False


class DirMissing(NamedTuple):
    """Event: a start found that a log dir does not work."""

    dir_id: str


class SessionBegan(NamedTuple):
    """Event: the broker was registered with a new session, at this zxid."""

    epoch: int


class DirFailed(NamedTuple):
    """Event: a log dir failed while the broker runs."""

    dir_id: str


class DirReturned(NamedTuple):
    """Event: a log dir works again, was replaced by an empty log dir, or was added to the store."""

    dir_id: str


class DirJoined(NamedTuple):
    """Event: the store has added a log dir. The log dir counts as failed until DirReturned."""

    dir_id: str
    directory_id: str
    boot_id: str
    mount_id: str


class DirRemoved(NamedTuple):
    """Event: the store has removed a log dir; the replicas in this log dir are lost."""

    dir_id: str
    directory_id: str


class DirEntered(NamedTuple):
    """Event: the registration was written again because of a log dir, at this zxid."""

    dir_id: str
    epoch: int


class RecordFailure(NamedTuple):
    """Effect: record on tmpfs that a log dir failed, before anything else happens."""

    dir_id: str


class EndRoles(NamedTuple):
    """Effect: end the roles of all replicas on a log dir."""

    dir_id: str


class WriteRegistration(NamedTuple):
    """Effect: write the registration again because this log dir returned, or was removed."""

    dir_id: str


class WriteEntry(NamedTuple):
    """Effect: write the entry of a log dir durably."""

    dir_id: str
    entry: DirEntry


class ClearFailure(NamedTuple):
    """Effect: clear the failure record on tmpfs. The caller must write the entry first."""

    dir_id: str


class EntryDue(NamedTuple):
    """Event: the entry of a log dir could not be written, and the write may now be repeated."""

    dir_id: str


class LeaveBegan(NamedTuple):
    """Event: the broker will stop in order.

    From now on, no follower on this broker joins an ISR (P21).
    """


Event = (
    DirFound | DirMissing | SessionBegan | DirFailed | DirReturned | DirJoined | DirRemoved
    | DirEntered | EntryDue | LeaveBegan
)  # fmt: skip
Effect = RecordFailure | EndRoles | WriteRegistration | WriteEntry | ClearFailure


class Host:
    """The facts that all replicas of a broker share: its registration and its log dirs.

    Attributes:
        broker_epoch: the zxid at which the present session was registered; 0 before the first
            session.
        registration_epoch: the zxid of the last write of the broker's registration.
        is_leaving: whether the broker will stop in order.
        dirs: the log dirs of the broker. A change replaces the whole mapping, because other threads
            read it.
        dir_for_new: the log dir for the next replica that is created, if that log dir works.
    """

    __slots__ = (
        "broker_epoch", "broker_id", "dir_for_new", "dirs", "is_leaving", "registration_epoch",
    )  # fmt: skip

    def __init__(self, broker_id: int, dir_ids: tuple[str, ...]) -> None:
        self.broker_id = broker_id
        self.broker_epoch = self.registration_epoch = 0
        self.is_leaving = False
        self.dirs = LogDirs({dir_id: LogDir() for dir_id in dir_ids})
        self.dir_for_new = dir_ids[0]

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Handle an event; return the effects, in the order in which they must be carried out."""
        match event:
            case SessionBegan(epoch):
                return self._begin_session(epoch)
            case DirFound():
                return self._attest(event)
            case DirMissing(dir_id):
                self.dirs[dir_id].is_good = False
                return self.note(dir_id)  # the log dir may have lost records when it returns
            case EntryDue(dir_id):
                return self._entered(dir_id) if self._works(dir_id) else []
            case LeaveBegan():
                self.is_leaving = True
                return []
            case _:
                return self._change(event)

    def _change(self, event: Event) -> list[Effect]:
        """Handle a change of a log dir while the broker runs."""
        match event:
            case DirFailed(dir_id):
                self.dirs[dir_id].is_good = self.dirs[dir_id].is_awaited = False
                return self.on_failure(dir_id)
            case DirReturned(dir_id):
                self.dirs[dir_id].is_awaited = True
                return self.on_return(dir_id)
            case DirJoined():
                return self._join(event)
            case DirRemoved(dir_id, directory_id):
                return self._remove(self.dirs[dir_id], dir_id, directory_id)
            case DirEntered(dir_id, epoch):
                return self._enter(dir_id, epoch)
            case _:
                raise TypeError(f"a host does not know the event {event!r}")

    @property
    def are_all_good(self) -> bool:
        """Whether every log dir works, so that the broker has found all its replicas."""
        return all(log_dir.is_good for log_dir in self.dirs.values())

    def whole_since(
        self, dir_id: str, own_since: int, *, flushes: bool, placed_since: int = 0
    ) -> int:
        """Return a replica's `whole_since`: the larger of its own number and its log dir's number.

        If the log dir lost records only before the replica was placed there, this loss is ignored.

        Args:
            placed_since: the `whole_since` of the log dir when the replica was placed there.
        """
        log_dir = self.dirs[dir_id]
        since = log_dir.flushed_since if flushes else log_dir.whole_since
        return max(own_since, since) if since > placed_since else own_since

    def on_failure(self, dir_id: str) -> list[Effect]:
        """Return the effects of a failure.

        The record of the failure is written first, because the process may be killed.
        """
        return [RecordFailure(dir_id), *self.note(dir_id), EndRoles(dir_id)]

    def note(self, dir_id: str) -> list[Effect]:
        """Write a failure to the entries of the other log dirs that work."""
        return self._change_notes(dir_id, frozenset({dir_id}))

    def forget(self, dir_id: str) -> list[Effect]:
        """Remove the notes of a failure. The entry of the log dir must be durable first."""
        return self._change_notes(dir_id, frozenset())

    def noting(self, dir_id: str) -> frozenset[str]:
        """Return the other log dirs that note a failure of this log dir."""
        return frozenset(other for other, one in self.dirs.items() if dir_id in one.failed)

    def keep_notes(self, dir_id: str, noting: Iterable[str]) -> None:
        """Keep the notes of a failure, because the log dir could not write its new entry."""
        for other in noting:
            self.dirs[other].failed |= {dir_id}

    def _change_notes(self, dir_id: str, noted: frozenset[str]) -> list[Effect]:
        effects: list[Effect] = []
        for other, log_dir in self.dirs.items():
            if other == dir_id or log_dir.failed & {dir_id} == noted:
                continue
            log_dir.failed = log_dir.failed - {dir_id} | noted
            if log_dir.is_good:
                effects.append(WriteEntry(other, log_dir.entry()))
        return effects

    def on_return(self, dir_id: str) -> list[Effect]:
        """Ask for a new registration epoch.

        The new epoch ends the roles of all replicas on the log dir.
        """
        return [WriteRegistration(dir_id)]

    def _begin_session(self, epoch: int) -> list[Effect]:
        assert epoch > self.registration_epoch, "zxids only rise"
        self.broker_epoch = self.registration_epoch = epoch
        for log_dir in self.dirs.values():
            log_dir.epoch = epoch
        return [WriteRegistration(m) for m, one in self.dirs.items() if one.is_awaited]

    def _join(self, joined: DirJoined) -> list[Effect]:
        """Let a new log dir count as failed until it returns, because its entry may be old."""
        log_dir, others = LogDir(), self.dirs.values()
        log_dir.boot_id, log_dir.mount_id = joined.boot_id, joined.mount_id
        for other in others:
            other.rename_failed(joined.directory_id, joined.dir_id)
        log_dir.failed = frozenset().union(*(one.failed for one in others)) - {joined.dir_id}
        self.dirs = LogDirs({**self.dirs, joined.dir_id: log_dir})
        return [RecordFailure(joined.dir_id), *self.note(joined.dir_id)]

    def _remove(self, log_dir: LogDir, dir_id: str, directory_id: str) -> list[Effect]:
        """Ask for a new registration epoch. Lost replicas are created again at this epoch (P3)."""
        log_dir.is_good, log_dir.is_awaited, log_dir.removed_as = False, True, directory_id
        return [WriteRegistration(dir_id)]

    def _drop(self, dir_id: str, epoch: int) -> list[Effect]:
        """Forget a removed log dir. The notes of its failure stay, and name its directory id."""
        self.registration_epoch = epoch
        removed_as = self.dirs[dir_id].removed_as
        self.dirs = LogDirs({one: state for one, state in self.dirs.items() if one != dir_id})
        for other in self.dirs.values():
            other.rename_failed(dir_id, removed_as)
        if self.dir_for_new == dir_id:
            self.dir_for_new = next(iter(self.dirs), dir_id)
        return [EndRoles(dir_id)]

    def _attest(self, found: DirFound) -> list[Effect]:
        if not self.broker_epoch:
            raise ValueError(f"log dir {found.dir_id} was found before the broker was registered")
        log_dir = self.dirs[found.dir_id]
        log_dir.is_good = True
        log_dir.boot_id, log_dir.mount_id = found.boot_id, found.mount_id
        log_dir.whole_since, log_dir.flushed_since = since_at_start(found, log_dir.epoch)
        known = found.entry.failed if found.entry is not None else frozenset()
        noted = known | log_dir.failed  # another log dir may have failed since the entry was read
        log_dir.failed = frozenset(other for other in noted if not self._works(other))
        return self._entered(found.dir_id)

    def _enter_late(self, epoch: int) -> list[Effect]:
        """Store only the new epoch, because the session has ended or the log dir has failed."""
        self.registration_epoch = max(self.registration_epoch, epoch)
        return []

    def _works(self, dir_id: str) -> bool:
        return dir_id in self.dirs and self.dirs[dir_id].is_good

    def _entered(self, dir_id: str) -> list[Effect]:
        """Write the numbers of a log dir durably, and then forget that the log dir had failed."""
        entry = WriteEntry(dir_id, self.dirs[dir_id].entry())
        return [entry, ClearFailure(dir_id), *self.forget(dir_id)]

    def _enter(self, dir_id: str, epoch: int) -> list[Effect]:
        log_dir = self.dirs[dir_id]
        if epoch < self.registration_epoch or not log_dir.is_awaited:
            return self._enter_late(epoch)
        if log_dir.removed_as:
            return self._drop(dir_id, epoch)
        log_dir.is_awaited = False
        self.registration_epoch = log_dir.epoch = epoch
        log_dir.whole_since = log_dir.flushed_since = epoch
        log_dir.is_good = True
        return [EndRoles(dir_id), *self._entered(dir_id)]


def noted_failures(entries: Iterable[DirEntry | None]) -> frozenset[str]:
    """Return the log dirs that have failed according to the entries of the other log dirs."""
    return frozenset().union(*(entry.failed for entry in entries if entry is not None))


def present_entry(entry: DirEntry | None, *, is_old_copy: bool) -> DirEntry | None:
    """Return the entry of a log dir, unless the log dir is an old copy."""
    return None if is_old_copy else entry


def lacks_notes(dir_id: str, entries: Mapping[str, DirEntry | None]) -> bool:
    """Check whether another log dir has lost its entry, and so its notes about this log dir."""
    return any(entry is None for other, entry in entries.items() if other != dir_id)


def since_at_start(found: DirFound, epoch: int) -> tuple[int, int]:
    """Return `whole_since` and `flushed_since` of a log dir after a start (see the table above)."""
    entry = found.entry
    has_failed = found.record is FailureRecord.RECORDED or found.is_noted
    if entry is None or not found.is_synced or has_failed:
        return epoch, epoch
    if entry.is_stopped_cleanly:
        return entry.whole_since, entry.flushed_since
    if found.boot_id != entry.boot_id:
        return epoch, epoch if found.lacks_notes else entry.flushed_since
    if found.record is FailureRecord.MISSING:
        return epoch, epoch
    if found.mount_id != entry.mount_id:
        return epoch, entry.flushed_since
    return entry.whole_since, entry.flushed_since
