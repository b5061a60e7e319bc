"""Write transactions that end in every way: committed, aborted, abandoned, fenced, timed out."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from functools import partial

from jepsen.history import History
from jepsen.plan import INPUTS, LEDGER, Plan
from jepsen.transactions.producers import Clock, MustAbort, MustClose, TransactionalProducer

RECORDS_MAX = 12
FLUSH_SECONDS = 2.0
LATE_SECONDS, LONG_MS = 3.0, 10_000
ENDINGS = ["commit"] * 24 + ["abort"] * 6 + ["abandon", "replace", "delay"]
Count = Callable[[str], None]


class Writer:
    """All lives of one transactional id.

    Threads: one thread calls `run`.

    Attributes:
        has_begun: is set when the first transaction has ended.
        unsettled: what did not end as it should.
        errors: the names of the errors of librdkafka.
    """

    def __init__(
        self, servers: str, history: History, clock: Clock, plan: Plan, number: int, count: Count
    ) -> None:
        self._servers, self._history, self._clock, self._count = servers, history, clock, count
        self._id, self._plan = f"w{number}", plan
        self._timeout_ms = plan.timeouts_ms[number % len(plan.timeouts_ms)]
        self._rng = random.Random(f"{plan.seed} {self._id}")
        self._left: TransactionalProducer | None = None
        self._topics = {name: plan.topics[name] for name in (INPUTS, LEDGER)}
        self.has_begun = threading.Event()
        self.unsettled: list[str] = []
        self.errors: list[str] = []

    def run(self) -> None:
        """Begin new lives until the run ends.

        The last life only ends the transaction of the life before, or the coordinator does it soon.
        """
        last = -1
        for life in itertools.count():
            producer = TransactionalProducer(
                self._servers, self._history, self._clock, f"{self._id}.{life}", self._timeout_ms,
                **{"linger.ms": self._rng.choice([0, 5, 50])},
            )  # fmt: skip
            try:
                self._live(producer)
            except MustClose as error:
                self._count("a producer had to be closed")
                if self._clock.is_late:
                    self.unsettled.append(f"{producer.name}: {error}")
            self.errors += [f"{producer.name}: {name}" for name in set(producer.errors)]
            if self._clock.is_over and (life == last or self._timeout_ms < LONG_MS):
                return
            last = life + 1 if self._clock.is_over else -1

    def _live(self, producer: TransactionalProducer) -> None:
        producer.init()
        self._or_abort(producer, self._strike_back)
        while not self._clock.is_over:
            ending = self._rng.choice(ENDINGS)
            self._or_abort(producer, partial(self._transact, ending=ending))
            self.has_begun.set()
            if ending in ("abandon", "replace"):
                return
            self._clock.wait(self._rng.random() * 2 / max(1.0, self._plan.rate / 10))

    def _or_abort(
        self, producer: TransactionalProducer, act: Callable[[TransactionalProducer], None]
    ) -> None:
        """Let a producer act, and abort the transaction if librdkafka demands it."""
        try:
            act(producer)
        except MustAbort:
            producer.abort()
            self._count("a transaction failed, and was aborted")

    def _transact(self, producer: TransactionalProducer, ending: str) -> None:
        producer.begin()
        for _ in range(self._rng.randint(1, RECORDS_MAX)):
            self._write(producer)
        if self._rng.random() < 0.5:
            producer.flush(FLUSH_SECONDS)
        if ending == "commit":
            producer.commit()
            self._count("a transaction was committed")
        elif ending == "abort":
            producer.abort()
            self._count("a transaction was aborted")
        elif ending == "abandon":
            producer.abandon()
            self._count("a producer was abandoned in its transaction")
            self._wait_sometimes()
        elif ending == "replace":
            self._left = producer
            self._count("a producer was replaced in its transaction")
        else:
            self._delay(producer)

    def _write(self, producer: TransactionalProducer) -> None:
        topic = self._rng.choice(list(self._topics))
        partition = self._rng.randrange(self._topics[topic])
        producer.write(topic, partition, producer.next_record())

    def _wait_sometimes(self) -> None:
        """Let the coordinator end a transaction whose timeout is short, or be faster than it."""
        if self._timeout_ms < LONG_MS and self._rng.random() < 0.5:
            self._clock.wait(self._timeout_ms / 1000 + LATE_SECONDS)

    def _delay(self, producer: TransactionalProducer) -> None:
        """Commit when the timeout is over, or nearly over."""
        if self._timeout_ms < LONG_MS:
            self._clock.wait(self._timeout_ms / 1000 + self._rng.uniform(-1, LATE_SECONDS))
        try:
            producer.commit()
        except MustClose:
            self._count("a transaction whose commit came late had ended")
            raise
        self._count("a transaction was committed")

    def _strike_back(self, present: TransactionalProducer) -> None:
        """Let the producer that was replaced go on: all that it does must be refused."""
        producer, self._left = self._left, None
        if producer is None:
            return
        if self._rng.random() < 0.7:  # the fenced producer must not end this transaction
            present.begin()
            self._write(present)
            present.flush(FLUSH_SECONDS)
        try:
            if self._rng.random() < 0.5:
                self._write(producer)
                producer.flush(self._rng.random())
            producer.commit()
            self._count("a fenced producer committed")
        except (MustAbort, MustClose):
            self._count("a fenced producer was refused")
        self.errors += [f"{producer.name} (fenced): {name}" for name in set(producer.errors)]
        if present.transaction:
            present.commit()
            self._count("a transaction was committed")
