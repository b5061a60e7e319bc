"""Know what a power cut may leave of several partitions, from the marks of a history alone.

A mark says what an operation is about to make of a partition, and that it returned. Nothing here
asks the engine: the states are plain dictionaries.

    durable and not truncated or deleted since     must be there, at its offset
    anything else that is there                    was appended, and not truncated before
    deleted and acknowledged                       stays deleted, records and partitions
    on a log dir that is given up as lost          gone with it; nothing else is

A mark may also be of the log dirs: which belong to the store by then, and which comes or goes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Key = tuple[str, int]
Record = tuple[bytes, int]  # value, leader epoch


class State(NamedTuple):
    """What a log holds; a partition that does not exist has none."""

    start: int
    records: dict[int, Record]

    @property
    def end(self) -> int:
        """The next offset."""
        return max(self.records, default=self.start - 1) + 1

    def with_records(self, offset: int, records: list[Record]) -> State:
        """Add records at an offset, which becomes the start of a log that holds none."""
        added = {offset + number: record for number, record in enumerate(records)}
        start = offset if not self.records and offset > self.start else self.start
        return State(start, {**self.records, **added})

    def until(self, offset: int) -> State:
        """Drop what lies at or behind an offset."""
        return State(self.start, {o: r for o, r in self.records.items() if o < offset})

    def since(self, offset: int) -> State:
        """Drop what lies before an offset."""
        return State(offset, {o: r for o, r in self.records.items() if o >= offset})


class Known:
    """What the marks up to a moment say of one partition.

    Attributes:
        states: those that it may be in: from the last one that is durable as a whole, to the last.
        pending: the state that the operation in progress makes, if there is one.
        is_left: its disk is given up, and what a move left of it elsewhere is yet to be judged.
    """

    def __init__(self) -> None:
        self.states: list[State | None] = [None]
        self.durable: State | None = None
        self.start = 0
        self.pending: list[State | None] = []
        self.is_left = False

    def hear(self, kind: str, state: State | None, how: str) -> None:
        """Take in that an operation begins, or is done; `how` says what is durable then.

        appended   nothing of it
        trimmed    that nothing older comes back from the end
        started    that nothing comes back from the beginning
        durable    all of it
        left       nothing is known until it is done
        """
        self.is_left = how == "left"
        if kind == "begin":
            self.pending = [state]
            return
        self.pending = []
        if how in ("durable", "trimmed"):
            self.states = [state]
        else:
            self.states.append(state)
        if how == "durable":
            self.durable = state
        self.start = 0 if state is None else state.start

    def possible(self) -> list[State | None]:
        """Give the states that a power cut may leave, or parts of them."""
        return [*self.states, *self.pending]

    def required(self) -> dict[int, Record]:
        """Give the records that no power cut may take."""
        if self.durable is None:
            return {}
        states = self.possible()
        return {
            offset: record
            for offset, record in self.durable.records.items()
            if all(state is not None and state.records.get(offset) == record for state in states)
        }


class Oracle:
    """What is known of all partitions of a history.

    Attributes:
        dirs: the log dirs that belong to the store; None as long as it is the ones it began with.
        changing: the log dir that is being taken in or out.
    """

    def __init__(self) -> None:
        self.partitions: dict[Key, Known] = {}
        self.dirs: tuple[str, ...] | None = None
        self.changing: str | None = None

    def hear(self, mark: tuple[Any, ...]) -> None:
        """Take in a mark: (kind, key, state, how), or ("dirs", those that belong, what changes)."""
        if mark[0] == "dirs":
            _, self.dirs, self.changing = mark
            return
        kind, key, state, how = mark
        self.partitions.setdefault(key, Known()).hear(kind, state, how)

    def fingerprint(self) -> int:
        """Tell what is expected of an image apart from what is expected at other moments."""
        return hash(
            tuple(
                (key, len(known.states), known.start, id(known.durable), len(known.pending))
                + (known.is_left,)
                for key, known in self.partitions.items()
            )
            + (self.dirs, self.changing)
        )
