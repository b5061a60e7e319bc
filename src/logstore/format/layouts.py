"""Choose the layout of a batch by the magic in its prefix, and call the module of this layout.

Kafka's layout needs the extra `kafka`. The module of Kafka's layout is imported only when the first
batch in this layout is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Union

import numpy as np

from logstore.errors import UnsupportedFormatError
from logstore.format import compression, sound
from logstore.format.batch import CODEC_MASK, RecordBatch
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import Buffer
from logstore.format.columnar.payload import Payload
from logstore.format.expansion import EXPANSION_BYTES_MAX
from logstore.format.prefix import (
    BATCH_BYTES_MIN,
    LENGTH_OVERHEAD_BYTES,
    PREFIX_BYTES,
    unpack_prefix,
)

if TYPE_CHECKING:
    from logstore.format.kafka.record_batch import KafkaPayload
    from logstore.format.kafka.sound import SoundHeaders

AnyPayload = Union[Payload, "KafkaPayload"]

KAFKA_MAGIC = 2
MAGIC_AT = 16
MAGICS = {"columnar": columnar.MAGIC, "kafka": KAFKA_MAGIC}
OLD_MESSAGE_BYTES_MIN = 26  # a message of Kafka's format v0 with offset and size; v1 is longer
# This many bytes of a batch are enough to read its header in any layout.
HEADER_BYTES_MAX = columnar.HEADER_BYTES
OVERHEAD_BYTES_MIN = 61  # the header of Kafka's layout
# How many bytes of a file to read at once: of columnar batches, and of Kafka's batches.
# The second number is larger, because Kafka's batches are decoded in groups.
WINDOW_BYTES = 1 << 20
ROWS_WINDOW_BYTES = 4 << 20

SoundHeader = Callable[..., BatchHeader | None]
Found = tuple[list[tuple[int, BatchHeader]], int, int]

_kafka: ModuleType | None = None


def kafka_layout(path: str = "") -> ModuleType:
    """Import the module of Kafka's layout.

    Raises:
        UnsupportedFormatError: a library that the module needs is not installed.
    """
    global _kafka  # noqa: PLW0603 - imported once
    if _kafka is None:
        try:
            from logstore.format.kafka import markers  # noqa: F401 - so no append has to import it
            from logstore.format.kafka import record_batch as kafka
        except ImportError as error:
            raise UnsupportedFormatError(
                path=path, version=KAFKA_MAGIC, reason=str(error)
            ) from error
        except OSError as error:
            raise compression.cannot_load("Kafka's layout", error) from error
        _kafka = kafka
    return _kafka


def layout_of(magic: int, path: str = "") -> ModuleType:
    """Return the module that reads batches with this magic.

    Raises:
        UnsupportedFormatError: the magic is unknown, or a library is not installed.
    """
    if magic == columnar.MAGIC:
        return columnar
    if magic == KAFKA_MAGIC:
        return kafka_layout(path)
    reason = ""
    if magic in (0, 1):
        reason = f"Kafka's message format v{magic}, from before 0.11, is not supported"
    raise UnsupportedFormatError(path=path, version=magic, reason=reason)


def layout_at(data: Buffer, position: int = 0) -> ModuleType:
    """Return the layout of the batch at `position`; if no batch is there, return columnar."""
    if len(data) > position + MAGIC_AT and data[position + MAGIC_AT] == KAFKA_MAGIC:
        return kafka_layout()
    return columnar


def sound_header_of(data: Buffer, position: int) -> SoundHeader:
    """Return the function that checks one batch; the batch at `position` decides the layout."""
    layout = layout_at(data, position)
    if layout is columnar:
        return sound.sound_header
    sound_header: SoundHeader = layout.sound_header
    return sound_header


def sound_run_of(data: Buffer) -> Callable[..., Found]:
    """Return the function that checks a window's batches; the first batch decides the layout."""
    layout = layout_at(data)
    if layout is columnar:
        return sound.sound_run
    sound_run: Callable[..., Found] = layout.sound_run
    return sound_run


