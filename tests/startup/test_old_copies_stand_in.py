"""Let an old copy stand in for a log dir in random histories: what is acknowledged survives.

An old copy of a log dir is put in at a start or while the store runs, and users go on: they create,
append, move, delete, promote, restart. Then the right disk is mounted again. What was acknowledged
is there, or it was refused; what was deleted stays deleted. If a user accepted the old copy, it is
the log dir from then on, and the right disk is the old copy.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import LogStore, TopicPartition, UnknownPartitionError
from logstore.errors import LogDirError, LogStoreError, PartitionExistsError
from logstore.log.log import Log
from mover import MoveState, ReplicaMover
from support.hanging import QUIET
from support.inside import abandon, keepers_of
from support.keepers import wait_for_keepers

HISTORIES = int(os.environ.get("LOGSTORE_STAND_IN_HISTORIES", "24"))
STEPS_BEFORE, STEPS_BESIDE = 12, 8

Values = tuple[bytes, ...]


class History:
    """One store, its users, and one log dir of it that is copied and replaced by the copy.

    Attributes:
        truth: the log dir of each partition, and its values; all of it was acknowledged.
        deleted: the partitions that were deleted and not created again.
        counts: how often each thing happened.
    """

    def __init__(self, root: Path, seed: int, counts: dict[str, int]) -> None:
        self.random = random.Random(seed)
        self.dirs = [str(root / f"d{number}") for number in range(1 + seed % 3)]
        self.dir = self.dirs[0]
        self.counts = counts
        self.truth: dict[TopicPartition, tuple[str, Values]] = {}
        self.deleted: set[TopicPartition] = set()
        self.number = 0
        self.is_outdated = False
        self.open()
        self.create(self.dir)

    # --- what its users do ------------------------------------------------------------------------

    def open(self) -> None:
        self.store = LogStore.open(self.dirs, config=QUIET, admin_socket=False)

    def stop(self) -> None:
        """Close the store in order, or kill it."""
        if self.random.random() < 0.5:
            self.store.close()
        else:
            abandon(self.store)

    def restart(self) -> None:
        self.stop()
        self.open()

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def good(self) -> list[str]:
        """The log dirs that are none of an old copy."""
        return [path for path in self.dirs if path != self.dir or not self.is_outdated]

    def key(self) -> TopicPartition | None:
        return self.random.choice(sorted(self.truth)) if self.truth else None

    def values(self) -> Values:
        self.number += 1
        return tuple(b"%d.%d" % (self.number, n) for n in range(self.random.randint(1, 3)))

    def create(self, log_dir: str | None = None) -> None:
        log_dir = log_dir or self.random.choice(self.dirs)
        gone = sorted(self.deleted)
        name = f"t{self.number}"
        key = self.random.choice([*gone, TopicPartition(name, 0)])
        self.number += 1
        if self.is_outdated:
            with pytest.raises((LogDirError, PartitionExistsError, LogStoreError)):
                self.store.create(*key)  # the right disk may hold it
        try:
            self.store.create(*key, log_dir=log_dir, is_new=True)
        except LogDirError as error:
            assert log_dir not in self.good() and not error.retriable
            self.count("creation refused")
            return
        except PartitionExistsError:  # in doubt: the old copy holds what was deleted since
            assert self.is_outdated and key in self.deleted
            return
        assert log_dir in self.good()
        self.deleted.discard(key)
        self.truth[key] = (log_dir, ())

    def append(self) -> None:
        key = self.key()
        if key is None:
            return
        log_dir, before = self.truth[key]
        values, is_durable = self.values(), self.random.random() < 0.7
        try:
            self.store.log(*key).extend(values, durable=is_durable)
        except LogStoreError:
            assert log_dir not in self.good(), key
            self.count("append refused")
            return
        assert log_dir in self.good(), key
        self.truth[key] = (log_dir, before + values)

    def move(self) -> None:
        key, target = self.key(), self.random.choice(self.dirs)
        if key is None or target == self.truth[key][0]:
            return
        source, values = self.truth[key]
        try:
            with ReplicaMover(self.store) as mover:
                state = mover.move(*key, target).wait(60)
        except LogStoreError:
            state = MoveState.FAILED
        is_good = {source, target} <= {*self.good()}
        assert (state is MoveState.DONE) is is_good, (key, source, target, state)
        self.count("moved" if is_good else "move refused")
        if is_good:
            self.truth[key] = (target, values)

    def delete(self) -> None:
        """Delete a partition, but none of which an old copy has the log dir's word."""
        key = self.key()
        if key is None or self.truth[key][0] not in self.good():
            return
        self.store.delete(*key)
        del self.truth[key]
        self.deleted.add(key)
        self.count("deleted beside" if self.is_outdated else "deleted")

    def checkpoint(self) -> None:
        for keeper in keepers_of(self.store).values():
            keeper.checkpoint()

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (4, self.create),
            (6, self.append),
            (4, self.move),
            (2, self.delete),
            (2, self.restart),
            (2, self.checkpoint),
        ]
        self.random.choices([one for _, one in steps], [weight for weight, _ in steps])[0]()

    # --- what its operator does -------------------------------------------------------------------

    def mount(self, path: str, aside: str) -> None:
        """Put another directory in the log dir's place, beside the running store or not."""
        is_beside = self.random.random() < 0.5
        if is_beside:
            self.take_out()
        else:
            self.stop()
        os.rename(self.dir, aside)
        os.rename(path, self.dir)
        if is_beside:
            self.store.reopen_dir(self.dir)
        elif len(self.dirs) > 1 and self.random.random() < 0.3:
            self.start_without_witness()
        else:
            self.open()

    def take_out(self) -> None:
        if self.random.random() < 0.5:
            self.store.take_offline(self.dir)
        else:
            log_dir = self.store.host.replicas.find_dir(self.dir)
            assert log_dir is not None
            log_dir.take_offline("its disk failed")

    def start_without_witness(self) -> None:
        """Start with the other log dirs away; they return to the running store."""
        self.count("witness away")
        for path in self.dirs[1:]:
            os.rename(path, f"{path}.away")
        self.open()
        for path in self.dirs[1:]:
            os.rename(f"{path}.away", path)
            self.store.reopen_dir(path)

    def state(self) -> str:
        return self.store.describe_dirs(log_dirs=[self.dir]).log_dirs[0].state

    def live_through(self) -> None:
        """Copy the log dir, go on, and let the copy stand in for it."""
        copy, right = f"{self.dir}.copy", f"{self.dir}.right"
        for _ in range(STEPS_BEFORE):
            self.step()
        wait_for_keepers(self.store)
        shutil.copytree(self.dir, copy)
        for _ in range(STEPS_BEFORE):
            self.step()
        if len(self.dirs) > 1:  # a generation that the others have seen
            self.restart()
        self.mount(copy, right)
        self.is_outdated = self.state() == "outdated"
        if not self.is_outdated:
            assert len(self.dirs) == 1  # only its process remembers, if anything does
            self.count("not recognised")
            self.put_back(right, copy)
            return
        self.count("recognised")
        offline = self.store.host.replicas.offline
        assert not {*map(str, offline)} & {*os.listdir(self.dir)}  # what is in it can be read
        for _ in range(STEPS_BESIDE):
            self.step()
            self.check_good()
            assert self.state() == "outdated"
        if self.random.random() < 0.5:
            self.mount(right, copy)
            self.is_outdated = False
            self.check_all()
        else:
            self.accept()
            self.check_all()
            if len(self.dirs) == 1:  # no other log dir sees that
                return
            self.mount(right, copy)  # after all: now it is the old copy
            assert self.state() == "outdated"
            self.is_outdated = True
            self.append()
            self.check_good()
            self.mount(copy, right)
            self.is_outdated = False
            self.check_all()
            self.count("accepted")

    def put_back(self, right: str, copy: str) -> None:
        """Mount the right disk after a copy that was not recognised, at a start.

        The process would compare the right disk with the copy.
        """
        self.store.close()
        os.rename(self.dir, copy)
        os.rename(right, self.dir)
        self.open()
        self.check_all()

    def accept(self) -> None:
        """Decide about each replica in doubt; the first decision makes the copy the log dir."""
        replicas = self.store.host.replicas
        if not (replicas.incomplete or replicas.offline):  # perhaps some names are not known
            self.give_up()
            return
        unread = [key for key, one in replicas.offline.items() if one.log_dir.path == self.dir]
        readable = {key: [r.value for r in one.log] for key, one in replicas.incomplete.items()}
        assert unread or readable
        for key in self.random.sample(sorted([*unread, *readable]), len(unread) + len(readable)):
            if key in readable and self.random.random() < 0.6:
                assert self.store.promote(*key)
                self.deleted.discard(key)
                values = tuple(value or b"" for value in readable[key])
                self.truth[key] = (self.dir, values)
            else:
                self.store.delete(*key)
                self.truth.pop(key, None)
                self.deleted.add(key)
            assert self.state() == "online"
            self.is_outdated = False
        self.lose_unknown()

    def lose_unknown(self) -> None:
        """Forget what no catalog names: it was created just before a kill, on the right disk."""
        held = [key for key, (log_dir, _) in self.truth.items() if log_dir == self.dir]
        lost = {key for key in held if key not in self.store}
        self.truth = {key: one for key, one in self.truth.items() if key not in lost}
        self.deleted |= lost

    def give_up(self) -> None:
        """Take a log dir in which nothing is in doubt for what it is, as its reason says."""
        reason = self.store.describe_dirs(log_dirs=[self.dir]).log_dirs[0].reason
        assert "remove-dir --lost" in str(reason)
        self.store.take_offline(self.dir)
        self.store.remove_dir(self.dir, lost=True)
        self.store.add_dir(self.dir, format_new=True)
        self.lose_unknown()
        self.is_outdated = False
        self.count("given up")

    # --- the judge --------------------------------------------------------------------------------

    def check(self, key: TopicPartition) -> None:
        log_dir, values = self.truth[key]
        log = self.store.log(*key)
        assert isinstance(log, Log) and log.log_dir == log_dir, (key, log)
        assert tuple(record.value for record in log) == values, key

    def check_good(self) -> None:
        """What is in the other log dirs is whole, and what was deleted is not served."""
        for key, (log_dir, _) in self.truth.items():
            if log_dir in self.good():
                self.check(key)
        for key in self.deleted:
            replica = self.store.host.replicas.opened.get(key)
            assert replica is None, key

    def check_all(self) -> None:
        assert self.state() == "online"
        self.check_good()
        for key in self.truth:
            self.check(key)
            self.truth[key] = (self.truth[key][0], self.truth[key][1] + (values := self.values()))
            self.store.log(*key).extend(values)
        for key in self.deleted:
            with pytest.raises(UnknownPartitionError):
                self.store.log(*key)


def run(root: Path, seed: int, counts: dict[str, int]) -> None:
    print(f"seed {seed}")
    history = History(root, seed, counts)
    try:
        history.live_through()
    finally:
        abandon(history.store)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_nothing_is_lost_while_an_old_copy_stands_in(tmp_path: Path, seed: int) -> None:
    """It is refused, or it is there once the right disk is back; what was deleted stays away."""
    run(tmp_path, seed, {})


def test_the_histories_do_what_they_are_for(tmp_path: Path) -> None:
    """A generator that refuses nothing, or accepts no copy, would prove nothing."""
    counts: dict[str, int] = {}
    for seed in range(1, 18):
        run(tmp_path / str(seed), seed, counts)
    wanted = {"recognised", "accepted", "append refused", "move refused", "creation refused"}
    assert wanted | {"deleted beside", "moved", "witness away"} <= {*counts}, counts
