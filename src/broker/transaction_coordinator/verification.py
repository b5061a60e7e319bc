"""Define how a broker asks whether a producer may append to a partition (KIP-890).

TransactionCoordinator  decides for the transactional ids that this broker coordinates
cluster.serve           asks the broker that coordinates the transactional id
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.transactions.steps import Asker
from broker.transactions.transaction import Place
from broker.wire.error_codes import ErrorCode


class Verifier(Protocol):
    """Ask the coordinator of a transactional id. Any thread may call this; the call may wait."""

    def faults_of_batches(
        self, name: str, asker: Asker, places: Sequence[Place], *, is_adding: bool = False
    ) -> dict[Place, ErrorCode]:
        """Return NONE for each partition to which the producer may append, or else an error.

        Args:
            is_adding: whether to add the partitions to the transaction. With `is_adding`, the
                result NONE means that all in-sync replicas of the coordinator's log have the
                partitions.

        Raises:
            CoordinatorError: the coordinator does not answer now.
        """
