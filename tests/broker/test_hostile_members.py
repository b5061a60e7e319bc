"""Test that no sequence of heartbeats damages a group of the new protocol or its records.

The clients are wrong in every way: they use the ids of others, wrong epochs and wrong partitions.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.consumer_groups import heartbeats, leaving, records, restoring
from broker.consumer_groups.exchange import ConsumerSettings, Heartbeat
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.member import Member
from broker.groups.exchange import Now
from broker.groups.group import State
from support.consumer_group_world import Topic

SETTINGS = ConsumerSettings(size_max=6)
STEPS, CALM_BEATS = 120, 30
IDS, INSTANCES = ("a", "b", "c", "d"), (None, "i", "j")
NONE: frozenset[Any] = frozenset()


class Hostile:
    """A group, its records, and clients that send what they like."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.topics = {"t": Topic(b"t" * 16, (0, 1, 2, 3)), "u": Topic(b"u" * 16, (0, 1))}
        self.now = Now(0.0, 1_700_000_000_000)
        self.group = ConsumerGroup("g", SETTINGS, self.now)
        self.log: dict[bytes, bytes | None] = {}

    def beat(self, member_id: str, epoch: int, **fields: Any) -> None:
        asked = Heartbeat(member_id, epoch, **fields)
        heartbeats.heartbeat(self.group, asked, self.topics, lambda: "drawn", None, self.now)

    def step(self) -> None:
        """Let one client send a request, let time pass, or change a topic."""
        draw, member_id = self.random, self.random.choice(IDS)
        member, instance = self.group.members.get(member_id), self.random.choice(INSTANCES)
        if member is not None and draw.random() < 0.7:
            instance = member.instance_id
        (act,) = draw.choices((self.join, self.go_on, self.leave, self.wait, self.alter),
                              (35, 45, 10, 5, 5))  # fmt: skip
        act(member_id, member, instance)
        self.group.take_replies()
        for key, value in records.changes_of(self.group, self.now):
            self.log[key] = value
        self.group.saved()

    def join(self, member_id: str, _: Member | None, __: str | None) -> None:
        topics = tuple(self.random.sample(["t", "u", "x"], self.random.randrange(1, 3)))
        instance = self.random.choice(INSTANCES)
        self.beat(member_id, 0, rebalance_timeout_ms=5000, owned=NONE, topics=topics,
                  instance_id=instance)  # fmt: skip

    def go_on(self, member_id: str, member: Member | None, instance: str | None) -> None:
        draw, epoch, owned = self.random, self.random.randrange(1, 8), None
        if member is not None and member.epoch > 0 and draw.random() < 0.8:
            epoch = member.epoch
        if member is not None and draw.random() < 0.7:
            places = sorted(member.assigned | member.revoking)
            owned = frozenset(draw.sample(places, draw.randrange(len(places) + 1)))
        self.beat(member_id, epoch, owned=owned, instance_id=instance)

    def leave(self, member_id: str, _: Member | None, instance: str | None) -> None:
        epoch = self.random.choice((-1, -2))
        leaving.leave(self.group, member_id, epoch, instance, self.topics, self.now)

    def wait(self, *_: object) -> None:
        seconds = self.random.choice((1, 3, 6, 30))
        self.now = Now(self.now.seconds + seconds, self.now.wall_ms + 1000 * seconds)
        leaving.expire(self.group, self.topics, self.now)

    def alter(self, *_: object) -> None:
        self.topics = dict(self.topics)
        topic_id = self.random.choice((b"u" * 16, b"v" * 16))
        self.topics["u"] = Topic(topic_id, tuple(range(self.random.randrange(1, 4))))

    def check(self) -> None:
        """Compare the parts of the group with each other, and with its records."""
        group, owners = self.group, dict[Any, str]()
        for member in group.members.values():
            for place in member.assigned | member.revoking:
                assert owners.setdefault(place, member.id) == member.id
        assert owners == group.owners and group.targets.keys() <= group.members.keys()
        instances = {one.instance_id: one.id for one in group.members.values() if one.instance_id}
        assert instances == group.instances
        found = [records.parse(key, value) for key, value in self.log.items()]
        made = restoring.restored("g", [one for one in found if one], SETTINGS, self.now)
        assert made is not None and made[1] == [] and view(made[0]) == view(group)

    def calm_down(self) -> None:
        """Let all members that are present behave."""
        for _ in range(CALM_BEATS):
            for member in list(self.group.members.values()):
                if member.is_away:
                    instance = member.instance_id
                    leaving.leave(self.group, member.id, -1, instance, self.topics, self.now)
                else:
                    self.beat(member.id, member.epoch, instance_id=member.instance_id,
                              owned=member.assigned)  # fmt: skip
        assert self.group.state in (State.STABLE, State.EMPTY)


def view(group: ConsumerGroup) -> Any:
    members = {
        one.id: (one.facts(), one.epoch, one.previous_epoch, one.state, one.assigned, one.revoking,
                 group.targets.get(one.id, NONE))
        for one in group.members.values()
    }  # fmt: skip
    return members, group.epoch, group.assignment_epoch


@pytest.mark.parametrize("seed", range(100))
def test_no_heartbeat_damages_a_group(seed: int) -> None:
    """Each partition has at most one owner, and honest members get all partitions at the end."""
    hostile = Hostile(seed)
    hostile.join("a", None, None)
    for _ in range(STEPS):
        hostile.step()
        hostile.check()
    hostile.calm_down()
