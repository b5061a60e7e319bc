"""Check one batch that a peer sent, in few steps, because an append waits for the check.

If a batch is refused here, `layouts.fault` and `layouts.check_run` find the reason.
"""

from __future__ import annotations

from logstore.format import layouts, sound
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import record_batch as columnar


def sound_header(data: memoryview, position: int, end: int) -> BatchHeader | None:
    """Check the size, header and checksum of the batch at `position`.

    The result is None if the size, the header or the checksum is wrong.
    """
    layout = layouts.layout_at(data, position)
    if layout is not columnar:
        header: BatchHeader | None = layout.sound_header(data, position, end, 0)
        return header
    # Expect the base offset of the batch itself, so that any base offset is accepted.
    # Here a negative base offset becomes a large positive number, which `sound_header` refuses.
    base_offset = int.from_bytes(data[position : position + 8], "big")
    return sound.sound_header(data, position, end, base_offset)


def is_plainly_sound(
    data: memoryview, position: int, header: BatchHeader, expansion_bytes_max: int
) -> bool:
    """Report whether a quick check shows that `layouts.check_run` accepts a Kafka batch.

    If the quick check cannot decide, the result is False, and the caller must call
    `layouts.check_run`.
    """
    if header.magic == columnar.MAGIC:
        return False
    kafka = layouts.kafka_layout()
    if header.attributes & kafka.NOT_PLAIN:
        return False
    start, end = position + kafka.HEADER_BYTES, position + header.size_bytes
    is_sound: bool = kafka.is_regular(data, start, end, header, expansion_bytes_max)
    return is_sound
