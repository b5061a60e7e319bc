"""Write a log as the segments of a partition directory that a Kafka broker loads.

The export has the `.log` files, and a `.snapshot` if the log has producers. A broker that loads the
log makes the missing indexes, and then also finds the aborted transactions. Offsets do not change.
Each columnar batch becomes one Kafka batch. Records below the log start offset stay deleted. Kafka
keeps the log start offset in a checkpoint of the log dir. An export has no such checkpoint. So the
first exported segment begins at the log start offset. If a batch contains this offset, the batch is
cut there.
"""

from __future__ import annotations

import os
from contextlib import suppress

from logstore.disk import bulk, files
from logstore.errors import PartitionExistsError
from logstore.format import layouts, producer_file
from logstore.format.batch import CODEC_MASK, RecordBatch
from logstore.format.columnar.columns import Buffer
from logstore.log import host
from logstore.log.log import Log
from logstore.log.producers import kafka_snapshots, rules
from logstore.log.segments.search import magic_of
from logstore.log.segments.segment import Segment
from logstore.names import NAME_BYTES_MAX, segment_file_name

WINDOW_BYTES = 1 << 20
COMPRESSED_BYTES_MAX = 128 << 20


def export(log: Log, directory: str) -> int:
    """Write all segments of a log into a new directory; return their size in bytes.

    If the parent directory does not exist, it is made. Until the export is complete, the new
    directory has the name of a replica that Kafka deleted. So if a crash leaves an incomplete
    directory, a broker purges it.

    Raises:
        PartitionExistsError: the directory exists already.
        LogStoreError: the log cannot be read.
        OSError: the directory cannot be written.
    """
    if files.exists(directory):
        raise PartitionExistsError(
            f"{directory} exists already", topic=log.topic, partition=log.partition
        )
    parent = os.path.dirname(directory)
    with suppress(FileExistsError):
        files.make_dir(parent)
    tail = f"-{log.partition}.{os.urandom(16).hex()}-delete"
    temporary = os.path.join(parent, log.topic[: NAME_BYTES_MAX - len(tail)] + tail)
    try:
        files.make_dir(temporary)
        size_bytes = _fill(log, temporary)
        files.rename(temporary, directory)
    except BaseException:
        with suppress(OSError):
            bulk.remove_tree(temporary)
        raise
    files.sync_dir(parent)
    return size_bytes


def export_linked(log: Log, directory: str) -> int:
    """Write all segments of a log into a new directory on the same disk; return the log start.

    Segments in Kafka's layout are hard-linked. So no program may append to the log afterwards.
    Records below the log start stay in the first segment. So the caller must keep the log start
    elsewhere. If a crash leaves an incomplete directory, the caller must remove the directory.

    Raises:
        LogStoreError: the log cannot be read.
        OSError: the disk failed.
    """
    files.make_dir(directory)
    _write_producers(log, directory)
    for segment in host.segments_of(log):
        path = os.path.join(directory, segment_file_name(segment.base_offset, ".log"))
        if _is_linkable(log, segment):
            files.link(segment.log_path, path)
            bulk.sync_path(path)
            continue
        target = files.replace_file(path)
        try:
            _write(log, segment, segment.base_offset, target)
            files.sync_file(target)
        finally:
            files.close(target)
    files.sync_dir(directory)
    return log.log_start_offset


def _is_linkable(log: Log, segment: Segment) -> bool:
    """Check that a segment has Kafka's layout, and that nothing follows its last batch."""
    if files.stat(segment.log_path).st_size != segment.size_bytes:
        return False
    source = host.open_segment(log, segment)
    return not segment.size_bytes or magic_of(source.fd) == layouts.KAFKA_MAGIC


def _fill(log: Log, directory: str) -> int:
    host.refresh(log)
    _write_producers(log, directory)
    start, segments, total = log.log_start_offset, host.segments_of(log), 0
    for segment in segments:
        if segment.end_offset <= start and segment is not segments[-1]:
            continue
        name = segment_file_name(max(segment.base_offset, start), ".log")
        target = files.replace_file(os.path.join(directory, name))
        try:
            total += _write(log, segment, start, target)
            files.sync_file(target)
        finally:
            files.close(target)
    files.sync_dir(directory)
    return total


def _write_producers(log: Log, directory: str) -> None:
    """If the log has producers, write a snapshot of them at the log end, before the segments."""
    producers = host.producers_of(log)
    if producers is None:
        return
    from logstore.format.kafka.snapshots import encode_snapshot

    name = producer_file.name_of(producers.offset, kafka_snapshots.SUFFIX)
    target = files.replace_file(os.path.join(directory, name))
    try:
        files.write_fully(target, [encode_snapshot(producers)], 0)
        files.sync_file(target)
    finally:
        files.close(target)


def _write(log: Log, segment: Segment, start: int, target: int) -> int:
    """Write a segment's records at and after `start`; return the size in bytes."""
    source = host.open_segment(log, segment)
    is_kafkas = not segment.size_bytes or magic_of(source.fd) == layouts.KAFKA_MAGIC
    if is_kafkas and segment.base_offset >= start:
        bulk.copy_range(source.fd, target, 0, segment.size_bytes)
        return segment.size_bytes
    position = 0
    first = max(segment.base_offset, start)
    for data, _, run in host.cursor_of(log, segment, first).runs(WINDOW_BYTES):
        for at, header in run:
            if is_kafkas and header.base_offset >= start:
                buffers: list[Buffer] = [data[at : at + header.size_bytes]]
            else:
                batch = layouts.decoder_of(data, at, segment.log_path)(data, at, header)
                buffers = _laid_out(batch, max(header.base_offset, start))
            position += files.write_fully(target, buffers, position)
    return position


def _laid_out(batch: RecordBatch, base_offset: int) -> list[Buffer]:
    """Encode a batch's records at and after `base_offset` as one Kafka batch."""
    header = batch.header
    part = batch.slice(batch.index_of(base_offset), batch.count)
    skipped = base_offset - header.base_offset
    is_kafkas = header.magic == layouts.KAFKA_MAGIC
    if not is_kafkas:
        # Only the codec bits have the same meaning in both layouts.
        header = header._replace(attributes=header.attributes & CODEC_MASK)
    if header.base_sequence >= 0:
        header = header._replace(base_sequence=(header.base_sequence + skipped) % 2**31)
    # A large batch is not compressed: the compression could need more memory than there is.
    is_large = header.payload_bytes > COMPRESSED_BYTES_MAX
    payload = layouts.kafka_layout().build_payload(
        part.values.to_list(),
        part.keys.to_list(),
        part.timestamps,
        part.headers,
        offset_deltas=part.offsets - base_offset,
        codec_id=0 if is_large else header.attributes & CODEC_MASK,
        header=header if is_kafkas or rules.is_watched(header) else None,
    )
    payload = payload.spanning(header.last_offset - base_offset)
    return layouts.frame(payload, base_offset, header.leader_epoch)
