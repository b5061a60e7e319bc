"""Find replicas whose topic the cluster does not know; keep the replicas, and raise an alarm.

If a topic is deleted, the coordination store lists which replicas must be deleted (P19). If the
store neither has the topic of a replica nor lists the replica, no request has deleted the topic. So
a user removed the znodes of the topic, or the store is an older copy, or it is another store. The
replica may still be needed, so it is not deleted. An operator must restore the store, or delete the
replica.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from cluster.registration import NO_BROKER, NO_TOPIC
from cluster.run.hosted_replica import HostedReplica
from cluster.view import ClusterView
from cluster.wire.topic_ids import bytes_of

LOG = logging.getLogger("cluster")
LOOK_SECONDS = 5.0
# A topic must be unknown for this long.
# The reason is that a broker's metadata may be older than the role of a replica.
UNKNOWN_SECONDS = 30.0
SHOWN_MAX = 10

Place = tuple[str, int]  # topic name and partition


class Orphans:
    """The replicas of one broker whose topics the cluster does not know.

    Threads: one thread at a time calls `look`; any thread may read `found`.

    Attributes:
        found: the reported replicas that still exist.
    """

    def __init__(
        self,
        alarm: Callable[[str, int, str], object],
        unknown_seconds: float = UNKNOWN_SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Begin without orphans.

        Args:
            alarm: this function is called once for each replica, with its topic name, its
                partition, and the reason.
        """
        self._alarm = alarm
        self._unknown_seconds, self._look_seconds = unknown_seconds, look_seconds
        self._look_at = 0.0
        self._unknown_since: dict[Place, float] = {}
        self.found: frozenset[Place] = frozenset()

    def look(self, replicas: Iterable[HostedReplica], view: ClusterView, now: float) -> None:
        """Compare the replicas with the broker's metadata, but only from time to time."""
        if now < self._look_at or view.controller_id == NO_BROKER:
            return
        self._look_at = now + self._look_seconds
        unknown = {(one.name, one.number): one for one in replicas if _is_unknown(one, view)}
        self._unknown_since = {place: self._unknown_since.get(place, now) for place in unknown}
        is_late = now - self._unknown_seconds
        found = {place for place, since in self._unknown_since.items() if since <= is_late}
        new = sorted(found - self.found)
        self.found = frozenset(found)
        if new:
            shown = ", ".join(f"{name}-{number}" for name, number in new[:SHOWN_MAX])
            LOG.error(
                "the cluster does not know the topics of %d replicas, which are kept: %s%s",
                len(new), shown, " and others" if len(new) > SHOWN_MAX else "",
            )  # fmt: skip
        for name, number in new:
            topic_id = unknown[name, number].topic.topic_id
            reason = f"the cluster does not know its topic, {topic_id or name}; the replica is kept"
            self._alarm(name, number, reason)


def _is_unknown(replica: HostedReplica, view: ClusterView) -> bool:
    """Report whether a replica exists and its topic is unknown.

    If the replica has no topic id, compare the name.
    """
    topic_id = replica.topic.topic_id
    if replica.log is None:
        return False
    if topic_id == NO_TOPIC.topic_id:
        return replica.name not in view.topics
    try:
        return bytes_of(topic_id) not in view.ids
    except ValueError:  # the topic id in the log is not valid
        return True
