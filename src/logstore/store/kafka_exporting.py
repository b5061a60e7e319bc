"""Write a log as the segments of a partition directory that a Kafka broker loads.

Only `.log` files are written: a broker makes the indexes that are not there when it loads the log.
Offsets stay what they are; columnar batches become Kafka's, a batch for a batch.
"""

from __future__ import annotations

import os
from contextlib import suppress

from logstore.disk import files
from logstore.errors import PartitionExistsError
from logstore.format import layouts
from logstore.format.columns import Buffer
from logstore.log.cursor import Cursor
from logstore.log.log import Log
from logstore.log.scan import magic_of
from logstore.log.segment import Segment
from logstore.names import NAME_BYTES_MAX, segment_file_name

WINDOW_BYTES = 1 << 20


def export(log: Log, directory: str) -> int:
    """Write all segments of a log into a new directory; give their bytes.

    It is made under the name of a replica that Kafka deleted, which a broker that finds it purges.

    Raises:
        PartitionExistsError: the directory is there already.
        LogStoreError: the log cannot be read.
        OSError: the directory cannot be written.
    """
    if files.exists(directory):
        raise PartitionExistsError(
            f"{directory} is there already", topic=log.topic, partition=log.partition
        )
    parent = os.path.dirname(directory)
    tail = f"-{log.partition}.{os.urandom(16).hex()}-delete"
    temporary = os.path.join(parent, log.topic[: NAME_BYTES_MAX - len(tail)] + tail)
    try:
        files.make_dir(temporary)
        size_bytes = _fill(log, temporary)
        files.rename(temporary, directory)
    except BaseException:
        with suppress(OSError):
            files.remove_tree(temporary)
        raise
    files.sync_dir(parent)
    return size_bytes


def _fill(log: Log, directory: str) -> int:
    log._refresh()
    total = 0
    for segment in log._view[0]:
        path = os.path.join(directory, segment_file_name(segment.base_offset, ".log"))
        target = files.open_file(path, files.REPLACE)
        try:
            total += _write(log, segment, target)
            files.sync_file(target)
        finally:
            files.close(target)
    files.sync_dir(directory)
    return total


def _write(log: Log, segment: Segment, target: int) -> int:
    source = segment.handle(log._environment)
    if not segment.size_bytes or magic_of(source.fd) == layouts.KAFKA_MAGIC:
        files.copy_range(source.fd, target, 0, segment.size_bytes)
        return segment.size_bytes
    position = 0
    for data, _, run in Cursor(segment, segment.base_offset, log._environment).runs(WINDOW_BYTES):
        for at, header in run:
            batch = layouts.decoder_of(data, at, segment.log_path)(data, at, header)
            payload = (
                layouts.kafka_layout()
                .build_payload(
                    batch.values.to_list(),
                    batch.keys.to_list(),
                    batch.timestamps,
                    batch.headers,
                    offset_deltas=batch.offsets - header.base_offset,
                    codec_id=header.attributes & 7,
                )
                .spanning(header.last_offset - header.base_offset)
            )
            buffers: list[Buffer] = layouts.frame(payload, header.base_offset, header.leader_epoch)
            position += files.write_fully(target, buffers, position)
    return position
