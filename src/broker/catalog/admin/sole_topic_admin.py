"""Change the topics of a broker without a cluster. This broker has all replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from broker.catalog.admin.topic_admin import (
    DEFAULT,
    CreatedTopic,
    NewTopic,
    SettingRow,
    TopicRefusedError,
    check_growth,
    check_name,
    check_numbers,
    collides,
    collision,
    exists,
    partition_count,
    unknown,
)
from broker.catalog.setting_changes import Change, altered
from broker.catalog.settings import (
    FIXED,
    KEYS,
    InvalidSettingError,
    check_together,
    config_of,
    synonyms_of,
    text_of,
)
from broker.catalog.topics import NO_ID, Topic, TopicCatalog
from broker.config import BrokerConfig
from broker.wire.error_codes import ErrorCode
from logstore import LogConfig, UnknownPartitionError


class SoleTopicAdmin:
    """Implement `TopicAdmin` for a broker without a cluster. Clients see changes at once."""

    def __init__(self, topics: TopicCatalog, config: BrokerConfig, broker_id: int) -> None:
        self._topics, self._config = topics, config
        self._replicas = [broker_id]

    @property
    def setting_keys(self) -> Collection[str]:
        """The keys of all settings that a topic can have."""
        return KEYS

    def create(self, wanted: NewTopic, *, is_dry: bool = False) -> CreatedTopic:
        """Create a topic."""
        name, defaults = wanted.name, self._config.log_config
        check_name(name)
        if self._topics.get(name) is not None:
            raise exists(name)
        other = collision(name, self._topics.current().by_name)
        if other is not None:
            raise collides(other)
        count = self._partition_count(wanted)
        try:
            keys = [key for key, _ in wanted.settings]
            config = check_together(config_of(wanted.settings, defaults), keys)
        except InvalidSettingError as error:
            raise TopicRefusedError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if is_dry:
            topic = Topic(name, NO_ID, tuple(range(count)))
        else:
            topic = self._topics.create(name, count, config)
        return CreatedTopic(topic, len(self._replicas), rows_of(config, defaults))

    def _partition_count(self, wanted: NewTopic) -> int:
        """Return the number of partitions of a new topic."""
        if wanted.assignment:
            check_numbers(wanted)
            if any(list(brokers) != self._replicas for _, brokers in wanted.assignment):
                raise TopicRefusedError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"each partition is on the brokers {self._replicas}",
                )
            return len(wanted.assignment)
        if wanted.replication_factor not in (DEFAULT, len(self._replicas)):
            raise TopicRefusedError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor is {wanted.replication_factor}, but there is only one "
                "broker",
            )
        return partition_count(wanted, self._config.num_partitions)

    def find(self, name: str | None, topic_id: bytes) -> Topic | None:
        """Find a topic by its name, or by its id if the name is None."""
        topics = self._topics.current()
        return topics.by_id.get(topic_id) if name is None else topics.by_name.get(name)

    def delete(self, topic: Topic) -> None:
        """Delete a topic. If a log dir does not work, its replicas are deleted when it returns."""
        self._topics.delete(topic)

    def add_partitions(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None,
        *,
        is_dry: bool = False,
    ) -> Topic:
        """Add partitions to a topic. If a disk fails, some partitions may have been added."""
        topic = self._topics.get(name)
        if topic is None:
            raise unknown(name)
        check_growth(topic, count)
        more = count - len(topic.partitions)
        if assignment is not None and [list(one) for one in assignment] != [self._replicas] * more:
            reason = f"each of the {more} new partitions is on the brokers {self._replicas}"
            raise TopicRefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        if not is_dry:
            now = self._topics.get(name)
            if now is None:  # another client has just deleted the topic
                raise unknown(name)
            self._topics.add_partitions(now, count)
        return topic._replace(partitions=tuple(range(count)))

    def alter(self, name: str, changes: Sequence[Change], *, is_dry: bool = False) -> None:
        """Change the settings of a topic.

        If a log dir hangs or does not work, its replicas get the settings when it returns. A change
        that adds elements to a list, or removes some, begins with the topic's present list.
        """
        topic, defaults = self._known(name), self._config.log_config

        def changes_of(config: LogConfig) -> dict[str, object]:
            return altered(changes, config, defaults)

        if is_dry:
            changes_of(self._topics.config_of(topic))
        else:
            self._topics.alter(topic, changes_of)

    def settings_of(self, name: str) -> list[SettingRow]:
        """Describe the settings of a topic."""
        config = self._topics.config_of(self._known(name))
        return rows_of(config, self._config.log_config)

    def _known(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownPartitionError(topic=name, partition=0)
        return topic

    def is_ready(self, topic: Topic) -> bool:
        """Return True, because clients see a new topic at once."""
        return True

    def is_gone(self, topic: Topic) -> bool:
        """Return True, because clients see a deletion at once."""
        return True

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Never call `wake`, because clients see each change at once."""
        return lambda: None


def rows_of(config: LogConfig, defaults: LogConfig) -> list[SettingRow]:
    """Describe the settings of a topic.

    Args:
        config: the configuration of the topic.
        defaults: the configuration of topics that are created without settings.
    """
    rows = [
        SettingRow(
            key, text_of(key, config), setting.type, synonyms_of(key, config, defaults), False
        )
        for key, setting in KEYS.items()
    ]
    for key, (kind, text) in FIXED.items():
        rows.append(SettingRow(key, text, kind, synonyms_of(key, config, defaults), True))
    return rows
