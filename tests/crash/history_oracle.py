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

from collections.abc import Mapping
from typing import Any, NamedTuple

Key = tuple[str, int]
Record = tuple[bytes, int]  # value, leader epoch


class State(NamedTuple):
    """What a log holds; a partition that does not exist has none.

    Attributes:
        replicated_to: its high watermark; None if nobody replicates it. What lies below the start
            of an empty log that began late counts as replicated.
        kept: a high watermark that a crash does not lower, unless it takes the records.
        outdated: the offsets of records that a compaction may have left out.
    """

    start: int
    records: dict[int, Record]
    replicated_to: int | None = None
    kept: int = 0
    outdated: frozenset[int] = frozenset()

    @property
    def end(self) -> int:
        """The next offset."""
        return max(self.records, default=self.start - 1) + 1

    def with_records(self, offset: int, records: list[Record]) -> State:
        """Add records at an offset, which becomes the start of a log that holds none."""
        added = {offset + number: record for number, record in enumerate(records)}
        start = offset if not self.records and offset > self.start else self.start
        return self._replace(start=start, records={**self.records, **added})

    def until(self, offset: int) -> State:
        """Drop what lies at or behind an offset."""
        at = None if self.replicated_to is None else min(self.replicated_to, offset)
        records = {o: r for o, r in self.records.items() if o < offset}
        outdated = frozenset(o for o in self.outdated if o < offset)
        return State(self.start, records, at, min(self.kept, offset), outdated)

    def since(self, offset: int) -> State:
        """Drop what lies before an offset."""
        kept = {o: r for o, r in self.records.items() if o >= offset}
        return self._replace(start=offset, records=kept)

    def with_high_watermark(self, offset: int) -> State:
        """Let it be replicated up to an offset, or as far as it was before."""
        at = max(self.start, min(offset, self.end), self.replicated_to or 0)
        return self._replace(replicated_to=at)

    def keeping(self) -> State:
        """Let no crash lower its high watermark."""
        return self._replace(kept=self.replicated_to or 0)

    def has_replicated(self, offset: int, record: Record) -> bool:
        """Tell whether this very record was below the high watermark."""
        at = self.replicated_to
        return at is not None and offset < at and self.records.get(offset) == record

    def compacted(self, end_offset: int) -> State:
        """Allow that records before an offset are gone whose key has a later one before it."""
        latest = {key_of(r[0]): o for o, r in sorted(self.records.items()) if o < end_offset}
        older = {o for o in self.records if o < end_offset} - set(latest.values())
        return self._replace(outdated=self.outdated | older)

    def may_read(
        self, found: Mapping[int, bytes | None], start: int = 0, end: int | None = None
    ) -> bool:
        """Tell whether these may be all values of a range; of outdated records any may be gone."""
        wanted = {
            o: value
            for o, (value, _) in self.records.items()
            if o >= start and (end is None or o < end)
        }
        missing = wanted.keys() - found.keys()
        return missing <= self.outdated and all(wanted.get(o) == v for o, v in found.items())


def key_of(value: bytes) -> bytes:
    """Give the key of a record of a compacted log, by its number: there are seven."""
    return b"key %d" % (int(value.partition(b".")[0]) % 7)


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

    def kept(self) -> int:
        """Give the high watermark that no power cut may lower, but by taking records."""
        states = [state for state in (self.states[-1], *self.pending) if state is not None]
        return min((state.kept for state in states), default=0)

    def required(self) -> dict[int, Record]:
        """Give the records that no power cut may take."""
        if self.durable is None:
            return {}
        states = self.possible()
        return {
            offset: record
            for offset, record in self.durable.records.items()
            if all(
                state is not None
                and state.records.get(offset) == record
                and offset not in state.outdated
                for state in states
            )
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
                + (known.is_left, known.kept(), known.states[-1] and known.states[-1].replicated_to)
                for key, known in self.partitions.items()
            )
            + (self.dirs, self.changing)
        )
