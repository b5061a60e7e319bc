"""List the topics of a cluster for the handlers of requests, from the controller's metadata."""

from __future__ import annotations

from broker.catalog.leadership import NotServedError
from broker.catalog.topics import NO_ID, Topic, Topics
from broker.wire.error_codes import ErrorCode
from cluster.run.metadata_cache import MetadataCache
from cluster.serve.cluster_leadership import ClusterLeadership
from cluster.view import EMPTY, ClusterView, TopicView
from logstore import Log, LogConfig, LogStore


class ClusterTopics:
    """Implement `ServedTopics` for a broker of a cluster.

    Threads: any thread may call any method. The list of all topics is made when a request needs it,
    and is used until the metadata changes.
    """

    def __init__(
        self, store: LogStore, metadata: MetadataCache, leadership: ClusterLeadership
    ) -> None:
        self.store = store
        self._metadata, self._leadership = metadata, leadership
        self._listed: tuple[ClusterView, Topics] = EMPTY, Topics({}, {})

    @property
    def is_known(self) -> bool:
        """Whether a controller has sent the topics since this broker started."""
        return self._metadata.view.is_known

    def start(self) -> None:
        """Do nothing, because the controller sends the changes."""

    def close(self) -> None:
        """Do nothing."""

    def current(self) -> Topics:
        """Return all topics as they are now, in the order of their names."""
        view, topics = self._listed
        if view is not self._metadata.view:
            view = self._metadata.view
            known = topics.by_name
            by_name = {
                name: _topic(view.topics[name], known.get(name)) for name in sorted(view.topics)
            }
            topics = Topics(by_name, {topic.id: topic for topic in by_name.values()})
            self._listed = view, topics
        return topics

    def get(self, name: str) -> Topic | None:
        """Find a topic by its name."""
        found = self._metadata.view.topics.get(name)
        return None if found is None else _topic(found, self._listed[1].by_name.get(name))

    def name_of(self, topic_id: bytes) -> str | None:
        """Find a topic's name by its id."""
        return self._metadata.view.ids.get(topic_id)

    def id_of(self, name: str, partition: int) -> bytes:
        """Return the id of a topic; return NO_ID if this broker does not know the topic."""
        found = self._metadata.view.topics.get(name)
        return NO_ID if found is None else found.topic_id

    def log(self, name: str, partition: int) -> Log:
        """Find the log of a partition that this broker leads."""
        return self._leadership.log(name, partition)

    def create(self, name: str, partitions: int, config: LogConfig) -> Topic:
        """Raise an error: in a cluster, `TopicAdmin` creates topics."""
        raise NotServedError(
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            reason=f"a broker of a cluster cannot create {name} by itself",
        )


def _topic(found: TopicView, known: Topic | None) -> Topic:
    """Describe a topic. If the partitions have not changed, use the same tuple."""
    is_same = (
        known is not None
        and known.id == found.topic_id
        and len(known.partitions) == len(found.partitions)
        and known.partitions == (*found.partitions,)
    )
    if known is not None and is_same:
        return known
    return Topic(found.name, found.topic_id, tuple(found.partitions))
