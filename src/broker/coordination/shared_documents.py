"""Share small documents among brokers, through the coordination store.

    /documents/quotas           its version counts the changes of all quotas
                   {"version":1,"changes":[[7,["alice"]],[8,["bob","carol"]]]}
    /documents/quotas/alice     one document

The coordination store accepts a change only if the version of the parent is the version that the
broker knows. So a broker that has the newest documents need not read them before a change. Each
broker watches only the parent. The parent's data names the documents that the last changes wrote or
deleted, so a broker reads only these. If the data does not list enough changes, or has another
form, the broker reads all documents of the kind.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
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
from broker.coordination.verbs import (
    REQUEST_BYTES_MAX,
    Create,
    Delete,
    Operation,
    Session,
    Set,
    Znode,
    checked_bytes,
)

LOG = logging.getLogger("broker")
ROOT = "/documents"
DOCUMENTS_MAX = 20_000  # the limit of one kind: the broker keeps all its documents in memory
NAME_BYTES_MAX = 2_000
HISTORY_VERSION = 1
HISTORY_BYTES_MAX = 16 << 10  # the largest data of a parent; every change writes them
HISTORY_CHANGES_MAX = 50
TRIES_MAX = 10  # how often a change is decided again after another broker's change came first

Documents = Mapping[str, bytes]  # the documents by name
# from a document's name to its new content; None deletes the document
Changes = Mapping[str, bytes | None]
Decide = Callable[[Documents], Changes]
Follower = Callable[[Documents], object]
# for each version, the names of the changed documents
History = tuple[tuple[int, tuple[str, ...]], ...]
Result = TypeVar("Result")


class Run(Protocol):
    """Do some work in a session that works now. Raises CoordinationError."""

    def __call__(self, work: Callable[[Session], Result]) -> Result:
        """Do the work, and return its result."""


class _Kind:
    """The known documents of one kind, and their followers."""

    def __init__(self) -> None:
        self.changing = threading.Lock()  # a read, a change or an announcement holds this lock
        self.known = _Known(-1, MappingProxyType({}))
        # The key of each follower is an object of its own. The dictionary is replaced as a whole.
        self.followers: dict[object, Follower] = {}
        self.is_watched = False


class _Known(NamedTuple):
    """The documents at one version of their parent. -1 means that they were never read."""

    version: int
    documents: Documents
    history: History = ()


class SharedDocuments:
    """Read and change the documents of all kinds, for one broker.

    Threads: any thread may call any method. Only one thread at a time calls a follower. A follower
    must not change documents of its own kind.
    """

    def __init__(self, run: Run, *, is_shared: bool) -> None:
        """Read nothing yet.

        Args:
            run: does work in a session of the coordination store.
            is_shared: whether other brokers also use the store, so that the store must be watched.
        """
        self._run, self._is_shared = run, is_shared
        self._lock = threading.Lock()  # guards `_kinds`, and the followers of all kinds
        self._kinds: dict[str, _Kind] = {}

    def documents(self, kind: str) -> Documents:
        """Return the documents that were read last. The mapping never changes."""
        return self._kind(kind).known.documents

    def version(self, kind: str) -> int:
        """Return the version of the documents that were read last; -1 if none were read.

        The version is the number of changes before them.
        """
        return self._kind(kind).known.version

    def is_known(self, kind: str) -> bool:
        """Report whether the documents have been read since the start."""
        return self._kind(kind).known.version >= 0

    def follow(self, kind: str, callback: Follower) -> Callable[[], None]:
        """Call back now, and after each change of the documents of a kind.

        If the store cannot be read now, the first call has no documents (see `is_known`). Without
        documents, the next call comes after `refresh` has read the documents.

        Returns:
            A function that ends the calls. This function never waits, so a running call may still
            continue.
        """
        found = self._kind(kind)
        try:
            self._read(kind)
        except CoordinationError as error:
            LOG.warning("the documents of kind %s cannot be read now: %s", kind, error)
        token = object()

        def end() -> None:
            with self._lock:
                left = dict(found.followers)
                left.pop(token, None)
                found.followers = left

        with found.changing:
            with self._lock:
                found.followers = {**found.followers, token: callback}
            try:
                callback(found.known.documents)
            except BaseException:
                end()
                raise
        return end

    def refresh(self) -> None:
        """Read all kinds that have followers, and watch them in the present session.

        Raises:
            CoordinationError: the store cannot be read now. Call again later.
        """
        with self._lock:
            kinds = list(self._kinds.items())
        for name, kind in kinds:
            kind.is_watched = False
            self._read(name, is_full=True)

    def change(self, kind: str, decide: Decide) -> Changes:
        """Change documents of one kind: make all changes, or none.

        Args:
            decide: gets the present documents, and returns the changes. If another broker makes a
                change first, `decide` is called again. An error in `decide` ends the change.

        Returns:
            The changes that were made.

        Raises:
            LimitError: there would be too many documents, or the change is too large.
            CoordinationError: nothing was changed. There is one exception: after
                OutcomeUnknownError, the change may have happened.
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
                    self._read_locked(kind, found)  # another broker has made a change first
                    continue
                self._announce(found)
                return changes
        raise CoordinationError(f"other brokers changed the {kind} during each attempt; try again")

    def _kind(self, name: str) -> _Kind:
        with self._lock:
            return self._kinds.setdefault(name, _Kind())

    def _read(self, name: str, *, is_full: bool = False) -> None:
        kind = self._kind(name)
        with kind.changing:
            self._read_locked(name, kind, is_full=is_full)

    def _read_locked(self, name: str, kind: _Kind, *, is_full: bool = False) -> None:
        """Read a kind, and call its followers if it has changed.

        Args:
            is_full: whether to read all documents, and not only the changed documents.
        """
        before = kind.known.version
        kind.known = self._run(lambda session: self._read_in(session, name, kind, is_full=is_full))
        if kind.known.version != before:
            self._announce(kind)

    def _read_in(self, session: Session, name: str, kind: _Kind, *, is_full: bool) -> _Known:
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
            at = session.get(parent)
            news = None if is_full or not self._is_shared else _changed(kind.known.version, at)
            if news is None:
                documents = _read_documents(session, parent, {}, session.children(parent))
            else:
                known = dict(kind.known.documents)
                documents = _read_documents(session, parent, known, news)
            if session.get(parent).version == at.version:
                break
        if self._is_shared or kind.known.version < 0:
            return _Known(at.version, MappingProxyType(documents), _history_of(at))
        return self._restored(session, parent, documents, kind.known.documents)

    @staticmethod
    def _restored(session: Session, parent: str, found: Documents, wanted: Documents) -> _Known:
        """Write the documents in memory to the store, because only this process changes them.

        If a store was opened again with other log dirs, its documents may be older than the
        documents in memory.
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
        parent = f"{ROOT}/{name}"
        operations: list[Operation] = [Set(parent, b"", before.version)]
        for key, data in changes.items():
            path = f"{parent}/{encode_name(key)}"
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
        history: History = ()
        if self._is_shared:
            room_bytes = REQUEST_BYTES_MAX - sum(map(checked_bytes, operations))
            history = (*before.history, (before.version + 1, tuple(changes)))
            history, written = _encode_history(history, room_bytes)
            operations[0] = Set(parent, written, before.version)
        self._run(lambda session: session.multi(operations))
        kind.known = _Known(before.version + 1, MappingProxyType(documents), history)

    def _announce(self, kind: _Kind) -> None:
        """Call the followers with the documents; if a follower fails, still call the others."""
        for follower in kind.followers.values():
            try:
                follower(kind.known.documents)
            except Exception:
                LOG.exception("a follower of shared documents failed")

    def _on_change(self, name: str, kind: _Kind) -> None:
        """Read a kind again in a new thread, so that other callbacks of the session do not wait."""
        kind.is_watched = False
        threading.Thread(
            target=self._read_again, args=(name,), name=f"documents-{name}", daemon=True
        ).start()

    def _read_again(self, name: str) -> None:
        try:
            self._read(name)
        except CoordinationError as error:  # in the next session, `refresh` reads the documents
            LOG.warning("the changed documents of kind %s cannot be read: %s", name, error)


def encode_name(name: str) -> str:
    """Encode any text as the name of a znode. Raises LimitError."""
    encoded = quote(name, safe="").replace(".", "%2E")
    if not 0 < len(encoded) <= NAME_BYTES_MAX:
        raise LimitError("NAME_BYTES_MAX", NAME_BYTES_MAX, len(encoded))
    return encoded


def _read_documents(
    session: Session, parent: str, found: dict[str, bytes], children: Iterable[str]
) -> dict[str, bytes]:
    """Read some documents into a dictionary, and return it; leave out deleted documents."""
    for child in children:
        try:
            found[unquote(child)] = session.get(f"{parent}/{child}").data
        except NoNodeError:
            found.pop(unquote(child), None)
    return found


def _changed(known: int, parent: Znode) -> set[str] | None:
    """Return the znodes of the documents that changed after a version; None means unknown."""
    if not 0 <= known <= parent.version:
        return None
    changes = {version: names for version, names in _history_of(parent) if version > known}
    if len(changes) != parent.version - known:
        return None
    try:
        return {encode_name(name) for names in changes.values() for name in names}
    except (LimitError, ValueError):  # no document can have this name
        return None


def _history_of(parent: Znode) -> History:
    """Read the last changes from a parent's data; return () if the data has another form."""
    try:
        document = json.loads(parent.data)
        if document["version"] != HISTORY_VERSION:
            return ()
        rows = [(version, names) for version, names in document["changes"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    first = parent.version + 1 - len(rows)
    is_sound = all(
        type(names) is list and version == expected and all(type(one) is str for one in names)
        for expected, (version, names) in enumerate(rows, first)
    )
    return tuple((version, tuple(names)) for version, names in rows) if is_sound else ()


def _encode_history(history: History, room_bytes: int) -> tuple[History, bytes]:
    """Write the data of a parent: as many of the last changes as there is room for."""
    room_bytes = min(room_bytes, HISTORY_BYTES_MAX)
    history = history[-HISTORY_CHANGES_MAX:]
    while history:
        document = {"version": HISTORY_VERSION, "changes": history}
        data = json.dumps(document, separators=(",", ":")).encode()
        if len(data) <= room_bytes:
            return history, data
        history = history[1:]
    return (), b""


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
