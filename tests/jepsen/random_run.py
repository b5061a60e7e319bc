"""One random run: clients, faults of a seed, an end without faults, and a verdict."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jepsen import history as histories
from jepsen.brokers import Cluster
from jepsen.checker import check
from jepsen.clients import Admin, Load, read_all
from jepsen.faults import Nemesis, Scene
from jepsen.history import History
from logstore import LogStore
from support.loop_disk import LoopDisk, loop_disk
from support.network import inside, network
from support.places import fast_directory

BROKERS = (1, 2, 3)
NODES = ("b1", "b2", "b3", "zk", "clients")
TOPIC = "orders"
SETTLE_SECONDS = 90.0
LOOK_SECONDS = 0.2


@dataclass
class Plan:
    """What a run is; all of it follows from the seed and the time."""

    seed: int
    seconds: float
    min_isr: int = 2
    partitions: int = 3
    writers: int = 3
    readers: int = 2
    rate: float = 60.0
    sick: int = 0
    families: tuple[str, ...] = ("network", "processes")
    session_ms: int = 3_000
    lag_ms: int = 3_000

    @classmethod
    def of(cls, seed: int, seconds: float) -> Plan:
        """Draw a plan.

        A disk loses records only where two replicas have each acknowledged record, and only the
        disk of one broker: the promise is about fewer than `min` lossy brokers.
        """
        rng = random.Random(seed)
        min_isr = rng.choice([1, 2, 2, 2])
        sick = rng.choice(BROKERS) if min_isr > 1 and rng.random() < 0.6 else 0
        families = rng.choice([("network",), ("processes",), ("network", "processes")])
        rate = rng.choice([20.0, 60.0, 150.0])
        return cls(
            seed, seconds, min_isr, sick=sick, rate=rate,
            families=(*families, "disk") if sick else families,
        )  # fmt: skip


@dataclass
class Result:
    """What a run found.

    Attributes:
        anomalies: the promises that were broken, in words.
        problems: why the run did not end as it should: a replica that is not in sync again, a
            value that was neither acknowledged nor refused, a broker that does not serve.
        ends: how often brokers ended by themselves, with an error.
    """

    plan: Plan
    anomalies: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    unknown: int = 0
    read: int = 0
    ends: int = 0
    took_seconds: float = 0.0
    client_errors: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether nothing was found."""
        return not self.anomalies and not self.problems


@contextmanager
def cluster_of(plan: Plan, history: History) -> Iterator[Scene]:
    """Start a cluster in a network, and remove everything at the end."""
    with ExitStack() as stack:
        base = stack.enter_context(fast_directory())
        disk: LoopDisk | None = stack.enter_context(loop_disk("ext4")) if plan.sick else None
        joined = stack.enter_context(network(*NODES))
        stack.enter_context(inside(joined.name("clients")))
        log_dirs = {broker: [base / f"{broker}-a", base / f"{broker}-b"] for broker in BROKERS}
        if disk is not None:
            log_dirs[plan.sick][1] = disk.mount / "logs"
        (base / "records").mkdir()
        cluster = Cluster(joined, base, log_dirs)
        stack.callback(cluster.close)
        if disk is not None:
            stack.callback(disk.thaw)  # a process that a frozen disk holds cannot be killed
        cluster.start(plan.session_ms, plan.lag_ms, f"min.insync.replicas={plan.min_isr}\n")
        yield Scene(cluster, history, disk, plan.sick)


def run(plan: Plan, results: Path) -> Result:
    """Run a plan, and keep its history in a directory; if it found something, keep all files."""
    begun, result, history = time.monotonic(), Result(plan), History()
    results.mkdir(parents=True, exist_ok=True)
    with cluster_of(plan, history) as scene:
        try:
            _play(plan, scene, result)
        except (AssertionError, OSError) as error:
            result.problems.append(f"{type(error).__name__}: {error}"[:3000])
        for process in scene.cluster.processes.values():
            result.ends += process.ends
        judge(result, history)
        histories.write(history.events, results / "history.jsonl.gz")
        keep_output(scene, results)
        if not result.is_good:
            keep_files(scene, results)
    result.took_seconds = round(time.monotonic() - begun, 1)
    (results / "result.json").write_text(json.dumps(asdict(result), indent=1) + "\n")
    return result


