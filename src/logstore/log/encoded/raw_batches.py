"""Split and check encoded batches that a client or a leader sent.

A checksum proves only that a peer's bytes arrived unchanged, not that the peer encoded them
correctly. So the structure of every batch is checked before any byte is written.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby

from logstore.arguments import wrong
from logstore.errors import RecordExpansionError, RecordTooLargeError
from logstore.format import incoming, layouts
from logstore.format.batch import CODEC_MASK
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.compression import CODEC_NAMES
from logstore.format.expansion import EXPANSION_BYTES_MAX
from logstore.format.prefix import BATCH_BYTES_MAX
from logstore.log.write.batch_group import PlacedBatch

Run = list[tuple[int, BatchHeader]]
Found = list[tuple[Buffer, BatchHeader]]

# If there are 2 to APART_MAX batches, each batch gets a quick check.
# Then the batches that fail the quick check get the full check together.
# If there are more batches, the full check of all batches at once is faster.
APART_MAX = 8
OFFSETS_MAX = 2**62  # each offset of a record is lower, so it fits into 64 bits


def parse(
    raw: Buffer,
    expansion_bytes_max: int = EXPANSION_BYTES_MAX,
    max_message_bytes: int = BATCH_BYTES_MAX,
) -> Found:
    """Split encoded batches, and check the batches and their records.

    Raises:
        RecordTooLargeError: a batch is larger than `max_message_bytes`; no batch was decoded.
        RecordExpansionError: a batch needs more memory than allowed. TypeError, ValueError: the
        bytes are not whole, undamaged batches.
    """
    look = _view_of(raw)
    run: Run = []
    position, end = 0, len(look)
    while position < end:
        header = incoming.sound_header(look, position, end)
        if (
            header is not None
            and header.size_bytes == end <= max_message_bytes
            and incoming.is_plainly_sound(look, 0, header, expansion_bytes_max)
        ):
            return [(look, header)]  # the usual request of a client
        if header is None:
            reason = layouts.fault(look, position, None)
            raise ValueError(f"there is no whole batch at position {position}: {reason}")
        if header.attributes & CODEC_MASK not in CODEC_NAMES:
            number = header.attributes & CODEC_MASK
            raise ValueError(f"the batch at position {position} has the unknown codec {number}")
        run.append((position, header))
        position += header.size_bytes
    for _, header in run:
        if header.size_bytes > max_message_bytes:
            raise RecordTooLargeError(
                size_bytes=header.size_bytes, max_message_bytes=max_message_bytes
            )
    if 1 < len(run) <= APART_MAX:
        left = [
            place
            for place in run
            if not incoming.is_plainly_sound(look, *place, expansion_bytes_max)
        ]
    else:
        left = run
    for _, same in groupby(left, key=lambda place: place[1].magic):
        _check_records(look, list(same), expansion_bytes_max)
    return [(look[at : at + header.size_bytes], header) for at, header in run]


def _view_of(raw: Buffer) -> memoryview:
    """Return a view of `raw`, or of a copy if the caller could still change the bytes of `raw`."""
    if type(raw) is bytes:
        return memoryview(raw)
    if not isinstance(raw, bytes | bytearray | memoryview):
        raise wrong("raw", "encoded batches as bytes", raw)
    if isinstance(raw, memoryview) and isinstance(raw.obj, bytes) and raw.c_contiguous:
        return raw.cast("B")
    return memoryview(bytes(raw))


def _check_records(look: memoryview, run: Run, expansion_bytes_max: int) -> None:
    """Check the records of all batches together, and raise ValueError if they are wrong.

    If this check fails, each batch is checked alone to find the fault.
    """
    with suppress(ValueError):
        layouts.check_run(look, run, expansion_bytes_max, is_strict=True, checks_claims=True)
        return
    for at, header in run:
        try:
            layouts.check_run(
                look, [(at, header)], expansion_bytes_max, is_strict=True, checks_claims=True
            )
        except RecordExpansionError as error:
            raise RecordExpansionError(**{**error.facts, "position": at}) from error
        except ValueError as error:
            raise ValueError(f"the batch at position {at} cannot be read: {error}") from error


def placed(
    buffers: list[Buffer], header: BatchHeader, base_offset: int, last_offset: int, epoch: int
) -> PlacedBatch:
    """Make a PlacedBatch from the buffers and the header of a batch, with its offsets in a log."""
    return PlacedBatch(
        buffers,
        header.size_bytes,
        base_offset,
        last_offset,
        header.max_timestamp,
        epoch,
        header.magic,
    )
