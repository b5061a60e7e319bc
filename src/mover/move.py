"""Represent one move to its user: state, progress, pause, resume, cancel and retry.

Threads: the state changes under the mover's condition. The thread that runs the move writes the
progress, such as `bytes_done`. Any thread can read the progress safely. A request to a running move
sets the field `wanted`. The move's thread reads the field before each chunk.
"""

from __future__ import annotations

import enum
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from logstore.arguments import timeout_of
from logstore.disk.uninterrupted import uninterruptible
from logstore.errors import LogClosedError, LogStoreError
from logstore.names import TopicPartition
from logstore.store.start.fork import REASON
from mover.errors import IllegalTransitionError, MoveError
from mover.rates.throttle import MoveThrottle, Rate
from mover.state import TRANSITIONS, MoveState, check_transition

RATE_SECONDS = 5.0
SAMPLE_SECONDS = 0.1
LOOK_SECONDS = 0.5


class Wanted(enum.Enum):
    """Name what a caller requested of a running move."""

    PAUSE = "pause"
    CANCEL = "cancel"


class MoveProgress(NamedTuple):
    """Report the progress of a move.

    Attributes:
        bytes_done: bytes of record batches that were copied.
        bytes_total: bytes of record batches in the log; the number grows with the log.
        lag_bytes: bytes of the log that the copy still lacks.
        bytes_per_second: the rate of copying over the last seconds.
        eta_seconds: seconds until the copy is complete at this rate; None if the rate is 0.
    """

    bytes_done: int
    bytes_total: int
    lag_bytes: int
    bytes_per_second: float
    eta_seconds: float | None


class Controller(Protocol):
    """Declare the methods of a mover that its moves call."""

    changed: threading.Condition

    def enqueue(self, move: Move) -> None:
        """Queue the move."""

    def discard(self, move: Move) -> None:
        """Remove the copy of a move that no thread runs."""

    def abandon(self, move: Move) -> None:
        """Make sure that the copy of a failed move is never resumed."""

    def wake(self) -> None:
        """Wake the moves that wait for a throttle, so that they notice a pause or a cancel."""

    def renew(self, move: Move) -> None:
        """Queue a move that is retried; cancel any other move of its replica first."""

    def holds(self, move: Move) -> bool:
        """Report whether the move belongs to this mover; after a close, the next mover owns it."""

    def check_answers(self, move: Move) -> None:
        """Raise LogDirSuspectError if the source or the target of the move hangs."""

    @property
    def is_closed(self) -> bool:
        """Whether the mover is closed and runs no more moves."""


