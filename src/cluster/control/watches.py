"""Watch znodes so that each change becomes one event for the controller."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.coordination.verbs import Session


class Changed(enum.Enum):
    """A watch of the store saw a change."""

    BROKERS = "a registration, or the controller"
    TOPICS = "the list of topics"
    LOG_DIRS = "a log dir failed or returned"
    SESSION = "this broker's session has ended, and its reign with it"


class TopicChanged(NamedTuple):
    """A watch of the store saw a change of a topic, or of its settings."""

    name: str


class Watches:
    """The watches of one controller. Each znode is watched only once at a time.

    Threads: any thread may call any method.
    """

    def __init__(self, session: Session, post: Callable[[Any], object]) -> None:
        self._session, self._post = session, post
        self._lock = threading.Lock()  # guards the names
        self._armed: set[str] = set()

    def arm(self, path: str, event: Any, *, children: bool = False) -> None:
        """Post an event once, after the next change of a znode or of its list of children.

        The caller must call this before it reads the znode. So a change after the read is not
        missed.
        """
        name = f"{path}/*" if children else path
        with self._lock:
            if name in self._armed:
                return
            self._armed.add(name)

        def fire(_: object) -> None:
            with self._lock:
                self._armed.discard(name)
            self._post(event)

        if children:
            self._session.watch_children(path, fire)
        else:
            self._session.watch(path, fire)

    def clear(self) -> None:
        """Forget all watches, so that the next calls set them again."""
        with self._lock:
            self._armed.clear()
