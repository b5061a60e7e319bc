"""Share one sync among the durable appends of many threads.

If a thread arrives while no commit is running, the thread appends its record alone. If a thread
arrives while a commit is running, the thread joins the waiting group. The first thread of a group
is the group's leader. The leader waits for the lock that every commit takes, writes the records of
the whole group as one batch, and syncs once. After the sync, the leader opens the group's gate for
one thread. Each thread that passes the gate opens the gate for the next thread. So one sync makes
all records durable that arrived during the previous sync. Threads are woken one after the other,
not all at once.

When a record is committed, its thread often appends another record. So a leader waits, for a few
milliseconds at most, until all threads of the previous group have passed their gate. After this
wait, one sync serves all threads. Without this wait, the threads would form two groups, which take
turns and sync separately.

Ctrl-C may interrupt any step. So every lock is taken by `with`, and a record joins its group by one
call. Once the commit of a group has begun, the group is completed in any case. If a leader is
interrupted before the commit begins, it starts a thread that replaces the leader. The record of an
interrupted thread stays in the group, and the group still writes it.
"""

from __future__ import annotations

import threading
from weakref import ref

from logstore.disk.threads import Thread, start
from logstore.errors import LogStoreError, MissingKeyError
from logstore.format.batch import Headers
from logstore.log.state import LogState
from logstore.log.write import appending, encode, flush
from logstore.log.write.hung_locks import NOT_WRITING, keeping, reclaim

# The longest time that a leader waits for the previous group.
# The wait takes this long only if a thread of the previous group was interrupted.
PATIENCE_SECONDS = 0.005


class _Leaving:
    """Counts the threads that have not passed a group's gate; the last thread releases `is_over`.

    A thread lowers the count while it passes the gate, so only one thread lowers the count at a
    time. If an interrupted thread does not lower the count, the only harm is that a leader waits
    for `PATIENCE_SECONDS`.
    """

    __slots__ = ("count", "is_over")

    def __init__(self) -> None:
        self.count = 0
        self.is_over = threading.Lock()
        self.is_over.acquire()

    def lower(self) -> None:
        """Count one more thread that has passed the gate."""
        self.count -= 1
        if not self.count:
            self.is_over.release()


class _Group:
    """Records that share one sync. The gate of a group lets its threads through one by one."""

    __slots__ = (
        "error",
        "gate",
        "has_leader",
        "is_done",
        "is_open",
        "leaving",
        "offset",
        "records",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None, int, Headers]] = []
        self.size_bytes = 0
        self.offset = -1
        self.error: Exception | None = None
        self.has_leader = False
        self.is_done = False
        self.is_open = False
        self.leaving = _Leaving()
        self.gate = threading.Lock()
        self.gate.acquire()


def of(state: LogState) -> GroupCommit:
    """Return the object that combines a log's durable appends; make it at the first append."""
    with state.lock:
        commit = state.commit
        if not isinstance(commit, GroupCommit):
            commit = state.commit = GroupCommit(state)
        return commit


