"""Judge a partition from outside: by what clients were promised, never by what a room believes.

I1  Each acknowledged record is in the log of a candidate (ISR, ELR, suspects), unless physical
    faults took it from all of them: then it is *excused*. With fewer lossy brokers than the
    smallest min nothing is excused. A broker that begins to lead has every record that is not
    excused.
I2  Two logs are equal below the smaller of their high watermarks.
I3  A record that a consumer could read keeps its offset.
I4  In one leader epoch, one incarnation of one broker moves the high watermark.
I5  A replica is never created while its log dir is bad.
I6  No record is twice in a leader's log, unless one of the two was deleted from some log. (Then
    its producer may be forgotten there.)
I7  A follower cuts below its high watermark only after an election that is marked as unclean, and
    keeps what it cuts.
O   A broker that stops in order leads until it is gone, unless another one can lead.
D   A follower deletes what its leader deleted: after all faults have ended, no replica's log begins
    before its leader's. No log is cut before its start, and none begins anew before its end.
R   A loss is reported only after a physical fault of a replica, or an unclean election.
S   After all faults have ended, no replica is left that should have been deleted.
P2  A state never replaces the state of a newer topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cluster.pure.replica import Replica, Role
from cluster.registration import NO_BROKER, Registration, TopicIdentity
from cluster.state import State
from cluster_sim.disks import GONE

if TYPE_CHECKING:
    from cluster_sim.disks import StoredReplica
    from cluster_sim.world import World

NOWHERE = 1 << 30


class Violation(Exception):
    """A promise is broken."""


class Checker:
    """What is known to be true of one topic; a topic that is created again gets another checker.

    Attributes:
        committed: the record at each offset that a client may rely on.
        taken: the brokers from which a physical fault took a record, by offset and record.
        lossy: the brokers that lost records by physical faults.
        excused: the offsets and records that are counted as lost.
        tainted: the first offset whose loss is excused; records after it may differ.
        unclean_epoch: the leader epoch of the last unclean election.
        has_fault: whether a replica's broker lost power, its log dir failed or was replaced,
            or the replica was created later than the topic.
        flushed: the offsets that a leader counted while the topic counts only flushed records.
        deleted: the records that were deleted on purpose from some log.
    """

    def __init__(self, world: World, number: int, topic: TopicIdentity) -> None:
        self.world, self.number, self.topic = world, number, topic
        self.committed: dict[int, int] = {}
        self.taken: dict[tuple[int, int], set[int]] = {}
        self.acked: dict[int, int] = {}
        self.leaders: dict[int, tuple[int, int]] = {}
        self.lossy: set[int] = set()
        self.excused: set[tuple[int, int]] = set()
        self.tainted = NOWHERE
        self.unclean_epoch = -1
        self.flushed: set[int] = set()
        self.deleted: set[int] = set()
        self.has_fault = False

    def see(self, record: int, offset: int) -> None:
        """Note that a client may rely on the record at an offset.

        A record that is counted as lost stays lost, also if an old leader still shows it.
        """
        if (offset, record) in self.excused:
            return
        known = self.committed.setdefault(offset, record)
        if known != record:
            if offset < self.tainted:
                raise Violation(f"I3 offset {offset} was record {known} and is {record}")
            self.committed[offset] = record

    def on_high_watermark(self, broker: int, life: int, replica: Replica, before: int) -> None:
        """Note what a leader's high watermark has passed."""
        epoch = replica.leader_epoch
        if replica.flushes and self.world.parts[self.number].state.flushes:
            self.flushed.update(range(before, replica.high_watermark))
        records = self.world.brokers[broker].stored[self.number].records
        first = self.world.brokers[broker].stored[self.number].first
        for offset in range(max(before, first), replica.high_watermark):
            self.see(records[offset][1], offset)
        known = self.leaders.setdefault(epoch, (broker, life))
        if known != (broker, life):
            raise Violation(f"I4 {known} and {(broker, life)} lead in epoch {epoch}")

    def on_acknowledgement(self, broker: int, epoch: int, record: int, offset: int) -> None:
        """Note that a producer was promised a record."""
        if epoch < self.unclean_epoch:
            raise Violation(
                f"I1 broker {broker} acknowledges in epoch {epoch}, which ended uncleanly"
            )
        self.acked[record] = offset
        self.see(record, offset)

    def missing(self, stored: StoredReplica) -> set[int]:
        """Give the committed offsets whose record a replica does not have.

        Records before the log start were deleted on purpose: they are not missing.
        """
        records, first = stored.records, stored.first
        end = len(records)
        return {
            o for o, r in self.committed.items() if o >= end or (o >= first and records[o][1] != r)
        }

    def unheld(self) -> set[int]:
        """Give the committed offsets that no candidate holds."""
        gone: set[int] | None = None
        state = self.world.parts[self.number].state
        for broker in (*state.isr, *state.elr, *state.suspects):
            stored = self.world.brokers[broker].stored[self.number]
            if stored.exists and stored.topic == self.topic:
                gone = self.missing(stored) if gone is None else gone & self.missing(stored)
                if not gone:
                    return gone
        return set(self.committed) if gone is None else gone

    def excuse(self, offsets: set[int]) -> None:
        """Give up offsets that physical faults, or an unclean election, took from everybody."""
        for offset in offsets:
            self.excused.add((offset, self.committed.pop(offset)))
            self.flushed.discard(offset)
            self.tainted = min(self.tainted, offset)

    def on_loss(self, broker: int, stored: StoredReplica, keep: int) -> None:
        """Note that a physical fault takes the records from an offset on."""
        if stored.topic != self.topic:
            return
        self.has_fault = True
        for offset in range(keep, len(stored.records)):
            self.lossy.add(broker)
            is_deleted = offset < stored.first
            key = offset, self.committed.get(offset, 0) if is_deleted else stored.records[offset][1]
            self.taken.setdefault(key, set()).add(broker)

    def after_physical_fault(self, *, by_power: bool) -> None:
        """Excuse what a fault took from the last candidate, if there were enough faults."""
        gone = self.unheld()
        if not gone:
            return
        is_too_early = len(self.lossy) < self.world.min_isr_smallest
        is_kept = by_power and bool(gone & self.flushed)
        if (is_too_early or is_kept) and self.unclean_epoch == -1:
            raise Violation(f"I1 faults on {sorted(self.lossy)} took offsets {sorted(gone)}")
        self.excuse(gone)

    def on_write(self, seen: Mapping[int, Registration], before: State, after: State) -> None:
        """Judge a new state that takes the lead from a leaving broker.

        Args:
            seen: the brokers that live, as far as the controller knows.
        """
        leader, epoch = before.leader, before.leader_registration_epoch
        if leader == NO_BROKER or after.leader != NO_BROKER or leader not in seen:
            return
        broker = self.world.brokers[leader]
        is_same = broker.host.registration_epoch == seen[leader].registration_epoch == epoch
        if is_same and broker.host.is_leaving and broker.leads(self.number):
            raise Violation(f"O broker {leader} leaves, and nobody leads in its place")

    def on_report(self, reason: str) -> None:
        """Judge a report that acknowledged records may be lost."""
        if not self.has_fault and self.unclean_epoch == -1:
            raise Violation(f"R no fault took a record, and a loss is reported: {reason}")

    def on_unclean_election(self, epoch: int, leader: int) -> None:
        """Excuse what the leader lacks."""
        self.unclean_epoch = epoch
        leading = self.world.brokers[leader].stored[self.number]
        here = leading.records
        for broker in self.world.brokers.values():
            stored = broker.stored[self.number]
            if stored.topic == leading.topic and stored.exists:
                for offset in range(broker.high_watermark(self.number)):
                    both = *here[offset : offset + 1], stored.records[offset]
                    if len(both) < 2 or (GONE not in both and both[0] != both[1]):
                        self.tainted = min(self.tainted, offset)
                        break
        self.excuse(self.missing(leading))

    def on_leader(self, broker: int, replica: Replica) -> None:
        """Judge a replica that begins to lead the epoch that is in the store.

        An order that comes late makes a leader of an older epoch, which can harm nobody.
        """
        state = self.world.parts[self.number].state
        if replica.leader_epoch != state.leader_epoch or replica.topic != self.topic:
            return
        gone = self.missing(self.world.brokers[broker].stored[self.number])
        gone = {offset for offset in gone if offset < self.tainted}
        if gone:
            raise Violation(
                f"I1 broker {broker} leads epoch {replica.leader_epoch} without {sorted(gone)}"
            )

    def on_cut(self, broker: int, replica: Replica, offset: int, keep_below: int, hw: int) -> None:
        """Judge a follower that removes records below its high watermark."""
        assert replica.state is not None
        if offset < hw and (replica.state.unclean_epoch < 0 or keep_below < hw):
            raise Violation(f"I7 broker {broker} cuts to {offset}, and its high watermark is {hw}")

    def check(self) -> None:
        """Judge the partition after a step."""
        if not self.world.parts[self.number].state.flushes:
            self.flushed.clear()
        if self.committed:
            gone = {offset for offset in self.unheld() if offset < self.tainted}
            if gone:
                self._excuse_or_object(gone)
        logs = [
            (broker.id, broker.high_watermark(self.number), broker.stored[self.number])
            for broker in self.world.brokers.values()
            if self._is_present(broker.stored[self.number])
        ]
        for number, (one, one_mark, one_log) in enumerate(logs):
            for other, other_mark, other_log in logs[:number]:
                a, b = one_log.records, other_log.records
                end = min(one_mark, other_mark, self.tainted, len(a), len(b))
                start = max(one_log.first, other_log.first)
                if a[start:end] != b[start:end]:
                    raise Violation(f"I2 the logs of {one} and {other} differ below {end}")
        for broker in self.world.brokers.values():
            replica = broker.replicas[self.number]
            if replica.role is Role.LEADER and self._is_present(broker.stored[self.number]):
                stored = broker.stored[self.number]
                gone = {GONE[1], *self.deleted}
                records = [one for _, one in stored.records if one not in gone]
                if len(set(records)) < len(records):
                    raise Violation(f"I6 a record is twice in the log of {broker.id}: {records}")

    def _is_present(self, stored: StoredReplica) -> bool:
        return stored.exists and stored.topic == self.topic

    def _excuse_or_object(self, gone: set[int]) -> None:
        """Excuse losses if the candidates became fewer before anybody knew of the losses."""
        enough = self.world.min_isr_smallest
        losses = [len(self.taken.get((o, self.committed[o]), ())) for o in gone]
        if min(losses) < enough:
            raise Violation(f"I1 no candidate holds offsets {sorted(gone)}")
        self.excuse(gone)
