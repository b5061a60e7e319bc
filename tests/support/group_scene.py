"""Drive one consumer group by hand: a request, and what was answered so far."""

from __future__ import annotations

from typing import Any

from broker.groups import assignment, joining, sessions
from broker.groups.exchange import Joining, Now, Syncing
from broker.groups.group import Group, GroupSettings, State
from broker.wire.error_codes import ErrorCode

WALL_MS = 1_700_000_000_000
RANGE = (("range", b"r"),)


class Scene:
    """A group, its clock, and the answers by the name of their request.

    Attributes:
        seconds: the time; a test moves it.
    """

    def __init__(self, **settings: Any) -> None:
        self.seconds = 100.0
        self.drawn = 0
        self.said: dict[str, Any] = {}
        self.group = Group("g", GroupSettings(**settings), self.draw, self.now)

    @property
    def now(self) -> Now:
        return Now(self.seconds, WALL_MS + round(1000 * self.seconds))

    def is_in(self, state: State) -> bool:
        return self.group.state is state

    def draw(self, prefix: str) -> str:
        self.drawn += 1
        return f"{prefix}-{self.drawn}"

    def join(self, name: str, member_id: str = "", **changed: Any) -> Any:
        """Send a join; returns its answer if there is one."""
        asked = Joining(member_id, None, "c", "/h", 60.0, 10.0, "consumer", RANGE)
        joining.join(self.group, asked._replace(**changed), name, self.now)
        return self._answer(name)

    def sync(self, name: str, sender: str, **changed: Any) -> Any:
        """Send a sync of the present generation; returns its answer if there is one."""
        asked = Syncing(sender, None, self.group.generation, None, None, {})
        assignment.sync(self.group, asked._replace(**changed), name, self.now)
        return self._answer(name)

    def beat(self, member_id: str, instance: str | None = None, generation: int = 0) -> ErrorCode:
        """Send a heartbeat of the present generation, or of another one."""
        number = generation or self.group.generation
        code = sessions.heartbeat(self.group, member_id, instance, number, self.now)
        self._answer("")
        return code

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        code = sessions.leave(self.group, member_id, instance, self.now)
        self._answer("")
        return code

    def until(self, seconds: float) -> None:
        """Let time pass; the group is called at each of its deadlines."""
        while (deadline := sessions.next_deadline(self.group)) <= seconds:
            self.seconds = deadline
            sessions.expire(self.group, self.now)
        self.seconds = seconds
        self._answer("")

    def form(self, *members: dict[str, Any]) -> None:
        """Form a generation of new members, each with what its join changes: c-1 leads, c-2, ..."""
        for number, changed in enumerate(members, 1):
            self.join(f"join {number}", **changed)
        for member, changed in zip(list(self.group.members.values()), members, strict=True):
            if member.joining is None and len(members) > 1:
                self.join(f"{member.id} again", member.id, **changed)
        self.assign()

    def assign(self) -> None:
        """Let the leader assign to each member its own id, and the others take it."""
        leader = self.group.leader_id or ""
        for member_id in (leader, *(one for one in self.group.members if one != leader)):
            instance = self.group.members[member_id].instance_id
            given = {one: one.encode() for one in self.group.members}
            said = self.sync(
                f"sync {member_id} {self.group.generation}", member_id, instance_id=instance,
                assignments=given if member_id == leader else {},
            )  # fmt: skip
            assert said is not None and said.assignment == member_id.encode()

    def _answer(self, name: str) -> Any:
        for waiter, said in self.group.take_replies():
            assert waiter not in self.said or name == waiter, f"{waiter} was answered twice"
            self.said[waiter] = said
        return self.said.get(name)


def formed(*members: dict[str, Any], **settings: Any) -> Scene:
    """Make a stable group; its first member leads."""
    scene = Scene(**settings)
    scene.form(*members)
    first = next(iter(scene.group.members))
    assert scene.is_in(State.STABLE) and scene.group.leader_id == first
    return scene
