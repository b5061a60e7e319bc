"""Act as consumers of the classic protocol, eager or cooperative, for tests without sockets."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from broker.groups.exchange import JoinAnswer, Joining, SyncAnswer, Syncing
from broker.mixed_groups import consumer_bytes
from broker.wire import codec
from broker.wire.error_codes import ErrorCode as Code
from broker.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

Named = frozenset[tuple[str, int]]  # partitions with the names of their topics
NOTHING: Named = frozenset()
SESSION, REBALANCE = 10.0, 20.0
LOST = (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION)


def _rows(kind: Any, places: Iterable[tuple[str, int]]) -> list[Any]:
    numbers: dict[str, list[int]] = {}
    for name, number in sorted(places):
        numbers.setdefault(name, []).append(number)
    return [kind(*row) for row in numbers.items()]


def subscription_bytes(
    topics: Iterable[str], owned: Iterable[tuple[str, int]] = (), generation: int = -1,
    version: int = 2,
) -> bytes:  # fmt: skip
    """Write what a classic consumer says when it joins."""
    rows = _rows(ConsumerProtocolSubscription.TopicPartition, owned)
    said = ConsumerProtocolSubscription(tuple(topics), None, rows, generation)
    return struct.pack(">h", version) + codec.encode(said, version)


def assignment_data(
    places: Iterable[tuple[str, int]], version: int = 2, user_data: bytes | None = None
) -> bytes:
    """Write what the leader of a classic group gives to a member."""
    rows = _rows(ConsumerProtocolAssignment.TopicPartition, places)
    said = ConsumerProtocolAssignment(rows, user_data)
    return struct.pack(">h", version) + codec.encode(said, version)


def lead(
    members: Iterable[tuple[str, str | None, bytes]],
    sizes: Mapping[str, int],
    *,
    is_cooperative: bool,
) -> dict[str, bytes]:
    """Assign all partitions as the leader; give away nothing that another member still has."""
    wanted: dict[str, tuple[str, ...]] = {}
    claims: dict[tuple[str, int], tuple[int, str]] = {}
    for member_id, _, data in members:
        found = consumer_bytes.subscription_of(data)
        assert found is not None
        wanted[member_id] = found.topics
        for place in found.owned:
            claims[place] = max(claims.get(place, (-2, "")), (found.generation, member_id))
    given: dict[str, set[tuple[str, int]]] = {member_id: set() for member_id in wanted}
    for topic in sorted(sizes):
        readers = [member_id for member_id in wanted if topic in wanted[member_id]]
        for number in range(sizes[topic] if readers else 0):
            reader = min(readers, key=lambda one: (len(given[one]), one))
            given[reader].add((topic, number))
    return {
        member_id: assignment_data(
            place for place in places
            if not is_cooperative or claims.get(place, (0, member_id))[1] == member_id
        )
        for member_id, places in given.items()
    }  # fmt: skip


class ClassicClient:
    """One process with one classic consumer.

    Attributes:
        owned: the partitions that it reads.
        told: the assignment that it was told, but has not applied yet.
        step: the next request: `join`, `sync` or `heartbeat`.
        waiting: the request whose answer has not come yet.
        given: the assignments that it sends as the leader.
        led: the sizes of all topics when it led the group; None if it is not the leader.
    """

    def __init__(
        self, instance: str | None, topics: tuple[str, ...], *, is_cooperative: bool,
        needs_known_id: bool = True, rebalance: float = REBALANCE,
    ) -> None:  # fmt: skip
        self.instance, self.topics = instance, topics
        self.is_cooperative, self.needs_known_id = is_cooperative, needs_known_id
        self.rebalance = rebalance
        self.member_id, self.generation, self.step = "", -1, "join"
        self.owned: Named = NOTHING
        self.told: Named | None = None
        self.waiting: Any = None
        self.given: dict[str, bytes] = {}
        self.led: dict[str, int] | None = None
        self.is_alive, self.is_in = True, False

    @property
    def protocol(self) -> str:
        return "cooperative" if self.is_cooperative else "range"

    def joining(self) -> Joining:
        """Make a JoinGroup request. An eager consumer first gives up all partitions."""
        self.told = None
        if not self.is_cooperative:
            self.owned = NOTHING
        data = subscription_bytes(self.topics, self.owned, self.generation)
        return Joining(
            self.member_id, self.instance, "classic", "/host", self.rebalance, SESSION, "consumer",
            ((self.protocol, data),), needs_known_id=self.needs_known_id, may_skip_assignment=True,
        )  # fmt: skip

    def syncing(self) -> Syncing:
        given, self.given = self.given, {}
        return Syncing(
            self.member_id, self.instance, self.generation, "consumer", self.protocol, given
        )

    def apply(self) -> None:
        """Give up what is not assigned any more, and take the rest."""
        if self.told is not None:
            has_lost = bool(self.owned - self.told)
            self.owned, self.told = self.told, None
            if has_lost and self.is_cooperative:
                self.step = "join"

    def lose(self, code: Code) -> None:
        """Give up everything after an error, and join again."""
        self.owned, self.told, self.generation, self.step = NOTHING, None, -1, "join"
        self.is_in = False
        if code is Code.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def die(self) -> None:
        self.owned, self.told, self.is_alive, self.is_in = NOTHING, None, False, False

    def hear(self, code: Code) -> bool:
        """Handle an error; report whether there was none."""
        if code is Code.FENCED_INSTANCE_ID:
            self.die()
        elif code in LOST:
            self.lose(code)
        elif code in (Code.REBALANCE_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE):
            self.step = "join"
        else:
            assert code is Code.NONE, f"a classic member got {code!r}"
        return code is Code.NONE

    def take(self, said: JoinAnswer | SyncAnswer, sizes: Mapping[str, int]) -> None:
        """Take the answer to JoinGroup or SyncGroup."""
        self.waiting = None
        if said.error is Code.MEMBER_ID_REQUIRED and isinstance(said, JoinAnswer):
            self.member_id = said.member_id
            return
        if not self.hear(said.error):
            return
        if isinstance(said, JoinAnswer):
            assert said.protocol == self.protocol and said.generation > 0
            self.member_id, self.generation, self.step = said.member_id, said.generation, "sync"
            self.is_in, self.led = True, None
            if said.leader_id == said.member_id:
                # A restarted leader does not know the sizes at the last assignment: it joins again.
                self.led = {} if said.skips_assignment else dict(sizes)
                self.given = lead(said.members, sizes, is_cooperative=self.is_cooperative)
        else:
            found = consumer_bytes.assignment_of(said.assignment)
            assert found is not None
            self.told, self.step = found.places, "heartbeat"
