"""List the rights that each API needs, and the check of each API.

The table follows Kafka's documentation of its authorization. If the broker has an authorizer, the
broker refuses an API that has no row in the table. If no handler answers an API, its row has no
effect.
"""

from __future__ import annotations

from broker.authorization.bindings import Operation
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


def _to_cluster(operation: Operation, when: str = "") -> Right:
    return Right(operation, CLUSTER, when)


def _settings(operation: Operation) -> tuple[Right, ...]:
    own = _to_cluster(operation, "for settings of brokers")
    return (Right(operation, TOPIC), Right(operation, GROUP), own)


RULES: dict[int, Rule] = {
    0: Rule((
        Right(WRITE, TOPIC),
        Right(WRITE, TRANSACTIONAL_ID, "if there is one"),
    )),
    1: Rule((
        Right(READ, TOPIC),
        _to_cluster(CLUSTER_ACTION, "instead, for a broker of the cluster"),
    )),
    2: Rule((Right(DESCRIBE, TOPIC),), topic_checks.check_list_offsets),
    3: Rule((
        Right(DESCRIBE, TOPIC),
        Right(CREATE, TOPIC, "if the request creates it"),
        _to_cluster(CREATE, "instead, for all topics"),
        _to_cluster(DESCRIBE, "to see the operations that the client may do"),
    ), topic_checks.check_metadata),
    8: Rule((
        Right(READ, GROUP), Right(READ, TOPIC),
    ), group_checks.check_commit),
    9: Rule((
        Right(DESCRIBE, GROUP), Right(DESCRIBE, TOPIC),
    ), group_checks.check_fetch),
    10: Rule((
        Right(DESCRIBE, GROUP),
        Right(DESCRIBE, TRANSACTIONAL_ID),
    ), group_checks.check_coordinators),
    11: Rule((Right(READ, GROUP),), group_checks.check_join),
    12: Rule((Right(READ, GROUP),), group_checks.check_heartbeat),
    13: Rule((Right(READ, GROUP),), group_checks.check_leave),
    14: Rule((Right(READ, GROUP),), group_checks.check_sync),
    15: Rule((Right(DESCRIBE, GROUP),), group_checks.check_describe),
    16: Rule((
        Right(DESCRIBE, GROUP),
        _to_cluster(DESCRIBE, "instead, for all groups"),
    ), group_checks.check_list),
    17: Rule(()),
    18: Rule(()),
    19: Rule((
        Right(CREATE, TOPIC), _to_cluster(CREATE, "instead, for all topics"),
        Right(DESCRIBE_CONFIGS, TOPIC, "to see its settings"),
    ), topic_checks.check_create_topics),
    20: Rule((
        Right(DELETE, TOPIC),
        Right(DESCRIBE, TOPIC, "to see its name if the request has its id"),
    ), topic_checks.check_delete_topics),
    21: Rule((Right(DELETE, TOPIC),), topic_checks.check_delete_records),
    22: Rule((
        Right(WRITE, TOPIC, on="at least one topic"),
        _to_cluster(IDEMPOTENT_WRITE, "instead of `WRITE` on a topic"),
        Right(WRITE, TRANSACTIONAL_ID, "if there is one"),
    ), producer_checks.check_producer_id),
    23: Rule((
        Right(DESCRIBE, TOPIC),
        _to_cluster(CLUSTER_ACTION, "instead, for a broker of the cluster"),
    ), topic_checks.check_epochs),
    24: Rule((
        Right(WRITE, TRANSACTIONAL_ID), Right(WRITE, TOPIC),
        _to_cluster(CLUSTER_ACTION, "instead, for a broker of the cluster"),
    ), producer_checks.check_add_partitions),
    25: Rule((
        Right(WRITE, TRANSACTIONAL_ID), Right(READ, GROUP),
    ), producer_checks.check_add_offsets),
    26: Rule((Right(WRITE, TRANSACTIONAL_ID),), producer_checks.check_end),
    27: Rule((
        _to_cluster(CLUSTER_ACTION, "for a broker of the cluster"),
        _to_cluster(ALTER, "for an administrator"),
    ), producer_checks.check_markers),
    28: Rule((
        Right(WRITE, TRANSACTIONAL_ID), Right(READ, GROUP), Right(READ, TOPIC),
    ), producer_checks.check_commit_offsets),
    29: Rule((_to_cluster(DESCRIBE),), admin_checks.check_describe_acls),
    30: Rule((_to_cluster(ALTER),), admin_checks.check_create_acls),
    31: Rule((_to_cluster(ALTER),), admin_checks.check_delete_acls),
    32: Rule(_settings(DESCRIBE_CONFIGS), admin_checks.check_describe_configs),
    33: Rule(_settings(ALTER_CONFIGS), admin_checks.check_alter_configs),
    34: Rule((_to_cluster(ALTER),), admin_checks.check_alter_log_dirs),
    35: Rule((_to_cluster(DESCRIBE),), admin_checks.check_describe_log_dirs),
    36: Rule(()),
    37: Rule((Right(ALTER, TOPIC),), topic_checks.check_create_partitions),
    42: Rule((Right(DELETE, GROUP),), group_checks.check_delete),
    43: Rule((_to_cluster(ALTER),), admin_checks.check_elect),
    44: Rule(_settings(ALTER_CONFIGS), admin_checks.check_incremental),
    45: Rule((_to_cluster(ALTER),), admin_checks.check_reassign),
    46: Rule((_to_cluster(DESCRIBE),), admin_checks.check_list_reassignments),
    47: Rule((
        Right(DELETE, GROUP), Right(READ, TOPIC),
    ), group_checks.check_delete_offsets),
    48: Rule((_to_cluster(DESCRIBE_CONFIGS),), admin_checks.check_describe_quotas),
    49: Rule((_to_cluster(ALTER_CONFIGS),), admin_checks.check_alter_quotas),
    50: Rule((_to_cluster(DESCRIBE),), admin_checks.check_describe_users),
    51: Rule((_to_cluster(ALTER),), admin_checks.check_alter_users),
    57: Rule((_to_cluster(ALTER),), admin_checks.check_features),
    60: Rule((_to_cluster(DESCRIBE, "to see the operations that the client may do"),)),
    61: Rule((Right(READ, TOPIC),), producer_checks.check_producers),
    65: Rule((
        Right(DESCRIBE, TRANSACTIONAL_ID),
        Right(DESCRIBE, TOPIC, "to see it among the topics of a transaction"),
    ), producer_checks.check_describe),
    66: Rule((Right(DESCRIBE, TRANSACTIONAL_ID),), producer_checks.check_list),
    68: Rule((Right(READ, GROUP), Right(DESCRIBE, TOPIC)), group_checks.check_member),
    69: Rule((
        Right(DESCRIBE, GROUP), Right(DESCRIBE, TOPIC, on="each topic of its members"),
    ), group_checks.check_describe_consumers),
    74: Rule((_to_cluster(DESCRIBE_CONFIGS),), admin_checks.check_list_resources),
    75: Rule((
        Right(DESCRIBE, TOPIC),
    ), topic_checks.check_topic_partitions),
}  # fmt: skip
