"""Drop the end of a log: `truncate_to`.

No file is ever shortened under a reader: the kept part of a segment is written to a new file that
takes the old one's name. What describes the dropped bytes goes first, so that a crash at any point
leaves a log that ends somewhere between the old end and the new one, and nothing that says more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.format import columnar
from logstore.format import payload as payloads
from logstore.format.columns import Buffer
from logstore.log.cache import Handle
from logstore.log.cursor import Cursor
from logstore.log.scan import Scan
from logstore.log.segment import Segment
from logstore.log.writer import RECOVERY_POINT_LIMIT

if TYPE_CHECKING:
    from logstore.log.log import Log


def truncate_to(log: Log, offset: int) -> None:
    """Drop every record at or behind `offset`; see `Log.truncate_to`."""
    with log._flush_lock, log._lock:
        log._check_writable()
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise log._out_of_range(offset)
        if offset == log.log_end_offset:
            return
        try:
            _truncate(log, offset)
        except OSError as error:
            raise log._failed(error) from error


def _truncate(log: Log, offset: int) -> None:
    """Do it, both locks held; raises OSError."""
    limit = min(offset, log._recovery_point)
    log._set_metadata(extra={**log._metadata.extra, RECOVERY_POINT_LIMIT: limit})
    segments = log._view[0]
    kept = [segment for segment in segments if segment.base_offset < offset]
    gone = segments[len(kept) :]
    cut = kept[-1] if kept and kept[-1].end_offset > offset else None
    replaced = None if cut is None else _kept_part(log, cut, offset)
    for segment in (*gone, cut):
        if segment is not None:
            segment.is_dropped = True
            files.remove_if_there(segment.index_path)
            files.remove_if_there(segment.time_index_path)
    files.sync_dir(log.directory)
    for segment in reversed(gone):
        files.remove_if_there(segment.log_path)
        files.sync_dir(log.directory)
    if cut is not None and replaced is not None:
        new, temporary = replaced
        files.rename(temporary, cut.log_path)
        kept[-1] = new
    else:
        new = Segment(log.directory, offset)
        writer = Handle(files.open_file(new.log_path, files.REPLACE))
        files.sync_file(writer.fd)
        kept.append(new)
    files.sync_dir(log.directory)
    dropped = {id(segment) for segment in (*gone, cut)}
    log._unflushed = [pair for pair in log._unflushed if id(pair[0]) not in dropped]
    log._recovery_point = min(log._recovery_point, offset)
    log._epochs.truncate_to(offset)
    log._epochs_changed = True
    log._activate(kept)
    for segment in (*gone, cut):
        if segment is not None:
            segment.forget(log._environment)


def _kept_part(log: Log, segment: Segment, offset: int) -> tuple[Segment, str]:
    """Write the batches below `offset` to a new file, the one it falls into cut and framed anew."""
    cursor = Cursor(segment, offset, log._environment)
    rest: list[Buffer] = []
    end_position = segment.size_bytes
    for data, at, header in cursor.whole_batches(64 * 1024):
        size = header.size_bytes
        batch = columnar.decode(data, at)
        end_position = cursor.position - size
        if batch.header.base_offset < offset:
            rest = batch_until(bytes(data[at : at + size]), offset)
        break
    temporary = f"{segment.log_path}.tmp"
    writer = Handle(files.open_file(temporary, files.REPLACE))
    source = segment.handle(log._environment)
    files.copy_range(source.fd, writer.fd, 0, end_position)
    files.write_fully(writer.fd, rest, end_position)
    files.sync_file(writer.fd)
    end = end_position + sum(map(len, rest))
    new = Segment(segment.directory, segment.base_offset)
    index, time_index = new.begin_indexes()
    scan = Scan(
        new.base_offset,
        index=index,
        time_index=time_index,
        interval_bytes=log.config.index_interval_bytes,
    )
    reason = scan.run(writer.fd, end)
    assert reason is None, reason
    new.take(scan)
    return new, temporary


def batch_until(data: bytes, offset: int) -> list[Buffer]:
    """Give a batch's records below `offset` as a batch of its own; it spans up to `offset`."""
    batch = columnar.decode(data, 0)
    header = batch.header
    part = batch.slice(0, batch.index_of(offset))
    span = offset - header.base_offset - 1
    payload = payloads.payload_of(part, span)
    return columnar.frame(payload, header.base_offset, header.leader_epoch)
