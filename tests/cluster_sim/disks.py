"""Simulate log dirs and the replicas on them: a page cache, and a flushed prefix."""

from __future__ import annotations

from cluster.pure.attest import DirEntry, FailureRecord
from cluster.pure.exchange import Opened
from cluster.registration import NO_TOPIC, TopicIdentity

DIR_IDS = ("a", "b")
Entry = tuple[int, int]  # leader epoch and record


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
    """One log dir: whether it works, its entry, and what tmpfs says about it."""

    def __init__(self) -> None:
        self.is_good = True
        self.entry: DirEntry | None = None
        self.record = FailureRecord.MISSING


class StoredReplica:
    """What a broker's log dir holds of one partition; it survives a killed process.

    Attributes:
        records: what the page cache has; the first `flushed` of them are on the disk.
        life: counts the incarnations of the replica.
        is_named: whether the topic's id is written down.
    """

    def __init__(self, dir_id: str) -> None:
        self.dir_id = dir_id
        self.topic: TopicIdentity = NO_TOPIC
        self.exists, self.is_named = False, True
        self.records: list[Entry] = []
        self.flushed = self.checkpoint = self.own_since = self.life = 0
        self.counts_flushed, self.placed_since = False, 0

    def lose(self, keep: int) -> None:
        """Lose the records from an offset on."""
        del self.records[keep:]
        self.flushed = min(self.flushed, len(self.records))

    def clear(self) -> None:
        """Lose everything."""
        self.records = []
        self.exists = self.counts_flushed = False
        self.flushed = self.checkpoint = self.own_since = self.placed_since = 0

    def opened(self) -> Opened:
        """Give the event of a log dir that was read."""
        return Opened(
            self.dir_id,
            self.topic if self.is_named else NO_TOPIC,
            self.exists,
            spans_of(self.records),
            self.flushed,
            min(self.checkpoint, len(self.records)),
            self.own_since,
            counts_flushed=self.counts_flushed,
            placed_since=self.placed_since,
        )
