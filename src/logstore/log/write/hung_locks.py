"""Free the callers that wait for a log's locks when their holder hangs in the disk.

A thread that is stuck in the kernel cannot be stopped, and only a release wakes the threads that
wait for its lock. So if the log dir has become SUSPECT, the watchdog *takes the lock into custody*:
it releases the lock in place of its holder. A thread that then acquires the lock sees that the dir
is SUSPECT and raises before it changes anything. When the holder's call returns, it takes the lock
again before it continues (`reclaim`). The dir does not serve before all holders have done so.

    holder      takes the lock ... pwrite hangs ................ comes back, reclaims, publishes
    watchdog                          SUSPECT, takes into custody
    the others                                 get the lock, raise LogDirSuspectError, release

A lock is taken only from a holder that is *keeping* it: the holder declares that while it calls the
disk, and checks afterwards whether the lock was taken. Each of the two writes first and then reads:

    holder      strikes out that he keeps it    looks whether it is in custody     (releases it)
    watchdog    says that it is in custody      looks whether it is still kept      releases it

So if the watchdog finds the lock kept, the holder has still to check, and takes the lock back. If
it finds the lock not kept, the lock may belong to another thread by now, and is left alone.

Rules for code that calls the disk under `lock` or `flush_lock`: call `check` after taking the
lock and before changing anything, and do the rest inside `held`. An append does by hand what `held`
does, because an object for each lock costs a durable append a microsecond: `writing` says that it
keeps `lock`, `kept` that it keeps the lock of a commit or of a flush. A thread that finds
something in custody does not set `kept`: the lock that it got may be free because of that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, Self
from weakref import ref

from logstore.disk.calls import WORKING, call
from logstore.log.write import encode

NOT_WRITING = -1
RECLAIM_SECONDS = 0.05


class Owner(Protocol):
    """A log whose locks may be taken into custody."""

    in_custody: set[str]
    # Weak, as are the calls under way: an interrupted thread must not block others.
    keepers: set[ref[keeping]]
    writing: int
    # The lock that a durable append keeps by hand, or "": at most one of an owner's locks.
    kept: str


class Commits(Owner, Protocol):
    """Combines the durable appends of a log."""

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        timestamp: encode.Timestamp | None,
        headers: encode.HeadersLike,
    ) -> int:
        """Append one record durably and give its offset."""

    def give_up(self) -> None:
        """Release the threads that wait in a group."""


class LockedLog(Owner, Protocol):
    """A log, as far as its locks are concerned."""

    @property
    def directory(self) -> str:
        """Path of its directory."""

    @property
    def commit(self) -> Commits | None:
        """The combiner of its durable appends, if there were any."""


class keeping:  # noqa: N801 - it is used as a statement
    """Hold locks during calls to the disk; the last item of the `with` that takes them."""

    __slots__ = ("__weakref__", "_entry", "names", "owner")

    def __init__(self, owner: Owner, *names: str) -> None:
        self.owner, self.names = owner, names

    def __enter__(self) -> None:
        """Leave out locks that are in custody already: another thread has to take them back."""
        if self.owner.in_custody:
            self.names = tuple(name for name in self.names if name not in self.owner.in_custody)
        self._entry = ref(self)
        self.owner.keepers.add(self._entry)

    def __exit__(self, *_: object) -> None:
        """Take the locks again before they are released."""
        self.owner.keepers.discard(self._entry)
        if self.owner.in_custody:
            reclaim(self.owner, self.names)


class held(call):  # noqa: N801 - it is used as a statement
    """Work on a log's files under its locks: `keeping`, and a registered call."""

    __slots__ = ("_keeping",)

    def __init__(self, log: LockedLog, *names: str) -> None:
        super().__init__(log.directory, WORKING)
        self._keeping = keeping(log, *names)

    def __enter__(self) -> Self:
        """Register the work."""
        self._keeping.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        """Unregister the work."""
        super().__exit__()
        self._keeping.__exit__()


def reclaim(owner: Owner, names: Iterable[str]) -> None:
    """Take back the locks that were taken into custody; other threads hold them only to raise.

    If the watchdog has not released a lock yet, it may still find that it need not.
    """
    for name in names:
        while name in owner.in_custody:
            if getattr(owner, name).acquire(timeout=RECLAIM_SECONDS):
                owner.in_custody.discard(name)


def is_kept(owner: Owner, name: str) -> bool:
    """Check whether the holder of a lock will check it before it releases it."""
    keepers = [entry() for entry in tuple(owner.keepers)]
    is_appending = name == "lock" and owner.writing != NOT_WRITING
    return (
        is_appending
        or name == owner.kept
        or any(one is not None and name in one.names for one in keepers)
    )


def take_into_custody(owner: Owner, name: str) -> None:
    """Release a lock in place of its holder that hangs in the disk, unless it just returned."""
    owner.in_custody.add(name)
    if is_kept(owner, name):
        getattr(owner, name).release()
    else:
        owner.in_custody.discard(name)


def is_free(log: LockedLog) -> bool:
    """Check whether no lock of a log is in custody: every holder that hung has returned."""
    return not log.in_custody and (log.commit is None or not log.commit.in_custody)


class Relief:
    """Frees the threads that wait for the locks of a suspect log dir, look by look.

    A lock counts as stuck if it is held at two looks in a row: since the dir became SUSPECT, a
    thread that gets it releases it at once. A log's locks are freed one after the other, the
    innermost first: the holder of the next may only be waiting for that one.
    """

    def __init__(self) -> None:
        self._held: set[tuple[Owner, str]] = set()

    def look(self, logs: Iterable[LockedLog]) -> None:
        """Free the waiters of every lock that is stuck."""
        held_now: set[tuple[Owner, str]] = set()
        for log in logs:
            locks: list[tuple[Owner, str]] = [(log, "lock"), (log, "flush_lock")]
            if log.commit is not None:
                log.commit.give_up()
                locks.append((log.commit, "commit_lock"))
            for owner, name in locks:
                if name in owner.in_custody or not getattr(owner, name).locked():
                    continue
                if (owner, name) in self._held:
                    take_into_custody(owner, name)
                else:
                    held_now.add((owner, name))
                break
        self._held = held_now
