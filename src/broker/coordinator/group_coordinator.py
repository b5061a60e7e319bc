"""Answer requests of clients about consumer groups.

For each request, the coordinator takes the lock of the group and lets `broker.groups` decide. Then
the coordinator writes the group, if it has changed, and sends the answers that are ready. A request
that has to wait is a `Waiter`, which holds no thread. A group has one timer, set to its first
deadline.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from broker.catalog.served_topics import ServedTopics
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.hosted import Hosted
from broker.coordinator.offsets_topic import OffsetsTopic, partition_of
from broker.coordinator.shard import Shard
from broker.groups import assignment, joining, records, sessions
from broker.groups.exchange import Joining, Now, Syncing
from broker.groups.group import GroupSettings, State
from broker.groups.offsets import Committed, Key
from broker.machines.exchange import Scheduler
from broker.wire.error_codes import ErrorCode
from logstore import LogStoreError

LOG = logging.getLogger("broker")
LOCK_SECONDS = 1.0  # if a group's disk hangs, a request waits this long, and is then refused
PREFIX_LETTERS_MAX = 255


def draw_member_id(prefix: str) -> str:
    """Return a new member id; a long prefix is cut, because the protocol limits the id's length."""
    return f"{prefix[:PREFIX_LETTERS_MAX]}-{uuid.uuid4()}"


