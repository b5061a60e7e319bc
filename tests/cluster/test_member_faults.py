"""Producers go on while brokers and log dirs fail at random: nothing acknowledged is lost or moved.

The oracle knows what each client was told: this value is at this offset.
"""

from __future__ import annotations

import os
import random
import threading
import time
from functools import partial

import pytest

from cluster import znodes
from cluster.pure import exchange as x
from cluster.state import State, parse_state
from logstore import LogStoreError
from support.members import Member, Members, produce_of
from support.places import fast_directory
from support.replica_nodes import wait_until

SECONDS = float(os.environ.get("LOGSTORE_MEMBER_SECONDS", "4"))
PARTITIONS = 3


class Producer:
    """A client that appends numbered values to one partition, and notes the acknowledged ones."""

    def __init__(self, members: Members, number: int) -> None:
        self.members, self.number = members, number
        self.acknowledged: dict[int, bytes] = {}
        self.is_stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        count = 0
        while not self.is_stopped.is_set():
            count += 1
            value = b"%d-%d" % (self.number, count)
            member = self.members.leader("orders", self.number)
            replica = None if member is None else member.replica("orders", self.number)
            if replica is None:
                self.is_stopped.wait(0.01)
                continue
            produce = produce_of([value])
            try:
                replica.tell(x.Produced(produce, -1))
            except LogStoreError:  # the log dir is away, and another thread has the replica's lock
                continue
            deadline = time.monotonic() + 3
            while produce.acknowledged is None and produce.error is None:
                if time.monotonic() > deadline or self.is_stopped.wait(0.001):
                    break  # its outcome is not known
            if produce.acknowledged is not None:
                self.acknowledged[produce.acknowledged - 1] = value

    def stop(self) -> None:
        self.is_stopped.set()
        self.thread.join()


class Faults:
    """Kill and start brokers, and take log dirs away, so that a majority always works."""

    def __init__(self, members: Members, seed: int) -> None:
        self.members, self.rng = members, random.Random(seed)
        self.away: tuple[Member, int] | None = None
        self.down: int | None = None

    def step(self) -> None:
        if self.down is not None:
            self.members.start(self.down)
            self.down = None
        elif self.away is not None:
            self.give_back()
        elif self.rng.random() < 0.6:
            self.down = self.rng.choice((1, 2, 3))
            self.members.members[self.down].kill()
        else:
            member, number = self.members.members[self.rng.choice((1, 2, 3))], self.rng.randrange(2)
            self.away = member, number
            member.store.take_offline(member.paths[number])

    def give_back(self) -> None:
        if self.away is not None:
            member, number = self.away
            self.away = None
            member.store.reopen_dir(member.paths[number])

    def heal(self) -> None:
        self.give_back()
        if self.down is not None:
            self.members.start(self.down)
            self.down = None


def state_of(members: Members, number: int) -> State:
    path = znodes.state_path("orders", number)
    return parse_state(members.admin.get(path).data, path)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    """Every replica has every acknowledged record at its offset, after all faults have ended."""
    with fast_directory() as root, Members(root, dirs=2) as members:
        members.create("orders", {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
        producers = [Producer(members, number) for number in range(PARTITIONS)]
        faults, rng = Faults(members, seed), random.Random(seed)
        deadline = time.monotonic() + SECONDS
        try:
            while time.monotonic() < deadline:
                threading.Event().wait(rng.uniform(0.1, 0.6))
                faults.step()
        finally:
            faults.heal()
            for producer in producers:
                producer.stop()
        for number in range(PARTITIONS):
            wait_until(partial(is_full, members, number))
            members.produce("orders", b"last", number=number)
        for producer in producers:
            assert producer.acknowledged
            for member in members.members.values():
                check(member, producer)
        assert all(state_of(members, one).unclean_epoch == -1 for one in range(PARTITIONS))
        assert not [alarm for member in members.members.values() for alarm in member.member.alarms]


def is_full(members: Members, number: int) -> bool:
    """Tell whether all replicas of a partition are in sync."""
    return set(state_of(members, number).isr) == {1, 2, 3}


def check(member: Member, producer: Producer) -> None:
    """Compare a replica with what its clients were told."""
    replica = member.replica("orders", producer.number)
    assert replica is not None and replica.log is not None
    found = {record.offset: record.value for record in replica.log}
    wrong = {
        offset: (value, found.get(offset))
        for offset, value in producer.acknowledged.items()
        if found.get(offset) != value
    }
    assert not wrong, f"broker {member.broker}, partition {producer.number}: {wrong}"
