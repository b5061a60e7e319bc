"""Open the embedded coordination store in the log dirs that work, and change its znodes."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import CopiesOfflineError, CopyFullError, NoNodeError
from broker.coordination.found_copies import Past
from broker.coordination.tree import EmbeddedSettings
from broker.coordination.verbs import Create, Delete, Operation, Session, Set
from logstore import LogStore

LOG = logging.getLogger("broker")
SETTINGS = EmbeddedSettings(disk_seconds_max=2.0)

Result = TypeVar("Result")
Znodes = Mapping[str, bytes | None]  # the wanted data by path; None if the znode must not exist


class HostedZnodes:
    """The znodes of one store. The caller must call `connect` before it reads or writes.

    Threads: one thread at a time calls `connect`, `disconnect` and `write`.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._embedded: EmbeddedStore | None = None
        self._session: Session | None = None
        self._used: frozenset[str] = frozenset()  # the log dirs that the latest open used
        self._past: Past | None = None  # the value at the latest disconnect

    # --- the files --------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether the coordination store is open."""
        return self._session is not None

    @property
    def is_complete(self) -> bool:
        """Whether each log dir that works has a journal, and this journal is in use."""
        failed = {} if self._embedded is None else self._embedded.failures
        return self._serving() == self._used - failed.keys()

    def _serving(self) -> frozenset[str]:
        replicas = self._store.host.replicas
        return frozenset(
            one.path
            for one in self._store.host.log_dirs
            if not one.is_refusing and one not in replicas.returning
        )

    def connect(self) -> None:
        """Open the coordination store in the log dirs that work. Raises CoordinationError.

        A log dir that was away gets the changes that it lacks, even if no other log dir has them.
        """
        paths = self._serving()
        if not paths:
            raise CopiesOfflineError({}, "no log dir serves")
        self._embedded = self._with_room(
            lambda: EmbeddedStore(
                sorted(paths), SETTINGS, _tell_failure, accept_incomplete=True, past=self._past
            )
        )
        self._session, self._used = self._embedded.connect(), paths

    def disconnect(self) -> None:
        """Close the files. A second call does nothing."""
        embedded, self._embedded, self._session = self._embedded, None, None
        self._used = frozenset()
        if embedded is not None:
            self._past = embedded.past()
            embedded.close()

    def leave_out(self, log_dir: str, reason: str) -> None:
        """Close the journal of a log dir that went offline, so that its disk can be unmounted."""
        embedded = self._embedded
        if embedded is not None:
            embedded.leave_out(log_dir, OSError(errno.ESHUTDOWN, reason, log_dir))

    def _with_room(self, work: Callable[[], Result], *given: str) -> Result:
        """Do some work. If a disk is full, free the space of its ballast and try again.

        Args:
            given: the log dirs whose ballast has already been freed.
        """
        try:
            return work()
        except CopyFullError as error:
            path, full = os.path.dirname(error.path), error
        if path in given:
            raise full

        def again() -> Result:
            try:
                return self._with_room(work, path, *given)
            except CopyFullError as error:
                raise OSError(errno.ENOSPC, str(error)) from error

        try:
            return self._store.host.dir_named(path).ballast.use(again)
        except OSError:
            raise full from None

    # --- znodes -----------------------------------------------------------------------------------

    def names(self, parent: str) -> list[str]:
        """List the names of the children of a znode."""
        assert self._session is not None
        return self._session.children(parent)

    def data(self, path: str) -> bytes | None:
        """Read a znode; None if it does not exist."""
        assert self._session is not None
        try:
            return self._session.get(path).data
        except NoNodeError:
            return None

    def write(self, wanted: Znodes, *, is_new: bool = False) -> None:
        """Write the wanted data in one change. Skip each znode that already has its data."""
        session = self._session
        assert session is not None
        found = {path: self.data(path) for path in wanted}
        operations: list[Operation] = []
        for path, data in wanted.items():
            if data is None and found[path] is not None:
                operations.append(Delete(path))
            elif data is not None and found[path] is None:
                operations.append(Create(path, data))
            elif data is not None and data != found[path] and not is_new:
                operations.append(Set(path, data))
        if operations:
            self._with_room(lambda: session.multi(operations))

    def in_session(self, work: Callable[[Session], Result]) -> Result:
        """Do some work in the present session. If a disk is full, free its ballast."""
        session = self._session
        assert session is not None
        return self._with_room(lambda: work(session))


def _tell_failure(path: str, error: OSError) -> None:
    LOG.warning("the coordination store continues without the log dir %s: %s", path, error)
