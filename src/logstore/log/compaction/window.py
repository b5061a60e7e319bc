"""Hold some batches of a segment in memory while compaction reads them.

Compaction checks the checksum of a batch on exactly the bytes from which it makes the new batch.
If other bytes were used, damage after the check would go unnoticed, because the new batch would
have a valid checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from logstore.errors import CorruptRecordBatchError, RecordExpansionError, UnsupportedFormatError
from logstore.format import layouts, subsets
from logstore.format.batch_parts import BatchHeader
from logstore.format.steps import Steps
from logstore.format.subsets import Group

# About this many records are handled together, so that they share the cost of a NumPy call.
CHUNK_RECORDS = 4096
CHUNK_BYTES = 1 << 20
CHUNK_BATCHES = 256
STEP_BATCHES = 64  # checking this many small batches takes about 0.1 ms

Place = tuple[int, BatchHeader]


class Window(NamedTuple):
    """Contiguous, whole batches of a file, all in the same layout.

    Attributes:
        path: the path of the file.
        position: where `data` begins in the file.
        data: the bytes of the batches.
        first_offset: the lowest base offset that the first batch can have. In the columnar layout,
            this is exactly the base offset of the first batch.
        expansion_bytes_max: the most memory that a decoded batch is allowed to need.
    """

    path: str
    position: int
    data: bytes
    first_offset: int
    expansion_bytes_max: int

    def chunks(self) -> Iterator[list[Place]]:
        """Check the batches, and yield them in chunks; an empty chunk only lets the caller pause.

        Raises:
            CorruptRecordBatchError: a batch is damaged.
        """
        look, end, offset = memoryview(self.data), len(self.data), self.first_offset
        sound_header = layouts.sound_header_of(self.data, 0)
        chunk: list[Place] = []
        at = records = 0
        began = 0
        while at < end:
            header = sound_header(look, at, end, offset)
            if header is None:
                raise self._corrupt(
                    at, layouts.fault(look, at, offset) or "the batch is incomplete"
                )
            chunk.append((at, header))
            records += header.record_count
            at, offset = at + header.size_bytes, header.last_offset + 1
            is_full = records >= CHUNK_RECORDS or at - began >= CHUNK_BYTES
            if is_full or len(chunk) == CHUNK_BATCHES:
                yield chunk
                chunk, records, began = [], 0, at
            elif not len(chunk) % STEP_BATCHES:
                yield []
        if chunk:
            yield chunk

    def groups_of(self, places: list[Place], *, checks_headers: bool) -> Steps[list[Group]]:
        """Decode batches that have at least one record each; decode them in one group if possible.

        Raises:
            CorruptRecordBatchError: the fields of a batch contradict each other.
            RecordExpansionError: a batch needs more memory than allowed.
            UnsupportedFormatError: a codec's library is not installed.
        """
        if len(places) > 1:
            try:
                return [(yield from self._group(places, checks_headers))]
            except ValueError:  # a batch is damaged, or the whole group needs too much memory
                pass
        found = []
        for at, header in places:
            try:
                found.append((yield from self._group([(at, header)], checks_headers)))
            except RecordExpansionError as error:
                facts = {**error.facts, "path": self.path, "position": self.position + at}
                raise RecordExpansionError(**facts) from error
            except ValueError as error:
                raise self._corrupt(at, str(error)) from error
        return found

    def _group(self, places: list[Place], checks_headers: bool) -> Steps[Group]:
        try:
            return (
                yield from subsets.group_of(
                    self.data, places, self.expansion_bytes_max, checks_headers=checks_headers
                )
            )
        except UnsupportedFormatError as error:
            raise UnsupportedFormatError(
                path=self.path, version=error.version, reason=error.reason
            ) from error

    def _corrupt(self, at: int, reason: str) -> CorruptRecordBatchError:
        return CorruptRecordBatchError(path=self.path, position=self.position + at, reason=reason)
