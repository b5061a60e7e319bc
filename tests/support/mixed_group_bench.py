"""A group of both protocols on a bench: its topics, its clock, and short calls."""

from __future__ import annotations

from typing import Any

from broker.consumer_groups import heartbeats, leaving
from broker.consumer_groups.exchange import ConsumerSettings, Heartbeat, HeartbeatAnswer
from broker.groups import assignment, joining
from broker.groups.exchange import JoinAnswer, Joining, Now, SyncAnswer, Syncing
from broker.groups.group import Group, GroupSettings, State
from broker.mixed_groups import classic_members, consumer_bytes, conversion
from broker.wire.error_codes import ErrorCode as Code
from support.classic_clients import assignment_data, subscription_bytes
from support.consumer_group_world import Topic

T = b"t" * 16
SECONDS = 5.0


def metadata(
    topics: tuple[str, ...] = ("t",), owned: tuple[int, ...] = (), version: int = 2,
    generation: int = -1,
) -> bytes:  # fmt: skip
    """Write what a classic consumer says when it joins."""
    return subscription_bytes(topics, [("t", number) for number in owned], generation, version)


def assigned(*numbers: int, version: int = 2, user_data: bytes | None = None) -> bytes:
    """Write what the leader of a classic group gives to a member."""
    return assignment_data([("t", number) for number in numbers], version, user_data)


def numbers_in(data: bytes) -> list[int]:
    found = consumer_bytes.assignment_of(data)
    assert found is not None
    return sorted(number for _, number in found.places)


def places(*numbers: int) -> frozenset[tuple[bytes, int]]:
    return frozenset((T, number) for number in numbers)


class Bench:
    """A group, its topics and the time."""

    def __init__(self, **limits: Any) -> None:
        self.topics = {"t": Topic(T, (0, 1, 2, 3))}
        self.now = Now(0.0, 1_700_000_000_000)
        self.settings, self.drawn = ConsumerSettings(**limits), 0
        self.group: Any = Group("g", GroupSettings(), self.draw, self.now)

    def draw(self, prefix: str = "") -> str:
        self.drawn += 1
        return f"{prefix}-{self.drawn}"

    def asking(self, member_id: str, instance: str | None = None, **fields: Any) -> Joining:
        protocols = fields.pop("protocols", None)
        if protocols is None:
            protocols = (("range", metadata(**fields)),)
        return Joining(member_id, instance, "c", "/h", SECONDS, 10.0, "consumer", protocols)

    def join(self, member_id: str, instance: str | None = None, **fields: Any) -> JoinAnswer:
        asked = self.asking(member_id, instance, **fields)
        return classic_members.join(self.group, asked, self.topics, self.draw, self.now)

    def sync(self, member_id: str, epoch: int, instance: str | None = None) -> SyncAnswer:
        asked = Syncing(member_id, instance, epoch, "consumer", "range", {})
        return classic_members.sync(self.group, asked, self.topics, self.now)

    def classic_beat(self, member_id: str, epoch: int, instance: str | None = None) -> Code:
        return classic_members.heartbeat(
            self.group, member_id, instance, epoch, self.topics, self.now
        )

    def beat(self, member_id: str, epoch: int = 0, **fields: Any) -> HeartbeatAnswer:
        asked = Heartbeat(member_id, epoch, **fields)
        if epoch == 0:
            full: dict[str, Any] = {
                "rebalance_timeout_ms": 5000, "owned": frozenset(), "topics": ("t",),
            }  # fmt: skip
            asked = asked._replace(**(full | fields))
        heartbeats.heartbeat(self.group, asked, self.topics, lambda: "drawn", None, self.now)
        ((_, answer),) = self.group.take_replies()
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    @property
    def state(self) -> str:
        """The name of the state of the group."""
        return str(self.group.state.value)

    def wait(self, seconds: float) -> None:
        self.now = Now(self.now.seconds + seconds, self.now.wall_ms + round(seconds * 1000))
        leaving.expire(self.group, self.topics, self.now)

    def classic(self, **shares: bytes) -> None:
        """Let members with these assignments make a classic group in generation 2."""
        for name in shares:
            joining.join(self.group, self.asking("", name), name, self.now)
        ids = dict(self.group.instances)
        for name in shares:
            joining.join(self.group, self.asking(ids[name], name), name, self.now)
        self.group.take_replies()
        given = {ids[name]: data for name, data in shares.items()}
        leader = self.group.leader_id
        asked = Syncing(leader, None, self.group.generation, None, None, given)
        assignment.sync(self.group, asked, "leader", self.now)
        assert self.group.state is State.STABLE
        self.group.take_replies()
        self.group.generation = 2

    def upgrade(self) -> None:
        self.group = conversion.upgraded(self.group, self.settings, self.topics, self.now)

    def downgrade(self) -> None:
        made = conversion.downgraded(self.group, GroupSettings(), self.draw, self.topics, self.now)
        assert made is not None
        self.group = made

    def upgraded(self, **shares: bytes) -> dict[str, str]:
        """Make a classic group, and convert it; return the id of each member."""
        self.classic(**shares)
        ids = dict(self.group.instances)
        self.upgrade()
        return ids
