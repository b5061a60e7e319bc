"""Accept move requests from outside the process: the commands `move.*` of the admin socket.

The store's first `ReplicaMover` registers the commands. If a client requests a command before there
is a mover, that request registers all commands. The first request for a move makes a mover if the
store has none. A request that only reads makes no mover. `mover.registration` chooses the class of
the mover.

Results and progress are plain documents. The field `moves` of a document has one entry for each
move. The function `facts_of` makes an entry.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from logstore.errors import UnknownPartitionError
from logstore.log import relocation
from logstore.store.admin.admin import Request
from logstore.store.store import LogStore
from mover.move import Move
from mover.planning.plan import MovePlan, plan_moves
from mover.planning.planned_move import PlannedMove
from mover.pool import NUM_REPLICA_MOVE_THREADS
from mover.rates.throttle import HOLD_RATE, Rate, Throttle, kept_rate
from mover.state import MoveState

PROGRESS_SECONDS = 0.25

Row = dict[str, Any]


class RunningMover(Protocol):
    """Declare which members of a mover the commands use."""

    changed: threading.Condition

    @property
    def is_closed(self) -> bool:
        """Whether the mover was closed; if so, the next request makes a new mover."""

    @property
    def throttle(self) -> Throttle:
        """The rates of the mover's moves."""

    def moves(self) -> list[Move]:
        """List the moves that were requested or resumed."""

    def execute(self, plan: MovePlan) -> list[Move]:
        """Run the moves of a plan."""

    def set_throttled_rate(self, rate: Rate, log_dir: str | None = None) -> None:
        """Limit all moves, or only the moves of one log dir, to a rate."""


# The arguments of this function are the store, the number of threads and the rate.
MakeMover = Callable[[LogStore, int, Rate], RunningMover]

# Keys and values are weak references.
# So this dict keeps neither a store nor its commands in memory.
# A store refers to its command handlers.
# The handlers refer to the store's `MoveCommands`, which has a weak reference to the store.
_COMMANDS: weakref.WeakKeyDictionary[LogStore, weakref.ref[MoveCommands]] = (
    weakref.WeakKeyDictionary()
)
_MAKING = threading.Lock()


def commands_of(store: LogStore, make_mover: MakeMover) -> MoveCommands:
    """Return the commands of a store; the first call for a store registers the commands.

    Args:
        make_mover: a function that makes the mover when a move is requested for the first time.
    """
    with _MAKING:
        entry = _COMMANDS.get(store)
        commands = None if entry is None else entry()
        if commands is None:
            commands = MoveCommands(store, make_mover)
            commands.register()
            _COMMANDS[store] = weakref.ref(commands)
    return commands


