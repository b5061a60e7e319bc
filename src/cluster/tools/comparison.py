"""Compare replicas batch by batch, no I/O.

    broker 1   0-9  10-19  20-29        the same base offset, last offset, checksum, leader epoch
    broker 2   0-9  10-19  20-29
    broker 3   0-9  10-14  15-19  20-29     one difference, at offset 10

Followers append the batches of their leader unchanged, so the batches of all replicas are the same.
Compaction is an exception: each replica compacts its own log, at its own time. So replicas of a
compacted topic may lack different records, and their batches may differ. In a compacted topic,
records with the same offset must be the same. If only some replicas have a record, this is not a
difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cluster.tools.replica_reader import (
    Batch,
    Content,
    ReplicaFaultError,
    ReplicaReader,
    UnreadableError,
)
from logstore import LogStoreError

NOTHING = "nothing"
DIFFERENT, CHECKSUM, UNREADABLE = "different", "wrong checksum", "unreadable"


class Difference(NamedTuple):
    """One place where replicas differ.

    Attributes:
        kind: one of the words that the constants of this module define.
        found: for each broker, a description of its data at this place.
    """

    offset: int
    kind: str
    found: Mapping[int, str]


class Comparison:
    """Compare the replicas of one partition, which are read side by side.

    Attributes:
        readers: the replicas that are compared; the key is the broker.
        faults: for each broker whose replica is not compared any more, the reason.
    """

    def __init__(self, readers: Mapping[int, ReplicaReader], *, is_compacted: bool) -> None:
        """Begin at the offset of the readers."""
        self.readers = dict(readers)
        self.faults: dict[int, str] = {}
        self._is_compacted = is_compacted
        # If a batch begins at or before this offset, it overlaps with a reported difference.
        self._reported = -1
        # The records of a compacted topic up to this offset were compared.
        self._compared = -1

    @property
    def offset(self) -> int:
        """The offset up to which all batches were compared."""
        return min((one.offset for one in self.readers.values()), default=0)

    def seek(self, offset: int) -> None:
        """Continue at another offset, because the records before this offset were deleted."""
        for reader in self.readers.values():
            if reader.offset < offset:
                reader.seek(offset)

    def step(self) -> list[Difference] | None:
        """Compare the next batches; return None at the end.

        Raises:
            LogStartMovedError: a replica now begins at a later offset. The caller must `seek` to
                it.
        """
        found: list[Difference] = []
        heads = self._heads(found)
        present = {broker: one for broker, one in heads.items() if one is not None}
        if not present:
            return found or None
        end = min(one.key.last_offset for one in present.values())
        over = {broker: one for broker, one in present.items() if one.key.base_offset <= end}
        are_same = len({one.key for one in over.values()}) == 1 and len(over) == len(heads)
        if not are_same:
            found += self._differences(heads, over, end)
        ended = [broker for broker, one in over.items() if one.key.last_offset == end]
        unsound = [broker for broker in ended if not over[broker].is_sound]
        if unsound:
            first = min(over[broker].key.base_offset for broker in unsound)
            reason = "the checksum does not fit the bytes"
            found.append(Difference(first, CHECKSUM, dict.fromkeys(unsound, reason)))
        for broker in ended:
            self.readers[broker].take()
        self._compared = end
        return found

    def _heads(self, found: list[Difference]) -> dict[int, Batch | None]:
        """Return the next batch of each replica. Skip a batch that a broker cannot read."""
        heads: dict[int, Batch | None] = {}
        unreadable: dict[int, int] = {}
        for broker, reader in tuple(self.readers.items()):
            try:
                heads[broker] = reader.head()
            except UnreadableError as error:
                unreadable[broker] = error.offset
            except ReplicaFaultError as error:
                self._drop(broker, error.reason)
        for broker, offset in unreadable.items():
            found.append(Difference(offset, UNREADABLE, {broker: "cannot be read"}))
            ends = [one.key.last_offset for one in heads.values() if one is not None]
            if not ends:
                self._drop(broker, f"no other replica says where the batch at {offset} ends")
                continue
            # All batches that end before this offset were taken, so each other batch ends after
            # this offset.
            end = min(ends)
            self._reported = max(self._reported, end)
            self.readers[broker].seek(end + 1)
            heads[broker] = None
        return heads

    def _drop(self, broker: int, reason: str) -> None:
        self.faults[broker] = reason
        del self.readers[broker]

    def _differences(
        self, heads: Mapping[int, Batch | None], over: Mapping[int, Batch], end: int
    ) -> Iterator[Difference]:
        """Report the differences up to an offset where a batch ends."""
        if self._is_compacted:
            yield from self._record_differences(over, end)
            return
        offset = min(one.key.base_offset for one in over.values())
        if offset > self._reported:
            words = {
                broker: str(over[broker].key) if broker in over else NOTHING for broker in heads
            }
            yield Difference(offset, DIFFERENT, words)
        self._reported = max(self._reported, *(one.key.last_offset for one in over.values()))

    def _record_differences(self, over: Mapping[int, Batch], end: int) -> Iterator[Difference]:
        """Compare the records that several replicas have."""
        contents: dict[int, Mapping[int, Content]] = {}
        for broker, one in over.items():
            if one.is_sound:
                try:
                    contents[broker] = one.contents()
                except (ValueError, LogStoreError) as error:
                    if one.key.last_offset == end:  # report a record only once
                        yield Difference(one.key.base_offset, UNREADABLE, {broker: str(error)})
        offsets = {
            offset for each in contents.values() for offset in each
            if self._compared < offset <= end
        }  # fmt: skip
        for offset in sorted(offsets):
            records = {broker: each[offset] for broker, each in contents.items() if offset in each}
            if len(set(records.values())) > 1:
                words = {broker: content_text(one) for broker, one in records.items()}
                yield Difference(offset, DIFFERENT, words)


def content_text(content: Content) -> str:
    """Describe a record by its timestamp, its sizes and its number of headers."""
    timestamp, key, value, headers = content
    sizes = " ".join(
        f"{name} {'null' if part is None else f'{len(part)} bytes'}"
        for name, part in (("key", key), ("value", value))
    )
    return f"timestamp {timestamp} {sizes} {len(headers)} headers"
