"""Replicas of one partition on several brokers of this process, without sockets or a controller.

The test gives the roles. Requests wait in `group.requests` until the test lets them be delivered.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cluster.pure import exchange as x
from cluster.pure.attest import DirFound, FailureRecord, Host, SessionBegan
from cluster.registration import NO_BROKER, TopicIdentity
from cluster.requests import FetchAnswer, FollowerFetch, LeaderAndIsr
from cluster.run.follower_reads import read_from
from cluster.run.hosted_replica import HostedReplica
from cluster.state import State
from cluster.wire.topic_ids import text_of
from logstore import AppendInfo, Log, LogConfig, LogStore, OffsetOutOfRangeError

KAFKA = LogConfig(record_format="kafka", segment_bytes="4KiB")
TOPIC = TopicIdentity(text_of(b"a topic's number"), 50)
NAME, NUMBER = "orders", 0


class Produce:
    """A produce that notes what became of it; it can append anything."""

    def __init__(self, append: Callable[[Log, int], AppendInfo]) -> None:
        self._append = append
        self.acknowledged: int | None = None
        self.error: Any = None

    def append(self, log: Log, leader_epoch: int) -> AppendInfo:
        return self._append(log, leader_epoch)

    def acknowledge(self, end_offset: int) -> None:
        assert self.acknowledged is None and self.error is None
        self.acknowledged = end_offset

    def refuse(self, error: x.ProduceError) -> None:
        assert self.acknowledged is None and self.error is None
        self.error = error

    def fail(self, error: Exception) -> None:
        assert self.acknowledged is None and self.error is None
        self.error = error


class Node:
    """One broker: a store, its host and its replica; it is the replica's outbox, too."""

    def __init__(self, group: Group, broker: int, paths: list[Path], epoch: int) -> None:
        self.group, self.broker, self.paths = group, broker, paths
        self.store = LogStore.open(paths, admin_socket=False)
        self.host = Host(broker, tuple(self.store.log_dirs))
        self.host.handle(SessionBegan(epoch), 0.0)
        for path in self.store.log_dirs:
            self.host.handle(DirFound(path, None, FailureRecord.MISSING, "boot", "mount"), 0.0)
        self.flushes: list[HostedReplica] = []
        self.alarms: list[str] = []
        self.replica = HostedReplica(
            NAME, NUMBER, self.host, self.store, self, lambda: group.now, lambda _: KAFKA
        )
        self.replica.open()

    def to_controller(self, name: str, request: Any) -> None:
        self.group.heard.append((self.broker, request))

    def serve(self, fetch: FollowerFetch) -> None:
        """Answer a follower's fetch, as the leader's broker does."""
        served = self.replica.serve(fetch)
        if served is None:
            return
        records = b""
        if served.diverging is None:
            try:
                found = read_from(served.log, fetch.offset, 2048)
            except OffsetOutOfRangeError:
                return
            with found:
                records = os.pread(found.fileno(), found.size_bytes, found.position)
        start = served.log.log_start_offset if served.diverging is None else served.log_start
        answer = FetchAnswer(fetch, served.high_watermark, records, served.diverging, start)
        self.group.requests.append((fetch.follower, answer))

    def flush_soon(self, replica: HostedReplica) -> None:
        self.flushes.append(replica)

    def changed_role(self, replica: HostedReplica) -> None:
        pass

    def may_fetch(self, replica: HostedReplica) -> None:
        pass

    def alarm(self, name: str, number: int, reason: str) -> None:
        self.alarms.append(reason)

    def values(self) -> list[bytes | None]:
        log = self.replica.log
        return [] if log is None else [record.value for record in log]


class Group:
    """Brokers with a replica each, and the requests that are under way."""

    def __init__(self, root: Path, brokers: Iterable[int] = (1, 2, 3), dirs: int = 1) -> None:
        self.root, self.now, self.epoch, self.version, self.dirs = root, 0.0, 100, 0, dirs
        self.requests: deque[tuple[int, Any]] = deque()
        self.heard: list[tuple[int, Any]] = []
        self.nodes: dict[int, Node] = {}
        self.leader_epoch, self.leader = 0, NO_BROKER
        for broker in brokers:
            self.start(broker)

    def start(self, broker: int) -> Node:
        """Start a broker, or start it again with what its disks have."""
        self.epoch += 1
        paths = [self.root / f"{broker}-{number}" for number in range(self.dirs)]
        self.nodes[broker] = Node(self, broker, paths, self.epoch)
        return self.nodes[broker]

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.store.close()

    def state(self, leader: int, isr: Iterable[int], **facts: Any) -> State:
        """The state of a new version, in a new leader epoch."""
        self.leader_epoch += 1
        epochs = {one: self.nodes[one].host.registration_epoch for one in isr}
        elected = self.nodes[leader].host.registration_epoch
        state = State(
            leader,
            self.leader_epoch,
            1,
            epochs,
            {},
            frozenset(),
            elected,
            tuple(self.nodes),
            None,
            2,
        )
        return state._replace(**facts)

    def lead(self, leader: int, isr: Iterable[int] = (1, 2, 3), **facts: Any) -> None:
        """Give all brokers their roles in a new leader epoch."""
        self.leader = leader
        self.give(self.state(leader, isr, **facts))

    def give(self, state: State) -> None:
        """Tell all brokers a state, as a new version."""
        self.version += 1
        for node in self.nodes.values():
            answer = node.replica.obey(self.role(node, state))
            if answer is not None:
                self.heard.append((node.broker, answer))

    def role(self, node: Node, state: State) -> LeaderAndIsr:
        """Address a state to a broker, as the present version."""
        return LeaderAndIsr(
            TOPIC, NUMBER, node.host.broker_epoch, self.version, state,
            is_new=self.version == 1,
        )  # fmt: skip

    def replicate(self, rounds: int = 10, among: Iterable[int] | None = None) -> None:
        """Let the followers fetch, and deliver all requests, for some rounds."""
        reached = set(self.nodes if among is None else among)
        for _ in range(rounds):
            for broker in sorted(reached):
                self.fetch(broker)
            while self.requests:
                broker, request = self.requests.popleft()
                if broker in reached:
                    self.deliver(broker, request)
            for broker in sorted(reached):
                node = self.nodes[broker]
                flushes, node.flushes = node.flushes, []
                for replica in flushes:
                    replica.flush()

    def fetch(self, broker: int) -> None:
        """Let a follower send its next fetch."""
        found = self.nodes[broker].replica.next_fetch()
        if found is not None:
            self.requests.append(found)

    def deliver(self, broker: int, request: Any) -> None:
        """Give a broker a fetch, or the answer to one."""
        node = self.nodes[broker]
        if isinstance(request, FollowerFetch):
            node.serve(request)
        else:
            node.replica.tell(request)

    def produce(self, *values: bytes, acks: int = -1, at: int | None = None) -> Produce:
        """Let a client append records at the leader, or at another broker."""
        broker = self.leader if at is None else at

        def append(log: Log, leader_epoch: int) -> AppendInfo:
            log.leader_epoch = max(log.leader_epoch, leader_epoch)
            offsets = log.extend(list(values))
            return AppendInfo(offsets.start, offsets.stop - 1, -1, log.log_start_offset, -1)

        produce = Produce(append)
        self.nodes[broker].replica.tell(x.Produced(produce, acks))
        return produce
