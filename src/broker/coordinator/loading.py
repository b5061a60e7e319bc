"""Read the groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.consumer_groups import records as consumer_records
from broker.consumer_groups import restoring
from broker.consumer_groups.exchange import ConsumerSettings
from broker.consumer_groups.records import ConsumerRecord
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


class Found(NamedTuple):
    """The last record of each key, by kind."""

    groups: dict[str, GroupRecord]
    offsets: dict[tuple[str, Key], OffsetRecord]
    consumers: dict[str, list[ConsumerRecord]]  # of groups of the new protocol


def last_records(log: Log) -> Found:
    """Read the log; of two records with the same key, the later one counts.

    Only the last record of each key is parsed, because a log can have thousands of records of a key
    until it is compacted.
    """
    last: dict[bytes | None, bytes | None] = {}
    for batch in batches_of(log):
        for key, value in zip(batch.keys, batch.values, strict=True):
            last.pop(key, None)  # two keys may mean the same offset: keep the records' order
            last[key] = value
    groups, offsets, consumers = result = Found({}, {}, {})
    faults = []
    for key, value in last.items():
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


def load(
    log: Log,
    settings: GroupSettings,
    draw_id: Callable[[str], str],
    now: Callable[[], Now],
    consumers: ConsumerSettings,
) -> dict[str, Hosted]:
    """Make groups from the records of a log.

    Raises:
        LogStoreError: the log cannot be read.
    """
    groups, offsets, consumer_groups = last_records(log)
    hosted: dict[str, Hosted] = {}
    for name, record in groups.items():
        if record.value is not None:
            moment = now()
            hosted[name] = Hosted(records.restored(name, record.value, settings, draw_id, moment))
    for name, rows in consumer_groups.items():
        made = restoring.restored(name, rows, consumers, now())
        if made is None:
            continue
        group, faults = made
        if faults:
            LOG.error(
                "the group %r in %s-%d is damaged: %s", name, log.topic, log.partition, faults
            )
        if name in hosted and hosted[name].group.members:
            LOG.error("the group %r has records of both protocols; the classic ones count", name)
        else:
            hosted[name] = Hosted(group)
    for (name, place), one in offsets.items():
        if one.value is not None:
            if name not in hosted:
                hosted[name] = Hosted(Group(name, settings, draw_id, now()))
            hosted[name].offsets[place] = one.value
    for one_group in hosted.values():
        one_group.is_recorded = True
    return hosted
