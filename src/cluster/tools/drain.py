"""Move the replicas of brokers that will be removed to other brokers, a few at a time.

    look -> wait for reassignments that are under way -> plan again -> begin some -> look

Between two looks, the drain remembers only which reassignments it has begun, and how often each
partition was refused. The cluster knows which reassignments are running. So a drain can be
interrupted at any moment, and run again. Each look plans with the present free space, brokers and
partitions.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from cluster.errors import ClusterError, PeerError
from cluster.tools.asking import Asked, Place
from cluster.tools.drain_plan import (
    BrokerSpace,
    DirSpace,
    Holding,
    Plan,
    Reassigning,
    plan_drain,
)
from cluster.tools.parts import place_text
from logstore.cli.output import size_text

LOOK_SECONDS = 1.0
SILENT_SECONDS_MAX = 60.0  # the longest time without an answer of a broker or the controller
DEAD_SECONDS_MAX = 60.0  # if a target is down for this time, another broker gets the replica
DELETION_SECONDS_MAX = 30.0
SHOW_SECONDS = 10.0  # the time between two lines about the progress of copies
REFUSALS_MAX = 10
STALE_SECONDS_MAX = 10.0  # the metadata may be older than the end of a reassignment by this much

Show = Callable[[str], None]


class DrainError(ClusterError):
    """Report why some replicas stay on a drained broker."""

    reason: str


class DrainSettings(NamedTuple):
    """The settings of a drain.

    Attributes:
        drained: the brokers that will have no replicas.
        at_once: how many partitions may be reassigned at the same time.
        free_share_min: the share of each disk that must stay free.
        look_seconds: the time between two looks.
        dead_seconds_max: if a target is down for this time, another broker replaces it. If no
            broker can get a replica for this time, the drain ends with an error.
    """

    drained: frozenset[int]
    at_once: int
    free_share_min: float
    look_seconds: float = LOOK_SECONDS
    dead_seconds_max: float = DEAD_SECONDS_MAX


class Look(NamedTuple):
    """The cluster at one moment.

    Attributes:
        running: the running reassignments that remove replicas from drained brokers, or whose
            partitions have a replica on such a broker.
        left: the partitions that have a replica on a drained broker, and whose reassignment has not
            begun.
    """

    metadata: Any
    running: Mapping[Place, Any]
    left: Mapping[Place, Any]


def look(asked: Asked, drained: Collection[int]) -> Look:
    """Find the partitions that have replicas on drained brokers."""
    metadata = asked.metadata()
    running: dict[Place, Any] = {}
    left: dict[Place, Any] = {}
    under_way = asked.reassignments(metadata)
    for topic in metadata.topics:
        for one in topic.partitions:
            place = topic.name, one.partition_index
            if set(one.replica_nodes).intersection(drained):
                (running if place in under_way else left)[place] = under_way.get(place, one)
    return Look(metadata, running, left)


def plan_now(asked: Asked, seen: Look, settings: DrainSettings) -> Plan:
    """Ask the brokers for their log dirs, and choose the brokers of the remaining replicas.

    Raises:
        PeerError: a broker that is registered does not answer.
        DrainError: this client is not allowed to see a topic, and the topic may have replicas on
            drained brokers.
    """
    rows = {one.node_id: asked.log_dirs(one) for one in seen.metadata.brokers}
    names = {topic.name for dirs in rows.values() for row in dirs for topic in row.topics}
    if hidden := asked.hidden(seen.metadata, names):
        reason = f"this user may not describe {len(hidden)} topics, among them {hidden[0]}"
        raise DrainError(reason=f"{reason}; their replicas could be forgotten")
    sizes = _sizes_of(rows)
    holdings = [
        Holding(
            place,
            tuple(one.replica_nodes),
            one.leader_id >= 0,
            sizes[place].get(one.leader_id, max(sizes[place].values(), default=0)),
        )
        for place, one in seen.left.items()
    ]
    racks = {one.node_id: one.rack or "" for one in seen.metadata.brokers}
    spaces = {
        broker: BrokerSpace(
            racks[broker],
            _dirs_of(broker, found, _owed(broker, seen.running, sizes)),
            sum(each.get(broker, 0) for each in sizes.values()),
        )
        for broker, found in rows.items()
        if broker not in settings.drained
    }
    return plan_drain(holdings, spaces, settings.drained, racks, settings.free_share_min)


def faults_text(plan: Plan) -> str:
    """Describe how many partitions cannot leave, and what prevents the first of them."""
    first = plan.faults[min(plan.faults)]
    count = len(plan.faults)
    return first if count == 1 else f"{count} partitions cannot leave; the first is {first}"


def _sizes_of(rows: Mapping[int, Any]) -> dict[Place, dict[int, int]]:
    """Return the size of each replica of each partition."""
    sizes: dict[Place, dict[int, int]] = defaultdict(dict)
    for broker, dirs in rows.items():
        for row in dirs:
            for topic in row.topics:
                for one in topic.partitions:
                    if not one.is_future_key:
                        sizes[topic.name, one.partition_index][broker] = one.partition_size
    return sizes


def _owed(
    broker: int, running: Mapping[Place, Any], sizes: Mapping[Place, Mapping[int, int]]
) -> dict[Place, int]:
    """Return how many bytes a broker must still copy for each of its replicas."""
    return {
        place: max(0, max(sizes[place].values(), default=0) - sizes[place].get(broker, 0))
        for place, row in running.items()
        if broker in row.adding_replicas
    }


def _dirs_of(broker: int, rows: Any, owed: Mapping[Place, int]) -> tuple[DirSpace, ...]:
    found = []
    created: set[Place] = set()
    for row in rows:
        held = [
            (topic.name, one.partition_index) for topic in row.topics for one in topic.partitions
        ]
        created.update(held)
        if not row.error_code:
            promised = sum(owed.get(place, 0) for place in held)
            found.append(
                DirSpace(row.log_dir, row.total_bytes, row.usable_bytes, len(held), promised)
            )
    # If a replica does not exist yet, it may be created in any of the log dirs.
    unplaced = sum(size for place, size in owed.items() if place not in created)
    return tuple(one._replace(promised_bytes=one.promised_bytes + unplaced) for one in found)


class Drain:
    """Carry out a drain. `run` returns when no replica is left.

    Attributes:
        begun: the reassignments that this drain has begun, in their order.
    """

    def __init__(
        self,
        asked: Asked,
        settings: DrainSettings,
        show: Show,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            show: gets each line about the progress.
        """
        self.begun: dict[Place, Reassigning] = {}
        self._asked, self._settings, self._show = asked, settings, show
        self._sleep, self._clock = sleep, clock
        self._refusals: Counter[Place] = Counter()
        self._shown_done: set[Place] = set()
        self._dead_since: dict[int, float] = {}
        # when the reassignment of a partition ended, although the metadata does not show its result
        self._ended_at: dict[Place, float] = {}
        self._shown_at = clock()
        self._emptying_since: float | None = None
        self._stuck_since: float | None = None

    def run(self) -> None:
        """Reassign until no partition has a replica on a drained broker.

        Raises:
            DrainError: some partitions cannot be reassigned. The other partitions were reassigned.
            PeerError: no broker or no controller has answered for a minute.
        """
        heard = self._clock()
        while True:
            try:
                if self._step():
                    return
                heard = self._clock()
            except PeerError as error:
                if self._clock() > heard + SILENT_SECONDS_MAX:
                    raise
                self._show(f"trying again: {error}")
            self._sleep(self._settings.look_seconds)

    def _step(self) -> bool:
        """Look once, and begin reassignments; return whether the drain is complete."""
        seen = look(self._asked, self._settings.drained)
        self._show_done(seen)
        self._replace_dead(seen)
        free = self._settings.at_once - len(seen.running)
        if not seen.left and not seen.running:
            return self._is_deleted(seen)
        self._show_running(seen)
        seen = self._without_ended(seen)
        if free <= 0 or not seen.left:
            return False
        plan = plan_now(self._asked, seen, self._settings)
        if not plan.moves and not seen.running:
            self._wait_for_targets(plan)
            return False
        self._stuck_since = None
        self._begin(seen, plan.moves[:free])
        return False

    def _without_ended(self, seen: Look) -> Look:
        """Leave out partitions whose reassignment has ended just now.

        The metadata of a broker may be older than the end of the reassignment. Otherwise, such a
        partition would be reassigned again, to other brokers.
        """
        now = self._clock()
        ended = {place for place in self.begun if place in seen.left}
        self._ended_at = {place: self._ended_at.get(place, now) for place in ended}
        left = {
            place: one for place, one in seen.left.items()
            if place not in ended or now - self._ended_at[place] >= STALE_SECONDS_MAX
        }  # fmt: skip
        return seen._replace(left=left)

    def _wait_for_targets(self, plan: Plan) -> None:
        """Wait for a broker that may be restarting; raise DrainError after some time."""
        if self._stuck_since is None:
            self._stuck_since = self._clock()
            self._show(f"waiting: {faults_text(plan)}")
        elif self._clock() > self._stuck_since + self._settings.dead_seconds_max:
            raise DrainError(reason=faults_text(plan))

    def _begin(self, seen: Look, moves: tuple[Reassigning, ...]) -> None:
        if not moves:
            return
        found = self._asked.reassign(seen.metadata, {one.place: one.wanted for one in moves})
        for one in moves:
            refusal = found.get(one.place)
            if refusal is None or not refusal.code:
                self.begun[one.place] = one
                self._ended_at.pop(one.place, None)
                self._show(f"{place_text(one.place)}: begun, {_brokers_text(one)}")
                continue
            self._refusals[one.place] += 1
            if self._refusals[one.place] >= REFUSALS_MAX:
                raise DrainError(reason=f"{place_text(one.place)} was refused: {refusal}")

    def _replace_dead(self, seen: Look) -> None:
        """If a target is down for too long, cancel its reassignments.

        The next plan avoids this target.
        """
        alive = {one.node_id for one in seen.metadata.brokers}
        wanted = {one for row in seen.running.values() for one in row.adding_replicas}
        now = self._clock()
        self._dead_since = {one: self._dead_since.get(one, now) for one in wanted - alive}
        late = {
            one for one, since in self._dead_since.items()
            if now - since >= self._settings.dead_seconds_max
        }  # fmt: skip
        stuck = {
            place: None for place, row in seen.running.items()
            if late.intersection(row.adding_replicas)
        }  # fmt: skip
        if stuck:
            names = ", ".join(place_text(place) for place in sorted(stuck))
            self._show(f"cancelled, because brokers {sorted(late)} are away: {names}")
            self._asked.reassign(seen.metadata, stuck)
            for place in stuck:
                self.begun.pop(place, None)

    def _show_done(self, seen: Look) -> None:
        """Show the partitions that were completed since the last look, and how many are left."""
        for place, one in self.begun.items():
            is_done = place not in seen.running and place not in seen.left
            if is_done and place not in self._shown_done:
                self._shown_done.add(place)
                left = len(seen.running) + len(seen.left)
                self._show(f"{place_text(place)}: done, {_brokers_text(one)}; {left} left")

    def _show_running(self, seen: Look) -> None:
        """Show from time to time how many bytes the targets still lack."""
        if not seen.running or self._clock() < self._shown_at + SHOW_SECONDS:
            return
        self._shown_at = self._clock()
        rows = {one.node_id: self._asked.log_dirs(one) for one in seen.metadata.brokers}
        sizes = _sizes_of(rows)
        lacking = sum(sum(_owed(broker, seen.running, sizes).values()) for broker in rows)
        self._show(
            f"{len(seen.running)} under way, which lack {size_text(lacking)}; "
            f"{len(seen.left)} have not begun"
        )

    def _is_deleted(self, seen: Look) -> bool:
        """Check that all drained brokers that run have deleted the files of their replicas.

        If a broker has not deleted the files in time, report this. The broker deletes the files
        when it starts again.
        """
        names = {topic.name for topic in seen.metadata.topics}
        held = {
            broker.node_id: len({
                (topic.name, one.partition_index)
                for row in self._asked.log_dirs(broker)
                for topic in row.topics if topic.name in names
                for one in topic.partitions
            })
            for broker in seen.metadata.brokers if broker.node_id in self._settings.drained
        }  # fmt: skip
        if not any(held.values()):
            return True
        if self._emptying_since is None:
            self._emptying_since = self._clock()
        is_late = self._clock() > self._emptying_since + DELETION_SECONDS_MAX
        if is_late:
            found = ", ".join(f"broker {one}: {count}" for one, count in held.items() if count)
            self._show(f"no partition uses these replicas, but they are not deleted yet: {found}")
        return is_late


def _brokers_text(one: Reassigning) -> str:
    before, after = (",".join(map(str, each)) for each in (one.replicas, one.wanted))
    return f"{before} -> {after}"
