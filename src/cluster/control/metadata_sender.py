"""Send the changes of the metadata to one broker, until the broker has confirmed them.

This sender has its own thread and its own connection, separate from those of `broker_sender`. The
reason is that a broker answers a request for a role only after a call to a disk. If a log dir
hangs, this answer takes seconds. The metadata must not wait for a disk, because clients ask this
broker for the new leaders.

While there is nothing to send, the thread checks the connection. If the process of the broker is
killed, the operating system closes its connections, and its port refuses new connections. So the
controller learns soon that the broker is gone (P14).

A suspicion that a broker is gone may be wrong. The suspicion is a change of the metadata, so the
thread of that broker tries to send this change, too. If the broker then accepts a connection, the
suspicion ends. The thread stops trying when the suspicion ends, or when the broker is no longer
registered.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from broker.wire.byte_cursor import WireError
from broker.wire.error_codes import ErrorCode
from cluster.control.announcements import NOTHING, Announcements, Heard
from cluster.errors import PeerError, PeerGoneError
from cluster.pure.control_exchange import ConnectionAccepted, ConnectionRefused
from cluster.run.peer_connection import PeerConnection
from cluster.wire.metadata_updates import API, VERSION, Update, encode_update

LOG = logging.getLogger("cluster")
ANSWER_SECONDS = 10.0
# A change waits this long, so that one message has several changes.
# Because of this wait, a new leader usually has its role before clients learn its name.
GATHER_SECONDS = 0.005
CHECK_SECONDS = 0.1  # the time between two checks of an unused connection
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 0.2, 5.0
# A broker answers with an error of this set in two cases. The controller was replaced, or the
# update names an earlier broker epoch.
STALE = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)


class MetadataSender:
    """A thread that keeps one broker's metadata up to date.

    Threads: any thread may call any method.
    """

    def __init__(
        self,
        broker: int,
        announcements: Announcements,
        connection: PeerConnection,
        post: Callable[[Any], object],
    ) -> None:
        """Start the thread.

        Args:
            post: queues events for the controller, without waiting.
        """
        self._broker, self._announcements = broker, announcements
        self._connection, self._post = connection, post
        self._ended = threading.Event()
        self._reason = ""  # why the last update was refused; only the thread uses this field
        self._thread = threading.Thread(target=self._run, name=f"metadata-{broker}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ask the thread to end. A running update is interrupted."""
        self._ended.set()
        self._announcements.wake()
        self._connection.close()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    def _run(self) -> None:
        heard, refusals = NOTHING, 0
        while self._announcements.wait(self._broker, heard, self._ended.is_set, CHECK_SECONDS):
            try:
                heard, refusals = self._bring(heard, refusals)
            except Exception:
                LOG.exception("the metadata for broker %d failed, and is sent again", self._broker)
                self._ended.wait(BACKOFF_SECONDS)

    def _bring(self, heard: Heard, refusals: int) -> tuple[Heard, int]:
        """Send changes; return the last change that the broker knows, and the count of refusals."""
        if not self._announcements.has_news(self._broker, heard):
            if heard is not NOTHING:
                self._check()
            return heard, refusals
        self._ended.wait(GATHER_SECONDS)
        update = self._announcements.news(self._broker, heard)
        if update is None or self._ended.is_set():
            return heard, refusals
        code = self._send(update)
        if code is ErrorCode.NONE:
            heard = Heard(update.broker_epoch, update.last_change)
            self._announcements.confirm(self._broker, heard)
            return heard, 0
        if code is not None:
            refusals += 1  # a broker that refuses each update must not be flooded, so pause
            heard = heard if code in STALE else NOTHING
        self._ended.wait(min(BACKOFF_SECONDS * 2**refusals, BACKOFF_SECONDS_MAX))
        return heard, refusals

    def _send(self, update: Update) -> ErrorCode | None:
        """Send an update; return the answer, or None if there is no answer."""
        try:
            answer = self._connection.ask(API, VERSION, encode_update(update), ANSWER_SECONDS)
            code = ErrorCode(answer.error_code)
        except PeerGoneError as error:
            self._post(ConnectionRefused(self._broker))
            self._report(str(error))
            return None
        except (PeerError, WireError, ValueError) as error:
            self._report(str(error))
            return None
        self._report("" if code is ErrorCode.NONE else code.name)
        if self._broker not in {one.id for one in update.brokers}:
            self._post(ConnectionAccepted(self._broker))
        return code

    def _check(self) -> None:
        """Report a broker whose process has ended.

        Other errors are only logged, because the next update finds them, too.
        """
        try:
            self._connection.check()
        except PeerGoneError as error:
            self._post(ConnectionRefused(self._broker))
            self._report(str(error))
        except PeerError as error:
            LOG.debug("broker %d cannot be reached now: %s", self._broker, error)

    def _report(self, reason: str) -> None:
        """Log why an update was refused, once for each reason."""
        if reason and reason != self._reason:
            LOG.info("broker %d does not accept the metadata: %s", self._broker, reason)
        self._reason = reason
