"""Change the ACLs that the coordination store keeps, and give them to the authorizer.

    create, delete -> decide what changes -> write the znodes -> the authorizer's next snapshot

`SoleAcls` and `SessionAcls` write the znodes: without a cluster, and with one.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from broker.acls.read_acls import ReadAcls
from broker.authorization.acl_snapshot import AclSnapshot
from broker.authorization.acl_znodes import encode_entries, parse_entries, path_of
from broker.authorization.authorizer import Authorizer, AuthorizerSettings
from broker.authorization.binding_filter import BindingFilter
from broker.authorization.bindings import CLOSED, Binding, Entry, Pattern
from broker.coordination.verbs import OPERATION_BYTES, REQUEST_BYTES_MAX
from broker.wire.error_codes import ErrorCode

BATCH_BYTES = REQUEST_BYTES_MAX // 2  # the largest change that writes several patterns
BUSY_SECONDS = 10.0  # how long a change waits for another one


class AclRefusedError(Exception):
    """Report why a change of ACLs is refused, and the code for the client."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Change(NamedTuple):
    """What is added to the entries of a pattern, and what is removed from them."""

    added: frozenset[Entry] = frozenset()
    removed: frozenset[Entry] = frozenset()

    def applied_to(self, path: str, data: bytes | None) -> bytes | None:
        """Return the data of a znode after the change; None if no entry is left.

        Raises:
            AclRefusedError: the present entries cannot be read. They can only be deleted.
        """
        entries = frozenset() if data is None else parse_entries(path, data)[0]
        if CLOSED in entries and self.added and CLOSED not in self.removed:
            raise AclRefusedError(
                ErrorCode.INVALID_REQUEST,
                "the pattern is closed, or its ACLs cannot be read: delete its ACLs first",
            )
        after = (entries | self.added) - self.removed
        return encode_entries(after) if after else None


class AclStore(ABC):
    """The ACLs of one broker.

    Threads: any thread may call any method. `_changing` lets one thread at a time change ACLs.
    `_reading` lets one thread at a time read them, so that no older state replaces a newer one.
    A thread that needs both locks takes `_changing` first.

    Attributes:
        authorizer: decides by the ACLs.
    """

    def __init__(self, settings: AuthorizerSettings, acls_max: int) -> None:
        """Begin without ACLs.

        Args:
            acls_max: no client can create more ACLs than this.
        """
        self.authorizer = Authorizer(settings)
        self._acls_max = acls_max
        self._changing = threading.Lock()
        self._reading = threading.Lock()  # guards `_read`
        self._read = ReadAcls()

    # --- what clients ask for ---------------------------------------------------------------------

    def create(self, bindings: Iterable[Binding]) -> None:
        """Add bindings; a binding that exists already is left as it is.

        Raises:
            AclRefusedError: there would be too many ACLs, or the store takes no change now.
        """
        found: dict[Pattern, set[Entry]] = {}
        for pattern, entry in bindings:
            found.setdefault(pattern, set()).add(entry)
        with self._alone():
            snapshot = self._present()
            known = snapshot.entries
            new = {
                pattern: Change(added=frozenset(some))
                for pattern, some in found.items()
                if not known.get(pattern, frozenset()) >= some
            }
            count = sum(
                len(one.added - known.get(pattern, frozenset())) for pattern, one in new.items()
            )
            if snapshot.count + count > self._acls_max:
                raise AclRefusedError(
                    ErrorCode.POLICY_VIOLATION,
                    f"there are {snapshot.count} ACLs, and at most {self._acls_max} are allowed "
                    "(max_acls)",
                )
            self._write(new)

    def delete(self, filters: Sequence[BindingFilter]) -> list[list[Binding]]:
        """Remove the bindings that filters select; return what each filter has selected.

        Raises:
            AclRefusedError: the store takes no change now.
        """
        with self._alone():
            snapshot = self._present()
            selected = [sorted(snapshot.bindings(one)) for one in filters]
            gone: dict[Pattern, set[Entry]] = {}
            for pattern, entry in (one for some in selected for one in some):
                gone.setdefault(pattern, set()).add(entry)
            self._write({
                pattern: Change(removed=frozenset(some)) for pattern, some in gone.items()
            })  # fmt: skip
            return selected

    def describe(self, wanted: BindingFilter) -> list[Binding]:
        """List the bindings that a filter selects.

        Raises:
            AclRefusedError: the ACLs were never read.
        """
        return sorted(self._present().bindings(wanted))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._changing.acquire(timeout=BUSY_SECONDS):
            raise AclRefusedError(
                ErrorCode.REQUEST_TIMED_OUT, "another change of ACLs has not ended; try again"
            )
        try:
            yield
        finally:
            self._changing.release()

    def _present(self) -> AclSnapshot:
        """Return the ACLs of this moment, with the changes of other brokers."""
        self.catch_up()
        snapshot = self.authorizer.snapshot
        if snapshot is None:
            raise AclRefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "the ACLs are not read yet")
        return snapshot

    # --- what the two kinds of stores do ----------------------------------------------------------

    @abstractmethod
    def start(self) -> None:
        """Follow changes from now on."""

    @abstractmethod
    def close(self) -> None:
        """Stop following changes."""

    @abstractmethod
    def catch_up(self) -> None:
        """Read the changes that other brokers have made before this call."""

    @abstractmethod
    def _write(self, changes: Mapping[Pattern, Change]) -> None:
        """Make changes durable, and let the authorizer decide by them."""


def in_batches(changes: Mapping[Pattern, Change]) -> Iterator[dict[Pattern, Change]]:
    """Split a change into parts that fit into a request each; a pattern is never split."""
    batch: dict[Pattern, Change] = {}
    size_bytes = 0
    for pattern, change in changes.items():
        size = 4 * (OPERATION_BYTES + len(path_of(pattern).encode()))
        size += len(encode_entries(change.added))
        if batch and size_bytes + size > BATCH_BYTES:
            yield batch
            batch, size_bytes = {}, 0
        batch[pattern] = change
        size_bytes += size
    if batch:
        yield batch
