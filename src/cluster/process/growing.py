"""Bring the topics of a single broker into a cluster; each partition has one replica.

    read the topics of the store -> the broker registers -> write the topics -> their replicas lead

The topics keep their ids, so the replicas on the disks belong to them. Each leader epoch of the
cluster is later than all epochs in the logs (P11). The broker is the only member of each ISR, and
is admitted at its present registration. So this broker leads without an election that may lose
records (P5, P13).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from broker.catalog.topic_store import TopicStore
from broker.catalog.topic_znodes import TopicRecord
from broker.catalog.topic_znodes import encode_config as encode_log_config
from broker.catalog.topics import TopicCatalog
from broker.coordination.errors import NoNodeError
from broker.coordination.verbs import Create, Operation, Session, Set
from cluster import znodes
from cluster.control.topic_rules import MIN_ISR
from cluster.errors import ClusterGrowthError
from cluster.registration import NO_BROKER
from cluster.run.metadata_cache import MetadataCache
from cluster.state import LEADER_EPOCH_MAX, State, encode_state
from cluster.wire.topic_ids import text_of
from logstore import LogStore, LogStoreError

LOG = logging.getLogger("cluster")
LED_SECONDS = 60.0
SHOWN_MAX = 10
PARTITIONS_MAX = 1_000  # the limit of one topic: one request to the store writes all of them


class GrownTopic(NamedTuple):
    """A topic that will join the cluster.

    Attributes:
        epochs: for each partition, the latest leader epoch in its log.
    """

    record: TopicRecord
    epochs: Mapping[int, int]


def topics_of(store: LogStore) -> list[GrownTopic]:
    """Read the topics of a store that no broker serves.

    Raises:
        ClusterGrowthError: a topic cannot join a cluster, so no topic joins.
        LogStoreError: the topics cannot be read.
    """
    catalog = TopicCatalog(store)
    try:
        catalog.start()
        found = catalog.current().by_name.keys()
        recorded = TopicStore.of(store)
        try:
            records = dict(recorded.records)
        finally:
            recorded.release()
    finally:
        catalog.close()
    faults = [f"{name} is not in the list of topics" for name in sorted(found - records.keys())]
    topics = []
    for name, record in sorted(records.items()):
        fault = _fault_of(record)
        if fault:
            faults.append(f"{name} {fault}")
        else:
            topics.append(GrownTopic(record, _epochs_of(store, record)))
    if faults:
        shown = "; ".join(faults[:SHOWN_MAX])
        raise ClusterGrowthError(reason=f"{len(faults)} topics cannot join a cluster: {shown}")
    return topics


def _fault_of(record: TopicRecord) -> str:
    """Return the reason why a topic cannot join a cluster; "" means that the topic can join."""
    if any(one != record.id for one in record.ids.values()):
        return "has partitions of different topic ids"
    if len(record.ids) > PARTITIONS_MAX:
        return f"has {len(record.ids)} partitions, more than {PARTITIONS_MAX}"
    return ""


def _epochs_of(store: LogStore, record: TopicRecord) -> dict[int, int]:
    """Read the latest leader epoch of each partition.

    Raises:
        ClusterGrowthError: a partition cannot be read now, or no later leader epoch is left.
    """
    epochs = {}
    for partition in record.ids:
        try:
            epochs[partition] = store.log(record.name, partition).leader_epoch
        except LogStoreError as error:
            reason = f"{record.name}-{partition} cannot be read: {error}"
            raise ClusterGrowthError(reason=reason) from error
        if epochs[partition] >= LEADER_EPOCH_MAX:
            reason = f"{record.name}-{partition} leaves no leader epoch: {epochs[partition]}"
            raise ClusterGrowthError(reason=reason)
    return epochs


def check_alone(session: Session, broker: int) -> None:
    """Check that no other broker is registered: only the first broker of a cluster can grow.

    Raises:
        ClusterGrowthError: another broker is registered. Nothing was written.
    """
    try:
        others = sorted(set(session.children(znodes.BROKERS)) - {str(broker)})
    except NoNodeError:
        return
    if others:
        shown = ", ".join(others[:SHOWN_MAX])
        reason = f"the cluster already has these brokers: {shown}. Only the first broker of a "
        reason += "cluster can bring its topics: check the path of the cluster in ZooKeeper"
        raise ClusterGrowthError(reason=reason)


def check_names(session: Session, topics: Iterable[GrownTopic]) -> None:
    """Check that the cluster has no other topic with the name of one of `topics`.

    Raises:
        ClusterGrowthError: the cluster has a topic with the same name. The caller must check this
            before the broker obeys the controller: an unchecked broker could delete its own replica
            as the replica of an older topic.
    """
    for topic in topics:
        _is_there(session, topic.record)


def adopt(session: Session, broker: int, topics: Iterable[GrownTopic]) -> list[str]:
    """Write topics into the coordination store; return the names of the new topics.

    Raises:
        ClusterGrowthError: the cluster has another topic with the name of one of `topics`; see
            `check_names`.
        CoordinationError: the coordination store refused a request; the caller may call again.
    """
    admitted = session.get(znodes.broker_path(broker)).mzxid
    controller_epoch = znodes.parse_controller_epoch(session.get(znodes.CONTROLLER_EPOCH).data)
    made = []
    for topic in topics:
        if not _is_there(session, topic.record):
            session.multi(_operations(session, topic, broker, admitted, controller_epoch))
            made.append(topic.record.name)
    return made


def _is_there(session: Session, record: TopicRecord) -> bool:
    path = znodes.topic_path(record.name)
    try:
        znode = session.get(path)
    except NoNodeError:
        return False
    known = znodes.parse_topic(znode.data, path, znode.czxid).identity.topic_id
    if known != text_of(record.id):
        reason = f"the cluster has another topic {record.name}, with the id {known}"
        raise ClusterGrowthError(reason=reason)
    return True


def _operations(
    session: Session, topic: GrownTopic, broker: int, admitted: int, controller_epoch: int
) -> Iterator[Operation]:
    """Create a topic, its settings, and the state of each partition."""
    record, path = topic.record, znodes.topic_path(topic.record.name)
    assignment = dict.fromkeys(record.ids, (broker,))
    yield Create(path, znodes.encode_topic(text_of(record.id), assignment))
    settings = znodes.config_path(record.name)
    texts = znodes.parse_config(encode_log_config(record.config), settings)
    data = znodes.encode_config({MIN_ISR: "1", **texts})
    try:
        yield Set(settings, data, session.get(settings).version)
    except NoNodeError:
        yield Create(settings, data)
    yield Create(f"{path}/partitions")
    for partition, epoch in topic.epochs.items():
        state = State(
            NO_BROKER, max(epoch, 0), controller_epoch, {broker: admitted}, {}, frozenset(), 0,
            (broker,), None, 1,
        )  # fmt: skip
        yield Create(f"{path}/partitions/{partition}")
        yield Create(znodes.state_path(record.name, partition), encode_state(state))


def wait_until_led(
    metadata: MetadataCache, topics: Iterable[GrownTopic], seconds: float = LED_SECONDS
) -> None:
    """Wait until the broker knows a leader of each partition.

    Raises:
        ClusterGrowthError: a partition did not get a leader in time.
    """
    places = [(one.record.name, number) for one in topics for number in one.record.ids]
    changed = threading.Event()
    end = metadata.on_change(lambda _: changed.set())
    try:
        while True:
            changed.clear()
            left = [one for one in places if not _is_led(metadata, *one)]
            if not left:
                return
            if not changed.wait(seconds):
                name, number = left[0]
                reason = f"{len(left)} partitions have no leader, among them {name}-{number}"
                raise ClusterGrowthError(reason=reason)
    finally:
        end()


def _is_led(metadata: MetadataCache, name: str, number: int) -> bool:
    topic = metadata.view.topics.get(name)
    found = None if topic is None else topic.partitions.get(number)
    return found is not None and found.leader != NO_BROKER
