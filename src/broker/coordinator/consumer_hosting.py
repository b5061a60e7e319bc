"""Manage the groups of the new protocol, and change the protocol of groups.

    the group               the event                          then
    classic, no members     a joining heartbeat                begin a ConsumerGroup
    consumer, no members    a JoinGroup                        begin a classic Group
    classic, members        a joining heartbeat                convert it to a ConsumerGroup
    consumer, members       only classic members are left      convert it to a classic Group

The records of the old group are deleted in the batch that has the first records of the new group.
The offsets of the group stay. The setting `group.consumer.migration.policy` can forbid to convert a
group that has members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from broker.consumer_groups import leaving
from broker.consumer_groups.exchange import (
    JOINS,
    ConsumerSettings,
    Heartbeat,
    Refused,
    TopicImage,
)
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.heartbeats import heartbeat
from broker.coordinator import group_kinds
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_kinds import AnyGroup
from broker.coordinator.hosted import Hosted
from broker.coordinator.member_ids import draw_uuid
from broker.coordinator.offsets_topic import NAME
from broker.groups import assignment, joining, sessions
from broker.groups.exchange import Joining, Now, Syncing
from broker.groups.group import Group, State
from broker.mixed_groups import classic_members, conversion
from broker.wire.error_codes import ErrorCode

Topics = Mapping[str, TopicImage]


class Groups(Protocol):
    """The methods of the coordinator that this module calls."""

    def now(self) -> Now:
        """Return the present time of both clocks."""

    def using(
        self, name: str, *, is_new: bool = False
    ) -> AbstractContextManager[tuple[Any, Hosted]]:
        """Hold the lock of a group.

        At the end, write a changed group to the log, and send the answers.
        """


class ConsumerHosting:
    """Handle requests and deadlines of groups that use the new protocol, or that change to it.

    Attributes:
        topics: a function that returns all topics by name. The caller must set this function before
            the first request.

    Args:
        new_group: makes a classic group without members.
    """

    def __init__(
        self, settings: ConsumerSettings, groups: Groups, new_group: Callable[[str], Group]
    ) -> None:
        self.settings = settings
        self.topics: Callable[[], Topics] = dict
        self._groups, self._new_group = groups, new_group

    def known_topics(self) -> Topics:
        """Return all topics by name.

        Raises:
            CoordinatorError: the broker does not know its topics yet. An empty list instead of this
                error would take the partitions from each member.
        """
        topics = self.topics()
        if NAME not in topics:
            raise CoordinatorError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the broker does not know its topics yet"
            )
        return topics

    # --- requests of the new protocol -----------------------------------------------------------

    def heartbeat(self, name: str, asked: Heartbeat, waiter: Any) -> None:
        """Let a member join or continue. `waiter` gets the answer.

        Raises:
            CoordinatorError: there is no such group, or it is a classic group that must not change.
        """
        with self._groups.using(name, is_new=asked.member_epoch == JOINS) as (_, hosted):
            topics, group, now = self.known_topics(), hosted.group, self._groups.now()
            if isinstance(group, ConsumerGroup):
                heartbeat(group, asked, topics, draw_uuid, waiter, now)
                return
            if asked.member_epoch != JOINS:
                self._refuse_absent(group)
            made = self._upgraded(group, topics, now)
            heartbeat(made, asked, topics, draw_uuid, waiter, now)
            ((_, answer),) = made.replies
            if answer.error:
                self._refuse(made)
            elif not group_kinds.is_one_batch(hosted.deletions(now), made, now):
                raise _other_type(name)
            else:
                if group.members:
                    conversion.give_up_waits(group, now)
                hosted.replace(made, now)

    def _refuse_absent(self, group: Group) -> NoReturn:
        """Refuse the heartbeat of a member that a classic group does not have.

        The member was perhaps removed, and then the group became a classic group. As in Kafka, the
        error is GROUP_ID_NOT_FOUND, which ends the client. But if the member can join again and so
        change the group again, the error is UNKNOWN_MEMBER_ID, after which the client does so.
        """
        if self.settings.migration.has_upgrade and group.is_of_consumers and group.members:
            reason = f"the group {group.name!r} became a classic group; join again"
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, reason)
        raise _other_type(group.name)

    def _upgraded(self, group: Group, topics: Topics, now: Now) -> ConsumerGroup:
        if group.state is State.EMPTY:
            return ConsumerGroup(group.name, self.settings, now)
        try:
            return conversion.upgraded(group, self.settings, topics, now)
        except Refused as error:
            raise CoordinatorError(error.code, error.message) from error

    def _refuse(self, made: AnyGroup) -> None:
        """Send the answers of a group that does not replace another group."""
        for one, answer in made.take_replies():
            one.put(answer)

    def leave(
        self, name: str, member_id: str, epoch: int, instance_id: str | None, waiter: Any
    ) -> None:
        """Remove a member that leaves. `waiter` gets the answer.

        Raises:
            CoordinatorError: there is no such group, or it uses the classic protocol.
        """
        with self._groups.using(name) as (_, hosted):
            if not isinstance(hosted.group, ConsumerGroup):
                self._refuse_absent(hosted.group)
            topics, now = self.known_topics(), self._groups.now()
            answer = leaving.leave(hosted.group, member_id, epoch, instance_id, topics, now)
            hosted.say(waiter, answer)
            self._downgrade(hosted, topics, now)

    # --- requests of the classic protocol, to groups of both kinds ------------------------------

    def join(self, hosted: Hosted, asked: Joining, waiter: Any) -> None:
        """Let a classic member join. `waiter` gets the answer.

        If the group uses the new protocol and has no members, it becomes a classic group, unless
        the new member is refused.
        """
        group, now = hosted.group, self._groups.now()
        if isinstance(group, Group):
            joining.join(group, asked, waiter, now)
            return
        made = self._new_group(group.name)
        if group.members:
            topics = self.known_topics()
            said = classic_members.join(group, asked, topics, made.draw_id, now)
            hosted.say(waiter, said)
            self._downgrade(hosted, topics, now)
            return
        joining.join(made, asked, waiter, now)
        if made.members or made.pending:
            hosted.replace(made, now)
        else:
            self._refuse(made)

    def sync(self, hosted: Hosted, asked: Syncing, waiter: Any) -> None:
        """Let a classic member ask for its assignment. `waiter` gets the answer."""
        group, now = hosted.group, self._groups.now()
        if isinstance(group, Group):
            assignment.sync(group, asked, waiter, now)
        else:
            said = classic_members.sync(group, asked, self.known_topics(), now)
            hosted.say(waiter, said)

    def classic_heartbeat(
        self, hosted: Hosted, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Record that a classic member is alive."""
        group, now = hosted.group, self._groups.now()
        if isinstance(group, Group):
            return sessions.heartbeat(group, member_id, instance_id, generation, now)
        topics = self.known_topics()
        return classic_members.heartbeat(group, member_id, instance_id, generation, topics, now)

    def classic_leave(
        self, hosted: Hosted, members: Sequence[tuple[str, str | None]]
    ) -> list[ErrorCode]:
        """Remove members from a group."""
        group, now = hosted.group, self._groups.now()
        if isinstance(group, Group):
            return [sessions.leave(group, *member, now) for member in members]
        topics = self.known_topics()
        codes = classic_members.leave(group, members, topics, now)
        self._downgrade(hosted, topics, now)
        return codes

    # --- deadlines ------------------------------------------------------------------------------

    def expire(self, hosted: Hosted) -> None:
        """Handle the deadlines of a group that have passed."""
        topics, now = self.topics(), self._groups.now()
        group_kinds.expire(hosted.group, topics, now)
        if NAME in topics:
            self._downgrade(hosted, topics, now)

    def _downgrade(self, hosted: Hosted, topics: Topics, now: Now) -> None:
        """If only classic members are left, convert the group to a classic group."""
        group = hosted.group
        if not isinstance(group, ConsumerGroup) or not conversion.is_only_classic(group):
            return
        empty = self._new_group(group.name)
        made = conversion.downgraded(group, empty.settings, empty.draw_id, topics, now)
        if made is not None and group_kinds.is_one_batch(hosted.deletions(now), made, now):
            hosted.replace(made, now)


def _other_type(name: str) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"the group {name!r} is not a consumer group"
    )


def check_reader(hosted: Hosted, member_id: str | None, epoch: int) -> None:
    """If a member reads the offsets of its group in a wrong epoch, raise CoordinatorError.

    A program that is not a member, such as a tool, names no member.
    """
    is_member = member_id is not None or epoch >= 0
    if is_member and isinstance(hosted.group, ConsumerGroup):
        fault = hosted.group.fault_of_epoch(member_id or "", epoch)
        if fault:
            raise CoordinatorError(fault)
