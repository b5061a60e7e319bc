"""Define the errors of a coordination store. The attributes of an error have the details.

    CoordinationError
    ├── ZnodeError(path, operation)          the store refused a request, and changed nothing
    │   ├── NoNodeError
    │   ├── NodeExistsError
    │   ├── NotEmptyError
    │   ├── EphemeralParentError
    │   ├── BadVersionError(expected, found)
    │   ├── AccessDeniedError
    │   └── BadZnodeError(reason)            the content of a znode is not valid
    ├── SessionError(session_id)
    │   ├── SessionExpiredError              the ephemeral znodes of the session are gone
    │   ├── SessionClosedError
    │   ├── SessionFailedError               the ephemeral znodes stay until the session's time-out
    │   ├── NotConnectedError                nothing was sent, or only a read; retriable
    │   └── OutcomeUnknownError              a write may have happened, or may still happen
    ├── StoreClosedError
    ├── UnexpectedAnswerError(path, answer)  the server refused a request for another reason
    ├── LimitError(limit, allowed)           the request, or the store, would be too large
    ├── CopyError(path)                      the files of an embedded store
    │   ├── CopyFullError                    the disk is full; nothing was written; retriable
    │   ├── CopyDamagedError(position, reason)
    │   ├── CopyForeignError(store_id, other_path, other_store_id)
    │   ├── CopyForkedError(zxid, other_path, other_zxid)
    │   └── CopyVersionError(version)        a later version of this library wrote the file
    ├── CopiesOfflineError(failures)         no disk can be read or written any more
    ├── CopiesIncompleteError(found, missing)  copies that may be newer are missing
    └── ContinuityError                      the store is not the one the broker knows
        ├── StoreWipedError
        ├── OtherClusterError(expected, found)
        └── StoreRestoredError(remembered, found)

`operation` is the place of the refused operation in a `multi`. A wrong argument gives a ValueError
or a TypeError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class CoordinationError(Exception):
    """Any error of a coordination store."""


class ZnodeError(CoordinationError):
    """The store refused a request, and changed nothing."""

    what = "the request was refused"

    def __init__(self, path: str, operation: int | None = None, what: str = "") -> None:
        super().__init__(f"{path}: {what or self.what}")
        self.path, self.operation = path, operation


class NoNodeError(ZnodeError):
    """The znode, or the parent of a new znode, does not exist."""

    what = "the znode, or the parent of the new znode, does not exist"


class NodeExistsError(ZnodeError):
    """A new znode has the same path as an existing znode."""

    what = "the znode exists already"


class NotEmptyError(ZnodeError):
    """A znode that has children cannot be deleted."""

    what = "the znode has children, so it cannot be deleted"


class EphemeralParentError(ZnodeError):
    """The parent of a new znode is ephemeral, and an ephemeral znode has no children."""

    what = "its parent is ephemeral, and an ephemeral znode has no children"


class BadVersionError(ZnodeError):
    """The znode has another version than the request expects.

    Attributes:
        expected: the version in the request; None if it is not known.
        found: the version of the znode; None if the store did not report it.
    """

    def __init__(
        self,
        path: str,
        operation: int | None = None,
        expected: int | None = None,
        found: int | None = None,
    ) -> None:
        has = "another version" if found is None else f"version {found}"
        super().__init__(path, operation, f"the znode has {has}, the request expects {expected}")
        self.expected, self.found = expected, found


class AccessDeniedError(ZnodeError):
    """The access control list of a znode does not allow the request."""

    what = "the access control list of the znode does not allow the request to this user"


class BadZnodeError(ZnodeError):
    """The content of a znode is not valid."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, None, f"the znode has wrong content: {reason}")
        self.reason = reason


class SessionError(CoordinationError):
    """The session or its connection has failed."""

    what = "the session cannot be used"

    def __init__(self, session_id: int, what: str = "") -> None:
        super().__init__(f"session 0x{session_id:x}: {what or self.what}")
        self.session_id = session_id


class SessionExpiredError(SessionError):
    """The store ended the session: its ephemeral znodes are deleted, its watches are gone."""

    what = "it expired, so its ephemeral znodes are deleted; connect again"


class SessionClosedError(SessionError):
    """This process closed the session."""

    what = "it is closed"


class SessionFailedError(SessionError):
    """The client library failed, so this session cannot be used any more. Connect again.

    The store notices the failure only after the time-out of the session. Until the time-out, the
    ephemeral znodes of the session stay.
    """

    what = "the client library failed; its ephemeral znodes stay until its time-out; connect again"


class NotConnectedError(SessionError):
    """The store does not answer. No change was sent, so the call can be repeated."""

    what = "the store does not answer; nothing was changed"


class OutcomeUnknownError(SessionError):
    """The connection was lost before the answer to a write, or the answer cannot be read.

    The write may have happened. If it has not happened yet, it may still happen until the session
    ends. So the caller should read before the next write, and should make each write conditional on
    a version.
    """

    what = "no readable answer came: the write may have happened"


class StoreClosedError(CoordinationError):
    """This process closed the store."""

    def __init__(self) -> None:
        super().__init__("the coordination store is closed; open it again")


