"""Define the changes of topics that clients ask for, with or without a cluster.

The handlers of requests know only `TopicAdmin`. `sole_topic_admin` implements it for a broker
without a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from broker.catalog.setting_changes import Change
from broker.catalog.settings import Synonym
from broker.catalog.topics import Topic
from broker.wire.error_codes import ErrorCode
from logstore.names import validate_topic

DEFAULT = -1  # the client lets the broker choose this number
PARTITIONS_MAX = 100_000  # the largest number of partitions of a topic that a client creates


class TopicRefusedError(Exception):
    """Report why a change of a topic is refused, and the code for the client."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class NewTopic(NamedTuple):
    """A topic that a client wants to create.

    Attributes:
        partitions, replication_factor: DEFAULT leaves the number to the broker.
        assignment: the number and the brokers of each partition; empty if the broker chooses them.
        settings: Kafka's keys and values; the value None means the default.
    """

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Sequence[tuple[int, Sequence[int]]] = ()
    settings: Sequence[tuple[str, str | None]] = ()


class SettingRow(NamedTuple):
    """A setting as clients see it. `type` has one of Kafka's numbers."""

    key: str
    text: str
    type: int
    synonyms: list[Synonym]
    is_read_only: bool


class CreatedTopic(NamedTuple):
    """A topic that was created. After a dry run, its id is zero."""

    topic: Topic
    replication_factor: int
    settings: list[SettingRow]


def collision(name: str, others: Iterable[str]) -> str | None:
    """Find a name that differs only in "." and "_"; Kafka's metrics cannot distinguish the two."""
    if "." not in name and "_" not in name:
        return None
    wanted = name.replace(".", "_")
    return next((one for one in others if one != name and one.replace(".", "_") == wanted), None)


def check_name(name: str) -> None:
    """Refuse a name that breaks Kafka's rules."""
    try:
        validate_topic(name)
    except ValueError as error:
        raise TopicRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error


def collides(other: str) -> TopicRefusedError:
    """Make the error for a name that collides with another topic's name."""
    reason = f'the topic {other!r} has the same name if "." and "_" are the same'
    return TopicRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def exists(name: str) -> TopicRefusedError:
    """Make the error for a name that another topic has."""
    reason = f"the topic {name!r} exists already"
    return TopicRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, reason)


def unknown(name: str) -> TopicRefusedError:
    """Make the error for a change of a topic that does not exist."""
    reason = f"there is no topic {name!r}"
    return TopicRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)


def check_numbers(wanted: NewTopic) -> None:
    """Refuse an assignment with a gap, and numbers that are given together with an assignment."""
    if wanted.partitions != DEFAULT or wanted.replication_factor != DEFAULT:
        raise TopicRefusedError(
            ErrorCode.INVALID_REQUEST,
            "give either an assignment or the numbers of partitions and replicas, not both",
        )
    numbers = sorted(number for number, _ in wanted.assignment)
    if numbers != list(range(len(numbers))):
        raise TopicRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered from 0, without a gap"
        )


def partition_count(wanted: NewTopic, default: int) -> int:
    """Return the number of partitions of a new topic that has no assignment."""
    if wanted.partitions == DEFAULT:
        return default
    if not 1 <= wanted.partitions <= PARTITIONS_MAX:
        raise TopicRefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"the number of partitions must be 1 to {PARTITIONS_MAX}, not {wanted.partitions}",
        )
    return wanted.partitions


def check_growth(topic: Topic, count: int) -> None:
    """Refuse a new number of partitions that the topic cannot have."""
    if topic.is_internal:
        reason = "the number of partitions decides where a group is stored, so the number is fixed"
        raise TopicRefusedError(ErrorCode.INVALID_REQUEST, reason)
    known = len(topic.partitions)
    if not known < count <= PARTITIONS_MAX:
        reason = (
            f"the topic has {known} partitions; the new number must be larger, and at most "
            f"{PARTITIONS_MAX}, not {count}"
        )
        raise TopicRefusedError(ErrorCode.INVALID_PARTITIONS, reason)


class TopicAdmin(Protocol):
    """Change topics. Each change happens as a whole or not at all, unless a method says otherwise.

    All methods raise `TopicRefusedError` if a change is refused, and `LogStoreError` if a disk
    fails. Any thread may call any method.
    """

    @property
    def setting_keys(self) -> Collection[str]:
        """The keys of all settings that a topic can have."""

    def create(self, wanted: NewTopic, *, is_dry: bool = False) -> CreatedTopic:
        """Create a topic."""

    def find(self, name: str | None, topic_id: bytes) -> Topic | None:
        """Find a topic by its name, or by its id if the name is None."""

    def delete(self, topic: Topic) -> None:
        """Delete a topic. Another topic with the same name stays."""

    def add_partitions(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None,
        *,
        is_dry: bool = False,
    ) -> Topic:
        """Add partitions to a topic until it has `count`; return the topic with all partitions.

        Args:
            assignment: the brokers of each new partition; None if the broker chooses them.
        """

    def alter(self, name: str, changes: Sequence[Change], *, is_dry: bool = False) -> None:
        """Change a topic's settings on all its partitions; if `is_dry`, only check the change."""

    def settings_of(self, name: str) -> list[SettingRow]:
        """Describe the settings of a topic."""

    # --- when clients see a change ----------------------------------------------------------------

    def is_ready(self, topic: Topic) -> bool:
        """Report whether the metadata of this broker has the topic with all its leaders."""

    def is_gone(self, topic: Topic) -> bool:
        """Report whether the metadata of this broker no longer has the topic."""

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each change of the metadata; return a function that stops the calls."""
