"""Delete offsets and groups that are not needed (KIP-211), and offsets of deleted topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from broker.coordinator import group_kinds
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.hosted import Hosted
from broker.coordinator.shard import Shard
from broker.groups.group import State
from broker.groups.offsets import NO_ID, expired
from broker.machines.exchange import Scheduler

LOG = logging.getLogger("broker")


class OffsetUpkeep:
    """Delete expired offsets of all groups at regular intervals.

    Args:
        retention: the seconds for which an offset is kept after its last use.
        interval: seconds between two checks.
    """

    def __init__(self, coordinator: GroupCoordinator, retention: float, interval: float) -> None:
        self._coordinator = coordinator
        self._retention_ms = int(retention * 1000)
        self._interval = interval
        self._scheduler: Scheduler | None = None
        self._timer: object = None

    def start(self, scheduler: Scheduler) -> None:
        """Begin the regular checks."""
        self._scheduler = scheduler
        self._set_timer()

    def _set_timer(self) -> None:
        assert self._scheduler is not None
        deadline = self._coordinator.now().seconds + self._interval
        self._timer = self._scheduler.call_at(deadline, self._run)

    def _run(self) -> None:
        try:
            self.delete_expired()
        except Exception:  # an error must not prevent the next check
            LOG.exception("expired offsets were not deleted")
        self._set_timer()

    def delete_expired(self) -> None:
        """Delete the offsets whose retention is over. Then delete the groups without offsets."""
        self._for_each(self._delete_expired)

    def _delete_expired(self, shard: Shard[Hosted], hosted: Hosted) -> None:
        if hosted.writes or hosted.pending:  # a newer commit may not be replicated yet
            return
        group, now_ms = hosted.group, self._coordinator.now().wall_ms
        subscribed = group_kinds.subscribed(group)
        keys = expired(group, hosted.offsets, subscribed, self._retention_ms, now_ms)
        is_idle = group.state is State.EMPTY and not group.pending
        if is_idle and len(keys) == len(hosted.offsets):
            if keys or now_ms >= group.since_ms + self._retention_ms:
                self._coordinator.delete(shard, hosted)
        else:
            self._coordinator.delete_offsets(shard, hosted, keys)

    def forget_topic(self, topic: str, topic_id: bytes = NO_ID) -> None:
        """Delete the offsets of a deleted topic, because a new topic may get the same name.

        Args:
            topic_id: the id of the deleted topic. If this id is known, the offsets of a newer topic
                with the same name are kept.
        """

        def forget(shard: Shard[Hosted], hosted: Hosted) -> None:
            keys = [
                key
                for key, one in hosted.offsets.items()
                if key[0] == topic and one.is_of(topic_id)
            ]
            self._coordinator.delete_offsets(shard, hosted, keys)

        self._for_each(forget)

    def forget_soon(self, topic: str, topic_id: bytes) -> None:
        """Delete the offsets of a deleted topic in another thread."""

        def forget() -> None:
            try:
                self.forget_topic(topic, topic_id)
            except Exception:  # a task must not raise an error
                LOG.exception("the offsets of the deleted topic %r are kept", topic)

        if self._scheduler is not None:
            self._scheduler.submit(forget)

    def _for_each(self, change: Callable[[Shard[Hosted], Hosted], None]) -> None:
        """Call `change` for each loaded group; skip groups that cannot be changed now."""
        for name in list(self._names()):
            try:
                with self._coordinator.using(name) as (shard, hosted):
                    change(shard, hosted)
            except CoordinatorError as error:
                LOG.debug("the group %r was not changed: %s", name, error)

    def _names(self) -> Iterator[str]:
        for shard in self._coordinator.shards():
            try:
                yield from (hosted.group.name for hosted in shard.all())
            except CoordinatorError:
                continue
