"""Hold the state of one transactional id.

                 InitProducerId         AddPartitions       EndTxn           markers written
    (none) ----> EMPTY ---------------> ONGOING ----------> PREPARE_COMMIT -> COMPLETE_COMMIT
                 ^  ^                   |  ^  |  commit                       |   |
                 |  |                   +--+  |                               |   |
                 |  |          AddPartitions  +-----------> PREPARE_ABORT --> COMPLETE_ABORT
                 |  |               abort, timeout,                           |   |
                 |  |               InitProducerId (epoch + 1)                |   |
                 |  +------------------- InitProducerId ----------------------+   |
                 |                                                                |
                 +--- a new producer id instead of an epoch after the last one    |
    ONGOING <---------------------- AddPartitions --------------------------------+
    COMPLETE_ABORT <--------------- abort of a transaction without partitions (protocol RAISING)
    DEAD    <---------------------- idle for too long: EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT

There are two protocols. With the older protocol, a client keeps its epoch from one transaction to
the next. With the newer protocol (RAISING, KIP-890), each EndTxn raises the epoch, and the client
gets the new epoch with the answer. A client may change its protocol between two transactions.

Invariants, checked after each step by `check_step`:

- A producer id never gets a smaller epoch. A new producer id begins with epoch 0.
- A transaction has partitions from its first partition until all its markers are written.
- A prepared transaction has the same partitions as while it was ONGOING.
- If a client ended its transaction with the protocol RAISING, the markers have a higher epoch than
  all batches of the transaction.
- A client never gets the epoch 32767: the coordinator needs it for the markers that fence or
  follow the client's last epoch.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

Place = tuple[str, int]  # topic and partition
NO_ID = NO_EPOCH = NO_TIME = -1
EPOCH_MAX = 2**15 - 1
CLIENT_EPOCH_MAX = EPOCH_MAX - 1  # no client gets EPOCH_MAX, which only markers use


class State(enum.IntEnum):
    """The state of a transactional id; the numbers are those of Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def title(self) -> str:
        """The name that Kafka's tools show, such as `PrepareCommit`."""
        return self.name.title().replace("_", "")


IDLE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
COMPLETE_OF = {
    State.PREPARE_COMMIT: State.COMPLETE_COMMIT,
    State.PREPARE_ABORT: State.COMPLETE_ABORT,
}
COMPLETE = frozenset(COMPLETE_OF.values())
_FROM_IDLE = frozenset({State.EMPTY, State.ONGOING, State.COMPLETE_ABORT, State.DEAD})
# The states that may follow each state.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.EMPTY: _FROM_IDLE,
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: _FROM_IDLE,
    State.COMPLETE_ABORT: _FROM_IDLE,
    State.DEAD: frozenset(),
}


class Protocol(enum.IntEnum):
    """The protocol that a client uses; the numbers are those of Kafka's records."""

    OLD = 0
    RAISING = 2  # each end of a transaction raises the epoch (KIP-890, part 2)


class Transaction(NamedTuple):
    """The state of one transactional id; the object is never changed.

    Attributes:
        epoch: the newest epoch of the producer id. Requests with another epoch are fenced.
        timeout_ms: how long a transaction may be ONGOING.
        partitions: the partitions of the transaction that is ONGOING or prepared.
        started_ms: when the transaction began; -1 if none has begun.
        updated_ms: the time of the last change.
        previous_id, previous_epoch: the producer id and the epoch that the client sent in the
            request that gave it its present id and epoch: InitProducerId (KIP-360), or EndTxn with
            the protocol RAISING. If the client sent none, the previous id and epoch are -1. With
            the previous id and epoch, the coordinator recognises a repeated request. The log stores
            the previous id and epoch only after such an EndTxn. So after a restart, a client that
            repeats its InitProducerId is fenced.
        next_id: if no epoch is left, the next producer id of the client, which has epoch 0. This is
            set only while markers are written; otherwise -1.
        protocol: the protocol of the last request that added partitions or ended the transaction.
            A transaction that the coordinator aborts has OLD: its client was not told a new epoch.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[Place]
    started_ms: int
    updated_ms: int
    previous_id: int = NO_ID
    previous_epoch: int = NO_EPOCH
    next_id: int = NO_ID
    protocol: Protocol = Protocol.OLD

    @property
    def is_exhausted(self) -> bool:
        """Whether the next client needs a new producer id, because no epoch is left."""
        return self.epoch >= CLIENT_EPOCH_MAX


def check_step(before: Transaction | None, after: Transaction) -> None:
    """Assert that a step keeps the invariants."""
    assert 0 <= after.epoch <= EPOCH_MAX
    has_partitions = after.state is State.ONGOING or after.state in PREPARED
    assert has_partitions == bool(after.partitions)
    is_last = after.state in PREPARED and after.epoch == EPOCH_MAX
    assert after.next_id == NO_ID or is_last
    if before is None:
        assert after.state is State.EMPTY and after.epoch == 0
        return
    assert after.state in TRANSITIONS[before.state], (before.state, after.state)
    if after.producer_id == before.producer_id:
        assert after.epoch >= before.epoch
    else:
        assert after.epoch == 0 and (after.state is State.EMPTY or after.state in COMPLETE)
    if after.state in PREPARED:
        assert after.partitions == before.partitions
        is_raised = after.epoch == before.epoch + 1
        assert is_raised or (after.epoch == before.epoch and after.protocol is Protocol.OLD)
    if after.state in (State.EMPTY, State.ONGOING):
        assert after.epoch <= CLIENT_EPOCH_MAX
