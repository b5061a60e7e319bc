"""Let clients of both protocols do anything in any order."""

from __future__ import annotations

from collections.abc import Callable

from support.classic_clients import REBALANCE, SESSION, ClassicClient
from support.consumer_group_world import Client, Topic
from support.mixed_group_world import AnyClient, MixedWorld

CLIENTS_MAX = 6
NAMES = ("a", "b", "t1")


class MixedHistory:
    """One random history; the seed decides everything."""

    def __init__(self, seed: int, *, fills_disk: bool = True) -> None:
        """Begin with two topics and no client.

        Args:
            fills_disk: whether the log sometimes refuses writes.
        """
        self.world = MixedWorld(seed)
        self.random = self.world.random
        self.subscriptions: dict[str, tuple[str, ...]] = {}
        for name in NAMES[:2]:
            self.add_topic(name)
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (14, self.send), (8, self.apply), (10, self.send_all), (4, self.start_new),
            (4, self.start_classic), (2, self.lose_the_answer), (3, self.leave), (1, self.die),
            (3, self.roll), (2, self.commit), (1, self.change_topics), (3, self.pass_time),
            (2, self.restart), (1, self.converge), (1, self.fall_silent), (1, self.roll_all),
            (2 * fills_disk, self.fill_the_disk),
        ]  # fmt: skip

    def run(self, count: int) -> int:
        """Do random steps; in the end, everything must come to rest. Count the conversions."""
        weights = [weight for weight, _ in self.steps]
        for _, step in self.random.choices(self.steps, weights, k=count):
            step()
        self.converge()
        return self.world.conversions

    # --- what clients do ------------------------------------------------------------------------

    def one(self) -> AnyClient | None:
        alive = self.world.alive
        return self.random.choice(alive) if alive else None

    def _instance(self) -> str | None:
        running = {client.instance for client in self.world.alive}
        found = self.random.choice((None, None, "i", "j"))
        return None if found in running else found

    def _start(self, instance: str | None, *, is_new: bool) -> None:
        topics = tuple(self.random.sample(NAMES, self.random.randint(1, 3)))
        if instance is not None:  # classic groups do not notice another subscription at a restart
            topics = self.subscriptions.setdefault(instance, topics)
        client: AnyClient
        if is_new:
            client = Client(self.world.draw(), instance, topics=topics, pattern="", assignor=None)
        else:
            client = ClassicClient(
                instance, topics, is_cooperative=self.world.is_cooperative,
                needs_known_id=self.random.random() < 0.8,
                rebalance=self.random.choice((SESSION / 2, REBALANCE)),
            )  # fmt: skip
        self.world.clients.append(client)
        self.world.send(client)

    def start_new(self) -> None:
        if len(self.world.alive) < CLIENTS_MAX:
            self._start(self._instance(), is_new=True)

    def start_classic(self) -> None:
        if len(self.world.alive) < CLIENTS_MAX:
            self._start(self._instance(), is_new=False)

    def roll(self) -> None:
        """Replace a process by one of the other protocol; a classic static one does not leave."""
        client = self.one()
        if client is not None:
            is_new = isinstance(client, ClassicClient)
            if is_new and client.instance is not None:
                client.is_alive = False
            else:
                self.world.leave(client)
            self._start(client.instance, is_new=is_new)

    def roll_all(self) -> None:
        """Change all processes to one protocol, one after another, while the others go on."""
        is_new = self.random.random() < 0.5
        for client in self.world.alive:
            if isinstance(client, Client) != is_new:
                self.world.leave(client)
                self._start(client.instance, is_new=is_new)
                for _ in range(self.random.randrange(4)):
                    self.send_all()

    def send(self) -> None:
        client = self.one()
        if client is not None:
            self.world.send(client)

    def send_all(self) -> None:
        for client in self.world.alive:
            if self.random.random() < 0.7:
                client.apply()
            self.world.send(client)
        self.world.pass_time(1.0)

    def apply(self) -> None:
        client = self.one()
        if client is not None:
            client.apply()

    def lose_the_answer(self) -> None:
        client = self.one()
        if client is not None:
            self.world.send(client, is_lost=True)

    def leave(self) -> None:
        client = self.one()
        if client is not None:
            self.world.leave(client)

    def die(self) -> None:
        client = self.one()
        if client is not None:
            client.is_alive = False

    def commit(self) -> None:
        client = self.one()
        if client is not None:
            self.world.commit(client)

    # --- topics, time, restarts -----------------------------------------------------------------

    def add_topic(self, name: str) -> None:
        count = self.random.randint(1, 6)
        self.world.topics[name] = Topic(self.random.randbytes(16), tuple(range(count)))

    def change_topics(self) -> None:
        name, topics = self.random.choice(NAMES), self.world.topics
        if name not in topics:
            self.add_topic(name)
        else:
            count = len(topics[name].partitions) + self.random.randint(1, 2)
            topics[name] = topics[name]._replace(partitions=tuple(range(count)))

    def pass_time(self) -> None:
        self.world.pass_time(self.random.choice((0.5, 2.0, 5.0, SESSION - 0.1, REBALANCE + 1)))

    def fall_silent(self) -> None:
        self.world.pass_time(self.random.choice((SESSION + 1, 44.0, 46.0)))

    def restart(self) -> None:
        self.world.restart()

    def fill_the_disk(self) -> None:
        """Let the log refuse the next writes."""
        self.world.refusals += self.random.randint(1, 3)

    def converge(self) -> None:
        self.world.refusals = 0
        self.world.converge()
