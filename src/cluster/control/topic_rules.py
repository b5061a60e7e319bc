"""Read the settings of a topic that elections and roles depend on."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cluster.pure.control_exchange import TopicConfig
from cluster.state import State

LOG = logging.getLogger("cluster")
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
FLUSH_BEFORE_ACK, FLUSH_MESSAGES = "flush.before.ack", "flush.messages"


def default_min_isr(replica_count: int) -> int:
    """Return the default of `min.insync.replicas`: a majority of the replicas."""
    return replica_count // 2 + 1


def factor_of(state: State) -> int:
    """Return the replication factor; during a reassignment, there may be more replicas."""
    return len(state.original or state.target or state.replicas)


def rules_of(settings: Mapping[str, str], replica_count: int, version: int = 0) -> TopicConfig:
    """Read the settings. If a setting cannot be read, log this, and use the default.

    Args:
        version: the zxid of the last write of the settings.
    """
    return TopicConfig(
        _number(settings, MIN_ISR, default_min_isr(replica_count)),
        settings.get(UNCLEAN, "").lower() == "true",
        settings.get(FLUSH_BEFORE_ACK, "").lower() == "true"
        or settings.get(FLUSH_MESSAGES, "") == "1",
        version,
    )


def _number(settings: Mapping[str, str], key: str, default: int) -> int:
    text = settings.get(key)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        LOG.warning("%s=%r is not a number; %d is used", key, text, default)
        return default
