"""Define the verbs of a coordination store: what an embedded store and ZooKeeper have in common.

    store = ...
    session = store.connect()
    session.create("/controller", b"{}", ephemeral=True)
    session.multi([Check("/controller_epoch", 3), Set("/brokers/topics/t", b"{}", version=7)])
    session.watch("/controller", callback)

Each change of the store has a number, its zxid. Numbers rise, and never go back. `czxid` is the
number of the change that created a znode, `mzxid` of the one that wrote it last. `version` counts
the writes since the creation; a znode that was created again begins at 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from types import TracebackType
from typing import NamedTuple, Self

from broker.coordination.errors import LimitError
from broker.coordination.paths import ROOT, check_path

# A request of at most this size fits into a message to ZooKeeper: its default of `jute.maxbuffer`.
REQUEST_BYTES_MAX = (1 << 20) - 1
OPERATION_BYTES = 200  # what one operation takes beside its path and data, at most
VERSION_MAX = 2**31 - 1


class Znode(NamedTuple):
    """A znode as an answer shows it.

    Attributes:
        ephemeral_owner: the id of the session whose end deletes the znode; 0 if it is persistent.
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
        ephemeral: the znode is deleted when the session ends.
        sequence: a number of ten digits is added to the path. The numbers of one parent rise.
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
    """Change nothing, but refuse the whole `multi` unless the znode has the given version."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


class EventKind(StrEnum):
    """What a watch saw."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class Event(NamedTuple):
    """The change that a watch saw first."""

    kind: EventKind
    path: str


class SessionState(StrEnum):
    """The state of a session, as listeners hear it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the connection is lost; the session may live on, or may be expired
    EXPIRED = "expired"
    FAILED = "failed"  # the client cannot use it any more; the store ends it after its time-out
    CLOSED = "closed"


class SessionKey(NamedTuple):
    """The id and the password of a session: with both, another process can take the session."""

    session_id: int
    password: bytes


WatchCallback = Callable[[Event], object]
StateCallback = Callable[[SessionState], object]


class Session(ABC):
    """The verbs. A session ends when it is closed, or when the store loses sight of its process.

    Callbacks are called one at a time, in the order of the changes, on a thread of the session. A
    callback may use the verbs. While it runs, the later callbacks of the session wait.
    """

    @property
    @abstractmethod
    def key(self) -> SessionKey:
        """The id and the password of this session."""

    @abstractmethod
    def get(self, path: str) -> Znode:
        """Read a znode.

        Raises:
            NoNodeError: it does not exist.
        """

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """List the names of the children of a znode, sorted.

        Raises:
            NoNodeError: it does not exist.
        """

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Znode:
        """Create a znode; the answer has its whole path, which `sequence` makes longer.

        Raises:
            NodeExistsError: it exists already.
            NoNodeError: its parent does not exist.
            EphemeralParentError: its parent is ephemeral.
        """
        return _made(self.multi([Create(path, data, ephemeral, sequence)])[0])

    def set(self, path: str, data: bytes, *, version: int | None = None) -> Znode:
        """Replace the data of a znode, if it has the given version.

        Raises:
            NoNodeError: it does not exist.
            BadVersionError: it has another version.
        """
        return _made(self.multi([Set(path, data, version)])[0])

    def delete(self, path: str, *, version: int | None = None) -> None:
        """Delete a znode, if it has the given version.

        Raises:
            NoNodeError: it does not exist.
            BadVersionError: it has another version.
            NotEmptyError: it has children.
        """
        self.multi([Delete(path, version)])

    def multi(self, operations: Iterable[Operation]) -> list[Znode | None]:
        """Do all operations as one change of the store, or none of them.

        Each operation sees what the ones before it did.

        Returns:
            for each operation the znode that it created or wrote; None for Delete and Check.

        Raises:
            ZnodeError: the first operation that was refused; `operation` is its place.
            LimitError: the request is too large.
            OutcomeUnknownError: no readable answer came; the change may have happened.
        """
        fixed = tuple(operations)  # an iterator gives its items only once
        check_operations(fixed)
        return self._commit(fixed) if fixed else []

    @abstractmethod
    def _commit(self, operations: Sequence[Operation]) -> list[Znode | None]:
        """Do operations whose arguments were checked."""

    @abstractmethod
    def watch(self, path: str, callback: WatchCallback) -> Znode | None:
        """Read a znode, and call back once at its next change: created, changed or deleted.

        No change after the answer is missed, also if the connection is lost meanwhile; but a znode
        that was created and deleted during the loss goes unseen. If the store refuses to set the
        watch again after a loss, this counts as a change. The change is readable before the
        callback is called. After the end of the session, nothing is called.

        Returns:
            the znode as it is before that change; None if it does not exist.
        """

    @abstractmethod
    def watch_children(self, path: str, callback: WatchCallback) -> list[str]:
        """List children, and call back once when one comes or goes, or their parent is deleted.

        Raises:
            NoNodeError: the znode does not exist; nothing is watched.
        """

    @abstractmethod
    def on_session(self, callback: StateCallback) -> None:
        """Call back at each change of the session's state.

        After EXPIRED, FAILED or CLOSED, nothing else comes.

        If the session is not connected now, this state is the first call.
        """

    @abstractmethod
    def zxid(self) -> int:
        """Return the number of the newest change, as of this call or later."""

    @abstractmethod
    def close(self) -> None:
        """End the session, and delete its ephemeral znodes; a second close does nothing."""

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
    """A coordination store, to which sessions connect."""

    @abstractmethod
    def connect(self, key: SessionKey | None = None) -> Session:
        """Begin a session, or take a living one from another connection or process.

        The earlier holder must not use the session any more: it would take it back. A close ends
        the session for both.

        Raises:
            SessionExpiredError: the session of this key has ended, or the password is wrong.
            NotConnectedError: the store does not answer.
        """


def _made(znode: Znode | None) -> Znode:
    assert znode is not None
    return znode


def check_operations(operations: Sequence[Operation]) -> None:
    """Check paths, types and sizes; raises ValueError, TypeError or LimitError."""
    size_bytes = 0
    for operation in operations:
        size_bytes += _checked_bytes(operation)
    if size_bytes > REQUEST_BYTES_MAX:
        raise LimitError("REQUEST_BYTES_MAX", REQUEST_BYTES_MAX, size_bytes)


def _checked_bytes(operation: Operation) -> int:
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
    """Check the type and range of a version; raises ValueError or TypeError."""
    if version is None and not is_needed:
        return
    if type(version) is not int:
        raise TypeError(f"{path}: version is {version!r}, not a whole number")
    if not 0 <= version <= VERSION_MAX:
        raise ValueError(f"{path}: version {version} is not from 0 to {VERSION_MAX}")
