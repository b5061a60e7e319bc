"""Share small documents among brokers, through the coordination store.

    /documents/quotas           its version counts the changes of all quotas
    /documents/quotas/alice     one document

The coordination store accepts a change only if the version of the parent is the version that the
broker knows. So a broker that has the newest documents need not read them before a change. Each
broker watches only the parent, and reads all documents of a kind again after a change.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, unquote

from broker.coordination.errors import (
    BadVersionError,
    CoordinationError,
    LimitError,
    NodeExistsError,
    NoNodeError,
)
from broker.coordination.verbs import Create, Delete, Operation, Session, Set

LOG = logging.getLogger("broker")
ROOT = "/documents"
DOCUMENTS_MAX = 20_000  # of one kind; the broker keeps all of them in memory
NAME_BYTES_MAX = 2_000
TRIES_MAX = 10  # how often a change is decided again after another broker's change came first

Documents = Mapping[str, bytes]  # by name
Changes = Mapping[str, bytes | None]  # the new document by its name; None deletes the document
Decide = Callable[[Documents], Changes]
Result = TypeVar("Result")


class Run(Protocol):
    """Do some work in a session that can be used now; raises CoordinationError."""

    def __call__(self, work: Callable[[Session], Result]) -> Result:
        """Do the work, and return its result."""


class _Kind:
    """The known documents of one kind, and their followers."""

    def __init__(self) -> None:
        self.changing = threading.Lock()  # held while documents are read, changed or announced
        self.known = _Known(-1, MappingProxyType({}))
        self.followers: list[Callable[[Documents], object]] = []
        self.is_watched = False


class _Known(NamedTuple):
    """The documents at one version of their parent; -1 means that they were never read."""

    version: int
    documents: Documents


class SharedDocuments:
    """Read and change the documents of all kinds, for one broker.

    Threads: any thread may call any method. A follower is called by one thread at a time, and must
    not change documents of its kind.
    """

    def __init__(self, run: Run, *, is_shared: bool) -> None:
        """Read nothing yet.

        Args:
            run: does work in a session of the coordination store.
            is_shared: whether other brokers use the store, too, so that it must be watched.
        """
        self._run, self._is_shared = run, is_shared
        self._lock = threading.Lock()  # guards `_kinds`
        self._kinds: dict[str, _Kind] = {}

    def documents(self, kind: str) -> Documents:
        """Return the documents that were read last, in a mapping that never changes."""
        return self._kind(kind).known.documents

    def version(self, kind: str) -> int:
        """Return the number of changes before the documents that were read last; -1 if none was."""
        return self._kind(kind).known.version

    def is_known(self, kind: str) -> bool:
        """Report whether the documents have been read since the start."""
        return self._kind(kind).known.version >= 0

    def follow(self, kind: str, callback: Callable[[Documents], object]) -> None:
        """Call back now, and after each change of the documents of a kind.

        If the store cannot be read now, the first call has no documents (see `is_known`), and the
        next call comes after `refresh` has read the documents.
        """
        found = self._kind(kind)
        try:
            self._read(kind)
        except CoordinationError as error:
            LOG.warning("the documents of kind %s cannot be read now: %s", kind, error)
        with found.changing:
            found.followers.append(callback)
            callback(found.known.documents)

    def refresh(self) -> None:
        """Read all kinds that are followed, and watch them in the present session.

        Raises:
            CoordinationError: the store cannot be read now; call again later.
        """
        with self._lock:
            kinds = list(self._kinds.items())
        for name, kind in kinds:
            kind.is_watched = False
            self._read(name)

    def change(self, kind: str, decide: Decide) -> Changes:
        """Change documents of one kind, all or none of them.

        Args:
            decide: takes the present documents, and returns the changes. `decide` is called again
                if another broker's change came first. An error in `decide` ends the change.

        Returns:
            The changes that were made.

        Raises:
            LimitError: there would be too many documents, or the change is too large.
            CoordinationError: nothing was changed. But after OutcomeUnknownError, the change may
                have happened.
        """
        found = self._kind(kind)
        for _ in range(TRIES_MAX):
            with found.changing:
                if found.known.version < 0:
                    self._read_locked(kind, found)
                changes = dict(decide(found.known.documents))
                if not changes:
                    return changes
                try:
                    self._write(kind, found, changes)
                except (BadVersionError, NodeExistsError, NoNodeError):
                    self._read_locked(kind, found)  # another broker's change came first
                    continue
                self._announce(found)
                return changes
        raise CoordinationError(f"other brokers changed the {kind} during each attempt; try again")

    def _kind(self, name: str) -> _Kind:
        with self._lock:
            return self._kinds.setdefault(name, _Kind())

    def _read(self, name: str) -> None:
        kind = self._kind(name)
        with kind.changing:
            self._read_locked(name, kind)

    def _read_locked(self, name: str, kind: _Kind) -> None:
        """Read a kind, and call its followers if it has changed."""
        before = kind.known.version
        kind.known = self._run(lambda session: self._read_all(session, name, kind))
        if kind.known.version != before:
            self._announce(kind)

    def _read_all(self, session: Session, name: str, kind: _Kind) -> _Known:
        """Read until no change came during the read, so that all documents have one version."""
        parent = f"{ROOT}/{name}"
        _ensure(session, parent)
        if self._is_shared and not kind.is_watched:
            kind.is_watched = True
            try:
                session.watch(parent, lambda event: self._on_change(name, kind))
            except BaseException:
                kind.is_watched = False
                raise
        while True:
            version = session.get(parent).version
            documents = {}
            for child in session.children(parent):
                try:
                    documents[unquote(child)] = session.get(f"{parent}/{child}").data
                except NoNodeError:  # deleted just now, so the version differs below
                    continue
            if session.get(parent).version == version:
                break
        if self._is_shared or kind.known.version < 0:
            return _Known(version, MappingProxyType(documents))
        return self._restored(session, parent, documents, kind.known.documents)

    @staticmethod
    def _restored(session: Session, parent: str, found: Documents, wanted: Documents) -> _Known:
        """Write the documents in memory to the store; only this process changes them.

        A store that was opened again with other log dirs may have older documents than the memory.
        """
        for name in {**found, **wanted}:
            path = f"{parent}/{encode_name(name)}"
            if name not in wanted:
                session.delete(path)
            elif name not in found:
                session.create(path, wanted[name])
            elif found[name] != wanted[name]:
                session.set(path, wanted[name])
        return _Known(session.get(parent).version, wanted)

    def _write(self, name: str, kind: _Kind, changes: Changes) -> None:
        before = kind.known
        documents = dict(before.documents)
        operations: list[Operation] = [Set(f"{ROOT}/{name}", b"", before.version)]
        for key, data in changes.items():
            path = f"{ROOT}/{name}/{encode_name(key)}"
            if data is None and key in documents:
                operations.append(Delete(path))
                del documents[key]
            elif data is None:
                continue
            else:
                operations.append(Set(path, data) if key in documents else Create(path, data))
                documents[key] = data
        if len(documents) > DOCUMENTS_MAX:
            raise LimitError("DOCUMENTS_MAX", DOCUMENTS_MAX, len(documents))
        self._run(lambda session: session.multi(operations))
        kind.known = _Known(before.version + 1, MappingProxyType(documents))

    def _announce(self, kind: _Kind) -> None:
        """Call the followers with the documents; if a follower fails, still call the others."""
        for follower in kind.followers:
            try:
                follower(kind.known.documents)
            except Exception:
                LOG.exception("a follower of shared documents failed")

    def _on_change(self, name: str, kind: _Kind) -> None:
        """Read a kind again in a new thread, so that the session's other callbacks do not wait."""
        kind.is_watched = False
        threading.Thread(
            target=self._read_again, args=(name,), name=f"documents-{name}", daemon=True
        ).start()

    def _read_again(self, name: str) -> None:
        try:
            self._read(name)
        except CoordinationError as error:  # `refresh` reads the documents in the next session
            LOG.warning("the changed documents of kind %s cannot be read: %s", name, error)


def encode_name(name: str) -> str:
    """Encode any text as the name of a znode; raises LimitError."""
    encoded = quote(name, safe="").replace(".", "%2E")
    if not 0 < len(encoded) <= NAME_BYTES_MAX:
        raise LimitError("NAME_BYTES_MAX", NAME_BYTES_MAX, len(encoded))
    return encoded


def _ensure(session: Session, path: str) -> None:
    """Create a znode and its parents, if they do not exist."""
    parts: list[Any] = path.split("/")[1:]
    try:
        session.get(path)
    except NoNodeError:
        for end in range(1, len(parts) + 1):
            try:
                session.create("/" + "/".join(parts[:end]))
            except NodeExistsError:
                continue
