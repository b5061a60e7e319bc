"""Ask several brokers for metadata, and combine their answers into one map of the cluster.

    the first server that answers -> the brokers that it lists -> answers of more than half of them

One broker is not enough. A broker that is cut off from the controller does not know that another
broker leads now. A broker that has just started may know no topic. For each partition, the answer
with the largest leader epoch is used. A topic counts as missing if two conditions hold: no answer
has the topic, and enough of the brokers that answered know a controller.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Any, NamedTuple

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster.errors import ClusterError, PeerError
from cluster.run.peer_connection import PeerConnection
from cluster.tools.asking import CLIENT, METADATA, parse_servers
from logstore.names import TopicPartition

ANSWER_SECONDS = 10.0
# This many brokers are enough in a large cluster. The brokers are drawn at random.
ASKED_MAX = 5
MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

Server = tuple[str, int]


class NotKnownYetError(ClusterError):
    """Report that the leader or the offsets of a partition are not known now."""

    reason: str


class TopicRow(NamedTuple):
    """A topic that exists.

    Attributes:
        partitions: for each partition, the row of the answer with the largest leader epoch.
    """

    topic_id: bytes
    is_internal: bool
    partitions: Mapping[int, Any]


class ClusterMap(NamedTuple):
    """What several brokers say about the cluster.

    Attributes:
        brokers: the rows of the brokers; the key is the broker id.
        topics: the topics that exist.
        codes: the errors of topics that some broker knows but cannot describe.
        is_certain: whether a topic that is in neither `topics` nor `codes` is certainly missing.
    """

    brokers: Mapping[int, Any]
    topics: Mapping[str, TopicRow]
    codes: Mapping[str, ErrorCode]
    is_certain: bool

    def row_of(self, key: TopicPartition) -> Any:
        """Return the row of a partition; None if no broker has the partition."""
        topic = self.topics.get(key.topic)
        return None if topic is None else topic.partitions.get(key.partition)


def cluster_map(servers: str, topics: Sequence[str] | None = None) -> ClusterMap:
    """Ask for all brokers, and for the partitions of some topics; None means all topics.

    Raises:
        PeerError: no server answers; the error is from the last server.
        NotKnownYetError: too few brokers answer.
    """
    named = None
    if topics is not None:
        named = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    asked = m.MetadataRequest(topics=named, allow_auto_topic_creation=False)
    answers, needed = _answers(parse_servers(servers), asked)
    return combined(answers, needed)


def _answers(servers: Sequence[Server], asked: Any) -> tuple[list[Any], int]:
    """Return the answers of enough brokers, and how many are enough.

    An address that no broker advertises may belong to any broker. An answer from an address that no
    broker advertises is used only to find the brokers.
    """
    found = _several(servers, asked, 1)
    answers, done = dict(found), set(found)
    while True:
        listed = {(one.host, one.port) for some in answers.values() for one in some.brokers}
        needed = needed_of(max(len(some.brokers) for some in answers.values()))
        own = [answers[one] for one in answers if one in listed]
        left = sorted(listed - done)
        if len(own) >= needed:
            return own, needed
        if not left:
            reason = f"only {len(own)} of {len(listed)} brokers answer, which may be cut off"
            raise NotKnownYetError(reason=reason)
        done.update(left)
        with suppress(PeerError, NotKnownYetError):  # the next round finds the failure
            answers |= _several(random.sample(left, len(left)), asked, needed - len(own))


def needed_of(brokers: int) -> int:
    """Return how many brokers must answer: more than half of them, but at most `ASKED_MAX`."""
    return min(brokers // 2 + 1, ASKED_MAX)


def _several(servers: Sequence[Server], asked: Any, count: int) -> dict[Server, Any]:
    """Ask servers at the same time; return the first `count` answers of brokers, or fewer.

    So a server that hangs delays nothing if enough other servers answer.

    Raises:
        PeerError: no server answers.
        NotKnownYetError: servers answer, but none of them knows the brokers of the cluster.
    """
    connections = {
        server: PeerConnection(lambda server=server: server, CLIENT)  # type: ignore[misc]
        for server in servers
    }
    answers: dict[Server, Any] = {}
    failure: BaseException = NotKnownYetError(reason="there is no server")
    pool = ThreadPoolExecutor(ASKED_MAX)
    try:
        questions = {pool.submit(ask, one, asked): server for server, one in connections.items()}
        for question in as_completed(questions):
            server, error = questions[question], question.exception()
            if error is not None:
                failure = error
                if not isinstance(error, PeerError):
                    raise error
            elif question.result().brokers:
                answers[server] = question.result()
            else:
                failure = NotKnownYetError(reason=f"{server[0]}:{server[1]} knows no brokers yet")
            if len(answers) == count:
                break
    finally:
        for one in connections.values():
            one.close()  # this ends the questions that still wait
        pool.shutdown(wait=False, cancel_futures=True)
    if not answers:
        raise failure
    return answers


def ask(connection: PeerConnection, asked: Any) -> Any:
    """Send a Metadata request. Raises PeerError."""
    return connection.ask(*METADATA, asked, ANSWER_SECONDS)


def combined(answers: Sequence[Any], needed: int) -> ClusterMap:
    """Combine answers.

    Args:
        needed: how many brokers that know a controller must answer, before a topic counts as
            missing.
    """
    listed = [one for some in answers for one in some.brokers]
    addresses = Counter((one.node_id, one.host, one.port) for one in listed)
    rows = {(one.node_id, one.host, one.port): one for one in listed}
    # If a broker has moved, fewer answers have the old address.
    brokers = {place[0]: rows[place] for place, _ in reversed(addresses.most_common())}
    by_name: dict[str, list[Any]] = {}
    for answer in answers:
        for topic in answer.topics:
            by_name.setdefault(topic.name, []).append(topic)
    topics: dict[str, TopicRow] = {}
    codes: dict[str, ErrorCode] = {}
    for name, some in by_name.items():
        found = _topic([one for one in some if not one.error_code])
        faults = [code for one in some if (code := ErrorCode(one.error_code)) not in MISSING]
        if isinstance(found, TopicRow):
            topics[name] = found
        elif faults:
            codes[name] = next(filter(None, faults), ErrorCode.LEADER_NOT_AVAILABLE)
    knowing = sum(answer.controller_id >= 0 for answer in answers)
    return ClusterMap(brokers, topics, codes, knowing >= needed)


def _topic(rows: Sequence[Any]) -> TopicRow | None:
    """Combine the rows of a topic; None if there are none, or if the brokers do not agree.

    If a topic was deleted and created again, some brokers may still have the old topic id.
    """
    ids = Counter(bytes(one.topic_id) for one in rows).most_common(2)
    if not ids or (len(ids) == 2 and ids[0][1] == ids[1][1]):
        return None
    partitions: dict[int, Any] = {}
    same = [one for one in rows if bytes(one.topic_id) == ids[0][0]]
    for topic in same:
        for row in topic.partitions:
            known = partitions.get(row.partition_index)
            if known is None or _age(row) > _age(known):
                partitions[row.partition_index] = row
    return TopicRow(ids[0][0], any(one.is_internal for one in same), partitions)


def _age(row: Any) -> tuple[int, bool]:
    return row.leader_epoch, row.leader_id >= 0


__all__ = ["ClusterMap", "NotKnownYetError", "TopicRow", "cluster_map", "combined", "needed_of"]
