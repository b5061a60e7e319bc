"""Encode ZooKeeper's request `multi`, decode the answer, and translate ZooKeeper's errors.

kazoo's own transaction returns only the paths of created znodes. The request of this module asks
for the whole state of created znodes (`create2`), and reports which operation of a `multi` was
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol import serialization as wire
from kazoo.protocol.connection import ConnectionDropped
from kazoo.protocol.states import ZnodeStat

from broker.coordination.errors import (
    AccessDeniedError,
    BadVersionError,
    CoordinationError,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    UnexpectedAnswerError,
)
from broker.coordination.verbs import Create, Delete, Operation, Set

LOST = (
    KazooTimeoutError,
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.OperationTimeoutError,
)
# After an error of this set, it is unknown whether a write happened. The connection was lost, or
# the server had an internal error, perhaps after the write.
IN_DOUBT = (
    *LOST,
    exceptions.SystemZookeeperError,
    exceptions.RuntimeInconsistency,
    exceptions.DataInconsistency,
    exceptions.MarshallingError,
    exceptions.RequestTimeoutError,
)

ANY_VERSION = -1
EPHEMERAL, SEQUENCE = 1, 2
# the codes of an operation that failed only because another operation was refused
ROLLED_BACK, INCONSISTENT = 0, -2
ERROR = -1

REFUSALS: dict[type[Exception], type[CoordinationError]] = {
    exceptions.NoNodeError: NoNodeError,
    exceptions.NodeExistsError: NodeExistsError,
    exceptions.NotEmptyError: NotEmptyError,
    exceptions.NoChildrenForEphemeralsError: EphemeralParentError,
    exceptions.NoAuthError: AccessDeniedError,
    exceptions.AuthFailedError: AccessDeniedError,
}


class Refused(NamedTuple):
    """The refused operation: its place in the `multi`, and the code of the error."""

    place: int
    code: int


class Done(NamedTuple):
    """The result of an operation of a `multi`: the path of a created znode, and its new state."""

    path: str | None
    stat: Any


class Multi:
    """The request `multi`, with the methods that kazoo's connection calls to send a request."""

    type = wire.Transaction.type

    def __init__(self, operations: Sequence[Any]) -> None:
        self.operations = operations

    def serialize(self) -> bytearray:
        """Encode the request."""
        data = bytearray()
        for one in self.operations:
            data += wire.MultiHeader(one.type, False, ERROR).serialize() + one.serialize()
        data += wire.multiheader_struct.pack(ERROR, True, ERROR)
        return data

    @staticmethod
    def deserialize(data: bytes, position: int) -> list[Done | Refused]:
        """Decode the answer: the result of each operation, or the refused operation."""
        found: list[Done | Refused] = []
        while True:
            header, position = wire.MultiHeader.deserialize(data, position)
            if header.done:
                break
            path = stat = None
            if header.type == ERROR:
                (code,) = wire.int_struct.unpack_from(data, position)
                position += wire.int_struct.size
                if code not in (ROLLED_BACK, INCONSISTENT):
                    return [Refused(len(found), code)]
            elif header.type == wire.Create2.type:
                path, position = wire.read_string(data, position)
            if header.type in (wire.Create2.type, wire.SetData.type):
                stat = ZnodeStat._make(wire.stat_struct.unpack_from(data, position))
                position += wire.stat_struct.size
            found.append(Done(path, stat))
        return found


class EndSession:
    """The request that ends a session, for a sender that waits for the answer (kazoo does not)."""

    type = wire.Close.type

    @staticmethod
    def serialize() -> bytes:
        """Encode the request."""
        return b""

    @staticmethod
    def deserialize(data: bytes, position: int) -> bool:
        """Decode the answer."""
        return True


def encoded(operation: Operation, path: str, acl: Sequence[Any]) -> Any:
    """Make kazoo's request for one operation. The path is the whole path on the server."""
    if isinstance(operation, Create):
        flags = EPHEMERAL * operation.ephemeral + SEQUENCE * operation.sequence
        return wire.Create2(path, operation.data, acl, flags)
    version = ANY_VERSION if operation.version is None else operation.version
    if isinstance(operation, Set):
        return wire.SetData(path, operation.data, version)
    if isinstance(operation, Delete):
        return wire.Delete(path, version)
    return wire.CheckVersion(path, version)


def refusal(
    error: Exception, path: str, place: int | None, operation: Operation | None
) -> CoordinationError:
    """Translate an error of the server into one of the store's errors."""
    if isinstance(error, exceptions.BadVersionError):
        return BadVersionError(path, place, getattr(operation, "version", None))
    kind = REFUSALS.get(type(error))
    if kind is None:
        return UnexpectedAnswerError(path, f"{type(error).__name__} {error}".strip())
    return kind(path, place)


def error_of(code: int) -> Exception:
    """Return kazoo's error for a code. If kazoo does not know the code, return a general error."""
    kind: type[Exception] | None = exceptions.EXCEPTIONS.get(code)
    return kind() if kind is not None else exceptions.ZookeeperError(f"code {code}")


class OneSessionHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """Refuse new connections after the end of a session, so that kazoo begins no new session.

    Attributes:
        is_over: whether the session has ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_over = False

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """Connect to a server."""
        if self.is_over:
            raise ConnectionDropped("the session has ended")
        return super().create_connection(*arguments, **options)


class Client(KazooClient):  # type: ignore[misc] # kazoo has no types
    """kazoo's client, which can also send requests of this module."""

    def send_async(self, request: Multi | EndSession) -> Any:
        """Send a request; return an object whose `get` waits for the result of `deserialize`."""
        result = self.handler.async_result()
        self._call(request, result)
        return result