class GroupCoordinator:
    """Coordinate all groups of a broker.

    Threads: any thread may call any method.

    Args:
        partitions: how many partitions `__consumer_offsets` gets, if this broker creates it.
        groups_max: the largest number of groups that one partition keeps.
    """

    def __init__(
        self,
        topics: ServedTopics,
        settings: GroupSettings,
        *,
        partitions: int,
        groups_max: int,
        clock: Callable[[], float] = time.monotonic,
        draw_id: Callable[[str], str] = draw_member_id,
    ) -> None:
        self.topic = OffsetsTopic(topics, partitions, clock)
        self._settings = settings
        self._groups_max = groups_max
        self._clock = clock
        self._draw_id = draw_id
        self._shards: dict[int, Shard] = {}
        self._scheduler: Scheduler | None = None

    def start(self, scheduler: Scheduler) -> None:
        """Begin to load the groups that the store contains."""
        self._scheduler = scheduler
        for shard in self.shards():
            shard.begin_loading()

    def now(self) -> Now:
        """Return the present time of both clocks."""
        return Now(self._clock(), time.time_ns() // 1_000_000)

    # --- finding groups -------------------------------------------------------------------------

    def shards(self) -> list[Shard]:
        """Return a shard for each partition of `__consumer_offsets`, or [] without this topic."""
        return [self._shard(number) for number in range(self.topic.partition_count)]

    @property
    def count(self) -> int:
        """How many groups are loaded."""
        return sum(shard.count for shard in list(self._shards.values()))

    def _shard(self, number: int) -> Shard:
        shard = self._shards.get(number)
        if shard is None:
            assert self._scheduler is not None, "the coordinator was not started"
            made = Shard(
                partial(self.topic.log, number), self._settings, self._draw_id, self.now,
                self._scheduler.submit, self._watch_all,
            )  # fmt: skip
            # If another thread has already made this shard, use the shard of that thread.
            shard = self._shards.setdefault(number, made)
        return shard

    def shard_of(self, name: str) -> Shard:
        """Find the shard for the partition that stores a group.

        Raises:
            CoordinatorError: `__consumer_offsets` does not exist and cannot be created.
        """
        try:
            return self._shard(partition_of(name, self.topic.ensure()))
        except LogStoreError as error:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    @contextmanager
    def using(self, name: str, *, is_new: bool = False) -> Iterator[tuple[Shard, Hosted]]:
        """Hold the lock of a group; then write the group if it changed, and send its answers.

        Args:
            is_new: whether to create the group if it does not exist.

        Raises:
            CoordinatorError: the group does not exist (GROUP_ID_NOT_FOUND) or is not available.
        """
        shard = self.shard_of(name)
        hosted = shard.get_or_add(name, self._groups_max) if is_new else shard.get(name)
        if hosted is None:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
        with self._locked(hosted):
            if hosted.group.state is State.DEAD:  # the group has just ended
                raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            try:
                yield shard, hosted
                self._settle(shard, hosted)
            except CoordinatorError:
                if hosted.is_unused:  # the group was created for this request
                    self._forget(shard, hosted)
                raise
            except Exception:  # the group may be half changed: load the groups again
                shard.leave("an unexpected error")
                raise

    @contextmanager
    def _locked(self, hosted: Hosted) -> Iterator[None]:
        if not hosted.lock.acquire(timeout=LOCK_SECONDS):
            reason = "another thread still holds the lock of the group: the disk may hang"
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
        try:
            yield
        finally:
            hosted.lock.release()

    # --- the protocol ---------------------------------------------------------------------------

    def join(self, name: str, asked: Joining, waiter: Any) -> None:
        """Let a member join a group; `waiter` gets the answer."""
        with self.using(name, is_new=not asked.member_id) as (_, hosted):
            joining.join(hosted.group, asked, waiter, self.now())

    def sync(self, name: str, asked: Syncing, waiter: Any) -> None:
        """Let a member ask for its assignment; `waiter` gets the answer."""
        with self.using(name) as (_, hosted):
            assignment.sync(hosted.group, asked, waiter, self.now())

    def heartbeat(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Record that a member is alive."""
        shard = self.shard_of(name)
        hosted = shard.get(name)
        if hosted is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        with self._locked(hosted):  # a heartbeat only makes a deadline later: keep the timer
            return sessions.heartbeat(hosted.group, member_id, instance_id, generation, self.now())

    def leave(self, name: str, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove members from a group."""
        with self.using(name) as (_, hosted):
            return [
                sessions.leave(hosted.group, member_id, instance_id, self.now())
                for member_id, instance_id in members
            ]

    # --- offsets --------------------------------------------------------------------------------

    def commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: dict[Key, Committed],
    ) -> ErrorCode:
        """Write committed offsets to the log, then keep them in memory.

        Raises:
            CoordinatorError: the offsets could not be written.
        """
        with self.using(name, is_new=generation < 0) as (shard, hosted):
            fault = hosted.group.fault_of_commit(member_id, instance_id, generation)
            if fault:
                return fault
            member = hosted.group.members.get(member_id)
            if member is not None:
                member.hear(self._clock())
            if offsets:
                shard.append(
                    [records.offset_key(name, *key) for key in offsets],
                    [records.offset_value(one) for one in offsets.values()],
                )
                hosted.offsets.update(offsets)
                hosted.is_recorded = True
        return ErrorCode.NONE

    def offsets_of(self, name: str) -> dict[Key, Committed]:
        """Return the offsets that a group has committed, or {} if the group does not exist.

        Raises:
            CoordinatorError: the groups are not loaded.
        """
        hosted = self.shard_of(name).get(name)
        if hosted is None:
            return {}
        with self._locked(hosted):
            if hosted.group.state is State.DEAD:
                raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return dict(hosted.offsets)

    def delete_offsets(self, shard: Shard, hosted: Hosted, keys: Sequence[Key]) -> None:
        """Delete offsets of a group; the caller holds the group's lock."""
        if keys:
            name = hosted.group.name
            shard.append([records.offset_key(name, *key) for key in keys], [None] * len(keys))
            for key in keys:
                del hosted.offsets[key]

    def delete(self, shard: Shard, hosted: Hosted) -> None:
        """Delete a group without members, and its offsets; the caller holds the group's lock."""
        name = hosted.group.name
        keys = [records.offset_key(name, *key) for key in hosted.offsets]
        if hosted.is_recorded:
            shard.append([*keys, records.group_key(name)], [None] * (len(keys) + 1))
        self._forget(shard, hosted)

    # --- after a change -------------------------------------------------------------------------

    def _settle(self, shard: Shard, hosted: Hosted) -> None:
        """Write the group if it has changed, send its answers, and set its timer."""
        group = hosted.group
        if group.state is State.DEAD:
            return
        if group.is_unsaved:
            try:
                shard.append([records.group_key(group.name)], [records.group_value(group)])
            except CoordinatorError as error:
                hosted.refuse_answers(error.code)
                shard.leave(str(error))  # the group in memory differs from the log
                return
            group.is_unsaved, hosted.is_recorded = False, True
        hosted.give_answers()
        if hosted.is_unused:
            self._forget(shard, hosted)
        else:
            self._watch(shard, hosted)

    def _forget(self, shard: Shard, hosted: Hosted) -> None:
        hosted.end(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now())
        shard.discard(hosted)
        if self._scheduler is not None:
            self._scheduler.cancel(hosted.timer)

    def _watch(self, shard: Shard, hosted: Hosted) -> None:
        """Set the timer to the first deadline, unless the timer already fires earlier."""
        deadline = sessions.next_deadline(hosted.group)
        if self._scheduler is None or deadline >= hosted.timer_at:
            return
        self._scheduler.cancel(hosted.timer)
        hosted.timer_at = deadline
        hosted.timer = self._scheduler.call_at(deadline, partial(self._expire, shard, hosted))

    def _watch_all(self, shard: Shard, groups: Sequence[Hosted]) -> None:
        for hosted in groups:
            with hosted.lock:
                self._watch(shard, hosted)

    def _expire(self, shard: Shard, hosted: Hosted) -> None:
        """Handle a group's deadlines that have passed; the group's timer calls this method."""
        with hosted.lock:
            hosted.timer, hosted.timer_at = None, float("inf")
            if hosted.group.state is State.DEAD:
                return
            try:
                sessions.expire(hosted.group, self.now())
                self._settle(shard, hosted)
            except Exception:  # without a timer the group would never continue
                LOG.exception("the group %r met an unexpected error", hosted.group.name)
                shard.leave("an unexpected error")
