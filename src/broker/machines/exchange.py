"""Define the types that the server of the sockets and the request handlers exchange.

    handler(frame, client) -> Answer | Pending

An answer is a list of pieces. If a handler cannot answer yet, it returns a `Pending`, which uses no
thread.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Protocol

from broker.listener_config import Endpoint
from broker.machines.refused_batches import RefusedBatches
from broker.machines.wakeup import Wakeup
from broker.security.authentication import Authentication
from broker.wire.byte_cursor import Data
from broker.wire.fetch import FileRange

# The file of a range has the methods `fileno()`, `close()` and `failed()`.
# If a read fails, `failed()` is called.
Piece = Data | FileRange
# The pieces are sent one after another. An empty list means that the client expects no answer.
Answer = list[Piece]
ANONYMOUS = "User:ANONYMOUS"  # the client of a listener without authentication


class CloseConnectionError(Exception):
    """Report that a request cannot be answered, so its connection must be closed."""


class Client:
    """The client of one connection. Only requests of this client change the attributes.

    Attributes:
        endpoint: the address at which this client reaches the broker.
        address: the client's own address.
        software: the name and version of the client's software; "" if the client gave no name.
        begun_at: the time when a thread began to execute the request, or continued after a wait.
        muted_until: until this time of `time.monotonic`, no further request of the client is read;
            0.0 if the client exceeds no quota.
        principal: the user of the client, as Kafka writes it, such as "User:alice".
        login: the state of the client's login; None if its listener has no SASL.
        ended: the reason why the connection will be closed after the next answer; "" if it stays
            open.
        refused: the batches that the client must send again.
    """

    __slots__ = (
        "address", "begun_at", "ended", "endpoint", "login", "muted_until", "principal", "refused",
        "software",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, address: str) -> None:
        self.endpoint = endpoint
        self.address = address
        self.software = ""
        self.begun_at = self.muted_until = 0.0
        self.principal = ANONYMOUS
        self.login: Authentication | None = None
        self.ended = ""
        self.refused = RefusedBatches()


class Pending(abc.ABC):
    """A request that waits for its answer, and uses no thread.

    The request's connection first calls `watch` once. After this call, the connection calls `look`,
    and calls `look` again after each wake-up, until `look` returns an answer. At the end, the
    connection always calls `close`.

    Attributes:
        deadline: when the request must be answered, by the clock `time.monotonic`.
        wakeup: decides which thread calls `look`.
        ends_with_client: whether the request is answered at once if the client stops sending.
    """

    ends_with_client = True

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.wakeup = Wakeup()

    @abc.abstractmethod
    def watch(self, wake: Callable[[], None]) -> None:
        """Arrange that some thread calls `wake` when an answer may be ready."""

    @abc.abstractmethod
    def look(self, *, is_last: bool) -> Answer | None:
        """Return the answer, or None to wait longer; if `is_last` is True, None is not allowed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop calling `wake`. A second call does nothing."""


class Scheduler(Protocol):
    """Call tasks in the scheduler's threads. A task must not raise an error."""

    def submit(self, task: Callable[[], None]) -> None:
        """Call a task soon."""

    def call_at(self, deadline: float, task: Callable[[], None]) -> object:
        """Call a task at a time of `time.monotonic`; return a timer for `cancel`."""

    def each_second(self, on_tick: Callable[[float], object]) -> None:
        """Call a function with the time, about once a second. The function must not wait."""

    def cancel(self, timer: Any) -> None:
        """Forget the task of a timer, if it was not called yet. `timer` may be None."""


Handler = Callable[[memoryview, Client], Answer | Pending]
