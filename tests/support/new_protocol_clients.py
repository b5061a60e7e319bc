"""Run consumers of librdkafka with `group.protocol=consumer`, and a broker process to be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from benchmarks.kafka.broker import free_port
from support.kafka_client import KafkaClient
from support.places import environment

SECONDS = 60.0
COMMITS_MAX = 100
FAST = {
    "group_consumer_heartbeat_interval_ms": 100,
    "group_consumer_session_timeout_ms": 2000,
    "offsets_topic_num_partitions": 2,
}
SERVE = """
import json, sys
from broker import Broker
with Broker.start(sys.argv[2:], config=json.loads(sys.argv[1])) as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


class Process:
    """A broker in a process of its own, which keeps its address and its log dirs."""

    def __init__(self, place: Path, **config: Any) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._config = FAST | {"listeners": f"PLAINTEXT://{self.address}"} | config
        self._dirs = [str(place / "a"), str(place / "b")]
        self.start()

    def start(self) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", SERVE, json.dumps(self._config), *self._dirs],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True,
        )  # fmt: skip
        assert self.child.stdout is not None
        assert self.child.stdout.readline().strip() == self.address

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.child.kill()
        self.child.communicate()

    def close(self) -> None:
        self.child.communicate()


class Reader:
    """A consumer in a thread: it notes what it reads, and commits before it gives up partitions."""

    def __init__(self, servers: str, group: str, topics: list[str], **config: Any) -> None:
        self.read: list[tuple[int, int]] = []  # partition and value
        self.failures: list[str] = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer",
                "auto.offset.reset": "earliest", "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500, "log_level": 0,
                "reconnect.backoff.max.ms": 500,
            } | {key.replace("_", "."): value for key, value in config.items()}
        )  # fmt: skip
        self.share: list[int] = []
        self._topics = topics
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def commit(self) -> None:
        """Commit what was read.

        A heartbeat whose answer is on its way may have raised the epoch of the member. Then the
        commit is refused, also by Kafka, and is sent again.
        """
        stale = confluent_kafka.KafkaError.STALE_MEMBER_EPOCH
        for _ in range(COMMITS_MAX):
            try:
                self.consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException as error:
                code = error.args[0].code()
                if code == stale:
                    self._ends.wait(0.05)
                    continue
                if code != confluent_kafka.KafkaError._NO_OFFSET:
                    self.failures.append(f"a commit was refused: {error}")
            return
        self.failures.append("a commit was refused again and again")

    def _run(self) -> None:
        self.consumer.subscribe(self._topics, on_revoke=lambda *_: self.commit())
        while not self._ends.is_set():
            message = self.consumer.poll(0.05)
            self.share = sorted(one.partition for one in self.consumer.assignment())
            if message is None:
                continue
            if message.error() is None:
                self.read.append((message.partition(), int(message.value())))
            elif message.error().fatal():
                self.failures.append(str(message.error()))
        self.commit()
        self.consumer.close()

    def close(self) -> None:
        """Leave the group in order."""
        self._ends.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.02)


def create(servers: str, topic: str, partitions: int, group: str = "") -> None:
    """Create a topic, and let a group begin at its offsets 0.

    Without committed offsets, librdkafka 2.16 asks for the first offset. If a rebalance comes in
    between, it asks twice, and the second answer sets a partition back that it has read already.
    """
    with KafkaClient(servers) as client:
        client.create(topic, partitions)
    if group:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": servers, "log_level": 0})
        places = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
        wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, places)
        (done,) = admin.alter_consumer_group_offsets([wanted]).values()
        assert all(one.error is None for one in done.result(SECONDS).topic_partitions)


def fill(servers: str, topic: str, numbers: range, partitions: int) -> None:
    """Append numbers to the partitions in turn."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(SECONDS) == 0
