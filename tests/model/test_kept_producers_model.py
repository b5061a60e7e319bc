"""Compare what a log knows of its producers with a model, for any order of public operations.

Batches come as clients send them: new, again, too early, of old and new epochs. In between, the
log is flushed, truncated, compacted and moved, records are deleted, and the process is closed or
killed.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from logstore import Log, LogConfig, LogStore, LogStoreError
from mover import MoveState, ReplicaMover
from support.hanging import QUIET
from support.inside import abandon
from support.naive_producers import SEQUENCES, Entry, NaiveProducers, Seen
from support.places import fast_directory
from support.producers import NOW, sent, snapshots_of

CONFIG = LogConfig(
    record_format="kafka", segment_bytes=900, cleanup_policy="compact", min_cleanable_dirty_ratio=0
)
IDS = st.integers(0, 3)
BATCH = st.tuples(
    IDS,
    st.sampled_from([0] * 9 + [1, -1]),  # added to the epoch that is known
    st.sampled_from(["next"] * 9 + ["again", "again", "gap", "end"]),
    st.integers(1, 3),
    st.booleans(),
)


class KeptProducers(RuleBasedStateMachine):
    """A log in a store of two log dirs, and the model of its producers."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.base: Path = self.stack.enter_context(fast_directory())
        self.model = NaiveProducers(10)

    @initialize()
    def create(self) -> None:
        self.store = self.opened()
        self.log: Log = self.store.create("t", 0, config=CONFIG, log_dir=self.base / "a")

    def opened(self) -> LogStore:
        return LogStore.open([self.base / "a", self.base / "b"], config=QUIET, admin_socket=False)

    def teardown(self) -> None:
        self.store.close()
        self.stack.close()

    # --- appends ----------------------------------------------------------------------------------

    def batch(self, drawn: tuple[int, int, str, int, bool]) -> Entry:
        """Make a batch that fits what is known of its producer, or nearly."""
        producer_id, raised, place, count, is_transactional = drawn
        seen = self.model.seen(producer_id)
        epoch = max((seen.epoch if seen else 0) + raised, 0)
        last = seen.batches[0][0] if seen and seen.batches and raised == 0 else -1
        sequence = (last + 1) % SEQUENCES
        if place == "again" and seen and seen.batches:
            one = seen.batches[min(count, len(seen.batches)) - 1]
            sequence, count, epoch = (one[0] - one[2]) % SEQUENCES, one[2] + 1, seen.epoch
        elif place in ("gap", "end"):
            sequence = (sequence + 1) % SEQUENCES if place == "gap" else SEQUENCES - 2
        is_transactional |= self.model.is_open(producer_id) and place == "next"
        return Entry(0, producer_id, epoch, sequence, count, NOW - 5, is_transactional)

    @rule(drawn=st.lists(BATCH, min_size=1, max_size=2), durable=st.booleans())
    def append(self, drawn: list[tuple[int, int, str, int, bool]], durable: bool) -> None:
        """Append some batches at once."""
        batches = [self.batch(each) for each in drawn]
        expected = self.model.verdict(batches, None)
        raw = b"".join(
            sent(
                b.producer_id, b.sequence, (b"v",) * b.records, epoch=b.epoch,
                transactional=b.is_transactional, keys=[b"%d" % n for n in range(b.records)],
            )
            for b in batches
        )  # fmt: skip
        try:
            info = self.log.append_encoded(raw, durable=durable)
        except LogStoreError as error:
            assert type(error).__name__ == expected and error.is_written is False
            return
        except ValueError:
            assert isinstance(expected, list) and 0 < len(expected) < len(batches)
            return
        assert isinstance(expected, list)
        if expected:
            assert (info.base_offset, info.last_offset) == (expected[0][1], expected[-1][2])
        for batch in batches if not expected else ():
            self.model.append(batch._replace(offset=self.model.end))

    @rule(producer_id=IDS, raised=st.sampled_from([0, 0, 1, -1]), commit=st.booleans())
    def end_transaction(self, producer_id: int, raised: int, commit: bool) -> None:
        """Write a marker, with or without a transaction."""
        seen = self.model.seen(producer_id)
        epoch = max((seen.epoch if seen else 0) + raised, 0)
        entry = Entry(self.model.end, producer_id, epoch, -1, 1, NOW, True, commit, 3)
        expected = self.model.marker_verdict(entry, is_epoch_raised=False)
        try:
            self.log.append_marker(producer_id, epoch, commit=commit, coordinator_epoch=3)
        except LogStoreError as error:
            assert type(error).__name__ == expected
            return
        assert expected == ""
        self.model.append(entry)

    @rule(count=st.integers(1, 4))
    def append_plainly(self, count: int) -> None:
        """Append records of nobody."""
        self.log.extend([b"plain"] * count, keys=[b"p%d" % n for n in range(count)])
        self.model.append(Entry(self.model.end, -1, -1, -1, count, NOW))

    # --- what else happens to a log ---------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(back=st.integers(0, 8))
    def truncate(self, back: int) -> None:
        """Truncate to the beginning of a batch."""
        kept = [e for e in self.model.entries if e.last < self.model.end - back]
        end = max([self.log.log_start_offset, *(e.last + 1 for e in kept)])
        snapshot, begin = self.newest_snapshot(end), self.first_offset()
        is_cut = end < self.log.log_end_offset
        self.log.truncate_to(end)
        changed = {e.producer_id for e in self.model.entries if e.last >= end}
        self.model.entries = [e for e in self.model.entries if e.last < end]
        if is_cut:
            self.forget_deleted(snapshot, begin, changed)
        if self.model.end < end:  # all records are deleted
            self.model.append(Entry(self.model.end, -1, -1, -1, end - self.model.end, NOW))

    @rule(part=st.floats(0, 1))
    def delete(self, part: float) -> None:
        """Delete the records before an offset; producers and transactions stay."""
        start = self.log.log_start_offset
        self.log.delete_records_before(start + round((self.log.log_end_offset - start) * part / 2))

    @rule()
    def compact(self) -> None:
        self.log.flush()
        self.log.compact()

    @rule()
    def move(self) -> None:
        """Move the log to the other log dir."""
        there = self.base / ("b" if self.log.log_dir == str(self.base / "a") else "a")
        with ReplicaMover(self.store) as mover:
            assert mover.move("t", 0, there).wait(60) is MoveState.DONE

    @rule()
    def close(self) -> None:
        self.store.close()
        self.open_again()

    @rule()
    def kill(self) -> None:
        """End the process without a close: what is in the page cache stays."""
        snapshot, begin = self.newest_snapshot(self.log.log_end_offset), self.first_offset()
        abandon(self.store)
        self.forget_deleted(snapshot, begin, set(self.model.known()))
        self.open_again()

    def newest_snapshot(self, end: int) -> int:
        """Give the offset of the newest snapshot that fits a log with these segments and this end.

        A snapshot before the first segment does not count: the batches after it may be deleted.
        """
        begin = self.first_offset()
        fitting = (offset for offset in snapshots_of(self.log) if begin <= offset <= end)
        return max(fitting, default=0)

    def first_offset(self) -> int:
        """Give the first offset that the segments have. It may be before the log start."""
        return min(int(path.stem) for path in Path(self.log.directory).glob("*.log"))

    def forget_deleted(self, snapshot: int, begin: int, producer_ids: set[int]) -> None:
        """Leave out batches of some producers that no segment has, and that the snapshot lacks.

        Args:
            begin: the first offset that the segments have.
        """
        self.model.entries = [
            e
            if e.offset < snapshot or e.last >= begin or e.producer_id not in producer_ids
            else e._replace(producer_id=-1, commit=None, is_transactional=False)
            for e in self.model.entries
        ]

    def open_again(self) -> None:
        self.store = self.opened()
        self.log = self.store.log("t", 0)

    # --- what must be equal -----------------------------------------------------------------------

    @invariant()
    def states_are_equal(self) -> None:
        """Each producer is known as the history says, and so is the last stable offset."""
        if not hasattr(self, "log"):
            return
        found = {
            state.producer_id: Seen(
                state.epoch, state.coordinator_epoch, state.timestamp, 0, state.open_offset,
                tuple((b[2], b[0], b[3], b[1]) for b in state.batches),
            )
            for state in self.log.producer_states()
        }  # fmt: skip
        wanted = {each: self.model.seen(each) for each in self.model.known() if each >= 0}
        timeless = {each: seen._replace(timestamp=0) for each, seen in found.items()}
        assert timeless == {e: seen._replace(timestamp=0) for e, seen in wanted.items() if seen}
        assert self.log.log_end_offset == self.model.end
        stable = self.model.stable(self.log.log_end_offset, self.log.log_start_offset)
        assert self.log.last_stable_offset == stable


TestKeptProducers = KeptProducers.TestCase
TestKeptProducers.settings = settings(
    max_examples=int(os.environ.get("LOGSTORE_EXAMPLES", "8")),
    stateful_step_count=25,
    deadline=None,
    phases=[each for each in Phase if each is not Phase.shrink],  # a step takes milliseconds
    suppress_health_check=list(HealthCheck),
)
