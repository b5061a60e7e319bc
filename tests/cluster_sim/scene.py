"""Tell a history step by step: deliver, keep or drop requests by their kind."""

from __future__ import annotations

from typing import Any

from cluster.requests import (
    AlterPartition,
    FetchAnswer,
    FollowerFetch,
    LeaderAndIsr,
    RoleAnswer,
)
from cluster_sim.checker import Violation
from cluster_sim.histories import heal, new_record, settle, turn
from cluster_sim.steps import Steps
from cluster_sim.world import Message, Part, World

FETCHES = (FollowerFetch, FetchAnswer)
ROLES = (LeaderAndIsr, RoleAnswer)


class Scene:
    """A settled cluster: broker 1 leads each partition, all are in the ISR, one record is acked.

    Broker 3 controls, so that brokers 1 and 2 can be taken away.
    """

    def __init__(self, **cluster: Any) -> None:
        self.world = World(**cluster)
        settle(self.world)
        self.steps = Steps(self.world, {})
        self.do("controller", 3)
        del self.world.controllers[:-1]

    @property
    def part(self) -> Part:
        """The first partition."""
        return self.world.parts[0]

    def do(self, *step: Any) -> None:
        """Take a step."""
        self.steps.take(step)

    def hand(self, *kinds: type, to: int | None = None) -> None:
        """Deliver all messages of some kinds, and what follows of these kinds."""
        while True:
            found = self._find(kinds, to)
            if not found:
                return
            self.do("deliver", found[0])

    def _find(self, kinds: tuple[type, ...], to: int | None) -> list[int]:
        return [
            index
            for index, message in enumerate(self.world.net)
            if isinstance(message.request, kinds) and to in (None, message.target)
        ]

    def drop(self, *kinds: type) -> None:
        """Lose all messages of some kinds; all messages if none is named."""
        net = self.world.net
        net[:] = [m for m in net if kinds and not isinstance(m.request, kinds)]

    def take(self, *kinds: type) -> list[Message]:
        """Take messages of some kinds out of the network, to bring them late."""
        late = [m for m in self.world.net if isinstance(m.request, kinds)]
        self.drop(*kinds)
        return late

    def bring(self, late: list[Message]) -> None:
        """Let messages arrive now."""
        self.world.net[:] = late
        for _ in late:
            self.do("deliver", 0)

    def decide(self) -> None:
        """Let the controller read, decide, and hear of all it asks, until nothing changes."""
        for _ in range(4):
            self.do("refresh", 0)
            self.do("decide", 0, 0)
            self.hand(LeaderAndIsr, RoleAnswer)

    def produce(self, broker: int) -> int:
        """Let a client produce a record, and give its number."""
        record = new_record(self.world, 0)
        self.do("produce", 0, broker, record)
        return record

    def turn(self, times: int) -> None:
        """Let everybody do what there is to do."""
        records = [new_record(self.world, part.number) for part in self.world.parts]
        for _ in range(times):
            turn(self.steps, records)

    def is_acked(self, record: int) -> bool:
        """Whether a record of the first partition is acknowledged."""
        return record in self.part.checker.acked

    def heal(self) -> None:
        """End all faults, and see that every partition acknowledges again."""
        heal(self.steps)


def need(what: bool, text: str) -> None:
    """Object if a history is not where it should be."""
    if not what:
        raise Violation(text)


def shrink_to(scene: Scene, *members: int) -> None:
    """Let broker 1 remove all other members from the ISR."""
    for m in (1, 2, 3):
        if m not in members:
            scene.do("shrink", 0, 1, m)
            scene.hand(AlterPartition, LeaderAndIsr)
    scene.drop()
    need(set(scene.part.state.isr) == set(members), f"the ISR should be {members}")


def fetch(scene: Scene, follower: int, times: int = 2) -> None:
    """Let a follower fetch, and its answers arrive."""
    for _ in range(times):
        scene.do("fetch", 0, follower)
        scene.hand(*FETCHES)


def lose_dir(scene: Scene, broker: int) -> None:
    """Let a broker's log dir fail with all that is not flushed, and return."""
    scene.do("disk", broker, "a", 0)
    scene.do("return", broker, "a")
    scene.drop(RoleAnswer)


def depose(scene: Scene, old: int, new: int) -> None:
    """Let another member of the ISR lead, although the old leader lives."""
    scene.do("suspect", 0, old)
    scene.decide()
    need(scene.part.state.leader == new, f"{new} should lead")
    scene.do("accepted", 0, old)
    scene.decide()


def join(scene: Scene, broker: int, times: int = 2) -> None:
    """Let a follower fetch and become a member of the ISR."""
    for _ in range(times):
        fetch(scene, broker, 1)
        scene.hand(AlterPartition, LeaderAndIsr)
    need(broker in scene.part.state.isr, f"{broker} should be in the ISR")


def end_of(scene: Scene, *brokers: int) -> None:
    """Let brokers die, one after the other, and let the controller notice."""
    for m in brokers:
        scene.do("crash", m)
        scene.do("refused", 0, m)
        scene.decide()


def out_of_sync(scene: Scene) -> list[Any]:
    """Let follower 3 leave the ISR, and give the leader's proposal to admit it again."""
    shrink_to(scene, 1, 2)
    scene.do("fetch", 0, 3)
    scene.hand(FollowerFetch)
    proposal = scene.take(AlterPartition)
    scene.drop()
    need(len(proposal) == 1, "there should be a proposal")
    return proposal


def acknowledge_without(scene: Scene) -> None:
    """Let brokers 1 and 2 acknowledge a record that broker 3 does not have."""
    record = scene.produce(1)
    fetch(scene, 2)
    need(scene.is_acked(record), "the record should be acknowledged")
    scene.drop()
