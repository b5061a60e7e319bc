"""Check one batch that a peer sent, in as few steps as possible: an append waits for that.

`layouts.fault` and `layouts.check_run` say what is wrong with a batch that is refused here.
"""

from __future__ import annotations

from logstore.format import layouts, sound
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import record_batch as columnar


def sound_header(data: memoryview, position: int, end: int) -> BatchHeader | None:
    """Check the frame, header and checksum of the batch at `position`; None if one is wrong."""
    layout = layouts.layout_at(data, position)
    if layout is not columnar:
        header: BatchHeader | None = layout.sound_header(data, position, end, 0)
        return header
    # Any base offset but a negative one, which is read as one that is too large.
    base_offset = int.from_bytes(data[position : position + 8], "big")
    return sound.sound_header(data, position, end, base_offset)


def is_plainly_sound(
    data: memoryview, position: int, header: BatchHeader, expansion_bytes_max: int
) -> bool:
    """Recognise a Kafka batch as one that `layouts.check_run` accepts; False: ask that."""
    if header.magic == columnar.MAGIC:
        return False
    kafka = layouts.kafka_layout()
    if header.attributes & kafka.NOT_PLAIN:
        return False
    start, end = position + kafka.HEADER_BYTES, position + header.size_bytes
    is_sound: bool = kafka.is_regular(data, start, end, header, expansion_bytes_max)
    return is_sound
