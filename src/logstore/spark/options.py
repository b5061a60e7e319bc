"""Read the options of the source and the sink; the names are the same as for Spark's Kafka source.

An unknown option is refused, and the error names the nearest known option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from logstore.log.read.isolation import READ_COMMITTED, READ_UNCOMMITTED
from logstore.names import TopicPartition, validate_topic

ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)  # the levels of Kafka's consumers

EARLIEST, LATEST = -2, -1
OFFSET_NAMES = {"earliest": EARLIEST, "latest": LATEST}
OFFSETS_EXAMPLE = '{"orders": {"0": 23, "1": 45}}'
BOUND_SYNONYMS = {
    "beginning": "earliest", "start": "earliest", "first": "earliest", "oldest": "earliest",
    "end": "latest", "last": "latest", "newest": "latest", "now": "latest",
}  # fmt: skip

READ_OPTIONS = (
    "logDirs", "kafkaLogDirs", "brokers", "localReplicas", "subscribe", "subscribePattern",
    "assign", "columns", "includeHeaders",
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions",
    "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "kafka.isolation.level", "kafka.bootstrap.servers", "kafka.security.protocol",
    "topic", "isolationLevel",
)  # fmt: skip
# A second name for an option, and the name under which the options are read.
SYNONYMS = {"topic": "subscribe", "isolationLevel": "kafka.isolation.level"}
# Options for a connection to brokers are ignored.
# So a job that was written for Kafka can keep its options.
# `includeHeaders` has no effect on writes.
# As in Kafka's sink, headers are written if there is a column `headers`.
IGNORED = re.compile(
    r"kafka\..*|kafkaconsumer\..*|fetchoffset\..*|groupidprefix|checkpointlocation|includeheaders"
)
MILLISECONDS = {
    "us": 0.001, "ms": 1, "": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000,
    "d": 86_400_000,
}  # fmt: skip

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
READ_FROM = "readFrom"
OPTIONAL_COLUMNS = (HEADERS, READ_FROM)

PartitionOffsets = dict[TopicPartition, int]
# One value for all partitions, or one value for each partition.
Bound = int | PartitionOffsets


class Place(NamedTuple):
    """Identify a store by all its log dirs; `is_kafka` is True if a Kafka broker owns them."""

    log_dirs: tuple[str, ...]
    is_kafka: bool = False


class ReadOptions(NamedTuple):
    """Hold the checked options of the source, in a form that can be pickled.

    Attributes:
        brokers: the addresses of brokers of a cluster; "" if the log dirs of a store are read.
        uses_local_replicas: whether tasks read replicas of the cluster on their machine.
    """

    place: Place
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    columns: tuple[str, ...]
    starting: Bound
    ending: Bound
    starting_times: Bound | None
    ending_times: Bound | None
    is_late_start_latest: bool
    fails_on_data_loss: bool
    partitions_min: int
    records_per_piece_max: int | None
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int
    trigger_delay_ms_max: float
    is_committed: bool
    brokers: str = ""
    uses_local_replicas: bool = True

    def is_wanted(self, key: TopicPartition) -> bool:
        """Report whether the options select a partition, even if the partition does not exist."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, key.topic) is not None
        return key in self.assigned or key.topic in self.topics