class Move:
    """Represent the move of one replica to another log dir; `ReplicaMover.move` makes it."""

    def __init__(
        self,
        controller: Controller,
        key: TopicPartition,
        source_dir: str,
        target_dir: str,
        throttle: MoveThrottle,
        size_bytes: int,
    ) -> None:
        self.key = key
        self.topic, self.partition = key
        self.source_dir = source_dir
        self.target_dir = target_dir
        self.throttle = throttle
        self.move_id = os.urandom(16).hex()
        self.error: LogStoreError | None = None
        self.bytes_done = 0
        self._size_of: Callable[[], int] = lambda: size_bytes
        # Whether the move waits until earlier moves free enough room.
        # If this is False and there is no room, the move fails.
        self.waits_for_room = False
        self.cancel_reason = ""
        self.wanted: Wanted | None = None
        # Whether the move is paused because a log dir hangs, not because a caller paused the move.
        self.is_held_up = False
        self._controller = controller
        self._pid = os.getpid()
        self._changed = controller.changed
        self._state = MoveState.PLANNED
        self._is_ending = False
        self._samples: deque[tuple[float, int]] = deque()

    def __repr__(self) -> str:
        return (
            f"<Move {self.topic}-{self.partition} {self.source_dir} -> {self.target_dir} "
            f"{self.state.value}, {self.bytes_done} of {self.bytes_total} bytes>"
        )

    # --- its progress -----------------------------------------------------------------------------

    @property
    def state(self) -> MoveState:
        """The state of the move."""
        return self._state

    @property
    def size_bytes(self) -> int:
        """Bytes of the copy."""
        return self.bytes_done

    @property
    def lag_bytes(self) -> int:
        """Bytes that the copy still lacks; always 0 if the move is DONE."""
        return 0 if self._state is MoveState.DONE else max(self.bytes_total - self.bytes_done, 0)

    @property
    def bytes_total(self) -> int:
        """Bytes of the log: its present size, or its size when the move ended."""
        return self._size_of()

    def measure(self, size_of: Callable[[], int]) -> None:
        """Set the function that returns the log's size; the move's thread calls this method."""
        self._size_of = size_of

    @property
    def bytes_left(self) -> int:
        """Bytes that are still to be written."""
        return self.lag_bytes

    def progress(self) -> MoveProgress:
        """Report the progress of the move."""
        rate = self._rate()
        lag = self.lag_bytes
        eta = 0.0 if not lag else lag / rate if rate else None
        return MoveProgress(self.bytes_done, self.bytes_total, lag, rate, eta)

    def _rate(self) -> float:
        samples = list(self._samples)
        if not self._state.is_running or len(samples) < 2:
            return 0.0
        (began, first), (ended, last) = samples[0], samples[-1]
        return (last - first) / (ended - began) if ended > began else 0.0

    def advance(self, size_bytes: int) -> None:
        """Count copied bytes; the thread that runs the move calls this method."""
        self.bytes_done += size_bytes
        now, samples = time.monotonic(), self._samples
        if not samples or now - samples[-1][0] >= SAMPLE_SECONDS:
            samples.append((now, self.bytes_done))
            while now - samples[0][0] > RATE_SECONDS and len(samples) > 2:
                samples.popleft()

    # --- what a caller may request ----------------------------------------------------------------

    def is_stopped(self) -> bool:
        """Report whether the move has been asked to stop."""
        return self.wanted is not None

    def wait(self, timeout: float | None = None) -> MoveState:
        """Wait until the move has ended or the mover was closed; return the state of the move."""
        timeout = timeout_of(timeout)
        self._check_process()
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self._wait_until(deadline):
            pass
        return self._state

    @uninterruptible
    def _wait_until(self, deadline: float) -> bool:
        """Wait at most `LOOK_SECONDS`, which delays Ctrl-C; return True if `wait` must return."""
        seconds = max(0.0, deadline - time.monotonic())
        with self._changed:
            is_over = self._changed.wait_for(
                lambda: self._state.is_end or self._is_left, min(seconds, LOOK_SECONDS)
            )
        return is_over or seconds <= LOOK_SECONDS

    @property
    def _is_left(self) -> bool:
        return self._controller.is_closed and not self._state.is_running

    @uninterruptible
    def pause(self) -> None:
        """Stop the move within one chunk and keep the copied bytes; return when the move stopped.

        Raises:
            IllegalTransitionError: the move has ended.
        """
        self._check_process()
        with self._changed:
            if self._state is MoveState.PAUSED:
                self.is_held_up = False
                return
            if self._state is MoveState.PLANNED and not self._is_ending:
                self.go(MoveState.PAUSED)
                return
            self._check(MoveState.PAUSED, "paused")
            if self.wanted is None:
                self.wanted = Wanted.PAUSE
        self._controller.wake()
        with self._changed:
            self._changed.wait_for(lambda: not self._state.is_running)

    @uninterruptible
    def resume(self) -> None:
        """Continue a paused move; if the move is not paused, do nothing.

        Raises:
            IllegalTransitionError: the move has ended.
            MoveError: the mover was closed. The next mover of the store resumes the move.
        """
        self._check_process()
        self._resume()

    def _resume(self) -> None:
        """Continue a paused move; the caller may hold the mover's condition."""
        with self._changed:
            if self._state.is_end:
                self._check(MoveState.PLANNED, "resumed")
            self._check_held(not self._controller.is_closed)
            if self._state is not MoveState.PAUSED or self._is_ending:
                return
            self.wanted, self.is_held_up = None, False
            self.go(MoveState.PLANNED)
        self._controller.enqueue(self)

    def go_on(self) -> None:
        """Resume the move if it was paused only because a log dir hung."""
        with self._changed:
            is_paused = self._state is MoveState.PAUSED and not self._is_ending
            # During the pause, a caller may have requested something else.
            is_asked = self.wanted is not None
            if self.is_held_up and is_paused and not is_asked and not self._controller.is_closed:
                self._resume()

    @uninterruptible
    def cancel(self, reason: str = "by the user") -> None:
        """Give the move up; return after its copy is removed. A move that has ended stays as it is.

        A FAILED move stays FAILED, but its copy is never resumed.

        Raises:
            MoveError: the mover was closed. The next mover of the store resumes the move.
        """
        self._cancel(reason)

    def _cancel(self, reason: str, look_seconds: float | None = None) -> None:
        """Give the move up.

        Args:
            look_seconds: how often this method checks whether a log dir hangs; None means never.
        """
        self._check_process()
        if self._state is MoveState.FAILED:
            self._controller.abandon(self)
        while True:
            with self._changed:
                if self._state.is_end:
                    return
                is_mine = self.is_idle
                self._check_held(not is_mine or self._controller.holds(self))
                self._is_ending |= is_mine
                self.wanted, self.cancel_reason = Wanted.CANCEL, reason
            if is_mine:
                self._discard()
                return
            self._controller.wake()
            # The thread may have paused the move instead of cancelling it.
            # Then this loop cancels the move.
            with self._changed:
                is_over = self._changed.wait_for(
                    lambda: self._state.is_end or self.is_idle, look_seconds
                )
            if not is_over:
                self._controller.check_answers(self)

    def _discard(self) -> None:
        try:
            self._controller.discard(self)
        except BaseException:  # also after Ctrl-C, so that a later `cancel` does not wait forever
            with self._changed:
                self._is_ending = self._state.is_end
                self._changed.notify_all()
            raise

    @property
    def is_ending(self) -> bool:
        """Report whether a caller began to cancel the move while no thread was running it."""
        return self._is_ending

    @property
    def is_idle(self) -> bool:
        """Report whether the move is idle: no thread runs it, and no caller is cancelling it."""
        return not self._state.is_running and not self._is_ending

    def _check_held(self, is_held: bool) -> None:
        if not is_held:
            reason = "the mover was closed: the next mover resumes this move"
            raise MoveError(topic=self.topic, partition=self.partition, reason=reason)

    def _check_process(self) -> None:
        """Refuse a call in a forked child, where no thread runs moves; this check takes no lock."""
        if self._pid != os.getpid():
            raise LogClosedError(reason=REASON)

    def stop(self, reason: str) -> None:
        """Cancel the move, because its replica is deleted or gets another move.

        Raises:
            LogDirSuspectError: a disk of the move hangs. The move ends when the disk answers.
        """
        self._cancel(reason, LOOK_SECONDS)

    @uninterruptible
    def retry(self) -> None:
        """Start a failed move again; first cancel any other move of the same replica.

        Raises:
            IllegalTransitionError: the move has not failed.
            MoveError: the mover was closed.
        """
        self._check_process()
        with self._changed:
            self._check(MoveState.PLANNED, "retried", only_from=MoveState.FAILED)
            self._check_held(not self._controller.is_closed)
            self.error, self.wanted, self._is_ending = None, None, False
            self.move_id = os.urandom(16).hex()
            self.bytes_done = 0
            self._samples.clear()
            self.go(MoveState.PLANNED)
        self._controller.renew(self)

    @uninterruptible
    def set_throttled_rate(self, rate: Rate) -> None:
        """Limit only this move to a rate in bytes per second; None removes this limit."""
        self.throttle.set_rate(rate)

    # --- its states -------------------------------------------------------------------------------

    def _check(self, wanted: MoveState, request: str, only_from: MoveState | None = None) -> None:
        """Check that the state allows a request; the error names the request."""
        sources = tuple(MoveState) if only_from is None else (only_from,)
        if self._state not in sources or wanted not in TRANSITIONS[self._state]:
            raise IllegalTransitionError(
                f"the move of {self.topic}-{self.partition} is {self._state.value}: it cannot be "
                f"{request}",
                topic=self.topic,
                partition=self.partition,
                state=self._state.value,
                wanted=wanted.value,
            )

    def go(self, state: MoveState, error: LogStoreError | None = None) -> None:
        """Change the state; while a thread runs the move, only that thread calls this method."""
        with self._changed:
            check_transition(self._state, state)
            self._state = state
            if error is not None:
                self.error = error
            self._changed.notify_all()

    def try_begin(self) -> bool:
        """Begin a planned move in a thread; return False if the move was paused or cancelled."""
        with self._changed:
            if self._state is not MoveState.PLANNED or self._is_ending:
                return False
            self.wanted = None
            self.go(MoveState.COPYING)
            return True
