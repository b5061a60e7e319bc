"""Gather small appends into batches (`log.appender()`).

A batch is sent (that is, appended to the log) in four cases: the next record would make it larger
than `max_bytes`, `linger` is over, or `flush` or `close` is called. A future has three small
fields, and no lock of its own. If a caller asks a future for its offset, the caller waits until the
batch is sent.

While records wait to be sent, the appender's thread refers to the appender, so the appender and its
store stay alive. At other times, the thread does not refer to the appender. If neither the thread
nor another object refers to the appender, the thread ends.

Batches form a chain. The first batch of the chain is the oldest batch that was not sent yet. The
last batch is the newest batch, which takes records. A batch is closed when the next batch is linked
to it. A batch leaves the chain when its offset or its error is known. So if a thread is interrupted
at any point, every record that it added stays in the chain. The record is then sent by the next
append, by the appender's thread, by `flush` or `close`, or by a caller that asks for an offset.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from logstore.arguments import flag, seconds, timeout_of, whole
from logstore.disk.bell import Bell
from logstore.disk.threads import Thread, start_for
from logstore.disk.uninterrupted import uninterrupted
from logstore.errors import LogClosedError, MissingKeyError
from logstore.format.batch import Headers
from logstore.log.state import LogState
from logstore.log.write import appending, encode, flush

if TYPE_CHECKING:
    from types import TracebackType


class _Batch:
    """Records that will become one batch. A column is created when the first record needs it."""

    __slots__ = (
        "error",
        "headers",
        "is_done",
        "is_rich",
        "keys",
        "next",
        "offset",
        "size_bytes",
        "timestamps",
        "values",
        "wakers",
        "written",
    )

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.timestamps: list[int | None] | None = None
        self.headers: list[Headers] | None = None
        self.size_bytes = 0
        self.offset = -1
        # The base offset of the batch, after the append; the futures may still wait for a sync.
        self.written = -1
        self.error: Exception | None = None
        self.is_rich = False
        self.is_done: Bell | None = None
        # Functions that wake waiting coroutines; they are called when the batch is done.
        # Any thread may add a function at any time.
        self.wakers: list[Callable[[], object]] = []
        # The next batch; set once. When this is set, no more records are added to this batch.
        self.next: _Batch | None = None

    def trim(self) -> None:
        """Remove the cells that an interrupted append of one record left in the columns."""
        count = len(self.values)
        for column in (self.keys, self.timestamps, self.headers):
            if column is not None:
                del column[count:]

    def add_rich(self, key: bytes | None, timestamp: int | None, pairs: Headers) -> None:
        """Add a record's key, timestamp and headers; after this, the caller must add the value."""
        count = len(self.values)
        self.is_rich = True
        self.trim()
        if key is not None and self.keys is None:
            self.keys = [None] * count
        if timestamp is not None and self.timestamps is None:
            self.timestamps = [None] * count
        if pairs and self.headers is None:
            self.headers = [()] * count
        if self.keys is not None:
            self.keys.append(key)
        if self.timestamps is not None:
            self.timestamps.append(timestamp)
        if self.headers is not None:
            self.headers.append(pairs)


class AppendFuture:
    """The offset of a record that is being appended; a coroutine may await it."""

    __slots__ = ("_appender", "_batch", "_index")

    def __init__(self, appender: Appender, batch: _Batch, index: int) -> None:
        self._appender = appender
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        if self._batch.error is not None:
            return f"AppendFuture({type(self._batch.error).__name__})"
        return f"AppendFuture({'offset ' + str(self.result(0)) if self.done() else 'pending'})"

    def __await__(self) -> Generator[Any, None, int]:
        if not self.done():
            import asyncio

            sent, loop = asyncio.Event(), asyncio.get_running_loop()
            self._batch.wakers.append(lambda: loop.call_soon_threadsafe(sent.set))
            if not self.done():  # if the batch has just ended, the sender may miss the new function
                yield from sent.wait().__await__()
        return self.result()

    def done(self) -> bool:
        """Check whether the append of the record has succeeded or failed."""
        return self._batch.offset >= 0 or self._batch.error is not None

    def result(self, timeout: float | None = None) -> int:
        """Wait for the record's offset.

        Raises the error of the record's append, or TimeoutError.
        """
        timeout = timeout_of(timeout)
        batch = self._batch
        if batch.offset < 0 and batch.error is None:
            self._appender._wait(batch, timeout)
        if batch.error is not None:
            raise batch.error
        return batch.offset + self._index


