"""Store the records of a Kafka batch with another codec, without any other change of the batch.

The records are decompressed and compressed again as a whole. The records are not decoded.
"""

from __future__ import annotations

from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.kafka.header import CODEC_MASK, MAGIC
from logstore.format.kafka.record_batch import records_of
from logstore.format.kafka.subset import frame


def with_codec(
    data: Buffer, header: BatchHeader, codec_id: int, expansion_bytes_max: int
) -> Buffer:
    """Recompress the records of a batch with a codec; the caller must have checked the batch.

    If the batch already has this codec, has no records, or is not in Kafka's layout, the batch is
    returned unchanged.

    Raises:
        RecordExpansionError: the records need more memory than allowed.
        UnsupportedFormatError: a codec's library is not installed.
    """
    before = header.attributes & CODEC_MASK
    if header.magic != MAGIC or before == codec_id or not header.record_count:
        return data
    records = bytes(records_of(memoryview(data), 0, header, expansion_bytes_max))
    if codec_id:
        from logstore.format.kafka import codecs

        records = codecs.compress(codec_id, records)
    attributes = header.attributes & ~CODEC_MASK | codec_id
    base, latest = header.base_timestamp, header.max_timestamp
    return frame(header, attributes, base, latest, header.record_count, records)
