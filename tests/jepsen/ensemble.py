"""Run one ZooKeeper or an ensemble of three, each in a network namespace of its own.

An ensemble serves as long as more than half of its members reach each other. One of them leads: it
orders all changes. Each election of a leader begins a new epoch, which is the upper half of a zxid.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from support.network import Network
from support.zookeeper_process import ZooKeeperProcess

PEER_PORT, ELECTION_PORT = 2888, 3888
# A member gives up after 2 s without its leader, and after 1 s without an answer in an election.
QUORUM = {"initLimit": 25, "syncLimit": 10}
FLAGS = ("-Dzookeeper.cnxTimeout=1000",)
ASK_SECONDS, LOOK_SECONDS = 1.0, 0.05
Environments = Mapping[str, Mapping[str, str]]


class Ensemble:
    """All ZooKeepers of a cluster.

    Threads: one thread at a time may start, kill, pause and resume members; any may ask them.

    Attributes:
        members: the processes, by the name of their node.
    """

    def __init__(
        self, network: Network, base: Path, nodes: Sequence[str], environments: Environments
    ) -> None:
        """Start nothing yet.

        Args:
            environments: further variables of the processes, by node.
        """
        self.nodes = tuple(nodes)
        quorum = {
            f"server.{number}": f"{network.address(node)}:{PEER_PORT}:{ELECTION_PORT}"
            for number, node in enumerate(nodes, 1)
        }
        self.members: dict[str, ZooKeeperProcess] = {}
        for number, node in enumerate(nodes, 1):
            place = base / f"zookeeper-{node}"
            (place / "data").mkdir(parents=True)
            (place / "data" / "myid").write_text(f"{number}\n")
            self.members[node] = ZooKeeperProcess(
                place, network.address(node), network.prefix(node), flags=FLAGS,
                settings={**QUORUM, **quorum} if len(nodes) > 1 else {},
                environment=environments.get(node),
            )  # fmt: skip

    @property
    def hosts(self) -> str:
        """The addresses of all members, for clients."""
        return ",".join(member.hosts for member in self.members.values())

    def launch(self) -> None:
        """Start the members that do not run, and wait for nothing."""
        for member in self.members.values():
            if not member.is_alive:
                member.launch()

    def start(self) -> None:
        """Start the members that do not run, and wait until all serve."""
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Wait until all members serve."""
        for member in self.members.values():
            member.wait()

    def kill(self) -> None:
        """End all members by SIGKILL."""
        self._each(ZooKeeperProcess.kill)

    def pause(self) -> None:
        """Stop all members in their tracks."""
        self._each(ZooKeeperProcess.pause)

    def resume(self) -> None:
        """Continue after `pause`."""
        self._each(ZooKeeperProcess.resume)

    def _each(self, act: Callable[[ZooKeeperProcess], None]) -> None:
        for member in self.members.values():
            act(member)

    def leader(self, seconds: float = 0.0, other_than: str = "") -> str:
        """Find the node that leads, and wait for it; "" if there is none in this time.

        Args:
            other_than: a node that is not meant.
        """
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while True:
            for node, member in self.members.items():
                is_asked = member.is_alive and node != other_than
                if is_asked and member.facts(ASK_SECONDS).get("Mode") in ("leader", "standalone"):
                    return node
            if time.monotonic() > deadline:
                return ""
            pause.wait(LOOK_SECONDS)

    def epoch(self) -> int:
        """Tell how many leaders the ensemble has had; a single ZooKeeper has no epochs."""
        zxids = [member.facts().get("Zxid", "0") for member in self.members.values()]
        return max(int(zxid, 16) >> 32 for zxid in zxids)