class GroupCommit:
    """Combines the durable appends of one log."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.commit_lock = threading.Lock()
        self._mutex = threading.Lock()
        self._waiting: list[_Group] = []
        self._committing: _Group | None = None
        self._leaving = _Leaving()  # the threads of the group whose commit began most recently
        self.in_custody: set[str] = set()
        self.keepers: set[ref[keeping]] = set()
        self.writing = NOT_WRITING
        self.kept = ""

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        timestamp: encode.Timestamp | None,
        headers: encode.HeadersLike,
    ) -> int:
        """Append one record durably and return its offset. Raises the errors of `Log.append`."""
        state = self._state
        if state.log_dir.is_refusing:
            state.check()
        is_alone = not self._waiting and self._leaving.count <= 0
        if is_alone and not self.commit_lock.locked():
            with self.commit_lock:
                if not self._waiting and not self.in_custody:
                    self.kept = "commit_lock"
                    try:
                        offset = appending.append_record(state, value, key, timestamp, headers)
                        flush.flush_appended(state, offset + 1)
                    finally:
                        self.kept = ""
                        if self.in_custody:
                            reclaim(self, ("commit_lock",))
                    return offset
        value = encode.check_cell(value, "value")
        key = encode.check_cell(key, "key")
        timestamp = state.now_ms() if timestamp is None else encode.check_timestamp(timestamp)
        pairs = encode.check_headers(headers)
        if key is None and state.rules.requires_keys:
            raise MissingKeyError(number=0)
        size = encode.size_max(value, key, pairs)
        if size > state.rules.gathered_bytes_max:
            appending.build(state, [value], [key], timestamp, [pairs])  # raises the size error
        group, is_leader = None, False
        try:
            with self._mutex:
                group = self._last_with_room(size)
                is_leader, group.has_leader = not group.has_leader, True
                index = len(group.records)
                group.size_bytes += size
                group.records.append((value, key, timestamp, pairs))
            if is_leader:
                self._lead(group)
            else:
                with group.gate:
                    group.leaving.lower()
        except BaseException:
            if is_leader and group is not None and not group.is_open:
                group.has_leader = False
                self._have_led(group)
            raise
        if group.error is not None:
            try:
                raise group.error
            finally:
                # avoid a reference cycle that keeps a descriptor open
                del group
        return group.offset + index

    def _last_with_room(self, size_bytes: int) -> _Group:
        """Return the last waiting group with room, or a new group.

        The caller must hold the mutex.
        """
        waiting = self._waiting
        room = self._state.rules.gathered_bytes_max
        while waiting and waiting[-1].is_done:
            waiting.pop()  # the leader was interrupted at the start of its commit
        if not waiting or waiting[-1].size_bytes + size_bytes > room:
            waiting.append(_Group())
        return waiting[-1]

    def _lead(self, group: _Group) -> None:
        """Commit a group after all earlier commits, if no other thread has committed it."""
        try:
            with self.commit_lock, keeping(self, "commit_lock"):
                if not group.is_done:
                    if self._leaving.count > 0:
                        self._leaving.is_over.acquire(timeout=PATIENCE_SECONDS)
                    self._commit(group)
        finally:  # `commit_lock` is free now, so the next commit does not wait for this block
            with self._mutex:
                if group.is_done:
                    self._open(group)
            del group

    def _have_led(self, group: _Group) -> None:
        """Lead a group in a new thread that replaces the interrupted leader."""
        try:
            start(Thread(target=self._lead, args=(group,), name="logstore-stand-in", daemon=True))
        except RuntimeError:  # no thread can be started
            self._lead(group)

    def _open(self, group: _Group) -> None:
        """Wake all threads of a group, once; the caller must hold the mutex."""
        if not group.is_open:
            group.is_open = True
            group.gate.release()

    def _commit(self, group: _Group) -> None:
        """Append and sync the records of a group; from now on, no thread can join the group."""
        try:
            with self._mutex:
                if group.is_done:  # another thread ended the group
                    return
                self._waiting.remove(group)
                self._committing = group
                group.leaving.count = len(group.records) - 1
                self._leaving = group.leaving
            if group.records:
                state = self._state
                columns = zip(*group.records, strict=True)
                payload = appending.build(state, *columns, is_gathered=True)
                offset = appending.append_payload(state, payload)
                flush.flush_appended(state, offset + len(group.records))
                group.offset, group.error = offset, None
        except Exception as error:  # noqa: BLE001 - every thread in the group raises it
            group.error = error
        except BaseException:
            group.error = LogStoreError(
                "the thread that commits the group was interrupted; the record may be in the "
                "log or not"
            )
            raise
        finally:
            self._committing, group.is_done = None, True
            del group

    # --- when the disk hangs (see `hung_locks`) -------------------------------------------------

    def give_up(self) -> None:
        """Release the threads that wait for a group commit, because the log dir is SUSPECT."""
        with self._mutex:
            waiting, self._waiting = self._waiting, []
            for group in waiting:
                self._let_go(group, "nothing was written", retriable=True)
            committing = self._committing
            if committing is not None and not committing.is_done:
                outcome = "the record may be in the log or not, because the write or the sync hangs"
                self._let_go(committing, outcome, retriable=False)

    def _let_go(self, group: _Group, outcome: str, *, retriable: bool) -> None:
        """Make all threads in a group raise an error; the caller must hold the mutex."""
        group.error = self._state.log_dir.suspect_error(f"; {outcome}", retriable=retriable)
        group.is_done = True
        self._open(group)
