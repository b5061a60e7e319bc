"""Make the parts that serve transactions on one broker, and connect them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from broker.catalog.client_appends import Appends
from broker.catalog.producer_ids import ProducerIds
from broker.config import BrokerConfig
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.group_logs import GroupLogs
from broker.coordinator.transactional_offsets import TransactionalOffsets
from broker.machines.exchange import Scheduler
from broker.transaction_coordinator.marker_appends import MarkerAppends
from broker.transaction_coordinator.marker_routes import MarkerRoutes
from broker.transaction_coordinator.marker_writer import MarkerWriter
from broker.transaction_coordinator.transaction_coordinator import TransactionCoordinator
from broker.transaction_coordinator.upkeep import TransactionUpkeep
from broker.transaction_coordinator.verification import Verifier

MS = 1000


class TransactionParts(NamedTuple):
    """The parts that serve transactions.

    Attributes:
        verifier: asks the coordinator of a transactional id, on this broker or another broker.
        offsets: commits the offsets of groups in transactions.
    """

    coordinator: TransactionCoordinator
    verifier: Verifier
    markers: MarkerAppends
    offsets: TransactionalOffsets
    upkeep: TransactionUpkeep

    def start(self, scheduler: Scheduler) -> None:
        """Begin to load transactional ids, and to look for old transactions."""
        self.offsets.start(scheduler)
        self.markers.start(scheduler)
        self.coordinator.start(scheduler)
        self.upkeep.start(scheduler)


def transaction_parts(
    topic: GroupLogs,
    groups: GroupCoordinator,
    appends: Appends,
    routes: MarkerRoutes,
    producer_ids: ProducerIds,
    config: BrokerConfig,
    level: Callable[[], int],
    *,
    verifier_of: Callable[[TransactionCoordinator], Verifier] = lambda coordinator: coordinator,
    clock: Callable[[], float] = time.monotonic,
) -> TransactionParts:
    """Make the parts.

    Args:
        topic: the partitions of `__transaction_state`.
        level: gives the level of the feature `transaction.version`.
        verifier_of: makes the verifier of a broker of a cluster.
    """
    offsets = TransactionalOffsets(groups)
    markers = MarkerAppends(appends, offsets)
    coordinator = TransactionCoordinator(
        topic,
        producer_ids,
        MarkerWriter(routes, markers),
        ids_max=config.max_transactional_ids_per_partition,
        timeout_ms_max=config.transaction_max_timeout_ms,
        level=level,
        clock=clock,
    )
    upkeep = TransactionUpkeep(
        coordinator,
        retention=config.transactional_id_expiration_ms / MS,
        interval=config.transaction_abort_timed_out_transaction_cleanup_interval_ms / MS,
        idle_interval=config.transaction_remove_expired_transaction_cleanup_interval_ms / MS,
    )
    return TransactionParts(coordinator, verifier_of(coordinator), markers, offsets, upkeep)
