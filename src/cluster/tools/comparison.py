"""Compare replicas batch by batch, no I/O.

    broker 1   0-9  10-19  20-29        the same base offset, last offset, checksum, leader epoch
    broker 2   0-9  10-19  20-29
    broker 3   0-9  10-14  15-19  20-29     one difference, at offset 10

Followers append the batches of their leader unchanged, so the batches of all replicas are the same.
Compaction is an exception: each replica compacts its own log, at its own time. So replicas of a
compacted topic may lack different records, and their batches may differ. In a compacted topic,
records with the same offset must be the same. If only some replicas have a record, this is not a
difference.

A topic that is not compacted now may have been compacted earlier. If a replica of such a topic
lacks a record, `Lacks` decides whether compaction can be the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from cluster.tools.replica_reader import (
    Batch,
    Content,
    Repeats,
    ReplicaFaultError,
    ReplicaReader,
    UnreadableError,
    digest_of,
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


class _Lack(NamedTuple):
    """A record that a replica lacks.

    Attributes:
        is_free: whether compaction removes the record even if no later record has its key: it has
            no key, or belongs to a transaction.
    """

    offset: int
    difference: Difference
    is_free: bool


class Lacks:
    """The records that replicas lack, of a topic that is not compacted now.

    Compaction removes a record if a later record has the same key. A run of compaction reads the
    log until some offset, and leaves only one record of each key before this offset. So compaction
    is not the reason for a lack if the replica has two records of one key until there. If no later
    record has the key, the record was lost.

    Compaction also removes tombstones, records without a key, and parts of transactions, without a
    later record. They count as lost only if nothing else shows that the replica was compacted.
    """

    def __init__(self, repeats_of: Callable[[int], Repeats]) -> None:
        """Begin without lacks.

        Args:
            repeats_of: reads the replica of a broker again.
        """
        self._repeats_of = repeats_of
        self._repeats: dict[int, Repeats] = {}
        # The last lack of each broker and key: a later record of the key must follow.
        self._open: dict[tuple[int, bytes], _Lack] = {}
        self._free: dict[int, list[Difference]] = {}
        self._compacted: set[int] = set()
        self._lost: list[Difference] = []

    @property
    def is_waiting(self) -> bool:
        """Whether `has` must be called for the records that replicas have."""
        return bool(self._open)

    def was_compacted(self, broker: int) -> None:
        """Note that compaction has changed a batch of a replica."""
        self._compacted.add(broker)

    def lacks(self, broker: int, lack: _Lack, key: bytes | None, *, is_tombstone: bool) -> None:
        """Note that a replica lacks a record that another replica has."""
        if key is not None:
            self.has(broker, lack.offset, key)  # this record came after the earlier ones
        if key is not None and not is_tombstone:
            self._open[broker, digest_of(key)] = lack
        elif self._is_possible(broker, lack, lack.offset):
            self._free.setdefault(broker, []).append(lack.difference)
        else:
            self._lost.append(lack.difference)

    def has(self, broker: int, offset: int, key: bytes | None) -> None:
        """Note that a replica has a record, or had it."""
        place = broker, b"" if key is None else digest_of(key)
        lack = None if key is None else self._open.get(place)
        if lack is None or lack.offset >= offset:
            return
        del self._open[place]
        if self._is_possible(broker, lack, offset):
            self._compacted.add(broker)
        elif lack.is_free:
            self._free.setdefault(broker, []).append(lack.difference)
        else:
            self._lost.append(lack.difference)

    def _is_possible(self, broker: int, lack: _Lack, seen: int) -> bool:
        """Check whether a run of compaction that read until an offset may have removed a record."""
        if broker not in self._repeats:
            self._repeats[broker] = self._repeats_of(broker)
        return not self._repeats[broker].has(lack.offset, seen)

    def take_lost(self) -> list[Difference]:
        """Return the differences that compaction does not explain, since the last call."""
        lost, self._lost = self._lost, []
        return _unique(lost)

    def end(self) -> list[Difference]:
        """Return the other differences that compaction does not explain, at the end of the logs."""
        for (broker, _), lack in self._open.items():
            if lack.is_free:
                self._free.setdefault(broker, []).append(lack.difference)
            else:
                self._lost.append(lack.difference)
        for broker, differences in self._free.items():
            if broker not in self._compacted:
                self._lost += differences
        self._open, self._free = {}, {}
        return self.take_lost()


def _unique(differences: list[Difference]) -> list[Difference]:
    return [one for _, one in sorted({each.offset: each for each in differences}.items())]


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
        self._lacks = Lacks(lambda broker: Repeats(self.readers[broker].again()))
        self._lost: set[int] = set()  # the offsets of the reported lacks
        self._start = self.offset

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
            return found + self._new_losses(self._lacks.end()) or None
        end = min(one.key.last_offset for one in present.values())
        over = {broker: one for broker, one in present.items() if one.key.base_offset <= end}
        self._note_compaction(heads, over)
        are_same = len({one.key for one in over.values()}) == 1 and len(over) == len(heads)
        if not are_same:
            found += self._differences(heads, over, end)
        if self._lacks.is_waiting:
            self._note_present(over, end)
        found += self._new_losses(self._lacks.take_lost())
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
            difference = Difference(offset, DIFFERENT, words)
            if self._may_be_compacted(heads, over, difference):
                return
            yield difference
        self._reported = max(self._reported, *(one.key.last_offset for one in over.values()))

    def _may_be_compacted(
        self, heads: Mapping[int, Batch | None], over: Mapping[int, Batch], difference: Difference
    ) -> bool:
        """Check whether the batches differ only as earlier compaction makes them differ.

        If so, note the records that replicas lack: their keys decide later.
        """
        batches = over.values()
        whole = {one.key for one in batches if not one.is_rewritten}
        if len({one.origin for one in batches}) > 1 or len(whole) > 1:
            return False
        if not all(one.is_sound for one in batches):
            return False
        try:
            contents = {broker: one.contents() for broker, one in over.items()}
        except (ValueError, LogStoreError):
            return False
        records: dict[int, Content] = {}
        for each in contents.values():
            for offset, content in each.items():
                if records.setdefault(offset, content) != content:
                    return False
        for offset, content in sorted(records.items()):
            lacking = [one for one in heads if offset not in contents.get(one, ())]
            batch = max(batches, key=lambda one: one.has_horizon)
            self._note_lacks(lacking, offset, content, batch, difference)
        return True

    def _note_lacks(
        self, lacking: Iterable[int], offset: int, content: Content, batch: Batch, at: Difference
    ) -> None:
        """Note which brokers lack a record."""
        _, key, value, _ = content
        if batch.has_horizon and (value is None or batch.is_control):
            return  # compaction removes it at some time
        lack = _Lack(offset, at, batch.is_transactional)
        named = None if batch.is_control else key  # the key of a marker is not the key of a record
        for broker in lacking:
            self._lacks.lacks(broker, lack, named, is_tombstone=value is None)

    def _note_compaction(
        self, heads: Mapping[int, Batch | None], over: Mapping[int, Batch]
    ) -> None:
        """Note which replicas were compacted: a batch was rewritten, or all replicas lack one."""
        first = min(one.key.base_offset for one in over.values())
        is_gap = first > max(self._compared + 1, self._start)
        for broker in heads:
            if is_gap or (broker in over and over[broker].is_rewritten):
                self._lacks.was_compacted(broker)

    def _note_present(self, over: Mapping[int, Batch], end: int) -> None:
        """Note the keys that replicas have, because an earlier record of a key may be missing."""
        for broker, one in over.items():
            try:
                contents = {} if one.is_control or not one.is_sound else one.contents()
            except (ValueError, LogStoreError):
                continue
            for offset, (_, key, _, _) in contents.items():
                if self._compared < offset <= end:
                    self._lacks.has(broker, offset, key)

    def _new_losses(self, losses: list[Difference]) -> list[Difference]:
        """Leave out the losses that were reported before."""
        new = [one for one in losses if one.offset not in self._lost]
        self._lost.update(one.offset for one in new)
        return new

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
