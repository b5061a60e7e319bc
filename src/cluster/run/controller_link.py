"""Send a broker's proposals to the controller, and return the refusals.

If a proposal cannot be sent, it is dropped. The leader that made the proposal sends it again later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from broker.wire.byte_cursor import WireError
from broker.wire.error_codes import ErrorCode
from cluster.errors import PeerError
from cluster.requests import AlterPartition, AlterRefused
from cluster.run.peer_connection import PeerConnection
from cluster.wire import isr_changes
from cluster.wire.follower_fetches import PartitionId

LOG = logging.getLogger("cluster")
ANSWER_SECONDS = 10.0
BACKOFF_SECONDS = 0.2


class FindController(Protocol):
    """Find out which broker is the controller now."""

    def __call__(self) -> int | None:
        """Return the controller's broker id; None if there is no controller."""


class ControllerLink:
    """A thread that sends proposals to the broker that is the controller.

    Threads: any thread may call any method.
    """

    def __init__(
        self,
        find: FindController,
        connect: Callable[[int], PeerConnection],
        on_refusal: Callable[[AlterRefused], object],
    ) -> None:
        """Start the thread."""
        self._find, self._connect, self._on_refusal = find, connect, on_refusal
        self._changed = threading.Condition()  # guards the next two fields
        self._waiting: dict[PartitionId, AlterPartition] = {}
        self._is_ended = False
        self._broker: int | None = None
        self._connection: PeerConnection | None = None
        self._thread = threading.Thread(target=self._run, name="controller-link", daemon=True)
        self._thread.start()

    def send(self, change: AlterPartition) -> None:
        """Queue a proposal. The new proposal replaces a queued proposal for the same partition."""
        with self._changed:
            self._waiting[change.topic.topic_id, change.partition] = change
            self._changed.notify_all()

    def close(self, timeout: float | None = None) -> None:
        """End the thread."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        if (connection := self._connection) is not None:
            connection.close()
        self._thread.join(timeout)

    def _run(self) -> None:
        while changes := self._take():
            try:
                self._send(changes)
            except (PeerError, WireError) as error:
                LOG.info("%d proposals did not reach the controller: %s", len(changes), error)
                self._forget()
                self._pause()
            except Exception:  # the leaders repeat their proposals
                LOG.exception("%d proposals to the controller failed", len(changes))
                self._forget()
                self._pause()

    def _take(self) -> list[AlterPartition]:
        """Take the proposals of the newest registration; the list is empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_ended)
            if self._is_ended:
                return []
            waiting = [*self._waiting.values()]
            self._waiting.clear()
        newest = max(one.leader_registration_epoch for one in waiting)
        return [one for one in waiting if one.leader_registration_epoch == newest]

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_ended, BACKOFF_SECONDS)

    def _send(self, changes: list[AlterPartition]) -> None:
        connection = self._to_controller()
        if connection is None:
            self._pause()
            return
        message = isr_changes.encode_changes(changes)
        answer = connection.ask(isr_changes.API, isr_changes.VERSION, message, ANSWER_SECONDS)
        if answer.error_code != ErrorCode.NONE:  # the broker is no longer the controller
            self._forget()
            self._pause()
            return
        for refused in isr_changes.decode_refusals(answer):
            self._on_refusal(refused)

    def _to_controller(self) -> PeerConnection | None:
        broker = self._find()
        if broker != self._broker:
            self._forget()
        if broker is None:
            return None
        if self._connection is None:
            self._broker, self._connection = broker, self._connect(broker)
        return self._connection

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._broker = self._connection = None
