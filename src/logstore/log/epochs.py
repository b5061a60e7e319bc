"""Remember at which offset each leader epoch began (`leader-epoch-checkpoint`).

Invariant: epochs and start offsets both increase strictly. The batches contain the same epochs as
the file. So if the file is damaged or missing, it is rebuilt from the batches.

The file also says to which log it belongs, and where the log starts. A new log start is first
written into this file, and then into `partition.metadata`. So if `partition.metadata` has a later
log start than this file, one of the two files is outdated, or belongs to another log (see
`log_start`).
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import nullcontext
from typing import Any, NamedTuple

from logstore.disk import files
from logstore.disk.documents import checkpoint, fields
from logstore.errors import CorruptCheckpointError, UnsupportedFormatError

FILE_NAME = "leader-epoch-checkpoint"


class OfLog(NamedTuple):
    """The log that a file belongs to, and where that log starts.

    Attributes:
        log_start_offset: the log start; None if only `partition.metadata` has the log start.
        is_sparse: whether offsets may be missing in the log's segments. `partition.metadata` has
            the same flag.
    """

    topic: str
    partition: int
    topic_id: bytes
    log_start_offset: int | None
    is_sparse: bool = False


class LeaderEpochs:
    """The (epoch, start offset) pairs of one log.

    Attributes:
        of_log: the log to which the file on the disk belongs; None if an earlier version wrote the
            file.
    """

    def __init__(
        self,
        directory: str,
        entries: list[tuple[int, int]] | None = None,
        of_log: OfLog | None = None,
    ) -> None:
        self._path = f"{directory}/{FILE_NAME}"
        self.entries = entries or []
        self.of_log = of_log

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries})"

    @property
    def latest(self) -> int:
        """The latest recorded epoch, or -1 if no epoch is recorded."""
        return self.entries[-1][0] if self.entries else -1

    def note(self, epoch: int, start_offset: int) -> bool:
        """Remember the epoch of a batch that begins at an offset; return whether the epoch is new.

        If an earlier entry begins at or after the start of the batch, a truncation or a power cut
        has removed the records of that entry. So the entry is removed, too.
        """
        if self.entries and epoch <= self.entries[-1][0]:
            return False
        kept = [entry for entry in self.entries if entry[1] < start_offset]
        self.entries = [*kept, (epoch, start_offset)]
        return True

    def truncate_to(self, end_offset: int) -> None:
        """Forget the epochs that began at or after the offset of a truncation."""
        self.entries = [entry for entry in self.entries if entry[1] < end_offset]

    def start_at(self, log_start_offset: int) -> None:
        """Forget the epochs that end before the log start.

        The epoch that contains the log start now begins at the log start.
        """
        starts = [start for _, start in self.entries]
        first = max(bisect_right(starts, log_start_offset) - 1, 0)
        kept = self.entries[first:]
        if kept and kept[0][1] < log_start_offset:
            kept = [(kept[0][0], log_start_offset), *kept[1:]]
        self.entries = kept

    def at(self, offset: int) -> int:
        """Return the epoch of the record at an offset; -1 if all epochs begin after the offset."""
        number = bisect_right([start for _, start in self.entries], offset)
        return self.entries[number - 1][0] if number else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest recorded epoch <= `epoch`, and its end offset (KIP-101)."""
        number = bisect_right([known for known, _ in self.entries], epoch)
        if number == 0:
            return -1, -1
        end = self.entries[number][1] if number < len(self.entries) else log_end_offset
        return self.entries[number - 1][0], end

    def write(self, of_log: OfLog, guard: files.Guard = nullcontext) -> None:
        """Replace the file durably. Raises OSError, and any error that `guard` raises."""
        document = {
            "version": checkpoint.VERSION,
            "kind": FILE_NAME,
            "topic": of_log.topic,
            "partition": of_log.partition,
            "topic_id": of_log.topic_id.hex(),
            "log_start_offset": of_log.log_start_offset,
            "epochs": [list(entry) for entry in self.entries],
            "sparse_offsets": of_log.is_sparse,
        }
        checkpoint.write_document(self._path, document, guard)
        self.of_log = of_log

    @classmethod
    def read(cls, directory: str) -> LeaderEpochs | None:
        """Read the file; return None if the file does not exist.

        Raises:
            CorruptCheckpointError: the file is damaged, or a field is missing or wrong.
            UnsupportedFormatError: a later version wrote the file.
        """
        path = f"{directory}/{FILE_NAME}"
        document = checkpoint.read_document(path, files.LIST_BYTES_MAX)
        if document is None:
            return None
        try:
            fields.check_kind(document, FILE_NAME)
            return cls(directory, _entries(document), _of_log(document))
        except fields.WRONG as error:
            raise CorruptCheckpointError(
                path=path, position=0, reason=fields.told(error)
            ) from error

    @classmethod
    def read_or_reason(cls, directory: str) -> tuple[LeaderEpochs | None, str]:
        """Read the file, or return the reason why the file cannot be used. Raises OSError."""
        try:
            return cls.read(directory), ""
        except (CorruptCheckpointError, UnsupportedFormatError) as error:
            return None, str(error)


def _entries(document: dict[str, Any]) -> list[tuple[int, int]]:
    """Read the (epoch, start offset) pairs; both numbers must rise from each pair to the next.

    Raises one of the errors in `fields.WRONG` if the document is wrong.
    """
    entries: list[tuple[int, int]] = []
    for epoch, start in fields.rows(document["epochs"], "epochs", 2):
        fields.number(epoch, "an epoch", fields.EPOCH_MAX, low=-1)
        fields.number(start, "the first offset of an epoch", fields.OFFSET_MAX)
        if entries and not (epoch > entries[-1][0] and start > entries[-1][1]):
            raise ValueError(
                f"epochs and their offsets must rise, but [{epoch}, {start}] follows "
                f"{list(entries[-1])}"
            )
        entries.append((epoch, start))
    return entries


def _of_log(document: dict[str, Any]) -> OfLog | None:
    """Read the log to which the file belongs. Raises one of the errors in `fields.WRONG`."""
    if "kind" not in document:
        return None
    key = fields.partition_key(document["topic"], document["partition"])
    start = document["log_start_offset"]
    if start is not None:
        fields.number(start, "log_start_offset", fields.OFFSET_MAX)
    is_sparse = fields.flag(document.get("sparse_offsets", False), "sparse_offsets")
    return OfLog(*key, fields.id_bytes(document["topic_id"], "topic_id"), start, is_sparse)