def scan_window_bytes(data: Buffer) -> int:
    """Return how many bytes a scan reads at once; the first batch in `data` decides the layout."""
    return WINDOW_BYTES if layout_at(data) is columnar else ROWS_WINDOW_BYTES


def sound_headers(data: memoryview, position: int, expected_offset: int) -> SoundHeaders | None:
    """Check many small Kafka batches at once; return None if there are too few Kafka batches."""
    if len(data) - position <= MAGIC_AT or data[position + MAGIC_AT] != KAFKA_MAGIC:
        return None
    found: SoundHeaders | None = kafka_layout().sound_headers(data, position, expected_offset)
    return found


def decoder_of(
    data: Buffer, position: int, path: str, expansion_bytes_max: int = EXPANSION_BYTES_MAX
) -> Callable[..., RecordBatch]:
    """Return the function that views batches as columns, for the layout of the batch at `position`.

    Args:
        path: the file that contains the batches. An error about a missing library shows this path.
        expansion_bytes_max: the memory that one batch is allowed to need.
    """
    layout = layout_at(data, position)

    def decode(data: Buffer, at: int, header: BatchHeader) -> RecordBatch:
        try:
            batch: RecordBatch = layout.decode_columns(data, at, header, expansion_bytes_max)
        except UnsupportedFormatError as error:
            raise UnsupportedFormatError(
                path=path, version=error.version, reason=error.reason
            ) from error
        return batch

    return decode


def run_decoder_of(
    data: Buffer, position: int, path: str, expansion_bytes_max: int = EXPANSION_BYTES_MAX
) -> Callable[..., Iterator[RecordBatch]]:
    """Return the function that views the batches of a window as columns; see `decoder_of`.

    If a batch is damaged, the error is raised when the iterator reaches that batch.
    """
    layout = layout_at(data, position)

    def decode(data: Buffer, run: list[tuple[int, BatchHeader]]) -> Iterator[RecordBatch]:
        if layout is columnar:
            decode_columns = columnar.decode_columns
            yield from (decode_columns(data, *place, expansion_bytes_max) for place in run)
            return
        try:
            yield from layout.decode_run(data, run, expansion_bytes_max)
        except UnsupportedFormatError as error:
            raise UnsupportedFormatError(
                path=path, version=error.version, reason=error.reason
            ) from error

    return decode


def check_run(
    data: Buffer,
    run: list[tuple[int, BatchHeader]],
    expansion_bytes_max: int,
    *,
    is_strict: bool = False,
    checks_claims: bool = False,
) -> None:
    """Check the contents of whole batches of one layout, with the rules that readers apply.

    Args:
        is_strict: whether to also check the fields and bytes that no reader needs; appends set
            this.
        checks_claims: whether to also compare Kafka headers' largest timestamps with the records.

    Raises:
        ValueError: a batch cannot be read. RecordExpansionError: a batch needs too much memory.
        UnsupportedFormatError: a codec's library is not installed.
    """
    layout = layout_at(data, run[0][0])
    for _, header in run:
        is_decoded = header.record_count or layout is columnar
        if is_decoded and header.attributes & CODEC_MASK not in layout.CODECS:
            raise ValueError(f"codec {header.attributes & CODEC_MASK} is unknown")
    if layout is not columnar:
        layout.check_run(
            data, run, expansion_bytes_max, is_strict=is_strict, checks_claims=checks_claims
        )
        return
    for at, header in run:
        batch, place = data, at
        if at % columnar.ALIGNMENT:  # this happens if unaligned Kafka batches precede the batch
            batch, place = data[at : at + header.size_bytes], 0
        columnar.decode_columns(batch, place, header, expansion_bytes_max)
        if is_strict:
            columnar.check_claims(header)


def records_fault(
    data: Buffer, run: list[tuple[int, BatchHeader]], expansion_bytes_max: int
) -> Exception | None:
    """Find an error in the records of some batches; return None if no error is found."""
    try:
        check_run(data, run, expansion_bytes_max, checks_claims=True)
    except UnsupportedFormatError as error:  # the library of a codec is not installed
        return None if len(run) == 1 else error
    except ValueError as error:
        return error
    return None


