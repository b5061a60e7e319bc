"""Steer a group coordinator over a real store: its clock, its timers, its threads."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from broker.catalog.topics import TopicCatalog
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.offsets_topic import OffsetsTopic
from broker.coordinator.upkeep import OffsetUpkeep
from broker.groups.exchange import JoinAnswer, Joining, Now, SyncAnswer, Syncing
from broker.groups.group import Group, GroupSettings
from broker.groups.offsets import NO_ID, Committed
from broker.wire.error_codes import ErrorCode
from logstore import LogStore, StoreConfig
from support.hanging import QUIET

RANGE = (("range", b""),)
RETENTION_SECONDS = 1000.0


class Scheduler:
    """Keeps tasks until a test has them run."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.tasks: list[Callable[[], None]] = []
        self.timers: list[tuple[float, int, list[Callable[[], None] | None]]] = []
        self.timers_made = 0

    def submit(self, task: Callable[[], None]) -> None:
        self.tasks.append(task)

    def each_second(self, on_tick: Callable[[float], object]) -> None:
        """Call nothing: the tests move the clock."""

    def call_at(self, deadline: float, task: Callable[[], None]) -> object:
        timer: list[Callable[[], None] | None] = [task]
        self.timers_made += 1
        heapq.heappush(self.timers, (deadline, self.timers_made, timer))
        return timer

    def cancel(self, timer: Any) -> None:
        if timer is not None:
            timer[0] = None

    @property
    def set_timers(self) -> list[float]:
        return sorted(at for at, _, timer in self.timers if timer[0] is not None)

    def run(self) -> None:
        """Run what was submitted, and what that submits."""
        while self.tasks:
            self.tasks.pop(0)()

    def until(self, seconds: float) -> None:
        """Let time pass, and the timers fire."""
        self.run()
        while self.timers and self.timers[0][0] <= seconds:
            at, _, timer = heapq.heappop(self.timers)
            self.seconds = max(self.seconds, at)
            if timer[0] is not None:
                timer[0]()
            self.run()
        self.seconds = seconds


class Waiter:
    """A request: what it was answered."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def put(self, said: Any) -> None:
        self.said.append(said)

    @property
    def one(self) -> Any:
        (said,) = self.said
        return said

    @property
    def code(self) -> ErrorCode | None:
        return self.one.error if self.said else None


class Steered(GroupCoordinator):
    """A coordinator whose wall clock is that of its scheduler too."""

    scheduler: Scheduler

    def now(self) -> Now:
        return Now(self.scheduler.seconds, round(1000 * self.scheduler.seconds))


class Bench:
    """A store, a coordinator over it, and a way to ask it."""

    def __init__(self, dirs: Sequence[Path], config: StoreConfig = QUIET, **limits: Any) -> None:
        self.store = LogStore.open(list(dirs), config=config)
        self.topics = TopicCatalog(self.store)
        self.scheduler = Scheduler()
        self.groups = Steered(
            OffsetsTopic(self.topics, 1), GroupSettings(**limits), groups_max=10,
            clock=lambda: self.scheduler.seconds,
        )  # fmt: skip
        self.groups.scheduler = self.scheduler
        self.upkeep = OffsetUpkeep(self.groups, RETENTION_SECONDS, 100.0)
        self.groups.start(self.scheduler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.topics.close()
        self.store.close()

    def load(self, name: str = "g") -> Self:
        """Have the groups loaded; the topic is created for that."""
        if self.code_of(name) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self.scheduler.run()
        assert self.code_of(name) is ErrorCode.UNKNOWN_MEMBER_ID
        return self

    def code_of(self, name: str) -> ErrorCode:
        """Say what a stranger's heartbeat is answered."""
        return self.beat(name, "stranger", -1)

    def beat(self, name: str, member_id: str, generation: int) -> ErrorCode:
        try:
            return self.groups.heartbeat(name, member_id, None, generation)
        except CoordinatorError as error:
            return error.code

    def join(self, name: str, member_id: str = "", **changed: Any) -> Waiter:
        waiter = Waiter()
        asked = Joining(member_id, None, "c", "/h", 60.0, 10.0, "consumer", RANGE)
        try:
            self.groups.join(name, asked._replace(**changed), waiter)
        except CoordinatorError as error:
            waiter.put(JoinAnswer(error.code, member_id))
        return waiter

    def sync(
        self, name: str, member_id: str, generation: int, assignments: dict[str, bytes]
    ) -> Waiter:
        waiter = Waiter()
        asked = Syncing(member_id, None, generation, None, None, assignments)
        try:
            self.groups.sync(name, asked, waiter)
        except CoordinatorError as error:
            waiter.put(SyncAnswer(error.code))
        return waiter

    def member(self, name: str, **changed: Any) -> tuple[str, int]:
        """Form a generation of one member; returns its id and the generation."""
        said = self.join(name, **changed).one
        given = self.sync(name, said.member_id, said.generation, {said.member_id: b"part"}).one
        assert (said.error, given.error, given.assignment) == (0, 0, b"part")
        return said.member_id, said.generation

    def commit(
        self, name: str, offset: int, member: tuple[str, int] = ("", -1), topic: str = "t"
    ) -> ErrorCode | None:
        offsets = {(topic, 0): Committed(offset, -1, "", self.groups.now().wall_ms)}
        try:
            return self.groups.commit(name, member[0], None, member[1], offsets)
        except CoordinatorError as error:
            return error.code

    def offset(self, name: str, topic: str = "t") -> int | None:
        found = self.groups.offsets_of(name).get((topic, 0))
        return None if found is None else found.offset

    def forget(self, topic: str) -> None:
        """Delete the offsets of a deleted topic."""
        self.upkeep.start(self.scheduler)
        self.upkeep.forget_soon(topic, NO_ID)
        self.scheduler.run()

    def group(self, name: str) -> Group:
        hosted = self.groups.shards()[0].get(name)
        assert hosted is not None
        assert isinstance(hosted.group, Group)
        return hosted.group
