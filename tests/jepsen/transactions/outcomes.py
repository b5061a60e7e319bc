"""Say what clients were promised about each transaction of a history.

| outcome | when |
|---|---|
| committed | its commit was acknowledged |
| aborted | its abort was acknowledged; or no commit was asked for; or, before the commit was asked
for, another producer had begun to use the transactional id |
| unknown | all others |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from jepsen.history import Event
from jepsen.transactions.kinds import id_of, producer_of, transaction_of

Place = tuple[str, int]
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


class Written(NamedTuple):
    """What is known of one record.

    Attributes:
        offset: where it was acknowledged; -1 if its client did not hear it.
    """

    place: Place
    is_acknowledged: bool
    offset: int


class Transaction:
    """What is known of one transaction.

    Attributes:
        records: its records, by value.
        offsets: the offsets that it sets for the group, by partition.
        is_fenced: whether its commit was asked for when another producer had its id.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: dict[str, Written] = {}
        self.offsets: dict[Place, int] = {}
        self.is_committed = self.is_aborted = self.is_asked = self.is_fenced = False

    @property
    def outcome(self) -> str:
        """What its clients were promised."""
        if self.is_committed:
            return COMMITTED
        if self.is_aborted or not self.is_asked or self.is_fenced:
            return ABORTED
        return UNKNOWN


def place_of(event: Event) -> Place:
    """Name the partition of an event."""
    return event.topic, event.partition


def transactions_of(events: Sequence[Event]) -> dict[str, Transaction]:
    """Collect all transactions of a history, in the order of their first events."""
    found: dict[str, Transaction] = {}
    owners: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if event.what == "init" and event.kind == "ok":
            owners[event.value].append(event.process)
        elif event.what == "write":
            name = transaction_of(event.value)
            one = found.setdefault(name, Transaction(name))
            is_ok = event.kind == "ok"
            one.records[event.value] = Written(place_of(event), is_ok, event.offset)
        elif event.what == "offsets":
            one = found.setdefault(event.value, Transaction(event.value))
            one.offsets[place_of(event)] = event.offset
        elif event.what in ("commit", "abort"):
            one = found.setdefault(event.value, Transaction(event.value))
            _end(one, event, owners)
    return found


def _end(one: Transaction, event: Event, owners: dict[str, list[str]]) -> None:
    if event.what == "abort":
        one.is_aborted |= event.kind == "ok"
    elif event.kind == "invoke" and not one.is_asked:
        producer = producer_of(one.name)
        known = owners[id_of(producer)]
        later = known[known.index(producer) + 1 :] if producer in known else []
        one.is_asked, one.is_fenced = True, bool(later)
    elif event.kind == "ok":
        one.is_committed = True
