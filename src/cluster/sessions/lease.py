"""Track how long it is certain that the session of this broker has not ended (P16).

A *heartbeat* is a small read. The answer to a heartbeat proves that the session had not ended when
the heartbeat was sent. So the session lasts for at least one session timeout after that time. The
lease ends after two thirds of the session timeout, because the clocks of two machines differ.

A lease belongs to one session. In a new session, the broker must first register and call `begin`.
Before `begin`, no answer extends the lease.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from broker.coordination.errors import CoordinationError
from broker.coordination.paths import ROOT
from broker.coordination.verbs import Session
from cluster.sessions.lasting_session import LastingSession

LOG = logging.getLogger("cluster")
PART_OF_TIMEOUT = 2 / 3
HEARTBEATS_PER_TIMEOUT = 6
FOREVER = float("inf")


def boot_clock() -> float:
    """Return the seconds since the boot, including the time while the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The lease of a broker. The lease is not held before `begin`.

    Threads: any thread may call any method. One thread sends heartbeats.
    """

    def __init__(
        self,
        session: LastingSession,
        timeout_seconds: float | None,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        """Store the arguments; `begin` starts the lease.

        Args:
            timeout_seconds: if the store hears nothing from a session for this time, it ends the
                session. None means that the store never ends a session for this reason, like the
                embedded store.
        """
        self._session, self._timeout, self._clock = session, timeout_seconds, clock
        self._lock = threading.Lock()  # guards the next two fields
        self._begun_in: Session | None = None
        self._held_until = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_held(self) -> bool:
        """Whether it is certain that the session has not ended."""
        return self._clock() < self._held_until

    def begin(self, session: Session) -> None:
        """Hold the lease from now on. Before this call, register the broker in this session.

        Raises:
            CoordinationError: the session does not answer, so the lease is not held.
        """
        sent = self._clock()
        session.get(ROOT)
        with self._lock:
            self._begun_in = session
        self._extend(session, sent)
        if self._timeout is not None and self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop sending heartbeats, and end the lease at once."""
        self._ended.set()
        with self._lock:
            self._begun_in, self._held_until = None, 0.0

    def _extend(self, session: Session, sent: float) -> None:
        until = FOREVER if self._timeout is None else sent + self._timeout * PART_OF_TIMEOUT
        with self._lock:
            if session is self._begun_in:
                self._held_until = until

    def _beat(self) -> None:
        assert self._timeout is not None
        while not self._ended.wait(self._timeout / HEARTBEATS_PER_TIMEOUT):
            session, sent = self._session.current, self._clock()
            try:
                session.get(ROOT)
            except CoordinationError:
                continue
            except Exception:  # the lease is not extended, as if there were no answer
                LOG.exception("a heartbeat of the lease failed")
                continue
            self._extend(session, sent)
