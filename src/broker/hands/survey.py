"""Find out what a take-over would do with the log dirs of a Kafka broker. Change nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.catalog.settings import BROKER_KEYS, InvalidSettingError, config_of, field_of
from broker.hands import kraft_log
from broker.hands.kraft_image import Image
from logstore import LogConfig, LogStore, LogStoreError, TopicPartition
from logstore.disk import files
from logstore.log import host
from logstore.store.kafka.broker_listing import META, KafkaMeta, read_meta
from logstore.store.kafka.broker_view import check_one_broker
from logstore.store.kafka.hands import DOCUMENT_NAME, WORK_DIRS

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
POLICY, LIMITS = "cleanup.policy", ("retention.bytes", "retention.ms")
TIERED = "remote.storage.enable"
META_VERSIONS = ("0", "1")
NAMES_MAX = 20  # the largest number of names in one sentence
ANEW = (
    "Start Kafka and stop it cleanly, so that it writes the file again. Or remove the file: then "
    "no log is compared with it, and a log without its log start begins at its first segment"
)
MEND = (
    "a take-over would lose records there. If Kafka was not stopped cleanly, start it and stop it "
    "cleanly: it repairs its logs. Otherwise restore these files first"
)


class FoundLog(NamedTuple):
    """A partition in Kafka's log dirs."""

    log_dir: str
    topic_id: bytes
    size_bytes: int


@dataclass
class Survey:
    """The facts that were found.

    Attributes:
        cluster_id, node_id: the values in Kafka's `meta.properties`.
        logs: the partitions to take over.
        known: the partitions that Kafka's metadata lists, with their topic ids. If there is no
            metadata log, these are the partitions in the log dirs.
        configs: the configuration of each topic.
        problems: the reasons why the log dirs cannot be taken over.
        warnings: facts that the user should know before the take-over.
    """

    cluster_id: str = ""
    node_id: str = ""
    logs: dict[TopicPartition, FoundLog] = field(default_factory=dict)
    known: dict[TopicPartition, bytes] = field(default_factory=dict)
    configs: dict[str, LogConfig] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def survey(paths: Sequence[str], defaults: LogConfig, metadata_dir: str | None) -> Survey:
    """Examine the log dirs.

    Args:
        defaults: the configuration of topics that have no settings.
        metadata_dir: the directory with the metadata log of the cluster, if it is not a log dir.

    Raises:
        OSError: a disk failed.
    """
    found = Survey()
    try:
        metas = _identities(paths, found)
        if not found.problems:
            _list_logs(paths, found)
    except LogStoreError as error:
        found.problems.append(str(error))
        return found
    if not found.problems:
        image = _image(paths, metadata_dir, found)
        if image is not None:
            _compare(image, metas, found)
        elif not found.problems:
            _guess(found)
        if not found.problems:
            _configure(image, defaults, found)
    return found


def _identities(paths: Sequence[str], found: Survey) -> dict[str, KafkaMeta | None]:
    """Check that all log dirs belong to one broker, and that their version is known."""
    metas: dict[str, KafkaMeta | None] = {}
    for path in paths:
        try:
            metas[path] = read_meta(path)
        except FileNotFoundError:
            found.problems.append(f"{path}: there is no such directory")
            continue
        if metas[path] is None:
            found.problems.append(f"{path}: there is no {META}, so it is no log dir of Kafka")
        elif (version := _version_of(path)) not in META_VERSIONS:
            found.problems.append(f"{path}: its {META} has the unknown version {version!r}")
    check_one_broker(metas)
    known = [meta for meta in metas.values() if meta is not None]
    if known:
        found.cluster_id = max(meta.cluster_id for meta in known)
        found.node_id = max(meta.node_id for meta in known)
        if not (found.node_id.isdigit() and int(found.node_id) < 2**31):
            found.problems.append(f"the broker has the unusable id {found.node_id!r}")
    return metas


def _version_of(path: str) -> str:
    text = files.read_file(os.path.join(path, META)).decode("utf-8", "replace")
    rows = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return next((value.strip() for key, _, value in rows if key.strip() == "version"), "")


