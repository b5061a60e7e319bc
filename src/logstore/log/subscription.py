"""Call a function when a log changes (`Log.subscribe`).

A log refers to its subscriptions weakly, and a subscription does not refer to its log. So a log
does not keep a subscription alive, and a subscription does not keep a store open.

Threads: any thread may subscribe, close and call `tell`. Entries are added, removed and listed by
single calls in C, so no lock is needed, even if a weak reference ends at any moment. No event is
lost. A thread that changes the log first makes the change, and then calls the subscribers. A
subscriber first subscribes, and then reads the log.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Self
from weakref import ref

if TYPE_CHECKING:
    from types import TracebackType


class LogEvent(enum.Enum):
    """A change of a log. Ignore members that you do not know: later versions will add members."""

    APPENDED = "records were appended"
    TRUNCATED = "records at its end were dropped, or a repair rewrote segments"
    START_MOVED = "its log start offset rose"
    HIGH_WATERMARK_ROSE = "its high watermark rose"
    CLOSED = "it was closed or deleted, or its log dir went offline"


Callback = Callable[[LogEvent], object]
Subscriptions = dict[int, "ref[Subscription]"]  # all subscriptions of one log, the oldest first

_numbers = count()


class Subscription:
    """Receives the events of one log, until `CLOSED`, or until this object is closed or dropped.

    Keep a reference to the subscription: it ends when no object refers to it any more. A
    subscription keeps neither its log nor the store open. Use a subscription in a `with` block, or
    close it.
    """

    __slots__ = ("__weakref__", "_callback", "_forget", "_name")

    def __init__(self, subscriptions: Subscriptions, name: str, callback: Callback) -> None:
        """Use `Log.subscribe`."""
        number = next(_numbers)
        forget = partial(subscriptions.pop, number, None)
        self._name = name
        self._callback: Callback | None = callback
        self._forget: Callable[[], object] = forget
        subscriptions[number] = ref(self, lambda _: forget())

    def __repr__(self) -> str:
        return f"<Subscription to {self._name}{', closed' if self.is_closed else ''}>"

    @property
    def is_closed(self) -> bool:
        """Whether the subscription has ended, by `close` or because its log ended."""
        return self._callback is None

    def close(self) -> None:
        """End the subscription; closing twice is allowed. A running callback ends normally."""
        self._callback = None
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, event: LogEvent) -> None:
        """Call the callback with an event, and log its errors. `CLOSED` is the last event."""
        callback = self._callback
        if callback is None:
            return
        if event is LogEvent.CLOSED:
            self._callback = None
        try:
            callback(event)
        except Exception:  # a callback must not break an append, or the calls of other callbacks
            import logging

            text = "a subscriber of %s raised at %s"
            logging.getLogger("logstore").warning(text, self._name, event.name, exc_info=True)


def tell(subscriptions: Subscriptions, event: LogEvent) -> None:
    """Call all subscribers of a log; the caller must not hold a lock of the log."""
    _call_each(iter(list(subscriptions.values())), event)


def end_all(subscriptions: Subscriptions) -> None:
    """Send `CLOSED`, the last event, to all subscribers of a log."""
    numbers = list(subscriptions)
    entries = [subscriptions.pop(number, None) for number in numbers]
    _call_each(iter([entry for entry in entries if entry is not None]), LogEvent.CLOSED)


def _call_each(entries: Iterator[ref[Subscription]], event: LogEvent) -> None:
    """Call all subscribers; an interrupt during a call is raised after the last call."""
    try:
        for entry in entries:
            subscription = entry()
            if subscription is not None:
                subscription.call(event)
    except BaseException:
        _call_each(entries, event)
        raise
