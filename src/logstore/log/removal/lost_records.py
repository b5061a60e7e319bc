"""Keep the records that a truncation drops in a `.lost` file of the log dir.

A follower drops records that its leader does not have. If the dropped records may have been
acknowledged to a client, a user may want them back. The file contains the dropped batches exactly
as in the segments, so `logstore dump` can print the file. The file is beside the directories of the
partitions, not inside one of them. So a move or a deletion of the replica does not remove the file,
and Kafka ignores it. The store never reads or removes the file.

The name of the file says which records the file has:

    <topic>-<partition>.<topic id>.<first dropped offset>-<end offset>.<leader epoch>.lost

If a topic has more than `TOPIC_CHARACTERS_MAX` characters, the file's name does not contain the
topic and the partition. The file is complete and durable before the truncation begins. A truncation
may be repeated after a crash. At the repetition, the file may exist already. An existing file is
not written again, because an offset and a leader epoch always identify the same record.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.errors import CorruptRecordBatchError
from logstore.log.read.cursor import Cursor
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from logstore.log.state import LogState

TOPIC_CHARACTERS_MAX = 140  # with this limit, the file name has at most 255 bytes
LOST_SUFFIX = ".lost"
WALK_BYTES = 64 * 1024
SEND_BYTES = 8 << 20
NAME = re.compile(r"(.*-\d+\.)?[0-9a-f]{32}\.\d{20}-\d{20}\.(-1|\d+)\.lost")


def is_lost_file(name: str) -> bool:
    """Check whether a file has the name of a `.lost` file."""
    return NAME.fullmatch(name) is not None


def keep(state: LogState, offset: int) -> str:
    """Durably write the batches at and after an offset to a file, and return its path.

    The caller must hold both locks of the log, and the offset must be before the log end. The first
    batch may begin before the offset. Damaged bytes are copied without a change.

    Raises:
        OSError: the disk failed or is full; no file is left in that case.
    """
    path = os.path.join(state.log_dir.path, _name_of(state, offset))
    gone = [segment for segment in state.segments if segment.end_offset > offset]
    places = [(segment, _position_of(state, segment, offset)) for segment in gone]
    size_bytes = sum(segment.size_bytes - position for segment, position in places)
    if _size_of(path) == size_bytes:
        return path
    temporary = f"{path}.tmp"
    try:
        _write(state, temporary, places)
    except OSError:
        with suppress(OSError):
            files.remove_if_there(temporary)
        raise
    files.rename(temporary, path)
    files.sync_dir(state.log_dir.path)
    return path


def _name_of(state: LogState, offset: int) -> str:
    is_short = len(state.topic) <= TOPIC_CHARACTERS_MAX
    place = f"{state.topic}-{state.partition}." if is_short else ""
    epoch = state.replication.epochs.at(state.log_end_offset - 1)
    identity = state.metadata.topic_id.hex()
    return f"{place}{identity}.{offset:020}-{state.log_end_offset:020}.{epoch}.lost"


def _position_of(state: LogState, segment: Segment, offset: int) -> int:
    """Return the position of the batch with an offset; 0 if damage prevents the search."""
    if segment.base_offset >= offset:
        return 0
    try:
        cursor = Cursor(segment, offset, state.environment)
        for _, start, run in cursor.runs(WALK_BYTES):
            return start + run[0][0]
    except CorruptRecordBatchError:
        return 0
    return segment.size_bytes  # compaction removed the rest of the segment


def _size_of(path: str) -> int:
    try:
        return files.stat(path).st_size
    except FileNotFoundError:
        return -1


def _write(state: LogState, temporary: str, places: list[tuple[Segment, int]]) -> None:
    target = files.replace_file(temporary)
    try:
        for segment, start in places:
            source, position = segment.handle(state.environment), start
            while position < segment.size_bytes:
                size_bytes = min(SEND_BYTES, segment.size_bytes - position)
                sent = files.sendfile(target, source.fd, position, size_bytes)
                if sent == 0:
                    break  # the file is too short for its segment: keep the bytes that exist
                position += sent
        files.sync_file(target)
    finally:
        files.close(target)
