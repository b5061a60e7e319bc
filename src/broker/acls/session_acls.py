"""Keep the ACLs of a cluster in its coordination store, and follow the changes of other brokers.

A change of ACLs leaves a notice in `/kafka-acl-changes`, in the same transaction. Each broker
watches only this znode, and then reads the znodes that the new notices name. A broker reads all
ACLs at its start, in each new session, and if it has missed notices.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress

from broker.acls.acl_store import AclRefusedError, AclStore, Change, in_batches
from broker.authorization.acl_znodes import (
    FOLDERS,
    NOTICE,
    NOTICES,
    parents_of,
    path_of,
    pattern_of,
)
from broker.authorization.authorizer import AuthorizerSettings
from broker.authorization.bindings import Pattern
from broker.coordination.errors import (
    BadVersionError,
    CoordinationError,
    LimitError,
    NodeExistsError,
    NoNodeError,
)
from broker.coordination.verbs import Create, Delete, Operation, Session, Set, Znode
from broker.wire.error_codes import ErrorCode

LOG = logging.getLogger("broker")
NOTICES_KEPT = 1000
RETRY_SECONDS = 1.0
CLOSE_SECONDS = 5.0
TRIES = 10  # how often a change is decided again because another broker was faster


class SessionAcls(AclStore):
    """The ACLs that all brokers of a cluster share.

    Threads: a thread reads the changes of other brokers. `_reading` guards `_seen`.
    """

    def __init__(self, session: Session, settings: AuthorizerSettings, acls_max: int) -> None:
        """Read the ACLs.

        Raises:
            CoordinationError: the coordination store does not answer.
        """
        super().__init__(settings, acls_max)
        self._session = session
        self._bell = threading.Event()
        self._is_closed = False
        self._seen: str | None = None  # the newest notice that was read; None: read all ACLs
        self._thread = threading.Thread(target=self._run, name="acl-changes", daemon=True)
        self._read_changes()

    def start(self) -> None:
        """Follow changes from now on."""
        self._bell.set()
        self._thread.start()

    def close(self) -> None:
        """Stop following changes; a thread that waits for the store is left behind."""
        self._is_closed = True
        self._bell.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)

    def watch_again(self, _: object) -> None:
        """Watch in a new session, and read all ACLs."""
        with self._reading:
            self._seen = None
        self._bell.set()

    # --- reading ----------------------------------------------------------------------------------

    def _run(self) -> None:
        seconds: float | None = None
        while not self._is_closed:
            self._bell.wait(seconds)
            self._bell.clear()
            if self._is_closed:
                return
            try:
                self._watch()
                self._read_changes()
                seconds = None
            except CoordinationError as error:
                LOG.info("the ACLs cannot be read now: %s", error)
                seconds = RETRY_SECONDS
            except Exception:
                LOG.exception("the ACLs are read again")
                seconds = RETRY_SECONDS

    def _watch(self) -> None:
        """Ring the bell at the next change. What is read after this call is not older."""
        self._make([NOTICES])
        self._session.watch_children(NOTICES, lambda _: self._bell.set())

    def catch_up(self) -> None:
        """Read the changes that other brokers have made before this call."""
        try:
            self._session.zxid()  # a server of ZooKeeper may be behind the others
            self._read_changes()
        except CoordinationError as error:
            LOG.warning("this broker decides by the ACLs that it has read before: %s", error)

    def _read_changes(self) -> None:
        """Read the ACLs that new notices name, or all."""
        with self._reading:
            try:
                names = self._session.children(NOTICES)
            except NoNodeError:
                names = []
            new = [name for name in names if self._seen is None or name > self._seen]
            if self._seen is None or len(new) >= NOTICES_KEPT:
                snapshot = self._read.read_all(self._all())
            else:
                paths = {path for name in new for path in self._noticed(name)}
                if "" in paths:
                    snapshot = self._read.read_all(self._all())
                else:
                    snapshot = self._read.read({path: self._data(path) for path in paths})
            self._seen = new[-1] if new else self._seen or ""
            if new or self.authorizer.snapshot is not snapshot:
                self.authorizer.replace(snapshot)

    def _noticed(self, name: str) -> list[str]:
        """Return the paths in a notice; [""] if the notice is gone or names no ACLs."""
        try:
            paths = self._session.get(f"{NOTICES}/{name}").data.decode().split("\n")
            for path in paths:
                pattern_of(path)
        except (NoNodeError, ValueError):
            return [""]
        return paths

    def _all(self) -> dict[str, bytes]:
        found = {}
        for folder in FOLDERS:
            with suppress(NoNodeError):
                for name in self._session.children(folder):
                    data = self._data(f"{folder}/{name}")
                    if data is not None:
                        found[f"{folder}/{name}"] = data
        return found

    def _data(self, path: str) -> bytes | None:
        found = self._znode(path)
        return None if found is None else found.data

    def _znode(self, path: str) -> Znode | None:
        try:
            return self._session.get(path)
        except NoNodeError:
            return None

    # --- writing ----------------------------------------------------------------------------------

    def _write(self, changes: Mapping[Pattern, Change]) -> None:
        try:
            for batch in in_batches(changes):
                self._write_batch(batch)
            if changes:
                self._drop_old_notices()
                self._read_changes()
        except LimitError as error:
            raise AclRefusedError(ErrorCode.POLICY_VIOLATION, str(error)) from error
        except CoordinationError as error:
            raise AclRefusedError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the coordination store refused a change: {error}"
            ) from error

    def _write_batch(self, batch: Mapping[Pattern, Change]) -> None:
        self._make([NOTICES, *(path for pattern in batch for path in parents_of(pattern))])
        for attempt in range(TRIES):
            operations = self._operations(batch, is_first=attempt == 0)
            try:
                self._session.multi(operations)
                return
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue  # another broker was faster
        raise AclRefusedError(
            ErrorCode.REQUEST_TIMED_OUT, "other brokers change the same ACLs; try again"
        )

    def _operations(self, batch: Mapping[Pattern, Change], *, is_first: bool) -> list[Operation]:
        """Return the changes of the znodes, and one notice of all of them.

        Args:
            is_first: a pattern without ACLs in memory probably has no znode, so none is read. If
                that is wrong, the store refuses to create the znode.
        """
        operations: list[Operation] = []
        snapshot = self.authorizer.snapshot
        new = batch.keys() - snapshot.entries.keys() if is_first and snapshot else set()
        for pattern, change in batch.items():
            path = path_of(pattern)
            known = None if pattern in new else self._znode(path)
            data = change.applied_to(path, None if known is None else known.data)
            if known is None and data is not None:
                operations.append(Create(path, data))
            elif known is not None and data is None:
                operations.append(Delete(path, known.version))
            elif known is not None and data is not None and data != known.data:
                operations.append(Set(path, data, known.version))
        if operations:
            paths = "\n".join(one.path for one in operations)
            operations.append(Create(NOTICE, paths.encode(), sequence=True))
        return operations

    def _make(self, paths: Iterable[str]) -> None:
        for path in dict.fromkeys(paths):
            if self._znode(path) is None:
                with suppress(NodeExistsError):
                    self._session.create(path)

    def _drop_old_notices(self) -> None:
        """Delete the oldest notices, so that at most `NOTICES_KEPT` stay."""
        for name in self._session.children(NOTICES)[:-NOTICES_KEPT]:
            with suppress(NoNodeError):  # another broker was faster
                self._session.delete(f"{NOTICES}/{name}")
