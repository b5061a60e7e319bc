"""Remember which log dir has which replica, so that the replicas on a missing disk are known.

Every log dir has a file with the catalog of the whole store (`disk/documents/catalog_file`).
Changes are recorded in memory. The keeper of each log dir writes the changes together with its
checkpoints, so no caller waits for a slow disk. Only a deletion is written to other log dirs
immediately. The reason: if the log dir of the replica were lost before the next checkpoint, no
other file would show that the replica is deleted. If the catalog and the directories disagree, the
directories are right, and the difference is reported.

Threads: entries change one by one, under the lock. Lookups take no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from logstore.disk.calls import SYNCING, call
from logstore.disk.documents.catalog_file import (
    CATALOG_NAME,
    DELETED,
    CatalogFile,
    Place,
    append_catalog,
    decode_catalog,
    line_of,
    read_catalog,
    write_catalog,
)
from logstore.disk.failures import Verdict, reason_of, refuse_shortage, verdict_of
from logstore.disk.log_dir import LogDir
from logstore.names import TopicPartition

# A catalog file is rewritten if it has more lines than SPARE_LINES plus two lines for each entry.
SPARE_LINES = 1000
LEFT = (
    "it is not rewritten while a log dir is bad, because it may have the only record of the "
    "replicas on that log dir"
)


class Catalog:
    """The catalog of a store in memory, and the entries that are still missing in each file.

    Attributes:
        is_known: whether the catalog has an entry for every replica. The value is False if a log
            dir is bad and no catalog file is whole, for example because a version without catalogs
            made the store.
        unsure_ids: the ids of missing log dirs. These log dirs worked when the store was killed, so
            they may contain replicas that no catalog lists (`old_copies.note_unsure`).
    """

    def __init__(self) -> None:
        self.is_known = False
        self.unsure_ids: frozenset[str] = frozenset()
        self._places: dict[TopicPartition, Place] = {}
        self._sequence = 0
        self._lock = threading.Lock()
        # For each log dir path, the lock for its catalog file.
        # A thread holds the lock while it writes the file.
        self._writing: dict[str, threading.Lock] = {}
        # For each log dir path, the number of lines in its catalog file.
        self._line_counts: dict[str, int] = {}
        # For each log dir path, the lines that must be appended to its catalog file.
        # The value is None if the file must be rewritten.
        self._pending: dict[str, list[bytes] | None] = {}

    # --- lookups ----------------------------------------------------------------------------------

    def directory_of(self, key: TopicPartition) -> str | None:
        """Return the id of a replica's log dir; None if the replica is deleted or unknown."""
        place = self._places.get(key)
        return None if place is None or place.directory_id == DELETED else place.directory_id

    def on(self, directory_id: str) -> list[TopicPartition]:
        """List the replicas that are in a log dir."""
        return sorted(k for k, place in list(self._places.items()) if place[1] == directory_id)

    # --- changes ----------------------------------------------------------------------------------

    def note(self, key: TopicPartition, directory_id: str | None) -> None:
        """Remember the log dir that now has a replica; None means that the replica is deleted."""
        place = self._places.get(key)
        wanted = DELETED if directory_id is None else directory_id
        if (place.directory_id if place is not None else DELETED) == wanted:
            return
        with self._lock:
            self._sequence += 1
            self._places[key] = Place(self._sequence, wanted)
            self._write_later(line_of(key, self._places[key]))

    def _write_later(self, line: bytes) -> None:
        for pending in self._pending.values():
            if pending is not None:
                pending.append(line)

    # --- the files --------------------------------------------------------------------------------

    def load(
        self,
        log_dirs: Iterable[LogDir],
        *,
        is_a_dir_bad: bool,
        turn: Callable[[], object] = lambda: None,
    ) -> list[str]:
        """Read the catalogs of log dirs, keep each replica's newest entry, and return warnings.

        Args:
            turn: a function that is called between parts of the work, to let other threads run.

        Raises:
            LogDirError: this process lacks a resource, such as descriptors or memory; the error is
                retriable.
        """
        damaged = []
        read: dict[bytes, CatalogFile] = {}
        of = _read_all(list(log_dirs))
        for path, data in of.items():
            if data is not None and data not in read:
                read[data] = decode_catalog(data, turn)
            if data is not None and not (read[data].is_whole or read[data].is_torn):
                damaged.append(f"{path}/{CATALOG_NAME}")
        with self._lock:
            if self._take_newer(read.values()):  # other log dirs lack the new entries
                self._pending = dict.fromkeys(self._pending)
            self.is_known |= not is_a_dir_bad or any(found.is_whole for found in read.values())
            newest = max((place.sequence for place in self._places.values()), default=0)
            self._sequence = max(self._sequence, newest)
            for path, data in of.items():
                found = read[data] if data is not None else CatalogFile({}, 0, is_whole=False)
                is_same = found.is_whole and found.places == self._places
                self._pending[path] = [] if is_same else None
                self._line_counts[path] = found.line_count
        done = "it is rewritten" if self.is_known else LEFT
        return [f"{path}: damaged; {done}" for path in damaged]

    def _take_newer(self, read: Iterable[CatalogFile]) -> bool:
        """Add the entries that are newer than the known entries; return whether there were any."""
        is_any = False
        for found in read:
            for key, place in found.places.items():
                if place.sequence > self._places.get(key, Place(-1, "")).sequence:
                    self._places[key], is_any = place, True
        return is_any

    def _kept(self) -> dict[TopicPartition, Place]:
        return {key: place for key, place in self._places.items() if place[1] != DELETED}

    def write(self, log_dir: LogDir) -> None:
        """Bring the catalog file of one log dir up to date, durably.

        Raises:
            OSError: the disk failed; the next call rewrites the file.
        """
        with self._writing.setdefault(log_dir.path, threading.Lock()):
            self._write(log_dir)

    def _write(self, log_dir: LogDir) -> None:
        path = log_dir.path
        with self._lock:
            pending = self._pending.get(path)
            if not self.is_known or (pending is not None and not pending):
                return
            line_count = self._line_counts.get(path, 0) + len(pending or ())
            kept = self._kept()
            if pending is not None and line_count > 2 * len(kept) + SPARE_LINES:
                pending = None
            self._pending[path] = []
            self._line_counts[path] = len(kept) + 1 if pending is None else line_count
        try:
            if pending is None:
                write_catalog(path, kept, log_dir.replacing)
            else:
                append_catalog(path, pending)
        except BaseException:
            with self._lock:
                self._pending[path] = None
            raise

    def write_at_once(self, log_dirs: Iterable[LogDir], count: int | None = None) -> None:
        """Bring the catalog files of log dirs up to date, in parallel.

        If a log dir hangs, this function waits only until the log dir is SUSPECT. The next
        checkpoint writes what this call did not write.

        Args:
            count: how many of the working log dirs to bring up to date; None means all.
        """
        from logstore.store.dirs.parallel import for_each

        def write(log_dir: LogDir) -> None:
            try:
                with call(log_dir.path, SYNCING):
                    log_dir.check_place()
                    log_dir.ballast.use(partial(self.write, log_dir))
            except OSError as error:
                if verdict_of(error) is not Verdict.FULL:
                    log_dir.failed(error)

        serving = [log_dir for log_dir in log_dirs if not log_dir.is_refusing][:count]
        with suppress(MemoryError):
            for_each(
                serving,
                write,
                name="logstore-catalog",
                is_given_up=lambda log_dir: log_dir.is_suspect,
            )


def _read_all(log_dirs: Sequence[LogDir]) -> dict[str, bytes | None]:
    """Read the catalog files of log dirs in parallel; a dir that fails or hangs goes offline."""
    from logstore.store.dirs.parallel import for_each

    of: dict[str, bytes | None] = {}

    def read(log_dir: LogDir) -> None:
        try:
            with call(log_dir.path, SYNCING):
                of[log_dir.path] = read_catalog(log_dir.path)
        except OSError as error:
            refuse_shortage(error, log_dir.path)
            if verdict_of(error) is Verdict.GONE:
                log_dir.take_offline(f"its catalog cannot be read: {reason_of(error)}")
            else:
                of[log_dir.path] = None

    outcomes = for_each(
        log_dirs, read, name="logstore-catalog", is_given_up=lambda log_dir: log_dir.is_suspect
    )
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
        if not outcome.is_finished:
            outcome.item.take_offline(f"it hangs during the start: {outcome.item.reason}")
    return {d.path: of[d.path] for d in log_dirs if d.path in of and not d.is_offline}
