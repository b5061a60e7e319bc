"""Let a request wait until its group answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.machines.exchange import Answer, Pending


class Waiter(Pending):
    """A request that a group answers, at once or later.

    Args:
        deadline: when `late` is sent, if the group has not answered before.
        encode: makes the answer from the result that the group gives.
        late: the result that is sent if the deadline comes, the client hangs up or the broker stops
            before the group gives its result.
    """

    def __init__(self, deadline: float, encode: Callable[[Any], Answer], late: Any) -> None:
        super().__init__(deadline)
        self._encode = encode
        self._late = late
        self._said: Any = None
        self._wake: Callable[[], None] | None = None

    def put(self, said: Any) -> None:
        """Take the result of the group; any thread calls this method, once."""
        self._said = said
        if self._wake is not None:
            self._wake()

    def watch(self, wake: Callable[[], None]) -> None:
        """Keep the function that wakes the connection; `look` is always called after `watch`."""
        self._wake = wake

    def look(self, *, is_last: bool) -> Answer | None:
        """Return the answer, if the group has given its result."""
        if self._said is not None:
            return self._encode(self._said)
        return self._encode(self._late) if is_last else None

    def close(self) -> None:
        """Forget the connection; a later result of the group is dropped."""
        self._wake = None
