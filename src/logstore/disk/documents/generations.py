"""Number the states of a log dir, so that a restored backup or an old snapshot is recognised.

    log-dir-generation    {"version", "kind", "directory_id", "starts": [[number, id, step], ...],
                           "doubts": [[topic, partition, end_offset], ...],
                           "doubted_at": [number, id, step] or null, "is_accepted": true or false}
    log-dir-witness       {"version", "kind", "directory_id",
                           "seen": {directory_id: [number, id, step, [[topic, partition,
                                                   recovery_point], ...] or null]},
                           "paths": {directory_id: path}, "unsure": [directory_id, ...]}

A log dir's *generation* has three parts: the number of the start that owns the dir, the random id
of this start, and a step. The step grows with each checkpoint that changes an offset, and with an
orderly close. When a log dir has durably written its own generation, the other log dirs record this
generation. So even after a crash, no other log dir has recorded a later generation than the log dir
itself. If another log dir has recorded a later generation, the log dir is an old copy.

`paths` has the last known path of each other log dir, so that a user can name a missing log dir by
its path. Nothing else depends on `paths`, and a file without `paths` can be read. `unsure` has the
ids of missing log dirs. A missing log dir may have replicas that no catalog lists, because the
store was killed while the dir worked.

If the log dir is an old copy, `doubts` lists its replicas that are open for reading only. Each
replica stays in `doubts` until the user promotes or deletes it. The first promotion or deletion of
a doubted replica sets `is_accepted`. After this decision, this copy counts as the log dir, and the
disk with the later state counts as an old copy. Until `is_accepted` is set, the generation does not
change, so the disk with the later state is recognised if it comes back. Files of earlier versions
of this library have no key `is_accepted`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

from logstore.disk import files
from logstore.disk.documents import checkpoint, fields
from logstore.disk.documents.meta_properties import is_id, new_id
from logstore.errors import CorruptCheckpointError, UnsupportedFormatError
from logstore.names import TopicPartition

GENERATION_NAME = "log-dir-generation"
WITNESS_NAME = "log-dir-witness"

# How many of its own starts a log dir remembers; each takes about 45 bytes of the file.
# The starts show whether the history of the log dir has forked.
STARTS_KEPT = 200
NUMBER_MAX = fields.NUMBER_MAX
NOTHING: Mapping[TopicPartition, int] = {}


class Generation(NamedTuple):
    """Identify one state of a log dir: the number and the id of a start, and a step."""

    number: int
    start_id: str
    step: int

    def __str__(self) -> str:
        return f"{self.number}.{self.step}"


class Seen(NamedTuple):
    """What was recorded about a log dir: its generation, and perhaps its recovery points.

    Attributes:
        offsets: the recovery points; None if only the generation is recorded.
    """

    generation: Generation
    offsets: Mapping[TopicPartition, int] | None = None


class DirGeneration:
    """The generation of one log dir, and the generations of other log dirs that it has recorded.

    Threads: the keeper, or the thread that opens or closes the log dir, writes under a lock. Any
    thread may read the tuples and dicts, because they are replaced as a whole.

    Attributes:
        starts: the starts that the file of the log dir lists; the oldest start comes first.
        doubts: the replicas that must not be written. The value is an end offset that the replica's
            log once had; -1 if none is known.
        doubted_at: the generation that other log dirs had recorded for this dir when the doubts
            last changed.
        is_accepted: the user accepted the old copy as the log dir; `doubts` has the replicas that
            are still in doubt.
        old: why the log dir is an old copy, or why replicas are still in doubt; otherwise "".
        is_taken_in: the user gave up the log dir, and now adds it again in its present state. The
            generations that other log dirs have recorded for this log dir are ignored.
        is_all_in_doubt: all replicas in the log dir are in doubt, not only those in `doubts`.
        found: the replicas that were found to be in doubt when the log dir was loaded.
        held: the generation that the log dir had in this process before it went offline.
        is_known_to_process: this process has already had this log dir open.
        is_readable: False if the file is missing or damaged, so that the dir's age is unknown.
        offsets: the recovery points on the disk when the generation was written.
        paths: the last known paths of the other log dirs; the key is the directory id.
        unsure: the ids of log dirs that may have replicas without a catalog entry.
    """

    def __init__(
        self,
        dir_path: str,
        check: Callable[[], None] = lambda: None,
        guard: files.Guard = nullcontext,
    ) -> None:
        self.directory_id = ""
        self.starts: tuple[Generation, ...] = ()
        self.doubts: dict[TopicPartition, int] = {}
        self.doubted_at: Generation | None = None
        self.is_accepted = False
        self.is_all_in_doubt = False
        self.is_taken_in = False
        self.held: Seen | None = None
        self.is_known_to_process = False
        self.seen: dict[str, Seen] = {}
        self.paths: dict[str, str] = {}
        self.unsure: frozenset[str] = frozenset()
        self.old = ""
        self.found: dict[TopicPartition, int] = {}
        self.is_readable = False
        self.offsets: Mapping[TopicPartition, int] = {}
        self._path = os.path.join(dir_path, GENERATION_NAME)
        self._witness_path = os.path.join(dir_path, WITNESS_NAME)
        self._check, self._guard = check, guard
        self._lock = threading.Lock()

    @property
    def current(self) -> Generation | None:
        """The generation on the disk; None if the file is damaged or has no generation."""
        return self.starts[-1] if self.starts else None

    @property
    def is_frozen(self) -> bool:
        """Whether the dir keeps its generation, as an old copy that the user has not accepted."""
        return bool(self.old or self.doubts) and not self.is_accepted

    def is_behind(self, seen: Generation) -> bool:
        """Check whether `seen` is later than this dir's generation, or is from another history."""
        if not self.starts:
            return False
        if seen.number > self.starts[-1].number:
            return True
        for start in self.starts:
            if start.number == seen.number:
                return start.start_id != seen.start_id or start.step < seen.step
        return False  # the recorded start is older than all starts that this log dir remembers

    def has_moved_on(self) -> bool:
        """Check whether another process has owned the log dir since this process released it."""
        return (
            self.held is not None
            and self.current is not None
            and self.current.number > self.held.generation.number
            and not self.is_behind(self.held.generation)
        )

    def hold(self, before: DirGeneration) -> None:
        """Take over the generation that the log dir had in this process before it went offline."""
        if before.is_frozen:
            self.held = before.held
        elif before.current is not None:
            self.held = Seen(before.current, before.offsets)
        self.is_known_to_process = True

    # --- the files --------------------------------------------------------------------------------

    def load(self) -> list[str]:
        """Read both files of this log dir; return a warning per unusable file. Raises OSError."""
        warnings = []
        try:
            document = self._read(self._path, GENERATION_NAME)
            if document is not None:
                self.starts = tuple(_generation(row) for row in document["starts"])
                self.doubts = _offsets(document["doubts"])
                at = document["doubted_at"]
                self.doubted_at = None if at is None else _generation(at)
                accepted = document.get("is_accepted", False)
                self.is_accepted = fields.flag(accepted, "is_accepted") and bool(self.doubts)
                self.is_readable = bool(self.starts)
        except _NOT_BELIEVED as error:
            self.starts, self.doubts, self.doubted_at = (), {}, None
            self.is_accepted = False
            warnings.append(f"{self._path} is not used: {_told(error)}")
        try:
            document = self._read(self._witness_path, WITNESS_NAME)
            if document is not None:
                self.seen = {_id(id_): _seen(row) for id_, row in document["seen"].items()}
                self.paths = _paths(document)
                self.unsure = _ids(document)
        except _NOT_BELIEVED as error:
            self.seen, self.paths, self.unsure = {}, {}, frozenset()
            warnings.append(f"{self._witness_path} is not used: {_told(error)}")
        return warnings

    def _read(self, path: str, kind: str) -> dict[str, Any] | None:
        document = checkpoint.read_document(path, files.LIST_BYTES_MAX)
        if document is None:
            return None
        if "kind" not in document:
            raise ValueError("the field 'kind' is missing")
        fields.check_kind(document, kind, self.directory_id)
        return document

    def begin(
        self,
        above: Generation | None,
        offsets: Mapping[TopicPartition, int],
        doubts: Mapping[TopicPartition, int] = NOTHING,
    ) -> None:
        """Write the generation of a new start, durably. Raises OSError.

        Args:
            above: the newest generation that other log dirs have recorded for this dir.
            doubts: the replicas that are still in doubt, if the dir is an accepted old copy.
        """
        with self._lock:
            starts = self._with_next(above)
            self._write(starts[-1:] if self.is_taken_in else starts, dict(doubts))
            self.is_readable, self.offsets, self.found = True, offsets, {}
            self.is_all_in_doubt = self.is_taken_in = False
            if not doubts:
                self.old = ""

    def _with_next(self, above: Generation | None) -> tuple[Generation, ...]:
        last = max(self.starts[-1].number if self.starts else 0, above.number if above else 0)
        return (*self.starts, Generation(last + 1, new_id(), 0))

    def step(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Durably advance the generation's step, after the recovery points of the log dir changed.

        Raises:
            OSError: the disk failed; the disk has the new or the previous generation.
        """
        with self._lock:
            if self.is_frozen:
                return
            if not self.starts:
                self._write((Generation(1, new_id(), 0),), self.doubts)
            else:
                last = self.starts[-1]
                self._write((*self.starts[:-1], last._replace(step=last.step + 1)), self.doubts)
            self.offsets = offsets

    def doubt(self, doubts: Mapping[TopicPartition, int], at: Generation | None) -> None:
        """Write durably which replicas of an old copy are in doubt. Raises OSError."""
        with self._lock:
            if (self.doubts, self.doubted_at, self.is_accepted) != (doubts, at, False):
                self.doubted_at, self.is_accepted = at, False
                self._write(self.starts, dict(doubts))
            self.found, self.is_all_in_doubt = {}, False

    def settle(self, key: TopicPartition, above: Generation | None) -> None:
        """Durably remove a replica from the doubts; the first removal begins a new generation.

        Raises:
            OSError: the disk failed; the doubt is still recorded.
        """
        with self._lock:
            doubts = {**self.found, **self.doubts}
            doubts.pop(key, None)
            # The user accepts this copy as the log dir, so earlier generations are ignored.
            # The new generation has the next number; no number is skipped.
            # The reason: this process may be killed before other log dirs record the generation.
            # Then the disk with the later state starts with the same number and another id.
            # So this copy is still recognised as an old copy.
            starts = self.starts if self.is_accepted else self._with_next(above)[-1:]
            was_accepted, self.is_accepted = self.is_accepted, True
            try:
                self._write(starts, doubts)
            except BaseException:
                self.is_accepted = was_accepted
                raise
            self.found.pop(key, None)
            self.is_readable, self.is_all_in_doubt = True, False
            if not doubts:
                self.old = ""

    def _write(self, starts: tuple[Generation, ...], doubts: dict[TopicPartition, int]) -> None:
        self._check()
        starts = starts[-STARTS_KEPT:]
        document = {
            "version": checkpoint.VERSION,
            "kind": GENERATION_NAME,
            "directory_id": self.directory_id,
            "starts": [list(start) for start in starts],
            "doubts": _rows(doubts),
            "doubted_at": list(self.doubted_at) if doubts and self.doubted_at else None,
            "is_accepted": self.is_accepted and bool(doubts),
        }
        checkpoint.write_document(self._path, document, self._guard)
        self.starts, self.doubts = starts, doubts
        self.is_accepted = self.is_accepted and bool(doubts)

    def witness(
        self,
        seen: Mapping[str, Seen],
        paths: Mapping[str, str],
        unsure: frozenset[str] = frozenset(),
    ) -> None:
        """Durably write the state of other log dirs if it has changed. Raises OSError.

        Args:
            paths: the paths of other log dirs; the key is the directory id.
            unsure: the ids of log dirs that may have replicas without a catalog entry.
        """
        with self._lock:
            if (seen, paths, unsure) == (self.seen, self.paths, self.unsure):
                return
            self._check()
            document = {
                "version": checkpoint.VERSION,
                "kind": WITNESS_NAME,
                "directory_id": self.directory_id,
                "seen": _seen_rows(seen),
                "paths": dict(paths),
                "unsure": sorted(unsure),
            }
            checkpoint.write_document(self._witness_path, document, self._guard)
            self.seen, self.paths, self.unsure = dict(seen), dict(paths), unsure


_NOT_BELIEVED = (
    CorruptCheckpointError,
    UnsupportedFormatError,
    PermissionError,
    *fields.WRONG,
)


def last_paths(dir_path: str) -> dict[str, str]:
    """Read the last paths of the other log dirs; return {} if the file is unreadable."""
    path = os.path.join(dir_path, WITNESS_NAME)
    try:
        return _paths(checkpoint.read_document(path, files.LIST_BYTES_MAX) or {})
    except (OSError, *_NOT_BELIEVED):
        return {}


def _paths(document: Mapping[str, Any]) -> dict[str, str]:
    """Read `paths` of a witness file; version 0.1.0 wrote no `paths`. Raises `fields.WRONG`."""
    paths = document.get("paths", {})
    return {_id(id_): fields.text(path, "a path") for id_, path in paths.items()}


def _ids(document: Mapping[str, Any]) -> frozenset[str]:
    """Read `unsure` of a witness file; version 0.1.0 wrote no `unsure`."""
    written = document.get("unsure", [])
    if not isinstance(written, list):
        raise ValueError("unsure is not a list")
    return frozenset(_id(fields.text(one, "an id")) for one in written)


def _told(error: Exception) -> str:
    if isinstance(error, (CorruptCheckpointError, UnsupportedFormatError, PermissionError)):
        return str(error)
    return fields.told(error)


def _id(key: str) -> str:
    """Return a key of a witness file if it is the id of a log dir; otherwise raise ValueError."""
    if not is_id(key):
        raise ValueError(f"{key[:40]!r} is not the id of a log dir")
    return key


def _generation(row: Any) -> Generation:
    number, start_id, step = row
    if not is_id(start_id):
        raise ValueError("a generation has no id")
    last = NUMBER_MAX - 1
    number = fields.number(number, "the number of a start", last, low=1)
    return Generation(number, start_id, fields.number(step, "a step", last))


def _seen(row: Any) -> Seen:
    *generation, offsets = row
    return Seen(_generation(generation), None if offsets is None else _offsets(offsets))


def _seen_rows(seen: Mapping[str, Seen]) -> dict[str, list[object]]:
    return {
        id_: [*generation, None if offsets is None else _rows(offsets)]
        for id_, (generation, offsets) in seen.items()
    }


def _offsets(rows: Any) -> dict[TopicPartition, int]:
    return {
        fields.partition_key(topic, partition): fields.number(
            offset, "an offset", fields.OFFSET_MAX, low=-1
        )
        for topic, partition, offset in fields.rows(rows, "its rows", 3)
    }


def _rows(offsets: Mapping[TopicPartition, int]) -> list[list[object]]:
    return [[topic, partition, offset] for (topic, partition), offset in offsets.items()]