def _play(plan: Plan, scene: Scene, result: Result) -> None:
    servers, cluster = scene.cluster.servers, scene.cluster
    admin = Admin(servers)
    admin.create(TOPIC, plan.partitions, min_insync_replicas=str(plan.min_isr))
    admin.wait_in_sync(TOPIC, plan.partitions)
    load = Load(servers, TOPIC, plan.partitions, scene.history, plan.rate)
    load.start(plan.writers, plan.readers, life_seconds=max(3.0, plan.seconds / 4))
    try:
        strike(plan, scene, result)
        mend(scene)
        admin.wait_in_sync(TOPIC, plan.partitions, SETTLE_SECONDS)
    except AssertionError as error:
        result.problems.append(str(error)[:3000])
    finally:
        load.finish()
        result.problems += [f"neither acknowledged nor refused: {one}" for one in load.unsettled]
        result.client_errors += load.errors
    admin.wait_in_sync(TOPIC, plan.partitions, SETTLE_SECONDS)
    read_all(servers, TOPIC, plan.partitions, scene.history)
    for process in cluster.processes.values():
        process.stop()
    read_replicas(scene, plan.partitions)


def strike(plan: Plan, scene: Scene, result: Result) -> None:
    """Let the families of faults do their work, and start again what ends by itself."""
    nemeses = [Nemesis(scene, family, str(plan.seed), plan.seconds) for family in plan.families]
    for one in nemeses:
        one.thread.start()
    for one in nemeses:
        one.thread.join()
        result.counts.update(Counter(result.counts) + Counter(one.counts))
        if one.error is not None:
            result.problems.append(f"{one.thread.name}: {one.error}"[:3000])


def mend(scene: Scene) -> None:
    """Mend all faults, and wait until all brokers serve and all log dirs are back."""
    cluster, deadline = scene.cluster, time.monotonic() + SETTLE_SECONDS
    if scene.disk is not None:
        scene.disk.thaw()
    cluster.network.heal()
    cluster.zookeeper.resume()
    for process in cluster.processes.values():
        process.resume()
        if not process.is_alive:
            process.launch()
    for process in cluster.processes.values():
        process.wait(max(1.0, deadline - time.monotonic()))
    while scene.lost_dirs:
        assert time.monotonic() < deadline, f"log dirs that do not return: {scene.lost_dirs}"
        scene.return_dirs()
        threading.Event().wait(LOOK_SECONDS)
    scene.note("all is mended")


def read_replicas(scene: Scene, partitions: int) -> None:
    """Read the logs of all brokers, which have stopped."""
    for broker, process in scene.cluster.processes.items():
        with LogStore.open(process.log_dirs) as store:
            for partition in range(partitions):
                records = [
                    (record.offset, (record.value or b"").decode(errors="replace"))
                    for record in store[TOPIC, partition]
                ]
                scene.history.add(f"b{broker}", "replica", "ok", partition, records=records)


def judge(result: Result, history: History) -> None:
    """Let the checker look at the history, if there was a last read."""
    events = history.events
    ended = [event for event in events if event.what == "send" and event.kind != "invoke"]
    result.acknowledged = sum(event.kind == "ok" for event in ended)
    result.unknown = sum(event.kind == "info" for event in ended)
    result.read = sum(len(event.records) for event in events if event.what == "read")
    if result.read:
        found = check(events)
        counts = Counter(one.kind for one in found)
        result.anomalies += [f"{count} {kind}" for kind, count in sorted(counts.items())]
        result.anomalies += [f"{one.partition}: {one.kind}: {one.text}" for one in found[:200]]


def keep_output(scene: Scene, results: Path) -> None:
    """Copy what the brokers printed to the results."""
    for process in scene.cluster.processes.values():
        if process.output.exists():
            shutil.copy(process.output, results / process.output.name)


def keep_files(scene: Scene, results: Path) -> None:
    """Copy all log dirs and the output of ZooKeeper to the results."""
    for process in scene.cluster.processes.values():
        process.kill()
        for log_dir in process.log_dirs:
            target = results / f"{process.broker}-{log_dir.name}"
            with suppress(shutil.Error):  # of a disk that is still dead, what can be read
                shutil.copytree(log_dir, target, dirs_exist_ok=True)
    shutil.copy(scene.cluster.base / "zookeeper" / "out", results / "zookeeper.out")
