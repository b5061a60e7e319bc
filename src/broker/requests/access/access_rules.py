"""List who may send which requests: the rights that each API needs, and the check of the API.

The table follows Kafka's documentation of its authorization. An API without a row is refused as
soon as the broker has an authorizer.
"""

from __future__ import annotations

from broker.authorization.bindings import Operation, ResourceType
from broker.requests.access import admin_checks, group_checks, producer_checks, topic_checks
from broker.requests.access.checks import (
    CLUSTER,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Right,
    Rule,
)

READ, WRITE, CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
DELETE, ALTER, DESCRIBE = Operation.DELETE, Operation.ALTER, Operation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
CLUSTER_ACTION, IDEMPOTENT_WRITE = Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE


def _to_cluster(operation: Operation, of: str = "") -> Right:
    return Right(operation, CLUSTER, of)


def _settings(operation: Operation) -> tuple[Right, ...]:
    kinds: dict[ResourceType, str] = {
        CLUSTER: "for settings of brokers", TOPIC: "for settings of topics",
        GROUP: "for settings of groups",
    }  # fmt: skip
    return tuple(Right(operation, kind, of) for kind, of in kinds.items())


RULES: dict[int, Rule] = {
    0: Rule((
        Right(WRITE, TOPIC, "for each topic"),
        Right(WRITE, TRANSACTIONAL_ID, "if the producer is transactional"),
    )),
    1: Rule((
        Right(READ, TOPIC, "for each topic"),
        _to_cluster(CLUSTER_ACTION, "instead, if the client is a broker"),
    )),
    2: Rule((Right(DESCRIBE, TOPIC, "for each topic"),), topic_checks.check_list_offsets),
    3: Rule((
        Right(DESCRIBE, TOPIC, "for each topic; other topics are left out of a list of all"),
        Right(CREATE, TOPIC, "if the topic is to be created"),
        _to_cluster(CREATE, "instead, for all topics"),
        _to_cluster(DESCRIBE, "to see one's operations on the cluster"),
    ), topic_checks.check_metadata),
    8: Rule((
        Right(READ, GROUP), Right(READ, TOPIC, "for each topic"),
    ), group_checks.check_commit),
    9: Rule((
        Right(DESCRIBE, GROUP, "for each group"), Right(DESCRIBE, TOPIC, "for each topic"),
    ), group_checks.check_fetch),
    10: Rule((
        Right(DESCRIBE, GROUP, "for each group"),
        Right(DESCRIBE, TRANSACTIONAL_ID, "for each transactional id"),
    ), group_checks.check_coordinators),
    11: Rule((Right(READ, GROUP),), group_checks.check_join),
    12: Rule((Right(READ, GROUP),), group_checks.check_heartbeat),
    13: Rule((Right(READ, GROUP),), group_checks.check_leave),
    14: Rule((Right(READ, GROUP),), group_checks.check_sync),
    15: Rule((Right(DESCRIBE, GROUP, "for each group"),), group_checks.check_describe),
    16: Rule((
        Right(DESCRIBE, GROUP, "for each group; other groups are left out"),
        _to_cluster(DESCRIBE, "instead, for all groups"),
    ), group_checks.check_list),
    18: Rule(()),
    19: Rule((
        Right(CREATE, TOPIC, "for each topic"), _to_cluster(CREATE, "instead, for all topics"),
        Right(DESCRIBE_CONFIGS, TOPIC, "to see the settings of the new topic"),
    ), topic_checks.check_create_topics),
    20: Rule((
        Right(DELETE, TOPIC, "for each topic"),
        Right(DESCRIBE, TOPIC, "to see the name of a topic that is named by its id"),
    ), topic_checks.check_delete_topics),
    21: Rule((Right(DELETE, TOPIC, "for each topic"),), topic_checks.check_delete_records),
    22: Rule((
        Right(WRITE, TOPIC, "for any topic"), _to_cluster(IDEMPOTENT_WRITE, "instead"),
        Right(WRITE, TRANSACTIONAL_ID, "if the producer is transactional"),
    ), producer_checks.check_producer_id),
    23: Rule((
        Right(DESCRIBE, TOPIC, "for each topic"),
        _to_cluster(CLUSTER_ACTION, "instead, if the client is a broker"),
    ), topic_checks.check_epochs),
    29: Rule((_to_cluster(DESCRIBE),), admin_checks.check_describe_acls),
    30: Rule((_to_cluster(ALTER),), admin_checks.check_create_acls),
    31: Rule((_to_cluster(ALTER),), admin_checks.check_delete_acls),
    32: Rule(_settings(DESCRIBE_CONFIGS), admin_checks.check_describe_configs),
    33: Rule(_settings(ALTER_CONFIGS), admin_checks.check_alter_configs),
    34: Rule((_to_cluster(ALTER),), admin_checks.check_alter_log_dirs),
    35: Rule((_to_cluster(DESCRIBE),), admin_checks.check_describe_log_dirs),
    37: Rule((Right(ALTER, TOPIC, "for each topic"),), topic_checks.check_create_partitions),
    42: Rule((Right(DELETE, GROUP, "for each group"),), group_checks.check_delete),
    43: Rule((_to_cluster(ALTER),), admin_checks.check_elect),
    44: Rule(_settings(ALTER_CONFIGS), admin_checks.check_incremental),
    45: Rule((_to_cluster(ALTER),), admin_checks.check_reassign),
    46: Rule((_to_cluster(DESCRIBE),), admin_checks.check_list_reassignments),
    47: Rule((
        Right(DELETE, GROUP), Right(READ, TOPIC, "for each topic"),
    ), group_checks.check_delete_offsets),
    60: Rule((_to_cluster(DESCRIBE, "to see one's operations on the cluster"),)),
    74: Rule((_to_cluster(DESCRIBE_CONFIGS),), admin_checks.check_list_resources),
    75: Rule((
        Right(DESCRIBE, TOPIC, "for each topic; other topics are left out of a list of all"),
    ), topic_checks.check_topic_partitions),
}  # fmt: skip
