"""One random run with transactions: clients, faults of a seed, the last reads, and a verdict."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from jepsen.clients import Admin
from jepsen.history import History, Record
from jepsen.plan import INPUTS, Plan
from jepsen.random_run import Result, strike
from jepsen.scene import SETTLE_SECONDS, Scene, act, mend, wait_for_deletions
from jepsen.transactions.checker import check_transactions
from jepsen.transactions.kinds import LAST, LAST_READS
from jepsen.transactions.load import Load
from jepsen.transactions.outcomes import Place, transactions_of
from jepsen.transactions.readers import LEVELS, Ends, group_offsets, read_everything, read_to
from logstore import LogStore


def run_transactions(plan: Plan, results: Path) -> Result:
    """Run a plan, and keep its history in a directory; if it found something, keep all files."""
    begun, result = time.monotonic(), Result(plan)

    def body(scene: Scene) -> None:
        try:
            _play(plan, scene, result)
        finally:
            result.ends = sum(process.ends for process in scene.cluster.processes.values())
            judge(result, scene.history)
            result.effects = {**scene.effects, **result.effects}
            result.took_seconds = round(time.monotonic() - begun, 1)

    act(plan, results, result, result.problems, body)
    return result


def _play(plan: Plan, scene: Scene, result: Result) -> None:
    admin = Admin(scene.cluster.servers)
    for topic, partitions in plan.topics.items():
        admin.create(
            topic, partitions, min_insync_replicas=str(plan.min_isr),
            message_timestamp_type=plan.timestamps, segment_bytes=str(plan.segment_bytes),
        )  # fmt: skip
    _wait_in_sync(admin, plan)
    load = Load(scene.cluster.servers, scene.history, plan, scene.count)
    load.start(life_seconds=max(3.0, plan.seconds / 4))
    epoch = scene.cluster.zookeeper.epoch()
    try:
        load.wait()
        strike(plan, scene, result)
        mend(scene)
        scene.count("ZooKeeper elected a leader", scene.cluster.zookeeper.epoch() - epoch)
        _wait_in_sync(admin, plan)
        load.finish_writers()
        _drain(plan, scene, load)
    except AssertionError as error:
        result.problems.append(str(error)[:3000])
    finally:
        load.finish()
        result.problems += [f"not ended: {one}" for one in load.unsettled]
        result.client_errors += load.errors
    finish(plan, scene, admin)


def _wait_in_sync(admin: Admin, plan: Plan) -> None:
    for topic, partitions in plan.topics.items():
        admin.wait_in_sync(topic, partitions, SETTLE_SECONDS)


def _drain(plan: Plan, scene: Scene, load: Load) -> None:
    """Wait until all committed inputs are transformed."""
    topics = {INPUTS: plan.topics[INPUTS]}
    stable, _ = Ends(scene.cluster.servers, topics).settle()
    logs = read_to(scene.cluster.servers, topics, "committed", stable)
    load.drain({place: log[-1][0] + 1 if log else 0 for place, log in logs.items() if log})


def finish(plan: Plan, scene: Scene, admin: Admin) -> None:
    """Read everything for the last time, stop the brokers, and read their logs."""
    _wait_in_sync(admin, plan)
    replicas = {topic: admin.partitions(topic) for topic in plan.topics}
    for topic, placed in replicas.items():
        wait_for_deletions(scene, {one: it.replicas for one, it in placed.items()}, topic)
    servers, history = scene.cluster.servers, scene.history
    stable, high = Ends(servers, plan.topics).settle()
    for (topic, one), offset in stable.items():
        history.add(LAST, "end", "ok", one, str(high[topic, one]), offset, topic=topic)
    racks = [f"r{process.broker}" for process in scene.cluster.present]
    read_everything(servers, plan.topics, history, stable, racks)
    inputs = [place for place in stable if place[0] == INPUTS]
    found = group_offsets(servers, plan.group, inputs, SETTLE_SECONDS)
    for topic, one in inputs:
        history.add(LAST, "group", "ok", one, offset=found.get((topic, one), -1), topic=topic)
    for process in scene.cluster.processes.values():
        process.stop()
    for topic, placed in replicas.items():
        for one, it in placed.items():
            read_replicas(scene, (topic, one), it.replicas)


def read_replicas(scene: Scene, place: Place, brokers: list[int]) -> None:
    """Read a partition in both ways from the logs of brokers that have stopped."""
    topic, one = place
    for broker in brokers:
        with LogStore.open(scene.cluster.processes[broker].log_dirs) as store:
            for what in LAST_READS:
                records: list[Record] = [
                    (record.offset, (record.value or b"").decode(errors="replace"))
                    for batch in store[topic, one].read_batches(isolation_level=LEVELS[what])
                    for record in batch.records(topic, one)
                ]
                scene.history.add(f"b{broker}", what, "ok", one, records=records, topic=topic)


def judge(result: Result, history: History) -> None:
    """Let the checker look at the history, if there was a last read."""
    events = history.events
    transactions = transactions_of(events).values()
    outcomes = Counter(one.outcome for one in transactions)
    for outcome, count in outcomes.items():
        result.effects[f"a transaction counts as {outcome}"] = count
    written = [it for one in transactions for it in one.records.values()]
    result.acknowledged = sum(it.is_acknowledged for it in written)
    result.unknown = len(written) - result.acknowledged
    result.read = sum(len(event.records) for event in events if event.what in LAST_READS)
    if result.read:
        found = check_transactions(events)
        counts = Counter(one.kind for one in found)
        result.anomalies += [f"{count} {kind}" for kind, count in sorted(counts.items())]
        result.anomalies += [f"{one.partition}: {one.kind}: {one.text}" for one in found[:200]]
