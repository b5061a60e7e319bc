"""What can go wrong with a cluster, and how it is mended.

Faults belong to three families: the network, the processes, and the disk of one broker. One fault
of each family may be there at the same time. Each fault is a generator: it breaks something, says
what, and mends it when it is continued.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from jepsen.brokers import Cluster, Process, node_of
from jepsen.history import History
from support.loop_disk import LoopDisk
from support.network import Way, both_ways

# Some faults are over before anybody notices, some outlast a session of ZooKeeper.
HOLD_SECONDS = (0.1, 1.5), (1.5, 8.0)
REST_SECONDS = 0.1, 1.5
RELEASE_SECONDS, LOOK_SECONDS = 10.0, 0.05
Fault = Callable[["Scene", random.Random], Iterator[str]]


class Scene:
    """A cluster with a disk that may fail, and the history of a run.

    Attributes:
        sick: the broker with a log dir on the disk; 0 if there is none.
    """

    def __init__(
        self, cluster: Cluster, history: History, disk: LoopDisk | None = None, sick: int = 0
    ) -> None:
        self.cluster, self.history, self.disk, self.sick = cluster, history, disk, sick
        self.lost_dirs: set[Path] = set()

    @property
    def nodes(self) -> list[str]:
        """The nodes of brokers and of ZooKeeper."""
        return [*map(node_of, self.cluster.processes), "zk"]

    def pick(self, rng: random.Random, least: int = 1) -> list[Process]:
        """Choose some brokers."""
        processes = list(self.cluster.processes.values())
        return rng.sample(processes, rng.choice([least, least, 2, 3]))

    def note(self, text: str) -> None:
        """Write into the history what was broken or mended."""
        self.history.add("faults", "fault", "info", value=text)

    def return_dirs(self) -> None:
        """Bring the failed log dirs back, if their broker serves."""
        process = self.cluster.processes.get(self.sick)
        if process is None or self.disk is None or not process.is_serving:
            return
        for log_dir in list(self.lost_dirs):
            if process.reopen(log_dir):
                self.lost_dirs.discard(log_dir)


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
    node = node_of(rng.choice(list(scene.cluster.processes)))
    others = [other for other in scene.nodes if other != node]
    with_clients = rng.random() < 0.5
    others += ["clients"] * with_clients
    scene.cluster.network.cut(both_ways([node], others))
    yield f"{node} | {'everybody' if with_clients else 'all but clients'}"
    scene.cluster.network.heal()


def ring(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let each node reach only its two neighbours in a ring: each is in a majority of three."""
    nodes = rng.sample(scene.nodes, len(scene.nodes))
    pairs = both_ways([nodes[0]], [nodes[2]]) | both_ways([nodes[1]], [nodes[3]])
    scene.cluster.network.cut(pairs)
    yield f"ring {'-'.join(nodes)}"
    scene.cluster.network.heal()


