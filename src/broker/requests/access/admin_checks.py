"""Check the requests of administrators: settings, replicas, log dirs and ACLs."""

from __future__ import annotations

from typing import Any

from broker.authorization.bindings import CLUSTER_NAME, Operation
from broker.requests.access.checks import (
    CLUSTER,
    CODES,
    GROUP,
    MESSAGE,
    NO_CLUSTER,
    TOPIC,
    Asking,
    Check,
    each,
    whole,
)
from broker.wire.messages import (
    AlterClientQuotasResponse,
    AlterConfigsResponse,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsResponse,
    AlterUserScramCredentialsResponse,
    CreateAclsResponse,
    DeleteAclsResponse,
    DescribeAclsResponse,
    DescribeClientQuotasResponse,
    DescribeConfigsResponse,
    DescribeLogDirsResponse,
    DescribeUserScramCredentialsResponse,
    ElectLeadersResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesResponse,
    ListPartitionReassignmentsResponse,
    UpdateFeaturesResponse,
)

# The types of resources with settings. Topics and groups have their own rights.
OWNED = {2: TOPIC, 32: GROUP}


def _may_with_settings(operation: Operation, resource: Any, asking: Asking) -> bool:
    kind = OWNED.get(resource.resource_type, CLUSTER)
    name = CLUSTER_NAME if kind is CLUSTER else resource.resource_name
    return asking.may(operation, kind, name)


def _settings(operation: Operation, response: Any, rows_field: str, row_kind: Any) -> Check:
    """Make a check for requests about the settings of several resources."""

    def row_of(resource: Any) -> Any:
        code = CODES[OWNED.get(resource.resource_type, CLUSTER)]
        return row_kind(code, MESSAGE, resource.resource_type, resource.resource_name)

    return each(
        "resources",
        lambda resource, asking: _may_with_settings(operation, resource, asking),
        response,
        rows_field,
        row_of,
    )


check_describe_configs = _settings(
    Operation.DESCRIBE_CONFIGS, DescribeConfigsResponse, "results",
    DescribeConfigsResponse.DescribeConfigsResult,
)  # fmt: skip
check_alter_configs = _settings(
    Operation.ALTER_CONFIGS, AlterConfigsResponse, "responses",
    AlterConfigsResponse.AlterConfigsResourceResponse,
)  # fmt: skip
check_incremental = _settings(
    Operation.ALTER_CONFIGS, IncrementalAlterConfigsResponse, "responses",
    IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
)  # fmt: skip
check_list_resources = whole(
    Operation.DESCRIBE_CONFIGS, lambda asked: ListConfigResourcesResponse(error_code=NO_CLUSTER)
)


# --- replicas and log dirs ------------------------------------------------------------------------


def _no_moves(asked: Any) -> Any:
    Row = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult  # noqa: N806 - a class
    topics: dict[str, list[Any]] = {}
    for one in asked.dirs:
        for topic in one.topics:
            rows = topics.setdefault(topic.name, [])
            rows += [Row(number, NO_CLUSTER) for number in topic.partitions]
    Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult  # noqa: N806 - a class
    return AlterReplicaLogDirsResponse(results=[Topic(*one) for one in topics.items()])


def _no_elections(asked: Any) -> Any:
    Row = ElectLeadersResponse.PartitionResult  # noqa: N806 - a class
    rows = [
        ElectLeadersResponse.ReplicaElectionResult(
            topic.topic, [Row(number, NO_CLUSTER, MESSAGE) for number in topic.partitions]
        )
        for topic in asked.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=NO_CLUSTER, replica_election_results=rows)


check_alter_log_dirs = whole(Operation.ALTER, _no_moves)
check_elect = whole(Operation.ALTER, _no_elections)
check_describe_log_dirs = whole(
    Operation.DESCRIBE, lambda asked: DescribeLogDirsResponse(error_code=NO_CLUSTER)
)
check_reassign = whole(
    Operation.ALTER,
    lambda asked: AlterPartitionReassignmentsResponse(error_code=NO_CLUSTER, error_message=MESSAGE),
)
check_list_reassignments = whole(
    Operation.DESCRIBE,
    lambda asked: ListPartitionReassignmentsResponse(error_code=NO_CLUSTER, error_message=MESSAGE),
)


# --- ACLs -----------------------------------------------------------------------------------------

check_describe_acls = whole(
    Operation.DESCRIBE,
    lambda asked: DescribeAclsResponse(error_code=NO_CLUSTER, error_message=MESSAGE),
)
check_create_acls = whole(
    Operation.ALTER,
    lambda asked: CreateAclsResponse(
        results=[CreateAclsResponse.AclCreationResult(NO_CLUSTER, MESSAGE)] * len(asked.creations)
    ),
)
check_delete_acls = whole(
    Operation.ALTER,
    lambda asked: DeleteAclsResponse(
        filter_results=[DeleteAclsResponse.DeleteAclsFilterResult(NO_CLUSTER, MESSAGE)]
        * len(asked.filters)
    ),
)


# --- users, quotas and features -------------------------------------------------------------------


def _no_quotas(asked: Any) -> Any:
    Response = AlterClientQuotasResponse  # noqa: N806 - a class
    rows = [
        Response.EntryData(
            NO_CLUSTER, MESSAGE, [Response.EntityData(*entity) for entity in entry.entity]
        )
        for entry in asked.entries
    ]
    return Response(entries=rows)


def _no_users(asked: Any) -> Any:
    Row = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult  # noqa: N806 - a class
    users = dict.fromkeys(one.name for one in (*asked.deletions, *asked.upsertions))
    rows = [Row(user, NO_CLUSTER, MESSAGE) for user in users]
    return AlterUserScramCredentialsResponse(results=rows)


check_describe_quotas = whole(
    Operation.DESCRIBE_CONFIGS,
    lambda asked: DescribeClientQuotasResponse(
        error_code=NO_CLUSTER, error_message=MESSAGE, entries=None
    ),
)
check_alter_quotas = whole(Operation.ALTER_CONFIGS, _no_quotas)
check_describe_users = whole(
    Operation.DESCRIBE,
    lambda asked: DescribeUserScramCredentialsResponse(
        error_code=NO_CLUSTER, error_message=MESSAGE
    ),
)
check_alter_users = whole(Operation.ALTER, _no_users)
check_features = whole(
    Operation.ALTER,
    lambda asked: UpdateFeaturesResponse(error_code=NO_CLUSTER, error_message=MESSAGE),
)
