"""Report changes of a broker's log dirs to the cluster; repeat each report until it succeeds.

A report is an event in the store. When the controller reads the event of a broker, it asks the
replicas of that broker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from broker.coordination.errors import CoordinationError
from broker.coordination.verbs import Session
from cluster import znodes
from cluster.presence.registering import Registering
from logstore import StoreEventKind

LOG = logging.getLogger("cluster")
Kind = StoreEventKind
LOG_DIR_CHANGES = (
    Kind.LOG_DIR_OFFLINE, Kind.LOG_DIR_RETURNED, Kind.LOG_DIR_ADDED, Kind.LOG_DIR_REMOVED,
)  # fmt: skip


class DirNews:
    """The reports to the cluster about the log dirs of one broker.

    Threads: any thread may call any method.

    Attributes:
        lock: guards the registration. A thread that changes the registration must hold this lock.
    """

    def __init__(self, registering: Registering, session: Session, broker: int) -> None:
        """Store the arguments. Nothing has to be reported yet."""
        self._registering, self._session, self._broker = registering, session, broker
        self.lock = threading.Lock()
        self._is_unannounced = False  # whether a change must still be reported

    @property
    def is_unannounced(self) -> bool:
        """Whether a change was not reported to the cluster yet."""
        return self._is_unannounced

    @property
    def is_due(self) -> bool:
        """Whether `repeat` must be called."""
        return self._is_unannounced or self._registering.is_late

    def heard(self, kind: StoreEventKind, log_dir: str) -> None:
        """Handle one of the `LOG_DIR_CHANGES`, and report it to the cluster."""
        known = self._registering
        changes = known.failed, known.returned, known.added, known.removed
        self._change(changes[LOG_DIR_CHANGES.index(kind)], log_dir)

    def announce_soon(self) -> None:
        """Let `repeat` report a full or slow log dir: the log store has no event for this."""
        self._is_unannounced = True

    def repeat(self) -> None:
        """Repeat the failed writes to the coordination store and to the log dirs."""
        was_unannounced, self._is_unannounced = self._is_unannounced, False
        try:
            with self.lock:
                self._registering.repeat()
            if was_unannounced:
                self._announce()
        except CoordinationError as error:
            LOG.info("the cluster hears of a log dir later: %s", error)
            self._is_unannounced = True
        except Exception:
            LOG.exception("the news of a log dir failed, and is repeated")
            self._is_unannounced = True

    def _change(self, change: Callable[[str], None], log_dir: str) -> None:
        try:
            with self.lock:
                change(log_dir)
            self._announce()
        except CoordinationError as error:
            LOG.warning("the cluster hears of log dir %s later: %s", log_dir, error)
            self._is_unannounced = True
        except Exception:
            LOG.exception("a change of log dir %s failed; the cluster hears of it later", log_dir)
            self._is_unannounced = True

    def _announce(self) -> None:
        event = znodes.encode_log_dir_event(self._broker)
        self._session.create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_", event, sequence=True)
