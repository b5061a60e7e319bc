"""Define the topic `__transaction_state`, which stores the transactional ids."""

from __future__ import annotations

from broker.coordinator.internal_topic import InternalTopic

# 8 MiB is enough for a transaction with 200,000 partitions.
TRANSACTION_STATE = InternalTopic(
    "__transaction_state", "broker.transaction_state_partitions", 8 << 20
)
