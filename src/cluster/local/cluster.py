"""Define `Cluster`: several brokers in this process that replicate, for tests.

    with Cluster.start(brokers=3, log_dirs=2) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        ...
        cluster.kill(1)

Each broker has its own log dirs, sockets and threads. The coordination store is embedded.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from types import TracebackType
from typing import Any, Self

from broker.coordination.embedded import EmbeddedStore
from cluster.errors import ClusterTimeoutError
from cluster.local.node import Node, NodeSettings
from cluster.run.metadata_cache import PartitionView

SESSION_SECONDS = 2.0
START_SECONDS = WAIT_SECONDS = 30.0
LOOK_SECONDS = 0.01


class Cluster:
    """The brokers of one cluster. The broker ids begin at 1. Use the cluster in a `with` block.

    Threads: one thread at a time changes the cluster. Any thread may read.

    Attributes:
        directory: the directory with all log dirs. If it is a temporary directory, it is removed at
            the end.
    """

    def __init__(self, root: str, nodes: dict[int, Node], coordination: EmbeddedStore) -> None:
        """Use `Cluster.start`."""
        self.directory = root
        self._nodes, self._coordination = nodes, coordination
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def start(
        cls,
        brokers: int = 3,
        log_dirs: int = 1,
        *,
        directory: str | PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        session_seconds: float = SESSION_SECONDS,
        racks: Sequence[str] = (),
    ) -> Self:
        """Start a cluster. After this call, clients can create topics on all its brokers.

        Args:
            brokers: how many brokers.
            log_dirs: how many log dirs each broker has.
            directory: an existing directory for all log dirs; by default, a temporary directory.
            config: settings of `BrokerConfig` for each broker.
            session_seconds: after this time, the coordination store ends the session of a broker
                that is cut off.
            racks: the rack of each broker, in the order of their ids.

        Raises:
            ImportError: the extra `broker` is not installed.
            ValueError: a number is not positive.
        """
        for name, number in (("brokers", brokers), ("log_dirs", log_dirs)):
            if type(number) is not int or number < 1:
                raise ValueError(f"{name} must be a positive integer, not {number!r}")
        if racks and len(racks) != brokers:
            raise ValueError(f"racks names {len(racks)} racks for {brokers} brokers")
        temporary = None
        if directory is None:
            temporary = tempfile.TemporaryDirectory(prefix="cluster-", ignore_cleanup_errors=True)
        root = temporary.name if temporary is not None else os.fspath(directory or "")
        coordination = EmbeddedStore([tempfile.mkdtemp(prefix="coordination-", dir=root)])
        settings = NodeSettings(
            root, log_dirs, coordination.connect, session_seconds, dict(config or {}),
            dict(enumerate(racks, 1)),
        )  # fmt: skip
        made = cls(root, {one: Node(settings, one) for one in range(1, brokers + 1)}, coordination)
        made._temporary = temporary
        try:
            made._start_all()
        except BaseException:
            made.close()
            raise
        return made

    def _start_all(self) -> None:
        with ThreadPoolExecutor(len(self._nodes)) as pool:
            list(pool.map(lambda node: node.start(self._may_reach), self._nodes.values()))
        self._wait(self._know_each_other, START_SECONDS, "the brokers do not know each other")

    def __repr__(self) -> str:
        return f"<Cluster of {len(self._nodes)} brokers, {self.bootstrap_servers}>"

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers that run and are not cut off, for `bootstrap.servers`."""
        return ",".join(
            node.serving.bootstrap_servers
            for node in self._nodes.values()
            if node.serving is not None and not node.is_cut
        )

    @property
    def broker_ids(self) -> Sequence[int]:
        """The ids of all brokers, including brokers that are down."""
        return tuple(self._nodes)

    def log_dirs(self, broker: int) -> Sequence[str]:
        """Return the log dirs of a broker."""
        return tuple(self._node(broker).paths)

    # --- faults -----------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        """End a broker like a SIGKILL.

        Its written data stays. If the broker is down, do nothing.
        """
        self._node(broker).kill()

    def stop(self, broker: int, timeout: float = 10.0) -> None:
        """Stop a broker cleanly: its leaderships move to other brokers first."""
        self._node(broker).stop(timeout)

    def restart(self, broker: int) -> None:
        """Start a broker again, at the same address. If the broker still runs, kill it first."""
        node = self._node(broker)
        node.kill()
        node.start(self._may_reach)

    def fail_dir(self, broker: int, number: int) -> None:
        """Let a log dir of a broker fail, as a disk fails (KIP-112)."""
        node = self._node(broker)
        node.store.take_offline(node.paths[number])

    def return_dir(self, broker: int, number: int) -> None:
        """Let a failed log dir work again, with its old data."""
        node = self._node(broker)
        node.store.reopen_dir(node.paths[number])

    def cut(self, broker: int) -> None:
        """Cut a broker off from all other brokers and the coordination store.

        Clients still reach the broker. If the broker leads a partition, it continues to lead, but
        acknowledges nothing with acks=all. After `session_seconds`, another broker becomes the
        leader of the partition.
        """
        self._node(broker).cut()
        for node in self._nodes.values():
            node.break_connections()

    def heal(self) -> None:
        """Let all brokers reach each other and the coordination store again."""
        for node in self._nodes.values():
            if node.is_cut:
                node.heal()

    # --- what the brokers know --------------------------------------------------------------------

    def partition(self, topic: str, partition: int = 0) -> PartitionView | None:
        """Return the leader, replicas and ISR that all running, connected brokers know.

        Returns:
            None if the brokers do not agree yet, or if they do not know the partition.
        """
        found = []
        for node in self._nodes.values():
            if node.serving is not None and not node.is_cut:
                known = node.serving.member.metadata.view.topics.get(topic)
                found.append(None if known is None else known.partitions.get(partition))
        return found[0] if found and all(one == found[0] for one in found) else None

    def wait_for_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        timeout: float = WAIT_SECONDS,
    ) -> int:
        """Wait until a partition has a leader, and return its broker id.

        Raises:
            ClusterTimeoutError: the partition has no leader in time.
        """

        def is_led() -> bool:
            view = self.partition(topic, partition)
            return view is not None and view.leader not in (-1, other_than)

        self._wait(is_led, timeout, f"{topic}-{partition} has no leader")
        view = self.partition(topic, partition)
        return -1 if view is None else view.leader

    def wait_in_sync(
        self, topic: str, partition: int = 0, *, timeout: float = WAIT_SECONDS
    ) -> None:
        """Wait until all replicas of a partition are in sync.

        Raises:
            ClusterTimeoutError: a replica is not in sync in time.
        """

        def is_whole() -> bool:
            view = self.partition(topic, partition)
            return view is not None and set(view.isr) == set(view.replicas)

        self._wait(is_whole, timeout, f"a replica of {topic}-{partition} is not in sync")

    def _know_each_other(self) -> bool:
        ids = {one for one, node in self._nodes.items() if node.serving is not None}
        views = [
            node.serving.member.metadata.view
            for node in self._nodes.values()
            if node.serving is not None
        ]
        return all(set(view.brokers) == ids and view.controller_id in ids for view in views)

    def _wait(self, is_done: Callable[[], bool], timeout: float, what: str) -> None:
        deadline = time.monotonic() + timeout
        while not is_done():
            if time.monotonic() > deadline:
                raise ClusterTimeoutError(what=what, seconds=timeout)
            time.sleep(LOOK_SECONDS)

    def _may_reach(self, one: int, other: int) -> bool:
        return one == other or not (self._nodes[one].is_cut or self._nodes[other].is_cut)

    def _node(self, broker: int) -> Node:
        if broker not in self._nodes:
            raise ValueError(f"there is no broker {broker!r}; the brokers are {[*self._nodes]}")
        return self._nodes[broker]

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop all brokers, and remove the temporary directory. A second call does nothing."""
        self.heal()
        for node in reversed(self._nodes.values()):
            node.stop(1.0)
        self._coordination.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
