"""End the role of a replica whose thread hangs, without waiting for this thread.

The controller must get an answer, even if a disk hangs. If the answer says that the replica is
offline, another replica may lead. So from this answer on, this replica must acknowledge nothing,
even if its disk answers again (P16).
"""

from __future__ import annotations

import threading

from cluster.pure.exchange import Acknowledge, ProduceError


class Revocation:
    """Whether the role of a replica must end before the next event.

    Threads: any thread may call `begin`. The other methods need the lock of the replica.
    """

    __slots__ = ("_is_due", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the next field; nobody keeps it during a disk call
        self._is_due = False

    def begin(self) -> None:
        """Let no append be acknowledged any more, until the role has ended."""
        with self._lock:
            self._is_due = True

    def take(self) -> bool:
        """Report whether the role must end now. The caller must end it."""
        is_due, self._is_due = self._is_due, False
        return is_due

    def acknowledge(self, effect: Acknowledge) -> None:
        """Acknowledge the change of a client, unless the role must end."""
        with self._lock:
            if self._is_due:
                effect.waiter.refuse(ProduceError.TIMED_OUT)
            else:
                effect.waiter.acknowledge(effect.end_offset)
