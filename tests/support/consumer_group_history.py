"""Let clients of a group of the new protocol do anything in any order."""

from __future__ import annotations

from collections.abc import Callable

from broker.consumer_groups import heartbeats
from broker.wire.error_codes import ErrorCode as Code
from support.consumer_group_world import (
    NAMES,
    PATTERNS,
    REBALANCE_MS,
    SESSION,
    Client,
    Topic,
    World,
)

CLIENTS_MAX = 6


class History:
    """One random history; the seed decides everything."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.random = self.world.random
        for name in NAMES[:2]:
            self.add_topic(name)
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (12, self.beat), (6, self.apply), (5, self.beat_all), (4, self.start),
            (2, self.lose_the_answer), (2, self.subscribe), (2, self.leave), (1, self.die),
            (2, self.leave_for_now), (3, self.start_again), (1, self.start_twice),
            (2, self.come_late), (2, self.commit), (2, self.beat_in_a_wrong_epoch),
            (2, self.change_topics), (3, self.pass_time), (2, self.restart), (1, self.converge),
            (1, self.fall_silent),
        ]  # fmt: skip

    def run(self, count: int) -> None:
        """Do random steps; in the end, everything must come to rest."""
        weights = [weight for weight, _ in self.steps]
        for _, step in self.random.choices(self.steps, weights, k=count):
            step()
        self.world.converge()

    # --- what clients do ------------------------------------------------------------------------

    def one(self) -> Client | None:
        alive = self.world.alive
        return self.random.choice(alive) if alive else None

    def subscription(self) -> dict[str, object]:
        names = tuple(self.random.sample(NAMES, self.random.randint(1, 3)))
        pattern = self.random.choice(("", "", "", *PATTERNS))
        assignor = self.random.choice((None, None, "uniform", "range"))
        topics = () if pattern and self.random.random() < 0.7 else names
        return {"topics": topics, "pattern": pattern, "assignor": assignor}

    def start(self) -> None:
        if len(self.world.alive) < CLIENTS_MAX:
            instance = self.random.choice((None, None, "i", "j"))
            running = {client.instance for client in self.world.alive}
            if instance in running:
                instance = None
            self._start(instance)

    def _start(self, instance: str | None) -> None:
        member_id = self.random.choice(("", self.world.draw()))
        client = Client(member_id, instance, **self.subscription())
        group = self.world.group
        holder = group.members.get(group.instances.get(instance or "", ""))
        is_held = holder is not None and not holder.is_away
        is_same = holder is not None and holder.is_away and self.random.random() < 0.6
        if holder is not None and is_same:
            client.topics, client.pattern = tuple(holder.topics), holder.pattern
            client.assignor = holder.assignor
        epoch, had = group.epoch, holder.assigned if holder else frozenset()
        target = group.targets.get(holder.id if holder else "", frozenset())
        self.world.clients.append(client)
        answer = self.world.beat(client)
        assert answer.error is (Code.UNRELEASED_INSTANCE_ID if is_held else Code.NONE)
        if is_same and group.epoch == epoch == group.assignment_epoch:  # no topic has changed
            assert answer.assignment is not None and had & target <= answer.assignment

    def start_again(self) -> None:
        """Start the next process of a static member that is not running."""
        running = {client.instance for client in self.world.alive}
        for instance in ("i", "j"):
            if instance not in running and instance in self.world.group.instances:
                self._start(instance)
                return

    def start_twice(self) -> None:
        """Start a second process with the instance id of one that runs."""
        static = [client for client in self.world.alive if client.instance and client.is_in]
        if static and static[0].instance in self.world.group.instances:
            second = Client(self.world.draw(), static[0].instance, **self.subscription())
            self.world.clients.append(second)
            assert self.world.beat(second).error is Code.UNRELEASED_INSTANCE_ID

    def beat(self) -> None:
        client = self.one()
        if client is not None:
            self.world.beat(client)

    def beat_all(self) -> None:
        for client in self.world.alive:
            if self.random.random() < 0.7:
                client.apply()
            self.world.beat(client)
        self.world.pass_time(1.0)

    def apply(self) -> None:
        client = self.one()
        if client is not None:
            client.apply()

    def lose_the_answer(self) -> None:
        client = self.one()
        if client is not None:
            self.world.beat(client, is_lost=True)

    def subscribe(self) -> None:
        client = self.one()
        if client is not None:
            for name, value in self.subscription().items():
                if name != "assignor" or value is not None:
                    setattr(client, name, value)
            client.has_changed = True

    def leave(self) -> None:
        client = self.one()
        if client is not None:
            self.world.leave(client)

    def leave_for_now(self) -> None:
        static = [one for one in self.world.alive if one.instance is not None]
        if static:
            self.world.leave(static[0], for_now=True)

    def die(self) -> None:
        client = self.one()
        if client is not None:
            client.is_alive = False

    def come_late(self) -> None:
        """Send a heartbeat from a process that is taken for dead."""
        dead = [one for one in self.world.clients if not one.is_alive and one.epoch > 0]
        if not dead:
            return
        client, group = self.random.choice(dead), self.world.group
        holder = group.instances.get(client.instance or "")
        is_replaced = client.instance is not None and holder not in (None, client.member_id)
        is_member = client.member_id in group.members
        if is_replaced or not is_member:
            asked = client.request()
            heartbeats.heartbeat(
                group, asked, self.world.topics, self.world.draw, None, self.world.now
            )
            ((_, answer),) = group.take_replies()
            wanted = Code.FENCED_INSTANCE_ID if is_replaced else Code.UNKNOWN_MEMBER_ID
            assert answer.error is wanted
            self.world.settle()
            self.world.check()

    def commit(self) -> None:
        client = self.one()
        if client is not None:
            self.world.commit(client, client.epoch + self.random.choice((-1, 0, 0, 1)))
        self.world.commit(Client("", None, topics=(), pattern="", assignor=None), -1)

    def beat_in_a_wrong_epoch(self) -> None:
        """Send an epoch that the member has not reached."""
        client, world = self.one(), self.world
        if client is None or client.member_id not in world.group.members or not client.is_in:
            return
        member = world.group.members[client.member_id]
        epoch = self.random.choice((member.epoch + 1, member.previous_epoch - 1))
        if epoch <= 0:
            return
        asked = client.request()._replace(member_epoch=epoch)
        heartbeats.heartbeat(world.group, asked, world.topics, world.draw, None, world.now)
        ((_, answer),) = world.group.take_replies()
        assert answer.error is Code.FENCED_MEMBER_EPOCH
        assert not world.group.is_unsaved

    # --- topics, time, restarts -----------------------------------------------------------------

    def add_topic(self, name: str) -> None:
        topic_id = self.random.randbytes(16)
        self.world.topics[name] = Topic(topic_id, tuple(range(self.random.randint(1, 6))))

    def change_topics(self) -> None:
        name, topics = self.random.choice(NAMES), self.world.topics
        if name not in topics:
            self.add_topic(name)
        elif self.random.random() < 0.4:
            del topics[name]
        else:
            count = len(topics[name].partitions) + self.random.randint(1, 3)
            topics[name] = topics[name]._replace(partitions=tuple(range(count)))

    def pass_time(self) -> None:
        seconds = (0.5, 2.0, 5.0, REBALANCE_MS / 1000 - 0.1, REBALANCE_MS / 1000 + 1)
        self.world.pass_time(self.random.choice(seconds))

    def fall_silent(self) -> None:
        self.world.pass_time(SESSION + self.random.choice((-1.0, 1.0)))

    def restart(self) -> None:
        self.world.restart()

    def converge(self) -> None:
        self.world.converge()
