"""Notice that the present controller's broker has ended, and start an election (P14).

A candidate keeps a connection to the controller's broker. If the process of that broker is killed,
the operating system closes the connection. If the port then refuses a new connection, the candidate
deletes the controller's znode. If the candidate did not delete this znode, it would stay until the
session ends.

A candidate may suspect the controller wrongly, or too late. So the deletion names the version of
the controller epoch, which rises at each election. Thus the candidate never deletes the znode of a
later controller. If the old controller still runs, although its port refused a connection, its next
write is refused (P2). So the old controller learns that there is a new controller.

A candidate that cannot connect to any broker must not take over the cluster. So after a deletion,
the candidate first lets other candidates stand. The candidate deletes a second znode only after it
has reached a controller, or after `AGAIN_SECONDS`.
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
REST_SECONDS = 3.0  # after a deletion, other candidates stand first
AGAIN_SECONDS = 60.0  # for this time, a candidate deposes only one controller


class PresentController:
    """What a candidate knows of the controller on another broker.

    Only one thread uses this object.
    """

    def __init__(
        self, store: ControllerStore, broker: int, connect: Callable[[int], PeerConnection]
    ) -> None:
        """Begin without a known controller.

        Args:
            broker: the candidate's own broker.
            connect: makes a new connection to a broker.
        """
        self._store, self._broker, self._connect = store, broker, connect
        self._elected: Elected | None = None
        self._connection: PeerConnection | None = None
        self._depose_at = 0.0  # before this time, the candidate deposes no controller

    def wait(self, hears: Callable[[float], bool], seconds: float) -> None:
        """Wait until this broker may stand: the controller has ended, or the time is over.

        Args:
            hears: waits for an event, at most these seconds, and returns whether an event came. If
                an event comes, `wait` returns, too.

        Raises:
            CoordinationError: the store does not answer.
        """
        self._find()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not self._lives():
                self._rest(hears)
                return
            if hears(min(left, CHECK_SECONDS)):
                return

    def _rest(self, hears: Callable[[float], bool]) -> None:
        """Let other candidates stand first."""
        deadline = time.monotonic() + REST_SECONDS
        while self._store.elected() is None and (left := deadline - time.monotonic()) > 0:
            hears(min(left, CHECK_SECONDS))

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
        """Check the connection. Only a refusal proves that the process of the broker is gone."""
        if self._connection is None or self._elected is None:
            return True
        try:
            self._connection.check()
            self._depose_at = 0.0
        except PeerGoneError as error:
            if time.monotonic() < self._depose_at:
                return True  # this broker probably cannot reach any other broker
            LOG.warning("the controller is gone, so a new controller is elected: %s", error)
            self._depose_at = time.monotonic() + AGAIN_SECONDS
            self._store.depose(self._elected)
            self.close()
            return False
        except PeerError as error:
            LOG.debug("the controller cannot be reached now: %s", error)
        return True
