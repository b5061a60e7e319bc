"""Cut the power at every call of a broker under clients: nothing acknowledged as durable is lost.

Topics have `flush.messages=1`, so what is acknowledged is durable. After the cut, a broker starts
over what is left: acknowledged records are there, and nothing that was not sent; topics have all
their partitions, and deleted ones stay away; a batch that is sent again is not doubled; committed
offsets are some that were sent, and none beyond.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.config import KAFKA_LOG_CONFIG, BrokerConfig
from broker.wire import messages as m
from crash.checks import PowerCutViolation
from crash.power_cut import QUIET, UNSEEN
from logstore import LogStoreError
from support.crash_model import CrashModel, Image, Op
from support.kafka_client import KafkaClient, batch_of
from support.places import fast_directory
from support.recorder import Recorder, lay_out

CUTS = int(os.environ.get("LOGSTORE_BROKER_CUTS", "60"))
DIRS = ("a", "b")
STEPS = 25
CONFIG = BrokerConfig(
    store_config=QUIET,
    log_config=KAFKA_LOG_CONFIG.replace(flush_messages=1),
    offsets_topic_num_partitions=2,
)
Key = tuple[str, int]


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


class Clients:
    """Sends what clients send, and marks in the record what was acknowledged."""

    def __init__(self, client: KafkaClient, recorder: Recorder, rng: random.Random) -> None:
        self.client, self.recorder, self.rng = client, recorder, rng
        fields = {"transactional_id": None, "transaction_timeout_ms": 1}
        self.producer_id = client.call("InitProducerId", **fields).producer_id
        self.sent: dict[Key, int] = {}
        self.numbers = itertools.count()

    def create(self) -> None:
        """Create a topic."""
        name, partitions = f"t{next(self.numbers)}", self.rng.randint(1, 4)
        self.recorder.mark(("sending", name, partitions))
        self.client.create(name, partitions, segment_bytes=str(1 << 20))
        self.recorder.mark(("created", name, partitions))
        self.sent |= {(name, number): 0 for number in range(partitions)}

    def produce(self) -> None:
        """Append a batch of an idempotent producer, now and then twice."""
        key = self.rng.choice(list(self.sent))
        first, count = self.sent[key], self.rng.randint(1, 4)
        batch = batch_of(
            *[b"%d" % number for number in range(first, first + count)],
            producer=(self.producer_id, 0, first),
        )
        self.sent[key] += count
        self.recorder.mark(("sent", key, self.sent[key]))
        for _ in range(self.rng.randint(1, 2)):
            row = self.client.produce(key[0], batch, partition=key[1])
            assert (row.error_code, row.base_offset) == (0, first), row
        self.recorder.mark(("acknowledged", key, self.sent[key]))

    def commit(self) -> None:
        """Commit an offset, without membership."""
        name, number = self.rng.choice(list(self.sent))
        request = m.OffsetCommitRequest
        offset = self.rng.randrange(100)
        self.recorder.mark(("committed", (name, number), offset))
        row = request.OffsetCommitRequestPartition(number, offset, -1, "")
        topic = request.OffsetCommitRequestTopic(name=name, partitions=[row])
        self.client.call(
            "OffsetCommit", group_id="g", generation_id_or_member_epoch=-1, topics=[topic]
        )

    def delete(self) -> None:
        """Delete a topic."""
        name = self.rng.choice(list(self.sent))[0]
        self.recorder.mark(("deleting", name, 0))
        state = m.DeleteTopicsRequest.DeleteTopicState(name)
        (row,) = self.client.call("DeleteTopics", topics=[state]).responses
        assert row.error_code == 0
        self.recorder.mark(("deleted", name, 0))
        self.sent = {key: count for key, count in self.sent.items() if key[0] != name}

    def step(self) -> None:
        """Do anything."""
        dice = self.rng.random()
        if not self.sent or dice < 0.15:
            self.create()
        elif dice < 0.75:
            self.produce()
        elif dice < 0.92:
            self.commit()
        else:
            self.delete()


class Known:
    """What the marks up to a moment say."""

    def __init__(self) -> None:
        self.sending: dict[str, int] = {}
        self.topics: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.sent: dict[Key, int] = {}
        self.acknowledged: dict[Key, int] = {}
        self.commits: dict[Key, set[int]] = {}
        self.producer_ids: set[int] = set()

    def hear(self, what: tuple[str, Any, int]) -> None:
        """Take up a mark."""
        kind, key, number = what
        if kind == "sending":
            self.sending[key] = number
        elif kind == "created":
            self.topics[key] = number
        elif kind in ("deleting", "deleted"):
            self.topics.pop(key, None)
            if kind == "deleted":
                self.deleted.add(key)
        elif kind == "committed":
            self.commits.setdefault(key, set()).add(number)
        else:
            (self.sent if kind == "sent" else self.acknowledged)[key] = number


def record(root: Path, seed: int) -> list[Op]:
    """Have a broker serve a history; it is stopped in order once."""
    root.mkdir()
    rng = random.Random(seed)
    paths = [root / name for name in DIRS]
    with Recorder(root) as recorder:
        with Broker.start(paths, CONFIG) as broker, KafkaClient(broker.bootstrap_servers) as client:
            clients = Clients(client, recorder, rng)
            for _ in range(STEPS):
                clients.step()
        with Broker.start(paths, CONFIG) as broker, KafkaClient(broker.bootstrap_servers) as client:
            clients.client = client
            for _ in range(STEPS):
                clients.step()
    return recorder.ops


def check(image: Image, root: Path, known: Known) -> None:
    """Start a broker over what is left, and hold it to what is known."""
    shutil.rmtree(root, ignore_errors=True)
    lay_out(image, root)
    try:
        with (
            Broker.start([root / name for name in DIRS], CONFIG) as broker,
            KafkaClient(broker.bootstrap_servers) as client,
        ):
            check_topics(broker, known)
            check_offsets(client, known)
    except (LogStoreError, AssertionError) as error:
        raise PowerCutViolation(f"{type(error).__name__}: {error}") from error


def check_topics(broker: Broker, known: Known) -> None:
    """Look at topics and records."""
    store = broker.store
    found: dict[str, int] = {}
    for topic, _ in store:
        if not topic.startswith("_"):
            found[topic] = found.get(topic, 0) + 1
    for topic, partitions in known.topics.items():
        assert found.get(topic) == partitions, f"{topic} has {found.get(topic)} of {partitions}"
    for topic, partitions in found.items():
        assert topic not in known.deleted, f"{topic} came back"
        assert partitions == known.sending[topic], f"{topic} has {partitions} partitions"
    for key, sent in known.sent.items():
        if key[0] in known.topics:
            values = [record.value for record in store.log(*key)]
            assert values == [b"%d" % number for number in range(len(values))], f"{key}: {values}"
            assert known.acknowledged.get(key, 0) <= len(values) <= sent, f"{key}: {len(values)}"
            states = store.log(*key).producer_states()
            if values:
                assert states[0].last_sequence == len(values) - 1, f"{key}: {states}"


def check_offsets(client: KafkaClient, known: Known) -> None:
    """Look at committed offsets; they are not durable, but none is made up."""
    asked = m.OffsetFetchRequest.OffsetFetchRequestGroup("g", topics=None)
    client.call("FindCoordinator", coordinator_keys=["g"])
    row = client.call("OffsetFetch", groups=[asked]).groups[0]
    assert row.error_code == 0, row
    for topic in row.topics:
        for one in topic.partitions:
            offsets = known.commits[topic.name, one.partition_index]
            assert one.committed_offset in offsets, f"{topic.name}: {one}"


def explore(ops: list[Op], root: Path, seed: int, limit: int) -> int:
    """Check images of random moments."""
    model, rng, known = CrashModel(), random.Random(seed), Known()
    moments = [number for number, op in enumerate(ops) if op[0] not in UNSEEN]
    chosen = set(rng.sample(moments, min(limit, len(moments))))
    for number, op in enumerate(ops):
        if op[0] == "mark":
            known.hear(op[1])
        else:
            model.apply(op)
        if number in chosen:
            check(model.lost() if rng.random() < 0.3 else model.crash(rng), root, known)
    return len(chosen)


@pytest.mark.timeout(120 + CUTS)
def test_a_power_cut_takes_nothing_that_a_broker_acknowledged(base: Path) -> None:
    """At any call, with topics that come and go."""
    done = 0
    for seed in itertools.count():
        ops = record(base / f"made-{seed}", seed)
        try:
            done += explore(ops, base / "cut", seed, 20)
        except PowerCutViolation as error:
            pytest.fail(f"seed {seed}: {error}")
        if done >= CUTS:
            break
    print(f"crash: broker: {done} cuts")
