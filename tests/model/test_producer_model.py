"""Compare the producers of a log with a model that keeps the whole log, for any order of events.

Batches and markers come as clients and coordinators send them: new, again, too early, too late. In
between, time passes, snapshots are written, the log is truncated, and the process crashes.
"""

from __future__ import annotations

import copy
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from logstore.errors import LogStoreError
from logstore.format import producer_file
from logstore.format.kafka.markers import Marker
from logstore.format.producer_file import Snapshot
from logstore.log.producers.producer_state import Producers
from logstore.log.producers.replay import replay, snapshot_offsets
from support.naive_producers import SEQUENCES, Entry, NaiveProducers, Seen

TOPIC_ID = bytes(range(16))
EXPIRATION_MS = 50
IDS = st.integers(0, 4)
EPOCHS = st.sampled_from([0] * 9 + [1, 2, -1])
BATCH = st.tuples(
    IDS,
    EPOCHS,  # added to the epoch that is known
    st.sampled_from(["next"] * 9 + ["again", "again", "zero", "gap", "end"]),
    st.integers(1, 3),
    st.booleans(),
)


class ProducerMachine(RuleBasedStateMachine):
    """The producers of a log and their model; every rule changes both, or compares them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.high_watermark = self.log_start = 0
        self.files: dict[str, bytes] = {}
        self.at_file: dict[str, tuple[dict[int, int], dict[int, int]]] = {}
        self.tokens: dict[int, tuple[int, int, int, int]] = {}  # token, epoch, sequence, asked
        self.spent: dict[int, int] = {}  # by producer, its last token that was used up or is lost

    @initialize(producers_max=st.integers(2, 5))
    def create(self, producers_max: int) -> None:
        self.producers_max = producers_max
        self.producers = self.made(None)
        self.model = NaiveProducers(producers_max)

    def made(self, snapshot: Snapshot | None) -> Producers:
        """Make a state with the limits of this run."""
        return Producers(snapshot, expiration_ms=EXPIRATION_MS, producers_max=self.producers_max)

    # --- appends ----------------------------------------------------------------------------------

    def batch(self, drawn: tuple[int, int, str, int, bool], number: int) -> Entry:
        """Make a batch that fits what is known of its producer, or nearly."""
        producer_id, raised, place, count, is_transactional = drawn
        seen = self.model.seen(producer_id)
        epoch = max((seen.epoch if seen else 0) + raised, 0)
        last = seen.batches[0][0] if seen and seen.batches and raised == 0 else -1
        sequence = (last + 1) % SEQUENCES
        if place == "again" and seen and seen.batches:
            one = seen.batches[min(number + count, len(seen.batches)) - 1]
            sequence, count, epoch = (one[0] - one[2]) % SEQUENCES, one[2] + 1, seen.epoch
        elif place in ("next", "again"):
            is_transactional |= self.model.is_open(producer_id)
        else:
            sequence = {"zero": 0, "gap": (sequence + 1) % SEQUENCES, "end": SEQUENCES - 2}[place]
        return Entry(0, producer_id, epoch, sequence, count, self.now + 7, is_transactional)

    @rule(
        drawn=st.lists(BATCH, min_size=1, max_size=3),
        verifies=st.sampled_from(["no", "no", "token", "token", "stale"]),
    )
    def append(self, drawn: list[tuple[int, int, str, int, bool]], verifies: str) -> None:
        """Append some batches at once."""
        self.append_all(drawn, verifies)

    @rule(drawn=BATCH)
    def append_one(self, drawn: tuple[int, int, str, int, bool]) -> None:
        """Append one batch, the usual case."""
        self.append_all([drawn], "no")

    def append_all(self, drawn: list[tuple[int, int, str, int, bool]], verifies: str) -> None:
        """Append as a leader: all batches or none, and duplicates are answered."""
        if verifies == "token" and self.tokens:  # of a producer that asked
            drawn = [(min(self.tokens), *each[1:4], True) for each in drawn]
        batches = [self.batch(each, number) for number, each in enumerate(drawn)]
        token, verified = None, None
        if verifies != "no":
            token, verified = self.spent.get(batches[0].producer_id, 0), {}
            found = self.tokens.get(batches[0].producer_id)
            if found is not None and verifies == "token":
                token, verified = found[0], {batches[0].producer_id: found[1:3]}
        expected = self.model.verdict(batches, verified)
        try:
            duplicates = self.producers.check([each.header for each in batches], token)
        except LogStoreError as error:
            assert type(error).__name__ == expected
            return
        assert [(d.number, d.first_offset, d.last_offset) for d in duplicates] == expected
        known = {each.number for each in duplicates}
        self.take([each for number, each in enumerate(batches) if number not in known])

    @rule(drawn=BATCH)
    def append_as_follower(self, drawn: tuple[int, int, str, int, bool]) -> None:
        """Take what a leader sent, whatever it is."""
        self.take([self.batch(drawn, 0)])

    def take(self, batches: list[Entry]) -> None:
        for batch in batches:
            entry = batch._replace(offset=self.model.end, used_ms=self.now)
            self.model.append(entry)
            self.producers.take(batch.header, entry.offset, self.now)
            if entry.is_transactional:
                self.spend(entry.producer_id)

    def spend(self, *producer_ids: int) -> None:
        """Let the tokens of producers be used up."""
        for producer_id in producer_ids:
            if producer_id in self.tokens:
                self.spent[producer_id] = self.tokens.pop(producer_id)[0]

    @rule(producer_id=IDS, raised=st.sampled_from([0, 0, 1, -1]), commit=st.booleans(),
          coordinator_epoch=st.integers(0, 2), is_epoch_raised=st.booleans(),
          part=st.sampled_from([0, 0.5, 1]))  # fmt: skip
    def end_transaction(
        self, producer_id: int, raised: int, commit: bool, coordinator_epoch: int,
        is_epoch_raised: bool, part: float,
    ) -> None:  # fmt: skip
        """Write a marker, with or without a transaction; followers may have what comes before."""
        self.high_watermark += round((self.model.end - self.high_watermark) * part)
        begun = [each for each in self.model.known() if self.model.is_open(each)]
        if begun and not raised:
            producer_id = begun[producer_id % len(begun)]
        seen = self.model.seen(producer_id)
        epoch = max((seen.epoch if seen else 0) + raised, 0)
        entry = Entry(
            self.model.end, producer_id, epoch, -1, 1, self.now + 9, True, commit,
            coordinator_epoch, self.now,
        )  # fmt: skip
        expected = self.model.marker_verdict(entry, is_epoch_raised)
        try:
            self.producers.check_marker(
                producer_id, epoch, coordinator_epoch, is_epoch_raised=is_epoch_raised
            )
        except LogStoreError as error:
            assert type(error).__name__ == expected
            return
        assert expected == ""
        others = [
            each[1]
            for each in self.model.transactions()
            if each[2] is None and each[0] != producer_id
        ]
        marker = Marker(commit, coordinator_epoch)
        self.model.append(entry)
        ended = self.producers.take_marker(entry.header, entry.offset, self.now, marker)
        self.spend(producer_id)
        stable = min([*others, entry.offset + 1])
        if seen is None or seen.open_offset < 0:
            assert ended is None
        else:
            assert ended == (producer_id, seen.open_offset, entry.offset, stable, not commit)

    @rule(producer_id=IDS, epoch=st.integers(0, 1), sequence=st.integers(0, 3))
    def ask_for_verification(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Ask for a token; an open transaction needs none."""
        token = self.producers.verification(producer_id, epoch, sequence, self.now)
        seen = self.model.seen(producer_id)
        if seen and seen.open_offset >= 0 and seen.epoch == epoch:
            assert token == 0
            return
        old = self.tokens.get(producer_id)
        if old is None or old[1] < epoch:
            assert token not in [each[0] for each in self.tokens.values()]
            assert token not in self.spent.values()
            self.spend(producer_id)
            self.tokens[producer_id] = (token, epoch, sequence, self.now)
        else:
            lowest = min(sequence, old[2]) if old[1] == epoch else old[2]
            assert token == old[0]
            self.tokens[producer_id] = (token, old[1], lowest, old[3])

    # --- time, truncation, crashes ----------------------------------------------------------------

    @rule(passed_ms=st.integers(1, 40))
    def pass_time(self, passed_ms: int) -> None:
        """Let time pass, and forget producers that were idle for too long, and old tokens."""
        self.now += passed_ms
        before = len(self.producers)
        self.model.expire(self.now - EXPIRATION_MS)
        assert self.producers.expire(self.now) == before - len(self.model.known())
        old = [p for p, each in self.tokens.items() if each[3] <= self.now - EXPIRATION_MS]
        self.spend(*old)

    @rule(part=st.floats(0, 1))
    def raise_watermark(self, part: float) -> None:
        """Let followers catch up, and delete some of the oldest records."""
        span = self.model.end - self.high_watermark
        self.high_watermark += round(span * part)
        self.log_start += round((self.high_watermark - self.log_start) * part / 4)

    @rule()
    def write_snapshot(self) -> None:
        """Write what is known into a file, as at a roll."""
        name = producer_file.name_of(self.model.end)
        self.files[name] = producer_file.encode(self.producers.snapshot(), TOPIC_ID, 3)
        used = {p: seen.used_ms for p in self.model.known() if (seen := self.model.seen(p))}
        self.at_file[name] = (dict(self.model.forgotten), used)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        """Truncate to a batch that is not below the high watermark, and rebuild the state."""
        wanted = self.high_watermark + round((self.model.end - self.high_watermark) * part)
        kept = [entry for entry in self.model.entries if entry.last < wanted]
        self.model.entries = kept
        self.files = {n: d for n, d in self.files.items() if int(n[:20]) <= self.model.end}
        self.rebuild()

    @rule(before=st.sampled_from(["a snapshot", "a snapshot", "nothing", "damage"]))
    def crash(self, before: str) -> None:
        """Lose the memory; perhaps just after a snapshot, perhaps also the newest file."""
        if before == "a snapshot":
            self.write_snapshot()
        if self.files and before == "damage":
            del self.files[max(self.files)]
        self.rebuild()

    def rebuild(self) -> None:
        """Read the newest snapshot, and replay what the log has after it."""
        offsets = snapshot_offsets(self.files, self.model.end)
        snapshot, self.model.forgotten, self.model.used = None, {}, {}
        first = 0
        if offsets:
            name, first = producer_file.name_of(offsets[0]), offsets[0]
            snapshot = producer_file.decode(self.files[name], name, TOPIC_ID, 3, first)
            self.model.forgotten, self.model.used = copy.deepcopy(self.at_file[name])
        entries, self.model.entries = self.model.entries, []
        for entry in entries:  # the replay may forget producers again
            is_new = entry.offset >= first
            used_ms = self.now if is_new else 0
            if is_new:
                self.model.append(entry._replace(used_ms=used_ms))
            else:
                self.model.entries.append(entry._replace(used_ms=used_ms))
        self.producers = self.made(snapshot)
        rows: list[tuple[Any, Marker | None]] = [
            (e.header, None if e.commit is None else Marker(e.commit, e.coordinator_epoch))
            for e in entries
        ]
        ended = replay(self.producers, rows, self.now)
        known = [row for row in self.model.transactions() if row[2] is not None and row[2] >= first]
        assert [(e.first_offset, e.last_offset, e.is_aborted) for e in ended] == [
            (begun, marker, not commit) for _, begun, marker, commit in known
        ]
        self.spend(*list(self.tokens))

    # --- what must be equal -----------------------------------------------------------------------

    @invariant()
    def states_are_equal(self) -> None:
        """Each producer is known as the log says."""
        if not hasattr(self, "model"):
            return
        found = {
            state.producer_id: Seen(
                state.epoch, state.coordinator_epoch, state.timestamp, state.used_ms,
                state.open_offset,
                tuple((b[2], b[0], b[3], b[1]) for b in state.batches),
            )
            for state in self.producers.states()
        }  # fmt: skip
        assert found == {
            producer_id: self.model.seen(producer_id) for producer_id in self.model.known()
        }
        assert self.producers.end_offset == self.model.end

    @invariant()
    def offsets_are_equal(self) -> None:
        """The last stable offset, and what compaction keeps, are those of the walk."""
        if not hasattr(self, "model"):
            return
        place = (self.high_watermark, self.log_start)
        assert self.producers.last_stable_offset(*place) == self.model.stable(*place)
        assert self.producers.kept_offsets().tolist() == self.model.kept()


TestProducers = ProducerMachine.TestCase
TestProducers.settings = settings(
    max_examples=int(os.environ.get("LOGSTORE_EXAMPLES", "100")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
