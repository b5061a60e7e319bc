"""Step through a segment's batches from an offset on; check each batch at its first read.

An index entry is compared with the batch at the entry's position. If the index entry is wrong, the
index is rebuilt, but only once. Damage before the wanted offset is skipped. Damage at the wanted
offset raises an error.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.disk import files
from logstore.disk.calls import call
from logstore.errors import (
    CorruptRecordBatchError,
    LogStoreError,
    RecordExpansionError,
    UnsupportedFormatError,
)
from logstore.format import expansion_lease as lease
from logstore.format import layouts
from logstore.format.batch import RecordBatch
from logstore.format.batch_parts import BatchHeader
from logstore.format.prefix import (
    BATCH_BYTES_MIN,
    LENGTH_OVERHEAD_BYTES,
    PREFIX_BYTES,
    unpack_prefix,
)
from logstore.log.environment import LogEnvironment
from logstore.log.segments.search import find_batch, magic_of
from logstore.log.segments.segment import Block, Segment

# A read of one record caches one batch, or more batches that have at most this many bytes in all.
# A limit is needed, because small compressed batches may need much memory.
BLOCK_BYTES_MAX = 16 << 20

# A buffer, its position in the file, and for each batch its place in the buffer and its header.
Run = tuple["bytes | memoryview", int, list[tuple[int, BatchHeader]]]


def corrupt(segment: Segment, position: int, reason: str) -> CorruptRecordBatchError:
    """Make the error that reports damage at a position of a segment."""
    return CorruptRecordBatchError(path=segment.log_path, position=position, reason=reason)


# The errors that a decoder raises for a batch that it cannot decode.
UNDECODABLE = (ValueError, UnsupportedFormatError)


def unreadable(segment: Segment, position: int, error: Exception) -> LogStoreError:
    """Make the error for a whole batch that cannot be decoded, or that needs too much memory."""
    if isinstance(error, UnsupportedFormatError):
        return UnsupportedFormatError(**{**error.facts, "path": error.path or segment.log_path})
    if isinstance(error, RecordExpansionError):
        facts = {**error.facts, "path": segment.log_path, "position": position}
        return RecordExpansionError(**facts)
    return corrupt(segment, position, str(error))


class Cursor:
    """The position of a reader in a segment.

    At first, the reader skips batches before the wanted offset without a check. If the reader then
    meets an error, the cause may be a wrong header of a skipped batch. So the reader starts again,
    and now checks every batch.

    Attributes:
        offset: the wanted offset, which rises while records are read.
        position: where the next batch begins.
    """

    __slots__ = (
        "_expected",
        "_handle",
        "_start",
        "environment",
        "offset",
        "position",
        "segment",
    )

    def __init__(self, segment: Segment, offset: int, environment: LogEnvironment) -> None:
        self.segment = segment
        self.environment = environment
        self.offset = offset
        with call(segment.directory):
            self._handle = segment.handle(environment)
            self._seek()

    def _seek(self) -> None:
        segment = self.segment
        index = segment.offset_index(self.environment)
        entry = index.lookup(self.offset - segment.base_offset)
        self.position = index.positions[entry] if entry >= 0 else 0
        self._expected = segment.base_offset + (index.offsets[entry] if entry >= 0 else 0)
        head = files.read_up_to(self._handle.fd, PREFIX_BYTES, self.position)
        leads_to = unpack_prefix(head)[0] if len(head) == PREFIX_BYTES else -1
        is_gap = entry < 0 and leads_to > self._expected  # compaction removed the first batches
        if leads_to != self._expected and segment.index is None and not is_gap:
            segment.replace_indexes(self.environment)
            index = segment.offset_index(self.environment)
            entry = index.lookup(self.offset - segment.base_offset)
            self.position = index.positions[entry] if entry >= 0 else 0
            self._expected = segment.base_offset + (index.offsets[entry] if entry >= 0 else 0)
        # Where the walk without checks began; None after the walk has begun to check every batch.
        self._start: tuple[int, int] | None = (self.position, self._expected)

    def runs(self, window_bytes: int | None, *, zero_copy: bool = False) -> Iterator[Run]:
        """Yield verified batches, from the batch that contains `offset` to the segment's end.

        Args:
            window_bytes: how many bytes are read at once; None means the size that suits a scan.

        Raises:
            CorruptRecordBatchError: the batch with `offset` is damaged or missing.
            OSError: the disk failed.
        """
        segment, fd = self.segment, self._handle.fd
        read = self.environment.view if zero_copy else files.read_up_to
        need, scan_bytes = 0, layouts.WINDOW_BYTES
        while True:
            end_offset, end = segment.end_offset, segment.size_bytes
            if self.position >= end:
                # If all batches were checked, a sparse segment may end with missing offsets.
                if self.offset >= end_offset or (segment.is_sparse and self._start is None):
                    return
                self._resume(end, f"the batches end before offset {self.offset}")
                continue
            size = min(max(window_bytes or scan_bytes, need, PREFIX_BYTES), end - self.position)
            start = self.position
            with call(segment.directory):
                data = read(fd, size, start)
            look, at, need = memoryview(data), 0, 0
            if len(data) < size:  # the file was cut, so use the bytes that remain
                end = start + len(data)
            # `sound_run` takes wanted, undamaged batches; usually none is left for the loop below.
            bits = segment.verified_up_to(start + len(data))
            sound_run, scan_bytes = layouts.sound_run_of(data), layouts.scan_window_bytes(data)
            run, at, expected = sound_run(look, 0, self._expected, self.offset, start, bits)
            if run and self._may_be_misled(run[0][1], start):
                self._resume(start, "")
                continue
            if run:
                self.position, self.offset, self._expected = start + at, expected, expected
                self._start = None
                yield data, start, run
            while at + PREFIX_BYTES <= len(data):
                size = unpack_prefix(data, at)[1] + LENGTH_OVERHEAD_BYTES
                if not layouts.may_be_batch(data, at, size):
                    need = self._look_again(data, at, start, end)
                    break
                header = layouts.read_header(look, at)
                last_offset = header.last_offset
                if last_offset < self.offset and self._start is not None:
                    self._expected = last_offset + 1
                elif self._check(look, at, start + at, header):
                    self._expected = last_offset + 1
                    self.position = start + at + size
                    if last_offset >= self.offset:
                        self.offset, self._start = self._expected, None
                        yield data, start, [(at, header)]
                else:
                    break
                at += size
                self.position = start + at
            else:
                self._end_window(len(data), at, start, end)

    def _may_be_misled(self, header: BatchHeader, position: int) -> bool:
        """Check whether the wanted offset may be in a batch that was skipped without a check."""
        is_behind = header.base_offset > self.offset
        return is_behind and self._start is not None and self._start[0] != position

    def _fits(self, header: BatchHeader, position: int) -> bool:
        """Check whether a batch can follow a gap in the offsets; Kafka's compaction leaves gaps."""
        segment = self.segment
        if header.base_offset < self._expected or header.last_offset >= segment.end_offset:
            return False  # relative offsets must fit into the 32 bits of an index entry
        following = files.read_up_to(self._handle.fd, PREFIX_BYTES, position + header.size_bytes)
        return layouts.comes_before(header.last_offset, following)

    def _end_window(self, size_bytes: int, at: int, start: int, end: int) -> None:
        """Handle the last bytes of a window, which are too few for the prefix of a batch."""
        if at < size_bytes and start + size_bytes >= end:
            self._resume(start + at, f"only {size_bytes - at} bytes are left")
        elif not size_bytes:
            raise corrupt(self.segment, start, "the file is shorter than its batches")

    def _look_again(self, data: bytes | memoryview, at: int, start: int, end: int) -> int:
        """Return the size in bytes of the whole batch at `at`, or 0 if damage was skipped."""
        size: int = unpack_prefix(data, at)[1] + LENGTH_OVERHEAD_BYTES
        if size >= BATCH_BYTES_MIN and len(data) < at + size <= end - start:
            return size
        self._resume(start + at, layouts.fault(data, at, None) or "no batch")
        return 0

    def _check(self, data: bytes | memoryview, at: int, position: int, header: BatchHeader) -> bool:
        """Verify a batch, but only once; if it is damaged, move the cursor and return False."""
        segment = self.segment
        if segment.is_verified(position) and header.base_offset == self._expected:
            return True
        reason = layouts.fault(data, at, self._expected)
        is_gap = reason is None and header.base_offset != self._expected
        if is_gap and (self._may_be_misled(header, position) or not self._fits(header, position)):
            reason = f"its base offset {header.base_offset} is not the expected offset"
        if reason is None:
            segment.mark_verified(position)
            return True
        is_lie = header.magic == layouts.KAFKA_MAGIC and layouts.fault(data, at, None) is None
        self._resume(position, reason, header if is_lie else None)
        return False

    def _resume(self, position: int, reason: str, liar: BatchHeader | None = None) -> None:
        """If `offset` is after the damage, move the cursor past the damage; otherwise raise.

        If batches were skipped without a check, begin the walk again, and now check every batch.

        Args:
            liar: the header of the damaged batch if only its base offset is wrong; otherwise None.
        """
        if self._start is not None:
            (self.position, self._expected), self._start = self._start, None
            return
        segment, least = self.segment, self._expected
        if liar is not None:
            least += liar.last_offset - liar.base_offset + 1
        found = self._find_behind(position, least)
        if found is not None and liar is not None and not self._is_vouched_for(found, liar, least):
            found = self._find_behind(found[0], found[1] + 1)
        if found is None or found[1] > self.offset or found[0] <= position:
            raise corrupt(segment, position, reason)
        self.position, self._expected = found

    def _is_vouched_for(self, found: tuple[int, int], liar: BatchHeader, least: int) -> bool:
        """Check that `liar` has a wrong base offset, and that the next batch has a right one.

        One of two proofs is enough. First proof: each of the next two batches contradicts the base
        offset of `liar`. Second proof: no offset is missing if `liar` begins at the expected
        offset.
        """
        if not self.segment.is_sparse or liar.base_offset < self._expected:
            return True
        fd, place = self._handle.fd, found[0]
        header = layouts.read_header(files.read_up_to(fd, layouts.HEADER_BYTES_MAX, place), 0)
        following = files.read_up_to(fd, PREFIX_BYTES, place + header.size_bytes)
        if len(following) < PREFIX_BYTES:
            return False
        next_offset: int = unpack_prefix(following)[0]
        is_dense = found[1] == least and next_offset == header.last_offset + 1
        return is_dense or header.last_offset < next_offset <= liar.last_offset

    def _find_behind(self, position: int, least: int) -> tuple[int, int] | None:
        """Find the first batch after damage whose base offset is at least `least`.

        Return the position and the base offset of this batch.
        """
        fd, end = self._handle.fd, self.segment.size_bytes
        magic = magic_of(fd)
        found = find_batch(fd, position, end, magic)
        while found is not None and found[1] < least:
            # The base offset of this batch is wrong, or the batch does not belong here.
            # So the batch is part of the damage.
            place = found[0]
            if place == position:
                head = files.read_up_to(fd, PREFIX_BYTES, place)
                place += unpack_prefix(head)[1] + LENGTH_OVERHEAD_BYTES
            position = place
            found = find_batch(fd, position, end, magic)
        return found