def _list_logs(paths: Sequence[str], found: Survey) -> None:
    """List the partitions, and the reasons why some of them cannot be read."""
    with LogStore.open_kafka(list(paths)) as source:
        report = source.recovery_report
        found.problems += [f"{one.path}: {one.reason}" for one in report.offline_dirs]
        found.problems += [f"{one.topic_partition}: {one.error}" for one in report.offline]
        damaged = [f"{path}: {reason}" for path, reason in report.damaged_files]
        found.problems += [f"{one}. {ANEW}" for one in damaged]
        found.warnings += [
            one for one in report.warnings if one not in damaged and not _is_of_change(one)
        ]
        damage: list[str] = []
        for key in source:
            if key.topic == kraft_log.TOPIC or source.host.replicas.offline.get(key):
                continue
            log = source.log(*key)
            place = os.path.dirname(log.directory)
            found.logs[key] = FoundLog(place, log.topic_id, log.size_bytes)
            problems = host.end_problems(log)
            damage += [f"{key}: {one}" for one in problems]
            if log.recovery.cut_bytes and not problems:
                found.warnings.append(
                    f"{key}: {log.recovery.cut_reason}: {log.recovery.cut_bytes} bytes after "
                    f"offset {log.log_end_offset}"
                )
        found.problems += refusal_of(damage)


def _is_of_change(warning: str) -> bool:
    """Check whether a warning is about a file of an interrupted take-over."""
    name = os.path.basename(warning.partition(": ")[0])
    return name in WORK_DIRS or name.startswith(DOCUMENT_NAME)


def _image(paths: Sequence[str], metadata_dir: str | None, found: Survey) -> Image | None:
    """Read the metadata log, if one is found."""
    places = [metadata_dir] if metadata_dir is not None else list(paths)
    for place in places:
        try:
            if kraft_log.has_log(place):
                meta = read_meta(place)
                if meta is not None and meta.cluster_id not in ("", found.cluster_id):
                    found.problems.append(
                        f"{place}: this metadata log belongs to the cluster {meta.cluster_id}, but "
                        f"the log dirs belong to the cluster {found.cluster_id}"
                    )
                    return None
                return kraft_log.read_image(place)
        except (LogStoreError, OSError) as error:
            found.problems.append(f"the metadata log in {place} cannot be read: {error}")
            return None
    if metadata_dir is not None:
        found.problems.append(f"{metadata_dir}: there is no {kraft_log.DIR_NAME}")
    return None


def _compare(image: Image, metas: dict[str, KafkaMeta | None], found: Survey) -> None:
    """Compare the log dirs with the metadata log."""
    node = int(found.node_id)
    elsewhere = sorted(
        f"{topic.name}-{number}"
        for topic in image.topics.values()
        for number, brokers in topic.replicas.items()
        if brokers != (node,)
    )
    if elsewhere:
        found.problems.append(
            f"other brokers have replicas of {_some(elsewhere)}: only a broker that has the only "
            "replica of each partition can be taken over"
        )
    given = {meta.directory_id for meta in metas.values() if meta is not None}
    found.problems += [
        f"log dir {one} of the broker was not named"
        for one in image.brokers.get(node, ())
        if one not in given
    ]
    found.known = image.partitions()
    if found.logs and not found.logs.keys() & found.known.keys():
        found.problems.append(
            "the metadata log knows no partition of these log dirs: it belongs to another broker, "
            "or its directory is not the newest"
        )
        return
    absent = sorted(str(key) for key in found.known.keys() - found.logs.keys())
    if absent and not elsewhere:
        found.problems.append(f"no log dir has the partitions {_some(absent)}")
    for key in sorted(found.logs.keys() - found.known.keys()):
        found.warnings.append(f"{key}: Kafka does not know this partition; it is not taken over")
        del found.logs[key]
    for key, log in found.logs.items():
        if any(log.topic_id) and log.topic_id != found.known[key]:
            found.problems.append(f"{key}: its directory has the id of another topic")


