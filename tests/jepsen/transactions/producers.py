"""One life of a transactional producer, which records what it does, and what becomes of it.

An error of librdkafka says what the application has to do: call again (retriable), abort the
transaction, or close the producer. Every other error counts as the last kind, as librdkafka's
documentation says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from jepsen.clients import COMMON, SECONDS
from jepsen.history import History

API_SECONDS, PAUSE_SECONDS = 10.0, 0.05
SOCKET_MS = 10_000
# If all brokers were away, librdkafka 2.16 otherwise forgets its brokers. Then a call of
# `send_offsets_to_transaction` may wait for ever for a broker that it remembers.
KEEPS_BROKERS = {"metadata.recovery.strategy": "none"}
SETTINGS: dict[str, object] = {
    **COMMON, **KEEPS_BROKERS, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200,
    "debug": "eos", "log_level": 7,
}  # fmt: skip
Answer = TypeVar("Answer")


class MustAbort(Exception):
    """The transaction has to be aborted; the producer can go on."""


class MustClose(Exception):
    """The producer cannot go on."""


class Clock:
    """Says until when clients keep trying. Threads: any thread may call any method.

    Attributes:
        is_over: whether no further transaction begins.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._end = float("inf")

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self._over.is_set()

    @property
    def is_late(self) -> bool:
        """Whether the time to end the last transaction is over, too."""
        return time.monotonic() > self._end

    def finish(self) -> None:
        """Begin no further transaction, and end the open ones in a limited time."""
        self._end = time.monotonic() + SECONDS
        self._over.set()

    def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until the run ends."""
        self._over.wait(seconds)


class TransactionalProducer:
    """One life of a producer with a transactional id.

    Threads: one thread calls the methods.

    Attributes:
        transaction: the present or the last transaction.
        progress: when librdkafka was called last, in monotonic time.
    """

    def __init__(
        self,
        servers: str,
        history: History,
        clock: Clock,
        name: str,
        timeout_ms: int,
        **settings: object,
    ) -> None:
        """Make a producer.

        Args:
            name: the transactional id, and the number of the life.
        """
        self.name, self.transaction = name, ""
        self.errors: list[str] = []
        self.progress = time.monotonic()
        self._id = name.rpartition(".")[0]
        self._history, self._clock = history, clock
        self._number = self._index = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers, **SETTINGS, "transactional.id": self._id,
                "transaction.timeout.ms": timeout_ms,
                "socket.timeout.ms": min(SOCKET_MS, timeout_ms), **settings,
            }
        )  # fmt: skip

    def init(self) -> None:
        """Fence the producer of the life before, and end its transaction.

        Raises:
            MustClose: the producer cannot begin.
        """
        self._told("init", self._id, lambda: self._producer.init_transactions(API_SECONDS))

    def begin(self) -> None:
        """Begin a transaction."""
        self.transaction, self._index = f"{self.name}:{self._number}", 0
        self._number += 1
        self._persist(self._producer.begin_transaction)

    def next_record(self) -> str:
        """Name the next record of the transaction."""
        self._index += 1
        return f"{self.transaction}:{self._index - 1}"

    def write(self, topic: str, partition: int, value: str) -> None:
        """Send a record of the transaction."""

        def told(error: KafkaError | None, message: Any) -> None:
            offset = message.offset() if error is None else -1
            kind = "ok" if error is None else "info"
            offset = -1 if offset is None else offset
            self._history.add(self.name, "write", kind, partition, value, offset, topic=topic)

        self._history.add(self.name, "write", "invoke", partition, value, topic=topic)
        try:
            self._producer.produce(topic, value.encode(), partition=partition, on_delivery=told)
        except BufferError:
            raise MustAbort("the queue is full") from None
        except KafkaException as error:
            self._note(error)
            raise (MustClose if error.args[0].fatal() else MustAbort)(str(error)) from error
        self._serve(lambda: self._producer.poll(0))

    def send_offsets(self, positions: list[TopicPartition], group: Any) -> None:
        """Let the transaction set the offsets of a group."""
        for kind in ("invoke", "ok"):
            if kind == "ok":
                self._persist(
                    lambda: self._producer.send_offsets_to_transaction(
                        positions, group, API_SECONDS
                    )
                )
            for one in positions:
                self._history.add(
                    self.name, "offsets", kind, one.partition, self.transaction, one.offset,
                    topic=one.topic,
                )  # fmt: skip

    def flush(self, seconds: float) -> None:
        """Wait until the records are acknowledged, but not longer than some seconds."""
        self._serve(lambda: self._producer.flush(seconds))

    def commit(self) -> None:
        """Commit the transaction.

        Raises:
            MustAbort, MustClose: what the application has to do.
        """
        self._told(
            "commit", self.transaction, lambda: self._producer.commit_transaction(API_SECONDS)
        )

    def abort(self) -> None:
        """Abort the transaction.

        Raises:
            MustClose: the producer cannot go on.
        """
        try:
            self._told(
                "abort", self.transaction, lambda: self._producer.abort_transaction(API_SECONDS)
            )
        except MustAbort as error:
            raise MustClose(str(error)) from error

    def abandon(self) -> None:
        """Forget everything in the middle of a transaction, as a client that dies does."""
        self._producer.purge()
        with suppress(MustClose):
            self._serve(lambda: self._producer.poll(0))

    def _serve(self, call: Callable[[], Any]) -> None:
        """Call librdkafka, which calls the callbacks; the Python client raises fatal errors there.

        A delivery that is told after such an error, in the same call, ends with a SystemError.
        """
        try:
            call()
        except KafkaException as error:
            self._note(error)
            raise MustClose(str(error)) from error
        except SystemError as error:
            self.errors.append(repr(error.__cause__))
            raise MustClose(str(error)) from error

    def _told(self, what: str, value: str, call: Callable[[], Any]) -> None:
        """Call librdkafka, and write into the history what became of it."""
        self._history.add(self.name, what, "invoke", value=value)
        try:
            self._persist(call)
        except (MustAbort, MustClose):
            self._history.add(self.name, what, "info", value=value)
            raise
        self._history.add(self.name, what, "ok", value=value)

    def _persist(self, call: Callable[[], Answer]) -> Answer:
        """Call librdkafka again for as long as an error is retriable."""
        while True:
            self.progress = time.monotonic()
            try:
                return call()
            except KafkaException as error:
                self._note(error)
                found = error.args[0]
                if found.fatal():
                    raise MustClose(str(error)) from error
                if found.txn_requires_abort():
                    raise MustAbort(str(error)) from error
                if not found.retriable() or self._clock.is_late:
                    raise MustClose(str(error)) from error
                self._serve(lambda: self._producer.poll(PAUSE_SECONDS))
            except SystemError as error:
                raise MustClose(str(error)) from error

    def _note(self, error: KafkaException) -> None:
        self.errors.append(error.args[0].name())
