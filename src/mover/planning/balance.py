"""Choose the replicas to move: the fewest bytes that bring every log dir near its share.

The input and the output are plain numbers. A log dir's *share* is its part of all bytes, in
proportion to its capacity. A log dir's *band* is its share plus or minus the tolerance. Some log
dirs are not allowed to give or to receive replicas. A log dir keeps its replicas if it is above its
share and must not give, or is below its share and must not receive. The shares of the other log
dirs are computed without such a log dir. Log dirs on one disk count as equally large.

First, a greedy choice moves one replica at a time, to close the widest gap. If there are at most
`EXACT_REPLICAS_MAX` replicas, a search for a cheaper answer follows. The search ends when it has
proved that its answer is the cheapest, or after it has tried `NODES_MAX` assignments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

EXACT_REPLICAS_MAX = 24
NODES_MAX = 100_000


class DirFacts(NamedTuple):
    """Describe one log dir for planning."""

    path: str
    disk: str  # log dirs on the same disk share its free bytes
    usable_bytes: int  # free bytes of the disk, minus the bytes that must stay free
    may_give: bool = True
    may_receive: bool = True
    is_leaving: bool = False  # whether all replicas of the log dir must move away
    why_not: str = ""  # the reason why the log dir is not allowed to give or receive


class ReplicaFacts(NamedTuple):
    """Describe one replica for planning: its name, its log dir and its size."""

    topic: str
    partition: int
    log_dir: str
    size_bytes: int


class Band(NamedTuple):
    """Hold the smallest, the ideal and the largest planned size of a log dir, in bytes."""

    low: float
    share: float
    high: float

    def miss(self, size_bytes: int) -> float:
        """Compute by how many bytes a size is outside the band."""
        return max(self.low - size_bytes, size_bytes - self.high, 0)


# The planned log dir of each replica that moves, by the replica's index in the list of replicas.
Assignment = dict[int, str]


def bytes_on(
    dirs: Sequence[DirFacts], replicas: Sequence[ReplicaFacts], assignment: Assignment
) -> dict[str, int]:
    """Sum up the bytes that each log dir will hold after an assignment is carried out."""
    sizes = {one.path: 0 for one in dirs}
    for number, replica in enumerate(replicas):
        sizes[assignment.get(number, replica.log_dir)] += replica.size_bytes
    return sizes


def bands(
    dirs: Sequence[DirFacts], replicas: Sequence[ReplicaFacts], tolerance: float
) -> dict[str, Band]:
    """Compute the bands of the log dirs that take part; other log dirs keep their replicas."""
    sizes = bytes_on(dirs, replicas, {})
    room = _capacities(dirs, sizes)
    leaving = [one for one in dirs if one.is_leaving and one.may_give]
    sharing = [one for one in dirs if not one.is_leaving and (one.may_give or one.may_receive)]
    while sharing:
        pool = sum(sizes[one.path] for one in [*sharing, *leaving])
        whole = sum(room[one.path] for one in sharing) or 1
        shares = {one.path: pool * room[one.path] / whole for one in sharing}
        stuck = [
            (abs(sizes[one.path] - shares[one.path]), one)
            for one in sharing
            if (not one.may_receive and sizes[one.path] < shares[one.path])
            or (not one.may_give and sizes[one.path] > shares[one.path])
        ]
        if not stuck:
            break
        sharing.remove(max(stuck)[1])
    found = {
        one.path: Band(
            shares[one.path] * (1 - tolerance),
            shares[one.path],
            min(shares[one.path] * (1 + tolerance), room[one.path]),
        )
        for one in sharing
    }
    return found | {one.path: Band(0, 0, 0) for one in leaving}


def _capacities(dirs: Sequence[DirFacts], sizes: dict[str, int]) -> dict[str, float]:
    """Compute each log dir's capacity: an equal part of the capacity of its disk."""
    on_disk: dict[str, list[DirFacts]] = {}
    for one in dirs:
        on_disk.setdefault(one.disk, []).append(one)
    return {
        one.path: (
            max(min(other.usable_bytes for other in on_disk[one.disk]), 0)
            + sum(sizes[other.path] for other in on_disk[one.disk])
        )
        / len(on_disk[one.disk])
        for one in dirs
    }


class _Table:
    """Hold an assignment that is being built: sizes, cost, and the distance to the bands."""

    def __init__(
        self, dirs: Sequence[DirFacts], replicas: Sequence[ReplicaFacts], wanted: dict[str, Band]
    ) -> None:
        self.replicas = replicas
        self.wanted = wanted
        receiving = [one for one in dirs if one.may_receive and not one.is_leaving]
        self.targets = [one.path for one in receiving if one.path in wanted]
        self.givers = {one.path for one in dirs if one.may_give and one.path in wanted}
        self.leaving = {one.path for one in dirs if one.is_leaving and one.may_give}
        self.movable = [n for n, one in enumerate(replicas) if one.log_dir in self.givers]
        self.sizes = bytes_on(dirs, replicas, {})
        self.assignment: Assignment = {}
        self.cost = 0

    def place(self, number: int, target: str) -> None:
        """Assign a replica to the log dir `target`, and update the sizes and the cost."""
        replica = self.replicas[number]
        before = self.assignment.get(number, replica.log_dir)
        self.sizes[before] -= replica.size_bytes
        self.sizes[target] += replica.size_bytes
        changed = (target != replica.log_dir) - (before != replica.log_dir)
        self.cost += replica.size_bytes * changed
        if target == replica.log_dir:
            self.assignment.pop(number, None)
        else:
            self.assignment[number] = target

    def miss(self) -> float:
        """Sum up by how many bytes each log dir is outside its band."""
        return sum(band.miss(self.sizes[path]) for path, band in self.wanted.items())


