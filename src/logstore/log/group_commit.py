"""Share one sync among the durable appends of many threads.

Whoever comes while no commit runs leads one: it takes all that wait, lays them out as one batch,
writes it and syncs once for all. Whoever comes while one runs waits, and the first of those leads
the next. So a sync always carries everything that arrived during the one before it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from logstore.format.batch import Headers
from logstore.log import encode

if TYPE_CHECKING:
    from logstore.log.log import Log


class _Waiter:
    """Hold one record on its way, and the lock that its thread sleeps on."""

    __slots__ = (
        "error",
        "headers",
        "key",
        "lock",
        "must_lead",
        "offset",
        "size_bytes",
        "timestamp",
        "value",
    )

    def __init__(
        self, value: bytes | None, key: bytes | None, timestamp: int | None, headers: Headers
    ) -> None:
        self.value = value
        self.key = key
        self.timestamp = timestamp
        self.headers = headers
        self.size_bytes = 96 + len(value or b"") + len(key or b"")
        self.offset = -1
        self.error: BaseException | None = None
        self.must_lead = False
        self.lock = threading.Lock()
        self.lock.acquire()


class GroupCommit:
    """Combine the durable appends of one log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._mutex = threading.Lock()
        self._queue: list[_Waiter] = []
        self._is_led = False

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: encode.HeadersLike,
    ) -> int:
        """Append one record durably and give its offset; raises as `Log.append` does."""
        if not self._is_led:
            with self._mutex:
                is_alone = not self._is_led
                self._is_led = True
            if is_alone:
                return self._append_alone(value, key, timestamp, headers)
        waiter = _Waiter(
            encode.check_cell(value, "value"),
            encode.check_cell(key, "key"),
            self._log._now_ms() if timestamp is None else encode.check_timestamp(timestamp),
            encode.check_headers(headers),
        )
        if waiter.size_bytes > self._log._max_message_bytes:
            raise self._log._too_large(waiter.size_bytes)
        with self._mutex:
            self._queue.append(waiter)
            leads = not self._is_led
            self._is_led = True
        if not leads:
            try:
                waiter.lock.acquire()
            except BaseException:  # Ctrl-C while waiting: nobody else may wait for this thread
                self._give_up(waiter)
                raise
            leads = waiter.must_lead
        if leads:
            self._lead()
        if waiter.error is not None:
            raise waiter.error
        return waiter.offset

    def _give_up(self, waiter: _Waiter) -> None:
        """Take an abandoned record out; if it was just made to lead, let it lead first."""
        with self._mutex:
            if waiter in self._queue and not waiter.must_lead:
                self._queue.remove(waiter)
            must_lead = waiter.must_lead and waiter in self._queue
        if must_lead:
            self._lead()

    def _append_alone(
        self,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: encode.HeadersLike,
    ) -> int:
        """Append and sync with nobody else's record, then hand the lead to who came meanwhile."""
        log = self._log
        try:
            offset = log.append(value, key=key, timestamp=timestamp, headers=headers)
            log._flush_to(offset + 1)
        finally:
            with self._mutex:
                if self._queue:
                    self._queue[0].must_lead = True
                    self._queue[0].lock.release()
                else:
                    self._is_led = False
        return offset

    def _lead(self) -> None:
        """Commit what waits, this thread's record among it, and hand the lead on."""
        with self._mutex:
            taken = self._take()
        try:
            self._commit(taken)
        except BaseException as error:
            for waiter in taken:
                waiter.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            with self._mutex:
                if self._queue:
                    self._queue[0].must_lead = True
                    self._queue[0].lock.release()
                else:
                    self._is_led = False
            for waiter in taken:
                if not waiter.must_lead:
                    waiter.lock.release()

    def _take(self) -> list[_Waiter]:
        """Take as many as fit into one batch; the leader's own record is the first of them."""
        room, count = self._log._max_message_bytes, 0
        for waiter in self._queue:
            room -= waiter.size_bytes
            if room < 0 and count:
                break
            count += 1
        taken, self._queue = self._queue[:count], self._queue[count:]
        return taken

    def _commit(self, waiters: list[_Waiter]) -> None:
        log = self._log
        if len(waiters) == 1:
            one = waiters[0]
            one.offset = log.append(
                one.value, key=one.key, timestamp=one.timestamp, headers=one.headers
            )
            log._flush_to(one.offset + 1)
            return
        payload = log._build(
            [waiter.value for waiter in waiters],
            [waiter.key for waiter in waiters],
            [waiter.timestamp for waiter in waiters],
            [waiter.headers for waiter in waiters],
        )
        offset = log._append_payload(payload)
        log._flush_to(offset + len(waiters))
        for number, waiter in enumerate(waiters):
            waiter.offset = offset + number
