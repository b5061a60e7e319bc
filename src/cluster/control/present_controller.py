"""Notice that the broker of the present controller has ended, so that an election follows (P14).

A candidate keeps a connection to the controller's broker. The system closes the connections of a
process that is killed. If the port then refuses a new connection, the candidate deletes the
controller's znode, which would stay until the end of the session.

A candidate may be wrong, or late. So the deletion names the version of the controller epoch, which
rises at each election: it never deletes the znode of a later controller. A controller that lives
although its port refused a connection notices its successor at its next write (P2).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from cluster.control.controller_store import ControllerStore, Elected
from cluster.errors import PeerError, PeerGoneError
from cluster.run.peer_connection import PeerConnection

LOG = logging.getLogger("cluster")
CHECK_SECONDS = 0.1


class PresentController:
    """The controller on another broker, as a candidate sees it. Only one thread uses it."""

    def __init__(
        self, store: ControllerStore, broker: int, connect: Callable[[int], PeerConnection]
    ) -> None:
        """Know no controller yet.

        Args:
            broker: the candidate's own broker.
            connect: gives a new connection to a broker.
        """
        self._store, self._broker, self._connect = store, broker, connect
        self._elected: Elected | None = None
        self._connection: PeerConnection | None = None

    def wait(self, hears: Callable[[float], bool], seconds: float) -> None:
        """Wait until this broker may stand again: the controller has ended, or the time is over.

        Args:
            hears: waits for some seconds for an event, and tells whether one came; then this
                returns, too.

        Raises:
            CoordinationError: the store does not answer.
        """
        self._find()
        deadline = time.monotonic() + seconds
        while self._lives() and (left := deadline - time.monotonic()) > 0:
            if hears(min(left, CHECK_SECONDS)):
                return

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._elected = self._connection = None

    def _find(self) -> None:
        found = self._store.elected()
        if found == self._elected:
            return
        self.close()
        self._elected = found
        if found is not None and found.broker != self._broker:
            self._connection = self._connect(found.broker)

    def _lives(self) -> bool:
        """Check the connection; only a refused one proves that the broker's process is gone."""
        if self._connection is None or self._elected is None:
            return True
        try:
            self._connection.check()
        except PeerGoneError as error:
            LOG.warning("the controller is gone, so another one is elected: %s", error)
            self._store.depose(self._elected)
            self.close()
            return False
        except PeerError as error:
            LOG.debug("the controller cannot be reached now: %s", error)
        return True