class MoveCommands:
    """Implement the commands that request and show moves in a store.

    Attributes:
        mover: the store's mover; None before the first mover is made.
    """

    def __init__(self, store: LogStore, make_mover: MakeMover) -> None:
        self._store = weakref.ref(store)
        self._make_mover = make_mover
        self.mover: RunningMover | None = None
        self._making = threading.Lock()

    def register(self) -> None:
        """Register the commands."""
        admin = self.store.admin
        handlers: dict[str, Callable[..., object]] = {
            "plan": self.plan,
            "run": self.run,
            "status": self.status,
            "throttle": self.throttle,
        }
        for verb in ("cancel", "pause", "resume", "retry"):
            handlers[verb] = self._asking(verb)
        for name, handler in handlers.items():
            admin.unregister(f"move.{name}")  # Ctrl-C may have interrupted a registration
            admin.register(f"move.{name}", _unpacked(handler))

    @property
    def store(self) -> LogStore:
        """The store on which the commands of this object work.

        While the admin socket of the store calls a command, the store exists.
        """
        store = self._store()
        assert store is not None
        return store

    def running(self, threads: int | None = None, rate: Rate = None) -> RunningMover:
        """Return the store's mover; if there is none, make a mover.

        If `rate` is not given, a new mover gets the rate that an earlier mover stored.
        """
        with self._making:  # requests run in parallel, but a store must have only one mover
            if self.mover is None or self.mover.is_closed:
                rate = rate or rate_left(self.store)
                threads = threads or NUM_REPLICA_MOVE_THREADS
                self.mover = self._make_mover(self.store, threads, rate)
            return self.mover

    # --- the commands -----------------------------------------------------------------------------

    def plan(self, request: Request, tolerance: float = 0.05, evacuate: Sequence[str] = ()) -> Row:
        """Plan moves without running them."""
        return plan_facts(plan_moves(self.store, tolerance, evacuate))

    def run(
        self,
        request: Request,
        moves: Sequence[Sequence[Any]] = (),
        reassignment: str | None = None,
        throttle: Rate = None,
        threads: int | None = None,
        is_dry: bool = False,
    ) -> Row:
        """Run moves and report their progress until they end or the client disconnects.

        Args:
            moves: the topic, the partition and the target of each move. The first move runs first.
            reassignment: moves in the JSON format of kafka-reassign-partitions. If this text is
                given, `moves` is ignored.
            throttle: the rate of all moves of the store. The text "none" removes the limit; None
                leaves the rate unchanged.
            threads: the number of threads of the mover, if this request makes the mover.
            is_dry: whether to report the moves without running them.
        """
        store = self.store
        plan = MovePlan(tuple(PlannedMove(*one) for one in moves))
        if reassignment is not None:
            plan = MovePlan.from_json(reassignment, broker_id=store.broker_id)
        plan = located(store, plan, may_wish=reassignment is not None)
        if is_dry:
            return plan_facts(plan)
        for wish in plan.wishes:
            store.prefer_dir(wish.topic, wish.partition, wish.target)
        mover = self.running(threads)
        if throttle is not None:
            mover.set_throttled_rate(_rate(throttle))
        return plan_facts(plan) | self._follow(mover, mover.execute(plan), request)

    def status(self, request: Request, is_followed: bool = False) -> Row:
        """Report the mover's moves; without a mover, report the moves that were left unfinished."""
        mover = self.mover
        if mover is None or mover.is_closed:
            return {"pid": os.getpid(), "moves": left_moves(self.store), "throttled_rate": None}
        moves = mover.moves()
        return self._follow(mover, moves, request) if is_followed else self._facts(mover, moves)

    def throttle(self, request: Request, rate: Rate, log_dir: str | None = None) -> Row:
        """Limit all moves, or only the moves of one log dir, to a rate."""
        mover = self.running()
        mover.set_throttled_rate(_rate(rate), log_dir)
        return self._facts(mover, mover.moves())

    def _asking(self, verb: str) -> Callable[..., Row]:
        def ask(
            request: Request,
            partitions: Sequence[Sequence[Any]] | None = None,
            is_followed: bool = False,
        ) -> Row:
            is_new = self.mover is None or self.mover.is_closed
            # A new mover resumes moves immediately.
            # Here the new mover begins at `HOLD_RATE`.
            # So no move ends before this request cancels or pauses the move.
            is_held = is_new and verb in ("cancel", "pause")
            rate = rate_left(self.store)
            mover = self.running(rate=HOLD_RATE if is_held else None)
            try:
                chosen = _chosen(mover.moves(), partitions, verb)
                for move in chosen:
                    getattr(move, verb)()
            finally:
                if is_held:
                    mover.set_throttled_rate(rate)
            if is_followed:
                return self._follow(mover, chosen, request)
            return self._facts(mover, chosen)

        return ask

    # --- reporting --------------------------------------------------------------------------------

    def _follow(self, mover: RunningMover, moves: Sequence[Move], request: Request) -> Row:
        """Report the progress of moves, until none of them runs or the client disconnects."""
        while any(not _is_at_rest(move) for move in moves) and not request.is_abandoned:
            request.progress(self._facts(mover, moves))
            with mover.changed:
                mover.changed.wait_for(lambda: all(map(_is_at_rest, moves)), PROGRESS_SECONDS)
            if mover.is_closed:
                break
        return self._facts(mover, moves)

    def _facts(self, mover: RunningMover, moves: Iterable[Move]) -> Row:
        return {
            "pid": os.getpid(),
            "moves": [facts_of(move) for move in moves],
            "throttled_rate": mover.throttle.rate_of(),
        }


def _rate(rate: Rate) -> Rate:
    return None if rate == "none" else rate


def _is_at_rest(move: Move) -> bool:
    return move.state.is_end or move.state is MoveState.PAUSED


def _unpacked(handler: Callable[..., object]) -> Callable[[Row, Request], object]:
    return lambda arguments, request: handler(request, **arguments)


