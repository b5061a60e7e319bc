"""Hold the entries of each znode of ACLs that was read, and make snapshots of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker.authorization.acl_snapshot import AclSnapshot, Entries
from broker.authorization.acl_znodes import is_usual, parse_entries, pattern_of
from broker.authorization.bindings import Pattern

LOG = logging.getLogger("broker")


class ReadAcls:
    """The ACLs as they were last read. The caller lets only one thread at a time use the object."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}
        self._entries: dict[str, Entries] = {}
        self._unusual: set[str] = set()  # another znode may have the same pattern
        self._snapshot = AclSnapshot()

    def read_all(self, znodes: Mapping[str, bytes]) -> AclSnapshot:
        """Take the data of all znodes."""
        gone = dict.fromkeys(self._data.keys() - znodes.keys())
        return self.read({**gone, **znodes})

    def read(self, znodes: Mapping[str, bytes | None]) -> AclSnapshot:
        """Take the data of some znodes; None means that the znode does not exist."""
        changed: dict[Pattern, Entries] = {}
        for path, data in znodes.items():
            if data != self._data.get(path):
                changed[pattern_of(path)] = self._take(path, data)
        if self._unusual:
            self._snapshot = AclSnapshot(self._merged())
        elif changed:
            self._snapshot = self._snapshot.with_entries(changed)
        return self._snapshot

    def _take(self, path: str, data: bytes | None) -> Entries:
        self._unusual.discard(path)
        if data is None:
            self._data.pop(path, None)
            self._entries.pop(path, None)
            return frozenset()
        if not is_usual(path):
            self._unusual.add(path)
        entries, fault = parse_entries(path, data)
        if fault:
            LOG.error("%s; until they are deleted, only super users may use the resource", fault)
        self._data[path], self._entries[path] = data, entries
        return entries

    def _merged(self) -> dict[Pattern, Entries]:
        found: dict[Pattern, Entries] = {}
        for path, entries in self._entries.items():
            pattern = pattern_of(path)
            found[pattern] = found.get(pattern, frozenset()) | entries
        return found
