"""If the holder of a log's lock hangs in a disk call, release the lock for other threads.

A thread that is stuck in the kernel cannot be stopped. If other threads wait for a lock of this
thread, they continue only if the lock is released. So if the log dir has become SUSPECT, the
watchdog *takes the lock into custody*: the watchdog releases the lock in place of its holder. A
thread that then acquires the lock sees that the dir is SUSPECT, and raises before it changes
anything. When the holder's call returns, the holder takes the lock again before it continues
(`reclaim`). The dir returns to service only after all holders have taken their locks back.

    holder      takes the lock ... pwrite hangs ................ comes back, reclaims, publishes
    watchdog                          SUSPECT, takes into custody
    the others                                 get the lock, raise LogDirSuspectError, release

The watchdog takes a lock only from a holder that is *keeping* the lock. Before the holder calls the
disk, it declares that it is keeping the lock. After the call, the holder checks whether the
watchdog has taken the lock. Both the holder and the watchdog first write their own flag, and then
read the flag of the other:

    holder      ends the declaration            looks whether it is in custody     (releases it)
    watchdog    says that it is in custody      looks whether it is still kept      releases it

So if the watchdog finds that the holder is still keeping the lock, the holder has not checked yet,
and will take the lock back. If the watchdog finds that the holder is not keeping the lock, another
thread may have the lock now. So the watchdog does not release the lock.

Rules for code that calls the disk under `lock` or `flush_lock`: after taking the lock, call `check`
before changing anything. Put all other work inside a `held` block. An append does not use `held`,
because an object for each lock would make a durable append a microsecond slower. An append sets
`writing` while it is keeping `lock`. An append sets `kept` while it is keeping the lock of a commit
or of a flush. While a lock is in custody, a thread must not set `kept` for the lock. The thread may
have got the lock only because the watchdog released it.
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
    """The state of a log whose locks the watchdog can release if the holder hangs."""

    in_custody: set[str]
    # The references to threads are weak, so that an interrupted thread does not block other
    # threads.
    keepers: set[ref[keeping]]
    writing: int
    # The name of the lock that a durable append is keeping; "" if there is none.
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
        """Append one record durably and return its offset."""

    def give_up(self) -> None:
        """Release the threads that wait in a group of durable appends."""


class LockedLog(Owner, Protocol):
    """The part of a log that the watchdog uses to free waiting threads."""

    @property
    def directory(self) -> str:
        """Path of the log's directory."""

    @property
    def commit(self) -> Commits | None:
        """The object that combines durable appends, or None if there was no durable append."""


class keeping:  # noqa: N801 - it is used as a statement
    """Declare that a thread keeps locks during disk calls; in a `with`, name this object last."""

    __slots__ = ("__weakref__", "_entry", "names", "owner")

    def __init__(self, owner: Owner, *names: str) -> None:
        self.owner, self.names = owner, names

    def __enter__(self) -> None:
        """Skip locks that are in custody: each thread that lost such a lock has to take it back."""
        if self.owner.in_custody:
            self.names = tuple(name for name in self.names if name not in self.owner.in_custody)
        self._entry = ref(self)
        self.owner.keepers.add(self._entry)

    def __exit__(self, *_: object) -> None:
        """Take the locks back from custody before the `with` block releases them."""
        self.owner.keepers.discard(self._entry)
        if self.owner.in_custody:
            reclaim(self.owner, self.names)


class held(call):  # noqa: N801 - it is used as a statement
    """Declare work on a log's files under its locks: the thread keeps locks and calls the disk."""

    __slots__ = ("_keeping",)

    def __init__(self, log: LockedLog, *names: str) -> None:
        super().__init__(log.directory, WORKING)
        self._keeping = keeping(log, *names)

    def __enter__(self) -> Self:
        """Register the work as a running call."""
        self._keeping.__enter__()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        """End the declaration, and the registration of the disk call."""
        super().__exit__()
        self._keeping.__exit__()


def reclaim(owner: Owner, names: Iterable[str]) -> None:
    """Take back the locks that are in custody.

    If another thread has got a lock in custody meanwhile, that thread raises an error and releases
    the lock. The watchdog may leave a lock that it has not yet released to the holder of the lock.
    """
    for name in names:
        while name in owner.in_custody:
            if getattr(owner, name).acquire(timeout=RECLAIM_SECONDS):
                owner.in_custody.discard(name)


def is_kept(owner: Owner, name: str) -> bool:
    """Check whether a lock's holder has declared that it keeps the lock during a disk call.

    After the call, such a holder checks whether the lock was taken into custody.
    """
    keepers = [entry() for entry in tuple(owner.keepers)]
    is_appending = name == "lock" and owner.writing != NOT_WRITING
    return (
        is_appending
        or name == owner.kept
        or any(one is not None and name in one.names for one in keepers)
    )


def take_into_custody(owner: Owner, name: str) -> None:
    """Release a lock whose holder hangs in a disk call, unless the holder has just returned."""
    owner.in_custody.add(name)
    if is_kept(owner, name):
        getattr(owner, name).release()
    else:
        owner.in_custody.discard(name)


def is_free(log: LockedLog) -> bool:
    """Check whether each hung holder has returned, so that no lock of a log is in custody."""
    return not log.in_custody and (log.commit is None or not log.commit.in_custody)


class Relief:
    """Frees threads that wait for locks in a SUSPECT log dir; call `look` repeatedly.

    A lock counts as stuck if two calls of `look` in a row find it locked. Any other thread that
    gets a lock in a SUSPECT dir releases the lock immediately. The locks of a log are freed one
    after the other, the innermost lock first. The holder of an outer lock may only be waiting for
    the inner lock. A holder that only waits continues when it gets the inner lock.
    """

    def __init__(self) -> None:
        self._held: set[tuple[Owner, str]] = set()

    def look(self, logs: Iterable[LockedLog]) -> None:
        """Free the threads that wait for stuck locks."""
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
