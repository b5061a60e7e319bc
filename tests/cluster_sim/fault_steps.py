"""Let brokers and log dirs fail and come back."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from cluster.pure import exchange as x
from cluster.pure.attest import (
    DirFailed,
    DirJoined,
    DirRemoved,
    DirReturned,
    FailureRecord,
    LeaveBegan,
)
from cluster.pure.replica import Role
from cluster.requests import ControlledShutdown
from cluster_sim.brokers import CONTROLLER, SimBroker
from cluster_sim.checker import Violation
from cluster_sim.disks import DIR_IDS, other_dir
from cluster_sim.steps_base import Step, StepsBase
from cluster_sim.world import UNLIMITED

ALL = 9  # more records than any history has


class FaultSteps(StepsBase):
    """The steps of brokers and log dirs."""

    # --- brokers and disks ---

    def find_crash(self) -> Iterator[Step]:
        return ((m,) for m, broker in self.world.brokers.items() if broker.is_up)

    def do_crash(self, m: int) -> None:
        self.world.brokers[m].crash()

    def find_leave(self) -> Iterator[Step]:
        return self._live_sessions()

    def do_leave(self, m: int) -> None:
        """Let a broker say that it will stop; it asks again, because controllers forget it."""
        broker = self.world.brokers[m]
        if self._lives(broker):
            broker.tell_host(LeaveBegan())
            asked = ControlledShutdown(m, broker.host.broker_epoch)
            self.world.send(m, CONTROLLER, 0, asked)

    def find_stop(self) -> Iterator[Step]:
        return ((m,) for m, broker in self.world.brokers.items() if self._is_leaving(broker))

    def _is_leaving(self, broker: SimBroker) -> bool:
        return broker.is_up and broker.host.is_leaving

    def do_stop(self, m: int) -> None:
        """Let a leaving broker stop in order, perhaps before a controller heard of it."""
        if self._is_leaving(self.world.brokers[m]):
            self.world.brokers[m].stop()

    def find_start(self) -> Iterator[Step]:
        return self._near(is_up=False)

    def do_start(self, m: int) -> None:
        if not self.world.brokers[m].is_up:
            self.world.brokers[m].start()

    def find_torn_start(self) -> Iterator[Step]:
        return ((m, effects) for (m,) in self._near(is_up=False) for effects in range(6))

    def do_torn_start(self, m: int, effects: int) -> None:
        """Let a broker die again while it attests its log dirs."""
        self.world.effects_left = effects
        self.do_start(m)
        self.world.effects_left = UNLIMITED

    def find_torn_return(self) -> Iterator[Step]:
        return ((*where, effects) for where in self.find_return() for effects in range(1, 5))

    def do_torn_return(self, m: int, dir_id: str, effects: int) -> None:
        """Let a broker die while one of its log dirs returns."""
        self.world.effects_left = effects
        self.do_return(m, dir_id)
        self.world.effects_left = UNLIMITED

    def find_rejoin(self) -> Iterator[Step]:
        for (m,) in self._near(is_up=True):
            if not self.world.brokers[m].is_registered:
                yield (m,)

    def do_rejoin(self, m: int) -> None:
        if self.world.brokers[m].is_up:
            self.world.brokers[m].register()
            self._tell_all(m, x.LeaseRenewed())

    def _tell_all(self, m: int, event: object) -> None:
        for number in range(len(self.world.parts)):
            self.world.brokers[m].tell(number, event)

    def _live_sessions(self) -> Iterator[Step]:
        return ((m,) for m, broker in self.world.brokers.items() if self._lives(broker))

    def _lives(self, broker: SimBroker) -> bool:
        return broker.is_up and broker.is_registered

    find_lease = find_renew = _live_sessions

    def do_lease(self, m: int) -> None:
        """Let heartbeats be late: the lease ends, but the session lives."""
        if self._lives(self.world.brokers[m]):
            self._tell_all(m, x.LeaseEnded())

    def do_renew(self, m: int) -> None:
        if self._lives(self.world.brokers[m]):
            self._tell_all(m, x.LeaseRenewed())

    def find_expire(self) -> Iterator[Step]:
        for m in self.world.registrations:
            if not self.world.brokers[m].is_up or m in self.world.cut:
                yield (m,)

    def do_expire(self, m: int) -> None:
        """End a session; the broker's lease ended before."""
        broker = self.world.brokers[m]
        if self.world.registrations.pop(m, None) is not None and broker.is_up:
            self._tell_all(m, x.LeaseEnded())

    def find_power(self) -> Iterator[Step]:
        for m, broker in self.world.brokers.items():
            most = max(len(one.records) - one.flushed for one in broker.stored)
            yield from ((m, kept) for kept in range(most + 1))
            if most and len(broker.stored) > 1:
                yield m, -1

    def do_power(self, m: int, kept: int) -> None:
        """Cut a broker's power: it loses what was not flushed, except for some records."""
        broker = self.world.brokers[m]
        self.do_crash(m)
        broker.boot += 1
        for disk in broker.disks.values():
            disk.record = FailureRecord.MISSING
        for number, stored in enumerate(broker.stored):
            self._lose(broker, number, stored.flushed + (kept if kept >= 0 else ALL * number))
        self._judge_fault(by_power=True)

    def _lose(self, broker: SimBroker, number: int, keep: int) -> None:
        """Lose the records from an offset on; the log start was flushed when it rose."""
        stored = broker.stored[number]
        keep = min(max(keep, stored.start), len(stored.records))
        self.world.parts[number].checker.on_loss(broker.id, stored, keep)
        stored.lose(keep)

    def _judge_fault(self, *, by_power: bool = False) -> None:
        for part in self.world.parts:
            part.checker.after_physical_fault(by_power=by_power)

    def _dirs(self, *, is_up: bool, is_good: bool) -> Iterator[tuple[SimBroker, str]]:
        for broker in self.world.brokers.values():
            for dir_id in DIR_IDS:
                if broker.is_up == is_up and broker.disks[dir_id].is_good == is_good:
                    yield broker, dir_id

    def _here(self, broker: SimBroker, dir_id: str) -> list[int]:
        return [n for n, stored in enumerate(broker.stored) if stored.dir_id == dir_id]

    def find_disk(self) -> Iterator[Step]:
        for broker, dir_id in self._dirs(is_up=True, is_good=True):
            if self._here(broker, dir_id):
                yield from ((broker.id, dir_id, kept) for kept in (0, ALL, -1))

    def do_disk(self, m: int, dir_id: str, kept: int) -> None:
        """Let a log dir of a running broker fail.

        Args:
            kept: how many records the disk keeps that were not flushed; -1: it loses a flushed one.
        """
        broker = self.world.brokers[m]
        if broker.is_up and broker.disks[dir_id].is_good:
            with _Undisturbed(broker, dir_id, "disk"):
                broker.disks[dir_id].is_good = False
                for number in self._here(broker, dir_id):
                    self._lose(broker, number, max(broker.stored[number].flushed + kept, 0))
                broker.tell_host(DirFailed(dir_id))
            self._judge_fault()

    def find_return(self) -> Iterator[Step]:
        for broker, dir_id in self._dirs(is_up=True, is_good=False):
            if broker.is_registered and broker.id not in self.world.cut:
                yield broker.id, dir_id

    find_empty = find_return

    def find_giveup(self) -> Iterator[Step]:
        for m, dir_id in self.find_return():
            if self.world.brokers[m].disks[other_dir(dir_id)].is_good:
                yield m, dir_id

    def do_return(self, m: int, dir_id: str, *, name: str = "return") -> None:
        """Let a log dir work again: as it is, replaced by an empty one, or given up.

        A log dir that was given up is removed. A new one of the same name joins.
        """
        broker = self.world.brokers[m]
        if not broker.is_up or broker.disks[dir_id].is_good:
            return
        with _Undisturbed(broker, dir_id, name):
            for number in self._here(broker, dir_id) if name != "return" else ():
                self._clear(broker, number)
                if name == "giveup":
                    broker.stored[number].dir_id = other_dir(dir_id)
                    broker.reopen(number)
            broker.disks[dir_id].is_good = True
            if name != "return":
                self._forget_marks(broker, dir_id)
            if name == "giveup":
                broker.disks[dir_id].entry = None
                broker.tell_host(DirRemoved(dir_id, "old"))
                broker.tell_host(DirJoined(dir_id, "new", f"boot {broker.boot}", "mount"))
            broker.tell_host(DirReturned(dir_id))
        self._judge_fault()

    def do_empty(self, m: int, dir_id: str) -> None:
        self.do_return(m, dir_id, name="empty")

    def do_giveup(self, m: int, dir_id: str) -> None:
        if self.world.brokers[m].disks[other_dir(dir_id)].is_good:
            self.do_return(m, dir_id, name="giveup")

    def _clear(self, broker: SimBroker, number: int) -> None:
        stored = broker.stored[number]
        self.world.parts[number].checker.on_loss(broker.id, stored, 0)
        stored.clear()

    def find_wipe(self) -> Iterator[Step]:
        for is_good in (True, False):
            for broker, dir_id in self._dirs(is_up=False, is_good=is_good):
                if self._here(broker, dir_id):
                    yield broker.id, dir_id

    def do_wipe(self, m: int, dir_id: str) -> None:
        """Replace a log dir of a broker that is down by an empty one."""
        broker = self.world.brokers[m]
        if not broker.is_up:
            for number in self._here(broker, dir_id):
                self._clear(broker, number)
            broker.disks[dir_id].is_good, broker.disks[dir_id].entry = True, None
            self._forget_marks(broker, dir_id)
            self._judge_fault()

    def _forget_marks(self, broker: SimBroker, dir_id: str) -> None:
        """Let another log dir be in the place of a log dir: the store knows nothing of it."""
        self.world.marks += 1
        broker.disks[dir_id].marks = [self.world.marks]
        self.world.known_marks.pop((broker.id, dir_id), None)

    def do_image(self, m: int) -> None:
        """Make an image of all log dirs of a broker."""
        broker = self.world.brokers[m]
        broker.image = copy.deepcopy((broker.disks, broker.stored))

    def do_restore(self, m: int) -> None:
        """Restore the image of a broker that is down. The records on tmpfs stay."""
        broker = self.world.brokers[m]
        disks, stored = copy.deepcopy(broker.image)
        if broker.is_up or not disks:
            return
        for dir_id, disk in disks.items():
            disk.record = broker.disks[dir_id].record
        for number, (old, now) in enumerate(zip(stored, broker.stored, strict=True)):
            pairs = zip(old.records, now.records, strict=False)
            same = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
            keep = min(len(old.records), len(now.records)) if same is None else same
            self.world.parts[number].checker.on_loss(m, now, keep)
            old.life = now.life + 1
        broker.disks, broker.stored = disks, stored
        self._judge_fault()

    def find_mend(self) -> Iterator[Step]:
        for broker, dir_id in self._dirs(is_up=False, is_good=False):
            yield broker.id, dir_id

    def do_mend(self, m: int, dir_id: str) -> None:
        if not self.world.brokers[m].is_up:
            self.world.brokers[m].disks[dir_id].is_good = True


class _Undisturbed:
    """Check that replicas on a broker's other log dir keep their roles (invariant E)."""

    def __init__(self, broker: SimBroker, dir_id: str, name: str) -> None:
        self._broker, self._what = broker, f"{name} of dir {dir_id}"
        others = [n for n, stored in enumerate(broker.stored) if stored.dir_id != dir_id]
        self._roles: dict[int, Role] = {n: broker.replicas[n].role for n in others}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        for number, role in self._roles.items():
            if kind is None and self._broker.replicas[number].role is not role:
                raise Violation(f"E {self._what} disturbs broker {self._broker.id}, {number}")
