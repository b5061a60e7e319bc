"""Delete offsets and groups that are not needed (KIP-211), and offsets of deleted topics."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from broker.coordinator import group_kinds
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.hosted import Hosted
from broker.coordinator.shard import Shard
from broker.groups.group import State
from broker.groups.offsets import expired
from broker.machines.exchange import Scheduler

LOG = logging.getLogger("broker")
Task = Callable[[], None]
Change = Callable[[Shard[Hosted], Hosted], object]


class ShardTasks:
    """Run tasks that change the groups of a partition, one after another for each partition.

    If a disk hangs, only the thread of one partition waits, however many tasks that partition has.
    A task must not raise an error.

    Threads: any thread may call any method.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._queues: dict[int, deque[tuple[str, Task]]] = {}

    def submit(self, number: int, name: str, task: Task) -> None:
        """Run a task for a partition, unless a task with the same name already waits or runs."""
        with self._lock:
            queue = self._queues.setdefault(number, deque())
            if any(other == name for other, _ in queue):
                return
            queue.append((name, task))
            if len(queue) > 1:  # a thread already runs the tasks of this partition
                return
        self._scheduler.submit(partial(self._run, number, queue))

    def _run(self, number: int, queue: deque[tuple[str, Task]]) -> None:
        has_more = True
        while has_more:
            queue[0][1]()
            with self._lock:
                queue.popleft()
                has_more = bool(queue)
                if not has_more:
                    del self._queues[number]


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
        self._tasks: ShardTasks | None = None
        self._timer: object = None

    def start(self, scheduler: Scheduler) -> None:
        """Begin the regular checks."""
        self._scheduler, self._tasks = scheduler, ShardTasks(scheduler)
        self._set_timer()

    def _set_timer(self) -> None:
        assert self._scheduler is not None
        deadline = self._coordinator.now().seconds + self._interval
        self._timer = self._scheduler.call_at(deadline, self._run)

    def _run(self) -> None:
        try:
            self._submit("expiry", self._delete_expired)
        except Exception:  # an error must not prevent the next check
            LOG.exception("expired offsets were not deleted")
        self._set_timer()

    def _submit(self, name: str, change: Change) -> None:
        """Call `change` for each loaded group, in a task for each partition."""
        assert self._tasks is not None
        for number in self._coordinator.topic.own():
            self._tasks.submit(number, name, partial(self._try, name, number, change))

    def _try(self, name: str, number: int, change: Change) -> None:
        try:
            self._change_all(self._coordinator.shard(number), change)
        except Exception:  # a task must not raise an error
            LOG.exception("the groups of the partition %d were not changed (%s)", number, name)

    def delete_expired(self) -> None:
        """Delete the offsets whose retention is over, and the groups that have no offsets left."""
        for shard in self._coordinator.shards():
            self._change_all(shard, self._delete_expired)

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

    def forget_soon(self, topic: str, topic_id: bytes) -> None:
        """Delete the offsets of a deleted topic, because a new topic may get the same name.

        Other threads delete the offsets. If a disk hangs, only the offsets in the partitions on
        this disk have to wait.

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

        if self._tasks is not None:
            self._submit(f"offsets of {topic} {topic_id.hex()}", forget)

    def _change_all(self, shard: Shard[Hosted], change: Change) -> None:
        """Call `change` for each loaded group; skip groups that cannot be changed now."""
        try:
            names = [hosted.group.name for hosted in shard.all()]
        except CoordinatorError:
            return
        for name in names:
            try:
                with self._coordinator.using(name) as (_, hosted):
                    change(shard, hosted)
            except CoordinatorError as error:
                LOG.debug("the group %r was not changed: %s", name, error)
