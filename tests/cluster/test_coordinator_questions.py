"""Test the line of questions for another coordinator: one request has all that wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from broker.catalog.leadership import NO_LEADER
from broker.coordinator.errors import CoordinatorError
from broker.transactions.steps import Asker
from broker.transactions.transaction import Place
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import AddPartitionsToTxnResponse
from cluster.errors import PeerError
from cluster.serve import coordinator_questions
from cluster.serve.coordinator_questions import QUESTIONS_MAX, ClusterVerifier

SECONDS = 20.0
OWN, OTHER = 1, 2
ASKER = Asker(7, 3)
PLACES: list[Place] = [("t", 0), ("t", 1), ("u", 0)]


class Facts:
    """Knows who leads `__transaction_state`, and coordinates all transactional ids."""

    broker_id = OWN
    leader = OTHER
    asked: list[Any]

    def __init__(self) -> None:
        self.asked = []

    def facts_of(self, name: str, number: int) -> Any:
        class Found:
            leader = type("Leader", (), {"id": self.leader})

        return Found

    def partition_of(self, name: str) -> int:
        return 0

    def faults_of_batches(self, *question: Any, is_adding: bool) -> str:
        self.asked.append((*question, is_adding))
        return "own answer"


class Coordinator:
    """The other broker: answers each request with a function, when the gate is open."""

    def __init__(self, answer: Callable[[Any], Any] | None = None) -> None:
        self.requests: list[list[Any]] = []
        self.gate, self.is_asked = threading.Event(), threading.Event()
        self.gate.set()
        self._answer = answer or self.agreed

    def ask(self, broker: int, key: int, version: int, message: Any, seconds: float) -> Any:
        assert (broker, key, version) == (OTHER, 24, 5)
        self.requests.append(list(message.transactions))
        self.is_asked.set()
        assert self.gate.wait(SECONDS)
        return self._answer(message)

    @staticmethod
    def agreed(message: Any) -> Any:
        """Answer NONE for each partition."""
        Response = AddPartitionsToTxnResponse  # noqa: N806 - a class
        Row = Response.AddPartitionsToTxnPartitionResult  # noqa: N806 - a class
        Topic = Response.AddPartitionsToTxnTopicResult  # noqa: N806 - a class
        return Response(
            results_by_transaction=[
                Response.AddPartitionsToTxnResult(
                    one.transactional_id,
                    [Topic(t.name, [Row(p, 0) for p in t.partitions]) for t in one.topics],
                )
                for one in message.transactions
            ]
        )


def verifier_of(coordinator: Coordinator, facts: Facts | None = None) -> ClusterVerifier:
    known: Any = facts or Facts()
    peers: Any = coordinator
    return ClusterVerifier(known, known, peers)


@pytest.mark.parametrize("is_adding", [True, False])
def test_a_question_names_its_partitions(is_adding: bool) -> None:
    """By topic; the answer is read by partition."""
    coordinator = Coordinator()
    codes = verifier_of(coordinator).faults_of_batches("x", ASKER, PLACES, is_adding=is_adding)
    assert codes == dict.fromkeys(PLACES, ErrorCode.NONE)
    ((one,),) = coordinator.requests
    assert (one.transactional_id, one.producer_id, one.producer_epoch) == ("x", 7, 3)
    assert one.verify_only is not is_adding
    assert [(t.name, list(t.partitions)) for t in one.topics] == [("t", [0, 1]), ("u", [0])]


def test_questions_wait_in_line_for_one_request() -> None:
    """While a request is on its way, all others gather; each transactional id comes once."""
    coordinator = Coordinator()
    verifier = verifier_of(coordinator)
    coordinator.gate.clear()
    found: list[Any] = []

    def ask(name: str) -> None:
        found.append(verifier.faults_of_batches(name, ASKER, PLACES[:1], is_adding=True))

    first = threading.Thread(target=ask, args=("first",))
    first.start()
    assert coordinator.is_asked.wait(SECONDS)
    names = [f"n{number % 40}" for number in range(60)]
    others = [threading.Thread(target=ask, args=(name,)) for name in names]
    for one in others:
        one.start()
    (line,) = verifier._lines.values()
    while len(line._waiting) < len(names):
        threading.Event().wait(0.001)
    coordinator.gate.set()
    for one in (first, *others):
        one.join(SECONDS)
    assert found == [{PLACES[0]: ErrorCode.NONE}] * 61
    sent = [[one.transactional_id for one in request] for request in coordinator.requests]
    assert [len(names) for names in sent] == [1, 40, 20]
    assert all(len(set(names)) == len(names) for names in sent)


def test_a_request_has_a_largest_number_of_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others come in the next request."""
    assert QUESTIONS_MAX == 200
    monkeypatch.setattr(coordinator_questions, "QUESTIONS_MAX", 3)
    coordinator = Coordinator()
    coordinator.gate.clear()
    verifier = verifier_of(coordinator)
    threads = [
        threading.Thread(target=verifier.faults_of_batches, args=(f"n{number}", ASKER, PLACES))
        for number in range(8)
    ]
    for one in threads:
        one.start()
    assert coordinator.is_asked.wait(SECONDS)
    (line,) = verifier._lines.values()
    while len(line._waiting) + len(coordinator.requests[0]) < 8:
        threading.Event().wait(0.001)
    coordinator.gate.set()
    for one in threads:
        one.join(SECONDS)
    assert sum(map(len, coordinator.requests)) == 8
    assert max(map(len, coordinator.requests)) == 3