# If no move is named, each of the four commands applies to the moves that its function selects.
# `resume` also includes moves that run already.
# The reason is that a new mover resumes the moves of an earlier mover by itself.
_MEANT: dict[str, Callable[[Move], bool]] = {
    "cancel": lambda move: move.state not in (MoveState.DONE, MoveState.CANCELLED),
    "pause": lambda move: not _is_at_rest(move),
    "resume": lambda move: not move.state.is_end,
    "retry": lambda move: move.state is MoveState.FAILED,
}


def _chosen(
    moves: Iterable[Move], partitions: Sequence[Sequence[Any]] | None, verb: str
) -> list[Move]:
    """Return the newest move of each named partition.

    If no partition is named, return the newest moves to which the command applies.
    """
    newest = {(move.topic, move.partition): move for move in moves}
    if partitions is None:
        return [move for move in newest.values() if _MEANT[verb](move)]
    chosen = []
    for topic, partition in partitions:
        if (topic, partition) not in newest:
            raise ValueError(f"{topic}-{partition} is not being moved")
        chosen.append(newest[topic, partition])
    return chosen


def facts_of(move: Move) -> Row:
    """Describe a move as a document that JSON can represent."""
    return {
        "topic": move.topic,
        "partition": move.partition,
        "source": move.source_dir,
        "target": move.target_dir,
        "state": move.state.value,
        "error": None if move.error is None else str(move.error),
        **move.progress()._asdict(),
        "throttled_rate": move.throttle.rate,
    }


def rate_left(store: LogStore) -> Rate:
    """Return the rate for all moves, which an earlier mover stored with its unfinished moves."""
    for _, (log, _) in sorted(store.host.replicas.opened.items()):
        rate = (
            None
            if relocation.moving_of(log) is None
            else kept_rate(relocation.rates_of(log), "store")
        )
        if rate is not None:
            return rate
    return None


def left_moves(store: LogStore) -> list[Row]:
    """List the moves of an earlier mover that are unfinished and have a `.move` directory."""
    described = store.describe_dirs().log_dirs
    live = {
        (each.topic, each.partition): (one.path, each.size)
        for one in described
        for each in one.partitions
        if not each.is_temporary
    }
    left = []
    for one in described:
        for each in one.partitions:
            if each.is_temporary:
                source, size = live.get((each.topic, each.partition), (None, each.size))
                left.append(
                    {
                        "topic": each.topic,
                        "partition": each.partition,
                        "source": source,
                        "target": one.path,
                        "state": "left",
                        "error": None,
                        "bytes_done": each.size,
                        "bytes_total": size,
                        "lag_bytes": max(size - each.size, 0),
                        "bytes_per_second": 0.0,
                        "eta_seconds": None,
                        "throttled_rate": None,
                    }
                )
    return left


def located(store: LogStore, plan: MovePlan, *, may_wish: bool) -> MovePlan:
    """Complete a plan from a document: add the log dir and the size of each replica.

    Args:
        may_wish: whether a partition that does not exist is accepted. The target of a missing
            partition is returned as a *wish*: the partition is to be created later in this log dir
            (KIP-113).

    Raises:
        LogStoreError: a replica or a log dir does not exist; no move of the plan is begun.
    """
    moves, wishes = [], []
    for move in plan.moves:
        target = store.host.dir_named(move.target)
        try:
            log = store.log(move.topic, move.partition)
        except UnknownPartitionError:
            if not may_wish:
                raise
            wishes.append(move._replace(target=target.path))
        else:
            moves.append(move._replace(source=log.log_dir, size_bytes=log.size_bytes))
    return plan._replace(moves=tuple(moves), wishes=tuple(wishes))


def plan_facts(plan: MovePlan) -> Row:
    """Describe a plan as a document that JSON can represent."""
    return {
        "bytes_to_move": plan.bytes_to_move,
        "planned": [move._asdict() for move in plan.moves],
        "skipped": [one._asdict() for one in plan.skipped],
        "wishes": [
            {
                "topic": wish.topic,
                "partition": wish.partition,
                "target": wish.target,
                "state": "wished",
            }
            for wish in plan.wishes
        ],
        "log_dirs": [change._asdict() for change in plan.log_dirs],
        "reassignment": plan.to_json(),
    }
