"""Store the last known state of each log dir in the coordination store (P4).

    /logstore/log_dirs/2    {"version":1,"log_dirs":{"<directory id>":[12,"<start id>",3]}}

A state is the generation of a log dir (`logstore.disk.documents.generations`). A log dir first
writes a new generation durably, and then this module stores it. So if a log dir does not have the
stored generation, it is an old copy: for example, all disks were restored from an image. If only
one disk is an old copy, the store of the log dirs recognises it, too, because the other log dirs
have recorded its generation.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from typing import Any

from broker.coordination.continuity import ensure
from broker.coordination.errors import NoNodeError
from broker.coordination.verbs import Session
from cluster.errors import BadZnodeError
from cluster.znode_document import ZnodeDocument
from logstore import LogStore
from logstore.disk.documents.generations import NUMBER_MAX, DirGeneration, Generation

LOG = logging.getLogger("cluster")
STATES = "/logstore/log_dirs"
VERSION = 1
START_ID_LENGTH_MAX = 100


def generations(store: LogStore) -> dict[str, DirGeneration]:
    """Return the generation of each log dir, by its path."""
    return {one.path: one.generation for one in store.host.replicas.log_dirs}


class KnownStates:
    """The stored states of the log dirs of one broker.

    Threads: one thread at a time.
    """

    def __init__(self, session: Session, broker: int) -> None:
        """Store the arguments; read nothing yet."""
        self._session, self._path = session, f"{STATES}/{broker}"
        self._states: dict[str, Generation] = {}

    def old_copies(self, store: LogStore) -> frozenset[str]:
        """Read the stored states; return the paths of the log dirs that are old copies.

        If the stored states cannot be understood, each log dir may be an old copy.

        Raises:
            CoordinationError: the coordination store does not answer.
        """
        found = generations(store)
        try:
            self._states = self._read()
        except BadZnodeError as error:
            LOG.error("all log dirs count as old copies: %s", error)
            return frozenset(found)
        return frozenset(path for path, one in found.items() if self._is_old(one))

    def _is_old(self, generation: DirGeneration) -> bool:
        known = self._states.get(generation.directory_id)
        return known is not None and generation.is_behind(known)

    def remember(self, states: Mapping[str, Generation], members: Collection[str]) -> None:
        """Store new states, if they have changed. Keep the states of the other members.

        Args:
            states: by directory id.
            members: the ids of all log dirs that belong to the broker.

        Raises:
            CoordinationError: the coordination store does not answer.
        """
        kept = {one: state for one, state in self._states.items() if one in members}
        changed = {**kept, **states}
        if changed == self._states:
            return
        rows = {one: list(state) for one, state in changed.items()}
        data = json.dumps({"version": VERSION, "log_dirs": rows}, separators=(",", ":")).encode()
        try:
            self._session.set(self._path, data)
        except NoNodeError:
            ensure(self._session, self._path)
            self._session.set(self._path, data)
        self._states = changed

    def _read(self) -> dict[str, Generation]:
        try:
            document = ZnodeDocument(self._session.get(self._path).data, self._path)
        except NoNodeError:
            return {}
        document.number("version", VERSION, VERSION)
        rows = document.mapping("log_dirs")
        return {one: _generation(row, document) for one, row in rows.items()}


def _generation(row: Any, document: ZnodeDocument) -> Generation:
    match row:
        case [int(number), str(start_id), int(step)] if (
            0 <= number <= NUMBER_MAX
            and 0 <= step <= NUMBER_MAX
            and len(start_id) <= START_ID_LENGTH_MAX
        ):
            return Generation(number, start_id, step)
    raise document.error(f"{str(row)[:40]} is not the state of a log dir")
