"""List the keys of Kafka's `server.properties` that this broker ignores or refuses.

The lists have the keys of Kafka 4.1, and keys of earlier releases that old files contain.
"""

from __future__ import annotations

# Keys with these prefixes configure parts of Kafka. A single broker does not have these parts, or
# implements them in another way. A prefix of a key that the broker uses is not in this list:
# otherwise a typing error in such a key would look like a key of Kafka.
PREFIXES = (
    "alter.log.dirs.replication.quota.", "broker.heartbeat.", "broker.session.",
    "controlled.shutdown.", "controller.", "delegation.token.", "group.coordinator.",
    "group.share.", "group.streams.", "internal.", "kafka.metrics.", "leader.imbalance.",
    "listener.name.",
    "log.cleaner.io.buffer.", "log.local.", "log.roll.jitter.", "metadata.", "metrics.",
    "offsets.commit.required.", "password.encoder.", "quota.", "remote.",
    "replication.quota.", "share.", "socket.connection.setup.", "zookeeper.ssl.",
)  # fmt: skip
IGNORED = frozenset({
    "add.partitions.to.txn.retry.backoff.max.ms", "add.partitions.to.txn.retry.backoff.ms",
    "advertised.host.name", "advertised.port",
    "auto.include.jmx.reporter", "auto.leader.rebalance.enable", "background.threads",
    "broker.id.generation.enable", "compression.gzip.level",
    "compression.lz4.level", "compression.zstd.level",
    "control.plane.listener.name",
    "delete.records.purgatory.purge.interval.requests", "early.start.listeners",
    "eligible.leader.replicas.enable", "fetch.purgatory.purge.interval.requests",
    "initial.broker.registration.timeout.ms",
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
    "socket.send.buffer.bytes", "telemetry.max.bytes",
    "unclean.leader.election.interval.ms", "unstable.api.versions.enable",
    "unstable.feature.versions.enable",
    "group.consumer.max.heartbeat.interval.ms", "group.consumer.max.session.timeout.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms", "group.consumer.regex.refresh.interval.ms",
    "replica.fetch.backoff.ms", "replica.fetch.min.bytes", "replica.fetch.wait.max.ms",
    "replica.high.watermark.checkpoint.interval.ms", "replica.lag.max.messages",
    "replica.socket.receive.buffer.bytes", "replica.socket.timeout.ms",
    "transaction.partition.verification.enable", "transaction.state.log.load.buffer.size",
    "transaction.state.log.min.isr", "transaction.state.log.segment.bytes",
    "transaction.two.phase.commit.enable", "zookeeper.clientCnxnSocket",
    "zookeeper.connection.timeout.ms", "zookeeper.max.in.flight.requests",
    "zookeeper.metadata.migration.enable", "zookeeper.sync.time.ms",
})  # fmt: skip

# These keys ask for a protection that this broker gives in another way, or does not give.
# For each key, or for the first part of a key, the text says what the user should do.
SECRET = "a secret does not belong in this file"
PEM_FILE = "write the PEM text to a file, and name the file"
ADVICE = {
    "ssl.keystore.password": f"{SECRET}: remove it, for PEM files have no such password",
    "ssl.truststore.password": f"{SECRET}: remove it, for PEM files have no such password",
    "ssl.key.password": f"{SECRET}: write it to a file, and name the file in ssl.key.password.file",
    "ssl.keystore.": f"{PEM_FILE} in ssl.keystore.location",
    "ssl.truststore.": f"{PEM_FILE} in ssl.truststore.location",
    "sasl.jaas.config": f"{SECRET}: write the users of PLAIN to a file that sasl.users.file names, "
    "and the user of this broker to a file that sasl.inter.broker.credentials.file names",
    "ssl.": "this broker cannot change this part of TLS: remove the key",
    "sasl.": "this broker has PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 only: remove the key",
    "config.providers": "this broker reads no secrets from other places: remove the key",
    "alter.config.policy.class.name": "this broker has no policies: remove the key",
    "client.quota.callback.class": "this broker has no quota callbacks: remove the key",
    "create.topic.policy.class.name": "this broker has no policies: remove the key",
    "delegation.token.master.key": "this broker has no delegation tokens: remove the key",
    "delegation.token.secret.key": "this broker has no delegation tokens: remove the key",
    "security.providers": "this broker uses OpenSSL: remove the key",
}
# These keys of TLS choose parts of Java, so this broker does not use them.
JAVA = frozenset({
    "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
})  # fmt: skip


def advice_for(key: str) -> str:
    """If a key asks for a protection that this broker lacks, return what to do; otherwise ""."""
    if key in JAVA:
        return ""
    if key.startswith("listener.name."):
        *_, rest = key.split(".", maxsplit=3)
        if rest.endswith("sasl.jaas.config"):
            return ADVICE["sasl.jaas.config"]
        if any(f".{prefix}" in key for prefix in ("sasl.", "ssl.")):
            return f"all listeners share one setting: remove the key, and set {rest}"
        return ""
    for known, advice in ADVICE.items():
        if key == known or (known.endswith((".", "providers")) and key.startswith(known)):
            return advice
    return ""


def is_ignored(key: str) -> bool:
    """Report whether Kafka has this key, and a single broker does not use it."""
    return key in IGNORED or key in JAVA or key.startswith(PREFIXES)
