"""Simulate brokers: they run the real rooms of hosts and replicas, and carry out their effects."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cluster.host_dirs import DirEntry
from cluster.pure import attest, partition
from cluster.pure import exchange as x
from cluster.pure.attest import (
    ClearFailure,
    DirEntered,
    DirFound,
    DirMissing,
    EndRoles,
    FailureRecord,
    Host,
    RecordFailure,
    SessionBegan,
    WriteEntry,
    WriteRegistration,
    lacks_notes,
    noted_failures,
)
from cluster.pure.replica import Replica, Role
from cluster.registration import Registration
from cluster.requests import FetchAnswer
from cluster_sim.checker import Violation
from cluster_sim.disks import DIR_IDS, Disk, StoredReplica, spans_of

if TYPE_CHECKING:
    from cluster_sim.world import World

FETCHED_MAX = 2  # records in an answer to a fetch
CONTROLLER = 0
APPENDS = (x.Appended, x.AppendedAsFollower)


class SimBroker:
    """A broker with two log dirs, and a replica of each partition that is assigned to it."""

    def __init__(self, world: World, broker_id: int, places: list[str]) -> None:
        self.world, self.id = world, broker_id
        self.is_up, self.boot = False, 0
        self.disks = {dir_id: Disk() for dir_id in DIR_IDS}
        self.stored = [StoredReplica(place) for place in places]
        self.host = Host(broker_id, DIR_IDS)
        self.replicas = [Replica(self.host, 0) for _ in places]
        self.results: list[tuple[int, Any]] = []  # of the disk, on their way
        self.image: tuple[dict[str, Disk], list[StoredReplica]] = ({}, [])

    # --- starts and log dirs ---

    def start(self) -> None:
        """Register, attest each log dir, then open what is on them (P3, P4)."""
        self.is_up = True
        self.host = Host(self.id, DIR_IDS)
        self.register()
        entries = {m: self._entry(m) if disk.is_good else None for m, disk in self.disks.items()}
        self._mark()
        noted = noted_failures(entries.values())
        for dir_id, disk in self.disks.items():
            if disk.is_good:
                found = DirFound(
                    dir_id,
                    entries[dir_id],
                    disk.record,
                    f"boot {self.boot}",
                    "mount",
                    is_noted=dir_id in noted,
                    lacks_notes=lacks_notes(dir_id, entries),
                )
                self.tell_host(found)
            else:
                self.tell_host(DirMissing(dir_id))
        self._remember_marks()
        self.replicas = [Replica(self.host, 0) for _ in self.stored]
        for number in range(len(self.stored)) if self.is_up else ():
            self.reopen(number)

    def _entry(self, dir_id: str) -> DirEntry | None:
        """Give the entry of a log dir, unless the store knows a later state of the log dir."""
        disk, known = self.disks[dir_id], self.world.known_marks.get((self.id, dir_id))
        return attest.present_entry(disk.entry, is_old_copy=known not in (None, *disk.marks))

    def _mark(self) -> None:
        """Let each log dir that works have a new state."""
        for disk in self.disks.values():
            if disk.is_good:
                self.world.marks += 1
                disk.marks.append(self.world.marks)

    def _remember_marks(self) -> None:
        """Tell the store the states of the log dirs, unless the broker died meanwhile."""
        for dir_id, disk in self.disks.items():
            if self.is_up and self.host.dirs[dir_id].is_good:
                self.world.known_marks[self.id, dir_id] = disk.marks[-1]

    def crash(self) -> None:
        """Die: the page cache keeps what was written."""
        self.is_up = False
        self.results = []
        self.world.controllers = [c for c in self.world.controllers if c.host != self.id]

    def stop(self) -> None:
        """Stop in order: flush, mark the log dirs as stopped cleanly, end the session (P21)."""
        for number, stored in enumerate(self.stored):
            self.tell(number, x.RoleEnded())
            if self.disks[stored.dir_id].is_good:
                stored.flushed = len(stored.records)
        for dir_id, disk in self.disks.items():
            if disk.is_good:
                disk.entry = self.host.dirs[dir_id].entry(is_stopped_cleanly=True)
        self._mark()
        self._remember_marks()
        if self.is_registered and self.id not in self.world.cut:
            del self.world.registrations[self.id]
        self.crash()

    def register(self) -> None:
        """Register with a new session."""
        self.tell_host(SessionBegan(self.world.next_zxid()))
        self.enter_store()

    def enter_store(self) -> None:
        """Write the registration into the store."""
        epochs = {dir_id: one.epoch for dir_id, one in self.host.dirs.items()}
        self.world.registrations[self.id] = Registration(
            self.host.broker_epoch, self.host.registration_epoch, epochs
        )

    def _enter_dir(self, dir_id: str) -> None:
        """Write the registration again, and only then take its zxid over."""
        zxid, known = self.world.next_zxid(), self.world.registrations[self.id]
        epochs = {**known.dir_epochs, dir_id: zxid}
        self.world.registrations[self.id] = Registration(known.broker_epoch, zxid, epochs)
        self.tell_host(DirEntered(dir_id, zxid))
        if self.is_up:
            self.enter_store()

    @property
    def is_registered(self) -> bool:
        """Whether the store has the registration of this incarnation."""
        registration = self.world.registrations.get(self.id)
        return registration is not None and registration.broker_epoch == self.host.broker_epoch

    def tell_host(self, event: Any) -> None:
        """Run the room of the host, and carry out its effects, unless the broker dies meanwhile."""
        if not self.is_up:
            return
        for effect in self.host.handle(event, self.world.now):
            if not self.world.may_continue():
                self.crash()
                return
            match effect:
                case RecordFailure(dir_id):
                    self.disks[dir_id].record = FailureRecord.RECORDED
                case ClearFailure(dir_id):
                    self.disks[dir_id].record = FailureRecord.NONE
                case WriteEntry(dir_id, entry):
                    self.disks[dir_id].entry = entry
                case WriteRegistration(dir_id):
                    self._enter_dir(dir_id)
                case EndRoles(dir_id):
                    self._end_roles(dir_id)
                case _:
                    raise AssertionError(effect)

    def _end_roles(self, dir_id: str) -> None:
        for number, stored in enumerate(self.stored):
            if stored.dir_id != dir_id:
                continue
            if self.host.dirs[dir_id].is_good:
                self.reopen(number)
            else:
                stored.life += 1
                self.tell(number, x.RoleEnded())

    def reopen(self, number: int) -> None:
        """Open a replica again from its log dir, without a role."""
        stored = self.stored[number]
        stored.life += 1
        if self.disks[stored.dir_id].is_good:
            self.tell(number, stored.opened())
        else:  # nobody knows what is there
            self.replicas[number].dir_id = stored.dir_id

    # --- replicas ---

    def high_watermark(self, number: int) -> int:
        """Give the high watermark of a replica, in memory or as it was stored last."""
        if self.is_up and self.disks[self.stored[number].dir_id].is_good:
            return self.replicas[number].high_watermark
        return self.stored[number].high_watermark

    def works(self, number: int) -> bool:
        """Whether the broker and the log dir of a replica work."""
        return self.is_up and self.disks[self.stored[number].dir_id].is_good

    def leads(self, number: int) -> bool:
        """Whether a replica works and leads."""
        return self.works(number) and self.replicas[number].role is Role.LEADER

    def follows(self, number: int) -> bool:
        """Whether a replica works and follows."""
        return self.works(number) and self.replicas[number].role is Role.FOLLOWER

    def tell(self, number: int, event: Any) -> None:
        """Run the room of a replica, and carry out its effects."""
        replica, stored = self.replicas[number], self.stored[number]
        is_news = stored.start > replica.log.log_start_offset
        if is_news and not isinstance(event, x.Opened | x.StartRose):
            self.tell(number, x.StartRose(stored.first, stored.start))
        before = replica.role, replica.leader_epoch, replica.high_watermark
        effects = partition.handle(replica, event, self.world.now)
        if replica.role is Role.LEADER and before[:2] != (Role.LEADER, replica.leader_epoch):
            self.world.parts[number].checker.on_leader(self.id, replica)
        mark = before[2]
        for effect in effects:
            mark = self._carry_out(number, effect, mark)

    def _carry_out(self, number: int, effect: Any, mark: int) -> int:
        """Carry out an effect; give the high watermark after it."""
        part, replica = self.world.parts[number], self.replicas[number]
        checker = part.checker
        is_present = replica.topic == part.topic
        match effect:
            case x.SendToController(request):
                self.world.send(self.id, CONTROLLER, number, request)
            case x.SendToBroker(broker, request):
                self.world.send(self.id, broker, number, request)
            case x.AnswerFetch(request, high_watermark):
                self._report(number, FetchAnswer(request, high_watermark))
            case x.AdvanceHighWatermark(offset):
                self.stored[number].mark = max(self.stored[number].mark, offset)
                if is_present and replica.role is Role.LEADER and offset > mark:
                    checker.on_high_watermark(self.id, self.stored[number].life, replica, mark)
                return offset
            case x.Acknowledge(record, end):
                if is_present:
                    checker.on_acknowledgement(self.id, replica.leader_epoch, record, end - 1)
                    part.unacknowledged.discard(record)
            case x.TruncateTo(offset, keep_below):
                if is_present:
                    checker.on_cut(self.id, replica, offset, keep_below, mark)
                self._cut(self.stored[number], offset)
                return min(mark, offset)
            case x.BeginAt(offset):
                self._begin_at(number, offset)
                return offset
            case _:
                self._change_log(number, effect)
        return mark

    def _cut(self, stored: StoredReplica, offset: int) -> None:
        if offset < stored.start:
            raise Violation(f"D broker {self.id} cuts at {offset}, before its log start")
        stored.lose(offset)
        stored.checkpoint, stored.mark = min(stored.checkpoint, offset), min(stored.mark, offset)

    def _begin_at(self, number: int, offset: int) -> None:
        stored = self.stored[number]
        if offset < len(stored.records):
            raise Violation(f"D broker {self.id} begins anew at {offset}, before its log end")
        self.world.parts[number].checker.deleted.update(record for _, record in stored.records)
        stored.begin_at(offset)

    def delete_before(self, number: int, offset: int, first: int) -> None:
        """Let a replica's log start rise; the rules hear of it before their next event.

        Args:
            first: where the batch begins that the offset is in.
        """
        stored = self.stored[number]
        if offset > stored.mark:
            raise Violation(f"D broker {self.id} deletes up to {offset}, which may be cut")
        if offset > stored.start:
            gone = stored.records[stored.start : offset]
            self.world.parts[number].checker.deleted.update(record for _, record in gone)
            stored.raise_start(offset, first)

    def _report(self, number: int, result: Any) -> None:
        """Report what the disk did, at once or later; appends in their order."""
        is_late = isinstance(result, APPENDS) and any(
            other == number and isinstance(one, APPENDS) for other, one in self.results
        )
        if self.world.is_disk_late or is_late:
            self.world.is_disk_late = False
            self.results.append((number, result))
        else:
            self._hear(number, result)

    def finish(self) -> None:
        """Let the first result of the disk arrive; records are read only now."""
        number, result = self.results.pop(0)
        self._hear(number, result)

    def _hear(self, number: int, result: Any) -> None:
        if isinstance(result, FetchAnswer):
            start, follower = result.request.offset, result.request.follower
            stored = self.stored[number]
            if start >= stored.first:  # else OFFSET_OUT_OF_RANGE: the follower fetches again later
                records = tuple(stored.records[start : start + FETCHED_MAX])
                answer = result._replace(records=records, log_start=stored.start)
                for part in parts_of(answer) if self.world.cuts_answers else [answer]:
                    self.world.send(self.id, follower, number, part)
        else:
            self.tell(number, result)

    def _change_log(self, number: int, effect: Any) -> None:
        stored = self.stored[number]
        match effect:
            case x.Refuse():
                pass
            case x.Alarm(reason):
                raise Violation(f"I7 {reason}")
            case x.AppendAsLeader():
                self._append(number, effect)
            case x.AppendAsFollower(log, records, leader_epoch, _):
                start = len(stored.records)
                if all(epoch <= leader_epoch for epoch, _ in records):
                    stored.records.extend(records)
                spans = spans_of(stored.records, start)
                self._report(number, x.AppendedAsFollower(log, spans))
            case x.Flush(log, offset):
                stored.flushed = max(offset, stored.flushed)
                self._report(number, x.Flushed(log, offset))
            case x.DeleteBefore(offset):
                self.delete_before(number, offset, offset)
            case _:
                self._change_place(number, stored, effect)

    def _change_place(self, number: int, stored: StoredReplica, effect: Any) -> None:
        match effect:
            case x.RemoveReplica():
                stored.clear()
                stored.life += 1
            case x.CreateReplica(topic, dir_id, own_since):
                is_there = stored.exists and stored.topic == topic
                is_hidden = is_there and not self.disks[stored.dir_id].is_good
                if is_hidden or not self.disks[dir_id].is_good:
                    raise Violation(f"I5 broker {self.id} creates a replica on a bad dir")
                stored.clear()
                stored.exists, stored.topic, stored.dir_id = True, topic, dir_id
                stored.is_named = True
                stored.own_since = own_since
                if own_since > topic.created:  # nobody knows that there was none before
                    self.world.parts[number].checker.has_fault = True
            case _:
                self._write_metadata(stored, effect)

    def _write_metadata(self, stored: StoredReplica, effect: Any) -> None:
        match effect:
            case x.WriteTopic(topic):
                if topic != stored.topic:
                    raise Violation(f"P6 broker {self.id} takes an older log for {topic}")
                stored.is_named = True
            case x.WriteOwnSince(own_since, counts_flushed, placed_since):
                stored.own_since, stored.placed_since = own_since, placed_since
                stored.counts_flushed = counts_flushed
            case _:
                raise AssertionError(effect)

    def _append(self, number: int, effect: x.AppendAsLeader) -> None:
        """Append a client's record, or find it in the log (idempotent producer)."""
        stored, (log, record, epoch, acks) = self.stored[number], effect
        waiter = record if acks == -1 else None
        known = [one for _, one in stored.records[: stored.start]]
        known = [0] * len(known) + [one for _, one in stored.records[stored.start :]]
        spans: tuple[tuple[int, int], ...] = ()
        if record in known:
            end = known.index(record) + 1
        else:
            stored.records.append((epoch, record))
            end = len(stored.records)
            spans = ((epoch, end),)
        self._report(number, x.Appended(log, spans, waiter, end, epoch))


def parts_of(answer: FetchAnswer) -> Iterator[FetchAnswer]:
    """Cut an answer after each record; a part answers the fetch that the parts before lead to."""
    request = answer.request
    yield answer._replace(records=answer.records[:1])
    for before, record in pairwise(answer.records):
        request = request._replace(offset=request.offset + 1, last_epoch=before[0])
        yield answer._replace(request=request, records=(record,))
