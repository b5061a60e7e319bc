"""Ask the coordinators of transactional ids about the batches of clients (KIP-890).

    this broker is the coordinator     -> its transaction coordinator
    another broker is the coordinator  -> the queue for that broker -> one request per queue

Each client that begins a transaction needs an answer before its first batch in a partition is
appended, and the coordinator first replicates the change. If questions arrive while a request is
running, they wait in a queue (`_Line`), and the next request has all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from broker.catalog.leadership import NO_LEADER
from broker.coordinator.errors import CoordinatorError
from broker.transaction_coordinator.state_topic import TRANSACTION_STATE
from broker.transaction_coordinator.transaction_coordinator import TransactionCoordinator
from broker.transactions.steps import Asker
from broker.transactions.transaction import Place
from broker.wire.byte_cursor import WireError
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import AddPartitionsToTxnRequest
from cluster.errors import PeerError
from cluster.serve.cluster_leadership import ClusterLeadership
from cluster.serve.coordinator_peers import Peers, code_of

ASK, ASK_VERSION = 24, 5
ASK_SECONDS = 6.0  # this is longer than the coordinator waits for its replicas
LINE_SECONDS = 12.0  # how long a question waits, including its own request
QUESTIONS_MAX = 200  # the most questions in one request
NO_ANSWER = "the coordinator of the transactional id does not answer"

Codes = dict[Place, ErrorCode]


class _Question:
    """One question. The lock of its `_Line` guards the answer, `codes`."""

    def __init__(
        self, name: str, asker: Asker, places: Sequence[Place], *, is_adding: bool
    ) -> None:
        self.name, self.asker, self.places = name, asker, places
        self.is_adding = is_adding
        self.codes: Codes | None = None

    def encoded(self) -> Any:
        """Encode this question as a part of a request."""
        asked = AddPartitionsToTxnRequest
        by_topic: dict[str, list[int]] = {}
        for topic, partition in self.places:
            by_topic.setdefault(topic, []).append(partition)
        topics = [asked.AddPartitionsToTxnTopic(*one) for one in by_topic.items()]
        return asked.AddPartitionsToTxnTransaction(
            self.name, *self.asker, not self.is_adding, topics
        )

    def answer(self, found: Mapping[Place, ErrorCode]) -> None:
        """Store the codes of an answer. A place without a code gets NETWORK_EXCEPTION."""
        missing = ErrorCode.NETWORK_EXCEPTION
        self.codes = {place: found.get(place, missing) for place in self.places}


class _Line:
    """The queue of questions for one broker; one waiting thread sends the questions of all threads.

    Threads: any thread may call `ask`. The lock of `_changed` guards the other fields.
    """

    def __init__(self, peers: Peers, broker: int) -> None:
        self._peers, self._broker = peers, broker
        self._changed = threading.Condition()
        self._waiting: list[_Question] = []
        self._is_sending = False

    def ask(self, question: _Question) -> Codes:
        """Wait for the answer to a question.

        Raises:
            CoordinatorError: there is no answer in time.
        """
        deadline = time.monotonic() + LINE_SECONDS
        with self._changed:
            self._waiting.append(question)
        while True:
            with self._changed:
                while question.codes is None and self._is_sending:
                    if not self._changed.wait(deadline - time.monotonic()):
                        self._leave(question)
                        raise CoordinatorError(ErrorCode.NETWORK_EXCEPTION, NO_ANSWER)
                if question.codes is not None:
                    return question.codes
                self._is_sending = True
                asked = self._taken()
            found: list[Codes] = [{} for _ in asked]
            try:
                found = self._send(asked)
            finally:
                with self._changed:
                    for one, codes in zip(asked, found, strict=True):
                        one.answer(codes)
                    self._is_sending = False
                    self._changed.notify_all()

    def _leave(self, question: _Question) -> None:
        if question in self._waiting:
            self._waiting.remove(question)

    def _taken(self) -> list[_Question]:
        """Take the oldest questions; a request has each transactional id only once."""
        taken: dict[str, _Question] = {}
        for one in self._waiting:
            if len(taken) < QUESTIONS_MAX:
                taken.setdefault(one.name, one)
        asked = list(taken.values())
        self._waiting = [one for one in self._waiting if one not in asked]
        return asked

    def _send(self, asked: Sequence[_Question]) -> list[Codes]:
        """Send questions; return the codes for each question, or no codes without an answer."""
        message = AddPartitionsToTxnRequest(transactions=[one.encoded() for one in asked])
        try:
            answer = self._peers.ask(self._broker, ASK, ASK_VERSION, message, ASK_SECONDS)
        except (PeerError, WireError):
            return [{} for _ in asked]
        results = {str(one.transactional_id): one for one in answer.results_by_transaction}
        return [_codes(results.get(one.name)) for one in asked]


def _codes(result: Any) -> Codes:
    if result is None:
        return {}
    return {
        (str(topic.name), one.partition_index): code_of(one.partition_error_code)
        for topic in result.topic_results
        for one in topic.results_by_partition
    }


class ClusterVerifier:
    """Implement `Verifier` for a broker of a cluster."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        leadership: ClusterLeadership,
        peers: Peers,
    ) -> None:
        self._coordinator, self._leadership = coordinator, leadership
        self._peers = peers
        self._lock = threading.Lock()  # guards `_lines`
        self._lines: dict[int, _Line] = {}

    def faults_of_batches(
        self, name: str, asker: Asker, places: Sequence[Place], *, is_adding: bool = False
    ) -> Codes:
        """Ask the broker that leads the partition of the transactional id."""
        number = self._coordinator.partition_of(name)
        leader = self._leadership.facts_of(TRANSACTION_STATE.name, number).leader.id
        if leader == self._leadership.broker_id:
            return self._coordinator.faults_of_batches(name, asker, places, is_adding=is_adding)
        if leader == NO_LEADER:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_ANSWER)
        with self._lock:
            line = self._lines.setdefault(leader, _Line(self._peers, leader))
        return line.ask(_Question(name, asker, places, is_adding=is_adding))
