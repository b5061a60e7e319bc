"""Plan moves, and the order of the moves, that bring every log dir near its share of all bytes.

`plan_moves` reads the sizes from a store. `plan_of` gets the sizes as plain numbers. A `MovePlan`
can be inspected, written as JSON, read back and executed. Making a plan moves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, NamedTuple

from logstore.arguments import instance, many, path_of, whole, wrong
from logstore.store.store import LogStore
from mover.planning import reassignment
from mover.planning.balance import Assignment, DirFacts, ReplicaFacts, bands, bytes_on, choose
from mover.planning.ordering import Transfer, in_order
from mover.planning.planned_move import PlannedMove, SkippedMove

if TYPE_CHECKING:
    from logstore.store.describe import LogDirDescription

TOLERANCE = 0.05
HEADROOM_PERCENT = 1  # percent of a disk that a plan leaves free

RECEIVES = {"online"}
GIVES = {"online", "slow", "read-only", "cordoned"}


class DirChange(NamedTuple):
    """Describe a log dir before and after a plan; without a band, `share_bytes` is None."""

    log_dir: str
    bytes_before: int
    bytes_after: int
    replicas_before: int
    replicas_after: int
    share_bytes: int | None
    usable_after: int
    remark: str


class MovePlan(NamedTuple):
    """Hold the moves in the order in which they run, the moves that are left out, and the result.

    Attributes:
        wishes: partitions that do not exist yet, each with the log dir in which to create it.
    """

    moves: tuple[PlannedMove, ...] = ()
    skipped: tuple[SkippedMove, ...] = ()
    log_dirs: tuple[DirChange, ...] = ()
    broker_id: int = 0
    wishes: tuple[PlannedMove, ...] = ()

    @property
    def bytes_to_move(self) -> int:
        """The sum of the sizes of all moves whose size is known."""
        return sum(move.size_bytes or 0 for move in self.moves)

    def to_json(self, indent: int | None = None) -> str:
        """Write the moves as JSON for kafka-reassign-partitions."""
        return reassignment.to_json(self.moves, self.broker_id, indent)

    @classmethod
    def from_json(cls, text: str | bytes, *, broker_id: int | None = None) -> MovePlan:
        """Read JSON that `to_json` or a user of Kafka's tool wrote.

        Args:
            broker_id: the broker whose replicas are used; None means the document's only broker.

        Raises:
            ValueError: the document is not valid; the message gives the place and the reason.
        """
        if not isinstance(text, str | bytes):
            raise wrong("text", "a JSON document as str or bytes", text)
        if broker_id is not None:
            broker_id = whole(broker_id, "broker_id")
        moves, skipped, broker_id = reassignment.from_json(text, broker_id)
        return cls(moves, skipped, broker_id=broker_id)


def plan_moves(
    store: LogStore, tolerance: float = TOLERANCE, evacuate: Collection[str] = ()
) -> MovePlan:
    """Plan to move the fewest bytes that bring every log dir within a tolerance of its share.

    A log dir's share is its part of all bytes, in proportion to its disk's capacity. Log dirs that
    are offline, suspect, outdated, full, cordoned or slow receive nothing. No replica leaves a log
    dir that is offline, suspect or outdated.

    Args:
        tolerance: the allowed difference between a log dir's bytes and its share, as a fraction of
            the share.
        evacuate: log dirs that are to be emptied before they are removed.

    Raises:
        ValueError: the tolerance is below 0, or a path is not a log dir of the store.
    """
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real):
        raise wrong("tolerance", "a number: a fraction of the share", tolerance)
    if not 0 <= tolerance < inf:
        raise ValueError(f"tolerance must be a fraction of the share, 0 or more, not {tolerance!r}")
    instance(store, LogStore, "store")
    leaving = {
        _own_path(store, path_of(path, "evacuate")) for path in many(evacuate, "evacuate", "paths")
    }
    described = store.describe_dirs().log_dirs
    targets = {
        (each.topic, each.partition): one.path
        for one in described
        for each in one.partitions
        if each.is_temporary
    }
    replicas = [
        ReplicaFacts(each.topic, each.partition, one.path, each.size)
        for one in described
        for each in one.partitions
        if not each.is_temporary
    ]
    moving = [one for one in replicas if (one.topic, one.partition) in targets]
    reserved = dict.fromkeys((one.path for one in described), 0)
    for one in moving:
        reserved[targets[one.topic, one.partition]] += one.size_bytes
    facts = [_facts(one, leaving, reserved[one.path]) for one in described]
    resting = [one for one in replicas if one not in moving]
    plan = plan_of(facts, resting, tolerance, store.broker_id)
    under_way = tuple(
        SkippedMove(
            one.log_dir,
            _why_left(store, one, targets[one.topic, one.partition]),
            one.topic,
            one.partition,
        )
        for one in moving
    )
    return plan._replace(skipped=under_way + plan.skipped)


def _why_left(store: LogStore, one: ReplicaFacts, target: str) -> str:
    if (one.topic, one.partition) in store.host.replicas.running_moves:
        return f"it is being moved to {target}"
    return f"a move left a copy of this replica in {target}: resume or cancel that move first"


def _facts(one: LogDirDescription, leaving: set[str], reserved_bytes: int) -> DirFacts:
    """Describe a log dir for planning; bytes that running moves will need do not count as free."""
    is_leaving = one.path in leaving
    return DirFacts(
        one.path,
        disk_of(one.path),
        one.usable_bytes - one.total_bytes * HEADROOM_PERCENT // 100 - reserved_bytes,
        one.state in GIVES,
        one.state in RECEIVES and not is_leaving,
        is_leaving,
        "" if one.state in RECEIVES else f"it is {one.state}" + f": {one.error}" * bool(one.error),
    )


def _own_path(store: LogStore, path: str) -> str:
    """Find the log dir that a path leads to, even if the path has symbolic links."""
    from logstore.disk import files

    paths = [one.path for one in store.describe_dirs().log_dirs]
    found = files.real_path(path)
    if found not in paths:
        raise ValueError(f"{path} is not a log dir of this store; it has {', '.join(paths)}")
    return found


def disk_of(path: str) -> str:
    """Name the disk of a log dir; if the disk call fails, use the path as the name."""
    from logstore.disk import files

    try:
        return str(files.stat(path).st_dev)
    except OSError:
        return path


def plan_of(
    dirs: Sequence[DirFacts],
    replicas: Sequence[ReplicaFacts],
    tolerance: float = TOLERANCE,
    broker_id: int = 0,
) -> MovePlan:
    """Plan moves as `plan_moves` does, but from plain numbers instead of a store."""
    replicas = sorted(replicas)
    wanted = choose(dirs, replicas, tolerance)
    numbers = sorted(wanted)
    disks = {one.path: one.disk for one in dirs}
    free: dict[str, int] = {}
    for one in dirs:
        free[one.disk] = min(one.usable_bytes, free.get(one.disk, one.usable_bytes))
    transfers = [
        Transfer(disks[replicas[n].log_dir], disks[wanted[n]], replicas[n].size_bytes)
        for n in numbers
    ]
    order, left = in_order(transfers, free)
    done = {numbers[place]: wanted[numbers[place]] for place in order}
    moves = tuple(_planned(replicas[n], target) for n, target in done.items())
    skipped = [*_no_room(replicas, wanted, [numbers[place] for place in left])]
    skipped += _not_leaving(dirs, replicas, wanted)
    changes = tuple(_changes(dirs, replicas, done, tolerance, free))
    skipped += _off(changes, dirs, replicas, done, tolerance)
    return MovePlan(moves, tuple(skipped), changes, broker_id)


def _planned(replica: ReplicaFacts, target: str) -> PlannedMove:
    return PlannedMove(
        replica.topic, replica.partition, target, replica.log_dir, replica.size_bytes
    )


def _no_room(
    replicas: Sequence[ReplicaFacts], wanted: Assignment, numbers: Iterable[int]
) -> Iterable[SkippedMove]:
    """Yield the moves for which there is no room in any order of the moves."""
    for number in numbers:
        one = replicas[number]
        reason = (
            f"in no order of the moves, {wanted[number]} has room for the {one.size_bytes} "
            "bytes of this replica"
        )
        yield SkippedMove(one.log_dir, reason, one.topic, one.partition)


def _not_leaving(
    dirs: Sequence[DirFacts], replicas: Sequence[ReplicaFacts], wanted: Assignment
) -> Iterable[SkippedMove]:
    """Yield each replica that cannot leave a log dir that must be emptied, and the reason."""
    leaving = {one.path: one for one in dirs if one.is_leaving}
    for number, one in enumerate(replicas):
        if one.log_dir in leaving and number not in wanted:
            facts = leaving[one.log_dir]
            reason = "no other log dir accepts replicas" if facts.may_give else facts.why_not
            yield SkippedMove(one.log_dir, reason, one.topic, one.partition)


def _changes(
    dirs: Sequence[DirFacts],
    replicas: Sequence[ReplicaFacts],
    done: Assignment,
    tolerance: float,
    free: dict[str, int],
) -> Iterable[DirChange]:
    wanted = bands(dirs, replicas, tolerance)
    before, after = bytes_on(dirs, replicas, {}), bytes_on(dirs, replicas, done)
    disks = {one.path: one.disk for one in dirs}
    grown = dict.fromkeys(free, 0)
    for path, size in after.items():
        grown[disks[path]] += size - before[path]
    for one in dirs:
        band = wanted.get(one.path)
        yield DirChange(
            one.path,
            before[one.path],
            after[one.path],
            sum(replica.log_dir == one.path for replica in replicas),
            sum(done.get(n, replica.log_dir) == one.path for n, replica in enumerate(replicas)),
            None if band is None else round(band.share),
            free[one.disk] - grown[one.disk],
            "leaves" if one.is_leaving else one.why_not,
        )


def _off(
    changes: Sequence[DirChange],
    dirs: Sequence[DirFacts],
    replicas: Sequence[ReplicaFacts],
    done: Assignment,
    tolerance: float,
) -> Iterable[SkippedMove]:
    """Yield the log dirs that stay outside the tolerance, with the reason."""
    wanted = bands(dirs, replicas, tolerance)
    whole = sum(change.bytes_before for change in changes)
    for change, facts in zip(changes, dirs, strict=True):
        band = wanted.get(change.log_dir)
        if band is None:
            if whole and facts.why_not and not facts.is_leaving:
                reason = f"its replicas stay where they are: {facts.why_not}"
                yield SkippedMove(change.log_dir, reason)
        elif not facts.is_leaving and band.miss(change.bytes_after) >= 1:
            off = abs(change.bytes_after - band.share) / max(band.share, 1)
            side = "above" if change.bytes_after > band.share else "below"
            reason = (
                f"stays {off:.1%} {side} its share of {round(band.share)} bytes: "
                "no possible move was found that closes the gap"
            )
            yield SkippedMove(change.log_dir, reason)
