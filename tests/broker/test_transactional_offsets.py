"""Which offset counts, when transactions and plain commits write the same ones.

The oracle is the order of the commits in the log: of those that count, the last one wins. It is
asked while the broker runs, and after a restart that may come before the transactions end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker import Broker
from broker.coordinator.hosted import PendingOffsets
from support.kafka_client import KafkaClient
from support.transaction_requests import SMALL, RawProducer, commit_simple, fetch_offset

TOPICS = ("t0", "t1")
STEPS = ("commit",) * 5 + ("end",) * 3 + ("plain", "restart")


class Oracle:
    """All commits of one group, in the order of the log."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, int, str | None]] = []  # topic, offset, transaction
        self.open: set[str] = set()

    def expected(self, topic: str) -> tuple[int, int]:
        """Return the error and the offset of a reader that asks for stable offsets."""
        own = [one for one in self.commits if one[0] == topic]
        if any(name in self.open for _, _, name in own):
            return 88, -1
        return 0, own[-1][1] if own else -1

    def end(self, name: str, *, commit: bool) -> None:
        self.open.discard(name)
        self.commits = [
            (topic, offset, None if one == name else one)
            for topic, offset, one in self.commits
            if commit or one != name
        ]


def check(client: KafkaClient, oracle: Oracle) -> None:
    for topic in TOPICS:
        assert fetch_offset(client, "g", topic, stable=True) == oracle.expected(topic), topic


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("restarts", [False, True])
def test_regression_the_later_commit_wins(tmp_path: Path, order: str, *, restarts: bool) -> None:
    """Before, the commit whose transaction ended last won until a restart."""
    first = Broker.start([tmp_path], config=SMALL)
    with KafkaClient(first.bootstrap_servers) as client:
        client.create("t0")
        producers = {name: RawProducer(client, name).begin() for name in "ab"}
        for offset, (name, producer) in enumerate(producers.items(), 1):
            assert producer.again(lambda producer=producer: producer.add_offsets("g")) == 0, name
            assert producer.commit_offset("g", "t0", offset) == 0
        for name in order if not restarts else ():
            producers[name].finish(commit=True)
        if not restarts:
            assert fetch_offset(client, "g", "t0", stable=True) == (0, 2)
    first.close()
    with (
        Broker.start([tmp_path], config=SMALL) as broker,
        KafkaClient(broker.bootstrap_servers) as client,
    ):
        for name in order if restarts else ():
            producers[name].client = client
            assert producers[name].again(lambda name=name: producers[name].end(commit=True)) == 0
            producers[name].wait_for("CompleteCommit")
        assert fetch_offset(client, "g", "t0", stable=True) == (0, 2)


def start(path: Path, running: ExitStack) -> KafkaClient:
    broker = running.enter_context(Broker.start([path], config=SMALL))
    return running.enter_context(KafkaClient(broker.bootstrap_servers))


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_have_the_order_of_the_log(tmp_path: Path, seed: int) -> None:
    """Three transactions, plain commits and restarts happen in a random order."""
    rng, oracle = random.Random(seed), Oracle()
    with ExitStack() as running:
        client = start(tmp_path, running)
        for topic in TOPICS:
            client.create(topic)
        producers = {name: RawProducer(client, name).begin() for name in "abc"}
        for offset in range(120):
            name, topic = rng.choice("abc"), rng.choice(TOPICS)
            producer = producers[name]
            match rng.choice(STEPS):
                case "commit":
                    if name not in oracle.open:
                        assert producer.again(lambda one=producer: one.add_offsets("g")) == 0
                        oracle.open.add(name)
                    assert producer.commit_offset("g", topic, offset) == 0
                    oracle.commits.append((topic, offset, name))
                case "plain":
                    commit_simple(client, "g", topic, offset)
                    oracle.commits.append((topic, offset, None))
                case "end" if name in oracle.open:
                    is_commit = rng.random() < 0.8
                    producer.finish(commit=is_commit)
                    oracle.end(name, commit=is_commit)
                case "restart" if rng.random() < 0.3:
                    running.close()
                    client = start(tmp_path, running)
                    for one in producers.values():
                        one.client = client
                        one.wait_for(one.state().transaction_state)
            check(client, oracle)


class Watched(list[PendingOffsets]):
    """Pending offsets that count how often they are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[PendingOffsets]:
        self.looks += 1
        return super().__iter__()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_looks_only_at_the_groups_of_its_producer(
    tmp_path: Path, *, commit: bool, restarts: bool
) -> None:
    """A broker may have 100,000 groups, and transactions end many times a second."""
    others = [f"other-{number}" for number in range(12)]
    with (
        Broker.start([tmp_path], config=SMALL) as first,
        KafkaClient(first.bootstrap_servers) as client,
    ):
        client.create("t0")
        own, other = (RawProducer(client, name).begin() for name in "ab")
        for producer, groups in ((own, ["own"]), (other, others)):
            for group in groups:
                assert producer.again(lambda p=producer, g=group: p.add_offsets(g)) == 0
                assert producer.commit_offset(group, "t0", 7) == 0
        if not restarts:
            check_looks(first, client, own, other, others, commit=commit)
    if restarts:
        with (
            Broker.start([tmp_path], config=SMALL) as second,
            KafkaClient(second.bootstrap_servers) as client,
        ):
            for group in ("own", *others):
                assert fetch_offset(client, group, "t0", stable=True)[0] == 88
            own.client = other.client = client
            check_looks(second, client, own, other, others, commit=commit)


def check_looks(
    broker: Broker,
    client: KafkaClient,
    own: RawProducer,
    other: RawProducer,
    others: list[str],
    *,
    commit: bool,
) -> None:
    """End both transactions; the first must not look at the groups of the second."""
    groups = broker._services.groups
    watched = [one for one in groups.loaded() if one.name in others]
    for one in watched:
        one.pending = Watched(one.pending)
    own.finish(commit=commit)
    assert [one.pending.looks for one in watched] == [0] * len(others)  # type: ignore[attr-defined]
    expected = (0, 7 if commit else -1)
    assert fetch_offset(client, "own", "t0", stable=True) == expected
    for group in others:
        assert fetch_offset(client, group, "t0", stable=True)[0] == 88
    other.finish(commit=commit)
    for group in others:
        assert fetch_offset(client, group, "t0", stable=True) == expected
    assert [shard._by_producer for shard in groups.shards()] == [{}, {}]
