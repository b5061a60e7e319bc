"""Share one sync among the durable appends of many threads.

Who comes while no commit runs appends alone. Who comes while one runs joins the last group that
waits. When a commit is over, the gate of the first group opens by one: whoever passes it finds the
group not done yet, so it leads: it writes the records of all as one batch, syncs once, and opens
the gate for the next, who finds the group done, opens it again, and so on. So a sync carries all
that arrived during the one before it, and threads are woken one after the other, not in a herd.

A thread that is interrupted while it waits leaves its record behind; the group carries it all the
same, and a stand-in passes the gate in its place.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from logstore.errors import LogStoreError
from logstore.format.batch import Headers
from logstore.log import encode

if TYPE_CHECKING:
    from logstore.log.log import Log


class _Group:
    """Hold the records that one sync will carry; the gate lets one thread through at a time."""

    __slots__ = (
        "error",
        "gate",
        "headers",
        "is_done",
        "keys",
        "offset",
        "size_bytes",
        "timestamps",
        "values",
    )

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.timestamps: list[int | None] = []
        self.headers: list[Headers] = []
        self.size_bytes = 0
        self.offset = -1
        self.error: Exception | None = None
        self.is_done = False
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """Combine the durable appends of one log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._mutex = threading.Lock()
        self._waiting: list[_Group] = []
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
            offset = self._append_alone(value, key, timestamp, headers)
            if offset is not None:
                return offset
        value = encode.check_cell(value, "value")
        key = encode.check_cell(key, "key")
        timestamp = self._log._now_ms() if timestamp is None else encode.check_timestamp(timestamp)
        pairs = encode.check_headers(headers)
        size = encode.size_max(value, key, pairs)
        if size + encode.BATCH_OVERHEAD_BYTES > self._log._max_message_bytes:
            self._log._build([value], [key], timestamp, [pairs])  # raises when it is too large
        with self._mutex:
            group = self._last_with_room(size)
            index = len(group.values)
            group.values.append(value)
            group.keys.append(key)
            group.timestamps.append(timestamp)
            group.headers.append(pairs)
            group.size_bytes += size
            if not self._is_led:  # the commit that ran was over meanwhile
                self._is_led = True
                self._waiting[0].gate.release()
        try:
            self._pass(group)
        except BaseException:  # Ctrl-C: somebody must stand in, or the group may have no leader
            if not group.is_done:
                threading.Thread(target=self._pass, args=(group,), daemon=True).start()
            raise
        if group.error is not None:
            raise group.error
        return group.offset + index

    def _pass(self, group: _Group) -> None:
        """Wait at a group's gate, and lead the group if nobody did."""
        with group.gate:
            if not group.is_done:
                self._lead(group)

    def _last_with_room(self, size_bytes: int) -> _Group:
        """Give the last group that waits, or a new one when that is full; the mutex is held."""
        waiting = self._waiting
        room = self._log._max_message_bytes - encode.BATCH_OVERHEAD_BYTES
        if not waiting or waiting[-1].size_bytes + size_bytes > room:
            waiting.append(_Group())
        return waiting[-1]

    def _append_alone(
        self,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None,
        headers: encode.HeadersLike,
    ) -> int | None:
        """Append and sync with nobody else's record; None when another commit runs by now."""
        log, is_alone = self._log, False
        try:
            with self._mutex:
                is_alone = not self._is_led
                self._is_led = True
            if not is_alone:
                return None
            offset = log.append(value, key=key, timestamp=timestamp, headers=headers)
            log._flush_to(offset + 1)
            return offset
        finally:
            if is_alone:
                self._hand_on()

    def _lead(self, group: _Group) -> None:
        """Commit a group; its gate is held, and nobody joins it any more."""
        with self._mutex:
            self._waiting.remove(group)
        try:
            log = self._log
            payload = log._build(group.values, group.keys, group.timestamps, group.headers)
            offset = log._append_payload(payload)
            log._flush_to(offset + len(group.values))
            group.offset = offset
        except Exception as error:  # noqa: BLE001 - everyone in the group raises it
            group.error = error
        except BaseException:
            group.error = LogStoreError(
                "the thread that committed for all was interrupted; the record may stand or not"
            )
            raise
        finally:
            group.is_done = True
            self._hand_on()

    def _hand_on(self) -> None:
        """Let the first group that waits find its leader."""
        with self._mutex:
            if self._waiting:
                self._waiting[0].gate.release()
            else:
                self._is_led = False
