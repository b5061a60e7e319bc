"""Abort expired transactions, and forget unused transactional ids, at regular intervals."""

from __future__ import annotations

import logging

from broker.machines.exchange import Scheduler
from broker.transaction_coordinator.transaction_coordinator import TransactionCoordinator

LOG = logging.getLogger("broker")


class TransactionUpkeep:
    """Abort transactions after their timeout, and forget idle transactional ids.

    Args:
        retention: for how many seconds an idle transactional id is kept.
        interval: seconds between two checks for expired transactions.
        idle_interval: seconds between two checks for idle transactional ids.
    """

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        *,
        retention: float,
        interval: float,
        idle_interval: float,
    ) -> None:
        self._coordinator = coordinator
        self._retention_ms = int(retention * 1000)
        self._interval, self._idle_interval = interval, idle_interval
        self._scheduler: Scheduler | None = None
        self._idle_at = 0.0

    def start(self, scheduler: Scheduler) -> None:
        """Begin the regular checks."""
        self._scheduler = scheduler
        self._idle_at = self._coordinator.now().seconds + self._idle_interval
        self._set_timer()

    def _set_timer(self) -> None:
        assert self._scheduler is not None
        deadline = self._coordinator.now().seconds + self._interval
        self._scheduler.call_at(deadline, self.run)

    def run(self) -> None:
        """Check now, and set the timer for the next check."""
        try:
            now = self._coordinator.now().seconds
            is_for_idle = now >= self._idle_at
            if is_for_idle:
                self._idle_at = now + self._idle_interval
            self._coordinator.scan(self._retention_ms if is_for_idle else None)
        except Exception:  # an error must not prevent the next check
            LOG.exception("transactions were not checked")
        self._set_timer()
