"""Hear the callbacks of a session, and wait for them."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from broker.coordination.errors import NodeExistsError
from broker.coordination.verbs import Session

Item = TypeVar("Item")
Connect = Callable[..., Session]
SECONDS_MAX = 60.0
BARRIER = "/barrier"
numbers = itertools.count()


class Heard(Generic[Item]):
    """A callback that keeps what it was called with."""

    def __init__(self) -> None:
        self._items: queue.Queue[Item] = queue.Queue()

    def __call__(self, item: Item) -> None:
        self._items.put(item)

    def next(self) -> Item:
        """Wait for the next call."""
        return self._items.get(timeout=SECONDS_MAX)

    def until(self, item: Item) -> None:
        """Wait for a call with this."""
        while self.next() != item:
            pass

    def all(self) -> list[Item]:
        """Give the calls that were made."""
        found = []
        while not self._items.empty():
            found.append(self._items.get())
        return found

    def all_until_now(self, session: Session, other: Session) -> list[Item]:
        """Give all calls for changes that were made before, which a last change shows."""
        with suppress(NodeExistsError):
            other.create(BARRIER)
        path, last = f"{BARRIER}/{next(numbers)}", Heard[object]()
        session.watch(path, last)
        other.create(path)
        last.next()
        return self.all()
