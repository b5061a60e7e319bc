"""Let log dirs of brokers fail while a client produces, and check every replica afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster import znodes
from cluster.state import State, parse_state
from cluster.tools.asking import Asked, parse_servers
from cluster.view import PartitionView
from logstore import LogStoreError
from support.cluster_brokers import ClusterBrokers, Running
from support.cluster_processes import Client
from support.faulty import FAULTS, FaultyFiles
from support.replica_nodes import wait_until

SECONDS = 60.0
NAME = "orders"
Row = m.AlterReplicaLogDirsRequest
EIO = next(one for one in FAULTS if one.name == "EIO for good")


def failing_disk(brokers: ClusterBrokers, broker: int, number: int) -> FaultyFiles:
    """Let each call to a log dir fail with EIO, until the end of the `with` block."""
    return FaultyFiles(str(brokers.root / f"{broker}-{number}"), EIO, 1)


@contextmanager
def producing(brokers: ClusterBrokers, partitions: int) -> Iterator[Client]:
    """Produce with acks=all; at the end, all replicas that are not offline have all records."""
    client = Client(brokers.servers, NAME, partitions)
    client.create(NAME, partitions)
    for partition in range(partitions):
        brokers.leader(NAME, partition)
    client.start()
    client.wait_for_progress()
    try:
        yield client
    except BaseException:
        client.stop()
        raise
    counts = client.finish()
    for partition, count in enumerate(counts):
        view = view_of(brokers, partition)
        for broker in set(view.replicas) - set(view.offline):
            wait_until(partial(has_all, brokers[broker], partition, count), SECONDS)
    print(f"{sum(counts)} records acknowledged")


def has_all(running: Running, partition: int, count: int) -> bool:
    """Tell whether a replica has each number below `count` once, in order."""
    try:
        log = running.store.log(NAME, partition)
    except LogStoreError:
        return False
    if log.log_end_offset < count:
        return False
    found = [int(record.value or b"-1") for record in log]
    assert found == list(range(count)), f"{NAME}-{partition} of broker {running.id}"
    return True


def views_of(brokers: ClusterBrokers, partition: int) -> list[PartitionView]:
    """Give a partition as each broker that runs knows it."""
    topics = [one.broker.member.metadata.view.topics[NAME] for one in brokers.up()]
    return [topic.partitions[partition] for topic in topics]


def view_of(brokers: ClusterBrokers, partition: int = 0) -> PartitionView:
    """Give a partition as a broker that runs knows it."""
    return views_of(brokers, partition)[0]


def wait_offline(brokers: ClusterBrokers, partition: int, *offline: int) -> None:
    """Wait until all brokers know which replicas are offline."""

    def is_known() -> bool:
        return all(set(view.offline) == set(offline) for view in views_of(brokers, partition))

    wait_until(is_known, SECONDS)


def state_of(brokers: ClusterBrokers, partition: int = 0) -> State:
    """Read the state of a partition."""
    path = znodes.state_path(NAME, partition)
    return parse_state(brokers.admin.get(path).data, path)


def versions(brokers: ClusterBrokers, partitions: Sequence[int]) -> list[int]:
    """Count how often the states of partitions were written."""
    return [brokers.admin.get(znodes.state_path(NAME, one)).version for one in partitions]


def placed(running: Running) -> dict[int, str]:
    """Say in which log dir each replica of a broker is, by the name of the log dir."""
    return {
        number: str(running.store.log(topic, number).log_dir).rpartition("/")[2]
        for topic, number in running.store
        if topic == NAME
    }


def reassign(brokers: ClusterBrokers, wanted: Mapping[int, Sequence[int]]) -> None:
    """Begin reassignments, by Kafka's request to the controller."""
    with Asked(parse_servers(brokers.servers)) as asked:
        places = {(NAME, partition): replicas for partition, replicas in wanted.items()}
        found = asked.reassign(asked.metadata(), places)
    assert not [one for one in found.values() if one.code], found


def alter(
    brokers: ClusterBrokers, broker: int, wanted: dict[int, int], name: str = NAME
) -> dict[int, ErrorCode]:
    """Ask a broker to have partitions in these of its log dirs, by Kafka's request."""
    dirs = [
        Row.AlterReplicaLogDir(
            str(brokers.root / f"{broker}-{number}"),
            [Row.AlterReplicaLogDirTopic(name, [partition])],
        )
        for partition, number in wanted.items()
    ]
    with brokers.client(broker) as client:
        (topic,) = client.call("AlterReplicaLogDirs", dirs=dirs).results
    return {one.partition_index: ErrorCode(one.error_code) for one in topic.partitions}
