"""Move the leaderships of a broker to other brokers before it stops (P21).

    broker: ask -> partitions remain -> pause -> ask, until none remains, or it is too late
    controller: decide about all partitions of the broker -> name those the broker must wait for

When the reign of a controller ends, the controller forgets the departure. So the broker finds out
before each request which broker is the controller now.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from broker.coordination.errors import CoordinationError
from broker.wire.byte_cursor import WireError
from broker.wire.error_codes import ErrorCode
from cluster.control.controller_host import ControllerHost
from cluster.errors import PeerError
from cluster.pure.attest import Host, LeaveBegan
from cluster.requests import ControlledShutdown
from cluster.run.peer_connection import PeerConnection
from cluster.wire import shutdowns
from cluster.wire.shutdowns import Place

LOG = logging.getLogger("cluster")
SHUTDOWN_SECONDS = 10.0  # after this time, a broker stops even if it still leads
PAUSE_SECONDS = 0.05


def let_leave(
    controller: ControllerHost | None, asked: ControlledShutdown, seconds: float
) -> tuple[ErrorCode, list[Place]]:
    """Answer a broker that will stop: return the partitions for which it has to wait.

    Args:
        controller: the candidate on the broker that got the request.
    """
    if controller is None:
        return ErrorCode.NOT_CONTROLLER, []
    try:
        found = controller.run(lambda: _decide(controller, asked), seconds)
    except (TimeoutError, CoordinationError) as error:
        LOG.info("broker %d cannot leave now: %r", asked.broker, error)
        return ErrorCode.REQUEST_TIMED_OUT, []
    return found or (ErrorCode.NOT_CONTROLLER, [])


def _decide(controller: ControllerHost, asked: ControlledShutdown) -> tuple[ErrorCode, list[Place]]:
    controller.tell(asked)
    room = controller.room
    if room.is_deposed:
        return ErrorCode.NOT_CONTROLLER, []
    if asked.broker not in room.leaving:
        return ErrorCode.STALE_BROKER_EPOCH, []
    return ErrorCode.NONE, room.held_by(asked.broker)


class Departure:
    """Wait until a broker can leave its cluster.

    Threads: one thread calls `wait`.
    """

    def __init__(
        self,
        host: Host,
        own: ControllerHost,
        find: Callable[[], int | None],
        connect: Callable[[int], PeerConnection],
    ) -> None:
        """Store the arguments; ask no controller yet.

        Args:
            own: the candidate on this broker. If this candidate is the controller, no connection is
                needed.
            find: returns the broker that is the controller; None if none is known.
            connect: makes a new connection to a broker.
        """
        self._host, self._own, self._find, self._connect = host, own, find, connect
        self._pause = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Wait until no partition needs this broker; return False if the time ends before that."""
        began = time.monotonic()
        self._host.handle(LeaveBegan(), began)
        left: list[Place] | None = None
        while (rest := began + seconds - time.monotonic()) > 0:
            left = self._ask(rest)
            if left == []:
                LOG.info("broker %d may stop", self._host.broker_id)
                return True
            self._pause.wait(min(PAUSE_SECONDS, rest))
        LOG.warning(
            "broker %d stops after %.0f s although %s", self._host.broker_id, seconds,
            "no controller has answered" if left is None else f"it may still lead {left[:5]}",
        )  # fmt: skip
        return False

    def _ask(self, seconds: float) -> list[Place] | None:
        """Ask the controller once; None if it does not answer, or refuses."""
        asked = ControlledShutdown(self._host.broker_id, self._host.broker_epoch)
        broker = self._find()
        if broker is None:
            return None
        if broker == asked.broker:
            code, places = let_leave(self._own, asked, seconds)
            return places if code == ErrorCode.NONE else None
        connection = self._connect(broker)
        try:
            message = shutdowns.encode_shutdown(asked)
            answer = connection.ask(shutdowns.API, shutdowns.VERSION, message, seconds)
            return shutdowns.decode_remaining(answer)
        except (PeerError, WireError) as error:
            LOG.info("the controller did not answer: %s", error)
            return None
        finally:
            connection.close()
