"""Let clients of a group do anything in any order, and hold what they are told to the protocol."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.groups import records
from broker.groups.group import GroupSettings, State
from broker.groups.records import GroupRecord
from support.group_clients import Client
from support.group_world import NAME, World

INDEX = st.integers(0, 4)
SUBSCRIPTIONS = st.sampled_from([
    (("range", b"a"), ("sticky", b"b")),
    (("sticky", b"b"), ("range", b"a")),
    (("range", b"c"),),
    (("sticky", b"d"), ("range", b"e"), ("own", b"f")),
])  # fmt: skip
SECONDS = st.one_of(st.sampled_from([0.5, 2.9, 3.0, 6.0, 20.0, 60.0]), st.floats(0.001, 400.0))
CLIENTS_MAX = 6
ROUNDS_MAX = 1500
FOREIGN = (("other", b""),)


class GroupMachine(RuleBasedStateMachine):
    """A group and its clients."""

    @initialize(
        delay=st.sampled_from([0.0, 0.0, 3.0]),
        size_max=st.sampled_from([3, 100, 100]),
        timeouts=st.sampled_from([(3.0,), (20.0,), (3.0, 20.0, 400.0)]),
    )
    def create(self, delay: float, size_max: int, timeouts: tuple[float, ...]) -> None:
        self.timeouts = timeouts
        self.world = World(GroupSettings(delay, size_max, bytes_max=5000))

    def one(self, index: int) -> Client | None:
        """Give a client that is no longer waiting for an answer."""
        free = [client for client in self.world.alive if client.ticket is None]
        return free[index % len(free)] if free else None

    # --- what clients do --------------------------------------------------------------------------

    @rule(
        instance=st.sampled_from([None, None, "i", "j"]),
        protocols=SUBSCRIPTIONS,
        session=st.sampled_from([6.001, 10.0, 30.0]),
        rebalance=st.integers(0, 5),
        version=st.sampled_from([3, 5, 8, 9]),
    )
    def start(
        self, instance: str | None, protocols: tuple[tuple[str, bytes], ...], session: float,
        rebalance: int, version: int,
    ) -> None:  # fmt: skip
        """Start a consumer; one of an instance that runs is its restart."""
        if len(self.world.alive) < CLIENTS_MAX:
            timeout = self.timeouts[rebalance % len(self.timeouts)]
            limits = {"session": session, "rebalance": timeout, "version": version}
            client = Client(instance, protocols, **limits)
            self.world.add(client)
            self.step(client)

    @rule(index=INDEX, version=st.sampled_from([5, 8, 9]))
    def start_again(self, index: int, version: int) -> None:
        """Restart the process of a static member."""
        static = [client for client in self.world.clients if client.instance is not None]
        if static:
            old = static[-1 - index % len(static)]
            limits = {"session": old.session, "rebalance": old.rebalance, "version": version}
            client = Client(old.instance, old.protocols, **limits)
            self.world.add(client)
            self.step(client)

    @rule(index=INDEX)
    def poll(self, index: int) -> None:
        """Let a client do its next step."""
        client = self.one(index)
        if client is not None:
            self.step(client)

    @rule()
    def poll_all(self) -> None:
        """Let each client do its next step."""
        for client in self.world.alive:
            if client.ticket is None:
                self.step(client)

    def step(self, client: Client) -> None:
        if client.stage == "join":
            self.world.join(client)
        elif client.stage == "sync":
            self.world.sync(client)
        else:
            self.world.heartbeat(client)

    @rule(index=INDEX)
    def repeat(self, index: int) -> None:
        """Send a request again whose answer a client did not wait for."""
        waiting = [client for client in self.world.alive if client.ticket is not None]
        if waiting:
            self.step(waiting[index % len(waiting)])

    @rule(index=INDEX)
    def lose_the_answer(self, index: int) -> None:
        """Join again, because an answer was lost on its way."""
        client = self.one(index)
        if client is not None and client.stage != "join":
            self.world.join(client)

    @rule(index=INDEX, protocols=SUBSCRIPTIONS)
    def subscribe(self, index: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Join again, with another subscription."""
        client = self.one(index)
        if client is not None:
            client.protocols = protocols
            self.world.join(client)

    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        """Leave the group."""
        client = self.one(index)
        if client is not None:
            self.world.leave(client)

    @rule(index=INDEX)
    def die(self, index: int) -> None:
        """Fall silent; a request may wait."""
        alive = self.world.alive
        if alive:
            alive[index % len(alive)].is_alive = False

    @rule(index=st.integers(0, 50), kind=st.sampled_from(["heartbeat", "commit", "join", "sync"]))
    def come_late(self, index: int, kind: str) -> None:
        """Send something from a process that was taken for dead; an instance is fenced."""
        dead = [each for each in self.world.clients if not each.is_alive and each.ticket is None]
        if not dead:
            return
        client = dead[index % len(dead)]
        if kind == "heartbeat":
            self.world.heartbeat(client)
        elif kind == "commit":
            self.world.commit(client, client.generation)
        elif kind == "sync" and client.stage == "sync":
            self.world.sync(client)
        elif kind == "join" and client.member_id:
            self.world.join(client)

    @rule(index=INDEX, off=st.sampled_from([-1, 0, 0, 1]))
    def commit(self, index: int, off: int) -> None:
        """Commit in some generation; an outsider may, while the group is empty."""
        client = self.one(index)
        if client is not None:
            self.world.commit(client, client.generation + off)
        stranger = Client(None, FOREIGN, session=6.0, rebalance=1.0, version=9)
        self.world.commit(stranger, -1)

    @rule(index=INDEX, off=st.sampled_from([-1, 1]))
    def beat_in_a_wrong_generation(self, index: int, off: int) -> None:
        """Send a heartbeat of another generation."""
        client = self.one(index)
        if client is not None:
            self.world.heartbeat(client, client.generation + off)

    @rule(index=INDEX)
    def join_with_other_protocols(self, index: int) -> None:
        """Join with nothing that the others support, under an id of another client."""
        world, client = self.world, self.one(index)
        if client is not None and world.group.members:
            world.join(client, protocols=FOREIGN)
            assert not client.is_alive and client.ticket is None
            client.is_alive = True

    @rule(index=INDEX, instance=st.sampled_from([None, "i", "j"]))
    def mix_up_instances(self, index: int, instance: str | None) -> None:
        """Join under an id as another instance than before, or as none."""
        client = self.one(index)
        if client is not None and client.member_id:
            self.world.join(client, instance_id=instance)

    @rule(index=INDEX)
    def assign_too_much(self, index: int) -> None:
        """Let a leader assign more than fits into a record."""
        leaders = [each for each in self.world.alive if each.told and each.told.members]
        for client in leaders:
            if client.stage == "sync" and client.ticket is None:
                self.world.sync(client, 6000)

    # --- time -------------------------------------------------------------------------------------

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        """Let nobody do anything for a while."""
        self.world.pass_time(seconds)

    @rule(seconds=SECONDS)
    def fire_late(self, seconds: float) -> None:
        """Let a busy broker call the group too late."""
        self.world.fire_late(seconds)

    @rule()
    def restart(self) -> None:
        """Let the broker crash, and read the group from its log."""
        self.world.restart()

    @rule()
    def converge(self) -> None:
        """Let all clients continue, until each has its assignment in the same generation."""
        world = self.world
        for _ in range(ROUNDS_MAX):
            for client in world.alive:
                if client.ticket is None:
                    self.step(client)
            stages = {client.stage for client in world.alive}
            if stages <= {"stable"} and world.group.state in (State.STABLE, State.EMPTY):
                break
            world.pass_time(1.0)
            self.check()
        assert {each.generation for each in world.alive} <= {world.group.generation}
        assert {each.member_id for each in world.alive} <= set(world.group.members)
        assert stages <= {"stable"}

    @rule(index=INDEX, rounds=st.sampled_from([12, 1, 5, 40]))
    def dawdle(self, index: int, rounds: int) -> None:
        """Let all clients continue for a while, but one, which only sends heartbeats."""
        world = self.world
        due = [each for each in world.alive if each.stage == "sync" and each.ticket is None]
        lazy = due[index % len(due)] if due else self.one(index)
        for _ in range(rounds):
            for client in world.alive:
                if client.ticket is None and client is not lazy:
                    self.step(client)
            if lazy is not None and lazy.is_alive and lazy.ticket is None and lazy.member_id:
                world.heartbeat(lazy)
            world.pass_time(2.0)
            self.check()

    @rule()
    def let_all_die(self) -> None:
        """Let all fall silent: in the end the group is empty, and nothing waits."""
        world = self.world
        for client in world.alive:
            client.is_alive = False
        world.pass_time(2000.0)
        group = world.group
        assert not world.open and not group.members and not group.pending and not group.instances
        assert group.state is State.EMPTY
        assert records.restored(
            NAME, self.value(), group.settings, world.draw, world.now
        ).state is State.EMPTY  # fmt: skip

    # --- what must hold ---------------------------------------------------------------------------

    def value(self) -> object:
        found = records.parse(records.group_key(NAME), records.group_value(self.world.group))
        assert isinstance(found, GroupRecord)
        return found.value

    @invariant()
    def check(self) -> None:
        """No client waits too long; an active client stays a member, a silent one is dropped."""
        if not hasattr(self, "world"):
            return
        world, group = self.world, self.world.group
        for ticket in world.open:
            kind = {State.PREPARING: "join", State.COMPLETING: "sync"}.get(group.state)
            assert ticket.kind == kind
            assert world.seconds <= ticket.at + world.longest + world.late
        held = [one.instance_id for one in group.members.values() if one.instance_id is not None]
        assert len(set(held)) == len(held)
        assert group.instances == {
            one.instance_id: one.id for one in group.members.values() if one.instance_id is not None
        }
        for client in world.clients:
            is_member = client.member_id in group.members
            assert is_member if world.is_safe(client) else not (
                is_member and world.is_overdue(client)
            )  # fmt: skip
        waiting = {ticket.client for ticket in world.open}
        for member_id in group.members:
            owner = world.owners[member_id]
            until = max(owner.heard, world.completed_at) + owner.session
            assert owner in waiting or world.seconds < until
        assert bool(group.members) or group.state in (State.EMPTY, State.PREPARING)
        assert group.leader_id is None if not group.members else group.leader_id in group.members

    @invariant()
    def can_be_kept(self) -> None:
        """The record of the group gives the same group again."""
        if not hasattr(self, "world"):
            return
        group, world = self.world.group, self.world
        again = records.restored(NAME, self.value(), group.settings, world.draw, world.now)
        assert again.state is (State.STABLE if group.members else State.EMPTY)
        assert (again.generation, again.leader_id, again.protocol) == (
            group.generation, group.leader_id, group.protocol,
        )  # fmt: skip
        assert again.instances == group.instances
        for old, new in zip(group.members.values(), again.members.values(), strict=True):
            for name in ("id", "instance_id", "client_id", "client_host", "assignment",
                         "session_timeout", "rebalance_timeout"):  # fmt: skip
                assert getattr(old, name) == getattr(new, name)
            assert old.metadata_for(group.protocol) == new.metadata_for(group.protocol)
