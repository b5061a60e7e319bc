"""Hold the steps of a transactional id to their promises, for any order of events.

The world (`support.transaction_world`) knows what each client was told. Each rule, changed, is
noticed by it.
"""

from __future__ import annotations

import inspect
import random
from typing import Any, NamedTuple

import pytest

from broker.requests.transactions import verification
from broker.transactions import records, steps, transaction
from broker.wire.byte_cursor import WireError
from support.transaction_world import walk_all

WALKS = 1500
PARTS = ("commit", "abort", "expired", "repeated", "rotated", "empty")
BUSY = (
    "    if before.state in PREPARED:\n"
    "        return Step(ErrorCode.CONCURRENT_TRANSACTIONS, before)\n"
)
MODULES = {
    "records": records, "steps": steps, "transaction": transaction, "verification": verification,
}  # fmt: skip


class Mutant(NamedTuple):
    """One rule changed: a piece of a module's source, and what replaces it."""

    name: str
    module: str
    old: str
    new: str


MUTANTS = (
    Mutant("an older epoch may go on", "steps",
           "if asker.epoch != before.epoch or asker.epoch > CLIENT_EPOCH_MAX:",
           "if asker.epoch > before.epoch:"),
    Mutant("a client that begins again keeps the epoch", "steps",
           "epoch, previous_id, previous_epoch = before.epoch + 1, NO_ID",
           "epoch, previous_id, previous_epoch = before.epoch, NO_ID"),
    Mutant("a fenced transaction keeps its epoch", "steps",
           "        epoch=before.epoch + 1, state", "        epoch=before.epoch, state"),
    Mutant("a client asks for an epoch that is not its own", "steps",
           "        elif asker.epoch != before.epoch:\n", "        elif False:\n"),
    Mutant("a new client begins while markers are missing", "steps",
           BUSY + "    if before.state is State.ONGOING:",
           "    if before.state is State.ONGOING:"),
    Mutant("a zombie aborts a transaction", "steps",
           "if asker not in (Asker(), given(before)):", "if False:"),
    Mutant("a transaction begins while markers are missing", "steps",
           "if before.state in PREPARED and asker == given(before):", "if False:"),
    Mutant("a batch needs no partition", "steps",
           "is_part = before.state is State.ONGOING and partition in before.partitions",
           "is_part = True"),
    Mutant("the end may be changed", "steps",
           "is_repeated = before.state is COMPLETE_OF[wanted]",
           "is_repeated = before.state in COMPLETE_OF.values()"),
    Mutant("a raising end keeps the epoch", "steps",
           "state=wanted, epoch=before.epoch + 1,", "state=wanted, epoch=before.epoch,"),
    Mutant("a repeated end is fenced", "steps",
           "if before is not None and _is_repeated_end(before, asker):", "if False:"),
    Mutant("a repeated end may change the end", "steps",
           "is_same = before.state is COMPLETE_OF[wanted]", "is_same = True"),
    Mutant("an abort without partitions keeps the epoch", "steps",
           "return _step(before, _completed(raised._replace(started_ms=now_ms)))",
           "return Step(ErrorCode.NONE, before)"),
    Mutant("an empty transaction is committed", "steps",
           "    if is_commit:\n", "    if False:\n"),
    Mutant("no new id follows the last epoch", "steps",
           "return asker == given(before) and asker.epoch == CLIENT_EPOCH_MAX", "return False"),
    Mutant("the next id is given only after the markers", "steps",
           "if transaction.next_id != NO_ID:", "if False:"),
    Mutant("a marker has the old epoch", "steps",
           "transaction.producer_id, transaction.epoch, is_commit,",
           "transaction.producer_id, "
           "transaction.epoch - (transaction.protocol is Protocol.RAISING), is_commit,"),
    Mutant("a late marker ends the next transaction", "steps",
           "is_raised=transaction.protocol is Protocol.RAISING", "is_raised=False"),
    Mutant("the partition is added after the append", "verification",
           "codes = verifier.faults_of_batches(name, asker, places, is_adding=is_adding)",
           "codes = dict.fromkeys(places, ErrorCode.NONE); verifier.postpone(asker, places)"),
    Mutant("the record lacks the next id", "records",
           "next_producer_id=transaction.next_id", "next_producer_id=-1"),
    Mutant("the record lacks the protocol", "records",
           "client_transaction_version=int(transaction.protocol)", "client_transaction_version=0"),
    Mutant("the record lacks the id before", "records",
           "previous_producer_id=transaction.previous_id", "previous_producer_id=-1"),
    Mutant("each end is an abort", "steps",
           "is_commit = transaction.state is State.PREPARE_COMMIT", "is_commit = False"),
    Mutant("a partition is forgotten", "steps",
           "partitions=before.partitions | partitions", "partitions=partitions"),
    Mutant("each partition begins the transaction again", "steps",
           "is_first = before.state is not State.ONGOING", "is_first = True"),
    Mutant("no transaction is too old", "steps",
           "if before.state is not State.ONGOING or not is_late:", "if True:"),
    Mutant("each transaction is too old", "steps",
           "if before.state is not State.ONGOING or not is_late:",
           "if before.state is not State.ONGOING:"),
    Mutant("an id in use is forgotten", "steps",
           "if before.state not in IDLE or now_ms < before.updated_ms + retention_ms:",
           "if before.state not in IDLE:"),
    Mutant("the epochs never end", "transaction",
           "return self.epoch >= CLIENT_EPOCH_MAX", "return False"),
    Mutant("a loaded transaction has no markers", "records",
           "transaction_status=int(transaction.state)",
           "transaction_status=min(1, int(transaction.state))"),
    Mutant("the record lacks a partition", "records",
           "in sorted(transaction.partitions):", "in sorted(transaction.partitions)[:1]:"),
)  # fmt: skip


def test_random_walks_keep_the_promises() -> None:
    """Zombies change nothing, each transaction ends once, and each partition gets its marker."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    counts = walk_all(seed, WALKS)
    assert min(counts[what] for what in PARTS) > 20, counts


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_changed_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rule changed, a promise is broken in some walk."""
    module = MODULES[mutant.module]
    monkeypatch.setattr(steps, "check_step", lambda *_: None)  # the world alone must notice
    source = inspect.getsource(module)
    assert source.count(mutant.old) == 1, mutant.name
    made: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source.replace(mutant.old, mutant.new), "changed", "exec"), made)
    for name, one in made.items():
        if inspect.isfunction(one) and one.__module__ == module.__name__:
            if module is steps:  # the classes of results must stay the same
                names = ("Markers", "Step", "Asker", "check_step")
                kept = {key: getattr(module, key) for key in names}
                one.__globals__.update(kept)
            monkeypatch.setattr(module, name, one)
    if module is transaction:
        real = transaction.Transaction
        monkeypatch.setattr(real, "is_exhausted", made["Transaction"].is_exhausted)
    with pytest.raises((AssertionError, KeyError, WireError)):
        walk_all(1, WALKS)