def may_be_batch(data: Buffer, position: int, size_bytes: int) -> bool:
    """Report whether a whole batch may begin at `position`, according to its magic and its size.

    Raises:
        UnsupportedFormatError: the library for the layout is not installed.
    """
    magic = data[position + MAGIC_AT]
    if magic not in (columnar.MAGIC, KAFKA_MAGIC):
        return False
    least: int = layout_of(magic).OVERHEAD_BYTES
    return least <= size_bytes <= len(data) - position


def comes_before(last_offset: int, following: Buffer) -> bool:
    """Report whether a batch with this last offset can come before the batch `following`.

    Kafka's checksum does not cover the base offset. Only a following Kafka batch shows that a base
    offset is too large. If no Kafka batch follows, the result is True.
    """
    if len(following) < PREFIX_BYTES or following[MAGIC_AT] != KAFKA_MAGIC:
        return True
    return bool(unpack_prefix(following, 0)[0] > last_offset)


def read_header(data: Buffer, position: int) -> BatchHeader:
    """Read the header of a batch in any layout."""
    header: BatchHeader = layout_at(data, position).read_header(data, position)
    return header


def framed_header(
    data: Buffer, position: int, end: int, expected_offset: int
) -> BatchHeader | None:
    """Read a batch's header without checking it; return None if the batch is not whole."""
    if not has_header(memoryview(data)[position:end]):
        return None
    header = read_header(data, position)
    is_whole = OVERHEAD_BYTES_MIN <= header.size_bytes <= end - position
    return header if is_whole and expected_offset <= header.base_offset else None


def has_header(data: Buffer) -> bool:
    """Report whether the buffer contains the whole header of the batch at its start."""
    if len(data) <= MAGIC_AT or data[MAGIC_AT] not in (columnar.MAGIC, KAFKA_MAGIC):
        return False
    least: int = layout_at(data).HEADER_BYTES
    return len(data) >= least


def decode_all(data: Buffer) -> RecordBatch:
    """Decode the batch at the start of a buffer; a control batch is decoded too."""
    if data[MAGIC_AT] == KAFKA_MAGIC:
        batch: RecordBatch = kafka_layout().decode_all(data, 0, read_header(data, 0))
        return batch
    return columnar.decode(data, 0)


def frame(payload: AnyPayload, base_offset: int, leader_epoch: int) -> list[Buffer]:
    """Return the buffers of a whole batch; one system call can write them all."""
    if type(payload) is Payload:
        return columnar.frame(payload, base_offset, leader_epoch)
    buffers: list[Buffer] = kafka_layout().frame(payload, base_offset, leader_epoch)
    return buffers


def reframe(data: Buffer, magic: int, base_offset: int, leader_epoch: int) -> list[Buffer]:
    """Return the buffers of a batch with another base offset and leader epoch."""
    if magic == columnar.MAGIC:
        return [columnar.reframe(data, base_offset, leader_epoch)]
    buffers: list[Buffer] = layout_of(magic).reframe(data, base_offset, leader_epoch)
    return buffers


def with_append_time(data: Buffer, header: BatchHeader, now_ms: int) -> bytes:
    """Copy one batch, and set the timestamp of all its records to the time of the append."""
    layout = layout_of(header.magic)
    stamped: bytes = layout.with_append_time(data, header, now_ms)
    return stamped


def with_max_timestamp(data: Buffer, max_timestamp: int) -> bytes:
    """Copy one Kafka batch, and replace the largest timestamp in its header."""
    corrected: bytes = kafka_layout().with_max_timestamp(data, max_timestamp)
    return corrected


def part_until(
    data: bytes, offset: int, expansion_bytes_max: int = EXPANSION_BYTES_MAX
) -> list[Buffer]:
    """Encode the records before `offset` as a new batch, which ends at `offset`."""
    layout = layout_at(data)
    batch: RecordBatch = layout.decode(data, 0, expansion_bytes_max)
    buffers: list[Buffer] = layout.part_until(batch, offset)
    return buffers


