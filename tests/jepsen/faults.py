"""What can go wrong with the network and the processes of a cluster, and how it is mended.

Each fault is a generator: it breaks something, says what, and mends it when it is continued.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import combinations

from jepsen.brokers import Process
from jepsen.scene import Fault, Scene
from support.network import Way, both_ways

LEADER_SECONDS = 1.0


def halves(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let two groups of nodes not reach each other; clients reach all."""
    nodes = rng.sample(scene.nodes, len(scene.nodes))
    size = rng.randrange(1, len(nodes))
    some, others = nodes[:size], nodes[size:]
    scene.cluster.network.cut(both_ways(some, others))
    yield f"{'+'.join(sorted(some))} | {'+'.join(sorted(others))}"
    scene.cluster.network.heal()


def alone(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Cut one broker off from everybody, or from all but the clients."""
    node = rng.choice(scene.brokers)
    others = [other for other in scene.nodes if other != node]
    with_clients = rng.random() < 0.5
    others += ["clients"] * with_clients
    scene.cluster.network.cut(both_ways([node], others))
    yield f"{node} | {'everybody' if with_clients else 'all but clients'}"
    scene.cluster.network.heal()


def ring(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let each node reach only its two neighbours in a ring."""
    nodes = rng.sample(scene.nodes, len(scene.nodes))
    last = len(nodes) - 1
    apart = [
        both_ways([nodes[one]], [nodes[other]])
        for one, other in combinations(range(len(nodes)), 2)
        if other - one not in (1, last)
    ]
    scene.cluster.network.cut(set().union(*apart))
    yield f"ring {'-'.join(nodes)}"
    scene.cluster.network.heal()


def bridge(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let two brokers reach a third one, but not each other; all reach ZooKeeper, or one."""
    middle, *others = rng.sample(scene.brokers, 3)
    ways = both_ways(others[:1], others[1:])
    if rng.random() < 0.3:
        ways |= both_ways(scene.cluster.zookeeper.nodes, others)
    scene.cluster.network.cut(ways)
    yield f"bridge {middle} between {others[0]} and {others[1]}, {len(ways)} ways cut"
    scene.cluster.network.heal()


def one_way(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Cut some ways in one direction only."""
    nodes = [*scene.nodes, "clients"]
    ways: list[Way] = [(one, other) for one in nodes for other in nodes if one != other]
    cut = rng.sample(ways, rng.randint(1, 5))
    scene.cluster.network.cut(cut)
    yield "one way " + ", ".join(f"{one}>{other}" for one, other in sorted(cut))
    scene.cluster.network.heal()


def kill(scene: Scene, rng: random.Random) -> Iterator[str]:
    """End brokers by SIGKILL, and start them again."""
    dying = scene.pick(rng)
    for process in dying:
        process.kill()
        threading.Event().wait(rng.random() * 0.2)
    yield f"kill {_names(dying)}"
    for process in dying:
        process.launch()


def crash_loop(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Kill a broker again soon after each start, while it may be in the middle of its start."""
    process = scene.pick(rng)[0]
    for _ in range(rng.randint(2, 3)):
        process.kill()
        process.launch()
        threading.Event().wait(0.3 + rng.random() * 2)
    process.kill()
    yield f"kill {process.broker} in its starts"
    process.launch()


def pause(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Stop brokers in their tracks, as a long pause of a virtual machine does."""
    paused = scene.pick(rng)
    for process in paused:
        process.pause()
    yield f"pause {_names(paused)}"
    for process in paused:
        process.resume()


def stop(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Stop a broker in order, and start it again."""
    process = scene.pick(rng)[0]
    if process.is_serving:
        process.stop()
    yield f"stop {process.broker}"
    if not process.is_alive:
        process.launch()


def zookeeper_paused(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let no ZooKeeper answer."""
    scene.cluster.zookeeper.pause()
    yield "pause zk"
    scene.cluster.zookeeper.resume()


def zookeeper_killed(scene: Scene, rng: random.Random) -> Iterator[str]:
    """End all ZooKeepers by SIGKILL, and start them again."""
    scene.cluster.zookeeper.kill()
    yield "kill zk"
    scene.cluster.zookeeper.launch()


def zookeeper_and_broker(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Kill all ZooKeepers and a broker together."""
    process = scene.pick(rng)[0]
    scene.cluster.zookeeper.kill()
    process.kill()
    yield f"kill zk and {process.broker}"
    first = rng.random() < 0.5
    if first:
        process.launch()
    scene.cluster.zookeeper.launch()
    if not first:
        process.launch()


def zookeeper_leader_killed(scene: Scene, rng: random.Random) -> Iterator[str]:
    """End the leader of the ensemble by SIGKILL, and start it again."""
    node = _leader(scene, rng)
    scene.cluster.zookeeper.members[node].kill()
    yield f"kill {node}, the leader of the ensemble"
    _count_change(scene, node)
    scene.cluster.zookeeper.members[node].launch()


def zookeeper_leader_paused(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Stop the leader of the ensemble in its tracks, until another one leads, or not so long."""
    node = _leader(scene, rng)
    scene.cluster.zookeeper.members[node].pause()
    yield f"pause {node}, the leader of the ensemble"
    _count_change(scene, node)
    scene.cluster.zookeeper.members[node].resume()


def zookeeper_leader_cut_off(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Cut the leader of the ensemble off from the other members; brokers reach all of them."""
    node = _leader(scene, rng)
    others = [other for other in scene.cluster.zookeeper.nodes if other != node]
    scene.cluster.network.cut(both_ways([node], others))
    yield f"{node}, the leader of the ensemble | {'+'.join(others)}"
    _count_change(scene, node)
    scene.cluster.network.heal()


def _leader(scene: Scene, rng: random.Random) -> str:
    """Find the leader of the ensemble; any member if there is none, or nobody can tell."""
    ensemble = scene.cluster.zookeeper
    return ensemble.leader(LEADER_SECONDS) or rng.choice(ensemble.nodes)


def _count_change(scene: Scene, node: str) -> None:
    if scene.cluster.zookeeper.leader(other_than=node):
        scene.count("another ZooKeeper led while the leader was away")


def _names(processes: list[Process]) -> str:
    return "+".join(str(process.broker) for process in processes)


NETWORK: list[Fault] = [halves, halves, alone, alone, ring, bridge, one_way, one_way]
PROCESSES: list[Fault] = [
    kill, kill, kill, crash_loop, pause, pause, stop, zookeeper_paused, zookeeper_killed,
    zookeeper_and_broker,
]  # fmt: skip
NETWORK_OF_ENSEMBLE: list[Fault] = [zookeeper_leader_cut_off, zookeeper_leader_cut_off]
PROCESSES_OF_ENSEMBLE: list[Fault] = [
    zookeeper_leader_killed, zookeeper_leader_killed, zookeeper_leader_paused,
]  # fmt: skip