def check_names(given: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """Return the options under their exact names, because Spark passes names in lower case.

    Raises:
        ValueError: an option is unknown.
    """
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    found = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in names:
            found[names[lower]] = value
        elif not IGNORED.fullmatch(lower):
            nearest = names[get_close_matches(lower, names, n=1, cutoff=0.0)[0]]
            raise ValueError(
                f"format logstore has no option {name!r}; did you mean {nearest!r}? "
                f"It has {', '.join(known)}"
            )
    return found


def read_options(given: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Check the options of a read; a ValueError says what is wrong and how to correct it."""
    options = check_names(given, READ_OPTIONS)
    _use_first_names(options)
    brokers = _brokers(options)
    topics, pattern, assigned = _selection(options)
    if is_stream and (unfit := [name for name in options if name.startswith("ending")]):
        raise ValueError(f"a stream has no end: leave out {unfit[0]}")
    starting_times = _times(options, "starting")
    ending_times = _times(options, "ending")
    if starting_times is not None:  # a time takes precedence over offsets
        options.pop("startingOffsets", None)
    if ending_times is not None:
        options.pop("endingOffsets", None)
    starting = _bound(options, "startingOffsets", LATEST if is_stream else EARLIEST)
    ending = _bound(options, "endingOffsets", LATEST)
    if not is_stream and LATEST in _values(starting):
        raise ValueError("startingOffsets: a batch read cannot begin at the latest offsets")
    if EARLIEST in _values(ending):
        raise ValueError("endingOffsets: a read cannot end at the earliest offsets")
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ValueError(
            f'startingOffsetsByTimestampStrategy must be "error" or "latest", not {strategy!r}'
        )
    isolation = options.get("kafka.isolation.level", READ_UNCOMMITTED).lower()
    if isolation not in ISOLATION_LEVELS:
        raise ValueError(f"kafka.isolation.level {isolation!r} is none of {ISOLATION_LEVELS}")
    most = _limit(options, "maxOffsetsPerTrigger")
    least = number(options, "minOffsetsPerTrigger", 0, "0")
    if most is not None and least > most:
        raise ValueError(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
    return ReadOptions(
        place=Place(() if brokers else log_dirs_of(options), flag(options, "kafkaLogDirs", False)),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        columns=_columns(options),
        starting=starting,
        ending=ending,
        starting_times=starting_times,
        ending_times=ending_times,
        is_late_start_latest=strategy == "latest",
        fails_on_data_loss=flag(options, "failOnDataLoss", True),
        partitions_min=number(options, "minPartitions", 1, "1"),
        records_per_piece_max=_limit(options, "maxRecordsPerPartition"),
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        trigger_delay_ms_max=_duration_ms(options, "maxTriggerDelay", "15m"),
        is_committed=isolation == READ_COMMITTED,
        brokers=brokers,
        uses_local_replicas=flag(options, "localReplicas", True),
    )


def _use_first_names(options: dict[str, str]) -> None:
    """Replace the second names of options; raise ValueError if both names are used."""
    for second, first in SYNONYMS.items():
        if second not in options:
            continue
        if first in options:
            raise ValueError(f"{second} and {first} are the same option: leave out one of them")
        options[first] = options.pop(second)


def _brokers(options: Mapping[str, str]) -> str:
    """Return the addresses of brokers to read from, or "" if log dirs are to be read."""
    if "logDirs" in options:
        if "brokers" in options:
            raise ValueError("set logDirs or brokers, not both")
        if "localReplicas" in options:
            raise ValueError("localReplicas belongs to brokers: leave it out if you set logDirs")
        return ""
    brokers = options.get("brokers", options.get("kafka.bootstrap.servers", "")).strip()
    if brokers and "kafkaLogDirs" in options:
        raise ValueError("kafkaLogDirs belongs to logDirs: leave it out if you set brokers")
    protocol = options.get("kafka.security.protocol", "PLAINTEXT")
    if brokers and protocol.upper() != "PLAINTEXT":
        raise ValueError(
            f"kafka.security.protocol {protocol!r}: a read from brokers cannot encrypt or log in "
            "yet. Name a listener of the protocol PLAINTEXT"
        )
    return brokers


def log_dirs_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Read `logDirs`: paths separated by commas, or a JSON list of paths."""
    text = options.get("logDirs", "").strip()
    if text.startswith("["):
        paths = _json(text, "logDirs", '["/disk1/logs", "/disk2/logs"]')
    else:
        paths = [path.strip() for path in text.split(",")]
    paths = [path for path in paths if path]
    if not paths:
        raise ValueError(
            'set the option logDirs to all log dirs of the store: "/disk1,/disk2", or set brokers '
            'to brokers of a cluster: "host:9092"'
        )
    return tuple(map(str, paths))


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Read an option that must be "true" or "false"."""
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ValueError(f'{name} must be "true" or "false", not {text!r}')
    return text == "true"


def number(options: Mapping[str, str], name: str, least: int = 1, default: str = "") -> int:
    """Read an option that must be a whole number, not less than `least`."""
    text = options.get(name, default)
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {text!r}") from None
    if value < least:
        raise ValueError(f"{name} {value} is less than {least}")
    return value


def _limit(options: Mapping[str, str], name: str) -> int | None:
    return number(options, name) if name in options else None


def _duration_ms(options: Mapping[str, str], name: str, default: str) -> float:
    """Read a duration as Spark does: a number with a unit, or a number of milliseconds."""
    text = options.get(name, default).strip().lower()
    found = re.fullmatch(r"(\d+) *([a-z]*)", text)
    if found is None or found[2] not in MILLISECONDS:
        raise ValueError(f'{name} must be like "15m", "30s" or "500ms", not {text!r}')
    return int(found[1]) * MILLISECONDS[found[2]]


def _selection(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    ways = [name for name in ("assign", "subscribe", "subscribePattern") if name in options]
    if len(ways) != 1:
        told = " and ".join(ways) or "none"
        raise ValueError(
            f"set exactly one of the options assign, subscribe, subscribePattern; now set: {told}"
        )
    text = options[ways[0]]
    if ways[0] == "subscribe":
        topics = sorted({topic.strip() for topic in text.split(",") if topic.strip()})
        if not topics:
            raise ValueError("subscribe contains no topic")
        return tuple(map(validate_topic, topics)), None, ()
    if ways[0] == "subscribePattern":
        pattern = text.strip()
        if not pattern:
            raise ValueError("subscribePattern is empty: it matches no topic")
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"subscribePattern {pattern!r}: {error}") from None
        return (), pattern, ()
    chosen = _json(text, "assign", '{"orders": [0, 1]}')
    try:
        keys = {TopicPartition(str(t), _whole(p)) for t, numbers in chosen.items() for p in numbers}
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f'assign must be like {{"orders": [0, 1]}}, not {text!r}') from None
    if not keys:
        raise ValueError("assign contains no partition")
    return (), None, tuple(sorted(keys))


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    has_headers = flag(options, "includeHeaders", False)
    if "columns" not in options:
        return COLUMNS + ((HEADERS,) if has_headers else ())
    known = {name.lower(): name for name in (*COLUMNS, *OPTIONAL_COLUMNS)}
    wanted = [name.strip() for name in options["columns"].split(",")]
    for name in wanted:
        if name.lower() not in known:
            raise ValueError(f"columns: there is no {name!r}, only {', '.join(known.values())}")
    columns = tuple(dict.fromkeys(known[name.lower()] for name in wanted))
    return columns + ((HEADERS,) if has_headers and HEADERS not in columns else ())


def _bound(options: Mapping[str, str], name: str, default: int) -> Bound:
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() in OFFSET_NAMES:
        return OFFSET_NAMES[text.strip().lower()]
    if not text.strip().startswith("{"):
        raise ValueError(
            f'{name} must be "earliest", "latest", or like {OFFSETS_EXAMPLE}, not {text!r}; '
            f"did you mean {_nearest_bound(text)!r}?"
        )
    return _by_partition(text, name, EARLIEST)


def _nearest_bound(text: str) -> str:
    """Return "earliest" or "latest", whichever is closer to a text in spelling or meaning."""
    from difflib import get_close_matches

    meant = {**BOUND_SYNONYMS, **{name: name for name in OFFSET_NAMES}}
    return meant[get_close_matches(text.strip().lower(), meant, n=1, cutoff=0.0)[0]]


def _times(options: Mapping[str, str], side: str) -> Bound | None:
    """Read the option for a starting or ending time, in ms since the epoch.

    Return one time for all partitions, or one time for each partition. If no such option is set,
    return None.
    """
    if f"{side}Timestamp" in options:
        return number(options, f"{side}Timestamp", 0)
    name = f"{side}OffsetsByTimestamp"
    return _by_partition(options[name], name, 0) if name in options else None


def _by_partition(text: str, name: str, least: int) -> PartitionOffsets:
    example = OFFSETS_EXAMPLE
    found = _json(text, name, example)
    try:
        values = {
            TopicPartition(str(topic), _whole(partition)): _whole(value)
            for topic, by_partition in found.items()
            for partition, value in by_partition.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"{name} must be like {example}, not {text!r}") from None
    for key, value in values.items():
        if value < least:
            raise ValueError(f"{name}: {value} of {key} is less than {least}")
    return values


def _whole(value: Any) -> int:
    """Read a whole number from JSON, in which keys are text; refuse other values (ValueError)."""
    if isinstance(value, bool | float):
        raise ValueError(value)
    return int(value)


def _values(bound: Bound) -> set[int]:
    return set(bound.values()) if isinstance(bound, dict) else {bound}


def _json(text: str, name: str, example: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{name} must be like {example}, not {text!r}") from None
