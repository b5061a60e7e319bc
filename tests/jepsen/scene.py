"""The scene of every run: a cluster in a network, a disk that may fail, and the history.

A run begins with `act`, which keeps in a directory what the run found. `mend` ends all faults, and
`finish` reads everything for the last time.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jepsen import history as histories
from jepsen.brokers import Cluster, Process, node_of
from jepsen.clients import Admin, read_all
from jepsen.clocks import compile_library
from jepsen.history import History
from jepsen.plan import SPARE, TOPIC, TRANSACTIONS, Plan
from logstore import LogStore
from support.loop_disk import LoopDisk, loop_disk
from support.network import inside, network
from support.places import fast_directory

SETTLE_SECONDS = 90.0
LOOK_SECONDS = 0.2
# Consumers of a rack read from its replica. Transactions that take too long are ended soon.
TRANSACTION_SETTINGS = """
transaction.state.log.num.partitions=4
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
replica.selector.class=RackAwareReplicaSelector
"""


class Scene:
    """A cluster with a disk that may fail, and the history of a run.

    Attributes:
        sick: the broker with a log dir on the disk; 0 if there is none.
        topics: the topics that clients write to.
        lost_dirs: the log dirs that an operator must bring back.
        end: when the last fault begins, in monotonic time.
    """

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        disk: LoopDisk | None = None,
        sick: int = 0,
        topics: Sequence[str] = (TOPIC,),
    ) -> None:
        self.cluster, self.history, self.disk, self.sick = cluster, history, disk, sick
        self.topics = tuple(topics)
        self.lost_dirs: set[Path] = set()
        self.end = float("inf")
        self._effects: Counter[str] = Counter()
        self._counting = threading.Lock()

    @property
    def brokers(self) -> list[str]:
        """The nodes of the brokers that are part of the cluster now."""
        return [node_of(process.broker) for process in self.cluster.present]

    @property
    def nodes(self) -> list[str]:
        """The nodes of brokers and of ZooKeepers."""
        return [*self.brokers, *self.cluster.zookeeper.nodes]

    def pick(self, rng: random.Random, least: int = 1) -> list[Process]:
        """Choose some brokers."""
        return rng.sample(self.cluster.present, rng.choice([least, least, 2, 3]))

    def note(self, text: str) -> None:
        """Write into the history what was broken or mended."""
        self.history.add("faults", "fault", "info", value=text)

    def count(self, effect: str, times: int = 1) -> None:
        """Count what a fault did to the cluster; any thread may call."""
        with self._counting:
            self._effects[effect] += times

    @property
    def effects(self) -> dict[str, int]:
        """How often faults did what to the cluster."""
        with self._counting:
            return dict(self._effects)

    def return_dirs(self) -> None:
        """Bring the failed log dirs back, if their broker serves."""
        process = self.cluster.processes.get(self.sick)
        if process is None or self.disk is None or not process.is_serving:
            return
        for log_dir in list(self.lost_dirs):
            if process.reopen(log_dir):
                self.lost_dirs.discard(log_dir)


# It breaks something, says what, and mends it when it is continued.
Fault = Callable[[Scene, random.Random], Iterator[str]]


@contextmanager
def scene_of(plan: Plan, history: History) -> Iterator[Scene]:
    """Start a cluster in a network, and remove everything at the end."""
    with ExitStack() as stack:
        base = stack.enter_context(fast_directory())
        disk: LoopDisk | None = stack.enter_context(loop_disk("ext4")) if plan.sick else None
        joined = stack.enter_context(network(*plan.nodes))
        stack.enter_context(inside(joined.name("clients")))
        log_dirs = {broker: [base / f"{broker}-a", base / f"{broker}-b"] for broker in plan.brokers}
        if disk is not None:
            log_dirs[plan.sick][1] = disk.mount / "logs"
        (base / "records").mkdir()
        library = compile_library(base) if "clocks" in plan.families else None
        cluster = Cluster(joined, base, log_dirs, plan.keeper_nodes, library)
        if SPARE in cluster.processes:
            cluster.processes[SPARE].is_away = True
        stack.callback(cluster.close)
        if disk is not None:
            stack.callback(disk.thaw)  # a process that a frozen disk holds cannot be killed
        settings = f"min.insync.replicas={plan.min_isr}\n"
        settings += TRANSACTION_SETTINGS if plan.workload == TRANSACTIONS else ""
        cluster.start(plan.session_ms, plan.lag_ms, settings)
        yield Scene(cluster, history, disk, plan.sick, tuple(plan.topics))


def act(
    plan: Plan, results: Path, outcome: Any, faults: list[str], body: Callable[[Scene], None]
) -> None:
    """Run a body on a scene, and keep what it found in a directory.

    Args:
        outcome: the dataclass that is written at the end.
        faults: what is not as it should be, in words; if anything is, all files are kept.
    """
    history = History()
    results.mkdir(parents=True, exist_ok=True)
    with scene_of(plan, history) as scene:
        try:
            body(scene)
        except (AssertionError, OSError) as error:
            faults.append(f"{type(error).__name__}: {error}"[:3000])
        histories.write(history.events, results / "history.jsonl.gz")
        keep_output(scene, results)
        if faults or not outcome.is_good:
            keep_files(scene, results)
    (results / "result.json").write_text(json.dumps(asdict(outcome), indent=1) + "\n")


def mend(scene: Scene) -> None:
    """Mend all faults, and wait until all brokers serve and all log dirs are back."""
    cluster, deadline = scene.cluster, time.monotonic() + SETTLE_SECONDS
    if scene.disk is not None:
        scene.disk.thaw()
    cluster.network.heal()
    for clock in cluster.clocks.values():
        clock.set(0.0)
    cluster.zookeeper.resume()
    cluster.zookeeper.start()
    for process in cluster.processes.values():
        process.resume()
        process.come()
    for process in cluster.processes.values():
        process.wait(max(1.0, deadline - time.monotonic()))
    reopen_hung(scene)
    while scene.lost_dirs:
        assert time.monotonic() < deadline, f"log dirs that do not return: {scene.lost_dirs}"
        scene.return_dirs()
        threading.Event().wait(LOOK_SECONDS)
    scene.note("all is mended")


def reopen_hung(scene: Scene) -> None:
    """Reopen the log dirs that did not answer when their broker started, as an operator does.

    On a crowded machine, a thread may get no processor for as long as a disk may hang.
    """
    for process in scene.cluster.processes.values():
        for log_dir in process.log_dirs:
            hung = f"log dir {log_dir} is offline: it hangs during the start"
            if process.broker != scene.sick and hung in process.said():
                process.reopen(log_dir)
                scene.count("a log dir did not answer in time at a start, and was reopened")


def finish(scene: Scene, admin: Admin, partitions: int) -> None:
    """Read everything for the last time, and stop the brokers."""
    admin.wait_in_sync(TOPIC, partitions, SETTLE_SECONDS)
    replicas = {one: it.replicas for one, it in admin.partitions(TOPIC).items()}
    wait_for_deletions(scene, replicas)
    read_all(scene.cluster.servers, TOPIC, partitions, scene.history)
    for process in scene.cluster.processes.values():
        process.stop()
    read_replicas(scene, replicas)


def wait_for_deletions(scene: Scene, replicas: dict[int, list[int]], topic: str = TOPIC) -> None:
    """Wait until the brokers that lost a partition to others have deleted their replicas."""
    deadline, pause = time.monotonic() + SETTLE_SECONDS, threading.Event()
    while left := [
        str(place)
        for partition, brokers in replicas.items()
        for process in scene.cluster.processes.values()
        for place in (log_dir / f"{topic}-{partition}" for log_dir in process.log_dirs)
        if process.broker not in brokers and place.exists()
    ]:
        assert time.monotonic() < deadline, f"replicas that nobody deletes: {left}"
        pause.wait(LOOK_SECONDS)


def read_replicas(scene: Scene, replicas: dict[int, list[int]]) -> None:
    """Read the logs of all replicas, whose brokers have stopped."""
    for broker, process in scene.cluster.processes.items():
        with LogStore.open(process.log_dirs) as store:
            for partition, brokers in replicas.items():
                if broker not in brokers:
                    continue
                records = [
                    (record.offset, (record.value or b"").decode(errors="replace"))
                    for record in store[TOPIC, partition]
                ]
                scene.history.add(f"b{broker}", "replica", "ok", partition, records=records)


def keep_output(scene: Scene, results: Path) -> None:
    """Copy what the brokers and the tools of operators printed to the results."""
    outputs = [process.output for process in scene.cluster.processes.values()]
    for path in (*outputs, scene.cluster.base / "tools.out"):
        if path.exists():
            shutil.copy(path, results / path.name)


def keep_files(scene: Scene, results: Path) -> None:
    """Copy all log dirs and the output of ZooKeeper to the results."""
    for process in scene.cluster.processes.values():
        process.kill()
        for log_dir in process.log_dirs:
            target = results / f"{process.broker}-{log_dir.name}"
            with suppress(OSError, shutil.Error):  # of a disk that is dead, what can be read
                shutil.copytree(log_dir, target, dirs_exist_ok=True)
    for node, member in scene.cluster.zookeeper.members.items():
        shutil.copy(member.place / "out", results / f"{node}.out")
