"""Make replicas with a log, and requests that give them roles."""

from __future__ import annotations

from typing import Any

from cluster.pure.attest import DirEntered, DirFound, DirReturned, FailureRecord, Host, SessionBegan
from cluster.pure.exchange import Opened
from cluster.pure.partition import handle
from cluster.pure.replica import Replica
from cluster.registration import TopicIdentity
from cluster.requests import LeaderAndIsr
from cluster.state import State

TOPIC, NEWER = TopicIdentity("first", 3), TopicIdentity("second", 30)
STATE = State(1, 4, 1, {1: 10, 2: 20}, {}, frozenset(), 10, (1, 2, 3), None, 2)


def host_of(broker: int = 1) -> Host:
    """Give a broker that was registered at 10 with two good log dirs."""
    host = Host(broker, ("a", "b"))
    host.handle(SessionBegan(10), 0)
    for dir_id in host.dirs:
        host.handle(DirFound(dir_id, None, FailureRecord.NONE, "boot", "mount"), 0)
    return host


def dir_returned(host: Host, dir_id: str, epoch: int) -> None:
    """Let a log dir return, in a registration of this epoch."""
    host.handle(DirReturned(dir_id), 0)
    host.handle(DirEntered(dir_id, epoch), 0)


def replica_of(broker: int = 1, **facts: Any) -> Replica:
    """Give a replica with three records of epoch 2, of which two are replicated."""
    replica = Replica(host_of(broker), 0)
    known = {"exists": True, "spans": ((2, 3),), "flushed": 3, "high_watermark": 2, **facts}
    handle(replica, Opened("a", TOPIC, **known), 0)
    return replica


def order(version: int = 7, **changes: Any) -> LeaderAndIsr:
    """Give the request that makes broker 1 the leader."""
    return LeaderAndIsr(TOPIC, 0, 10, version, STATE)._replace(**changes)
