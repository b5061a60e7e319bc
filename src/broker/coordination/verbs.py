"""Define the methods of a coordination store; the embedded store and ZooKeeper have them.

    store = ...
    session = store.connect()
    session.create("/controller", b"{}", ephemeral=True)
    session.multi([Check("/controller_epoch", 3), Set("/brokers/topics/t", b"{}", version=7)])
    session.watch("/controller", callback)

Each change of the store has a number, its zxid. Each zxid is larger than all earlier zxids. `czxid`
is the zxid of the change that created a znode, and `mzxid` is the zxid of the change that last
wrote the znode. `version` counts the writes since the creation. If a znode is created again, its
version begins at 0 again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from types import TracebackType
from typing import NamedTuple, Self

from broker.coordination.errors import LimitError
from broker.coordination.paths import ROOT, check_path

# The largest request. ZooKeeper accepts messages up to this size by default (`jute.maxbuffer`).
REQUEST_BYTES_MAX = (1 << 20) - 1
OPERATION_BYTES = 200  # one operation takes at most this, without its path and its data
VERSION_MAX = 2**31 - 1


class Znode(NamedTuple):
    """A znode in an answer.

    Attributes:
        ephemeral_owner: when the session with this id ends, the znode is deleted; 0 if the znode is
            persistent.
    """

    path: str
    data: bytes
    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int = 0


class Create(NamedTuple):
    """Create a znode.

    Attributes:
        ephemeral: whether the znode is deleted when the session ends.
        sequence: whether a number of ten digits is added to the path. Under one parent, each number
            is larger than all earlier numbers.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Set(NamedTuple):
    """Replace the data of a znode, if it has the given version; None means any version."""

    path: str
    data: bytes
    version: int | None = None


class Delete(NamedTuple):
    """Delete a znode without children, if it has the given version; None means any version."""

    path: str
    version: int | None = None


class Check(NamedTuple):
    """Change nothing. If the znode has another version, refuse the whole `multi`."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


class EventKind(StrEnum):
    """The kind of change that a watch saw."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class Event(NamedTuple):
    """The change that a watch saw first."""

    kind: EventKind
    path: str


