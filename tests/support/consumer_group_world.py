"""Run a group of the new protocol with its clients, and keep a ledger of what they were told.

The clients do what KIP-848 asks of them: they give up partitions before they take others. The
ledger knows the rules of the protocol, not the code. Each broken rule is an AssertionError.
"""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

from broker.consumer_groups import heartbeats, leaving, records, restoring
from broker.consumer_groups.exchange import ConsumerSettings, Heartbeat, HeartbeatAnswer, Place
from broker.consumer_groups.group import ConsumerGroup
from broker.groups.exchange import Now
from broker.groups.group import State
from broker.wire.error_codes import ErrorCode as Code

NAME = "g"
SESSION, REBALANCE_MS = 45.0, 20_000
WALL_MS = 1_700_000_000_000
PATTERNS = ("t.*", "[ab].*", "a|b|t1")
NAMES = ("a", "b", "t1", "t2")
ROUNDS_MAX = 40


class Topic(NamedTuple):
    """One topic."""

    id: bytes
    partitions: tuple[int, ...]


class Client:
    """One process with one consumer.

    Attributes:
        owned: the partitions that it reads.
        wanted: the last assignment that it was told.
        told: what it last said about its partitions and got an answer for.
        heard: when the group last answered it.
        revokes_since: when it was told a new assignment that it has not confirmed yet.
        holds_since: when it was told to give up partitions that it still reads.
        lost: how many answers were lost since it last got one.
    """

    def __init__(self, member_id: str, instance: str | None, **subscription: Any) -> None:
        self.member_id, self.instance, self.epoch = member_id, instance, 0
        self.topics: tuple[str, ...] = subscription["topics"]
        self.pattern: str = subscription["pattern"]
        self.assignor: str | None = subscription["assignor"]
        self.owned: frozenset[Place] = frozenset()
        self.wanted: frozenset[Place] = frozenset()
        self.told: frozenset[Place] | None = None
        self.is_alive, self.is_in, self.is_silent, self.has_changed = True, False, False, False
        self.heard, self.lost, self.lost_since = 0.0, 0, 0.0
        self.revokes_since: float | None = None
        self.holds_since: float | None = None

    def request(self) -> Heartbeat:
        is_full = self.epoch == 0 or self.lost > 0
        says_topics = is_full or self.has_changed
        return Heartbeat(
            self.member_id, self.epoch, "client", "/host", self.instance, None,
            REBALANCE_MS if is_full else -1,
            self.topics if says_topics else None, self.pattern if says_topics else None,
            self.assignor if says_topics else None,
            self.owned if is_full or self.owned != self.told else None,
        )  # fmt: skip

    def forget(self) -> None:
        """Give up everything and join again."""
        self.owned = self.wanted = frozenset()
        self.told, self.epoch, self.is_in = None, 0, False
        self.revokes_since = self.holds_since = None

    def apply(self) -> None:
        """Give up what is not assigned any more, then take the rest.

        After a lost answer, it takes nothing. Its last heartbeat has said that it does not have the
        new partitions, so the group may have given them to others: the protocol has this gap.
        """
        self.owned = self.owned & self.wanted if self.lost else self.wanted
        self.holds_since = None


