"""Let a request wait until its group answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.machines.exchange import Answer, Pending


class Waiter(Pending):
    """A request that a group answers, now or later.

    Args:
        deadline: if the group has not answered at this time, `late` is sent.
        encode: makes the answer from the result that the group gives.
        late: this result is sent in three cases: the deadline passes, the client closes its
            connection, or the broker stops before the group gives its result.
    """

    def __init__(self, deadline: float, encode: Callable[[Any], Answer], late: Any) -> None:
        super().__init__(deadline)
        self._encode = encode
        self._late = late
        self._said: Any = None
        self._wake: Callable[[], None] | None = None

    def put(self, said: Any) -> None:
        """Take the result of the group. Any thread may call this method, once."""
        self._said = said
        if self._wake is not None:
            self._wake()

    def watch(self, wake: Callable[[], None]) -> None:
        """Store the function that wakes the connection. `look` is always called after this."""
        self._wake = wake

    def look(self, *, is_last: bool) -> Answer | None:
        """If the group has given its result, return the answer."""
        if self._said is not None:
            return self._encode(self._said)
        return self._encode(self._late) if is_last else None

    def close(self) -> None:
        """Forget the connection. If the group gives a result later, drop it."""
        self._wake = None


class Asked:
    """One of several results that one request waits for."""

    __slots__ = ("_wake", "said")

    def __init__(self) -> None:
        self.said: Any = None
        self._wake: Callable[[], None] | None = None

    def put(self, said: Any) -> None:
        """Take the result. Any thread may call this method, once."""
        self.said = said
        if self._wake is not None:
            self._wake()

    def watch(self, wake: Callable[[], None] | None) -> None:
        """Call `wake` when the result arrives; if `wake` is None, call nothing."""
        self._wake = wake


class Gathering(Pending):
    """A request that waits for the results of several groups.

    Args:
        deadline: at this time, `late` replaces the missing results.
        asked: for each key, the result, or an `Asked` if the result may come later.
        encode: makes the answer from all results.
    """

    def __init__(
        self,
        deadline: float,
        asked: Mapping[Any, Any],
        encode: Callable[[Mapping[Any, Any]], Answer],
        late: Any,
    ) -> None:
        super().__init__(deadline)
        self._asked, self._encode, self._late = asked, encode, late

    def _waits(self) -> list[Asked]:
        return [one for one in self._asked.values() if isinstance(one, Asked)]

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when one of the results arrives."""
        for one in self._waits():
            one.watch(wake)

    def look(self, *, is_last: bool) -> Answer | None:
        """If all results are present, or if `is_last` is set, return the answer."""
        if not is_last and any(one.said is None for one in self._waits()):
            return None
        return self._encode({key: self._result(one) for key, one in self._asked.items()})

    def _result(self, one: Any) -> Any:
        if not isinstance(one, Asked):
            return one
        return self._late if one.said is None else one.said

    def close(self) -> None:
        """Stop waking the request."""
        for one in self._waits():
            one.watch(None)
