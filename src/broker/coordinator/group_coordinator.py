"""Answer requests of clients about consumer groups.

For each request, the coordinator takes the lock of the group and lets `broker.groups` decide. If
the group has changed, the coordinator then writes the group to the log. After that, the coordinator
sends the answers that are ready. A request that waits is a `Waiter`, and uses no thread. A group
has one timer, which is set to its first deadline.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from broker.catalog.client_appends import Wait
from broker.consumer_groups.exchange import ConsumerSettings
from broker.coordinator import consumer_hosting, group_kinds
from broker.coordinator.errors import CoordinatorError, WriteRefusedError
from broker.coordinator.group_kinds import Record
from broker.coordinator.group_logs import GroupLogs
from broker.coordinator.hosted import Hosted
from broker.coordinator.loading import load
from broker.coordinator.member_ids import draw_member_id
from broker.coordinator.replication import Replication, append_all
from broker.coordinator.shard import Kind, Shard
from broker.coordinator.shards import LOCK_SECONDS, Shards
from broker.groups import records, sessions
from broker.groups.exchange import Joining, Syncing
from broker.groups.group import Group, GroupSettings, State
from broker.groups.offsets import Committed, Key
from broker.machines.exchange import Scheduler
from broker.wire.error_codes import ErrorCode
from logstore import Log

LOG = logging.getLogger("broker")
COMMIT_SECONDS = 5.0  # Kafka's default of `offsets.commit.timeout.ms`


class GroupCoordinator(Shards[Hosted]):
    """Coordinate all groups of a broker.

    Threads: any thread may call any method.

    Args:
        topic: the partitions of `__consumer_offsets`.
        groups_max: the largest number of groups in one partition.
        commit_seconds: the longest time that a request waits until its records are replicated.
    """

    def __init__(
        self,
        topic: GroupLogs,
        settings: GroupSettings,
        *,
        groups_max: int,
        commit_seconds: float = COMMIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        draw_id: Callable[[str], str] = draw_member_id,
        consumers: ConsumerSettings | None = None,
    ) -> None:
        consumers = consumers or ConsumerSettings()

        def read(log: Log) -> dict[str, Hosted]:
            return load(log, settings, draw_id, self.now, consumers)

        def new_group(name: str) -> Group:
            return Group(name, settings, draw_id, self.now())

        kind = Kind(
            "groups", read, lambda name: Hosted(new_group(name)), ErrorCode.GROUP_MAX_SIZE_REACHED,
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            lambda hosted: {one.producer_id for one in hosted.pending},
        )  # fmt: skip
        super().__init__(topic, kind, clock)
        self._groups_max = groups_max
        self.commit_seconds = commit_seconds
        self._replication: Replication | None = None
        self.consumers = consumer_hosting.ConsumerHosting(consumers, self, new_group)

    def start(self, scheduler: Scheduler) -> None:
        """Begin to load the groups that the store contains."""
        self._replication = Replication(scheduler, self.commit_seconds, self._clock)
        super().start(scheduler)

    # --- finding groups -------------------------------------------------------------------------

    @contextmanager
    def using(self, name: str, *, is_new: bool = False) -> Iterator[tuple[Shard[Hosted], Hosted]]:
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
        with self.locked(hosted):
            if hosted.group.state is State.DEAD:  # the group has just ended
                raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            try:
                yield shard, hosted
                self._settle(shard, hosted)
            except CoordinatorError:
                if hosted.is_unused:  # the group was created for this request
                    self._forget(shard, hosted)
                raise
            except Exception:  # a change may be incomplete, so load the groups again
                shard.leave("an unexpected error")
                raise

    # --- the protocol ---------------------------------------------------------------------------

    def join(self, name: str, asked: Joining, waiter: Any) -> None:
        """Let a member join a group. `waiter` gets the answer."""
        with self.using(name, is_new=not asked.member_id) as (_, hosted):
            self.consumers.join(hosted, asked, waiter)

    def sync(self, name: str, asked: Syncing, waiter: Any) -> None:
        """Let a member ask for its assignment. `waiter` gets the answer."""
        with self.using(name) as (_, hosted):
            self.consumers.sync(hosted, asked, waiter)

    def heartbeat(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Remember that a member is alive."""
        shard = self.shard_of(name)
        hosted = shard.get(name)
        if hosted is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(hosted.group, Group):
            with self.locked(hosted):  # a heartbeat only moves a deadline to a later time
                group = hosted.group
                if isinstance(group, Group):
                    return sessions.heartbeat(group, member_id, instance_id, generation, self.now())
        with self.using(name) as (_, hosted):  # the group may notice a change of a topic
            return self.consumers.classic_heartbeat(hosted, member_id, instance_id, generation)

    def leave(self, name: str, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Remove members from a group."""
        with self.using(name) as (_, hosted):
            return self.consumers.classic_leave(hosted, members)

    # --- offsets --------------------------------------------------------------------------------

    def commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: dict[Key, Committed],
        waiter: Any = None,
    ) -> ErrorCode | None:
        """Write committed offsets to the log, then keep them in memory.

        Returns:
            None if other replicas do not have the offsets yet, and `waiter` gets the result later.
        """
        with self.using(name, is_new=generation < 0) as (shard, hosted):
            fault = hosted.group.fault_of_commit(member_id, instance_id, generation)
            if fault:
                return fault
            if isinstance(hosted.group, Group) and member_id in hosted.group.members:
                hosted.group.members[member_id].hear(self._clock())
            if offsets:
                wait = shard.append(
                    [records.offset_key(name, *key) for key in offsets],
                    [records.offset_value(one) for one in offsets.values()],
                )
                hosted.is_recorded = True
                hosted.replace_pending(offsets)
                apply = partial(hosted.offsets.update, offsets)
                return self._apply(shard, hosted, wait, apply, offsets, waiter)
        return ErrorCode.NONE

    def offsets_of(
        self, name: str, member_id: str | None = None, epoch: int = -1
    ) -> dict[Key, Committed]:
        """Return the offsets that a group has committed; see `offsets_with_unstable`."""
        return self.offsets_with_unstable(name, member_id, epoch)[0]

    def offsets_with_unstable(
        self, name: str, member_id: str | None = None, epoch: int = -1
    ) -> tuple[dict[Key, Committed], frozenset[Key]]:
        """Return the committed offsets of a group, and the keys that open transactions change.

        If the group does not exist, there are neither offsets nor keys.

        Args:
            member_id, epoch: the member that asks, in the new protocol.

        Raises:
            CoordinatorError: the groups are not loaded, or the member or its epoch is wrong.
        """
        hosted = self.shard_of(name).get(name)
        if hosted is None:
            return {}, frozenset()
        with self.locked(hosted):
            if hosted.group.state is State.DEAD:
                raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            consumer_hosting.check_reader(hosted, member_id, epoch)
            return dict(hosted.offsets), hosted.unstable

    def delete_offsets(
        self, shard: Shard[Hosted], hosted: Hosted, keys: Sequence[Key], waiter: Any = None
    ) -> ErrorCode | None:
        """Delete offsets of a group. The caller must hold the lock of the group.

        Returns:
            None if other replicas do not have the deletion yet, and `waiter` gets the result later.
        """
        if keys:
            name = hosted.group.name
            wait = self._append_deletions(shard, [records.offset_key(name, *key) for key in keys])
            hosted.replace_pending(keys)

            def apply() -> None:
                for key in keys:
                    hosted.offsets.pop(key, None)

            return self._apply(shard, hosted, wait, apply, (), waiter)
        return ErrorCode.NONE

    def delete(self, shard: Shard[Hosted], hosted: Hosted, waiter: Any = None) -> ErrorCode | None:
        """Delete a group without members, and its offsets. The caller must hold its lock.

        Returns:
            None if other replicas do not have the deletion yet, and `waiter` gets the result later.
        """
        name, wait = hosted.group.name, None
        keys = [records.offset_key(name, *key) for key in hosted.keys]
        if hosted.is_recorded:
            keys += [key for key, _ in [*hosted.replaced, *group_kinds.deletion_of(hosted.group)]]
            wait = self._append_deletions(shard, keys)
        if wait is None:
            self._forget(shard, hosted)
            return ErrorCode.NONE
        self._end(hosted)  # until the deletion is replicated, requests are refused
        self.hold(shard, hosted, wait, partial(shard.discard, hosted), (), waiter)
        return None

    def _append_deletions(self, shard: Shard[Hosted], keys: Sequence[bytes]) -> Wait | None:
        """Delete the records with some keys, in several batches if one batch would be too large.

        Returns:
            The wait for the last batch, which the replicas get after the other batches.
        """
        waits = append_all(shard, [(key, None) for key in keys])
        return waits[-1] if waits else None

    # --- after a change -------------------------------------------------------------------------

    def _settle(self, shard: Shard[Hosted], hosted: Hosted) -> None:
        """Write the group if it has changed, send its answers, and set its timer."""
        group = hosted.group
        if group.state is State.DEAD:
            return
        unsaved = hosted.unsaved(self.now())
        if unsaved:
            try:
                self._save(shard, hosted, unsaved)
            except CoordinatorError as error:
                if not isinstance(error, WriteRefusedError) or hosted.is_converting:
                    hosted.refuse_answers(error.code)
                    shard.leave(str(error))  # the group in memory now differs from the log
                    return
                hosted.undo(error.code, self.now())
        hosted.give_answers()
        if hosted.writes and self._replication is not None:
            self._replication.limit(hosted)
        if hosted.is_unused:
            self._forget(shard, hosted)
        elif hosted.timer is None or bool(unsaved) or group_kinds.has_new_deadline(group):
            self._watch(shard, hosted)  # other heartbeats only move a deadline to a later time

    def _save(self, shard: Shard[Hosted], hosted: Hosted, unsaved: Sequence[Record]) -> None:
        """Write the changes of a group. Raises as `Shard.append` does."""
        for wait in append_all(shard, unsaved, in_one_batch=bool(hosted.replaced)):
            if wait is not None and self._replication is not None:
                self._replication.hold(shard, hosted, wait)
        hosted.saved()

    def _apply(
        self,
        shard: Shard[Hosted],
        hosted: Hosted,
        wait: Wait | None,
        apply: Callable[[], None],
        keys: Iterable[Key],
        waiter: Any,
    ) -> ErrorCode | None:
        """Apply a change when its records, and all earlier records of the group, are replicated.

        Returns:
            None if the change is applied later, and `waiter` gets the result at that time.
        """
        if wait is None and not hosted.writes:
            apply()
            return ErrorCode.NONE
        self.hold(shard, hosted, wait, apply, keys, waiter)
        return None

    def hold(
        self,
        shard: Shard[Hosted],
        hosted: Hosted,
        wait: Wait | None,
        apply: Callable[[], None],
        keys: Iterable[Key],
        waiter: Any,
    ) -> None:
        """Let a request wait until its records are replicated."""
        assert self._replication is not None, "the coordinator was not started"
        write = self._replication.hold(shard, hosted, wait, apply, keys)
        if waiter is not None:
            write.replies.append((waiter, ErrorCode.NONE))

    def _forget(self, shard: Shard[Hosted], hosted: Hosted) -> None:
        self._end(hosted)
        shard.discard(hosted)

    def _end(self, hosted: Hosted) -> None:
        hosted.end(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now())
        if self._scheduler is not None:
            self._scheduler.cancel(hosted.timer)

    def _watch(self, shard: Shard[Hosted], hosted: Hosted) -> None:
        """Set the timer to the first deadline, unless the timer fires earlier."""
        deadline = group_kinds.next_deadline(hosted.group)
        if self._scheduler is None or deadline >= hosted.timer_at:
            return
        self._scheduler.cancel(hosted.timer)
        hosted.timer_at = deadline
        hosted.timer = self._scheduler.call_at(deadline, partial(self._expire, shard, hosted))

    def on_loaded(self, shard: Shard[Hosted], entries: Sequence[Hosted]) -> None:
        """Set the timers of the groups that were loaded."""
        for hosted in entries:
            with hosted.lock:
                self._watch(shard, hosted)

    def on_held(self, entry: Hosted) -> None:
        """Store that a request of a group, perhaps a heartbeat, was refused."""
        entry.was_held = True

    def _expire(self, shard: Shard[Hosted], hosted: Hosted) -> None:
        """Handle the deadlines of a group that have passed. The group's timer calls this method.

        If another thread holds the lock, perhaps because a disk hangs, try again soon. A blocked
        thread for each such group could leave no thread for the groups on other disks.
        """
        if not hosted.lock.acquire(blocking=False):
            if self._scheduler is not None:
                deadline = self._clock() + LOCK_SECONDS
                self._scheduler.call_at(deadline, partial(self._expire, shard, hosted))
            return
        try:
            self._expire_locked(shard, hosted)
        finally:
            hosted.lock.release()

    def _expire_locked(self, shard: Shard[Hosted], hosted: Hosted) -> None:
        hosted.timer, hosted.timer_at = None, float("inf")
        if hosted.group.state is State.DEAD:
            return
        try:
            if hosted.was_held:  # the heartbeats of members that are alive were not recorded
                hosted.was_held = False
                group_kinds.restart_sessions(hosted.group, self.now())
            self.consumers.expire(hosted)
            self._settle(shard, hosted)
        except Exception:  # without a new timer, later deadlines would be ignored
            LOG.exception("the group %r met an unexpected error", hosted.group.name)
            shard.leave("an unexpected error")
