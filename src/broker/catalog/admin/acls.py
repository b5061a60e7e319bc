"""Keep the ACLs as shared documents, and give them to the authorizer.

a client changes ACLs -> shared documents -> each broker -> the authorizer's next snapshot
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from broker.authorization.acl_documents import encode_entries, name_of, parse_entries, pattern_of
from broker.authorization.acl_snapshot import AclSnapshot, Entries
from broker.authorization.authorizer import Authorizer, AuthorizerSettings
from broker.authorization.binding_filter import BindingFilter
from broker.authorization.bindings import CLOSED, Binding, Entry, Pattern
from broker.coordination.errors import CoordinationError, LimitError
from broker.coordination.shared_documents import (
    Changes,
    Documents,
    SharedDocuments,
    encode_name,
)
from broker.coordination.verbs import OPERATION_BYTES, REQUEST_BYTES_MAX
from broker.wire.error_codes import ErrorCode

LOG = logging.getLogger("broker")
KIND = "acls"
PART_BYTES = REQUEST_BYTES_MAX // 2  # a change that writes several documents has at most this size
UNKNOWN = "the ACLs are not read yet, or cannot be read"

Patterns = Mapping[Pattern, Entries]


class AclRefusedError(Exception):
    """Report why a change of ACLs is refused, and the code for the client."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Acls:
    """The ACLs of a single broker, or of a cluster.

    Threads: any thread may call any method. `_documents` lets only one thread at a time read and
    decide. So only one thread at a time changes `_data` and `_snapshot`. `_data` and `_snapshot`
    are replaced as a whole.

    Attributes:
        authorizer: decides by the ACLs. Until the ACLs are known, only super users may do anything.
    """

    def __init__(
        self, documents: SharedDocuments, settings: AuthorizerSettings, acls_max: int
    ) -> None:
        """Begin without ACLs.

        Args:
            acls_max: the largest number of ACLs that clients can create.
        """
        self.authorizer = Authorizer(settings)
        self._documents, self._acls_max = documents, acls_max
        self._data: Documents = {}
        self._snapshot = AclSnapshot()
        self._end: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Read the ACLs, and follow their changes until `close`."""
        self._end = self._documents.follow(KIND, self._heard)

    def close(self) -> None:
        """Stop following the changes."""
        self._end()

    # --- what clients ask for ---------------------------------------------------------------------

    def create(self, bindings: Iterable[Binding]) -> None:
        """Add bindings; skip bindings that already exist.

        A large change is written in parts. If a part fails, the earlier parts remain.

        Raises:
            AclRefusedError: there would be too many ACLs, or the store accepts no change now.
        """
        wanted = _by_pattern(bindings)

        def decide(snapshot: AclSnapshot) -> Patterns:
            after, count = {}, 0
            for pattern, some in wanted.items():
                present = snapshot.entries.get(pattern, frozenset())
                if some <= present:
                    continue
                if CLOSED in present:
                    raise AclRefusedError(
                        ErrorCode.INVALID_REQUEST,
                        "the pattern is closed, or its ACLs cannot be read: delete its ACLs first",
                    )
                after[pattern] = present | some
                count += len(some - present)
            if count and snapshot.count + count > self._acls_max:
                raise AclRefusedError(
                    ErrorCode.POLICY_VIOLATION,
                    f"there are {snapshot.count} ACLs, and at most {self._acls_max} are allowed "
                    "(max_acls)",
                )
            return after

        self._change(decide)

    def delete(self, filters: Sequence[BindingFilter]) -> list[list[Binding]]:
        """Remove the bindings that filters select; return the bindings that each filter selected.

        Raises:
            AclRefusedError: the store accepts no change now.
        """
        selected: list[set[Binding]] = [set() for _ in filters]

        def decide(snapshot: AclSnapshot) -> Patterns:
            for found, wanted in zip(selected, filters, strict=True):
                found.update(snapshot.bindings(wanted))
            gone = _by_pattern(binding for found in selected for binding in found)
            return {
                pattern: snapshot.entries[pattern] - some
                for pattern, some in gone.items()
                if snapshot.entries.get(pattern, frozenset()) & some
            }

        self._change(decide)
        return [sorted(found) for found in selected]

    def describe(self, wanted: BindingFilter) -> list[Binding]:
        """List the bindings that a filter selects.

        Raises:
            AclRefusedError: the ACLs are not known.
        """
        if self.authorizer.snapshot is None:
            raise AclRefusedError(ErrorCode.KAFKA_STORAGE_ERROR, UNKNOWN)
        return sorted(self._snapshot.bindings(wanted))

    def _change(self, decide: Callable[[AclSnapshot], Patterns]) -> None:
        """Write what `decide` returns, in parts, until it returns nothing more."""

        def part(documents: Documents) -> Changes:
            changes: dict[str, bytes | None] = {}
            size_bytes = 0
            snapshot = self._read(documents)
            if self.authorizer.snapshot is None:
                self.authorizer.replace(snapshot)  # at the start, the ACLs were not known
            for pattern, entries in decide(snapshot).items():
                name, data = name_of(pattern), encode_entries(entries) if entries else None
                size_bytes += OPERATION_BYTES + len(encode_name(name)) + len(data or b"")
                if changes and size_bytes > PART_BYTES:
                    break
                changes[name] = data
            return changes

        try:
            while self._documents.change(KIND, part):
                continue
        except LimitError as error:
            raise AclRefusedError(ErrorCode.POLICY_VIOLATION, str(error)) from error
        except CoordinationError as error:
            raise AclRefusedError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the ACLs cannot be changed now: {error}"
            ) from error
        except ValueError as error:
            raise AclRefusedError(ErrorCode.KAFKA_STORAGE_ERROR, f"{UNKNOWN}: {error}") from error

    # --- what this broker knows -------------------------------------------------------------------

    def _heard(self, documents: Documents) -> None:
        """If the documents are known, let the authorizer decide by them."""
        if not self._documents.is_known(KIND):
            return
        try:
            self.authorizer.replace(self._read(documents))
        except ValueError as error:  # the entries may be about any resource, so all are closed
            LOG.error("%s; until it is deleted, only super users may do anything", error)
            self.authorizer.replace(None)

    def _read(self, documents: Documents) -> AclSnapshot:
        """Read the documents that have changed. Raises ValueError if a name cannot be read."""
        changed: dict[Pattern, Entries] = {
            pattern_of(name): frozenset() for name in self._data.keys() - documents.keys()
        }
        for name, data in documents.items():
            if data != self._data.get(name):
                entries, fault = parse_entries(name, data)
                changed[pattern_of(name)] = entries
                if fault:
                    LOG.error(
                        "%s; until they are deleted, only super users may use the resource", fault
                    )
        if changed:
            self._snapshot = self._snapshot.with_entries(changed)
        self._data = documents
        return self._snapshot


def _by_pattern(bindings: Iterable[Binding]) -> dict[Pattern, Entries]:
    found: dict[Pattern, set[Entry]] = {}
    for pattern, entry in bindings:
        found.setdefault(pattern, set()).add(entry)
    return {pattern: frozenset(some) for pattern, some in found.items()}
