"""Cut the power at every call of a history, and say what a log may hold afterwards.

A history is written once, on a real directory, and recorded. Its marks tell what was announced,
acknowledged and flushed when. At each call several images are drawn; each is opened by a real
store, and held against the marks:

    flushed and not truncated or deleted since     must be there, at its offset
    anything else that is there                    was appended, and not truncated before
    deleted and acknowledged                       stays deleted
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from logstore import LogConfig, LogStore, StoreConfig
from support.crash_model import CrashModel, Op
from support.recorder import Recorder
from support.writer import value_of

HOUR_MS = 3_600_000
QUIET = StoreConfig(
    log_flush_scheduler_interval_ms=HOUR_MS,
    log_flush_offset_checkpoint_interval_ms=HOUR_MS,
    log_retention_check_interval_ms=HOUR_MS,
)
CONFIG = LogConfig(segment_bytes=1400, index_interval_bytes=256)
UNSEEN = ("mark", "begin sync")  # operations that change nothing on the disk


class State(NamedTuple):
    """What a log holds."""

    start: int
    records: dict[int, bytes]


class Known:
    """What the marks up to a moment say.

    Attributes:
        created: the partition was acknowledged.
        states: the states that the log may be in: from the last one that is durable, to the one
            that the operation in progress makes.
    """

    def __init__(self) -> None:
        self.created = False
        self.states = [State(0, {})]
        self.durable = State(0, {})
        self.start = 0
        self.pending: State | None = None

    def hear(self, mark: tuple[Any, ...]) -> None:
        """Take in a mark: ("create",), ("begin", state), ("done", what, state)."""
        kind, *rest = mark
        if kind == "create":
            self.created = True
        elif kind == "begin":
            self.pending = rest[0]
        else:
            what, state = rest
            self.pending = None
            if what in ("flush", "truncate"):  # nothing older comes back
                self.states = [state]
            else:
                self.states.append(state)
            if what == "flush":
                self.durable = state
            self.start = state.start

    def possible(self) -> list[State]:
        return [*self.states, self.pending] if self.pending else self.states

    def required(self) -> dict[int, bytes]:
        """Give the records that no power cut may take."""
        states = self.possible()
        return {
            offset: value
            for offset, value in self.durable.records.items()
            if all(state.records.get(offset) == value for state in states)
        }


class History:
    """Does operations on a log and marks them in the record."""

    def __init__(
        self, recorder: Recorder, store: LogStore, seed: int, log_dir: str | None = None
    ) -> None:
        self.recorder, self.rng, self.number = recorder, random.Random(seed), 0
        self.log = store.create("orders", 0, log_dir=log_dir, config=CONFIG)
        recorder.mark(("create",))
        self.state = State(0, {})

    def does(self, what: str, state: State, call: Any) -> None:
        self.recorder.mark(("begin", state))
        call()
        self.state = state
        self.recorder.mark(("done", what, state))

    def extend(self, count: int, *, durable: bool = False) -> None:
        end = self.log.log_end_offset
        values = [value_of(1, self.number + i) for i in range(count)]
        self.number += count
        records = {**self.state.records, **{end + i: v for i, v in enumerate(values)}}
        state = State(self.state.start, records)
        call = lambda: self.log.extend(values, durable=durable)  # noqa: E731
        self.does("flush" if durable else "extend", state, call)

    def flush(self) -> None:
        self.does("flush", self.state, self.log.flush)

    def truncate(self, back: int) -> None:
        offset = max(self.log.log_end_offset - back, self.state.start)
        kept = {o: v for o, v in self.state.records.items() if o < offset}
        self.does("truncate", State(self.state.start, kept), lambda: self.log.truncate_to(offset))

    def delete(self, back: int) -> None:
        offset = max(self.log.log_end_offset - back, self.state.start)
        kept = {o: v for o, v in self.state.records.items() if o >= offset}
        call = lambda: self.log.delete_records_before(offset)  # noqa: E731
        self.does("delete", State(offset, kept), call)

    def begin_anew(self, ahead: int) -> None:
        """Remove all records, then begin later: a crash may come between the two steps."""
        offset, start = self.log.log_end_offset + ahead, self.state.start
        empty = lambda: self.log.truncate_to(start)  # noqa: E731
        self.does("truncate", State(start, {}), empty)
        self.does("delete", State(offset, {}), lambda: self.log.start_at(offset))

    def run(self, steps: int, *, begins_anew: bool = False) -> None:
        """Do so many operations, every kind among them."""
        self.extend(3)
        self.flush()
        for step in range(steps):
            dice = self.rng.random()
            if dice < 0.5:
                self.extend(self.rng.randint(1, 9), durable=dice < 0.2)
            elif dice < 0.7:
                self.flush()
            elif begins_anew and dice < 0.8:
                self.begin_anew(self.rng.randint(0, 30))
            elif dice < 0.87:
                self.truncate(self.rng.randint(0, 25))
            elif step > 5:
                self.delete(self.rng.randint(0, 30))


def record(root: Any, seed: int, steps: int, *, begins_anew: bool = False) -> list[Op]:
    """Write a history into an empty directory and give its record."""
    root.mkdir()
    with Recorder(root) as recorder:
        store = LogStore.open(root / "logs", config=QUIET, admin_socket=False)
        History(recorder, store, seed).run(steps, begins_anew=begins_anew)
        store.close()
    return recorder.ops


def replay(ops: list[Op]) -> Any:
    """Step through a record; yields the model and what is known after each change of the disk."""
    model, known = CrashModel(), Known()
    for op in ops:
        if op[0] == "mark":
            known.hear(op[1])
            continue
        model.apply(op)
        if op[0] not in UNSEEN:
            yield model, known