def batches(
    segment: Segment,
    offset: int,
    end_offset: int,
    environment: LogEnvironment,
    *,
    window_bytes: int | None,
    zero_copy: bool = False,
) -> Iterator[RecordBatch]:
    """Yield, as batches, the records in `offset..end_offset` from one segment.

    If the thread has a lease of memory for decompressed batches (`expansion_lease`), it returns
    this memory before each read of the disk. So a caller with a lease must drop each batch before
    it asks for the next batch.
    """
    cursor = Cursor(segment, offset, environment)
    bound = environment.record_expansion_bytes_max
    for data, start, run in cursor.runs(window_bytes, zero_copy=zero_copy):
        decode = layouts.run_decoder_of(data, run[0][0], segment.log_path, bound)
        is_last = run[-1][1].last_offset + 1 >= end_offset
        if is_last:  # do not decode batches after the range
            run = [(at, header) for at, header in run if header.base_offset < end_offset]
        bounds = offset, end_offset
        yield from _wanted(segment, start, decode(data, run), run, bounds)
        lease.settle()  # no object refers to the decoded batches any more
        if is_last:
            return


def _wanted(
    segment: Segment,
    start: int,
    decoded: Iterator[RecordBatch],
    run: list[tuple[int, BatchHeader]],
    bounds: tuple[int, int],
) -> Iterator[RecordBatch]:
    """Yield the records of a run that are within the bounds.

    Args:
        start: where the window that contains the run begins in the file.
        decoded: the decoded batches of the run. The caller must keep no reference to a batch.
        bounds: the first offset, and the offset after the last.
    """
    offset, end_offset = bounds
    for at, header in run:
        try:
            batch = next(decoded)
        except UNDECODABLE as error:
            lease.settle()
            raise unreadable(segment, start + at, error) from error
        if header.base_offset < offset or header.last_offset >= end_offset:
            batch = batch.slice(batch.index_of(offset), batch.index_of(end_offset))
        if batch.count:
            yield batch