def _guess(found: Survey) -> None:
    """Without a metadata log, find out from the log dirs what Kafka knows.

    If only some partitions of a topic have a topic id, the other partitions get the same id. If a
    number is missing among the partitions of a topic, a log dir may be missing.
    """
    ids: dict[str, set[bytes]] = {}
    for key, log in found.logs.items():
        ids.setdefault(key.topic, set()).update({log.topic_id} - {bytes(16)})
    found.problems += [
        f"topic {topic}: its partitions have {len(some)} different topic ids, and no metadata log "
        "is named: name it, or remove the partitions of a deleted topic"
        for topic, some in sorted(ids.items())
        if len(some) > 1
    ]
    for topic in sorted(ids):
        absent = _gaps(sorted(key.partition for key in found.logs if key.topic == topic))
        if absent:
            found.warnings.append(
                f"topic {topic}: no log dir has its partitions {_some(absent)}; "
                "perhaps not all log dirs are named"
            )
    # Before Kafka 2.8, topics had no ids.
    found.known = {key: max(ids[key.topic], default=bytes(16)) for key in found.logs}


def _gaps(numbers: list[int]) -> list[str]:
    """List the partition numbers that are missing below the largest partition number."""
    found = []
    for before, number in zip([-1, *numbers], numbers, strict=False):
        if number > before + 1:
            last = f" to {number - 1}" if number > before + 2 else ""
            found.append(f"{before + 1}{last}")
    return found


def _configure(image: Image | None, defaults: LogConfig, found: Survey) -> None:
    """Choose the configuration of each topic."""
    topics = sorted({key.topic for key in found.logs})
    # If these defaults are changed while Kafka runs, only the metadata log has the new values.
    inherited = {
        key: image.broker_configs[name][BROKER_KEYS[key]]
        for name in ("", found.node_id)
        for key in BROKER_KEYS
        if image is not None and BROKER_KEYS[key] in image.broker_configs.get(name, {})
    }
    for topic in topics:
        settings = dict(inherited)
        if topic in INTERNAL_TOPICS:
            settings[POLICY] = "compact"
        settings |= {} if image is None else image.configs.get(topic, {})
        found.configs[topic] = defaults
        if settings.get(TIERED, "").strip().lower() == "true":
            found.problems.append(
                f"topic {topic}: {TIERED} is set, so Kafka keeps a part of its records in another "
                "storage, which cannot be taken over"
            )
        unread: set[str] = set()
        for key, text in settings.items():
            try:
                found.configs[topic] = config_of([(key, text)], found.configs[topic])
            except InvalidSettingError as error:
                found.warnings.append(f"topic {topic}: a setting is left out: {error}")
                unread.add(key)
        if image is None and topic not in INTERNAL_TOPICS:
            unread.add(POLICY)
        found.configs[topic] = _without_limits(found.configs[topic], unread)
        if image is not None and unread & {POLICY, *LIMITS}:
            found.warnings.append(f"topic {topic}: no record is deleted, until you set its limits")
    if image is None:
        found.warnings += [
            f"topic {topic}: its settings are unknown, because no metadata log is named; it gets "
            "the defaults, without limits of time and size"
            for topic in topics
            if topic not in INTERNAL_TOPICS
        ]


def _without_limits(config: LogConfig, unread: set[str]) -> LogConfig:
    """Remove each limit that cannot be read.

    If such a limit stayed, the store could delete too many records.
    """
    if POLICY in unread:
        config, unread = config.replace(cleanup_policy="delete"), {*unread, *LIMITS}
    return config.replace(**{field_of(key): None for key in LIMITS if key in unread})


def refusal_of(damage: list[str]) -> list[str]:
    """List the damage that prevents a take-over, and what to do; [] if there is no damage."""
    if not damage:
        return []
    more = len(damage) - NAMES_MAX
    return [*damage[:NAMES_MAX], *([f"{more} more places are damaged"] if more > 0 else []), MEND]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more
