"""Administer log dirs and start after a crash, in short scenarios that an error may hit anywhere.

The store has orders-0 in log dir `a`, nothing in `b`, orders-1 in `z`, and a bare directory `c`
stands beside them. Keepers have no thread: a scenario does their work where it says so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from io_errors.scenarios import CONFIG, Session
from logstore import LogStore
from support.expectation import Expectation
from support.inside import keepers_of
from support.moves import StagedMove


class DirSession(Session):
    """A session that knows what became of the log dirs and of a second partition, fresh-3.

    Attributes:
        may_be_cordoned: what the settings of `a` may say.
        fresh_may_be: how many records fresh-3 may have; None stands for "it is not there".
    """

    def __init__(self, root: Path, expected: Expectation, life: int) -> None:
        super().__init__(root, expected, life)
        self.dirs = [root / "a", root / "b", root / "z"]
        self.may_be_cordoned = {False}
        self.fresh_may_be: set[int | None] = {None}

    def serving(self) -> LogStore:
        assert self.store is not None
        return self.store

    def bring_back(self, name: str) -> bool:
        return self.attempt(lambda: self.serving().reopen_dir(self.root / name))[0]

    def add(self, name: str) -> bool:
        return self.attempt(lambda: self.serving().add_dir(self.root / name))[0]

    def cordon(self, is_cordoned: bool) -> None:
        store = self.serving()
        call = store.cordon if is_cordoned else store.uncordon
        self.may_be_cordoned.add(is_cordoned)
        if self.attempt(lambda: call(self.root / "a"))[0]:
            self.may_be_cordoned = {is_cordoned}

    def keep(self, duty: str) -> None:
        """Do one duty of the keeper of `a`, as its thread would."""
        keeper = keepers_of(self.serving()).get(str(self.root / "a"))
        if keeper is not None:
            keeper.run_one(duty)

    def purge(self) -> None:
        """Do what the keepers were asked to remove; no duty of theirs is due at time 0."""
        for keeper in list(keepers_of(self.serving()).values()):
            keeper.run_due(0.0)

    def create_fresh(self, name: str, records: int) -> None:
        path = self.root / name
        self.fresh_may_be.add(0)
        done, log = self.attempt(
            lambda: self.serving().create("fresh", 3, log_dir=path, config=CONFIG, is_new=True)
        )
        if not done:
            return
        self.fresh_may_be = {0}
        for number in range(records):
            self.fresh_may_be.add(number + 1)
            if not self.attempt(lambda: log.append(b"fresh" * 60, durable=True))[0]:
                return
            self.fresh_may_be = {number + 1}

    def delete_fresh(self) -> None:
        earlier = set(self.fresh_may_be)
        self.fresh_may_be.add(None)
        if self.attempt(lambda: self.serving().delete("fresh", 3))[0] or earlier == {None}:
            self.fresh_may_be = {None}


class DirScenario(NamedTuple):
    """What runs while the disk of the log dir `under` fails.

    Attributes:
        before: runs on the open store, without faults; None: the store is not open yet.
        stage: changes the directories before all that.
        is_clean: the store was closed in order.
    """

    name: str
    under: str
    run: Callable[[DirSession], None]
    before: Callable[[DirSession], None] | None = None
    stage: Callable[[Path, int], None] | None = None
    is_clean: bool = True


def nothing(_: DirSession) -> None:
    """Only open the store."""


def take_offline(session: DirSession) -> None:
    session.extend(4)
    assert session.attempt(lambda: session.serving().take_offline(session.root / "a"))[0]


def reopen(session: DirSession) -> None:
    if not session.bring_back("a"):
        session.bring_back("a")
    session.read_all()
    session.extend(3, durable=True)


def add(session: DirSession) -> None:
    if not session.add("c"):
        session.add("c")
    if session.serving().host.replicas.find_dir(str(session.root / "c")) is not None:
        session.create_fresh("c", 2)
    session.extend(3, durable=True)


def checkpoint(session: DirSession) -> None:
    store = session.serving()
    session.extend(3, durable=True)
    session.keep("checkpoint")
    session.cordon(True)
    session.attempt(lambda: store.prefer_dir("later", 0, session.root / "a"))
    session.extend(9)
    session.keep("flush")
    session.keep("checkpoint")
    session.cordon(False)
    for duty in ("retention", "usage", "probe"):
        session.keep(duty)
    session.extend(1)


def scrub(session: DirSession) -> None:
    """Check every segment against the disk, in the passes of three keepers' lives."""
    session.extend(20)
    session.attempt(session.serving().flush)
    for _ in range(3):
        keeper = keepers_of(session.serving()).get(str(session.root / "a"))
        if keeper is not None:
            keeper.scrubber._quiet_until_ms = keeper.scrubber._rest_until_ms = 0
        session.keep("scrub")
    session.extend(1, durable=True)


def create_roll_delete(session: DirSession) -> None:
    session.create_fresh("a", 6)
    session.extend(20)
    session.keep("checkpoint")
    session.delete_fresh()
    session.purge()
    session.create_fresh("a", 1)


def start(session: DirSession) -> None:
    session.open()
    if session.store is None:
        return
    session.read_all()
    session.extend(2, durable=True)
    session.purge()


def staged(steps: int) -> Callable[[Path, int], None]:
    """Leave behind what a mover that was killed after some of its steps leaves."""

    def stage(root: Path, end_offset: int) -> None:
        move = StagedMove(root / "a", root / "b", "orders", 0, end_offset)
        for step in (move.name, move.copy, move.catch_up, move.rename_source, move.rename_target)[
            :steps
        ]:
            step()
        for name in ("a", "b", "z"):
            (root / name / ".clean-shutdown").unlink()

    return stage


STAGES = ((2, "copying"), (3, "caught up"), (4, "half swapped"), (5, "swapped"))
DIR_SCENARIOS = (
    DirScenario("reopen a dir", "a", reopen, take_offline),
    DirScenario("add a dir", "c", add, nothing),
    DirScenario("add a dir, tell the others", "a", add, nothing),
    DirScenario("checkpoint", "a", checkpoint, nothing),
    DirScenario("scrub", "a", scrub, nothing),
    DirScenario("create, roll, delete", "a", create_roll_delete, nothing),
    DirScenario("start after a stop", "a", start),
    DirScenario("start after a crash", "a", start, is_clean=False),
    *(
        DirScenario(f"start, move {name}, {side} fails", under, start, stage=staged(steps))
        for steps, name in STAGES
        for under, side in (("a", "source"), ("b", "target"))
    ),
)

__all__ = ["DIR_SCENARIOS", "DirScenario", "DirSession"]