class SessionState(StrEnum):
    """The state of a session. Listeners of the session receive it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the connection is lost; the session may have expired
    EXPIRED = "expired"
    FAILED = "failed"  # the session cannot be used any more; the store ends it after a time-out
    CLOSED = "closed"


class SessionKey(NamedTuple):
    """The id and the password of a session. Another process that has both can take the session."""

    session_id: int
    password: bytes


WatchCallback = Callable[[Event], object]
StateCallback = Callable[[SessionState], object]


class Session(ABC):
    """The methods of one session.

    Callbacks are called one at a time, in the order of the changes, on a thread of the session. A
    callback may call these methods. While a callback runs, the later callbacks of the session wait.
    """

    @property
    @abstractmethod
    def key(self) -> SessionKey:
        """The id and the password of this session."""

    @abstractmethod
    def get(self, path: str) -> Znode:
        """Read a znode.

        Raises:
            NoNodeError: the znode does not exist.
        """

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """List the names of the children of a znode, sorted.

        Raises:
            NoNodeError: the znode does not exist.
        """

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Znode:
        """Create a znode. The answer has its path, with the number that `sequence` adds.

        Raises:
            NodeExistsError: the znode exists already.
            NoNodeError: the parent of the znode does not exist.
            EphemeralParentError: the parent of the znode is ephemeral.
        """
        return _made(self.multi([Create(path, data, ephemeral, sequence)])[0])

    def set(self, path: str, data: bytes, *, version: int | None = None) -> Znode:
        """Replace the data of a znode, if it has the given version.

        Raises:
            NoNodeError: the znode does not exist.
            BadVersionError: the znode has another version.
        """
        return _made(self.multi([Set(path, data, version)])[0])

    def delete(self, path: str, *, version: int | None = None) -> None:
        """Delete a znode, if it has the given version.

        Raises:
            NoNodeError: the znode does not exist.
            BadVersionError: the znode has another version.
            NotEmptyError: the znode has children.
        """
        self.multi([Delete(path, version)])

    def multi(self, operations: Iterable[Operation]) -> list[Znode | None]:
        """Do all operations as one change of the store, or do none of them.

        Each operation sees the results of the operations before it.

        Returns:
            For each operation, the znode that it created or wrote; None for Delete and Check.

        Raises:
            ZnodeError: an operation was refused. `operation` is the place of the first refused
                operation in the list.
            LimitError: the request is too large.
            OutcomeUnknownError: there was no readable answer, so the change may have happened.
        """
        fixed = tuple(operations)  # an iterator gives its items only once
        check_operations(fixed)
        return self._commit(fixed) if fixed else []

    @abstractmethod
    def _commit(self, operations: Sequence[Operation]) -> list[Znode | None]:
        """Do operations whose arguments have already been checked."""

    @abstractmethod
    def watch(self, path: str, callback: WatchCallback) -> Znode | None:
        """Read a znode. Call back once when the znode is next created, changed or deleted.

        The next change is noticed, even if the connection is lost for a while. There is one
        exception: if a znode is created and deleted while the connection is lost, the session does
        not notice this. If the connection was lost, and the store then refuses to set the watch
        again, this counts as a change. The change is readable before the callback is called. After
        the end of the session, nothing is called.

        Returns:
            The znode at the time when the watch is set; None if there is no such znode.
        """

    @abstractmethod
    def watch_children(self, path: str, callback: WatchCallback) -> list[str]:
        """List the children of a znode. Call back once when the list changes.

        If the znode itself is deleted, this counts as a change, too.

        Raises:
            NoNodeError: the znode does not exist. Nothing is watched.
        """

    @abstractmethod
    def on_session(self, callback: StateCallback) -> None:
        """Call back at each change of the session's state.

        After EXPIRED, FAILED or CLOSED, the callback is not called again.

        If the session is not connected now, the first call reports this.
        """

    @abstractmethod
    def zxid(self) -> int:
        """Return the number of the newest change, at the time of this call or later."""

    @abstractmethod
    def close(self) -> None:
        """End the session, and delete its ephemeral znodes. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Store(ABC):
    """A coordination store. Sessions connect to it."""

    @abstractmethod
    def connect(self, key: SessionKey | None = None) -> Session:
        """Begin a session, or take over a session from another connection or process.

        After this call, the earlier holder must not use the session any more: it would take the
        session back. If one of the two holders closes the session, it ends for both.

        Raises:
            SessionExpiredError: the session with this key has ended, or the password is wrong.
            NotConnectedError: the store does not answer.
        """


def _made(znode: Znode | None) -> Znode:
    assert znode is not None
    return znode


def check_operations(operations: Sequence[Operation]) -> None:
    """Check paths, types and sizes. Raises ValueError, TypeError or LimitError."""
    size_bytes = 0
    for operation in operations:
        size_bytes += checked_bytes(operation)
    if size_bytes > REQUEST_BYTES_MAX:
        raise LimitError("REQUEST_BYTES_MAX", REQUEST_BYTES_MAX, size_bytes)


def checked_bytes(operation: Operation) -> int:
    """Check one operation, and return the bytes that it takes in a request."""
    if not isinstance(operation, Operation):
        raise TypeError(f"{operation!r} is not an operation: Create, Set, Delete or Check")
    check_path(operation.path)
    if isinstance(operation, Delete) and operation.path == ROOT:
        raise ValueError("the root cannot be deleted")
    data = b""
    if isinstance(operation, Create | Set):
        if not isinstance(operation.data, bytes):
            raise TypeError(f"{operation.path}: data is {type(operation.data).__name__}, not bytes")
        data = operation.data
    if not isinstance(operation, Create):
        check_version(operation.path, operation.version, isinstance(operation, Check))
    return OPERATION_BYTES + len(operation.path.encode()) + len(data)


def check_version(path: str, version: int | None, is_needed: bool = False) -> None:
    """Check the type and range of a version. Raises ValueError or TypeError."""
    if version is None and not is_needed:
        return
    if type(version) is not int:
        raise TypeError(f"{path}: version is {version!r}, not a whole number")
    if not 0 <= version <= VERSION_MAX:
        raise ValueError(f"{path}: version {version} is not from 0 to {VERSION_MAX}")