def failed(error: Exception) -> Callable[[Any], Any]:
    def answer(message: Any) -> Any:
        raise error

    return answer


def silent(message: Any) -> Any:
    return AddPartitionsToTxnResponse(error_code=31)


@pytest.mark.parametrize("answer", [failed(PeerError(address="b", reason="it is away")), silent])
def test_no_answer_is_an_error_of_the_network(answer: Callable[[Any], Any]) -> None:
    """The client sends its batch again."""
    codes = verifier_of(Coordinator(answer)).faults_of_batches("x", ASKER, PLACES)
    assert codes == dict.fromkeys(PLACES, ErrorCode.NETWORK_EXCEPTION)


def test_an_unexpected_error_does_not_stop_the_line() -> None:
    """The thread that sent gets the error, and the next question is asked."""
    coordinator = Coordinator(failed(RuntimeError("no")))
    verifier = verifier_of(coordinator)
    with pytest.raises(RuntimeError):
        verifier.faults_of_batches("x", ASKER, PLACES)
    coordinator._answer = coordinator.agreed
    assert not any(verifier.faults_of_batches("x", ASKER, PLACES).values())


def test_a_question_waits_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the request before it hangs, the client is answered, and the question is not sent."""
    coordinator = Coordinator()
    coordinator.gate.clear()
    verifier = verifier_of(coordinator)
    first = threading.Thread(target=verifier.faults_of_batches, args=("first", ASKER, PLACES))
    first.start()
    assert coordinator.is_asked.wait(SECONDS)
    monkeypatch.setattr(coordinator_questions, "LINE_SECONDS", 0.01)
    with pytest.raises(CoordinatorError) as caught:
        verifier.faults_of_batches("second", ASKER, PLACES)
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    coordinator.gate.set()
    first.join(SECONDS)
    assert len(coordinator.requests) == 1


def test_the_leader_of_the_transactional_id_is_asked() -> None:
    """This broker asks itself without a request; without a leader, nobody is asked."""
    coordinator, facts = Coordinator(), Facts()
    verifier = verifier_of(coordinator, facts)
    facts.leader = OWN
    found: Any = verifier.faults_of_batches("x", ASKER, PLACES, is_adding=True)
    assert found == "own answer"
    assert facts.asked == [("x", ASKER, PLACES, True)]
    facts.leader = NO_LEADER
    with pytest.raises(CoordinatorError):
        verifier.faults_of_batches("x", ASKER, PLACES)
    assert not coordinator.requests
