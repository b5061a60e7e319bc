"""Free the callers that wait for a log's locks when their holder hangs in the disk.

A thread that is stuck in the kernel cannot be stopped, and those who wait for its lock cannot be
woken, except by a release. So when the log dir has become SUSPECT, the watchdog *takes the lock
into custody*: it releases it in the holder's place. Everybody who then gets it finds the dir
suspect and raises, before changing anything. The holder, once it is back, takes the lock again
before it goes on (`reclaim`), and the dir does not serve before all have done so.

    holder      takes the lock ... pwrite hangs ................ comes back, reclaims, publishes
    watchdog                          SUSPECT, takes into custody
    the others                                 get the lock, raise LogDirSuspectError, release

A lock is only taken from a holder who is *keeping* it: who says so while he calls the disk, and
looks behind that whether it was taken. Each of the two writes first and reads then:

    holder      strikes out that he keeps it    looks whether it is in custody     (releases it)
    watchdog    says that it is in custody      looks whether it is still kept      releases it

So if the watchdog finds it kept, the holder is still to look, and takes it back; if not, it may be
another's by now, and stays as it is.

Rules for whoever calls the disk under `_lock` or `_flush_lock`: ask `_check` after taking it and
before changing anything, and do the rest inside `held`. An append does by hand what `held` does: an
object for each lock costs a durable one a microsecond: `_writing` says that it keeps `_lock`,
`_kept` that it keeps the lock of a commit or of a flush. `_kept` is not set by who finds something
in custody: the lock he got may be free because of that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, Self
from weakref import ref

from logstore.disk.calls import WORKING, call

NOT_WRITING = -1
RECLAIM_SECONDS = 0.05


class Owner(Protocol):
    """Whose locks may be taken into custody."""

    _in_custody: set[str]
    # Weak, as the calls under way: who was interrupted on his way in is in nobody's way.
    _keepers: set[ref[keeping]]
    _writing: int
    # The lock that a durable append keeps by hand, or "": at most one of an owner's locks is.
    _kept: str


class Commits(Owner, Protocol):
    """What combines the durable appends of a log."""

    def give_up(self) -> None:
        """Let the threads go that wait in a group."""


class LockedLog(Owner, Protocol):
    """A log, as far as its locks are concerned."""

    @property
    def directory(self) -> str:
        """Path of its directory."""

    @property
    def _commit(self) -> Commits | None:
        """What combines its durable appends, if there were any."""


class keeping:  # noqa: N801 - it is used as a statement
    """Hold locks over calls to the disk; the last item of the `with` that takes them."""

    __slots__ = ("__weakref__", "_entry", "names", "owner")

    def __init__(self, owner: Owner, *names: str) -> None:
        self.owner, self.names = owner, names

    def __enter__(self) -> None:
        """Leave out what is in custody already: that is for somebody else to take back."""
        if self.owner._in_custody:
            self.names = tuple(name for name in self.names if name not in self.owner._in_custody)
        self._entry = ref(self)
        self.owner._keepers.add(self._entry)

    def __exit__(self, *_: object) -> None:
        """Have the locks again before they are released."""
        self.owner._keepers.discard(self._entry)
        if self.owner._in_custody:
            reclaim(self.owner, self.names)


class held(call):  # noqa: N801 - it is used as a statement
    """Work on a log's files under its locks: `keeping`, and a call that is under way."""

    __slots__ = ("_keeping",)

    def __init__(self, log: LockedLog, *names: str) -> None:
        super().__init__(log.directory, WORKING)
        self._keeping = keeping(log, *names)

    def __enter__(self) -> Self:
        """Register the work."""
        self._keeping.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        """Strike the work out."""
        super().__exit__()
        self._keeping.__exit__()


def reclaim(owner: Owner, names: Iterable[str]) -> None:
    """Take back the locks that were taken into custody; they are free but for who raises.

    While the watchdog has not released one yet, it may still find that it need not.
    """
    for name in names:
        while name in owner._in_custody:
            if getattr(owner, name).acquire(timeout=RECLAIM_SECONDS):
                owner._in_custody.discard(name)


def is_kept(owner: Owner, name: str) -> bool:
    """Tell whether who holds a lock will look for it before he releases it."""
    keepers = [entry() for entry in tuple(owner._keepers)]
    is_appending = name == "_lock" and owner._writing != NOT_WRITING
    return (
        is_appending
        or name == owner._kept
        or any(one is not None and name in one.names for one in keepers)
    )


def take_into_custody(owner: Owner, name: str) -> None:
    """Release a lock in place of its holder, who hangs in the disk, unless he just came back."""
    owner._in_custody.add(name)
    if is_kept(owner, name):
        getattr(owner, name).release()
    else:
        owner._in_custody.discard(name)


def is_free(log: LockedLog) -> bool:
    """Tell whether no lock of a log is in custody: whoever hung is back."""
    return not log._in_custody and (log._commit is None or not log._commit._in_custody)


class Relief:
    """Free those who wait for the locks of a suspect log dir, look by look.

    A lock counts as stuck when it is held at two looks in a row: since the dir became suspect
    whoever gets it lets go at once. One lock of a log after the other, the innermost first: the
    holder of the next may only be waiting for that one.
    """

    def __init__(self) -> None:
        self._held: set[tuple[Owner, str]] = set()

    def look(self, logs: Iterable[LockedLog]) -> None:
        """Free the waiters of every lock that is stuck."""
        held_now: set[tuple[Owner, str]] = set()
        for log in logs:
            locks: list[tuple[Owner, str]] = [(log, "_lock"), (log, "_flush_lock")]
            if log._commit is not None:
                log._commit.give_up()
                locks.append((log._commit, "_commit_lock"))
            for owner, name in locks:
                if name in owner._in_custody or not getattr(owner, name).locked():
                    continue
                if (owner, name) in self._held:
                    take_into_custody(owner, name)
                else:
                    held_now.add((owner, name))
                break
        self._held = held_now
