"""Return the values that operators of a cluster watch, with Kafka's names in Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from broker.machines.traffic import Gauge
from cluster.pure.replica import Role
from cluster.registration import NO_BROKER
from cluster.run.member import ClusterMember

REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"


def gauges_of(member: ClusterMember) -> Iterator[Gauge]:
    """Return the present values of a broker. This reads only memory."""
    replicas = [*member.replicas]
    leading = [one for one in replicas if one.role is Role.LEADER]
    isr_sizes = [(one, *one.isr_sizes) for one in leading]
    yield Gauge(f"{REPLICAS}partitioncount", "Replicas on this broker.", len(replicas))
    yield Gauge(f"{REPLICAS}leadercount", "Partitions that this broker leads.", len(leading))
    yield Gauge(
        f"{REPLICAS}underreplicatedpartitions",
        "Partitions that this broker leads, and whose ISR lacks a replica.",
        sum(size < count for _, size, _, count in isr_sizes),
    )
    yield Gauge(
        f"{REPLICAS}underminisrpartitioncount",
        "Partitions that this broker leads, and whose ISR is smaller than min.insync.replicas.",
        sum(size < least for _, size, least, _ in isr_sizes),
    )
    yield Gauge(
        f"{REPLICAS}atminisrpartitioncount",
        "Partitions that this broker leads, and whose ISR has exactly min.insync.replicas members.",
        sum(size == least for _, size, least, _ in isr_sizes),
    )
    yield Gauge(
        f"{REPLICAS}offlinereplicacount",
        "Replicas on this broker that cannot be used, because of their log dir or their own files.",
        sum(one.is_offline for one in replicas),
    )
    yield from _of_controller(member)
    yield Gauge(
        "logstore_cluster_alarms",
        "Replicas that stopped, or whose topic is not known: an operator has to check them.",
        len(member.alarms),
    )
    yield Gauge(
        "logstore_cluster_session",
        "1 if the session of this broker in the coordination store is sure to live, else 0.",
        member.lease.is_held,
    )


def _of_controller(member: ClusterMember) -> Iterator[Gauge]:
    """Return the controller's values of all partitions. Other brokers report 0, as in Kafka."""
    is_active = member.controller is not None and member.controller.epoch is not None
    yield Gauge(
        f"{CONTROLLER}activecontrollercount", "1 on the broker that is the controller.", is_active
    )
    topics = member.metadata.view.topics.values() if is_active else ()
    partitions = [one for topic in topics for one in topic.partitions.values()]
    yield Gauge(f"{CONTROLLER}globaltopiccount", "Topics of the cluster.", len(topics))
    yield Gauge(f"{CONTROLLER}globalpartitioncount", "Partitions of the cluster.", len(partitions))
    yield Gauge(
        f"{CONTROLLER}offlinepartitionscount",
        "Partitions without a leader.",
        sum(one.leader == NO_BROKER for one in partitions),
    )
    yield Gauge(
        f"{CONTROLLER}preferredreplicaimbalancecount",
        "Partitions whose leader is not their first replica.",
        sum(one.leader != one.replicas[0] for one in partitions),
    )