class UnexpectedAnswerError(CoordinationError):
    """The server refused a request for a reason that no other error class describes."""

    def __init__(self, path: str, answer: str) -> None:
        super().__init__(f"{path}: the server refused the request with {answer}")
        self.path, self.answer = path, answer


class LimitError(CoordinationError, ValueError):
    """A request would exceed a limit, or make the store exceed a limit. Nothing was changed.

    Attributes:
        limit: the name of the limit.
        allowed: the value of the limit.
    """

    def __init__(self, limit: str, allowed: int, found: int) -> None:
        super().__init__(f"{found} is more than {limit} allows: {allowed}")
        self.limit, self.allowed, self.found = limit, allowed, found


class CopyError(CoordinationError):
    """A file of an embedded store cannot be used."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path


class CopyFullError(CopyError):
    """The disk of a copy is full. Nothing was written to any copy."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "the disk is full, so nothing was written; free some space")


class CopyDamagedError(CopyError):
    """A copy has wrong bytes.

    The store does not use the file, and does not replace it. A user must move the file away.
    """

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(
            path,
            f"damaged at byte {position}: {reason}; if another log dir has an undamaged copy, "
            "move this file away: the next start writes it again",
        )
        self.position, self.reason = position, reason


class CopyForeignError(CopyError):
    """Two log dirs have copies of different stores."""

    def __init__(self, path: str, store_id: str, other_path: str, other_store_id: str) -> None:
        super().__init__(
            path,
            f"it belongs to store {store_id}, but {other_path} to store {other_store_id};"
            " move away the file that does not belong here",
        )
        self.store_id, self.other_path, self.other_store_id = store_id, other_path, other_store_id


class CopyForkedError(CopyError):
    """Two log dirs have copies of one store, but each copy has changes that the other copy lacks.

    Each copy was used while the other copy could not be read. A user must give up one of the two
    copies.

    Attributes:
        zxid, other_zxid: the number of the newest change of each copy.
    """

    def __init__(self, path: str, zxid: int, other_path: str, other_zxid: int) -> None:
        super().__init__(
            path,
            f"it ends at change {zxid}, and {other_path} ends at change {other_zxid}, but each "
            "has changes that the other lacks, because each was used without the other. Move away "
            "the file whose changes can be lost",
        )
        self.zxid, self.other_path, self.other_zxid = zxid, other_path, other_zxid


class CopyVersionError(CopyError):
    """A later version of this library wrote the file."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(path, f"it has version {version}, which this library cannot read")
        self.version = version


class CopiesOfflineError(CoordinationError):
    """No copy can be read or written any more. It is not known whether the last write happened.

    Attributes:
        failures: the error of each log dir.
    """

    def __init__(self, failures: Mapping[str, Exception], what: str = "") -> None:
        told = "; ".join(f"{path}: {error}" for path, error in failures.items())
        super().__init__(f"{what or 'no copy of the store can be used'}: {told}")
        self.failures = dict(failures)


class CopiesIncompleteError(CoordinationError):
    """The store was not opened, because copies are missing that may be newer than all others.

    Attributes:
        found: the log dirs whose copies were read.
        missing: the id of each missing copy, with the path that its log dir had when it became a
            member.
    """

    def __init__(self, found: Sequence[str], missing: Mapping[str, str]) -> None:
        super().__init__(
            f"the copies in {', '.join(sorted(found))} may be old: the copies in"
            f" {', '.join(sorted(missing.values()))} are missing, and may have changes that no"
            " other copy has. Make their disks readable, or restore their files. Only if the"
            " missing copies are lost for ever, open the store once with accept_incomplete=True"
        )
        self.found, self.missing = list(found), dict(missing)


class ContinuityError(CoordinationError):
    """The store is not the store that the broker remembers, or is in an older state."""


class StoreWipedError(ContinuityError):
    """The store is empty, although a cluster has used it."""

    def __init__(self, cluster_id: str | None) -> None:
        which = "a cluster" if cluster_id is None else f"cluster {cluster_id}"
        super().__init__(
            f"the coordination store has no cluster id, but {which} used it. Check its address and"
            " its path. If its data is lost, restore its newest backup"
        )
        self.cluster_id = cluster_id


class OtherClusterError(ContinuityError):
    """The store belongs to another cluster, or was wiped and used again.

    Attributes:
        expected, found: the id of each cluster, and the zxid at which the cluster began.
    """

    def __init__(self, expected: tuple[str, int], found: tuple[str, int]) -> None:
        said = [f"cluster {one[0]}, begun at transaction 0x{one[1]:x}" for one in (expected, found)]
        super().__init__(
            f"this broker belongs to {said[0]}, but the coordination store holds {said[1]}. Check"
            " the address and the path of the store. Never mix the log dirs of two clusters"
        )
        self.expected, self.found = expected, found


class StoreRestoredError(ContinuityError):
    """The store is in an older state than the broker remembers.

    Attributes:
        remembered, found: two zxids, either of the whole store, or of this broker's own last write.
    """

    def __init__(self, remembered: int, found: int) -> None:
        super().__init__(
            f"the coordination store has lost changes: its last transaction was 0x{remembered:x}, "
            f"and is now 0x{found:x}. An old copy was restored. Stop the brokers, and use the "
            "newest copy"
        )
        self.remembered, self.found = remembered, found
