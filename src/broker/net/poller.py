"""Wait in one thread for parked sockets, new clients and deadlines.

The poller's thread waits only while it polls. For each event, this thread calls `on_event` or
`on_timer`. `on_event` and `on_timer` give the work to other threads.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from broker.machines.timers import Timer, Timers

LOG = logging.getLogger("broker")
SECONDS_MAX = 1.0  # the time between two calls of `on_tick`
EVENTS_MAX = 256

READABLE, WRITABLE, HUNG_UP = select.EPOLLIN, select.EPOLLOUT, select.EPOLLRDHUP
ONCE = select.EPOLLONESHOT
GONE = select.EPOLLHUP | select.EPOLLERR


class Polled(Protocol):
    """An object with a descriptor for which the poller waits."""

    fd: int


class Poller:
    """The thread `broker-poller`.

    Threads: any thread may call any method. `_lock` guards `_timers`. Each change of `_polled` is
    atomic.

    Args:
        on_event: this function gets an object and its events, as bits of epoll.
        on_timer: this function gets an object whose deadline has come, and the time.
        on_tick: about once a second, this function is called with the time.
    """

    def __init__(
        self,
        on_event: Callable[[Polled, int], None],
        on_timer: Callable[[object, float], None],
        on_tick: Callable[[float], object],
    ) -> None:
        self._on_event = on_event
        self._on_timer = on_timer
        self._on_ticks: tuple[Callable[[float], object], ...] = (on_tick,)
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, READABLE)
        self._polled: dict[int, Polled] = {}
        self._lock = threading.Lock()
        self._timers: Timers[object] = Timers()
        self._sleeps_until = 0.0
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name="broker-poller", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """End the thread, wait until it has ended, and release the descriptors."""
        self._is_ended = True
        if self._thread.is_alive():
            self._wake()
            self._thread.join()
        self._epoll.close()
        with self._lock:
            wake_fd, self._wake_fd = self._wake_fd, -1
        os.close(wake_fd)

    def add(self, polled: Polled, events: int) -> None:
        """Wait for the events of a new descriptor."""
        self._polled[polled.fd] = polled
        self._epoll.register(polled.fd, events)

    def arm(self, polled: Polled, events: int) -> None:
        """Wait for the next event of a descriptor that was added with ONCE."""
        with suppress(OSError, ValueError):  # the descriptor is closed, or the poller has ended
            self._epoll.modify(polled.fd, events | ONCE)

    def remove(self, polled: Polled) -> None:
        """Forget a descriptor. The caller must call this before it closes the descriptor."""
        if self._polled.get(polled.fd) is polled:  # another object may have this descriptor now
            del self._polled[polled.fd]
            with suppress(OSError, ValueError):  # the poller may have ended
                self._epoll.unregister(polled.fd)

    def set_timer(self, deadline: float, item: object) -> Timer[object]:
        """Call `on_timer` with an item at a time of `time.monotonic`."""
        with self._lock:
            timer = self._timers.add(deadline, item)
            is_first = deadline < self._sleeps_until
            if is_first:
                self._sleeps_until = deadline
        if is_first:
            self._wake()
        return timer

    def each_second(self, on_tick: Callable[[float], object]) -> None:
        """Call a function with the time, about once a second. The function must not wait."""
        self._on_ticks += (on_tick,)

    def call_later(self, seconds: float, item: object) -> Timer[object]:
        """Call `on_timer` with an item after some seconds."""
        return self.set_timer(time.monotonic() + seconds, item)

    def cancel(self, timer: Timer[object] | None) -> None:
        """Forget a timer."""
        if timer is not None and timer.item is not None:
            with self._lock:
                self._timers.cancel(timer)

    def _wake(self) -> None:
        with self._lock:  # after `end`, another file may have this descriptor
            if self._wake_fd >= 0:
                with suppress(BlockingIOError):  # if the counter is full, the poller is awake
                    os.eventfd_write(self._wake_fd, 1)

    def _run(self) -> None:
        ticked = time.monotonic()
        while not self._is_ended:
            try:
                ticked = self._turn(ticked)
            except Exception:  # without this thread, no parked connection would continue
                LOG.exception("the poller met an unexpected error, and continues")

    def _turn(self, ticked: float) -> float:
        """Wait once, and handle the events; return the time of the last call of `on_tick`."""
        now = time.monotonic()
        with self._lock:
            first = self._timers.next_deadline
            until = min(ticked + SECONDS_MAX, now + SECONDS_MAX if first is None else first)
            self._sleeps_until = until
        # The extra 0.5 ms prevent a poll that ends just before the deadline, and must be repeated.
        for fd, events in self._epoll.poll(max(0.0, until - now + 0.0005), EVENTS_MAX):
            if fd == self._wake_fd:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake_fd)
                continue
            polled = self._polled.get(fd)
            if polled is not None:
                self._on_event(polled, events)
        now = time.monotonic()
        with self._lock:
            self._sleeps_until = 0.0  # the next turn sees a timer that is set from now on
            items = self._timers.due(now)
        for item in items:
            self._on_timer(item, now)
        if now - ticked >= SECONDS_MAX:
            for on_tick in self._on_ticks:
                on_tick(now)
            return now
        return ticked
