"""Read the groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from broker.coordinator.hosted import Hosted
from broker.groups import records
from broker.groups.exchange import Now
from broker.groups.group import Group, GroupSettings
from broker.groups.offsets import Key
from broker.groups.records import GroupRecord, OffsetRecord
from broker.wire.byte_cursor import WireError
from logstore import Log, RecordBatch

LOG = logging.getLogger("broker")
TRANSACTIONAL = 0x10  # the bit in a batch's attributes for a batch of a transaction


def batches_of(log: Log) -> Iterator[RecordBatch]:
    """Yield the batches of a log, except the batches of aborted and open transactions.

    After the beginning of the first open transaction, every transactional batch is left out, even
    if its own transaction was committed.
    """
    stable = log.last_stable_offset
    yield from log.read_batches(end_offset=stable, isolation_level="read_committed")
    for batch in log.read_batches(max(stable, log.log_start_offset)):
        if not batch.header.attributes & TRANSACTIONAL:
            yield batch


def last_records(log: Log) -> tuple[dict[str, GroupRecord], dict[tuple[str, Key], OffsetRecord]]:
    """Read the log; of two records with the same key, the later one counts.

    Only the last record of each key is parsed, because a log can have thousands of records of a key
    until it is compacted.
    """
    last: dict[bytes | None, bytes | None] = {}
    for batch in batches_of(log):
        for key, value in zip(batch.keys, batch.values, strict=True):
            last.pop(key, None)  # two keys may mean the same offset: keep the records' order
            last[key] = value
    groups: dict[str, GroupRecord] = {}
    offsets: dict[tuple[str, Key], OffsetRecord] = {}
    faults = []
    for key, value in last.items():
        try:
            found = records.parse(key, value)
        except WireError as error:
            faults.append(str(error))
            continue
        if isinstance(found, GroupRecord):
            groups[found.group] = found
        elif found is not None:
            offsets[found.group, (found.topic, found.partition)] = found
    if faults:
        name = f"{log.topic}-{log.partition}"
        LOG.error("%s has %d records that cannot be read: %s", name, len(faults), faults[0])
    return groups, offsets


def load(
    log: Log,
    settings: GroupSettings,
    draw_id: Callable[[str], str],
    now: Callable[[], Now],
) -> dict[str, Hosted]:
    """Make groups from the records of a log.

    Raises:
        LogStoreError: the log cannot be read.
    """
    groups, offsets = last_records(log)
    hosted: dict[str, Hosted] = {}
    for name, record in groups.items():
        if record.value is not None:
            moment = now()
            hosted[name] = Hosted(records.restored(name, record.value, settings, draw_id, moment))
    for (name, place), one in offsets.items():
        if one.value is not None:
            if name not in hosted:
                hosted[name] = Hosted(Group(name, settings, draw_id, now()))
            hosted[name].offsets[place] = one.value
    for one_group in hosted.values():
        one_group.is_recorded = True
    return hosted