class Appender:
    """Gathers small appends of any number of threads; use it in a `with` block, or close it."""

    def __init__(
        self, state: LogState, linger: float, max_bytes: int, durable: bool = False
    ) -> None:
        linger, max_bytes = seconds(linger, "linger"), whole(max_bytes, "max_bytes", 1)
        self._state = state
        self._linger = linger
        self._is_durable = flag(durable, "durable")
        self._max_bytes = max_bytes
        # A thread holds this lock while it sends.
        # A thread that holds the mutex never takes this lock.
        # The reason is that the mutex may be held only for a short time.
        self._send_lock = threading.Lock()
        self._mutex = threading.Lock()
        self._batch = self._oldest = _Batch()
        self._has_records = Bell()
        self._closing = Bell()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        # While records wait, this list contains the appender; otherwise the list is empty.
        # The thread refers only to this list.
        self._kept: list[Appender] = []

    def __repr__(self) -> str:
        return f"<Appender of {self._state.name}, {len(self._batch.values)} wait>"

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: encode.Timestamp | None = None,
        headers: encode.HeadersLike = (),
    ) -> AppendFuture:
        """Add one record to the batch; return a future that will have the record's offset.

        Raises:
            TypeError, ValueError, RecordTooLargeError: the record is invalid; nothing was added.
            LogClosedError: the appender was closed.
            LogDirError: the process cannot start the appender's thread; retriable.
        """
        pairs = headers if headers is encode.NO_HEADERS else encode.check_headers(headers)
        if type(value) is not bytes:
            value = encode.check_cell(value, "value")
        if key is not None and type(key) is not bytes:
            key = encode.check_cell(key, "key")
        if timestamp is not None and (
            type(timestamp) is not int or not 0 <= timestamp <= encode.TIMESTAMP_MAX
        ):
            timestamp = encode.check_timestamp(timestamp)
        size = encode.size_max(value, key, pairs)
        state = self._state
        rules = state.rules
        bytes_max = rules.gathered_bytes_max
        if key is None and rules.requires_keys:
            raise MissingKeyError(number=0)
        if size > bytes_max:
            appending.build(state, [value], [key], timestamp, [pairs])  # raises the size error
        with self._mutex:
            full = batch = self._batch
            index = len(batch.values)
            total = batch.size_bytes + size
            if index and (total > self._max_bytes or total > bytes_max):
                batch = self._begin_next(batch)
                index = 0
            if not index:
                self._begin(batch)
            if key is not None or timestamp is not None or pairs or batch.is_rich:
                batch.add_rich(key, timestamp, pairs)
            batch.size_bytes += size
            batch.values.append(value)
        if full is not batch:
            self._send_closed()
        return AppendFuture(self, batch, index)

    def _begin(self, batch: _Batch) -> None:
        """Start the linger time of a batch with its first record; the caller holds the mutex."""
        self._check_open()
        if self._thread is None:
            bell = self._has_records
            # When the appender is dropped, its thread ends.
            entry = ref(self, lambda _: bell.ring())
            arguments = (entry, self._kept, bell)
            thread = Thread(target=_send_due, args=arguments, name="logstore-appender", daemon=True)
            start_for(self._state.log_dir.path, thread)
            self._thread = thread
        self._kept.append(self)
        self._has_records.ring()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosedError(reason="the appender was closed")

    def _begin_next(self, batch: _Batch) -> _Batch:
        """Close a full batch, and return the next batch; the caller must hold the mutex."""
        self._check_open()
        fresh = _Batch()
        # If this thread is interrupted, the appender's thread sends the batch.
        self._has_records.ring()
        batch.next = self._batch = fresh
        return fresh

    def send_later(self) -> bool:
        """Wait for the linger time, then send the batch; return False after a close."""
        batch = self._batch
        self._closing.wait(self._linger)
        self._cut(batch)
        return not self._is_closed

    def _cut(self, batch: _Batch) -> None:
        """If a batch is still the current batch, close it; then send all closed batches."""
        with self._mutex:
            if batch.values and batch.next is None:
                batch.next = self._batch = _Batch()
        self._send_closed()

    def _send_closed(self) -> None:
        """Send the closed batches, the oldest first."""
        with self._send_lock:
            while True:
                batch = self._oldest
                following = batch.next
                if following is None:
                    return
                if batch.offset < 0 and batch.error is None:
                    self._send(batch)
                if batch.is_done is not None:
                    batch.is_done.ring()
                for wake in list(batch.wakers):
                    with suppress(RuntimeError):  # the coroutine's loop was closed
                        wake()
                self._oldest = following

    def _send(self, batch: _Batch) -> None:
        """Append a batch.

        The caller must hold `_send_lock`. If the append fails, the futures of the batch raise the
        error.

        If the append is interrupted before the records are in the log, the batch is sent again
        later.
        """
        batch.trim()
        state, receipt = self._state, [batch.written]
        try:
            if batch.written < 0:
                payload = appending.build(
                    state,
                    batch.values,
                    batch.keys,
                    batch.timestamps,
                    batch.headers,
                    is_gathered=True,
                )
                appending.append_payload(state, payload, receipt)
            if self._is_durable:
                flush.flush_appended(state, receipt[0] + len(batch.values))
            batch.offset = receipt[0]
        except Exception as error:  # noqa: BLE001 - the futures raise it
            batch.error = error
        except BaseException:
            batch.written = receipt[0]
            if not self._is_durable:
                batch.offset = batch.written
            raise

    def _wait(self, batch: _Batch, timeout: float | None) -> None:
        with self._mutex:
            if batch.is_done is None:
                batch.is_done = Bell()
        if batch.next is not None and not self._send_lock.locked():
            self._send_closed()  # the thread that closed the batch was interrupted
        if batch.offset < 0 and batch.error is None and not batch.is_done.wait(timeout):
            raise TimeoutError(f"the record was not appended within {timeout} s")

    def flush(self) -> None:
        """Append all waiting records; return when all of them are in the log.

        If the appender was made with `durable=True`, these records are on the disk when the call
        returns. For any other appender, `Log.flush` makes the records durable.
        """
        self._cut(self._batch)

    def close(self) -> None:
        """Append all waiting records, and accept no more records; closing twice is allowed."""
        with self._mutex:
            self._is_closed = True
        self._closing.ring()
        self._has_records.ring()
        self._cut(self._batch)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # a second interrupt in a `join` would block the next `join`
            uninterrupted(lambda _: thread.join())

    def __enter__(self) -> Appender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _send_due(entry: ref[Appender], kept: list[Appender], has_records: Bell) -> None:
    """Send batches until the appender is closed.

    Args:
        kept: a list that refers to the appender while records wait for this thread.
    """
    is_open = True
    while is_open:
        has_records.wait()
        has_records.clear()
        appender = entry()
        kept.clear()
        is_open = appender is not None and appender.send_later()
        del appender
