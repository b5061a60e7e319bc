"""Jepsen's scenario of 2013: the ISR shrinks to its leader, and then this leader is gone, too.

    1. Writes while all three replicas are in sync.
    2. The leader is cut off from its followers, not from ZooKeeper and its clients. Writes go on.
    3. The leader is killed, or cut off from everybody. Writes go on.
    4. All faults are mended. What was acknowledged must be there.

The leader is also the controller's broker: a leader cannot shrink its ISR without the controller.

| case | in step 2 | in step 3 | at the end |
|---|---|---|---|
| min 1 | acknowledged by the leader alone | no leader, nothing is acknowledged | nothing is lost |
| min 2 | refused while the ISR is 1 | another leader, acknowledged | nothing is lost |
| unclean | acknowledged by the leader alone | another leader | what is lost is in `.lost` files |
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kazoo.client import KazooClient

from jepsen.brokers import Process, node_of
from jepsen.checker import Anomaly, check, lost_values
from jepsen.clients import Admin, Writer
from jepsen.plan import TOPIC, Plan
from jepsen.scene import SETTLE_SECONDS, Scene, act, finish, mend
from support.network import both_ways
from support.places import environment

Case = Literal["min 1", "min 2", "unclean"]
Ending = Literal["cut off", "killed"]
CASES: tuple[Case, ...] = ("min 1", "min 2", "unclean")
ENDINGS: tuple[Ending, ...] = ("cut off", "killed")
STATE = f"/jepsen/brokers/topics/{TOPIC}/partitions/0/state"
REFUSED = "NOT_ENOUGH_REPLICAS"
LOOK_SECONDS = 0.05
LINGER_SECONDS = 1.0


@dataclass
class Outcome:
    """What one run of the scenario found.

    Attributes:
        alone: how many writes were acknowledged while the ISR was the leader alone.
        after: how many writes were acknowledged after that leader was gone, before it was mended.
        lost: how many acknowledged writes the last read does not have.
        kept: how many of those are in `.lost` files.
        faults: what is not as it should be.
    """

    case: Case
    ending: Ending
    writes: int
    acknowledged: int = 0
    alone: int = 0
    after: int = 0
    lost: int = 0
    kept: int = 0
    unavailable_seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether nothing was found."""
        return not self.faults

    def demand(self, truth: bool, text: str) -> None:
        """Note a fault if something is not true."""
        if not truth:
            self.faults.append(text)


class Stage:
    """The cluster, the partition's state, and the producers of a run."""

    def __init__(self, scene: Scene, zookeeper: KazooClient, outcome: Outcome) -> None:
        self.scene, self.outcome = scene, outcome
        self.third = outcome.writes // 3
        self._zookeeper = zookeeper
        self.writers: list[Writer] = []

    @property
    def state(self) -> tuple[int, list[int]]:
        """The leader and the ISR, as ZooKeeper has them."""
        found = json.loads(self._zookeeper.get(STATE)[0])
        return int(found["leader"]), sorted(found["isr"])

    @property
    def controller(self) -> int:
        """The broker of the controller."""
        return int(json.loads(self._zookeeper.get("/jepsen/controller")[0])["brokerid"])

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something, while the producers hear of what has ended."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{what}; the state is {self.state}"
            for writer in self.writers:
                writer.poll(LOOK_SECONDS / 2)

    def linger(self, seconds: float) -> None:
        """Let some time pass."""
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() > end, "time")

    def write(self, name: str, count: int) -> Writer:
        """Send some values by a producer of their own."""
        writer = Writer(self.scene.cluster.servers, TOPIC, self.scene.history, name)
        self.writers.append(writer)
        for _ in range(count):
            writer.send(0)
            writer.poll(0)
        return writer

    def acknowledged(self, writer: Writer, count: int) -> None:
        """Wait until a number of values of a producer are acknowledged."""
        self.wait(lambda: writer.acknowledged >= count, f"{writer.name} has {writer.acknowledged}")

    def probe(self) -> str:
        """Send one value once, and say how it was answered."""
        writer = Writer(
            self.scene.cluster.servers, TOPIC, self.scene.history, "probe", retries=0,
            **{"enable.idempotence": False, "message.timeout.ms": 10_000},
        )  # fmt: skip
        writer.send(0)
        writer.settle(SETTLE_SECONDS)
        return next(iter(writer.errors), "acknowledged")


def play(case: Case, ending: Ending, writes: int, results: Path, lag_ms: int = 3_000) -> Outcome:
    """Run the scenario once, and keep its history in a directory.

    Args:
        lag_ms: after which time a follower that does not fetch leaves the ISR.
    """
    outcome = Outcome(case, ending, writes)
    plan = Plan(0, 0.0, min_isr=2 if case == "min 2" else 1, partitions=1, lag_ms=lag_ms)

    def body(scene: Scene) -> None:
        with _zookeeper(scene) as zookeeper:
            _steps(Stage(scene, zookeeper, outcome), plan)

    act(plan, results, outcome, outcome.faults, body)
    return outcome


