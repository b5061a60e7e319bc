"""Walk at random through the life of a transactional id, and hold its steps to what clients expect.

The ledger knows what each client was told, and what the partitions have. It has no copy of the
rules. A partition is the list of what happened to it: batches with their epoch, and markers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from broker.transactions import records, steps
from broker.transactions.steps import Asker, Markers, Step
from broker.transactions.transaction import Place, State, Transaction
from broker.wire.error_codes import ErrorCode

PLACES: tuple[Place, ...] = (("a", 0), ("a", 1), ("b", 0))
TIMEOUT_MS = 100
RETENTION_MS = 10_000
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


@dataclass
class Client:
    """A client with what it was given; `added` is the partitions of its present transaction."""

    asker: Asker
    number: int
    added: set[Place] = field(default_factory=set)
    since_ms: int | None = None
    ending: bool | None = None  # what it asked for at the end, once that was confirmed

    def clear(self) -> None:
        self.added, self.since_ms, self.ending = set(), None, None


class World:
    """One transactional id, its log record, its clients and its partitions."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ms = 1_000
        self.ids = 100
        self.state: Transaction | None = None
        self.clients: list[Client] = []
        self.given: set[Asker] = set()
        self.markers: Markers | None = None
        # By partition: the epochs of the open transaction's batches, by producer id.
        self.open: dict[Place, dict[int, int]] = {place: {} for place in PLACES}
        self.counts: dict[str, int] = {}

    # --- the log ----------------------------------------------------------------------------------

    def take(self, step: Step) -> ErrorCode:
        """Write the change, as the coordinator does, and keep the markers that follow."""
        if step.after is not self.state:
            assert step.after is not None
            self.state = None if step.after.state is State.DEAD else step.after
            if self.state is not None:
                self.used_ms = self.now_ms
            if step.markers is not None:
                assert self.markers is None, "two sets of markers at the same time"
                self.markers = step.markers
        else:
            assert step.markers is None
        return step.code

    def restart(self) -> None:
        """Read the record of the log again; the markers that were lost are known again."""
        if self.state is None:
            return
        value = records.value_of(self.state)
        found = records.parse(records.key_of("t"), value)
        assert found is not None and found.value is not None
        self.state = found.value
        self.markers = steps.markers_of(self.state)

    # --- clients ----------------------------------------------------------------------------------

    def init(self) -> None:
        """Let a new client begin, or an old one ask for its next epoch."""
        client = self.rng.choice([*self.clients, None]) if self.clients else None
        asker = Asker() if client is None else client.asker
        before = self.state
        new_id = -1
        if steps.needs_new_id(before, asker):
            self.ids += 1
            new_id = self.ids
        step = steps.init_producer(before, asker, TIMEOUT_MS, new_id, self.now_ms)
        code = self.take(step)
        if code:
            assert code in (BUSY, ErrorCode.PRODUCER_FENCED)
            assert code is BUSY or client is not None, "a new client was fenced"
            return
        after = self.state
        assert after is not None
        given = Asker(after.producer_id, after.epoch)
        if given in self.given:  # only the client that lost the answer may get it again
            assert client is not None and self.lost == (client.number, given), "given twice"
        self.given.add(given)
        for older in self.given:
            assert older.producer_id != given.producer_id or older.epoch <= given.epoch
        number = len(self.given) if client is None else client.number
        if client is not None and self.rng.random() < 0.5:  # the answer is lost
            self.lost = (client.number, given)
            return
        self.lost = (-1, Asker())
        if client is not None:
            self.clients.remove(client)
        self.clients.append(Client(given, number))

    lost: tuple[int, Asker] = (-1, Asker())

    def newest(self) -> Asker:
        """What the present client was given."""
        return max(self.given, key=lambda one: (one.producer_id, one.epoch))

    def add(self) -> None:
        """Let a client add a partition, and append a batch to it."""
        if not self.clients:
            return
        client, place = self.rng.choice(self.clients), self.rng.choice(PLACES)
        code = self.take(
            steps.add_partitions(self.state, client.asker, frozenset({place}), self.now_ms)
        )
        if code:
            assert client.ending is not None or code is not BUSY or self.markers is not None
            return
        assert client.asker == self.newest(), "a zombie added a partition"
        if client.ending is not None or not client.added:
            assert self.markers is None, "a transaction began before the last one had ended"
            client.clear()
            client.since_ms = self.now_ms
        client.added.add(place)
        self.append(client, place)

    def append(self, client: Client, place: Place) -> None:
        """Let a client append a batch; the coordinator is asked first."""
        code = steps.fault_of_batch(self.state, client.asker, place)
        if code:
            return
        assert client.asker == self.newest(), "a zombie appended"
        assert client.ending is None and place in client.added, "a batch without a transaction"
        self.open[place][client.asker.producer_id] = client.asker.epoch

    def append_late(self) -> None:
        """Let some client append to some partition, whether it added it or not."""
        if self.clients:
            self.append(self.rng.choice(self.clients), self.rng.choice(PLACES))

    def end(self) -> None:
        """Let a client end its transaction."""
        if not self.clients:
            return
        client, is_commit = self.rng.choice(self.clients), self.rng.random() < 0.5
        before = self.state
        code = self.take(steps.end(before, client.asker, is_commit=is_commit, now_ms=self.now_ms))
        if code is ErrorCode.NONE:
            assert client.asker == self.newest(), "a zombie ended a transaction"
            if client.ending is None:
                assert client.added, "a transaction without partitions was ended"
                client.ending = is_commit
            assert client.ending is is_commit, "an ended transaction changed its end"
        elif code is ErrorCode.INVALID_TXN_STATE:
            is_open = client.added and client.ending is None and client.asker == self.newest()
            assert not is_open, "an open transaction could not be ended"

    # --- the coordinator --------------------------------------------------------------------------

    def write_markers(self) -> None:
        """Write all markers, then complete the transaction."""
        markers, self.markers = self.markers, None
        if markers is None:
            return
        owner = [one for one in self.clients if one.asker.producer_id == markers.producer_id]
        for place in markers.partitions:
            epoch = self.open[place].pop(markers.producer_id, None)
            assert epoch is None or epoch <= markers.epoch, "a marker of an older epoch"
        for client in owner:
            if client.ending is None and client.asker.epoch <= markers.epoch and client.added:
                assert not markers.is_commit, "a commit that nobody asked for"
                assert client.asker.epoch < markers.epoch, "an abort that does not fence"
                client.ending = False
            elif client.ending is not None and client.asker.epoch == markers.epoch:
                assert client.ending is markers.is_commit, "the markers differ from the answer"
        for place in PLACES:
            assert markers.producer_id not in self.open[place], "a batch without a marker"
        assert self.state is not None
        self.take(steps.complete(self.state, self.now_ms))
        self.counts["commit" if markers.is_commit else "abort"] = (
            self.counts.get("commit" if markers.is_commit else "abort", 0) + 1
        )

    def scan(self) -> None:
        """Look for a transaction that is too old."""
        if self.state is None:
            return
        newest = [one for one in self.clients if one.asker == self.newest()]
        had_markers = self.markers
        self.take(steps.time_out(self.state, self.now_ms))
        if self.markers is not None and had_markers is None:
            assert not self.markers.is_commit
            for client in newest:
                assert client.since_ms is not None and client.ending is None
                assert self.now_ms - client.since_ms > TIMEOUT_MS, "aborted before its time"
        elif had_markers is None:
            for client in newest:
                is_open = client.since_ms is not None and client.ending is None
                assert not is_open or self.now_ms - (client.since_ms or 0) <= TIMEOUT_MS

    def expire(self) -> None:
        """Forget an id that nobody uses."""
        if self.state is None:
            return
        is_open = any(self.open.values())
        self.take(steps.expire(self.state, RETENTION_MS, self.now_ms))
        if self.state is None:
            assert not is_open and self.markers is None, "an id with a transaction was forgotten"
            assert self.now_ms - self.used_ms >= RETENTION_MS, "an id in use was forgotten"
            self.clients.clear()
            self.counts["expired"] = self.counts.get("expired", 0) + 1

    def wait(self) -> None:
        """Let time pass: mostly a little."""
        self.now_ms += self.rng.choice((1, 10, 60, 150, 12_000))

    def near_the_end(self) -> None:
        """Continue with one of the last epochs of the producer id."""
        if self.state is not None and self.state.state is State.EMPTY and self.state.epoch < 32_000:
            self.state = self.state._replace(
                epoch=32_765, updated_ms=self.now_ms, previous_id=-1, previous_epoch=-1
            )
            asker = Asker(self.state.producer_id, 32_765)
            self.given.add(asker)
            self.clients.append(Client(asker, len(self.given) + 1000))

    used_ms = 0

    def walk(self, length: int) -> None:
        """Do some steps."""
        actions = (
            *[self.init] * 3, *[self.add] * 6, *[self.end] * 5, *[self.write_markers] * 5,
            *[self.append_late] * 2, *[self.wait] * 2, self.scan, self.expire, self.restart,
            self.near_the_end,
        )  # fmt: skip
        for _ in range(length):
            self.rng.choice(actions)()


def walk_all(seed: int, walks: int, length: int = 60) -> dict[str, int]:
    """Walk many times; returns how often what happened."""
    counts: dict[str, int] = {}
    for number in range(walks):
        world = World(random.Random(f"{seed}-{number}"))
        world.walk(length)
        for what, count in world.counts.items():
            counts[what] = counts.get(what, 0) + count
    return counts