def hole(magic: int, base_offset: int, end_offset: int, leader_epoch: int) -> bytes:
    """Create a batch without records for a range of offsets whose records are lost."""
    data: bytes = layout_of(magic).hole(base_offset, end_offset, leader_epoch)
    return data


def checksum(data: Buffer, tail: Buffer) -> int:
    """Read a batch's checksum from its first 21 and its last 8 bytes."""
    if data[MAGIC_AT] == KAFKA_MAGIC:
        return int.from_bytes(data[17:21], "big")
    return int.from_bytes(tail, "big")


def fault(data: Buffer, position: int, expected_offset: int | None) -> str | None:
    """Return what is wrong with the batch at `position` of a buffer; None if the batch is whole.

    Args:
        data: bytes of a segment, up to the segment's present or expected end.
        expected_offset: the offset with which the batch must begin; None if it is unknown.
    """
    available = len(data) - position
    if available < PREFIX_BYTES:
        return f"only {available} bytes are left"
    base_offset, length, _, magic = unpack_prefix(data, position)
    size_bytes = length + LENGTH_OVERHEAD_BYTES
    is_known = magic in (columnar.MAGIC, KAFKA_MAGIC)
    if not is_known or not BATCH_BYTES_MIN <= size_bytes <= available:
        return _prefix_fault(base_offset, size_bytes, magic, available)
    layout = layout_of(magic)
    reason: str | None = layout.header_fault(data, position, size_bytes)
    if reason is None and not layout.checksum_holds(data, position, size_bytes):
        reason = "the checksum does not match"
    if reason is None and expected_offset is not None and base_offset != expected_offset:
        is_gap = magic == KAFKA_MAGIC and base_offset > expected_offset  # compaction leaves gaps
        if not is_gap:
            reason = f"the batch begins with offset {base_offset}, not {expected_offset}"
    return reason


def _prefix_fault(base_offset: int, size_bytes: int, magic: int, available: int) -> str:
    if magic == base_offset == 0 and size_bytes == LENGTH_OVERHEAD_BYTES:
        return "there are zeros instead of a batch"
    if magic in (0, 1) and OLD_MESSAGE_BYTES_MIN <= size_bytes <= available and base_offset >= 0:
        return f"Kafka's message format v{magic}, from before 0.11, is not supported"
    if magic not in (columnar.MAGIC, KAFKA_MAGIC):
        return f"magic {magic:#04x} is not the magic of a record batch"
    if size_bytes < BATCH_BYTES_MIN:
        return f"a batch cannot have {size_bytes} bytes"
    return f"the batch has {size_bytes} bytes, but only {available} are left"


def old_message_set(head: Buffer) -> str:
    """Return an error text if a message of Kafka's format v0 or v1 begins here, or "" if not."""
    base_offset, length, _, magic = unpack_prefix(head, 0)
    size_bytes = length + LENGTH_OVERHEAD_BYTES
    if magic in (0, 1) and size_bytes >= OLD_MESSAGE_BYTES_MIN and base_offset >= 0:
        return f"Kafka's message format v{magic}, from before 0.11, is not supported"
    return ""


def candidates(data: Buffer, position: int, magic: int = columnar.MAGIC) -> list[int]:
    """List the positions, at or after `position`, where a possible header of a layout begins.

    `position` must be a multiple of the layout's alignment. Each result is also a multiple of this
    number.
    """
    if magic == KAFKA_MAGIC:
        places: list[int] = kafka_layout().candidates(data, position)
        return places
    step = columnar.ALIGNMENT
    rows = (len(data) - position) // step
    lanes = np.frombuffer(data, np.uint8, rows * step, position).reshape(rows, step)
    # Magic and version are bytes 16 and 17 of a batch, so both are in its third row of 8 bytes.
    hits = np.flatnonzero((lanes[2:, 0] == columnar.MAGIC) & (lanes[2:, 1] == columnar.VERSION))
    found: list[int] = (hits * step + position).tolist()
    return found
