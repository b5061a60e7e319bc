"""Read the groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from broker.consumer_groups import records as consumer_records
from broker.consumer_groups import restoring
from broker.consumer_groups.exchange import ConsumerSettings
from broker.consumer_groups.records import ConsumerRecord
from broker.coordinator import group_kinds
from broker.coordinator.hosted import Hosted, PendingOffsets
from broker.groups import records
from broker.groups.exchange import Now
from broker.groups.group import Group, GroupSettings
from broker.groups.offsets import Committed, Key
from broker.groups.records import GroupRecord, OffsetRecord
from broker.wire.byte_cursor import WireError
from logstore import Log, RecordBatch

LOG = logging.getLogger("broker")
Rows = dict[bytes | None, bytes | None]
Undecided = list[tuple[int, Rows]]  # producer ids and records of open transactions


def last_rows(log: Log) -> tuple[Rows, Undecided]:
    """Return the last record of each key in a log, and all records of open transactions.

    If two records have the same key, the later record counts. A key of an open transaction may also
    have a later valid record. If a later valid record exists, the transaction's record of this key
    becomes None, because the end of the transaction no longer changes the key.
    """
    stable = log.last_stable_offset
    last: Rows = {}
    undecided: Undecided = []
    for batch in log.read_batches(end_offset=stable, isolation_level="read_committed"):
        _take(last, batch)
    for batch, fate in log.transactions_after(max(stable, log.log_start_offset)):
        if fate == "open":
            _take_open(undecided, batch)
        elif fate == "committed":
            _take(last, batch)
            for _, rows in undecided:
                rows.update(dict.fromkeys(rows.keys() & set(batch.keys)))
    return last, undecided


def _take_open(undecided: Undecided, batch: RecordBatch) -> None:
    """Add a batch of an open transaction.

    If two records have the same key, the later one counts.
    """
    producer_id = batch.header.producer_id
    if not undecided or undecided[-1][0] != producer_id:
        for one, rows in undecided:
            if one == producer_id:
                for key in batch.keys:
                    rows.pop(key, None)
        undecided[:] = [one for one in undecided if one[1]]
        undecided.append((producer_id, {}))
    _take(undecided[-1][1], batch)


class Found(NamedTuple):
    """The last record of each key, sorted into kinds of keys."""

    groups: dict[str, GroupRecord]
    offsets: dict[tuple[str, Key], OffsetRecord]
    consumers: dict[str, list[ConsumerRecord]]  # the records of groups of the new protocol


def _take(rows: Rows, batch: RecordBatch) -> None:
    for key, value in zip(batch.keys, batch.values, strict=True):
        rows.pop(key, None)  # two keys may mean the same offset, so keep the order
        rows[key] = value


def parsed(log: Log, rows: Rows) -> Found:
    """Parse records.

    Only the last record of each key is parsed. Until a log is compacted, it can have thousands of
    records with one key.
    """
    groups, offsets, consumers = result = Found({}, {}, {})
    faults = []
    for key, value in rows.items():
        try:
            found = records.parse(key, value) or consumer_records.parse(key, value)
        except WireError as error:
            faults.append(str(error))
            continue
        if isinstance(found, GroupRecord):
            groups[found.group] = found
        elif isinstance(found, ConsumerRecord):
            consumers.setdefault(found.group, []).append(found)
        elif found is not None:
            offsets[found.group, (found.topic, found.partition)] = found
    if faults:
        name = f"{log.topic}-{log.partition}"
        LOG.error("%s has %d records that cannot be read: %s", name, len(faults), faults[0])
    return result


def _restore(
    log: Log,
    name: str,
    its_records: list[ConsumerRecord],
    settings: ConsumerSettings,
    now: Now,
    hosted: dict[str, Hosted],
) -> None:
    """Unless a classic group of this name has members, make a group of the new protocol."""
    made = restoring.restored(name, its_records, settings, now)
    if made is None:
        return
    group, faults = made
    if faults:
        LOG.error("the group %r in %s-%d is damaged: %s", name, log.topic, log.partition, faults)
    if name in hosted and hosted[name].group.members:
        LOG.error(
            "the group %r has records of both protocols; the records of the classic protocol are "
            "used",
            name,
        )
    else:
        hosted[name] = Hosted(group)


def load(
    log: Log,
    settings: GroupSettings,
    draw_id: Callable[[str], str],
    now: Callable[[], Now],
    consumers: ConsumerSettings,
) -> dict[str, Hosted]:
    """Make groups from the records of a log. The sessions of all members begin at the end.

    Raises:
        LogStoreError: the log cannot be read.
    """
    last, undecided = last_rows(log)
    groups, offsets, consumer_groups = parsed(log, last)
    hosted: dict[str, Hosted] = {}
    for name, record in groups.items():
        if record.value is not None:
            moment = now()
            hosted[name] = Hosted(records.restored(name, record.value, settings, draw_id, moment))
    for name, its_records in consumer_groups.items():
        _restore(log, name, its_records, consumers, now(), hosted)

    def named(name: str) -> Hosted:
        if name not in hosted:
            hosted[name] = Hosted(Group(name, settings, draw_id, now()))
        return hosted[name]

    for (name, place), one in offsets.items():
        if one.value is not None:
            named(name).offsets[place] = one.value
    for producer_id, rows in undecided:
        pending: dict[str, dict[Key, Committed | None]] = {}
        for (name, place), one in parsed(log, rows).offsets.items():
            pending.setdefault(name, {})[place] = one.value
        for name, values in pending.items():
            named(name).pending.append(PendingOffsets(producer_id, values))
    moment = now()  # the work above may have taken longer than the session of a member
    for one_group in hosted.values():
        one_group.is_recorded = True
        group_kinds.restart_sessions(one_group.group, moment)
    return hosted
