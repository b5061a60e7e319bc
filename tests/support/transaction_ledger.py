"""Hold the ledger of one transactional id: its record, its partitions, and what clients were told.

It has no copy of the rules. It asserts the promises that hold in any order of events.
"""

from __future__ import annotations

import random
from collections import Counter

from broker.transactions import records, steps
from broker.transactions.steps import Asker, Markers, Step
from broker.transactions.transaction import Place, Protocol, State, Transaction
from broker.wire.error_codes import ErrorCode
from support.transaction_partitions import Batch, Client, Partition

PLACES: tuple[Place, ...] = (("a", 0), ("a", 1), ("b", 0))
TIMEOUT_MS = 100
RETENTION_MS = 10_000
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
LEVEL = 2  # the level of `transaction.version`, with which the records are written


class Ledger:
    """One transactional id, its log record, its clients and its partitions."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ms = 1_000
        self.ids = 100
        self.numbers = 0
        self.state: Transaction | None = None
        self.clients: list[Client] = []
        self.given: set[Asker] = set()
        self.markers: Markers | None = None
        self.left: set[Place] = set()  # the partitions that have no marker yet
        self.copies: list[tuple[Place, Markers]] = []  # markers that may arrive again
        self.partitions = {place: Partition() for place in PLACES}
        self.flying: list[Batch] = []
        self.postponed: list[tuple[Asker, frozenset[Place]]] = []
        self.is_raising = False  # whether the markers belong to a raising end
        self.ongoing: int | None = None  # the transaction that the coordinator has
        self.started_ms = self.used_ms = 0
        self.outcomes: dict[int, bool] = {}
        self.ended: dict[Asker, Asker] = {}  # the answers to EndTxn
        self.acked: dict[int, Counter[Place]] = {}  # the batches of committed transactions
        self.marked: dict[int, Counter[Place]] = {}
        self.lost: tuple[int, Asker] = (-1, Asker())
        self.counts: Counter[str] = Counter()

    def take(self, step: Step, *, is_commit: bool = False, is_raising: bool = False) -> ErrorCode:
        """Write the change, as the coordinator does, and keep the markers that follow.

        Args:
            is_commit, is_raising: the request of a client that ends its transaction.
        """
        if step.after is self.state:
            assert step.markers is None
            return step.code
        assert step.after is not None
        self.state = None if step.after.state is State.DEAD else step.after
        self.used_ms = self.now_ms
        if step.markers is not None:
            assert self.markers is None, "two sets of markers at the same time"
            assert self.ongoing is not None
            self.markers, self.left = step.markers, set(step.markers.partitions)
            self.outcomes[self.ongoing], self.is_raising = is_commit, is_raising
        return step.code

    def restart(self) -> None:
        """Read the record of the log again; the markers that were lost are known again."""
        if self.state is None:
            return
        value = records.value_of(self.state, LEVEL)
        found = records.parse(records.key_of("t"), value)
        assert found is not None and found.value is not None
        self.state = found.value
        self.markers = steps.markers_of(self.state)
        self.left = set() if self.markers is None else set(self.markers.partitions)

    def give(self, client: Client | None, given: Asker) -> None:
        """Note an id and an epoch that a client is given."""
        if given in self.given:  # only the client that lost the answer may get it again
            assert client is not None and self.lost == (client.number, given), "given twice"
        self.given.add(given)
        assert given.epoch < 32_767, "the coordinator has no epoch left to fence the client"
        for older in self.given:
            assert older.producer_id != given.producer_id or older.epoch <= given.epoch

    def newest(self) -> Asker:
        """What the present client was given."""
        return max(self.given, key=lambda one: (one.producer_id, one.epoch))

    def add(
        self, asker: Asker, places: frozenset[Place], transaction: int, protocol: Protocol
    ) -> ErrorCode:
        """Add partitions to a transaction, for a client or for the leader of a partition."""
        had_markers = self.markers is not None
        code = self.take(steps.add_partitions(self.state, asker, places, self.now_ms, protocol))
        assert (code is BUSY) <= had_markers
        if not code:
            assert asker == self.newest(), "a zombie added a partition"
            assert not had_markers, "a transaction began before the last one had ended"
            if self.ongoing is None:
                self.ongoing, self.started_ms = transaction, self.now_ms
            assert self.ongoing == transaction, "two transactions at the same time"
        return code

    def append(self, batch: Batch) -> bool:
        is_appended = self.partitions[batch.place].append(batch)
        if is_appended:
            assert batch.transaction not in self.outcomes or self.left, "a late batch"
        return is_appended

    def write_markers(self) -> None:
        """Write a marker into one partition; after the last one, complete the transaction."""
        markers = self.markers
        if markers is None:
            return
        place = self.rng.choice(sorted(self.left))
        self.left.discard(place)
        if self.is_raising:
            self.copies.append((place, markers))
        self.mark(place, markers)
        if self.left:
            return
        self.markers = None
        for partition in self.partitions.values():
            assert markers.producer_id not in partition.open, "a batch without a marker"
        assert self.state is not None and self.ongoing is not None
        self.take(steps.complete(self.state, self.now_ms))
        if self.state.epoch == 0 and self.rng.random() < 0.5:
            self.restart()
        if markers.is_commit:
            marked = self.marked.get(self.ongoing, Counter())
            assert marked == self.acked[self.ongoing], "other batches were committed"
        self.counts["commit" if markers.is_commit else "abort"] += 1
        self.ongoing = None

    def mark(self, place: Place, markers: Markers) -> None:
        """Write a marker: it ends batches of one transaction, as this transaction was ended."""
        for transaction in self.partitions[place].mark(markers):
            assert transaction in self.outcomes, "a marker ended an open transaction"
            assert self.outcomes[transaction] is markers.is_commit, "the wrong end"
            self.marked.setdefault(transaction, Counter())[place] += 1

    def mark_again(self) -> None:
        """Let a marker arrive for the second time."""
        if self.copies:
            self.mark(*self.rng.choice(self.copies[-6:]))

    def scan(self) -> None:
        """Look for a transaction that is too old."""
        if self.state is None:
            return
        is_open, late = self.is_open(), self.now_ms - self.started_ms > TIMEOUT_MS
        self.take(steps.time_out(self.state, self.now_ms))
        if is_open:
            assert late == (not self.is_open()), "aborted too early, or not at all"

    def is_open(self) -> bool:
        return self.ongoing is not None and self.markers is None

    def expire(self) -> None:
        """Forget an id that nobody uses."""
        if self.state is None:
            return
        used_ms = self.used_ms
        self.take(steps.expire(self.state, RETENTION_MS, self.now_ms))
        if self.state is None:
            assert self.now_ms - used_ms >= RETENTION_MS, "an id in use was forgotten"
            assert self.ongoing is None, "an id with a transaction was forgotten"
            self.clients.clear()
            self.counts["expired"] += 1

    def wait(self) -> None:
        """Let time pass: mostly a little."""
        self.now_ms += self.rng.choice((1, 1, 10, 60, 150, 12_000))

    def do_postponed(self) -> None:
        """Do what a wrong order of steps left for later."""
        while self.postponed:
            asker, places = self.postponed.pop()
            steps.add_partitions(self.state, asker, places, self.now_ms, Protocol.RAISING)

    def check(self) -> None:
        """Each transaction that is open in a partition is known to the coordinator."""
        for place, partition in self.partitions.items():
            for producer_id in partition.open:
                state = self.state
                assert state is not None and state.producer_id == producer_id, "it hangs"
                assert place in state.partitions, "a partition will get no marker"
