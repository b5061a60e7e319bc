"""Create the file of a new segment, and tidy up after a write or a roll that was interrupted.

Whoever is interrupted tidies up, but a second interrupt may prevent that. `_half_made` names the
files with bytes that are in no view: new files, from before they are created until their segments
are in the view, and the active segment's file after an interrupted write. If such a file stayed,
the next start would take it for a segment: it would cut the records before it that were appended
since, or find that a batch reaches into it. If such bytes stayed and the segment was sealed, they
would be found where the next segment begins.

So both go before anything is appended, rolled or truncated, and before a close. While `_half_made`
names a file, the log has no room (`_room_bytes` is 0): every append asks `_make_room`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.log.write.hung_locks import held

if TYPE_CHECKING:
    from logstore.errors import LogStoreError
    from logstore.log.segments.segment import Segment
    from logstore.log.writer import LogWriter


# Stands in `_half_made` for the active segment's tail. A constant: to note it calls nothing, so no
# second interrupt can come before that.
TORN = ("",)


def create_file(path: str) -> int:
    """Create the file of a segment; an empty one is left of a roll that broke off."""
    try:
        return files.open_file(path, files.CREATE)
    except FileExistsError:
        if files.stat(path).st_size:
            raise
        return files.open_file(path, files.REPLACE)


def undo(log: LogWriter) -> None:
    """Remove what an interrupted write or roll left, the newest file first; the lock is held."""
    active = log._active
    try:
        with held(log, "_lock"):
            failure = _tidy(log, active)
    except OSError as error:
        raise log._failed(error) from error
    if failure is not None:
        raise failure
    log._half_made, log._room_bytes = (), log._room_in(active, log._foreign_magic)


def _tidy(log: LogWriter, active: Segment) -> LogStoreError | None:
    """Remove files that are no segment's, and the bytes behind the active one's end."""
    known = {segment.log_path for segment in log._view[0]}
    for path in reversed(log._half_made):
        if path and path not in known:
            files.remove_if_there(path)
    if TORN[0] not in log._half_made:
        return None
    if log._writer is None:
        log._take_writer(active)
    return log._undo_write(active.size_bytes)
