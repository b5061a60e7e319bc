"""Run a consumer group with its clients, and keep a ledger of what they were told.

The ledger knows the rules of the protocol, not the code: it sees requests, answers, and the state
that a group shows. Each broken rule is an AssertionError.
"""

from __future__ import annotations

import itertools
from typing import Any

from broker.groups import assignment, joining, records, sessions
from broker.groups.exchange import JoinAnswer, Now, SyncAnswer
from broker.groups.group import Group, GroupSettings, State
from broker.groups.records import GroupRecord
from broker.wire.error_codes import ErrorCode as Code
from support.group_clients import Client, Generation, Ticket

NAME = "g"
ASKS_TO_REJOIN = (Code.REBALANCE_IN_PROGRESS, Code.UNKNOWN_SERVER_ERROR)
NEW_MEMBER_SECONDS = 300.0  # so long may a new member wait
WALL_MS = 1_700_000_000_000


class World:
    """The group, its clients, the clock, and the ledger."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings, self.seconds, self.late = settings, 1000.0, 0.0
        self.numbers = itertools.count(1)
        self.clients: list[Client] = []
        self.owners: dict[str, Client] = {}
        self.before: dict[str, str] = {}  # the id of a static member in its earlier life
        self.open: list[Ticket] = []
        self.generations: dict[int, Generation] = {}
        self.saved: bytes | None = None
        self.asking: Client | None = None
        self.longest, self.shortest = 0.0, float("inf")  # rebalance timeouts
        self.preparing_since = self.completed_at = 0.0
        self.highest, self.is_leaving = 0, False
        self.group = Group(NAME, settings, self.draw, self.now)

    @property
    def now(self) -> Now:
        return Now(self.seconds, WALL_MS + round(self.seconds * 1000))

    def draw(self, prefix: str) -> str:
        assert self.asking is not None
        member_id = f"{prefix}-{next(self.numbers)}"
        self.owners[member_id] = self.asking
        return member_id

    @property
    def alive(self) -> list[Client]:
        return [client for client in self.clients if client.is_alive]

    def add(self, client: Client) -> None:
        """Start a process; an earlier one of the same instance is replaced, but may still send."""
        for other in self.alive:
            if client.instance is not None and other.instance == client.instance:
                other.is_alive = False
        self.clients.append(client)

    # --- requests -------------------------------------------------------------------------------

    def join(self, client: Client, **changed: Any) -> None:
        asked, group = client.joining()._replace(**changed), self.group
        old = group.instances.get(client.instance or "")
        self.longest = max(self.longest, client.rebalance)
        self.shortest = min(self.shortest, client.rebalance)
        ticket, client.stage = self._ticket(client, "join"), "join"
        was, client.sent, self.asking = client.sent, asked.protocols, client
        joining.join(group, asked, ticket, self.now)
        self.asking = None
        new = group.instances.get(client.instance or "")
        if old and new and old != new:
            self._replaced(old, new)
        self.settle()
        if ticket in self.open:
            client.heard = self.seconds
        elif ticket.answer and ticket.answer.error not in (Code.NONE, Code.MEMBER_ID_REQUIRED):
            client.sent = was

    def _replaced(self, old: str, new: str) -> None:
        self.before[new] = old
        self.owners[old].is_in = False
        for one in self.generations.values():
            if one.assigned and old in one.assigned:
                one.assigned[new] = one.assigned[old]

    def sync(self, client: Client, size: int = 4) -> None:
        asked = client.syncing(size)
        ticket = self._ticket(client, "sync")
        one = self.generations.get(client.generation)
        is_first = one is not None and one.assigned is None and bool(asked.assignments)
        if is_first and one is not None and client.generation == self.group.generation:
            one.assigned = dict(asked.assignments)
        assignment.sync(self.group, asked, ticket, self.now)
        refused = {said.error for waiter, said in self.group.replies if waiter is ticket}
        if refused - {Code.NONE} and is_first and one is not None:
            one.assigned = None
        self.settle()
        if ticket in self.open or refused == {Code.UNKNOWN_SERVER_ERROR}:
            client.heard = self.seconds
        if one is not None and not refused - {Code.NONE}:
            one.synced.add(self.first_id(client.member_id))

    def heartbeat(self, client: Client, generation: int | None = None) -> Code:
        asked = client.generation if generation is None else generation
        expected = self.expected(client, asked)
        if not expected and self.group.state is State.PREPARING:
            expected = Code.REBALANCE_IN_PROGRESS
        code = sessions.heartbeat(
            self.group, client.member_id, client.instance, asked, self.now
        )  # fmt: skip
        assert code is expected, (code, expected)
        if code in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            client.heard = self.seconds
        self.settle()
        if generation is None:
            self._take_code(client, code)
        return code

    def commit(self, client: Client, generation: int) -> None:
        """Ask whether offsets may be committed."""
        expected = self.expected(client, generation)
        if not expected and self.group.state is State.COMPLETING:
            expected = Code.REBALANCE_IN_PROGRESS
        code = self.group.fault_of_commit(client.member_id, client.instance, generation)
        if generation < 0 and self.group.state is State.EMPTY:  # it needs no membership then
            assert code is Code.NONE, code
            return
        if generation < 0 and not client.member_id and client.instance is None:
            expected = Code.UNKNOWN_MEMBER_ID
        assert code is expected, (code, expected)

    def expected(self, client: Client, generation: int) -> Code:
        """Say how a request of a client must be refused."""
        held = self.group.instances.get(client.instance or "")
        if client.instance is not None and held and held != client.member_id:
            return Code.FENCED_INSTANCE_ID
        if client.member_id not in self.group.members:
            return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if generation == self.group.generation else Code.ILLEGAL_GENERATION

    def leave(self, client: Client) -> None:
        """Say good-bye, with the instance as administrators do it for a static member."""
        by_instance = client.instance is not None
        is_in = client.member_id in {*self.group.members, *self.group.pending}
        if by_instance:
            is_in = client.instance in self.group.instances
            holder = self.owners.get(self.group.instances.get(client.instance or "", ""))
        else:
            holder = client
        member_id = "" if by_instance else client.member_id
        is_pending, shape = member_id in self.group.pending, self.shape()
        self.is_leaving = True
        code = sessions.leave(self.group, member_id, client.instance, self.now)
        assert (code is Code.NONE) == is_in
        if is_pending and shape[0] is State.STABLE:
            assert self.shape() == shape, "a rebalance began without a cause"
        client.is_alive = False
        if holder is not None:
            holder.forget(keeps_id=True)
        self.settle()
        self.is_leaving = False

    def _ticket(self, client: Client, kind: str) -> Ticket:
        if client.ticket is None:
            client.waits_since = self.seconds
        client.ticket = Ticket(client, kind, self.seconds)
        self.open.append(client.ticket)
        return client.ticket

    # --- answers --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Save the group if it wants that, then give the answers, then look at everything."""
        if self.group.is_unsaved:
            self.saved, self.group.is_unsaved = records.group_value(self.group), False
        if self.group.state is not State.PREPARING:
            self.preparing_since = self.seconds
        for ticket, answer in self.group.take_replies():
            assert ticket.answer is None, "a request was answered twice"
            ticket.answer = answer
            self.open.remove(ticket)
            has_waited = answer.error in ASKS_TO_REJOIN and ticket.at < self.seconds
            if has_waited or not answer.error:
                ticket.client.heard = self.seconds
            if isinstance(answer, JoinAnswer):
                self._check_join(ticket, answer)
            else:
                self._check_sync(ticket, answer)
            if ticket is ticket.client.ticket:  # the client still waits for this one
                self._take(ticket.client, ticket.kind, answer)
        if self.group.state is State.COMPLETING:
            assert self.generations[self.group.generation].informed, "nobody leads"

    def first_id(self, member_id: str) -> str:
        while member_id in self.before:
            member_id = self.before[member_id]
        return member_id

    def _check_join(self, ticket: Ticket, answer: JoinAnswer) -> None:
        group, number = self.group, answer.generation
        if answer.error:
            is_dropped = answer.error is Code.UNKNOWN_MEMBER_ID and not self.is_leaving
            has_waited = ticket is ticket.client.ticket and ticket.at < self.seconds
            since = ticket.client.waits_since
            assert not (is_dropped and has_waited) or self.seconds >= since + NEW_MEMBER_SECONDS
            return
        assert number == group.generation >= self.highest
        if number not in self.generations:
            self.generations[number] = Generation(answer, self.seconds)
            self.completed_at = self.seconds
        self.highest, one = number, self.generations[number]
        assert answer.protocol == one.protocol
        assert self.owners[answer.member_id] is ticket.client
        assert self.first_id(answer.leader_id) == self.first_id(one.leader)
        for member_id in group.members:
            assert one.protocol in dict(self.owners[member_id].sent)
        assert bool(answer.members) == (answer.leader_id == answer.member_id)
        if answer.members:
            one.informed.add(self.first_id(answer.member_id))
            assert {row[0] for row in answer.members} == set(group.members)
            for member_id, instance, data in answer.members:
                owner = self.owners[member_id]
                assert dict(owner.sent)[one.protocol or ""] == data
                assert owner.instance == instance
        assert one.informed <= {self.first_id(one.leader)}
        assert not answer.skips_assignment or (group.state is State.STABLE and answer.members)

    def _check_sync(self, ticket: Ticket, answer: SyncAnswer) -> None:
        if answer.error:
            return
        one = self.generations[self.group.generation]
        assert one.assigned is not None, "assignments came from nowhere"
        assert answer.protocol == one.protocol
        member_id = ticket.client.member_id
        assert answer.assignment == one.assigned.get(member_id, b"")
        saved = self.restored_group()
        assert saved.generation == self.group.generation
        assert saved.members[member_id].assignment == answer.assignment

    def _take(self, client: Client, kind: str, answer: Any) -> None:
        client.ticket = None
        if answer.error:
            if kind == "join" and answer.error is Code.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            else:
                self._take_code(client, answer.error)
            return
        if kind == "join":
            client.member_id, client.generation = answer.member_id, answer.generation
            client.told, client.stage, client.is_in = answer, "sync", True
        else:
            client.stage = "stable"

    def _take_code(self, client: Client, code: Code) -> None:
        """Do what Kafka's consumer does after an error."""
        if code in ASKS_TO_REJOIN:
            client.stage = "join"
        elif code is Code.UNKNOWN_MEMBER_ID:
            client.forget()
        elif code is Code.ILLEGAL_GENERATION:
            client.forget(keeps_id=True)
        elif code:
            client.is_alive = client.is_in = False

    # --- time and restarts ----------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Let the timer fire at each deadline, exactly."""
        until = self.seconds + seconds
        while (deadline := sessions.next_deadline(self.group)) <= until:
            assert deadline > self.seconds
            before = self.view()
            self.seconds += (deadline - self.seconds) * 0.999
            sessions.expire(self.group, self.now)
            assert self.view() == before, "something was done too early"
            self.expire(deadline)
        self.seconds = until

    def expire(self, at: float) -> None:
        before, self.seconds = self.view(), at
        shape = self.shape()
        sessions.expire(self.group, self.now)
        assert self.view() != before, "nothing was due"
        assert self.group.members.keys() - shape[1] == set()
        assert self.group.members.keys() != shape[1] or shape[0] is not State.STABLE or (
            self.shape() == shape
        ), "a rebalance began without a cause"  # fmt: skip
        assert sessions.next_deadline(self.group) > at, "it is still due"
        self.settle()

    def fire_late(self, seconds: float) -> None:
        """Let time pass, and the timer fire only then."""
        self.seconds += seconds
        deadline = sessions.next_deadline(self.group)
        if deadline <= self.seconds:
            self.late += self.seconds - deadline
            self.expire(self.seconds)

    def shape(self) -> tuple[State, set[str]]:
        return self.group.state, set(self.group.members)

    def restored_group(self) -> Group:
        if self.saved is None:
            return Group(NAME, self.settings, self.draw, self.now)
        found = records.parse(records.group_key(NAME), self.saved)
        assert isinstance(found, GroupRecord) and found.value is not None
        return records.restored(NAME, found.value, self.settings, self.draw, self.now)

    def restart(self) -> None:
        """Lose the process: the group is what was saved, and requests that waited are lost."""
        self.group = group = self.restored_group()
        self.open.clear()
        self.highest = group.generation
        self.generations = {n: one for n, one in self.generations.items() if n <= self.highest}
        for client in self.clients:
            client.ticket = None
            is_kept = client.member_id in group.members and client.generation == group.generation
            assert is_kept or not (
                client.is_in and client.stage == "stable" and self.is_safe(client)
            )
            if not is_kept:
                client.forget(keeps_id=True)
            client.heard = self.seconds
        for member in group.members.values():
            self.owners[member.id].sent = member.protocols
            self.generations[group.generation].synced.add(self.first_id(member.id))
        self.completed_at = self.preparing_since = self.seconds

    def view(self) -> Any:
        """Return all that a group consists of."""
        group = self.group
        return (
            group.state, group.generation, group.leader_id, group.join_deadline,
            group.sync_deadline, group.delay_left, dict(group.pending), set(group.unsynced),
            [(m.id, m.deadline, m.joining, m.syncing) for m in group.members.values()],
            len(group.replies),
        )  # fmt: skip

    # --- what must hold -------------------------------------------------------------------------

    def is_safe(self, client: Client) -> bool:
        """Whether a client did all that is asked of a member, so that it must be one."""
        if not client.is_in:
            return False
        if client.ticket is not None:
            return True
        if client.heard + client.session <= self.seconds:
            return False
        group, shortest = self.group, self.shortest
        if group.state is State.PREPARING and self.preparing_since + shortest <= self.seconds:
            return False
        one = self.generations.get(client.generation)
        return client.generation == group.generation and one is not None and (
            client.stage == "stable" or one.at + shortest > self.seconds
        )  # fmt: skip

    def is_overdue(self, client: Client) -> bool:
        """Whether a client had its time to ask for its assignment, and did not."""
        one = self.generations.get(client.generation)
        is_current = client.generation == self.group.generation and client.ticket is None
        if one is None or not is_current or self.group.state is State.PREPARING:
            return False
        has_synced = self.first_id(client.member_id) in one.synced
        return not has_synced and self.seconds >= one.at + self.longest + self.late
