"""Free the callers that wait for a log's locks when their holder hangs in the disk.

A thread that is stuck in the kernel cannot be stopped, and those who wait for its lock cannot be
woken, except by a release. So when the log dir has become SUSPECT, the watchdog *takes the lock
into custody*: it releases it in the holder's place. Everybody who then gets it finds the dir
suspect and raises, before changing anything. The holder, once it is back, takes the lock again
before it goes on (`reclaim`), and the dir does not serve before all have done so.

    holder      takes the lock ... pwrite hangs ................ comes back, reclaims, publishes
    watchdog                          SUSPECT, takes into custody
    the others                                 get the lock, raise LogDirSuspectError, release

Rules for whoever calls the disk under `_lock` or `_flush_lock`: ask `_check` after taking it and
before changing anything, and do the rest inside `held`. An append does by hand what `held` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, Self

from logstore.disk.calls import WORKING, call

if TYPE_CHECKING:
    from logstore.log.writer import LogWriter

NOT_WRITING = -1


class Owner(Protocol):
    """Whose locks may be taken into custody."""

    _in_custody: set[str]


class keeping:  # noqa: N801 - it is used as a statement
    """Hold locks over calls to the disk; the last item of the `with` that takes them."""

    __slots__ = ("names", "owner")

    def __init__(self, owner: Owner, *names: str) -> None:
        self.owner, self.names = owner, names

    def __enter__(self) -> None:
        """Leave out what is in custody already: that is for somebody else to take back."""
        if self.owner._in_custody:
            self.names = tuple(name for name in self.names if name not in self.owner._in_custody)

    def __exit__(self, *_: object) -> None:
        """Have the locks again before they are released."""
        if self.owner._in_custody:
            reclaim(self.owner, self.names)


class held(call):  # noqa: N801 - it is used as a statement
    """Work on a log's files under its locks: `keeping`, and a call that is under way."""

    __slots__ = ("_keeping",)

    def __init__(self, log: LogWriter, *names: str) -> None:
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
    """Take back the locks that were taken into custody; they are free but for who raises."""
    for name in names:
        if name in owner._in_custody:
            getattr(owner, name).acquire()
            owner._in_custody.discard(name)


def take_into_custody(owner: Owner, name: str) -> None:
    """Release a lock in the place of its holder, who hangs in the disk."""
    owner._in_custody.add(name)
    try:
        getattr(owner, name).release()
    except RuntimeError:  # the holder came back this very moment
        owner._in_custody.discard(name)


def is_free(log: LogWriter) -> bool:
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

    def look(self, logs: Iterable[LogWriter]) -> None:
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
