"""Let a request wait until its group answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.machines.exchange import Answer, Pending


class Waiter(Pending):
    """A request that a group answers, at once or later.

    Args:
        deadline: the group answers well before; this is for the case that it does not.
        encode: makes the answer of what the group says.
        late: what is said to a client that hung up, or when the broker stops.
    """

    def __init__(self, deadline: float, encode: Callable[[Any], Answer], late: Any) -> None:
        super().__init__(deadline)
        self._encode = encode
        self._late = late
        self._said: Any = None
        self._wake: Callable[[], None] | None = None

    def put(self, said: Any) -> None:
        """Answer; called once, in any thread."""
        self._said = said
        if self._wake is not None:
            self._wake()

    def watch(self, wake: Callable[[], None]) -> None:
        """Keep what wakes the connection; a look follows in any case."""
        self._wake = wake

    def look(self, *, is_last: bool) -> Answer | None:
        """Give the answer, if the group gave it."""
        if self._said is not None:
            return self._encode(self._said)
        return self._encode(self._late) if is_last else None

    def close(self) -> None:
        """Forget the connection; what the group says from here on is lost."""
        self._wake = None
