"""Let clients produce and read, and let replicas fetch, flush, move and lag."""

from __future__ import annotations

from collections.abc import Iterator

from cluster.pure import exchange as x
from cluster_sim.brokers import SimBroker
from cluster_sim.disks import other_dir
from cluster_sim.steps_base import Step, StepsBase

REPEAT_SECONDS = 2.0  # after this time a leader repeats its proposal


class ClientSteps(StepsBase):
    """The steps of clients and replicas."""

    # --- clients and replicas ---

    def find_fetch(self) -> Iterator[Step]:
        for m, broker in self.world.brokers.items():
            for part in self.world.parts:
                if broker.follows(part.number):
                    yield part.number, m

    def do_fetch(self, part: int, m: int) -> None:
        """Let a follower fetch; if it has to flush first, it fetches after that."""
        broker = self.world.brokers[m]
        for _ in range(2):
            before = len(self.world.net)
            if broker.follows(part):
                broker.tell(part, x.FetchDue())
            if len(self.world.net) > before:
                return

    def _leaders(self) -> Iterator[tuple[int, SimBroker]]:
        for broker in self.world.brokers.values():
            for part in self.world.parts:
                if broker.leads(part.number):
                    yield part.number, broker

    def find_produce(self) -> Iterator[Step]:
        for number, broker in self._leaders():
            part = self.world.parts[number]
            if broker.replicas[number].topic == part.topic:
                if part.unacknowledged or part.records < self.faults.get("records", 3):
                    yield number, broker.id, -1
                for record in sorted(part.unacknowledged):
                    yield number, broker.id, record

    def do_produce(self, number: int, m: int, record: int) -> None:
        """Let a client send a record, a new one or one without an answer, with acks=all."""
        part, broker = self.world.parts[number], self.world.brokers[m]
        if not broker.leads(number) or broker.replicas[number].topic != part.topic:
            return
        if record == -1:
            part.records += 1
            record = part.records
        part.unacknowledged.add(record)
        broker.tell(number, x.Produced(record, -1))

    def find_lonely(self) -> Iterator[Step]:
        for number, broker in self._leaders():
            if broker.replicas[number].topic == self.world.parts[number].topic:
                yield number, broker.id

    def do_lonely(self, number: int, m: int) -> None:
        """Let a client send a record with acks=1: nobody is promised anything."""
        part, broker = self.world.parts[number], self.world.brokers[m]
        if broker.leads(number) and broker.replicas[number].topic == part.topic:
            part.records += 1
            broker.tell(number, x.Produced(part.records, 1))

    def find_tardy(self) -> Iterator[Step]:
        yield ()

    def do_tardy(self) -> None:
        """Let the next result of a disk come late."""
        self.world.is_disk_late = True

    def find_finish(self) -> Iterator[Step]:
        return ((m,) for m, broker in self.world.brokers.items() if broker.results)

    def do_finish(self, m: int) -> None:
        if self.world.brokers[m].results:
            self.world.brokers[m].finish()

    def find_read(self) -> Iterator[Step]:
        for number, broker in self._leaders():
            if broker.replicas[number].topic == self.world.parts[number].topic:
                yield number, broker.id

    def do_read(self, number: int, m: int) -> None:
        broker, checker = self.world.brokers[m], self.world.parts[number].checker
        if not broker.leads(number) or broker.replicas[number].topic != checker.topic:
            return
        for offset in range(broker.stored[number].start, broker.replicas[number].high_watermark):
            checker.see(broker.stored[number].records[offset][1], offset)

    def find_again(self) -> Iterator[Step]:
        return (
            (number, broker.id)
            for number, broker in self._leaders()
            if broker.replicas[number].proposed
        )

    def do_again(self, number: int, m: int) -> None:
        self.world.now += REPEAT_SECONDS
        if self.world.brokers[m].works(number):
            self.world.brokers[m].tell(number, x.Tick())

    def find_shrink(self) -> Iterator[Step]:
        for number, broker in self._leaders():
            state = broker.replicas[number].state
            assert state is not None
            yield from ((number, broker.id, m) for m in state.isr if m != broker.id)

    def do_shrink(self, number: int, m: int, member: int) -> None:
        if self.world.brokers[m].works(number):
            self.world.brokers[m].tell(number, x.Lagged(frozenset({member})))

    def _replicas(self) -> Iterator[tuple[int, SimBroker]]:
        for broker in self.world.brokers.values():
            for number in range(len(self.world.parts)):
                if broker.works(number):
                    yield number, broker

    def find_checkpoint(self) -> Iterator[Step]:
        for number, broker in self._replicas():
            if broker.replicas[number].high_watermark != broker.stored[number].checkpoint:
                yield number, broker.id

    def do_checkpoint(self, number: int, m: int) -> None:
        broker = self.world.brokers[m]
        if broker.works(number):
            broker.stored[number].checkpoint = broker.replicas[number].high_watermark

    def find_trim(self) -> Iterator[Step]:
        for number, broker in self._replicas():
            stored, mark = broker.stored[number], broker.high_watermark(number)
            if stored.exists:
                for start in range(stored.start + 1, mark + 1):
                    yield number, broker.id, start, start
                    if start - 1 > stored.first and start < len(stored.records):
                        yield number, broker.id, start, start - 1

    def do_trim(self, number: int, m: int, start: int, first: int) -> None:
        """Let retention or a client delete the records before an offset, on any replica.

        The rules hear of it before their next event.

        Args:
            first: where the batch begins that the offset is in.
        """
        broker = self.world.brokers[m]
        if broker.works(number) and start <= broker.high_watermark(number):
            broker.delete_before(number, start, first)

    def find_flush(self) -> Iterator[Step]:
        for number, broker in self._replicas():
            if broker.stored[number].flushed < len(broker.stored[number].records):
                yield number, broker.id

    def do_flush(self, number: int, m: int) -> None:
        broker = self.world.brokers[m]
        if broker.works(number):
            broker.stored[number].flushed = len(broker.stored[number].records)
            log = broker.replicas[number].log_life
            broker.tell(number, x.Flushed(log, broker.stored[number].flushed))

    def find_move(self) -> Iterator[Step]:
        for number, broker in self._replicas():
            if broker.stored[number].exists and all(d.is_good for d in broker.disks.values()):
                yield number, broker.id

    def do_move(self, number: int, m: int) -> None:
        """Let the mover's copy in the other log dir take the replica's place (KIP-113)."""
        broker = self.world.brokers[m]
        stored = broker.stored[number]
        if broker.works(number) and stored.exists and broker.host.are_all_good:
            stored.dir_id = other_dir(stored.dir_id)
            is_flushed = stored.counts_flushed or broker.replicas[number].flushes
            stored.flushed = len(stored.records) if is_flushed else 0
            broker.tell(number, x.Moved(stored.dir_id, stored.flushed))
