"""Consume, transform and produce in transactions: each input becomes one output.

The transformers share the partitions of the inputs in a group. A transaction has the outputs of
some inputs, and the next offsets of the group.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from contextlib import suppress
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, Message, TopicPartition

from jepsen.clients import COMMON
from jepsen.history import History
from jepsen.plan import INPUTS, OUTPUTS, Plan
from jepsen.transactions.kinds import Source, output_of
from jepsen.transactions.producers import (
    KEEPS_BROKERS,
    Clock,
    MustAbort,
    MustClose,
    TransactionalProducer,
)
from jepsen.transactions.writers import Count

GROUP = "transformers"
SESSION_MS, POLL_MS = 6_000, 15_000
TAKE_SECONDS, TAKEN_MAX = 0.3, 20
TIMEOUT_MS = 10_000
HUNG_SECONDS = 30.0
ENDINGS = ["commit"] * 20 + ["abort"] * 3 + ["abandon"]


def consumer_of(servers: str, group: str, **settings: object) -> confluent_kafka.Consumer:
    """Make a consumer of committed records in the group of transformers.

    Args:
        group: an assignor, or `consumer` for the new protocol.
    """
    member: dict[str, object] = {"group.protocol": "consumer"}
    if group != "consumer":
        member = {
            "partition.assignment.strategy": group, "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
        }  # fmt: skip
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers, **COMMON, **KEEPS_BROKERS,
            "group.id": GROUP, "isolation.level": "read_committed", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "max.poll.interval.ms": POLL_MS,
            "fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 50, **member, **settings,
        }
    )  # fmt: skip


class Inputs:
    """Reads the inputs of one life.

    Messages of a partition that the group takes away are dropped: the next owner reads them again.
    """

    def __init__(self, servers: str, group: str) -> None:
        self._consumer = consumer_of(servers, group)
        self._taken: list[Message] = []
        self._consumer.subscribe([INPUTS], on_revoke=self._revoked, on_lost=self._revoked)

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        gone = {one.partition for one in partitions}
        self._taken = [one for one in self._taken if one.partition() not in gone]

    def take(self, count: int) -> list[Message]:
        """Read some records; an empty list if there is none in time."""
        self._taken, deadline = [], time.monotonic() + TAKE_SECONDS
        while len(self._taken) < count and time.monotonic() < deadline:
            found = self._consumer.poll(0.05)
            if found is not None and found.error() is None:
                self._taken.append(found)
        return self._taken

    @property
    def member(self) -> Any:
        """What the coordinator checks when offsets are committed."""
        return self._consumer.consumer_group_metadata()

    def again(self, messages: list[Message]) -> None:
        """Read the same records again, if the partition still belongs to this member."""
        firsts: dict[int, int] = {}
        for one in messages:
            firsts.setdefault(one.partition(), one.offset())
        mine = {one.partition for one in self._consumer.assignment()}
        for partition, offset in firsts.items():
            if partition in mine:
                self._consumer.seek(TopicPartition(INPUTS, partition, offset))

    def close(self) -> None:
        """Leave the group."""
        with suppress(KafkaException):
            self._consumer.close()


class Transformer:
    """All lives of one transformer.

    If a call of librdkafka does not return, `run` is called in another thread, and `turn` says
    which thread counts.

    Attributes:
        turn: how many threads were given up.
    """

    def __init__(
        self, servers: str, history: History, clock: Clock, plan: Plan, number: int, count: Count
    ) -> None:
        self._servers, self._history, self._clock, self._count = servers, history, clock, count
        self._id, self._plan = f"t{number}", plan
        self._rng = random.Random(f"{plan.seed} {self._id}")
        self._lives = itertools.count()
        self.is_over = threading.Event()
        self.turn = 0
        self._progress = time.monotonic()
        self._producer: TransactionalProducer | None = None
        self.unsettled: list[str] = []
        self.errors: list[str] = []

    @property
    def is_hung(self) -> bool:
        """Whether a call of librdkafka has taken much longer than it may take."""
        producer = self._producer
        latest = max(self._progress, producer.progress if producer else 0.0)
        return time.monotonic() - latest > HUNG_SECONDS

    def turn_over(self) -> int:
        """Give the present thread up, and return the turn of the next thread."""
        self.turn, self._progress = self.turn + 1, time.monotonic()
        return self.turn

    def run(self, turn: int) -> None:
        """Begin new lives until `is_over` is set."""
        while not self.is_over.is_set() and turn == self.turn:
            producer = TransactionalProducer(
                self._servers, self._history, self._clock, f"{self._id}.{next(self._lives)}",
                TIMEOUT_MS, **{"linger.ms": 1},
            )  # fmt: skip
            self._producer = producer
            try:
                producer.init()
                self._live(producer, turn)
            except MustClose:
                self._count("a transformer had to be closed")
            self.errors += [f"{producer.name}: {name}" for name in set(producer.errors)]

    def _live(self, producer: TransactionalProducer, turn: int) -> None:
        inputs = Inputs(self._servers, self._plan.group)
        try:
            while not self.is_over.is_set() and turn == self.turn:
                self._progress = time.monotonic()
                messages = inputs.take(self._rng.randint(1, TAKEN_MAX))
                if not messages:
                    continue
                ending = "commit" if self._clock.is_over else self._rng.choice(ENDINGS)
                if not self._transact(producer, inputs, messages, ending):
                    if self._rng.random() < 0.3:
                        inputs.close()
                        inputs = Inputs(self._servers, self._plan.group)
                    else:
                        inputs.again(messages)
                if ending == "abandon":
                    return
        except KafkaException as error:
            self._count("a consumer of a transformer failed")
            self.errors.append(f"{producer.name}: {error}")
        finally:
            inputs.close()

    def _transact(
        self, producer: TransactionalProducer, inputs: Inputs, messages: list[Message], ending: str
    ) -> bool:
        """Do one transaction; return whether it was committed."""
        try:
            producer.begin()
            self._write(producer, messages)
            if ending == "abort" and self._rng.random() < 0.5:
                producer.abort()
                return False
            nexts = {one.partition(): one.offset() + 1 for one in messages}
            positions = [TopicPartition(INPUTS, *pair) for pair in sorted(nexts.items())]
            producer.send_offsets(positions, inputs.member)
            if ending == "abandon":
                producer.abandon()
                self._count("a transformer was abandoned in its transaction")
            elif ending == "abort":
                producer.abort()
                self._count("a transformer aborted")
            else:
                producer.commit()
                self._count("a transformer committed")
                return True
        except MustAbort:
            producer.abort()
            self._count("a transaction of a transformer failed, and was aborted")
        return False

    def _write(self, producer: TransactionalProducer, messages: list[Message]) -> None:
        taken: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for one in messages:
            value = (one.value() or b"").decode(errors="replace")
            taken[one.partition()].append((one.offset(), value))
        for partition, records in taken.items():
            self._history.add(
                producer.name, "take", "ok", partition, producer.transaction, records=records,
                topic=INPUTS,
            )  # fmt: skip
        for partition, records in taken.items():
            for offset, value in records:
                made = output_of(producer.next_record(), Source(partition, offset, value))
                producer.write(OUTPUTS, self._rng.randrange(self._plan.topics[OUTPUTS]), made)
