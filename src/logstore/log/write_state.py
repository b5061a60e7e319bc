"""Hold the state of the writing half of a log: its locks, its active segment, its unflushed part.

Invariants: log_start_offset <= recovery_point <= log_end_offset once flushed; the last segment of
the view is the active one; `_writer` is its descriptor, held while it has unflushed bytes; every
segment with bytes that may not be on the disk is in `_unflushed` or is the active one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from logstore.arguments import known_as
from logstore.config import LogConfig
from logstore.disk import files
from logstore.disk.bell import Bell
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError, ReplicaOfflineError
from logstore.format import compression, layouts
from logstore.format.columnar import record_batch as columnar
from logstore.format.expansion import expansion_bytes
from logstore.log.environment import LogEnvironment
from logstore.log.epochs import LeaderEpochs, OfLog
from logstore.log.metadata import PartitionMetadata
from logstore.log.reader import LogReader
from logstore.log.replica import view_of
from logstore.log.segments.cache import Handle
from logstore.log.segments.scan import magic_of
from logstore.log.segments.segment import Segment
from logstore.log.subscription import LogEvent, Subscriptions, end_all, tell
from logstore.log.write import encode
from logstore.log.write.hung_locks import NOT_WRITING, keeping

if TYPE_CHECKING:
    from logstore.log.write.group_commit import GroupCommit

NEVER = 2**63
UNFLUSHED_SEGMENTS_MAX = 32
# As in Kafka, so that a broker can read the segment: its index entries have 31 bits.
RELATIVE_OFFSET_MAX = 2**31 - 1
POSITION_MAX = 2**32 - 1

# A segment whose bytes may not be on the disk; without a handle if an earlier process wrote it.
Unflushed = tuple[Segment, Handle | None]


class Encoding(NamedTuple):
    """How the records of a batch are encoded; taken by one look, so that its parts fit together."""

    codec_id: int
    is_log_append_time: bool
    magic: int


def require_layout(config: LogConfig, path: str) -> None:
    """Raise UnsupportedFormatError if a library that a configuration needs is not installed."""
    layout = layouts.layout_of(layouts.MAGICS[config.record_format], path)
    layout.require(compression.CODEC_IDS[config.compression_type])


@known_as("Log")
class WriteState(LogReader):
    """The fields that the writing rooms share; `LogWriter` adds the append itself."""

    def __init__(
        self,
        log_dir: LogDir,
        directory: str,
        metadata: PartitionMetadata,
        environment: LogEnvironment,
    ) -> None:
        super().__init__(log_dir, directory, metadata, environment)
        require_layout(metadata.config, directory)
        self._take_config(metadata.config)
        # A batch that would end after this position begins a segment. It is `_segment_bytes`, or 0
        # if the next append has to roll or to tidy up first.
        self._room_bytes = self._segment_bytes
        # The layout of the active segment, if it is another one than the configured; else 0.
        self._foreign_magic = 0
        self._now_ms = environment.clock.now_ms
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._appended = threading.Lock()
        self._arrivals = Bell()
        self._waiters = self._arrivals.waiters
        self._subscriptions: Subscriptions = {}  # empty, and so False, while nobody subscribes
        self._commit: GroupCommit | None = None
        from logstore.log.recovery.report import RecoveryEntry

        self.recovery = RecoveryEntry(self.topic, self.partition, log_dir.path)
        self._refusal = ""
        # Where an append is writing, and the locks that `hung_locks` holds for a hung thread.
        self._writing = NOT_WRITING
        self._in_custody: set[str] = set()
        self._keepers: set[ref[keeping]] = set()
        self._kept = ""
        # Set with `_unavailable`: only its log dir is gone, and a move may still save the log.
        self._is_left_by_dir = False
        # Set by a close that flushed everything: no work is left for this log then.
        self.is_closed_whole = False
        self._epochs = LeaderEpochs(directory)
        # How often they changed since they were last made durable: a flush forgets what it saw.
        self._epochs_changed = 0
        # The log start that the file of the epochs names besides; None: only one file has it.
        self._confirmed_start: int | None = metadata.log_start_offset
        self._leader_epoch = 0
        self._active = Segment(directory, metadata.log_start_offset)
        self._writer: Handle | None = None
        self._half_made: tuple[str, ...] = ()  # files with bytes that are in no view; see `roll`
        self._roll_at_ms = NEVER
        self._indexed_position = 0
        self._names_changed = 0
        self._unflushed: list[Unflushed] = []
        self._checkpointed_bytes = 0
        self._recovery_point = 0
        self._flush_at = NEVER
        self._flushed_ms = self._now_ms()

    def _take_config(self, config: LogConfig) -> None:
        """Derive what appends look at from a configuration; calls no disk.

        While the log serves, `_flush_lock` and `_lock` are held. An append encodes its records
        before it takes `_lock`, by one look at `_encoding`, and under the lock it may find another
        configuration: see `LogWriter._append_payload` and `Log.append`.
        """
        self._segment_bytes = config.segment_bytes
        self._segment_ms = config.segment_ms or NEVER
        self._index_interval_bytes = config.index_interval_bytes
        self._index_entries_max = config.segment_index_bytes // 8
        codec_id = compression.CODEC_IDS[config.compression_type]
        self._magic = layouts.MAGICS[config.record_format]
        self._is_log_append_time = config.message_timestamp_type == "LogAppendTime"
        self._encoding = Encoding(codec_id, self._is_log_append_time, self._magic)
        self._is_plain = self._encoding == (0, False, columnar.MAGIC)
        self._bound_batches(config, self._environment)
        self._flush_messages = config.flush_messages or NEVER

    def _bound_batches(self, config: LogConfig, environment: LogEnvironment) -> None:
        """Set how large batches may become, stored and in memory."""
        self._max_message_bytes = config.max_message_bytes
        self._expansion_bytes_max = environment.record_expansion_bytes_max
        # How much of small appends goes into one batch. Each record adds at least a sixteenth of
        # the memory that it needs once it is decoded (`encode.size_max`), so no batch needs too
        # much.
        self._gathered_bytes_max = min(
            config.max_message_bytes - encode.BATCH_OVERHEAD_BYTES, self._expansion_bytes_max // 16
        )
        # The largest batch of one record without headers that is within both bounds. 0 unless
        # batches are plain: an append that began before that changed finds out by its size.
        expanded_max = self._expansion_bytes_max - expansion_bytes(0, 1) + columnar.OVERHEAD_BYTES
        self._plain_bytes_max = min(config.max_message_bytes, expanded_max) * self._is_plain

    def _check_writable(self) -> None:
        """Refuse to write; called under the lock."""
        self._check()
        if self._refusal:
            raise ReplicaOfflineError(
                topic=self.topic, partition=self.partition, reason=self._refusal
            )

    def _take_writer(self, active: Segment) -> Handle:
        """Hold the active segment's descriptor from its first unflushed byte on (R6)."""
        writer = self._writer = active.writer(self._environment)
        dirty = self._environment.dirty
        dirty.add(self)
        if len(dirty) > self._environment.handles.capacity:
            self._flush_at = 0  # too many to hold: this append flushes and releases
        self._leave_if_detached(active)
        return writer

    def _leave_if_detached(self, segment: Segment) -> None:
        """Close everything if the log was detached meanwhile; the lock is held."""
        if self._unavailable is not None:
            self._unflushed, self._writer = [], None
            self._environment.dirty.discard(self)
            segment.leave(self._environment)

    def _add_index_entry(self, active: Segment, base_offset: int, position: int) -> None:
        index, time_index = active.index, active.time_index
        assert index is not None and time_index is not None
        if not position:
            active.first_time_ms = self._now_ms()  # also without segment_ms: it may be set later
            if self._segment_ms < NEVER:
                self._roll_at_ms = active.first_time_ms + self._segment_ms
            if len(index):
                return
        relative_offset = base_offset - active.base_offset
        index.append(relative_offset, position)
        if position:
            time_index.append(active.max_timestamp, relative_offset)
        self._indexed_position = position
        if len(index) >= self._index_entries_max:
            self._room_bytes = 0

    def _undo_write(self, position: int) -> LogStoreError | None:
        """Cut off what a failed write left after the last whole batch (R7)."""
        if not self._log_dir.is_offline:
            try:
                if self._writer is not None:
                    files.ftruncate(self._writer.fd, position)
            except OSError as second:
                return self._log_dir.flush_failed(second, self._active.log_path)
        return None

    def _activate(self, segments: list[Segment], foreign_magic: int | None = None) -> None:
        """Make the last of some segments the active one, and show them to readers."""
        active = segments[-1]
        if active.index is None or active.time_index is None:
            active.begin_indexes()
        if foreign_magic is None:
            handle = active.handle(self._environment) if active.size_bytes else None
            magic = self._magic if handle is None else magic_of(handle.fd)
            foreign_magic = 0 if magic == self._magic else magic
        room_bytes = self._room_in(active, foreign_magic)
        view, roll_at_ms = view_of(segments), NEVER
        if active.size_bytes:
            active.first_time_ms = self._now_ms()
            if self._segment_ms < NEVER:
                roll_at_ms = active.first_time_ms + self._segment_ms
        index = active.index
        indexed_position = index.positions[len(index) - 1] if index else 0
        # Nothing is called from here on, so that no interrupt leaves half of it.
        active.seal = None  # of a file that was sealed before, and grows or shrinks again now
        self._active, self._writer, self._view = active, None, view
        self._roll_at_ms, self._indexed_position = roll_at_ms, indexed_position
        self._checkpointed_bytes, self._room_bytes = 0, room_bytes
        self._foreign_magic, self._half_made = foreign_magic, ()

    def _room_in(self, active: Segment, foreign_magic: int) -> int:
        """Say how many bytes a segment takes before `_make_room` has to be called."""
        is_full = (
            len(active.index or ()) >= self._index_entries_max
            or active.end_offset - active.base_offset >= RELATIVE_OFFSET_MAX
        )
        return 0 if is_full or foreign_magic else self._segment_bytes

    @property
    def recovery_point(self) -> int:
        """Below it everything is flushed."""
        return self._recovery_point

    def _count_from_flushed(self) -> None:
        """Compute the append at which `flush_messages` will flush next."""
        self._flush_at = self._recovery_point + self._flush_messages - 1

    def _of_log(self, log_start_offset: int | None) -> OfLog:
        return OfLog(self.topic, self.partition, self.topic_id, log_start_offset)

    # --- subscribers ------------------------------------------------------------------------------

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell subscribers afterwards if the log start moved, or the log ended; holds no lock."""
        start = self._log_start_offset
        try:
            yield
        finally:
            if self._log_start_offset != start:
                tell(self._subscriptions, LogEvent.START_MOVED)
            self._tell_end()

    def _tell_end(self) -> None:
        """Tell subscribers, once, if the log was detached; the caller holds none of its locks."""
        if self._subscriptions and self._unavailable is not None:
            end_all(self._subscriptions)

    # --- its end ----------------------------------------------------------------------------------

    def detach(self, reason: LogStoreError, of: LogDir | None = None) -> None:
        """Release every file at once; from now on every call raises a copy of `reason`.

        It may be called under the log's locks, so it tells no subscriber: see `host.tell_end`.

        Args:
            of: only if the log is in this log dir: a move may just have taken it elsewhere.
        """
        kind, message, facts = type(reason), str(reason), reason.facts
        with self._appended:
            if self._unavailable is not None or (of is not None and of is not self._log_dir):
                return
            self._is_left_by_dir = of is not None
            self._unavailable = lambda: kind(message, **facts)
            # Taken here and closed below: after this a swap may serve it from elsewhere again.
            segments, held = self._view[0], (self._unflushed, self._writer)
            self._unflushed, self._writer = [], None
            self._environment.dirty.discard(self)
            self._arrivals.wake()
        for segment in segments:
            segment.leave(self._environment)
        del held
