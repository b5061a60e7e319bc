"""Hold a transactional id together with its lock and the change that is being written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from broker.catalog.client_appends import Wait
from broker.groups.exchange import Now
from broker.transactions import records
from broker.transactions.steps import Step
from broker.transactions.transaction import Transaction
from broker.wire.byte_cursor import WireError
from broker.wire.error_codes import ErrorCode
from logstore import Log

LOG = logging.getLogger("broker")
# Called with the answer to a request, and the transaction after the change.
Reply = Callable[[ErrorCode, Transaction | None], object]


class Writing(NamedTuple):
    """A change that other replicas do not have yet."""

    wait: Wait
    step: Step
    reply: Reply


class Attempt:
    """A request that is tried again, once: after a change, or when it has waited long enough."""

    __slots__ = ("_tries",)

    def __init__(self, again: Callable[[], object]) -> None:
        self._tries = [again]  # `pop` returns the function to one thread only

    @property
    def is_waiting(self) -> bool:
        """Whether the request was not tried again yet."""
        return bool(self._tries)

    def run(self) -> None:
        """Try again, unless another call has done so."""
        try:
            again = self._tries.pop()
        except IndexError:
            return
        again()


class HostedTransaction:
    """One transactional id of a broker.

    Threads: `lock` guards the other attributes, and is held while a change is written to the log.

    Attributes:
        transaction: the state that all in-sync replicas have; None if there is no record yet.
        writing: the change that some in-sync replicas do not have yet. Until all of them have
            this change, no other change begins.
        waiting: requests that wait for the end of the present change, or of the transaction.
        has_ended: whether this object is no longer used, because the transactional id was forgotten
            or is loaded again.
    """

    __slots__ = ("has_ended", "lock", "name", "transaction", "waiting", "writing")

    def __init__(self, name: str, transaction: Transaction | None = None) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.transaction = transaction
        self.writing: Writing | None = None
        self.waiting: list[Attempt] = []
        self.has_ended = False

    def end(self, code: ErrorCode, now: Now) -> None:
        """Stop using this object; the caller holds the lock."""
        self.has_ended = True

    def drop_writes(self, code: ErrorCode) -> None:
        """Answer the request of an unreplicated change with an error; the caller holds the lock."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.wait.close()
            writing.reply(code, None)


def load(log: Log) -> dict[str, HostedTransaction]:
    """Read the transactional ids of one partition of `__transaction_state`.

    Raises:
        LogStoreError: the log cannot be read.
    """
    last: dict[bytes | None, bytes | None] = {}
    for batch in log.read_batches():
        last.update(zip(batch.keys, batch.values, strict=True))
    found: dict[str, HostedTransaction] = {}
    faults = []
    for key, value in last.items():
        try:
            record = records.parse(key, value)
        except WireError as error:
            faults.append(str(error))
            continue
        if record is not None and record.value is not None:
            name = record.transactional_id
            found[name] = HostedTransaction(name, record.value)
    if faults:
        name = f"{log.topic}-{log.partition}"
        LOG.error("%s has %d records that cannot be read: %s", name, len(faults), faults[0])
    return found
