"""Share the key of made-up credentials among all brokers of a cluster, in a shared document.

a real credential of a new shape -> shared document -> each broker -> `LoginDecoys.decoys`
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from broker.coordination.errors import CoordinationError
from broker.coordination.shared_documents import Changes, Documents, SharedDocuments
from broker.security.decoys import (
    BadDecoysError,
    Decoys,
    LaterDecoysError,
    Shape,
    parse_decoys,
)
from logstore import LogStoreError

LOG = logging.getLogger("broker")
KIND, NAME = "decoys", "scram"


class LoginDecoys:
    """The decoys of a broker or of a cluster: made-up credentials for users that have none.

    Threads: any thread may call any method. `decoys` is replaced as a whole. `_lock` guards
    `_news`.

    Attributes:
        decoys: makes up credentials. Until this broker knows the shared key, `decoys` uses a key of
            this broker.
    """

    def __init__(self, documents: SharedDocuments) -> None:
        self.decoys = Decoys()
        self._documents = documents
        self._lock = threading.Lock()
        self._news: set[Shape] = set()  # the shapes of credentials that a thread is writing
        self._is_started = False
        self._end: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Read the shared key, or make it, and follow the changes of the document."""
        self._end = self._documents.follow(KIND, self._heard)
        self._is_started = True
        self._write(())

    def close(self) -> None:
        """Follow the changes no longer, and write nothing more."""
        self._is_started = False
        self._end()

    def learn(self, shape: Shape) -> None:
        """Share the shape of a real credential, if the shape is new. The caller does not wait.

        A login that waited would take longer, and so would show that its user exists.
        """
        if self.decoys.knows(shape) or not self._is_started:
            return
        with self._lock:
            if shape in self._news:
                return
            self._news.add(shape)
        self._write_soon((shape,))

    def _heard(self, documents: Documents) -> None:
        data = documents.get(NAME)
        if data is not None:
            try:
                self.decoys = parse_decoys(data)
                return
            except LaterDecoysError as error:
                LOG.warning("the key of made-up credentials cannot be used: %s", error)
                return
            except BadDecoysError as error:
                LOG.warning("the key of made-up credentials is replaced: %s", error)
        if self._is_started and self._documents.is_known(KIND):
            self._write_soon(())

    def _write_soon(self, shapes: Iterable[Shape]) -> None:
        threading.Thread(
            target=self._write, args=(shapes,), name="login-decoys", daemon=True
        ).start()

    def _write(self, shapes: Iterable[Shape]) -> None:
        """Write the document, if it lacks the key or one of the shapes."""

        def decide(now: Documents) -> Changes:
            try:
                known = parse_decoys(now[NAME])
            except LaterDecoysError:
                return {}  # brokers of a later version use this document
            except (KeyError, BadDecoysError):
                known = self.decoys
            data = known.with_shapes(shapes).encode()
            return {} if now.get(NAME) == data else {NAME: data}

        try:
            self._documents.change(KIND, decide)
        except (CoordinationError, LogStoreError) as error:
            LOG.warning("the key of made-up credentials cannot be shared now: %s", error)
        finally:
            with self._lock:
                self._news.difference_update(shapes)
