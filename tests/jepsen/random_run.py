"""One random run: clients, faults of a seed, an end without faults, and a verdict."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from jepsen.checker import check
from jepsen.clients import Admin, Load
from jepsen.history import History
from jepsen.nemesis import Nemesis
from jepsen.plan import TOPIC, Plan
from jepsen.scene import SETTLE_SECONDS, Scene, act, finish, mend

RESTART_SECONDS = 0.5


@dataclass
class Result:
    """What a run found.

    Attributes:
        anomalies: the promises that were broken, in words.
        problems: why the run did not end as it should: a replica that is not in sync again, a
            value that was neither acknowledged nor refused, a broker that does not serve.
        counts: how often each fault was there.
        effects: what the faults did to the cluster.
        ends: how often brokers ended by themselves, with an error.
    """

    plan: Plan
    anomalies: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
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


def run(plan: Plan, results: Path) -> Result:
    """Run a plan, and keep its history in a directory; if it found something, keep all files."""
    begun, result = time.monotonic(), Result(plan)

    def body(scene: Scene) -> None:
        try:
            _play(plan, scene, result)
        finally:
            result.ends = sum(process.ends for process in scene.cluster.processes.values())
            result.effects = scene.effects
            judge(result, scene.history)
            result.took_seconds = round(time.monotonic() - begun, 1)

    act(plan, results, result, result.problems, body)
    return result


def _play(plan: Plan, scene: Scene, result: Result) -> None:
    servers = scene.cluster.servers
    admin = Admin(servers)
    admin.create(
        TOPIC, plan.partitions, min_insync_replicas=str(plan.min_isr),
        message_timestamp_type=plan.timestamps,
    )  # fmt: skip
    admin.wait_in_sync(TOPIC, plan.partitions)
    load = Load(servers, TOPIC, plan.partitions, scene.history, plan.rate)
    load.start(plan.writers, plan.readers, life_seconds=max(3.0, plan.seconds / 4))
    epoch = scene.cluster.zookeeper.epoch()
    try:
        strike(plan, scene, result)
        mend(scene)
        scene.count("ZooKeeper elected a leader", scene.cluster.zookeeper.epoch() - epoch)
        admin.wait_in_sync(TOPIC, plan.partitions, SETTLE_SECONDS)
    except AssertionError as error:
        result.problems.append(str(error)[:3000])
    finally:
        load.finish()
        result.problems += [f"neither acknowledged nor refused: {one}" for one in load.unsettled]
        result.client_errors += load.errors
    finish(scene, admin, plan.partitions)


def strike(plan: Plan, scene: Scene, result: Result) -> None:
    """Let the families of faults do their work, and start again what ends by itself."""
    scene.end = time.monotonic() + plan.seconds
    nemeses = [Nemesis(scene, family, plan) for family in plan.families]
    for one in nemeses:
        one.thread.start()
    while any(one.thread.is_alive() for one in nemeses):
        for process in scene.cluster.present:
            process.keep_up()
        threading.Event().wait(RESTART_SECONDS)
    for one in nemeses:
        one.thread.join()
        result.counts.update(Counter(result.counts) + Counter(one.counts))
        if one.error is not None:
            result.problems.append(f"{one.thread.name}: {one.error}"[:3000])


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
