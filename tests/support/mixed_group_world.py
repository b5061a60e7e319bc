"""Run one group with clients of both protocols, and keep a ledger of what they read.

The group is hosted by the code of the coordinator, so that it changes its protocol as in a broker.
The log is a dict, to which each change is written as one batch. A broken rule is an AssertionError.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from broker.consumer_groups import records, restoring
from broker.consumer_groups.exchange import ConsumerSettings, HeartbeatAnswer, Migration, Place
from broker.consumer_groups.group import ConsumerGroup
from broker.coordinator import group_kinds
from broker.coordinator.consumer_hosting import ConsumerHosting
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.hosted import Hosted
from broker.coordinator.offsets_topic import NAME as OFFSETS
from broker.groups import records as classic_records
from broker.groups.exchange import Now
from broker.groups.group import Group, GroupSettings, State
from broker.groups.offsets import Committed
from broker.groups.records import GroupRecord
from broker.wire.error_codes import ErrorCode as Code
from support.classic_clients import SESSION, ClassicClient
from support.consumer_group_world import NAME, WALL_MS, Client, Topic

NEVER = float("inf")
ROUNDS_MAX = 80
GONE = (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND)
AnyClient = Client | ClassicClient


class Ticket:
    """A request that waits for its answer; the answer may be lost on its way."""

    def __init__(self, world: MixedWorld, client: AnyClient, asked: Any, *, is_lost: bool) -> None:
        self.world, self.client, self.asked, self.is_lost = world, client, asked, is_lost

    def put(self, said: Any) -> None:
        self.world.take(self, said)


class MixedWorld:
    """The group, its clients, its topics, the clock, the timer and the log."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        both = Migration.BIDIRECTIONAL
        self.policy = self.random.choice((both, both, both, both, *Migration))
        self.settings = ConsumerSettings(migration=self.policy)
        self.is_cooperative = self.random.random() < 0.6
        self.seconds, self.numbers = 1000.0, itertools.count(1)
        self.topics: dict[str, Topic] = {OFFSETS: Topic(bytes(16), (0,))}
        self.clients: list[AnyClient] = []
        self.log: dict[bytes, bytes] = {}
        self.committed: dict[tuple[str, int], Committed] = {}
        self.timer_at, self.conversions = NEVER, 0
        self.refusals = self.refused = 0  # writes that the log will refuse, and has refused
        self.hosting = ConsumerHosting(self.settings, self, self.new_group)
        self.hosting.topics = lambda: self.topics
        self.hosted = Hosted(self.new_group(NAME))

    # --- the broker -----------------------------------------------------------------------------

    def now(self) -> Now:
        return Now(self.seconds, WALL_MS + round(self.seconds * 1000))

    def draw(self, prefix: str = "member") -> str:
        return f"{prefix}-{next(self.numbers)}"

    def new_group(self, name: str) -> Group:
        return Group(name, GroupSettings(), self.draw, self.now())

    @contextmanager
    def using(self, name: str, *, is_new: bool = False) -> Iterator[tuple[None, Hosted]]:
        """Hold the group; then write it, and send its answers."""
        assert name == NAME
        kind = type(self.hosted.group)
        yield None, self.hosted
        self.conversions += bool(kind is not type(self.hosted.group) and self.hosted.group.members)
        self.settle()

    @property
    def group(self) -> Any:
        return self.hosted.group

    def settle(self) -> None:
        """Write the changes as one batch, set the timer as the coordinator does, and answer."""
        hosted = self.hosted
        unsaved = hosted.unsaved(self.now())
        if unsaved and self.refusals:
            self.refuse()
            return
        for key, value in unsaved:
            if value is None:
                self.log.pop(key, None)
            else:
                self.log[key] = value
        is_written = hosted.group.is_unsaved
        if unsaved:
            hosted.saved()
        if is_written:
            assert self.view(self.restored()) == self.view(self.group), "the log lacks a change"
        hosted.give_answers()
        if self.timer_at == NEVER or unsaved or group_kinds.has_new_deadline(self.group):
            self.timer_at = min(self.timer_at, group_kinds.next_deadline(self.group))

    def refuse(self) -> None:
        """Refuse a write: the group undoes its change, or is read again if it was converting."""
        self.refusals, self.refused = self.refusals - 1, self.refused + 1
        if self.hosted.is_converting:
            self.hosted.refuse_answers(Code.COORDINATOR_NOT_AVAILABLE)
            self.restart()
            return
        self.hosted.undo(Code.COORDINATOR_NOT_AVAILABLE, self.now())
        if isinstance(self.group, ConsumerGroup):
            assert self.view(self.restored()) == self.view(self.group), "a change was not undone"
        self.hosted.give_answers()
        self.timer_at = min(self.timer_at, group_kinds.next_deadline(self.group))

    def restored(self) -> Group | ConsumerGroup:
        """Make the group from the log, which has the records of one protocol."""
        made: Group | ConsumerGroup | None = None
        found = []
        for key, value in self.log.items():
            one = classic_records.parse(key, value)
            if isinstance(one, GroupRecord) and one.value is not None:
                made = classic_records.restored(
                    NAME, one.value, GroupSettings(), self.draw, self.now()
                )
            else:
                row = records.parse(key, value)
                assert row is not None
                found.append(row)
        if found:
            assert made is None, "the log has a group of each protocol"
            restored = restoring.restored(NAME, found, self.settings, self.now())
            assert restored is not None and restored[1] == []
            made = restored[0]
        return made or self.new_group(NAME)

    def view(self, group: Any) -> Any:
        if isinstance(group, Group):
            members = [(one.id, one.instance_id, one.assignment) for one in group.members.values()]
            return group.generation, group.protocol, group.instances, members
        return (
            group.epoch, group.assignment_epoch, group.metadata_hash, group.instances,
            {key: places for key, places in group.targets.items() if places}, group.owners,
            {
                one.id: (one.facts(), one.epoch, one.previous_epoch, one.state, one.assigned,
                         one.revoking)
                for one in group.members.values()
            },
        )  # fmt: skip

    def restart(self) -> None:
        """Lose the process: requests that wait are lost, and all sessions begin again."""
        self.hosted = Hosted(self.restored())
        self.hosted.is_recorded = bool(self.log)
        self.hosted.offsets.update(self.committed)
        group_kinds.restart_sessions(self.group, self.now())
        self.timer_at = group_kinds.next_deadline(self.group)
        for client in self.clients:
            if isinstance(client, ClassicClient) and client.waiting is not None:
                client.waiting, client.step = None, "join"
        self.check()

    def pass_time(self, seconds: float) -> None:
        until = self.seconds + seconds
        while self.timer_at <= until:
            self.seconds, self.timer_at = max(self.seconds, self.timer_at), NEVER
            kind = type(self.group)
            self.hosting.expire(self.hosted)
            self.conversions += kind is not type(self.group)
            self.settle()
            assert self.timer_at > self.seconds, "it is still due"
        self.seconds = until
        assert group_kinds.next_deadline(self.group) > until, "the timer was too late"
        self.check()

    # --- requests -------------------------------------------------------------------------------

    def send(self, client: AnyClient, *, is_lost: bool = False) -> None:
        """Let a client send its next request, unless it waits for an answer."""
        if isinstance(client, Client):
            self._beat(client, is_lost=is_lost)
        elif client.waiting is None:
            self._send_classic(client, is_lost=is_lost)
        self.check()

    def _beat(self, client: Client, *, is_lost: bool) -> None:
        asked = client.request()
        ticket = Ticket(self, client, asked, is_lost=is_lost)
        try:
            self.hosting.heartbeat(NAME, asked, ticket)
        except CoordinatorError as error:
            is_classic = isinstance(self.group, Group)
            can_return = is_classic and self.policy.has_upgrade and self.group.members
            assert error.code is (Code.UNKNOWN_MEMBER_ID if can_return else Code.GROUP_ID_NOT_FOUND)
            is_refused = is_classic and not self.policy.has_upgrade
            assert client.epoch > 0 or is_refused, str(error)
            ticket.put(HeartbeatAnswer(error.code))

    def _send_classic(self, client: ClassicClient, *, is_lost: bool) -> None:
        if client.led is not None and client.led != self.sizes:
            client.step = "join"  # a leader watches the topics
        if client.step == "heartbeat":
            with self.using(NAME) as (_, hosted):
                code = self.hosting.classic_heartbeat(
                    hosted, client.member_id, client.instance, client.generation
                )
            if not is_lost:
                self._check_fault(client, code)
                client.hear(code)
            return
        client.waiting = ticket = Ticket(self, client, None, is_lost=is_lost)
        with self.using(NAME) as (_, hosted):
            if client.step == "join":
                self.hosting.join(hosted, client.joining(), ticket)
            else:
                self.hosting.sync(hosted, client.syncing(), ticket)

    def take(self, ticket: Ticket, said: Any) -> None:
        """Give an answer to the client that waits for it."""
        client = ticket.client
        if isinstance(client, Client):
            if ticket.is_lost:
                client.lost += 1
            else:
                self._take_new(client, ticket.asked, said)
        elif client.waiting is ticket:
            if ticket.is_lost:  # the client gives up, and joins again
                client.waiting, client.step = None, "join"
            elif client.is_alive:
                client.take(said, self.sizes)

    def _take_new(self, client: Client, asked: Any, answer: HeartbeatAnswer) -> None:
        if answer.error in GONE:
            client.forget()
            client.lost = 0
            return
        if answer.error is Code.COORDINATOR_NOT_AVAILABLE:
            client.lost += 1
            return
        if answer.error:
            assert client.instance is not None, answer
            client.is_alive = client.is_in = False
            client.owned = frozenset()
            return
        client.epoch, client.lost, client.is_in = answer.member_epoch, 0, True
        client.has_changed = False
        client.told = client.owned if asked.owned is not None else client.told
        if answer.assignment is not None:
            client.wanted, client.told = answer.assignment, None

    def _check_fault(self, client: ClassicClient, code: Code) -> None:
        if code is Code.UNKNOWN_MEMBER_ID:
            assert client.member_id not in self.group.members
        elif code is Code.ILLEGAL_GENERATION:
            member = self.group.members[client.member_id]
            is_classic = isinstance(self.group, Group)
            present = self.group.generation if is_classic else member.epoch
            assert present != client.generation

    def leave(self, client: AnyClient) -> None:
        """Say good-bye; the partitions are given up before."""
        client.owned, refused = frozenset(), self.refused
        if isinstance(client, ClassicClient):
            with self.using(NAME) as (_, hosted):
                self.hosting.classic_leave(hosted, [(client.member_id, client.instance)])
            client.die()
        else:
            ticket = Ticket(self, client, None, is_lost=True)
            epoch = -2 if client.instance is not None and self.random.random() < 0.7 else -1
            try:
                self.hosting.leave(NAME, client.member_id, epoch, client.instance, ticket)
            except CoordinatorError as error:
                assert error.code in GONE
            client.is_alive = client.is_in = False
        if refused == self.refused:
            assert (client.member_id in self.group.members) <= (client.instance is not None)
        self.check()

    def commit(self, client: AnyClient) -> None:
        """Commit an offset; a member must be allowed to commit in its epoch."""
        epoch = client.epoch if isinstance(client, Client) else client.generation
        code = self.group.fault_of_commit(client.member_id, client.instance, epoch)
        member = self.group.members.get(client.member_id)
        is_mixed = isinstance(self.group, ConsumerGroup)
        if member is not None and is_mixed and epoch == member.epoch:
            assert code is Code.NONE
        if code is Code.NONE:
            key, count = ("a", self.random.randrange(3)), len(self.committed)
            one = Committed(count, -1, "", self.now().wall_ms)
            self.committed[key] = self.hosted.offsets[key] = one

    # --- what must hold -------------------------------------------------------------------------

    @property
    def sizes(self) -> dict[str, int]:
        return {name: len(one.partitions) for name, one in self.topics.items() if name != OFFSETS}

    @property
    def alive(self) -> list[AnyClient]:
        return [client for client in self.clients if client.is_alive]

    def places_of(self, client: AnyClient) -> set[Place]:
        """Return the partitions that a client reads."""
        if isinstance(client, Client):
            return set(client.owned)
        return {(self.topics[name].id, number) for name, number in client.owned}

    def check(self) -> None:
        """No partition has two readers; no offset is lost."""
        readers: dict[Place, AnyClient] = {}
        group = self.group
        for client in self.alive:
            member = group.members.get(client.member_id)
            if member is None:
                continue
            for place in self.places_of(client):
                assert place not in readers, "a partition has two readers"
                readers[place] = client
                if isinstance(group, ConsumerGroup):
                    assert place in member.assigned | member.revoking, "it reads what is not its"
        if isinstance(group, ConsumerGroup):
            owners = {
                place: one.id
                for one in group.members.values() for place in one.assigned | one.revoking
            }  # fmt: skip
            assert owners == group.owners
        held = {one.instance_id: one.id for one in group.members.values() if one.instance_id}
        assert held == group.instances
        assert self.hosted.offsets == self.committed, "an offset was lost"

    def converge(self) -> None:
        """Let all clients do what they are asked for, until nothing changes any more."""
        self.pass_time(1.1)  # so that a change of topics is noticed
        for _ in range(ROUNDS_MAX):
            for client in self.alive:
                client.apply()
                self.send(client)
            if not self.policy.has_upgrade and isinstance(self.group, Group):
                for client in self.alive:
                    if isinstance(client, Client) and not client.is_in and self.group.members:
                        client.is_alive = False  # it can never join
            self.pass_time(SESSION / 7)
            if self.is_at_rest():
                break
        alive = self.alive
        ids = {client.member_id for client in alive}
        assert ids == set(self.group.members), "a member is missing, or stuck"
        if not alive:
            return
        assert self.group.state is State.STABLE
        read = [place for client in alive for place in self.places_of(client)]
        names = {name for client in alive for name in client.topics if name in self.topics}
        wanted = {
            (self.topics[name].id, number)
            for name in names for number in self.topics[name].partitions
        }  # fmt: skip
        assert len(set(read)) == len(read)
        assert set(read) == wanted, "a partition has no reader"

    def is_at_rest(self) -> bool:
        alive = self.alive
        if {client.member_id for client in alive} != set(self.group.members):
            return False
        if self.group.state not in (State.STABLE, State.EMPTY):
            return False
        for client in alive:
            if isinstance(client, Client):
                if client.owned != client.wanted or client.told is None:
                    return False
            elif client.step != "heartbeat" or client.told is not None:
                return False
        return True
