"""Make requests about moves in any order, while log dirs fail and return.

LOGSTORE_MOVE_EXAMPLES=1000 asks more, and anew each time.

What has to hold: whoever can be asked has every record; a replica whose move was cancelled stays
where it was; and once everything is back and nothing is asked for, there is one copy and no other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logstore import LogDirError, LogStore
from mover import Move, MoveError, MoveState, ReplicaMover
from support.gate import SECONDS_MAX, Gate
from support.moving import CONFIG, fill, replica_dirs, settle
from support.places import fast_directory

EXAMPLES = int(os.environ.get("LOGSTORE_MOVE_EXAMPLES", "25"))
DIRS = ("a", "b", "c")
PLACES = st.sampled_from(DIRS)


class Moves(RuleBasedStateMachine):
    """One replica, three log dirs, and one mover after the other."""

    @initialize()
    def begin(self) -> None:
        self.place = fast_directory()
        self.base: Path = self.place.__enter__()
        self.count, self.stays_in = 0, ""
        self.offline: set[str] = set()
        self._open()
        fill(self.store.create("orders", 0, log_dir=self.base / "a", config=CONFIG), 6)
        self.count = 60

    def _open(self) -> None:
        self.store = LogStore.open([self.base / name for name in DIRS], admin_socket=False)
        self.gate = Gate()
        self._begin_mover()

    def _begin_mover(self) -> None:
        self.mover = ReplicaMover(self.store, num_replica_move_threads=1)
        self.mover._moves.throttle = self.gate  # type: ignore[assignment]

    def _newest(self) -> Move | None:
        """Return the newest move, which depends on how far the threads have come."""
        moves = self.mover.moves()
        return moves[-1] if moves else None

    def _where(self) -> str:
        """Return the log dir of the replica, even if the log dir does not serve."""
        log_dir = self.store.host.replicas.dir_holding(next(iter(self.store)))
        assert log_dir is not None
        return log_dir.path[-1]

    def _ask(self, work: Callable[[], Any]) -> bool:
        """Report whether the request was carried out; a refusal must raise one of our errors."""
        try:
            work()
        except (MoveError, LogDirError):
            return False
        return True

    # --- what may be asked ------------------------------------------------------------------------

    @rule(to=PLACES, is_held=st.booleans())
    def move(self, to: str, is_held: bool) -> None:
        if is_held:
            self.gate.hold(after=2)
        else:
            self.gate.open()
        if self._ask(lambda: self.mover.move("orders", 0, self.base / to)):
            self.stays_in = ""

    @rule(count=st.integers(0, 3))
    def let_some_chunks_go(self, count: int) -> None:
        self.gate.hold(after=count)

    @rule(verb=st.sampled_from(["pause", "resume", "retry"]))
    def ask(self, verb: str) -> None:
        newest = self._newest()
        if newest is not None and self._ask(getattr(newest, verb)) and verb != "pause":
            self.stays_in = ""

    @rule()
    def cancel(self) -> None:
        newest = self._newest()
        if newest is not None:
            newest.cancel()
            self.stays_in = self._where()

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        with suppress(LogDirError):
            fill(self.store["orders", 0], count)
            self.count += 10 * count

    # --- what may happen --------------------------------------------------------------------------

    @precondition(lambda self: len(self.offline) < 2)
    @rule(place=PLACES)
    def lose(self, place: str) -> None:
        if place not in self.offline:
            self.store.take_offline(self.base / place)
            self.offline.add(place)

    @precondition(lambda self: self.offline)
    @rule()
    def bring_back(self) -> None:
        self.store.reopen_dir(self.base / self.offline.pop())

    @rule()
    def take_another_mover(self) -> None:
        self.mover.close()
        self._begin_mover()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.offline.clear()
        self._open()

    # --- what has to hold -------------------------------------------------------------------------

    @invariant()
    def every_record_is_there(self) -> None:
        with suppress(LogDirError):
            offsets = [record.offset for record in self.store["orders", 0]]
            assert offsets == list(range(self.count))

    def teardown(self) -> None:
        if not hasattr(self, "base"):
            return
        try:
            self._end()
        finally:
            self.gate.open()
            self.store.close()
            self.place.__exit__(None, None, None)

    def _end(self) -> None:
        """Bring all log dirs back, and let every move end."""
        self.gate.open()
        while self.offline:
            self.bring_back()
        self.take_another_mover()
        for move in self.mover.moves():
            with suppress(MoveError):  # it may be done already
                move.resume()
            assert move.wait(SECONDS_MAX) is MoveState.DONE, move.error
        settle(self.store)
        where = self._where()
        assert self.stays_in in ("", where)
        self.every_record_is_there()
        self.restart()
        settle(self.store)
        assert replica_dirs(self.base) == [f"{where}/orders-0"]
        self.every_record_is_there()


Moves.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=15,
    deadline=None,
    derandomize=EXAMPLES == 25,
    suppress_health_check=list(HealthCheck),
)
test_moves_in_any_order = Moves.TestCase
