"""Replicas on several brokers of this process that fetch from each other over sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.config import BrokerConfig
from broker.machines.exchange import Answer, Client, Pending
from broker.net.server import Server
from broker.wire.fetch import decode_fetch
from broker.wire.frames import parse_request
from broker.wire.versions import ApiVersions
from cluster.pure.replica import Role
from cluster.run.fetchers import Fetchers
from cluster.run.follower_reads import Asked, answer
from cluster.run.hosted_replica import HostedReplica
from cluster.run.peer_connection import PeerConnection
from cluster.throttle.replication_throttle import ReplicationThrottle
from cluster.wire.follower_fetches import FetchLimits, PartitionId
from support.replica_group import Group, Node, Produce

APIS = ApiVersions(("base", "cluster"))
SECONDS = 20.0

UNLIMITED = ReplicationThrottle(0, lambda *_: True, time.monotonic)


class SocketNode(Node):
    """A broker that answers fetches at a port, and has fetchers."""

    def __init__(self, group: SocketGroup, broker: int, paths: list[Path], epoch: int) -> None:
        self.fetch_count = 0
        self.flusher = ThreadPoolExecutor(1)
        self.server = Server(BrokerConfig.of(None), self.handle)
        self.port = self.server.listeners[0].endpoint.port
        self.fetchers = Fetchers(
            lambda leader: PeerConnection(
                lambda: ("127.0.0.1", group.ports[leader]), f"broker-{broker}"
            ),
            FetchLimits(partition_bytes_max=16 << 10),
            time.monotonic,
            UNLIMITED,
        )
        super().__init__(group, broker, paths, epoch)
        self.server.start()

    def handle(self, frame: memoryview, client: Client) -> Answer | Pending:
        self.fetch_count += 1
        request = parse_request(frame, APIS)
        message = decode_fetch(request.body, request.version)
        asked = Asked(message, request.version, request.correlation_id)
        return answer(asked, self.find, time.monotonic(), 1 << 20, UNLIMITED)

    def find(self, partition: PartitionId) -> HostedReplica | None:
        is_mine = partition == (self.replica.topic.topic_id, self.replica.number)
        return self.replica if is_mine else None

    def changed_role(self, replica: HostedReplica) -> None:
        if replica.role is Role.FOLLOWER and replica.log is not None:
            self.fetchers.follow(replica, replica.leader, replica.log.log_dir)
        else:
            self.fetchers.leave(replica)

    may_fetch = changed_role

    def flush_soon(self, replica: HostedReplica) -> None:
        self.flusher.submit(replica.flush)

    def stop(self) -> None:
        """Answer and fetch no more."""
        self.fetchers.close()
        self.server.stop(1.0)
        self.flusher.shutdown()


class WaitingProduce(Produce):
    """A produce whose outcome can be waited for."""

    def wait(self) -> WaitingProduce:
        wait_until(lambda: self.acknowledged is not None or self.error is not None)
        return self


class SocketGroup(Group):
    """Brokers that replicate by themselves, once they have roles."""

    def __init__(self, root: Path, dirs: int = 1) -> None:
        self.ports: dict[int, int] = {}
        self.socket_nodes: dict[int, SocketNode] = {}
        super().__init__(root, dirs=dirs)

    def start(self, broker: int) -> Node:
        self.epoch += 1
        paths = [self.root / f"{broker}-{number}" for number in range(self.dirs)]
        node = SocketNode(self, broker, paths, self.epoch)
        self.nodes[broker] = self.socket_nodes[broker] = node
        self.ports[broker] = node.port
        return node

    def __exit__(self, *_: object) -> None:
        for node in self.socket_nodes.values():
            node.stop()
        super().__exit__()


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait for something that other threads do."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        pause.wait(0.002)