def bridge(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let the other brokers reach one broker, but not each other; all reach ZooKeeper, or one."""
    middle, *others = rng.sample(scene.nodes[:-1], 3)
    ways = both_ways(others[:1], others[1:])
    if rng.random() < 0.3:
        ways |= both_ways(["zk"], others)
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
    """Let ZooKeeper answer nobody."""
    scene.cluster.zookeeper.pause()
    yield "pause zk"
    scene.cluster.zookeeper.resume()


def zookeeper_killed(scene: Scene, rng: random.Random) -> Iterator[str]:
    """End ZooKeeper by SIGKILL, and start it again."""
    scene.cluster.zookeeper.kill()
    yield "kill zk"
    scene.cluster.zookeeper.start()


def zookeeper_and_broker(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Kill ZooKeeper and a broker together."""
    process = scene.pick(rng)[0]
    scene.cluster.zookeeper.kill()
    process.kill()
    yield f"kill zk and {process.broker}"
    first = rng.random() < 0.5
    if first:
        process.launch()
    scene.cluster.zookeeper.start()
    if not first:
        process.launch()


def disk_dies(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let a disk lose all that is not flushed, and answer EIO; then it comes back."""
    assert scene.disk is not None
    scene.disk.cut_power()
    log_dir = scene.disk.mount / "logs"
    yield f"disk of {scene.sick} dies"
    remount(scene)
    scene.lost_dirs.add(log_dir)
    scene.return_dirs()


def remount(scene: Scene) -> None:
    """Mount a dead disk anew. A broker that does not release the disk is killed for it."""
    assert scene.disk is not None
    process, pause = scene.cluster.processes[scene.sick], threading.Event()
    deadline, is_killed = time.monotonic() + RELEASE_SECONDS, False
    while not _mounts_anew(scene.disk):
        if time.monotonic() > deadline:
            assert not is_killed, "the dead disk cannot be mounted anew"
            scene.note(f"{process.broker} holds its dead disk, and is killed")
            process.kill()
            deadline, is_killed = time.monotonic() + RELEASE_SECONDS, True
        pause.wait(LOOK_SECONDS)


def _mounts_anew(disk: LoopDisk) -> bool:
    """Try to mount a dead disk; it stays dead if anybody on the machine still has it mounted."""
    try:
        disk.unmount()
        disk.mount_at(disk.mount)
        balloon_of(disk).unlink(missing_ok=True)  # its removal may have been lost
        (disk.mount / "probe").write_bytes(b"probe")
    except OSError:
        return False
    return True


def balloon_of(disk: LoopDisk) -> Path:
    """Give the file that fills a disk."""
    return disk.mount / "balloon"


def disk_hangs(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Let all changes of a file system hang."""
    assert scene.disk is not None
    scene.disk.freeze()
    yield f"disk of {scene.sick} hangs"
    scene.disk.thaw()
    scene.lost_dirs.add(scene.disk.mount / "logs")
    scene.return_dirs()


def disk_fills(scene: Scene, rng: random.Random) -> Iterator[str]:
    """Fill a disk to its last byte with another file."""
    assert scene.disk is not None
    balloon = balloon_of(scene.disk)
    with balloon.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    yield f"disk of {scene.sick} is full"
    balloon.unlink(missing_ok=True)


def _names(processes: list[Process]) -> str:
    return "+".join(str(process.broker) for process in processes)


FAMILIES: dict[str, list[Fault]] = {
    "network": [halves, halves, alone, alone, ring, bridge, one_way, one_way],
    "processes": [
        kill, kill, kill, crash_loop, pause, pause, stop, zookeeper_paused, zookeeper_killed,
        zookeeper_and_broker,
    ],
    "disk": [disk_dies, disk_hangs, disk_fills],
}  # fmt: skip


class Nemesis:
    """Breaks and mends things of one family in a thread, until the time is over.

    Attributes:
        counts: how often each fault was there.
        error: why the thread ended early.
    """

    def __init__(self, scene: Scene, family: str, seed: str, seconds: float) -> None:
        self._scene, self._rng = scene, random.Random(f"{seed} {family}")
        self._faults, self._end = FAMILIES[family], time.monotonic() + seconds
        self._pause = threading.Event()
        self.counts: dict[str, int] = {}
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=family, daemon=True)

    def _run(self) -> None:
        try:
            while self._wait(REST_SECONDS):
                self._one(self._rng.choice(self._faults))
        except (OSError, AssertionError) as error:
            self.error = error

    def _one(self, fault: Fault) -> None:
        steps = fault(self._scene, self._rng)
        told = next(steps)
        self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1
        self._scene.note(told)
        self._wait(self._rng.choice(HOLD_SECONDS))
        for _ in steps:
            raise AssertionError("a fault is mended in one step")
        self._scene.note(f"mended: {told}")

    def _wait(self, seconds: tuple[float, float]) -> bool:
        """Wait for a random time, but not beyond the end; return whether time is left."""
        self._pause.wait(min(self._rng.uniform(*seconds), max(0.0, self._end - time.monotonic())))
        return time.monotonic() < self._end