def choose(
    dirs: Sequence[DirFacts], replicas: Sequence[ReplicaFacts], tolerance: float
) -> Assignment:
    """Choose target log dirs at the lowest cost, so that every log dir is in its band or near it.

    If no log dir can receive the replicas of a leaving dir, these replicas stay where they are.
    """
    table = _Table(dirs, replicas, bands(dirs, replicas, tolerance))
    if not table.targets:
        return {}
    _empty_the_leaving(table)
    _close_gaps(table)
    _take_back(table)
    greedy, is_met = dict(table.assignment), table.miss() == 0
    if len(table.movable) > EXACT_REPLICAS_MAX:
        return greedy
    best = table.cost if is_met else None
    exact = _Search(_Table(dirs, replicas, table.wanted), best).run()
    return greedy if exact is None else exact


def _empty_the_leaving(table: _Table) -> None:
    """Place the replicas of leaving dirs, largest first, in the dirs furthest below their share."""
    numbers = [n for n in table.movable if table.replicas[n].log_dir in table.leaving]
    for number in sorted(numbers, key=lambda n: -table.replicas[n].size_bytes):
        table.place(number, _widest_gap(table, table.replicas[number].size_bytes))


def _widest_gap(table: _Table, size_bytes: int) -> str:
    """Find the dir furthest below its share; prefer a dir whose band has room for the replica."""

    def gap(path: str) -> tuple[bool, float]:
        band, held = table.wanted[path], table.sizes[path]
        return held + size_bytes <= band.high, band.share - held

    return max(table.targets, key=gap)


def _close_gaps(table: _Table) -> None:
    """Move replicas from the fullest dir to the emptiest dir, while such a move closes a gap."""
    for _ in range(4 * len(table.replicas)):
        miss = table.miss()
        if not miss or not _close_one(table, miss):
            return


def _close_one(table: _Table, miss: float) -> bool:
    """Make one move that closes a gap; try the emptiest target and the fullest source first."""
    surplus = {path: table.sizes[path] - table.wanted[path].share for path in table.wanted}
    givers = table.givers - table.leaving
    for target in sorted(table.targets, key=lambda path: surplus[path]):
        for source in sorted(givers, key=lambda path: -surplus[path]):
            if source == target or surplus[source] <= surplus[target]:
                continue
            number = _fitting(table, source, target)
            if number is None:
                continue
            before = table.assignment.get(number, source)
            table.place(number, target)
            if table.miss() < miss:
                return True
            table.place(number, before)
    return False


def _fitting(table: _Table, source: str, target: str) -> int | None:
    """Find the smallest replica that closes the gap, or else the replica that closes most of it."""
    here = [
        n
        for n in table.movable
        if table.replicas[n].size_bytes
        and table.assignment.get(n, table.replicas[n].log_dir) == source
    ]
    here.sort(key=lambda n: table.replicas[n].size_bytes)
    from_band, to_band = table.wanted[source], table.wanted[target]
    need = max(table.sizes[source] - from_band.high, to_band.low - table.sizes[target])
    limit = min(table.sizes[source] - from_band.low, to_band.high - table.sizes[target])
    fits = [n for n in here if table.replicas[n].size_bytes <= limit]
    enough = [n for n in fits if table.replicas[n].size_bytes >= need]
    if enough:
        return enough[0]
    if fits:
        return fits[-1]
    return here[0] if here else None


def _take_back(table: _Table) -> None:
    """Undo moves that turned out to be unnecessary, largest first."""
    chosen = sorted(table.assignment, key=lambda n: -table.replicas[n].size_bytes)
    for number in chosen:
        target, home = table.assignment[number], table.replicas[number].log_dir
        if home in table.leaving:
            continue
        miss = table.miss()
        table.place(number, home)
        if table.miss() > miss:
            table.place(number, target)


class _Search:
    """Search all assignments, largest replicas first; skip assignments that cannot cost less."""

    def __init__(self, table: _Table, best_cost: int | None) -> None:
        self._table = table
        self._best_cost = best_cost
        self._best: Assignment | None = None
        self._nodes = 0
        self._order = sorted(table.movable, key=lambda n: -table.replicas[n].size_bytes)
        # Bytes of each dir's replicas that the search has not placed yet.
        self._open = dict.fromkeys(table.wanted, 0)
        for number in table.movable:
            replica = table.replicas[number]
            self._open[replica.log_dir] += replica.size_bytes
        self._open_bytes = sum(self._open.values())

    def run(self) -> Assignment | None:
        """Find the cheapest assignment that meets every band.

        Return None if no assignment meets every band at a lower cost than the best known
        assignment.
        """
        self._visit(0)
        return self._best

    def _visit(self, depth: int) -> None:
        table = self._table
        self._nodes += 1
        if self._nodes > NODES_MAX or self._is_hopeless():
            return
        if depth == len(self._order):
            self._best, self._best_cost = dict(table.assignment), table.cost
            return
        number = self._order[depth]
        replica = table.replicas[number]
        home, size = replica.log_dir, replica.size_bytes
        self._open[home] -= size
        self._open_bytes -= size
        if home not in table.leaving:
            self._visit(depth + 1)
        for target in table.targets:
            if target != home:
                table.place(number, target)
                self._visit(depth + 1)
                table.place(number, home)
        self._open[home] += size
        self._open_bytes += size

    def _is_hopeless(self) -> bool:
        """Return True if no assignment in this branch can meet all bands at a lower cost."""
        must_go = 0.0
        for path, band in self._table.wanted.items():
            size, may_go = self._table.sizes[path], self._open[path]
            if size - may_go > band.high or size + self._open_bytes - may_go < band.low:
                return True
            must_go += max(size - band.high, 0)
        return self._best_cost is not None and self._table.cost + must_go >= self._best_cost
