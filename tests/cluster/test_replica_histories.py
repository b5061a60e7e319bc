"""Random histories of real replicas: what was acknowledged stays, at its offset, on every leader.

A step is a produce, some rounds of fetches between some brokers, an election, a change of the ISR
that the leader asked for, or a broker that is killed or started again. The oracle knows only what
clients were told.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from cluster.disks.log_spans import spans_of
from cluster.disks.revocation import Revocation
from cluster.pure.exchange import (
    AppendAsFollower,
    AppendAsLeader,
    Appended,
    AppendedAsFollower,
    DeleteBefore,
    TruncateTo,
)
from cluster.requests import AlterPartition
from cluster.run import hosted_replica
from cluster.run.hosted_replica import HostedReplica
from logstore import Log, LogStoreError
from support.inside import abandon
from support.places import fast_directory
from support.replica_group import Group, Produce

STEPS = 120
MIN_ISR = 2


class History:
    """One history: the brokers, a controller's state, and the clients' knowledge."""

    def __init__(self, group: Group, seed: int) -> None:
        self.group, self.rng = group, random.Random(seed)
        self.isr, self.up = {1, 2, 3}, {1, 2, 3}
        self.flushes = self.rng.random() < 0.3
        self.produced: list[tuple[Produce, bytes]] = []
        self.number = 0
        self.elect(1)

    # --- the controller ---------------------------------------------------------------------------

    def elect(self, leader: int) -> None:
        """Let a member of the ISR lead; remove members that are down if enough are left."""
        living = self.isr & self.up
        self.isr = living if len(living) >= MIN_ISR else self.isr
        self.group.leader = leader
        self.write()

    def write(self) -> None:
        """Write a new state in a new leader epoch, and send it to the running brokers."""
        group = self.group
        state = group.state(group.leader, self.isr, flushes=self.flushes)
        group.version += 1
        self.told = state
        for broker in sorted(self.up):
            if self.rng.random() < 0.9 or broker == group.leader:
                self.tell(broker)

    def tell(self, broker: int) -> None:
        """Send a broker the present state."""
        node = self.group.nodes[broker]
        node.replica.tell(self.group.role(node, self.told))

    # --- the steps --------------------------------------------------------------------------------

    def step_produce(self) -> None:
        if self.group.leader not in self.up:
            return
        for _ in range(self.rng.randint(1, 5)):
            self.number += 1
            value = b"%d" % self.number
            self.produced.append((self.group.produce(value), value))

    def step_replicate(self) -> None:
        among = [one for one in sorted(self.up) if self.rng.random() < 0.8]
        self.group.replicate(self.rng.randint(1, 4), among=among)

    def step_elect(self) -> None:
        candidates = sorted(self.isr & self.up)
        if candidates:
            self.elect(self.rng.choice(candidates))

    def step_alter(self) -> None:
        """Accept or lose the last proposal of the leader."""
        asked = [one for _, one in self.group.heard if isinstance(one, AlterPartition)]
        self.group.heard.clear()
        if not asked or self.rng.random() < 0.2:
            return
        last = asked[-1]
        is_present = (last.leader, last.leader_epoch, last.version) == (
            self.group.leader, self.group.leader_epoch, self.group.version,
        )  # fmt: skip
        if is_present and last.isr.keys() <= self.up:
            self.isr = set(last.isr)
            self.write()

    def step_shrink(self) -> None:
        """Remove a member that is down from the ISR, as after the end of its session."""
        gone = self.isr - self.up
        if gone and self.group.leader in self.up and len(self.isr) > MIN_ISR:
            self.isr -= {min(gone)}
            self.write()

    def step_tell(self) -> None:
        for broker in sorted(self.up):
            self.tell(broker)

    def step_trim(self) -> None:
        """Delete records on any broker, as retention or a client does."""
        log = self.group.nodes[self.rng.choice(sorted(self.up))].replica.log
        if log is not None and log.high_watermark > log.log_start_offset:
            offset = self.rng.randint(log.log_start_offset, log.high_watermark)
            log.delete_records_before(offset)

    def step_kill(self) -> None:
        if len(self.up) > 1:
            broker = self.rng.choice(sorted(self.up))
            self.up.remove(broker)
            abandon(self.group.nodes[broker].store)

    def step_start(self) -> None:
        for broker in sorted({1, 2, 3} - self.up):
            self.group.start(broker)
            self.up.add(broker)
            if broker == self.group.leader:  # its incarnation cannot lead any more
                self.step_elect()
            else:
                self.write()
            return

    def run(self) -> None:
        steps: list[Callable[[], None]] = [
            *[self.step_produce] * 4, *[self.step_replicate] * 5, self.step_elect,
            *[self.step_alter] * 2, self.step_tell, self.step_kill, *[self.step_start] * 2,
            self.step_shrink, *[self.step_trim] * self.rng.choice((0, 1, 1)),
        ]  # fmt: skip
        for _ in range(STEPS):
            self.rng.choice(steps)()
            self.check()

    # --- the oracle -------------------------------------------------------------------------------

    def acknowledged(self) -> dict[int, bytes]:
        return {
            one.acknowledged - 1: value
            for one, value in self.produced
            if one.acknowledged is not None
        }

    def check(self) -> None:
        """Every member of the ISR has all acknowledged records."""
        told = self.acknowledged()
        for broker in self.isr & self.up:
            log = self.group.nodes[broker].replica.log
            found = {} if log is None else {record.offset: record.value for record in log}
            start = 0 if log is None else log.log_start_offset
            missing = {o for o, value in told.items() if o >= start and found.get(o) != value}
            assert not missing, f"broker {broker} lacks {sorted(missing)}"

    def heal(self) -> None:
        """End all faults; then all replicas become equal, and a produce is acknowledged."""
        while self.up != {1, 2, 3}:
            self.step_start()
        self.group.requests.clear()
        self.isr = self.isr or {1, 2, 3}
        self.elect(min(self.isr))
        self.step_tell()
        for _ in range(4):
            self.group.replicate(40)
            self.step_tell()
        last = self.group.produce(b"last")
        self.group.replicate(10)
        assert last.acknowledged is not None
        logs = [self.group.nodes[one].replica.log for one in (1, 2, 3)]
        starts = [log.log_start_offset for log in logs if log is not None]
        assert len(starts) == 3 and min(starts) >= starts[self.group.leader - 1]
        rest = [[r[:5] for r in log.read(max(starts), max_records=9999)] for log in logs if log]
        assert rest[0] == rest[1] == rest[2]


def run(seed: int) -> int:
    """Run a history to its end; return the number of acknowledged records."""
    with fast_directory() as root:
        group = Group(root)
        try:
            history = History(group, seed)
            history.run()
            history.heal()
            history.check()
            return len(history.acknowledged())
        finally:
            for node in group.nodes.values():
                with suppress(LogStoreError):
                    node.store.close()


@pytest.mark.parametrize("seed", range(12))
def test_acknowledged_records_stay(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """This holds for any order of steps, and no log refuses an effect of the rules."""
    assert run(seed) > 0
    assert "cannot be used now" not in caplog.text


_change_log = HostedReplica._change_log


def cut_nothing(replica: HostedReplica, effect: object) -> None:
    """A follower that keeps records that its leader does not have."""
    if not isinstance(effect, TruncateTo):
        _change_log(replica, effect)


def delete_nothing(replica: HostedReplica, effect: object) -> None:
    """A follower that keeps records that its leader has deleted."""
    if not isinstance(effect, DeleteBefore):
        _change_log(replica, effect)


def forget_records(log: Log, effect: AppendAsFollower, before: int, _: str) -> AppendedAsFollower:
    """A follower that counts records as appended that it does not have."""
    spans: tuple[tuple[int, int], ...] = ()
    if effect.records:
        log.append_as_follower(effect.records, leader_epoch=effect.leader_epoch)
        spans = spans_of(log, before)
        log.truncate_to(before)
    return AppendedAsFollower(effect.log, spans)


def acknowledge_early(log: Log, effect: AppendAsLeader, before: int, _: Revocation) -> Appended:
    """A leader that waits for no follower."""
    end = effect.waiter.append(log, effect.leader_epoch).last_offset + 1
    effect.waiter.acknowledge(end)
    return Appended(effect.log, spans_of(log, before), None, end, effect.leader_epoch)


MUTANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "cut_nothing": (HostedReplica, "_change_log", cut_nothing),
    "delete_nothing": (HostedReplica, "_change_log", delete_nothing),
    "forget_records": (hosted_replica, "append_as_follower", forget_records),
    "acknowledge_early": (hosted_replica, "append", acknowledge_early),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_oracle_notices_a_changed_replica(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these mutants breaks a promise in one of the first histories."""
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises(AssertionError, match=r"lacks|None|=="):
        for seed in range(12):
            run(seed)
