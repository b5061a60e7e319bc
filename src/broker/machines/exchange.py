"""Define what passes between the sockets and the handlers of requests.

    handler(frame, client) -> Answer | Pending

An answer is a list of pieces. A handler that cannot answer yet returns a `Pending`, which holds no
thread.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Protocol

from broker.config import Endpoint
from broker.machines.wakeup import Wakeup
from broker.wire.byte_cursor import Data
from broker.wire.fetch import FileRange

# The file of a range has `fileno()`, `close()`, and `failed()`, called if it cannot be read.
Piece = Data | FileRange
Answer = list[Piece]  # to be sent one after another; empty: the client expects no answer


class CloseConnectionError(Exception):
    """Say that a request cannot be answered, so that its connection must be closed."""


class Client:
    """What is known of the client of one connection; only its own requests change this.

    Attributes:
        endpoint: the address of the listener as this client has to know it.
        address: the client's own address.
        software: name and version, as the client gave them; "" if it did not.
    """

    __slots__ = ("address", "endpoint", "software")

    def __init__(self, endpoint: Endpoint, address: str) -> None:
        self.endpoint = endpoint
        self.address = address
        self.software = ""


class Pending(abc.ABC):
    """A request that waits for its answer and holds no thread.

    Its connection calls `watch` once, then `look`, and again after each wake-up, until `look` gives
    an answer. In any case it calls `close` at the end.

    Attributes:
        deadline: when it must be answered, by the clock `time.monotonic`.
        wakeup: whether a thread looks at it now.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.wakeup = Wakeup()

    @abc.abstractmethod
    def watch(self, wake: Callable[[], None]) -> None:
        """Arrange that `wake` is called, in any thread, when an answer may be ready."""

    @abc.abstractmethod
    def look(self, *, is_last: bool) -> Answer | None:
        """Give the answer; None: it is too early, which `is_last` does not allow."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop watching; closing twice is allowed."""


class Scheduler(Protocol):
    """Calls tasks, in threads of its own; a task must not raise."""

    def submit(self, task: Callable[[], None]) -> None:
        """Call a task soon."""

    def call_at(self, deadline: float, task: Callable[[], None]) -> object:
        """Call a task at a time of `time.monotonic`; returns what cancels it."""

    def cancel(self, timer: Any) -> None:
        """Forget a task that was not called yet; None is allowed."""


Handler = Callable[[memoryview, Client], Answer | Pending]
