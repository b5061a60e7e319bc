"""A request for each right that an API needs, by Kafka's documentation of its authorization.

A probe is written without a look at the rules of the broker. A test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from broker.authorization.bindings import CLUSTER_NAME, Operation, ResourceType
from broker.wire import messages as m
from support.kafka_client import batch_of, fetch_fields, produce_fields

READ, WRITE, CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
DELETE, ALTER, DESCRIBE = Operation.DELETE, Operation.ALTER, Operation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
CLUSTER_ACTION, IDEMPOTENT_WRITE = Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
CODES = {TOPIC: 29, GROUP: 30, CLUSTER: 31, TRANSACTIONAL_ID: 53}
FRESH = "<fresh>"  # a name that no earlier request had
Others = Sequence[tuple[Operation, ResourceType, str]]


class World(NamedTuple):
    """What exists.

    A topic `t` with a record, its id, a group `g` with an offset of the topic, and a group `n` of
    the new protocol with a member that reads the topic.
    """

    topic_id: bytes
    fresh: str = ""
    fresh_id: bytes = bytes(16)


class Probe(NamedTuple):
    """One request, and the right without which it is refused.

    Attributes:
        others: rights that the client has, so that only the one right is missing.
        code: the error of a refused request, if it is not the one of the resource's type.
        is_refused: decides by the answer; by default, by the codes in it.
        needs_topic: whether the fresh topic exists before the request.
        also: operations on the same resource, each of which is enough, too.
    """

    api: str
    operation: Operation | None
    kind: ResourceType
    name: str
    fields: Callable[[World], dict[str, Any]]
    version: int | None = None
    others: Others = ()
    code: int = 0
    is_refused: Callable[[Any], bool] | None = None
    needs_topic: bool = False
    also: Sequence[Operation] = ()

    def refuses(self, answer: Any) -> bool:
        """Report whether an answer refuses the request."""
        if self.is_refused is not None:
            return self.is_refused(answer)
        return (self.code or CODES[self.kind]) in codes_in(answer)


def codes_in(message: Any) -> Iterator[int]:
    """List the error codes in a message and its parts."""
    for field in getattr(message, "_fields", ()):
        value = getattr(message, field)
        if field == "error_code":
            yield value
        for one in value if isinstance(value, list | tuple) else ():
            yield from codes_in(one)


def hides(name: str) -> Callable[[Any], bool]:
    """Make the predicate that an answer does not name something."""
    return lambda answer: f"'{name}'" not in repr(answer)


def _named(api: str, struct: str, names: Sequence[Any]) -> list[Any]:
    return [getattr(getattr(m, api), struct)(*one) for one in names]


def _metadata(*names: str, **fields: Any) -> dict[str, Any]:
    Topic = m.MetadataRequest.MetadataRequestTopic  # noqa: N806 - a class
    return {"topics": [Topic(name=name) for name in names], **fields}


def _commit(world: World) -> dict[str, Any]:
    asked = m.OffsetCommitRequest
    partition = asked.OffsetCommitRequestPartition(0, 1, -1, "")
    topic = asked.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [topic]}


def _old_offsets(world: World) -> dict[str, Any]:
    topics = _named("OffsetFetchRequest", "OffsetFetchRequestTopic", [("t", [0])])
    return {"group_id": "g", "topics": topics}


def _offsets(world: World) -> dict[str, Any]:
    asked = m.OffsetFetchRequest
    topics = [asked.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    return {"groups": [asked.OffsetFetchRequestGroup(group_id="g", topics=topics)]}


def _all_offsets(world: World) -> dict[str, Any]:
    return {"groups": [m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]}


def _join(world: World) -> dict[str, Any]:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    return {
        "group_id": "joined", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer", "protocols": [protocol],
    }  # fmt: skip


def _sync(world: World) -> dict[str, Any]:
    fields = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    return fields | {"protocol_type": "consumer", "protocol_name": "range"}


def member_fields(group: str, **wanted: Any) -> dict[str, Any]:
    """Join a group of the new protocol."""
    fields = {"group_id": group, "member_id": "m", "rebalance_timeout_ms": 10_000}
    return {**fields, "topic_partitions": [], **wanted}


def _finds_nothing(answer: Any) -> bool:
    return answer.assignment is not None and not answer.assignment.topic_partitions


def _no_quota(world: World) -> dict[str, Any]:
    asked = m.AlterClientQuotasRequest
    change = asked.OpData("producer_byte_rate", 0.0, True)
    entry = asked.EntryData([asked.EntityData("user", "absent")], [change])
    return {"entries": [entry], "validate_only": True}


def _create(world: World) -> dict[str, Any]:
    return {"topics": [m.CreateTopicsRequest.CreatableTopic(world.fresh, 1, 1)], "timeout_ms": 5000}


def _delete_by_id(world: World) -> dict[str, Any]:
    topic = m.DeleteTopicsRequest.DeleteTopicState(None, world.fresh_id)
    return {"topics": [topic], "timeout_ms": 5000}


def _delete(world: World) -> dict[str, Any]:
    topic = m.DeleteTopicsRequest.DeleteTopicState("absent", bytes(16))
    return {"topics": [topic], "topic_names": ["absent"], "timeout_ms": 5000}


def _delete_records(world: World) -> dict[str, Any]:
    asked = m.DeleteRecordsRequest
    topic = asked.DeleteRecordsTopic("absent", [asked.DeleteRecordsPartition(0, 0)])
    return {"topics": [topic], "timeout_ms": 1000}


def _delete_offsets(world: World) -> dict[str, Any]:
    asked = m.OffsetDeleteRequest
    topic = asked.OffsetDeleteRequestTopic("t", [asked.OffsetDeleteRequestPartition(99)])
    return {"group_id": "g", "topics": [topic]}


def _settings(api: str, kind: int, name: str, _: World) -> dict[str, Any]:
    asked = getattr(m, f"{api}Request")
    if api == "DescribeConfigs":
        return {"resources": [asked.DescribeConfigsResource(kind, name, None)]}
    change = [asked.AlterableConfig(name="retention.ms", value="1000")]
    resource = asked.AlterConfigsResource(kind, name, change)
    return {"resources": [resource], "validate_only": True}


def _moves(world: World) -> dict[str, Any]:
    asked = m.AlterReplicaLogDirsRequest
    topic = asked.AlterReplicaLogDirTopic("t", [0])
    return {"dirs": [asked.AlterReplicaLogDir("/nowhere", [topic])]}


def _reassign(world: World) -> dict[str, Any]:
    asked = m.AlterPartitionReassignmentsRequest
    topic = asked.ReassignableTopic("absent", [asked.ReassignablePartition(0, [0])])
    return {"timeout_ms": 1000, "topics": [topic]}


def _epochs(world: World) -> dict[str, Any]:
    asked = m.OffsetForLeaderEpochRequest
    return {
        "replica_id": -1,
        "topics": [asked.OffsetForLeaderTopic("t", [asked.OffsetForLeaderPartition(0, -1, 0)])],
    }


def _list_offsets(world: World) -> dict[str, Any]:
    asked = m.ListOffsetsRequest
    topic = asked.ListOffsetsTopic("t", [asked.ListOffsetsPartition(0, -1, -1)])
    return {"replica_id": -1, "topics": [topic]}


ACL_FILTER = {
    "resource_type_filter": 1, "resource_name_filter": "absent", "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
OPERATIONS_OF_CLUSTER = {"include_cluster_authorized_operations": True}


def _hides_operations(answer: Any) -> bool:
    return bool(answer.cluster_authorized_operations == 0)


def _settings_probes() -> Iterator[Probe]:
    operations = {
        "DescribeConfigs": DESCRIBE_CONFIGS, "AlterConfigs": ALTER_CONFIGS,
        "IncrementalAlterConfigs": ALTER_CONFIGS,
    }  # fmt: skip
    kinds = ((2, TOPIC, "t"), (4, CLUSTER, "0"), (32, GROUP, "g"), (8, CLUSTER, "0"))
    for api, operation in operations.items():
        for number, kind, name in kinds:
            resource = CLUSTER_NAME if kind is CLUSTER else name
            fields = partial(_settings, api, number, name)
            yield Probe(api, operation, kind, resource, fields)


OTHER_PROBES: tuple[Probe, ...] = (
    Probe("Produce", WRITE, TOPIC, "t", lambda w: produce_fields({("t", 0): batch_of(b"x")}), 12),
    Probe("Produce", WRITE, TOPIC, "t",
          lambda w: produce_fields({(w.topic_id, 0): batch_of(b"x")})),
    Probe("Produce", WRITE, TRANSACTIONAL_ID, "x",
          lambda w: produce_fields({("t", 0): batch_of(b"x")}, transactional_id="x"), 12,
          others=[(WRITE, TOPIC, "t")]),
    Probe("Fetch", READ, TOPIC, "t", lambda w: fetch_fields({("t", 0): 0}), 12),
    Probe("Fetch", READ, TOPIC, "t", lambda w: fetch_fields({(w.topic_id, 0): 0})),
    Probe("ListOffsets", DESCRIBE, TOPIC, "t", _list_offsets),
    Probe("Metadata", DESCRIBE, TOPIC, "t", lambda w: _metadata("t")),
    Probe("Metadata", DESCRIBE, TOPIC, "t", lambda w: _metadata("t"), 0),
    Probe("Metadata", DESCRIBE, TOPIC, "t", lambda w: {"topics": None}, is_refused=hides("t")),
    Probe("Metadata", DESCRIBE, TOPIC, "t", lambda w: {"topics": []}, 0, is_refused=hides("t")),
    Probe("Metadata", DESCRIBE, TOPIC, "t",
          lambda w: {"topics": [m.MetadataRequest.MetadataRequestTopic(w.topic_id, None)]}),
    Probe("Metadata", CREATE, TOPIC, FRESH, lambda w: _metadata(w.fresh),
          others=[(DESCRIBE, TOPIC, FRESH)]),
    Probe("Metadata", CREATE, CLUSTER, CLUSTER_NAME, lambda w: _metadata(w.fresh),
          others=[(DESCRIBE, TOPIC, FRESH)], code=29),
    Probe("Metadata", DESCRIBE, CLUSTER, CLUSTER_NAME,
          lambda w: _metadata(**OPERATIONS_OF_CLUSTER), 10, is_refused=_hides_operations),
    Probe("OffsetCommit", READ, GROUP, "g", _commit, others=[(READ, TOPIC, "t")]),
    Probe("OffsetCommit", READ, TOPIC, "t", _commit, others=[(READ, GROUP, "g")]),
    Probe("OffsetFetch", DESCRIBE, GROUP, "g", _offsets, others=[(DESCRIBE, TOPIC, "t")]),
    Probe("OffsetFetch", DESCRIBE, TOPIC, "t", _offsets, others=[(DESCRIBE, GROUP, "g")]),
    Probe("OffsetFetch", DESCRIBE, TOPIC, "t", _all_offsets, others=[(DESCRIBE, GROUP, "g")],
          is_refused=hides("t")),
    Probe("OffsetFetch", DESCRIBE, GROUP, "g", _old_offsets, 7, [(DESCRIBE, TOPIC, "t")]),
    Probe("OffsetFetch", DESCRIBE, GROUP, "g", _old_offsets, 1, [(DESCRIBE, TOPIC, "t")]),
    Probe("OffsetFetch", DESCRIBE, TOPIC, "t", _old_offsets, 7, [(DESCRIBE, GROUP, "g")]),
    Probe("FindCoordinator", DESCRIBE, GROUP, "g",
          lambda w: {"key_type": 0, "coordinator_keys": ["g"]}),
    Probe("FindCoordinator", DESCRIBE, GROUP, "g", lambda w: {"key_type": 0, "key": "g"}, 3),
    Probe("FindCoordinator", DESCRIBE, TRANSACTIONAL_ID, "x",
          lambda w: {"key_type": 1, "coordinator_keys": ["x"]}),
    Probe("FindCoordinator", DESCRIBE, TRANSACTIONAL_ID, "x",
          lambda w: {"key_type": 1, "key": "x"}, 3),
    Probe("JoinGroup", READ, GROUP, "joined", _join),
    Probe("SyncGroup", READ, GROUP, "g", _sync),
    Probe("Heartbeat", READ, GROUP, "g", lambda w: {"group_id": "g", "member_id": "m"}),
    Probe("LeaveGroup", READ, GROUP, "g", lambda w: {
        "group_id": "g", "members": [m.LeaveGroupRequest.MemberIdentity("m")]}),
    Probe("DescribeGroups", DESCRIBE, GROUP, "g", lambda w: {"groups": ["g"]}),
    Probe("ListGroups", DESCRIBE, GROUP, "g", lambda w: {}, is_refused=hides("g")),
    Probe("ListGroups", DESCRIBE, CLUSTER, CLUSTER_NAME, lambda w: {}, is_refused=hides("g")),
    Probe("ApiVersions", None, CLUSTER, CLUSTER_NAME, lambda w: {
        "client_software_name": "probe", "client_software_version": "1"}),
    Probe("CreateTopics", CREATE, TOPIC, FRESH, _create),
    Probe("CreateTopics", CREATE, CLUSTER, CLUSTER_NAME, _create, code=29),
    Probe("CreateTopics", DESCRIBE_CONFIGS, TOPIC, FRESH, _create, others=[(CREATE, TOPIC, FRESH)],
          is_refused=lambda answer: answer.topics[0].topic_config_error_code == 29),
    Probe("DeleteTopics", DELETE, TOPIC, "absent", _delete),
    Probe("DeleteTopics", DELETE, TOPIC, "absent", _delete, 5),
    Probe("DeleteTopics", DELETE, TOPIC, FRESH, _delete_by_id, needs_topic=True),
    Probe("DeleteTopics", DESCRIBE, TOPIC, FRESH, _delete_by_id, needs_topic=True,
          is_refused=lambda answer: answer.responses[0].name is None),
    Probe("DeleteRecords", DELETE, TOPIC, "absent", _delete_records),
    Probe("InitProducerId", WRITE, TOPIC, "t", lambda w: {"transactional_id": None}, code=31),
    Probe("InitProducerId", IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME,
          lambda w: {"transactional_id": None}),
    Probe("InitProducerId", WRITE, TRANSACTIONAL_ID, "x", lambda w: {"transactional_id": "x"}),
    Probe("OffsetForLeaderEpoch", DESCRIBE, TOPIC, "t", _epochs),
    Probe("OffsetForLeaderEpoch", CLUSTER_ACTION, CLUSTER, CLUSTER_NAME, _epochs, code=29),
    Probe("DescribeAcls", DESCRIBE, CLUSTER, CLUSTER_NAME, lambda w: ACL_FILTER),
    Probe("CreateAcls", ALTER, CLUSTER, CLUSTER_NAME, lambda w: {"creations": [
        m.CreateAclsRequest.AclCreation(2, "x", 3, "User:nobody", "*", 3, 3)]}),
    Probe("DeleteAcls", ALTER, CLUSTER, CLUSTER_NAME, lambda w: {"filters": [
        m.DeleteAclsRequest.DeleteAclsFilter(*ACL_FILTER.values())]}),
    *_settings_probes(),
    Probe("AlterReplicaLogDirs", ALTER, CLUSTER, CLUSTER_NAME, _moves),
    Probe("DescribeLogDirs", DESCRIBE, CLUSTER, CLUSTER_NAME, lambda w: {"topics": None}),
    Probe("DescribeLogDirs", DESCRIBE, CLUSTER, CLUSTER_NAME, lambda w: {"topics": None}, 1,
          is_refused=hides("t")),
    Probe("CreatePartitions", ALTER, TOPIC, "absent", lambda w: {"timeout_ms": 1000, "topics": [
        m.CreatePartitionsRequest.CreatePartitionsTopic("absent", 2, None)]}),
    Probe("DeleteGroups", DELETE, GROUP, "absent", lambda w: {"groups_names": ["absent"]}),
    Probe("ElectLeaders", ALTER, CLUSTER, CLUSTER_NAME, lambda w: {"timeout_ms": 1000,
          "topic_partitions": [m.ElectLeadersRequest.TopicPartitions("t", [0])]}),
    Probe("ElectLeaders", ALTER, CLUSTER, CLUSTER_NAME, lambda w: {"timeout_ms": 1000,
          "topic_partitions": [m.ElectLeadersRequest.TopicPartitions("t", [0])]}, 0),
    Probe("AlterPartitionReassignments", ALTER, CLUSTER, CLUSTER_NAME, _reassign),
    Probe("ListPartitionReassignments", DESCRIBE, CLUSTER, CLUSTER_NAME,
          lambda w: {"timeout_ms": 1000, "topics": None}),
    Probe("OffsetDelete", DELETE, GROUP, "g", _delete_offsets, others=[(READ, TOPIC, "t")]),
    Probe("OffsetDelete", READ, TOPIC, "t", _delete_offsets, others=[(DELETE, GROUP, "g")]),
    Probe("DescribeCluster", DESCRIBE, CLUSTER, CLUSTER_NAME,
          lambda w: OPERATIONS_OF_CLUSTER, is_refused=_hides_operations),
    Probe("ListConfigResources", DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME,
          lambda w: {"resource_types": []}),
    Probe("SaslHandshake", None, CLUSTER, CLUSTER_NAME, lambda w: {"mechanism": "PLAIN"}),
    Probe("SaslAuthenticate", None, CLUSTER, CLUSTER_NAME, lambda w: {"auth_bytes": b"x"}),
    Probe("DescribeClientQuotas", DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME,
          lambda w: {"components": [], "strict": False}),
    Probe("AlterClientQuotas", ALTER_CONFIGS, CLUSTER, CLUSTER_NAME, _no_quota),
    Probe("DescribeUserScramCredentials", DESCRIBE, CLUSTER, CLUSTER_NAME,
          lambda w: {"users": None}),
    Probe("AlterUserScramCredentials", ALTER, CLUSTER, CLUSTER_NAME, lambda w: {"deletions": [
        m.AlterUserScramCredentialsRequest.ScramCredentialDeletion("absent", 1)]}),
    Probe("UpdateFeatures", ALTER, CLUSTER, CLUSTER_NAME, lambda w: {"feature_updates": [
        m.UpdateFeaturesRequest.FeatureUpdateKey("absent", 1)]}),
    Probe("ConsumerGroupHeartbeat", READ, GROUP, "new",
          lambda w: member_fields("new", subscribed_topic_names=["t"]),
          others=[(DESCRIBE, TOPIC, "t")]),
    Probe("ConsumerGroupHeartbeat", DESCRIBE, TOPIC, "t",
          lambda w: member_fields("new", subscribed_topic_names=["t"]),
          others=[(READ, GROUP, "new")]),
    Probe("ConsumerGroupHeartbeat", DESCRIBE, TOPIC, "t",
          lambda w: member_fields("found", subscribed_topic_regex="[t]"),
          others=[(READ, GROUP, "found")], is_refused=_finds_nothing),
    Probe("ConsumerGroupDescribe", DESCRIBE, GROUP, "n", lambda w: {"group_ids": ["n"]},
          others=[(DESCRIBE, TOPIC, "t")]),
    Probe("ConsumerGroupDescribe", DESCRIBE, TOPIC, "t", lambda w: {"group_ids": ["n"]},
          others=[(DESCRIBE, GROUP, "n")]),
    Probe("DescribeTopicPartitions", DESCRIBE, TOPIC, "t", lambda w: {
        "topics": [m.DescribeTopicPartitionsRequest.TopicRequest("t")],
        "response_partition_limit": 10, "cursor": None}),
    Probe("DescribeTopicPartitions", DESCRIBE, TOPIC, "t", lambda w: {
        "topics": [], "response_partition_limit": 10, "cursor": None}, is_refused=hides("t")),
)  # fmt: skip
