"""Plan which brokers get the replicas of brokers that will be removed. No I/O.

    a replica of a drained broker -> brokers that live and have no replica of the partition
                                  -> of these, the ones that keep the most racks -> of these, the
                                  ones whose log dirs all have room -> of these, the one with the
                                  fewest bytes

Each replica of a drained broker is copied once, and no other replica moves. So no other plan moves
fewer bytes. The largest replicas are placed first.

When a broker chooses the log dir of a new replica, it compares the numbers of replicas, not the
free space (`HostedReplicas`). So a broker gets a replica only if each of its log dirs has room for
the replica.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from cluster.tools.asking import Place
from cluster.tools.parts import place_text


class DirSpace(NamedTuple):
    """A log dir that works.

    Attributes:
        usable_bytes: the free bytes of its disk; -1 if the broker does not report them.
        promised_bytes: how many bytes must still be copied into it.
    """

    path: str
    total_bytes: int
    usable_bytes: int
    replicas: int
    promised_bytes: int = 0


class BrokerSpace(NamedTuple):
    """A live broker that may get replicas. `stored_bytes` counts all replicas of the broker."""

    rack: str
    dirs: tuple[DirSpace, ...]
    stored_bytes: int = 0


class Holding(NamedTuple):
    """A partition that has a replica on a drained broker."""

    place: Place
    replicas: tuple[int, ...]
    is_led: bool
    size_bytes: int


class Reassigning(NamedTuple):
    """The reassignment of one partition in a plan.

    Attributes:
        wanted: the new list of brokers of the partition. A new broker takes the place of the
            drained broker in this list. So the preferred leader stays the same, unless it was
            drained.
        is_narrower: whether the replicas will be in fewer racks than now.
    """

    place: Place
    replicas: tuple[int, ...]
    wanted: tuple[int, ...]
    size_bytes: int
    is_narrower: bool = False

    @property
    def bytes_to_copy(self) -> int:
        """The bytes that other brokers have to copy."""
        return self.size_bytes * len(set(self.wanted).difference(self.replicas))


class Plan(NamedTuple):
    """The reassignments, and for each other partition, why it cannot be reassigned."""

    moves: tuple[Reassigning, ...]
    faults: Mapping[Place, str]


def plan_drain(
    holdings: Iterable[Holding],
    brokers: Mapping[int, BrokerSpace],
    drained: Collection[int],
    racks: Mapping[int, str],
    free_share_min: float,
) -> Plan:
    """Choose for each partition live brokers that are not drained.

    Args:
        brokers: the brokers that may get replicas.
        racks: the rack of each live broker; "" means no rack.
        free_share_min: the share of each disk that must stay free.
    """
    planner = _Planner(brokers, drained, racks, free_share_min)
    moves, faults = [], {}
    for one in sorted(holdings, key=lambda each: (-each.size_bytes, each.place)):
        found = planner.place(one)
        if isinstance(found, str):
            faults[one.place] = f"{place_text(one.place)}: {found}"
        else:
            moves.append(found)
    return Plan(tuple(moves), faults)


class _Planner:
    """Track the free space while replicas are placed one after the other."""

    def __init__(
        self,
        brokers: Mapping[int, BrokerSpace],
        drained: Collection[int],
        racks: Mapping[int, str],
        free_share_min: float,
    ) -> None:
        self._brokers, self._drained, self._racks = brokers, frozenset(drained), racks
        self._free_share_min = free_share_min
        self._are_racks_known = all(racks.values())
        self._stored = {one: space.stored_bytes for one, space in brokers.items()}
        self._dirs = {one: list(space.dirs) for one, space in brokers.items()}

    def place(self, holding: Holding) -> Reassigning | str:
        """Choose brokers for a partition and take their space, or return why this is impossible."""
        if not holding.is_led:
            return "nobody leads it, so no other broker can copy it"
        for broker in holding.replicas:
            if broker not in self._drained and broker not in self._racks:
                return f"broker {broker} has a replica, and is gone: start it, or drain it too"
        wanted = list(holding.replicas)
        for index, broker in enumerate(holding.replicas):
            if broker in self._drained:
                chosen = self._choose([*wanted, *holding.replicas], holding.size_bytes)
                if isinstance(chosen, str):
                    return chosen
                wanted[index] = chosen
        for broker in set(wanted).difference(holding.replicas):
            self._take(broker, holding.size_bytes)
        is_narrower = self._width(wanted) < self._width(holding.replicas)
        return Reassigning(
            holding.place, holding.replicas, tuple(wanted), holding.size_bytes, is_narrower
        )

    def _choose(self, taken: Sequence[int], size_bytes: int) -> int | str:
        free = [one for one in self._brokers if one not in taken]
        if not free:
            return "each live broker has a replica of it already: add a broker"
        stay = [one for one in taken if one not in self._drained]
        widest = max(self._width([*stay, one]) for one in free)
        wide = [one for one in free if self._width([*stay, one]) == widest]
        faults = {one: self._fault_of_room(one, size_bytes) for one in wide}
        roomy = [one for one in wide if not faults[one]]
        if not roomy:
            return "no broker has room: " + "; ".join(faults[one] for one in sorted(wide))
        return min(roomy, key=lambda one: (self._stored[one], self._count(one), one))

    def _width(self, replicas: Iterable[int]) -> int:
        """Count the racks of some replicas. If a broker has no rack, all racks are ignored."""
        if not self._are_racks_known:
            return 0
        return len({self._racks[one] for one in replicas if one in self._racks})

    def _count(self, broker: int) -> int:
        return sum(one.replicas for one in self._dirs[broker])

    def _fault_of_room(self, broker: int, size_bytes: int) -> str:
        if not self._dirs[broker]:
            return f"no log dir of broker {broker} works"
        for one in self._dirs[broker]:
            needed = one.promised_bytes + size_bytes + int(one.total_bytes * self._free_share_min)
            if one.usable_bytes >= 0 and needed > one.usable_bytes:
                return f"{one.path} of broker {broker} would be too full"
        return ""

    def _take(self, broker: int, size_bytes: int) -> None:
        """Reserve space for a replica in the log dir that the broker will choose."""
        dirs = self._dirs[broker]
        index = min(range(len(dirs)), key=lambda one: dirs[one].replicas)
        dirs[index] = dirs[index]._replace(
            replicas=dirs[index].replicas + 1,
            promised_bytes=dirs[index].promised_bytes + size_bytes,
        )
        self._stored[broker] += size_bytes
