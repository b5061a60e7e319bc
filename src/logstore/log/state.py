"""Hold the state of a log that this process writes, and the locks of the log.

Every field of a log is in this module, in `Replica`, in `Replication` or in `AppendRules`. The
packages beside this module change the fields: `write/` appends, rolls and flushes; `removal/`
truncates and applies retention; `recovery/` opens and repairs; `relocation` moves. This module
makes the changes that several packages need. This module calls the disk only to open the active
segment or to read from it.

Invariants: after a flush, log_start_offset <= recovery_point <= log_end_offset. The last segment of
the view is the active segment. While the active segment has unflushed bytes, `writer` is its
descriptor. Every other segment that may have unflushed bytes is in `unflushed`.

Two locks guard the fields, and code that needs both takes `flush_lock` first:

    lock        held to write at the end of the log: one thread appends at a time
    flush_lock  held to sync, seal, truncate, drop or move segments; no append or read waits for it

Code that removes or replaces segments holds `flush_lock`. Code that changes the active segment
holds `lock`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import ref

from logstore.disk.bell import Bell
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError, ReplicaOfflineError
from logstore.log.environment import LogEnvironment
from logstore.log.epochs import OfLog
from logstore.log.latency import Timing
from logstore.log.metadata import SPARSE_OFFSETS, PartitionMetadata
from logstore.log.producers.log_producers import LogProducers
from logstore.log.read.cut import Cut
from logstore.log.replica import Replica, view_of
from logstore.log.replication import Replication
from logstore.log.segments.cache import Handle
from logstore.log.segments.search import magic_of
from logstore.log.segments.segment import Segment
from logstore.log.subscription import LogEvent, Subscriptions, end_all, tell
from logstore.log.write.hung_locks import NOT_WRITING, Commits, held, keeping
from logstore.log.write.rules import NEVER, AppendRules, require_layout

UNFLUSHED_SEGMENTS_MAX = 32
# An offset in a segment is at most this much larger than the segment's base offset.
# This is Kafka's limit, so a broker can read the segment.
# The index entries of this engine have room for 32 bits, one bit more than Kafka allows.
RELATIVE_OFFSET_MAX = 2**31 - 1
POSITION_MAX = 2**32 - 1

# A segment that may have unflushed bytes, and its open file.
# The file is None if this process has not opened it for writing.
Unflushed = tuple[Segment, Handle | None]


class LogState(Replica):
    """The fields and the locks of a log, and the changes of fields that several packages need.

    A field that is read without its lock is one reference or one number, so a reader sees either
    the old value or the new value. This docstring, or the code that reads such a field, says why an
    old value does no harm.

    Attributes:
        lock, flush_lock: the two locks that are described above.
        appended: guards `unavailable` and `log_dir`; a thread holds it only for a moment.
        now_ms: the clock of the environment; never changes.

        Written under `lock`:
        active: the segment that appends write to, which is the last segment of the view.
        writer: the descriptor of the active segment while that segment has unflushed bytes; else
            None.
        room_bytes: a batch that would end after this position goes into a new segment. The value is
            `rules.segment_bytes`, or 0 if the next append first has to roll or to remove
            `half_made`.
        roll_at_ms: the time at which the active segment becomes too old. `roll_if_due` reads this
            time first without the lock, and again under the lock.
        foreign_magic: the layout of the active segment if it is not the configured layout; else 0.
        indexed_position: the position in the last index entry.
        half_made: files with bytes that are not part of the log yet (see `roll`).
        unflushed: the sealed segments that may have unflushed bytes, in order. A flush removes
            entries under `lock`, too.
        names_changed: how many new file names are not durable. A flush sets this number to 0,
            unless a name was added during the flush.
        flush_at: the offset at which an append flushes. An append reads this field without a lock.
            If the append sees the old value, the next append flushes.
        checkpointed_bytes: how many bytes of the active segment are described by its index files;
            -1 if the files do not describe the segment.
        replication: leader epochs and high watermark; the docstring of `Replication` lists the
            locks.
        producers: the batches that each producer sent; the docstring of `LogProducers` lists the
            locks.

        Written under `flush_lock`:
        recovery_point: everything below this offset is flushed. Only a truncation lowers the
            recovery point. Without the lock, a reader may see an earlier offset; everything below
            this offset is durable, too.
        flushed_ms: the time of the last flush; only the keeper of the log dir reads it.
        is_closed_whole: a close has flushed everything, so the log needs no further flush.

        Written under both locks:
        rules: the part of the configuration that appends use.
        refusal: why nothing can be appended although the log can be read; "" if records can be
            appended.
        cut_offset: the smallest offset to which the log was truncated since the running compaction
            began; 0 after a repair. If a compaction has read keys at or after this offset, it
            replaces no more segments.
        is_left_by_dir: True if the log was detached only because its log dir failed, so that a move
            may still save the log. This field is written together with `unavailable`, under
            `appended`.

        These fields need no lock of the log:
        arrivals, waiters: the threads that wait for records; a Bell needs no lock.
        subscriptions: the subscriptions to this log; an empty dict without subscriptions.
        commit: combines durable appends; made once, under `lock`.
        compacting: the lock that a thread holds while it compacts the log, from the plan to the
            end. A thread that takes this lock holds no other lock.
        timing: counts latencies while a mover watches the log; else None.
        writing, kept, in_custody, keepers: which locks a hung thread holds (see `hung_locks`).
    """

    __slots__ = (
        "active",
        "appended",
        "arrivals",
        "checkpointed_bytes",
        "commit",
        "compacting",
        "cut_offset",
        "flush_at",
        "flush_lock",
        "flushed_ms",
        "foreign_magic",
        "half_made",
        "in_custody",
        "indexed_position",
        "is_closed_whole",
        "is_left_by_dir",
        "keepers",
        "kept",
        "lock",
        "names_changed",
        "now_ms",
        "producers",
        "recovery_point",
        "refusal",
        "replication",
        "roll_at_ms",
        "room_bytes",
        "rules",
        "subscriptions",
        "timing",
        "unflushed",
        "waiters",
        "writer",
        "writing",
    )

    def __init__(
        self,
        log_dir: LogDir,
        directory: str,
        metadata: PartitionMetadata,
        environment: LogEnvironment,
    ) -> None:
        super().__init__(log_dir, directory, metadata, environment)
        require_layout(metadata.config, directory)
        self.now_ms = environment.clock.now_ms
        self.rules = AppendRules(metadata.config, environment.record_expansion_bytes_max)
        self.replication = Replication(directory, metadata.log_start_offset)
        self.producers = LogProducers()
        self.renew_locks()
        self.arrivals = Bell()
        self.waiters = self.arrivals.waiters
        self.subscriptions: Subscriptions = {}
        self.timing: Timing | None = None
        self.refusal = ""
        self.is_left_by_dir = self.is_closed_whole = False
        self.writing = NOT_WRITING
        self.in_custody: set[str] = set()
        self.keepers: set[ref[keeping]] = set()
        self.kept = ""
        self.active = Segment(directory, metadata.log_start_offset)
        self.writer: Handle | None = None
        self.room_bytes = self.rules.segment_bytes
        self.roll_at_ms = NEVER
        self.foreign_magic = 0
        self.indexed_position = 0
        self.half_made: tuple[str, ...] = ()
        self.unflushed: list[Unflushed] = []
        self.names_changed = 0
        self.checkpointed_bytes = -1
        self.recovery_point = 0
        self.cut_offset = NEVER
        self.flush_at = NEVER
        self.flushed_ms = self.now_ms()

    def renew_locks(self) -> None:
        """Replace the locks in a forked child: threads of the parent may hold them."""
        self.lock = threading.Lock()
        self.flush_lock = threading.Lock()
        self.appended = threading.Lock()
        self.compacting = threading.Lock()
        self.commit: Commits | None = None

    @property
    def high_watermark(self) -> int:
        """The offset below which all in-sync replicas have the records; if unknown, the log end."""
        replicated_to = self.replication.replicated_to
        return self.log_end_offset if replicated_to is None else self.within(replicated_to)

    # --- whether it accepts records --------------------------------------------------------------

    def check_current(self) -> None:
        """Raise an error if the log is closed or unavailable, or if its log dir is an old copy."""
        self.check()
        if self.log_dir.is_outdated:
            self.log_dir.check_current()

    def check_writable(self) -> None:
        """Raise an error if the log refuses writes; the caller must hold the lock."""
        self.check_current()
        if self.refusal:
            raise ReplicaOfflineError(
                topic=self.topic, partition=self.partition, reason=self.refusal
            )

    def check_appendable(self) -> None:
        """Raise an error if the log refuses appends; the caller must hold the lock.

        If the disk was full, this call first checks whether it has space again.
        """
        self.check_writable()
        if self.log_dir.is_refusing_appends:
            with held(self, "lock"):
                self.log_dir.check_appendable()

    def wait_until(self, is_true: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until a change of the log makes a condition true; return False after the timeout.

        Raises:
            LogStoreError: the log is closed or unavailable.
        """
        self.arrivals.wait_for(lambda: self.unavailable is not None or is_true(), timeout)
        self.check()
        return is_true()

    # --- the active segment ----------------------------------------------------------------------

    def take_writer(self, active: Segment) -> Handle:
        """Keep a descriptor while bytes are unflushed: a newer descriptor may miss errors (R6)."""
        writer = self.writer = active.writer(self.environment)
        dirty = self.environment.dirty
        dirty.add(self)
        if len(dirty) > self.environment.handles.capacity:
            # too many descriptors are open: this append flushes, and so frees a descriptor
            self.flush_at = 0
        self.leave_if_detached(active)
        return writer

    def leave_if_detached(self, segment: Segment) -> None:
        """Close all files if the log was detached meanwhile; the caller must hold the lock."""
        if self.unavailable is not None:
            self.unflushed, self.writer = [], None
            self.environment.dirty.discard(self)
            segment.leave(self.environment)

    def add_index_entry(self, active: Segment, base_offset: int, position: int) -> None:
        """Add a batch to the active segment's index; the caller must hold the lock."""
        index, time_index = active.index, active.time_index
        assert index is not None and time_index is not None
        if not position:
            active.first_time_ms = self.now_ms()  # the time is needed if segment_ms is set later
            self.roll_at_ms = self.roll_time(active.first_time_ms)
            if len(index):
                return
        relative_offset = base_offset - active.base_offset
        index.append(relative_offset, position)
        if position:
            time_index.append(active.max_timestamp, relative_offset)
        self.indexed_position = position
        if len(index) >= self.rules.index_entries_max:
            self.room_bytes = 0

    def roll_time(self, first_time_ms: int) -> int:
        """Return the time at which a segment is too old, from the time of its first append."""
        segment_ms = self.rules.segment_ms
        return first_time_ms + segment_ms if segment_ms < NEVER else NEVER

    def activate(self, segments: list[Segment], foreign_magic: int | None = None) -> None:
        """Show the given segments to readers; the last of them becomes the active segment."""
        active, last_cut = segments[-1], self.cut
        end = max(active.end_offset, self.log_start_offset)
        cut = Cut(end) if end < self.log_end_offset else last_cut
        if active.index is None or active.time_index is None:
            active.begin_indexes()
        if foreign_magic is None:
            handle = active.handle(self.environment) if active.size_bytes else None
            magic = self.rules.magic if handle is None else magic_of(handle.fd)
            foreign_magic = 0 if magic == self.rules.magic else magic
        room_bytes = self.room_in(active, foreign_magic)
        view, roll_at_ms = view_of(segments), NEVER
        if active.size_bytes:
            active.first_time_ms = self.now_ms()
            roll_at_ms = self.roll_time(active.first_time_ms)
        index = active.index
        indexed_position = index.positions[len(index) - 1] if index else 0
        sound_from = min(active.sound_from, active.size_bytes)
        # The lines below call nothing, so that an interrupt cannot come between two of them.
        active.sound_from = sound_from
        active.seal = None  # a seal describes a sealed file, but now this file can grow again
        self.active, self.writer, self.view = active, None, view
        if cut is not last_cut:
            self.cut = last_cut.later = cut
        self.roll_at_ms, self.indexed_position = roll_at_ms, indexed_position
        self.checkpointed_bytes, self.room_bytes = -1, room_bytes
        self.foreign_magic, self.half_made = foreign_magic, ()

    def room_in(self, active: Segment, foreign_magic: int) -> int:
        """Return the segment size at which `roll.make_room` has to be called."""
        is_full = (
            len(active.index or ()) >= self.rules.index_entries_max
            or active.end_offset - active.base_offset >= RELATIVE_OFFSET_MAX
        )
        return 0 if is_full or foreign_magic else self.rules.segment_bytes

    # --- durability ------------------------------------------------------------------------------

    def note_flushed(self, offset: int) -> None:
        """Remember that everything below an offset is flushed; later bytes may be unflushed.

        The caller must hold the flush lock. `flush_messages` counts records from this offset on.
        """
        assert offset <= self.log_end_offset
        self.recovery_point = offset
        self.count_from_flushed()

    def count_from_flushed(self) -> None:
        """Compute the offset at which an append has to flush because of `flush_messages`."""
        self.flush_at = self.recovery_point + self.rules.flush_messages - 1

    def of_log(self, log_start_offset: int | None) -> OfLog:
        """Describe this log, for the `leader-epoch-checkpoint` that belongs to it."""
        metadata = self.metadata
        is_sparse = bool(metadata.extra.get(SPARSE_OFFSETS))
        return OfLog(self.topic, self.partition, metadata.topic_id, log_start_offset, is_sparse)

    # --- subscribers -----------------------------------------------------------------------------

    @contextmanager
    def telling(self) -> Iterator[None]:
        """After the `with` block, report a new log start or a detached log to the subscribers.

        The caller must hold no lock.
        """
        start = self.log_start_offset
        try:
            yield
        finally:
            if self.log_start_offset != start:
                tell(self.subscriptions, LogEvent.START_MOVED)
            self.tell_end()

    def tell_end(self) -> None:
        """Report once to subscribers that the log is detached; the caller must hold no log lock."""
        if self.subscriptions and self.unavailable is not None:
            end_all(self.subscriptions)

    # --- its end ---------------------------------------------------------------------------------

    def detach(self, reason: LogStoreError, of: LogDir | None = None) -> None:
        """Release all files now; each later call to the log raises a copy of `reason`.

        A caller may hold the log's locks, so this method does not call the subscribers: `tell_end`
        calls them.

        Args:
            of: a log dir, or None. If a move has taken the log to another log dir, this call does
                nothing.
        """
        kind, message, facts = type(reason), str(reason), reason.facts
        with self.appended:
            if self.unavailable is not None or (of is not None and of is not self.log_dir):
                return
            self.is_left_by_dir = of is not None
            self.unavailable = lambda: kind(message, **facts)
            # Take the files here and close them below.
            # The reason is that a swap may attach other files meanwhile.
            segments, held_files = self.view[0], (self.unflushed, self.writer)
            self.unflushed, self.writer = [], None
            self.environment.dirty.discard(self)
            self.arrivals.wake()
        for segment in segments:
            segment.leave(self.environment)
        del held_files
