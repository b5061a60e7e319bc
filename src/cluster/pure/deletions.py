"""Delete the replicas of deleted topics: ask each broker until it has answered.

A deleted partition has no state in the store. So the controller writes a `Deletion` to the store
before it sends the first request. The `Deletion` names the brokers that have not answered. The next
controller reads the `Deletion` in the store (P19, P23).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.pure.control_exchange import Deletion, ForgetDeletion, KeepDeletion, SendRequest
from cluster.registration import Registration
from cluster.requests import StopAnswer, StopReplica


def requests_of(deletion: Deletion, seen: Mapping[int, Registration]) -> list[SendRequest]:
    """Ask the live brokers that have not answered."""
    topic, partition, version, brokers = deletion
    return [
        SendRequest(m, StopReplica(topic, partition, seen[m].broker_epoch, version))
        for m in sorted(brokers)
        if m in seen
    ]


class Deletions:
    """The replicas of deleted topics that a broker may still have.

    Attributes:
        left: the deletions that are not complete; the key is the topic id and the partition.
    """

    def __init__(self) -> None:
        self.left: dict[tuple[str, int], Deletion] = {}

    def begin(self, deletion: Deletion) -> list[Any]:
        """Write a deletion durably; `requests` returns its requests later."""
        self.left[deletion.topic.topic_id, deletion.partition] = deletion
        return [KeepDeletion(deletion)]

    def read(self, deletions: tuple[Deletion, ...]) -> None:
        """Take over the deletions of an earlier controller."""
        for one in deletions:
            self.left.setdefault((one.topic.topic_id, one.partition), one)

    def requests(self, seen: Mapping[int, Registration]) -> list[SendRequest]:
        """Ask the live brokers that have not answered."""
        return [request for one in self.left.values() for request in requests_of(one, seen)]

    def on_answer(self, answer: StopAnswer) -> list[Any]:
        """Remember that a broker has no replica left. Forget the deletion after the last answer."""
        key = answer.topic.topic_id, answer.partition
        deletion = self.left.get(key)
        if deletion is None or answer.version < deletion.version:
            return []
        deletion = deletion._replace(brokers=deletion.brokers - {answer.broker})
        if deletion.brokers:
            self.left[key] = deletion
            return []
        del self.left[key]
        return [ForgetDeletion(answer.topic, answer.partition)]
