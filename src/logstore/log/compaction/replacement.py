"""Replace a group of segments with the cleaned segment that was made from the group.

    00000000000000000000.log.cleaned    the new segment, being written; not yet part of the log
    00000000000000000000.log.swap       a second name of the new segment, while names change

The new segment takes the name of the first segment of the group. The other segments of the group
are removed. Each step except the last is durable before the next step begins:

    1  the bytes of `.cleaned` are written
    2  the new file has the second name `.swap`; the index files of the first segment are removed
    3  `.cleaned` is renamed to the name of the first segment
    4  the other segments are removed
    5  `.swap` is removed

After a crash, `.swap` shows which steps were done (`recovery/replacements`). If the first segment
has the bytes of `.swap`, step 3 is done, and the other segments are removed. If the first segment
has other bytes, no record is removed yet, and `.swap` is removed. So at every moment, a reader in
any process finds each offset. If the group has only one segment, step 3 alone replaces it, and
there is no `.swap`.

When Kafka replaces segments, it renames the old segments to `.deleted` before it renames the new
segment. This engine removes the old segments immediately. A reader of an old segment has its file
open, and can continue.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.disk import files
from logstore.disk.uninterrupted import uninterrupted
from logstore.errors import LogStoreError, ReplicaOfflineError
from logstore.format import layouts
from logstore.log.replica import view_of
from logstore.log.segments.cache import Handle
from logstore.log.segments.listing import CLEANED_SUFFIX, SWAP_SUFFIX
from logstore.log.segments.segment import Segment
from logstore.log.write.flush import allow_gaps, hidden_failure
from logstore.log.write.hung_locks import held
from logstore.log.write.seal import seal

if TYPE_CHECKING:
    from logstore.log.state import LogState


class Replacement(NamedTuple):
    """A new segment, and the segments from which it was made.

    Attributes:
        old: the replaced segments, which are adjacent.
        new: the new segment; its file is durable, and still has the suffix `.cleaned`.
        handle: the file of the new segment.
        magic: the layout of the new segment's batches.
        noted_end: the compaction first read the keys of all records before this offset, and then
            removed records.
    """

    old: Sequence[Segment]
    new: Segment
    handle: Handle
    magic: int
    noted_end: int

    @property
    def cleaned_path(self) -> str:
        """Path of the new segment while it is not part of the log."""
        return self.new.log_path + CLEANED_SUFFIX

    @property
    def swap_path(self) -> str:
        """The second name of the new segment."""
        return self.new.log_path + SWAP_SUFFIX


def put_in_place(state: LogState, replacement: Replacement) -> bool:
    """Replace segments; if the log was truncated or moved meanwhile, do nothing and return False.

    Raises:
        LogStoreError: the disk failed, or the log cannot be changed now.
    """
    return uninterrupted(partial(_put_in_place, state, replacement))


def is_current(state: LogState, replacement: Replacement) -> bool:
    """Check whether the log still has the segments to replace.

    The caller must hold `flush_lock`.
    """
    old, now = replacement.old, state.segments
    return (
        state.config.is_compacted  # `set_config` may have changed `cleanup_policy`
        and state.cut_offset >= replacement.noted_end
        and state.directory == replacement.new.directory
        and any(list(now[at : at + len(old)]) == list(old) for at in range(len(now) - len(old)))
    )


def _put_in_place(state: LogState, replacement: Replacement, go_on: Callable[[], None]) -> bool:
    """Replace segments under the flush lock, in a thread that may be interrupted."""
    outer = sys.exc_info()[1]
    with state.flush_lock, held(state, "flush_lock"):
        state.check_writable()
        go_on()
        if not is_current(state, replacement):
            return False
        try:
            if replacement.magic == layouts.KAFKA_MAGIC:
                replacement.new.is_sparse = True
                allow_gaps(state)
            directory = Handle(files.open_file(state.directory, files.DIRECTORY))
            _carry_out(state, replacement, directory.fd)
        except OSError as error:
            failure = state.failed(error)
            _take_what_is_there(state, replacement)
            try:
                raise failure from error
            finally:
                del failure  # a traceback holds this frame and its descriptors
        except LogStoreError:
            raise
        except BaseException as error:  # the thread was interrupted
            hidden = hidden_failure(error, outer)
            if hidden is not None:
                state.log_dir.failed(hidden, state.directory)
            _take_what_is_there(state, replacement)
            raise
        seal(state, replacement.new, replacement.handle.fd)
    return True


def _carry_out(state: LogState, replacement: Replacement, directory: int) -> None:
    """Do steps 2 to 5 of a replacement; the caller must hold `flush_lock`. Raises OSError.

    The removal of `.swap` is not synced here. A truncation, a deletion, a repair and the next
    replacement sync the directory before they change a segment. So no segment is changed while an
    old `.swap` may still come back after a crash.
    """
    old, new = replacement.old, replacement.new
    if len(old) > 1:
        files.link(replacement.cleaned_path, replacement.swap_path)
    for path in (new.index_path, new.time_index_path):
        files.remove_if_there(path)
    files.sync_names(directory)
    for segment in old:  # from now on, these names may belong to other files
        segment.is_dropped = True
    files.rename(replacement.cleaned_path, new.log_path)
    _show(state, old, new)
    files.sync_names(directory)
    if len(old) > 1:
        for segment in old[1:]:
            for path in segment.paths:
                files.remove_if_there(path)
        files.sync_names(directory)
        files.unlink(replacement.swap_path)  # the next change of a segment first syncs this removal


def _show(state: LogState, old: Sequence[Segment], new: Segment) -> None:
    """Let readers use the new segment instead of the old segments.

    The caller must hold `flush_lock`.
    """
    with state.lock:
        _exchange(state, old, new)
    for segment in old:
        segment.forget(state.environment)


def _exchange(state: LogState, old: Sequence[Segment], new: Segment) -> None:
    gone = set(map(id, old))
    first = state.segments.index(old[0])
    segments = [one for one in state.segments if id(one) not in gone]
    state.unflushed = [pair for pair in state.unflushed if id(pair[0]) not in gone]
    state.view = view_of([*segments[:first], new, *segments[first:]])


def _take_what_is_there(state: LogState, replacement: Replacement) -> None:
    """If a replacement failed before step 3, undo it; if it failed later, load the new segment."""
    from logstore.log.recovery.open_log import reopen

    if state.log_dir.is_offline:
        return
    if not any(segment.is_dropped for segment in replacement.old):
        with suppress(OSError):  # if the disk fails, the next open removes the `.swap` file
            files.remove_if_there(replacement.swap_path)
            files.sync_dir(state.directory)
        return
    with state.lock:
        try:
            reopen(state)
        except LogStoreError as error:
            state.detach(error)
        except BaseException:  # the thread was interrupted again
            reason = "a compaction was interrupted twice: open the store again to use the log"
            state.detach(
                ReplicaOfflineError(topic=state.topic, partition=state.partition, reason=reason)
            )
            raise
