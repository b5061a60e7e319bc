"""Manage the groups of the new protocol. Change the type of groups without members.

    the group               the request            then
    classic, no members     a joining heartbeat    delete its record, and begin a ConsumerGroup
    consumer, no members    a JoinGroup            delete its records, and begin a classic Group

The offsets of the group stay. A group with members keeps its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from broker.consumer_groups import leaving
from broker.consumer_groups.exchange import (
    JOINS,
    ConsumerSettings,
    Heartbeat,
    TopicImage,
)
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.heartbeats import heartbeat
from broker.coordinator import group_kinds
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.hosted import Hosted
from broker.coordinator.member_ids import draw_uuid
from broker.coordinator.offsets_topic import NAME
from broker.groups import joining
from broker.groups.exchange import Joining, Now
from broker.groups.group import Group, State
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
    """Handle the requests and deadlines of groups of the new protocol.

    Attributes:
        topics: a function that returns all topics by name. The caller must set this function before
            the first request.
    """

    def __init__(self, settings: ConsumerSettings, groups: Groups) -> None:
        self.settings = settings
        self.topics: Callable[[], Topics] = dict
        self._groups = groups

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

    def heartbeat(self, name: str, asked: Heartbeat, waiter: Any) -> None:
        """Let a member join or continue. `waiter` gets the answer.

        Raises:
            CoordinatorError: there is no such group, or it is a classic group with members.
        """
        with self._groups.using(name, is_new=asked.member_epoch == JOINS) as (_, hosted):
            topics, group, now = self.known_topics(), hosted.group, self._groups.now()
            if isinstance(group, ConsumerGroup):
                heartbeat(group, asked, topics, draw_uuid, waiter, now)
                return
            if asked.member_epoch != JOINS or group.state is not State.EMPTY:
                raise _other_type(name)
            made = ConsumerGroup(name, self.settings, now)
            heartbeat(made, asked, topics, draw_uuid, waiter, now)
            if made.members:
                hosted.replace(made)
            else:  # the heartbeat was refused
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
                raise _other_type(name)
            topics, now = self.known_topics(), self._groups.now()
            answer = leaving.leave(hosted.group, member_id, epoch, instance_id, topics, now)
            hosted.group.reply(waiter, answer)

    def expire(self, hosted: Hosted) -> None:
        """Handle the deadlines of a group that have passed."""
        group_kinds.expire(hosted.group, self.topics(), self._groups.now())


def _other_type(name: str) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"the group {name!r} is not a consumer group"
    )


def join_classic(
    hosted: Hosted, make: Callable[[], Group], asked: Joining, waiter: Any, now: Now
) -> None:
    """Let a member join a classic group. `waiter` gets the answer.

    If the group uses the new protocol and has no members, it changes its type, unless the new
    member is refused.

    Raises:
        CoordinatorError: the group uses the new protocol, and has members.
    """
    if not isinstance(hosted.group, ConsumerGroup):
        joining.join(hosted.group, asked, waiter, now)
        return
    if hosted.group.members:
        reason = f"the group {hosted.group.name!r} uses the new protocol"
        raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason)
    made = make()
    joining.join(made, asked, waiter, now)
    if made.members or made.pending:
        hosted.replace(made)
        return
    for one, answer in made.take_replies():
        one.put(answer)


def classic_member(hosted: Hosted) -> Group:
    """Return the classic group of a member; raise if the group uses the new protocol.

    Raises:
        CoordinatorError: the group uses the new protocol.
    """
    if isinstance(hosted.group, ConsumerGroup):
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, "the group uses the new protocol")
    return hosted.group


def check_reader(hosted: Hosted, member_id: str | None, epoch: int) -> None:
    """If a member reads the offsets of its group in a wrong epoch, raise CoordinatorError.

    A program that is not a member, such as a tool, names no member.
    """
    is_member = member_id is not None or epoch >= 0
    if is_member and isinstance(hosted.group, ConsumerGroup):
        fault = hosted.group.fault_of_epoch(member_id or "", epoch)
        if fault:
            raise CoordinatorError(fault)
