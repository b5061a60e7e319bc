"""Hold some batches of a segment in memory while compaction looks at them.

The checksum of each batch is checked in the very bytes that are used: what is written anew gets a
new checksum, which would hide damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logstore.errors import CorruptRecordBatchError, RecordExpansionError, UnsupportedFormatError
from logstore.format import layouts, subsets
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.steps import Steps
from logstore.format.subsets import Group

# Records that are handled together: enough to share the cost of a NumPy call.
CHUNK_RECORDS = 4096
CHUNK_BYTES = 1 << 20
CHUNK_BATCHES = 32

Place = tuple[int, BatchHeader]


class Window(NamedTuple):
    """Hold whole batches of one layout that follow one another in a file.

    Attributes:
        path: the file.
        position: where `data` begins in it.
        data: bytes of the file, with the batches.
        run: the place of each batch in `data`, and its header.
        expansion_bytes_max: memory that one batch may need.
    """

    path: str
    position: int
    data: Buffer
    run: Sequence[Place]
    expansion_bytes_max: int

    def chunks(self) -> Iterator[list[Place]]:
        """Divide the batches into chunks, each batch checked.

        Raises:
            CorruptRecordBatchError: the bytes of a batch are not those that were written.
        """
        look = memoryview(self.data)
        chunk: list[Place] = []
        records = size_bytes = 0
        for at, header in self.run:
            reason = layouts.fault(look, at, None)
            if reason is not None:
                raise self._corrupt(at, reason)
            chunk.append((at, header))
            records, size_bytes = records + header.record_count, size_bytes + header.size_bytes
            if records >= CHUNK_RECORDS or size_bytes >= CHUNK_BYTES or len(chunk) == CHUNK_BATCHES:
                yield chunk
                chunk, records, size_bytes = [], 0, 0
        if chunk:
            yield chunk

    def groups_of(self, places: list[Place], *, checks_headers: bool) -> Steps[list[Group]]:
        """Decode batches, each with at least one record: together if that is possible.

        Raises:
            CorruptRecordBatchError: a batch contradicts itself.
            RecordExpansionError: a batch needs more memory than allowed.
            UnsupportedFormatError: a codec's library is not installed.
        """
        if len(places) > 1:
            try:
                return [(yield from self._group(places, checks_headers))]
            except ValueError:  # one of them is damaged, or they are too large together
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
