"""Tell the cluster how the log dirs of a broker change, again and again until it knows.

The controller asks the replicas of a broker when it reads an event of that broker in the store.
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
    """What the cluster has to hear about the log dirs of one broker.

    Threads: any thread may call any method.

    Attributes:
        lock: guards the registration; a thread that changes it holds the lock.
    """

    def __init__(self, registering: Registering, session: Session, broker: int) -> None:
        """Prepare; there is no news yet."""
        self._registering, self._session, self._broker = registering, session, broker
        self.lock = threading.Lock()
        self._is_unannounced = False  # whether the cluster has to ask for the replicas of a log dir

    @property
    def is_unannounced(self) -> bool:
        """Whether the cluster has not heard of a change yet."""
        return self._is_unannounced

    @property
    def is_due(self) -> bool:
        """Whether `repeat` has something to do."""
        return self._is_unannounced or self._registering.is_late

    def heard(self, kind: StoreEventKind, log_dir: str) -> None:
        """Carry out one of the `LOG_DIR_CHANGES`, and announce it."""
        known = self._registering
        changes = known.failed, known.returned, known.added, known.removed
        self._change(changes[LOG_DIR_CHANGES.index(kind)], log_dir)

    def announce_soon(self) -> None:
        """Let `repeat` announce a change: a full or slow log dir makes no event of its own."""
        self._is_unannounced = True

    def repeat(self) -> None:
        """Do what the store or a log dir did not take before."""
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