def load_block(segment: Segment, entry: int, offset: int, environment: LogEnvironment) -> Block:
    """Read and decode the batches between two index entries, to get the record at `offset`."""
    end_offset = segment.end_offset
    index = segment.offset_index(environment)
    if entry + 1 < len(index.offsets):
        end_offset = segment.base_offset + index.offsets[entry + 1]
        end_position = index.positions[entry + 1]
    else:
        end_position = segment.size_bytes
    start = index.positions[entry] if entry >= 0 else 0
    first = segment.base_offset + (index.offsets[entry] if entry >= 0 else 0)
    bound = environment.record_expansion_bytes_max
    try:
        cursor = Cursor(segment, first, environment)
        found: list[RecordBatch] = []
        weight = 512
        for data, _, run in cursor.runs(end_position - start):
            decode = layouts.decoder_of(data, run[0][0], segment.log_path, bound)
            for at, header in run:
                found.append(decode(data, at, header))
                weight += 512 + found[-1].held_bytes
                if weight > BLOCK_BYTES_MAX and len(found) > 1:
                    raise ValueError("too much to hold at once")
            if cursor.offset >= end_offset:
                break
    except (CorruptRecordBatchError, ValueError):
        # The block is damaged, or its batches need too much memory.
        # So return only the batch that contains the offset, if this batch is undamaged.
        for data, begin, run in Cursor(segment, offset, environment).runs(64 * 1024):
            decode = layouts.decoder_of(data, run[0][0], segment.log_path, bound)
            try:
                return Block([decode(data, *run[0])], offset + 1)
            except UNDECODABLE as error:
                raise unreadable(segment, begin + run[0][0], error) from error
        raise
    block = Block(found, cursor.offset)
    if segment.offset_index(environment) is not index:
        return block  # after a rebuild, the index has other entry numbers
    key = max(entry, 0)
    environment.blocks.drop(segment.cached, key)
    environment.blocks.put(segment.cached, key, block, weight)
    return block
