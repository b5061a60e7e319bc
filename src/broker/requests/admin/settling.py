"""Delay the answer to a change of topics until the broker's metadata shows the change.

In a cluster, a broker learns of a change only after the controller has decided about it. Without a
cluster, the metadata shows a change at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from broker.catalog.topics import Topic
from broker.machines.exchange import Answer, Pending
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode

TOO_LATE = "the change was made, but this broker's metadata did not show it in time"
MS = 1000


class Changed(NamedTuple):
    """The topics that a request has changed, and its answer.

    Attributes:
        topics: the topics after the change; the key is the name.
        is_shown: reports whether the metadata shows a topic.
        rows: the answer, with a row for each topic.
        message: makes the answer from the rows.
    """

    topics: Mapping[str, Topic]
    is_shown: Callable[[Topic], bool]
    rows: list[Any]
    message: Callable[[list[Any]], Any]

    def left(self) -> dict[str, Topic]:
        """Return the topics that the metadata does not show yet."""
        return {name: topic for name, topic in self.topics.items() if not self.is_shown(topic)}

    def answer(self, call: Call, late: Mapping[str, Topic]) -> Answer:
        """Make the answer. Topics that are not shown yet get REQUEST_TIMED_OUT (7)."""
        code = ErrorCode.REQUEST_TIMED_OUT
        rows = [
            row._replace(error_code=code, error_message=TOO_LATE)
            if row.name in late and row.error_code == ErrorCode.NONE
            else row
            for row in self.rows
        ]
        return call.answer(self.message(rows))


def answer_when_shown(call: Call, changed: Changed, timeout_ms: int) -> Answer | Pending:
    """Answer when the metadata shows all topics, but at the latest after `timeout_ms`."""
    left = changed.left()
    if not left:
        return changed.answer(call, {})
    return _Settling(call, changed._replace(topics=left), timeout_ms)


class _Settling(Pending):
    """A request that waits for the broker's metadata."""

    def __init__(self, call: Call, changed: Changed, timeout_ms: int) -> None:
        super().__init__(call.services.clock() + max(timeout_ms, 0) / MS)
        self._call, self._changed = call, changed
        self._leave: Callable[[], None] | None = None

    def watch(self, wake: Callable[[], None]) -> None:
        self._leave = self._call.services.topic_admin.watch(wake)

    def look(self, *, is_last: bool) -> Answer | None:
        left = self._changed.left()
        if left and not is_last:
            self._changed = self._changed._replace(topics=left)
            return None
        return self._changed.answer(self._call, left)

    def close(self) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()
