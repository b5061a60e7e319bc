"""List the keys of Kafka's `server.properties` that this broker ignores or refuses.

The lists have the keys of Kafka 4.1, and the keys of earlier releases that files still contain.
"""

from __future__ import annotations

# Keys that begin with these prefixes configure parts of Kafka that a single broker without replicas
# does not have, or implements in another way.
PREFIXES = (
    "alter.log.dirs.replication.quota.", "broker.heartbeat.", "broker.session.",
    "controlled.shutdown.", "controller.", "delegation.token.", "group.consumer.",
    "group.coordinator.", "group.share.", "group.streams.",
    "internal.", "kafka.metrics.", "leader.imbalance.", "listener.name.",
    "log.cleaner.io.buffer.", "log.local.", "log.roll.jitter.", "metadata.", "metrics.",
    "offsets.commit.required.", "password.encoder.", "quota.", "remote.", "replica.",
    "replication.quota.",
    "share.", "socket.connection.setup.", "transaction.", "zookeeper.",
)  # fmt: skip
IGNORED = frozenset({
    "add.partitions.to.txn.retry.backoff.max.ms", "add.partitions.to.txn.retry.backoff.ms",
    "advertised.host.name", "advertised.port", "allow.everyone.if.no.acl.found",
    "auto.include.jmx.reporter", "auto.leader.rebalance.enable", "background.threads",
    "broker.id.generation.enable", "compression.gzip.level",
    "compression.lz4.level", "compression.zstd.level", "connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms", "control.plane.listener.name",
    "delete.records.purgatory.purge.interval.requests", "early.start.listeners",
    "eligible.leader.replicas.enable", "fetch.purgatory.purge.interval.requests",
    "initial.broker.registration.timeout.ms", "inter.broker.listener.name",
    "inter.broker.protocol.version", "log.cleaner.threads", "log.dir.failure.timeout.ms",
    "log.flush.start.offset.checkpoint.interval.ms", "log.initial.task.delay.ms",
    "log.message.downconversion.enable", "log.message.format.version",
    "log.message.timestamp.difference.max.ms", "log.preallocate", "log.segment.delete.delay.ms",
    "max.connection.creation.rate", "max.connections.per.ip.overrides",
    "max.request.partition.size.limit", "metric.reporters",
    "num.io.threads", "num.network.threads", "num.replica.fetchers",
    "offsets.load.buffer.size", "offsets.topic.compression.codec",
    "offsets.topic.segment.bytes", "principal.builder.class",
    "producer.id.expiration.check.interval.ms", "producer.purgatory.purge.interval.requests",
    "queued.max.requests", "request.timeout.ms",
    "server.max.startup.time.ms", "socket.listen.backlog.size", "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes", "super.users", "telemetry.max.bytes",
    "transactional.id.expiration.ms",
    "unclean.leader.election.interval.ms", "unstable.api.versions.enable",
    "unstable.feature.versions.enable",
})  # fmt: skip

# A user who sets one of these keys relies on a protection that this broker does not give.
REFUSED_PREFIXES = ("config.providers", "sasl.", "ssl.")
REFUSED = frozenset({
    "alter.config.policy.class.name", "authorizer.class.name", "client.quota.callback.class",
    "create.topic.policy.class.name", "delegation.token.master.key", "delegation.token.secret.key",
    "security.providers",
})  # fmt: skip


def is_refused(key: str) -> bool:
    """Report whether a key belongs to TLS, SASL, access control, policies or secrets."""
    if key.startswith("listener.name."):
        return any(f".{prefix}" in key for prefix in ("sasl.", "ssl."))
    return key in REFUSED or key.startswith(REFUSED_PREFIXES)


def is_ignored(key: str) -> bool:
    """Report whether a key is a key of Kafka that has no meaning for a single broker."""
    return key in IGNORED or key.startswith(PREFIXES)
