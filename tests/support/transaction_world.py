"""Walk at random through the life of a transactional id, and hold its steps to what clients expect.

Clients use both protocols, and change theirs between two transactions. With the protocol RAISING,
batches are on their way while other things happen, and markers arrive twice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from broker.requests.transactions import verification
from broker.transactions import steps
from broker.transactions.steps import Asker
from broker.transactions.transaction import COMPLETE, PREPARED, Place, Protocol, State
from broker.wire.error_codes import ErrorCode
from support.transaction_ledger import BUSY, PLACES, TIMEOUT_MS, Ledger
from support.transaction_partitions import Batch, Client

ENDED = PREPARED | COMPLETE


class World(Ledger):
    """The clients of a transactional id, and the leaders of its partitions."""

    def init(self) -> None:
        """Let a new client begin, or an old one ask for its next epoch."""
        client = self.rng.choice([*self.clients, None]) if self.clients else None
        asker = Asker() if client is None else client.asker
        before, new_id, newest = self.state, -1, self.newest() if self.given else Asker()
        if steps.needs_new_id(before, asker):
            self.ids += 1
            new_id = self.ids
        step = steps.init_producer(before, asker, TIMEOUT_MS, new_id, self.now_ms)
        code = self.take(step)
        if code:
            assert code in (BUSY, ErrorCode.PRODUCER_FENCED)
            assert code is BUSY or client is not None, "a new client was fenced"
            is_zombie = client is not None and asker != newest
            assert not is_zombie or self.state is before, "a zombie aborted a transaction"
            return
        after = self.state
        assert after is not None
        given = Asker(after.producer_id, after.epoch)
        self.give(client, given)
        is_again = client is not None and self.lost == (client.number, given)
        assert client is None or asker == newest or is_again, "a zombie got an epoch"
        number = len(self.given) if client is None else client.number
        if client is not None and self.rng.random() < 0.5:  # the answer is lost
            self.lost = (client.number, given)
            return
        self.lost = (-1, Asker())
        if client is not None:
            self.clients.remove(client)
        self.clients.append(Client(given, number))

    def begin(self, client: Client) -> None:
        """Begin a transaction, with either protocol.

        A client changes to the newer protocol only with an epoch that it has not used: it asks for
        its next epoch first, as Java's client does.
        """
        self.numbers += 1
        protocol = self.rng.choice(tuple(Protocol))
        client.begin(self.numbers, Protocol.OLD if client.has_old else protocol)

    def send(self) -> None:
        """Let a client send a batch; with the protocol OLD, it first adds the partition."""
        if not self.clients:
            return
        client, place = self.rng.choice(self.clients), self.rng.choice(PLACES)
        if client.asked is not None:
            return
        if client.transaction is None or client.ending is not None:
            self.begin(client)
        assert client.transaction is not None
        sequence = client.sequences.get(place, 0)
        batch = Batch(client.asker, client.transaction, place, sequence)
        if client.protocol is Protocol.RAISING:
            if not any(one.asker == client.asker and one.place == place for one in self.flying):
                self.flying.append(batch)
            return
        code = self.add(client.asker, frozenset({place}), client.transaction, Protocol.OLD)
        if not code and self.arrive(batch):
            client.sequences[place] = sequence + 1
            client.acked[place] += 1

    def arrive(self, batch: Batch) -> bool:
        """Let a batch of the protocol OLD arrive; the coordinator is asked first."""
        batch.token = self.partitions[batch.place].token(batch)
        if steps.fault_of_batch(self.state, batch.asker, batch.place):
            return False
        return self.append(batch)

    def append_late(self) -> None:
        """Let some client append to some partition, whether it added it or not."""
        if self.clients:
            client, place = self.rng.choice(self.clients), self.rng.choice(PLACES)
            if client.protocol is Protocol.RAISING or client.transaction is None:
                return
            if client.ending is not None:
                return  # the client sends nothing after its EndTxn
            batch = Batch(client.asker, client.transaction, place, client.sequences.get(place, 0))
            if self.arrive(batch):
                assert client.asker == self.newest(), "a zombie appended"
                client.sequences[place] = batch.sequence + 1
                client.acked[place] += 1

    def fly(self) -> None:
        """Let a batch of the protocol RAISING do its next step at the leader of its partition."""
        if not self.flying:
            return
        batch = self.rng.choice(self.flying)
        if batch.token is None:
            batch.token = self.partitions[batch.place].token(batch)
        elif not batch.is_permitted:
            asked = {batch.place: (batch.token, batch.asker)}
            (found,) = verification.verified(
                Leader(self, batch.transaction), "t", asked,
                knows_abortable=True, is_adding=True,
            ).values()  # fmt: skip
            if found.fault is BUSY:
                batch.token = None  # the client sends it again
            elif found.fault:
                self.land(batch, is_appended=False)
            else:
                batch.token, batch.is_permitted = found.token, True
        else:
            self.land(batch, is_appended=self.append(batch))

    def land(self, batch: Batch, *, is_appended: bool) -> None:
        """Answer the client of a batch, if it still waits for this answer."""
        self.flying.remove(batch)
        for client in self.clients:
            if client.asker == batch.asker and client.transaction == batch.transaction:
                client.is_broken |= not is_appended
                if is_appended:
                    client.sequences[batch.place] = batch.sequence + 1
                    client.acked[batch.place] += 1

    def end(self) -> None:
        """Let a client end its transaction."""
        client = self.rng.choice(self.clients) if self.clients else None
        if client is not None and client.transaction is not None:
            if client.protocol is Protocol.RAISING:
                self.end_raising(client)
            else:
                self.end_old(client, is_commit=self.rng.random() < 0.5)

    def end_old(self, client: Client, *, is_commit: bool) -> None:
        """End a transaction, or ask again after its end."""
        ongoing = self.ongoing if self.markers is None else None
        step = steps.end(self.state, client.asker, is_commit=is_commit, now_ms=self.now_ms)
        code = self.take(step, is_commit=is_commit)
        is_open = ongoing == client.transaction
        if code is ErrorCode.NONE:
            assert client.asker == self.newest(), "a zombie ended a transaction"
            if client.ending is None:
                if is_open:
                    self.acked[client.transaction or 0] = Counter(client.acked)
                    client.ending = is_commit
                else:
                    assert not client.acked, "a transaction was not open when it was ended"
            else:
                assert client.ending is is_commit, "an ended transaction changed its end"
        elif code is ErrorCode.INVALID_TXN_STATE:
            assert not is_open, "an open transaction could not be ended"

    def end_raising(self, client: Client) -> None:
        """End a transaction; a client without an answer asks again for the same end."""
        transaction, asker = client.transaction, client.asker
        assert transaction is not None
        waits = client.is_broken or any(one.asker == asker for one in self.flying)
        if asker in self.ended:
            code = self.would_end(client, is_commit=not client.asked)
            assert code, "an ended transaction changed its end"
        elif self.ongoing is None:
            assert self.would_end(client, is_commit=True), "an empty transaction was committed"
        if client.asked is None:
            client.asked = not waits and bool(client.acked) and self.rng.random() < 0.6
        before, new_id = self.state, -1
        if steps.needs_next_id(before, asker):
            self.ids += 1
            new_id = self.ids
        ongoing = self.ongoing if self.markers is None else None
        step = steps.end_raising(
            before, asker, is_commit=client.asked, new_id=new_id, now_ms=self.now_ms
        )
        code = self.take(step, is_commit=client.asked, is_raising=True)
        if code:
            if code is not BUSY:
                self.check_refusal(asker)
                client.asked = None
            return
        assert self.state is not None
        given = steps.given(self.state)
        if asker in self.ended:
            assert self.ended[asker] == given, "the answer to a repeated end differs"
            self.counts["repeated"] += 1
        else:
            assert asker == self.newest(), "a zombie ended a transaction"
            assert ongoing in (None, transaction), "another transaction was ended"
            self.acked[transaction] = Counter(client.acked)
            self.counts["rotated"] += given.epoch == 0
            self.counts["empty"] += ongoing is None
            self.give(client, given)
            self.ended[asker] = given
        assert given not in (asker, Asker()) and given == self.newest()
        self.lost = (client.number, given)
        if given.epoch == 0 and self.rng.random() < 0.5:
            self.restart()
        if self.rng.random() < 0.7:  # otherwise the answer is lost
            self.lost = (-1, Asker())
            client.take(given)

    def would_end(self, client: Client, *, is_commit: bool) -> ErrorCode:
        """Return the code of an end that the client does not ask for."""
        return steps.end_raising(
            self.state, client.asker, is_commit=is_commit, new_id=10**9, now_ms=self.now_ms
        ).code

    def check_refusal(self, asker: Asker) -> None:
        """Check that a client whose EndTxn was refused is a zombie, or was aborted."""
        is_aborted = self.state is not None and steps.given(self.state) > asker
        assert asker != self.newest() or is_aborted, "the present client was refused"
        is_last = self.ended.get(asker) == self.newest()
        is_idle = self.state is not None and self.state.state in ENDED
        assert not (is_last and is_idle), "a repeated end was refused"

    def near_the_end(self) -> None:
        """Continue with one of the last epochs of the producer id."""
        if self.state is not None and self.state.state is State.EMPTY and self.state.epoch < 32_000:
            epoch = self.rng.choice((32_765, 32_766))
            self.state = self.state._replace(
                epoch=epoch, updated_ms=self.now_ms, previous_id=-1, previous_epoch=-1
            )
            asker = Asker(self.state.producer_id, epoch)
            self.given.add(asker)
            self.clients.append(Client(asker, len(self.given) + 1000))

    def walk(self, length: int) -> None:
        """Do some steps."""
        actions = (
            *[self.init] * 2, *[self.send] * 8, *[self.fly] * 12, *[self.end] * 6,
            *[self.write_markers] * 10, *[self.append_late] * 2, *[self.wait] * 2,
            self.mark_again, self.scan, self.expire, self.restart,
            *[self.near_the_end] * 3,
            self.do_postponed,
        )  # fmt: skip
        for _ in range(length):
            self.rng.choice(actions)()
            self.check()


class Leader:
    """Asks the coordinator for the leader of a partition."""

    def __init__(self, world: World, transaction: int) -> None:
        self._world, self._transaction = world, transaction

    def faults_of_batches(
        self, name: str, asker: Asker, places: Sequence[Place], *, is_adding: bool = False
    ) -> dict[Place, ErrorCode]:
        """Add the partitions."""
        assert is_adding
        number, protocol = self._transaction, Protocol.RAISING
        return dict.fromkeys(places, self._world.add(asker, frozenset(places), number, protocol))

    def postpone(self, asker: Asker, places: Sequence[Place]) -> None:
        """Add the partitions later: a wrong order, which a test asks for."""
        self._world.postponed.append((asker, frozenset(places)))


def walk_all(seed: int, walks: int, length: int = 90) -> Counter[str]:
    """Walk many times; returns how often what happened."""
    counts: Counter[str] = Counter()
    for number in range(walks):
        world = World(random.Random(f"{seed}-{number}"))
        world.walk(length)
        counts.update(world.counts)
    return counts
