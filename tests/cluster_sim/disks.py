"""Simulate log dirs and the replicas on them: a page cache, and a flushed prefix."""

from __future__ import annotations

from cluster.host_dirs import DirEntry
from cluster.pure.attest import FailureRecord
from cluster.pure.exchange import Opened
from cluster.registration import NO_TOPIC, TopicIdentity

DIR_IDS = ("a", "b")
Entry = tuple[int, int]  # leader epoch and record
GONE: Entry = (-1, 0)  # in the place of a record that was deleted


def other_dir(dir_id: str) -> str:
    """Give the other of a broker's two log dirs."""
    return DIR_IDS[1 - DIR_IDS.index(dir_id)]


def spans_of(records: list[Entry], start: int = 0) -> tuple[tuple[int, int], ...]:
    """Give the leader epochs of records, each with its end offset."""
    spans: list[tuple[int, int]] = []
    for offset, (epoch, _) in enumerate(records[start:], start + 1):
        if spans and spans[-1][0] == epoch:
            spans.pop()
        spans.append((epoch, offset))
    return tuple(spans)


class Disk:
    """One log dir: whether it works, its entry, and what tmpfs says about it.

    Attributes:
        marks: the states that the log dir had. An image has only the marks until it was made.
    """

    def __init__(self) -> None:
        self.marks: list[int] = []
        self.is_good = True
        self.entry: DirEntry | None = None
        self.record = FailureRecord.MISSING


class StoredReplica:
    """What a broker's log dir holds of one partition; it survives a killed process.

    Attributes:
        records: what the page cache has, by offset; the first `flushed` of them are on the disk.
        start: the log start: the records before it are deleted.
        first: the records from here on can be copied. This is before `start` if the log starts
            inside a batch.
        life: counts the incarnations of the replica.
        is_named: whether the topic's id is written down.
        mark: the high watermark that the log knows, in memory.
    """

    def __init__(self, dir_id: str) -> None:
        self.dir_id = dir_id
        self.topic: TopicIdentity = NO_TOPIC
        self.exists, self.is_named = False, True
        self.records: list[Entry] = []
        self.flushed = self.checkpoint = self.own_since = self.life = 0
        self.start = self.first = self.mark = 0
        self.counts_flushed, self.placed_since = False, 0

    def lose(self, keep: int) -> None:
        """Lose the records from an offset on; the log start stays."""
        del self.records[max(keep, self.start) :]
        self.flushed = min(self.flushed, len(self.records))

    def raise_start(self, start: int, first: int) -> None:
        """Delete the records before an offset, but keep the batch that the offset is in."""
        self.start, self.first = start, max(first, self.first)
        self.flushed, self.checkpoint = max(self.flushed, start), max(self.checkpoint, start)
        self.mark = max(self.mark, start)
        self.records[: self.first] = [GONE] * self.first

    def begin_at(self, start: int) -> None:
        """Remove all records, and begin at an offset."""
        self.records = []
        self.raise_start(start, start)

    def clear(self) -> None:
        """Lose everything."""
        self.records = []
        self.exists = self.counts_flushed = False
        self.flushed = self.checkpoint = self.own_since = self.placed_since = 0
        self.start = self.first = self.mark = 0

    def opened(self) -> Opened:
        """Give the event of a log dir that was read."""
        self.mark = self.high_watermark
        return Opened(
            self.dir_id,
            self.topic if self.is_named else NO_TOPIC,
            self.exists,
            spans_of(self.records, self.first),
            self.flushed,
            self.high_watermark,
            self.own_since,
            counts_flushed=self.counts_flushed,
            placed_since=self.placed_since,
            start=self.first,
            log_start_offset=self.start,
        )

    @property
    def high_watermark(self) -> int:
        """The high watermark after a start."""
        return max(min(self.checkpoint, len(self.records)), self.start)