class World:
    """The group, its clients, its topics, the clock, and the ledger."""

    def __init__(self, seed: int, settings: ConsumerSettings | None = None) -> None:
        self.random = random.Random(seed)
        self.settings = settings or ConsumerSettings()
        self.seconds, self.numbers = 1000.0, itertools.count(1)
        self.topics: dict[str, Topic] = {}
        self.clients: list[Client] = []
        self.log: dict[bytes, bytes] = {}
        self.highest, self.is_compared = (0, 0), True
        self.group = ConsumerGroup(NAME, self.settings, self.now)

    @property
    def now(self) -> Now:
        return Now(self.seconds, WALL_MS + round(self.seconds * 1000))

    def draw(self) -> str:
        return f"member-{next(self.numbers)}"

    @property
    def alive(self) -> list[Client]:
        return [client for client in self.clients if client.is_alive]

    # --- requests -------------------------------------------------------------------------------

    def beat(self, client: Client, *, is_lost: bool = False) -> HeartbeatAnswer:
        """Send a heartbeat; the answer may be lost on its way."""
        asked = client.request()
        heartbeats.heartbeat(self.group, asked, self.topics, self.draw, client, self.now)
        ((waiter, answer),) = self.group.take_replies()
        assert waiter is client
        self.settle()
        if not client.member_id and not answer.error:
            assert answer.member_id is not None
            client.member_id = answer.member_id
        if is_lost:
            client.lost_since = client.lost_since if client.lost else self.seconds
            client.lost += 1
            if not answer.error:
                client.heard = self.seconds
        else:
            self._take(client, asked, answer)
        self.check()
        return answer

    def _take(self, client: Client, asked: Heartbeat, answer: HeartbeatAnswer) -> None:
        if answer.error in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH):
            assert client.epoch != 0, "a member that joins was refused"
            assert not self.is_safe(client), f"a good member was refused: {answer.error}"
            member = self.group.members.get(client.member_id)
            has_extra = member is None or not client.owned <= member.assigned
            assert client.lost != 1 or has_extra, "a member was refused for one lost answer"
            client.forget()
            client.lost = 0
            return
        if answer.error:
            client.is_alive = client.is_in = False
            client.owned = frozenset()
            return
        assert answer.member_id == client.member_id
        assert answer.member_epoch >= client.epoch, "the epoch of a member went back"
        assert answer.assignment is not None or not asked.is_full
        since = client.lost_since if client.lost else self.seconds
        client.epoch, client.heard, client.lost = answer.member_epoch, self.seconds, 0
        client.is_in, client.has_changed = True, False
        client.told = client.owned if asked.owned is not None else client.told
        if answer.assignment is not None:
            client.wanted, client.told = answer.assignment, None  # so it will say what it has
        if client.owned <= client.wanted:
            client.holds_since = None
        elif client.holds_since is None:
            client.holds_since = self.seconds
        if client.told is not None and client.told <= client.wanted:
            client.revokes_since = None
        elif client.revokes_since is None:
            client.revokes_since = since

    def leave(self, client: Client, *, for_now: bool = False) -> None:
        """Say good-bye; the partitions are given up before."""
        client.owned, client.holds_since = frozenset(), None
        epoch = -2 if for_now else -1
        before = self.group.epoch
        answer = leaving.leave(
            self.group, client.member_id, epoch, client.instance, self.topics, self.now
        )
        is_member = client.member_id in self.group.members
        assert answer.error or is_member == for_now
        assert answer.error or self.group.epoch == before + (not for_now)
        client.is_alive, client.is_in = False, False
        self.settle()
        self.check()

    def commit(self, client: Client, epoch: int) -> None:
        """Ask whether a commit is allowed."""
        code = self.group.fault_of_commit(client.member_id, client.instance, epoch)
        member = self.group.members.get(client.member_id)
        if member is None:
            is_open = epoch < 0 and not self.group.members
            assert code is (Code.NONE if is_open else Code.UNKNOWN_MEMBER_ID)
        else:
            assert code is (Code.NONE if epoch == member.epoch else Code.STALE_MEMBER_EPOCH)

    # --- the log, time, restarts ----------------------------------------------------------------

    def settle(self) -> None:
        """Write what the group wants to have written."""
        self.is_compared = self.is_compared and not self.group.is_unsaved
        for key, value in records.changes_of(self.group, self.now):
            if value is None:
                self.log.pop(key, None)
            else:
                self.log[key] = value
        self.group.saved()
        assert not self.group.is_unsaved

    def restored(self) -> ConsumerGroup:
        found = [records.parse(key, value) for key, value in self.log.items()]
        made = restoring.restored(
            NAME, [one for one in found if one is not None], self.settings, self.now
        )
        if made is None:
            return ConsumerGroup(NAME, self.settings, self.now)
        group, faults = made
        assert faults == [] and not group.is_unsaved, faults
        return group

    def restart(self) -> None:
        """Lose the process: the group is what the log has; sessions begin again."""
        self.group = self.restored()
        for client in self.clients:
            if client.member_id not in self.group.members:
                assert not self.is_safe(client), "a restart has lost a member"
                continue
            client.heard = self.seconds
            if client.holds_since is not None:
                client.holds_since = self.seconds
            if client.revokes_since is not None:
                client.revokes_since = self.seconds
        self.check()

    def pass_time(self, seconds: float) -> None:
        """Let the timer fire at each deadline, exactly."""
        until = self.seconds + seconds
        while (deadline := leaving.next_deadline(self.group)) <= until:
            assert deadline > self.seconds, "it is still due"
            before = set(self.group.members)
            early = self.now._replace(seconds=self.seconds + (deadline - self.seconds) * 0.9)
            if early.seconds < deadline:
                leaving.expire(self.group, self.topics, early)
            assert set(self.group.members) == before, "a member was removed too early"
            self.seconds = deadline
            leaving.expire(self.group, self.topics, self.now)
            assert before > set(self.group.members), "nothing was due"
            for client in self.clients:
                gone = client.member_id in before - set(self.group.members)
                assert not gone or not self.is_safe(client), "a good member was removed"
            self.settle()
        self.seconds = until
        for client in self.clients:
            since = client.holds_since
            is_late = since is not None and until >= since + REBALANCE_MS / 1000
            is_member = client.member_id in self.group.members
            assert not (is_late and is_member), "a member keeps what it must give up"
        self.check()

    # --- what must hold -------------------------------------------------------------------------

    def is_safe(self, client: Client) -> bool:
        """Whether a client did all that is asked of a member, so that it must be one."""
        since = client.revokes_since
        is_late = since is not None and self.seconds >= since + REBALANCE_MS / 1000
        is_heard = self.seconds < client.heard + self.settings.session
        return client.is_in and is_heard and not is_late and client.lost == 0

    def check(self) -> None:
        """No partition has two readers, epochs only grow, and the log gives the same group."""
        group = self.group
        epochs = (group.epoch, group.assignment_epoch)
        assert epochs[0] >= self.highest[0] and epochs[1] >= self.highest[1], "an epoch went back"
        assert group.assignment_epoch <= group.epoch
        self.highest = epochs
        readers: dict[Place, Client] = {}
        for client in self.clients:
            if client.member_id not in group.members or not client.is_alive:
                continue
            member = group.members[client.member_id]
            assert client.owned <= member.assigned | member.revoking, "it reads what is not its"
            for place in client.owned:
                assert place not in readers, "a partition has two readers"
                readers[place] = client
        owners: dict[Place, str] = {}
        for member in group.members.values():
            assert member.epoch <= group.assignment_epoch
            for place in [*member.assigned, *member.revoking]:
                assert place not in owners, "a partition belongs to two members"
                owners[place] = member.id
        assert owners == group.owners
        held = {one.instance_id: one.id for one in group.members.values() if one.instance_id}
        assert held == group.instances
        assert (group.state is State.EMPTY) == (not group.members)
        if not self.is_compared:
            assert self.view(self.restored()) == self.view(group), "the log lacks a change"
            self.is_compared = True

    def view(self, group: ConsumerGroup) -> Any:
        return (
            group.epoch, group.assignment_epoch, group.metadata_hash, group.instances,
            {key: places for key, places in group.targets.items() if places},
            dict(group.resolved), group.owners,
            {
                one.id: (
                    one.facts(), one.epoch, one.previous_epoch, one.state, one.assigned,
                    one.revoking,
                )
                for one in group.members.values()
            },
        )  # fmt: skip

    def converge(self) -> None:
        """Let all clients do what they are asked for, until nothing changes any more."""
        self.pass_time(1.1)  # so that a change of topics is noticed
        for _ in range(ROUNDS_MAX):
            for client in self.alive:
                client.apply()
                self.beat(client)
            self.pass_time(5.0)
            alive = self.alive
            if {one.member_id for one in alive} == set(self.group.members) and (
                self.group.state in (State.STABLE, State.EMPTY)
                and all(one.owned == one.wanted and one.told is not None for one in alive)
            ):
                break
        assert {client.member_id for client in alive} == set(self.group.members)
        if not alive:
            return
        assert self.group.state is State.STABLE
        assert {client.epoch for client in alive} == {self.group.epoch}
        read = [place for client in alive for place in client.owned]
        assert len(set(read)) == len(read)
        names = set[str]()
        for client in alive:
            wanted = self.wanted_names(client)
            names |= wanted
            ids_of = {self.topics[name].id for name in wanted}
            assert {topic for topic, _ in client.owned} <= ids_of, "it did not subscribe to this"
        assert set(read) == {
            (self.topics[name].id, number)
            for name in names
            for number in self.topics[name].partitions
        }, "a partition has no reader"

    def wanted_names(self, client: Client) -> set[str]:
        """Say which topics a client has subscribed to; the expressions are simple ones."""
        import re

        found = {name for name in client.topics if name in self.topics}
        if client.pattern:
            found |= {name for name in self.topics if re.fullmatch(client.pattern, name)}
        return found