@contextmanager
def _zookeeper(scene: Scene) -> Iterator[KazooClient]:
    client = KazooClient(scene.cluster.zookeeper.hosts, timeout=60.0)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _steps(stage: Stage, plan: Plan) -> None:
    scene, outcome = stage.scene, stage.outcome
    admin = Admin(scene.cluster.servers)
    unclean = str(outcome.case == "unclean").lower()
    settings = {"min_insync_replicas": plan.min_isr, "unclean_leader_election_enable": unclean}
    replicas = [sorted(scene.cluster.processes, key=lambda broker: broker != stage.controller)]
    admin.create(TOPIC, 1, replicas, **{name: str(value) for name, value in settings.items()})
    admin.wait_in_sync(TOPIC, 1)
    stage.acknowledged(stage.write("all", stage.third), stage.third)
    leader = scene.cluster.processes[stage.state[0]]
    alone = _leave_alone(stage, leader)
    _take_away(stage, leader)
    after = _go_on(stage, leader, alone, plan.session_ms / 1000)
    mend(scene)
    admin.wait_in_sync(TOPIC, 1, SETTLE_SECONDS)
    stage.wait(lambda: alone.in_flight + after.in_flight == 0, "all writes end")
    outcome.acknowledged = sum(writer.acknowledged for writer in stage.writers)
    finish(scene, admin, 1)
    _judge(stage)


def _leave_alone(stage: Stage, leader: Process) -> Writer:
    """Cut the leader off from its followers, and write until the ISR is the leader alone."""
    network, outcome = stage.scene.cluster.network, stage.outcome
    others = [node_of(one) for one in stage.scene.cluster.processes if one != leader.broker]
    network.cut(both_ways([node_of(leader.broker)], others))
    stage.scene.note(f"broker {leader.broker} is cut off from its followers")
    writer = stage.write("alone", stage.third)
    stage.wait(lambda: stage.state[1] == [leader.broker], "the ISR shrinks to the leader")
    if outcome.case == "min 2":
        stage.linger(LINGER_SECONDS)
        before = writer.acknowledged
        answer = stage.probe()
        outcome.demand(answer == REFUSED, f"a write while the ISR is 1 was answered with {answer}")
        stage.linger(LINGER_SECONDS)
        outcome.alone = writer.acknowledged - before
        outcome.demand(outcome.alone == 0, f"{outcome.alone} acknowledged while the ISR is 1")
    else:
        stage.acknowledged(writer, stage.third)
        outcome.alone = writer.acknowledged
    leads = stage.state == (leader.broker, [leader.broker])
    outcome.demand(leads, f"the state is {stage.state}")
    return writer


def _take_away(stage: Stage, leader: Process) -> None:
    """Kill the leader, or cut it off from everybody."""
    nodes = [node for node in stage.scene.cluster.network.nodes if node != node_of(leader.broker)]
    stage.scene.note(f"broker {leader.broker} is {stage.outcome.ending}")
    if stage.outcome.ending == "killed":
        leader.kill()
        stage.scene.cluster.network.heal()
    else:
        stage.scene.cluster.network.cut(both_ways([node_of(leader.broker)], nodes))


def _go_on(stage: Stage, leader: Process, alone: Writer, session_seconds: float) -> Writer:
    """Write without that leader; with min 1, and without unclean elections, nobody may lead."""
    outcome, count = stage.outcome, stage.outcome.writes - 2 * stage.third
    begun, before = time.monotonic(), alone.acknowledged
    writer = stage.write("after", count)
    if outcome.case == "min 1":
        leaders = set()
        while time.monotonic() < begun + 2.5 * session_seconds:
            leaders.add(stage.state[0])
            writer.poll(LOOK_SECONDS)
        outcome.after = writer.acknowledged
        outcome.demand(outcome.after == 0, f"{outcome.after} acknowledged without a leader")
        outcome.demand(leaders <= {-1, leader.broker}, f"there were the leaders {leaders}")
        outcome.demand(stage.state[0] == -1, f"at the end, {stage.state[0]} leads")
        return writer
    stage.acknowledged(writer, 1)
    outcome.unavailable_seconds = round(time.monotonic() - begun, 2)
    stage.acknowledged(writer, count)
    if outcome.case == "min 2":
        stage.acknowledged(alone, stage.third)
    outcome.after = writer.acknowledged + alone.acknowledged - before
    outcome.demand(stage.state[0] not in (-1, leader.broker), f"{stage.state[0]} leads")
    return writer


def _judge(stage: Stage) -> None:
    outcome, events = stage.outcome, stage.scene.history.events
    lost = lost_values(events, 0)
    kept = Counter(
        value
        for process in stage.scene.cluster.processes.values()
        for log_dir in process.log_dirs
        for value in _kept(log_dir)
    )
    outcome.lost, outcome.kept = len(lost), sum(value in kept for value in lost)
    anomalies = check(events)
    if outcome.case == "unclean":
        outcome.demand(outcome.lost > 0, "the unclean election lost nothing")
        outcome.demand(outcome.lost == outcome.kept, "lost records are not in `.lost` files")
        wrong = [value for value in lost if not value.startswith("alone:")]
        outcome.demand(not wrong, f"lost although all replicas had them: {wrong[:5]}")
        anomalies = [one for one in anomalies if not _is_of_the_election(one)]
    outcome.faults += [f"{one.kind}: {one.text}" for one in anomalies[:100]]


def _is_of_the_election(anomaly: Anomaly) -> bool:
    """Whether an unclean election explains an anomaly: offsets name other records after it."""
    return anomaly.kind in ("lost", "disagreeing")


def _kept(log_dir: Path) -> list[str]:
    """Read the values of all `.lost` files of a log dir, as a user does."""
    files = [str(path) for path in log_dir.glob("*.lost")]
    if not files:
        return []
    words = [sys.executable, "-m", "logstore.cli", "dump", "--records", "--format", "jsonl"]
    done = subprocess.run(
        [*words, *files], env=environment(), capture_output=True, text=True, check=True
    )
    lines = map(json.loads, done.stdout.splitlines())
    return [str(line["payload"]) for line in lines if line["kind"] == "record"]
