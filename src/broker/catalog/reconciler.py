"""Make the log dirs and the coordination store agree, as the table in `reconciliation` says.

A broker does this at its start, and when a log dir returns, is added or is given up. If a program
creates or deletes partitions while the broker runs, this module writes the change into the
coordination store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

from broker.catalog.reconciliation import Plan, adopted, decide
from broker.catalog.topic_store import TopicLimitError, TopicStore
from broker.catalog.topic_znodes import TopicRecord
from logstore import (
    LogConfig,
    LogStore,
    LogStoreError,
    StoreEvent,
    StoreEventKind,
    TopicPartition,
    UnknownPartitionError,
)

LOG = logging.getLogger("broker")
LOG_DIR_CHANGES = frozenset({
    StoreEventKind.LOG_DIR_ADDED,
    StoreEventKind.LOG_DIR_ANSWERING,
    StoreEventKind.LOG_DIR_HAS_ROOM,
    StoreEventKind.LOG_DIR_REMOVED,
    StoreEventKind.LOG_DIR_RETURNED,
})  # fmt: skip
NAMES_MAX = 20  # the largest number of topics that a message lists

Found = dict[int, bytes | None]  # the topic id of each replica, or None if it cannot be read


class Reconciler:
    """Make the log dirs and the coordination store of one broker agree.

    Threads: only one thread calls `heard`. `changing` lets only one thread at a time change a
    topic.

    Attributes:
        refused: the replicas that are not served, because they belong to another topic.
    """

    def __init__(
        self,
        store: LogStore,
        topics: TopicStore,
        changing: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._store = store
        self._topics = topics
        self._changing = changing
        self.refused: dict[tuple[str, int], bytes] = {}
        self._lost: set[str] = set()  # topics with partitions that must still be created again

    # --- what the log dirs have -------------------------------------------------------------------

    def is_all(self) -> bool:
        """Check that all log dirs work.

        If a log dir does not work, a replica that is not found may still exist.
        """
        replicas = self._store.host.replicas
        return not replicas.returning and not replicas.is_a_dir_in_doubt()

    def is_hidden(self, name: str, number: int) -> bool:
        """Check whether a replica belongs, or may belong, to a topic that clients must not see."""
        if (name, number) in self.refused:
            return True
        doomed = {
            one.ids[number]
            for one in list(self._topics.deleted.values())
            if one.name == name and number in one.ids
        }
        return bool(doomed) and self._id_of(name, number) in {None, *doomed}

    def is_gone(self, record: TopicRecord) -> bool:
        """Check whether a program has deleted all partitions of a recorded topic."""
        replicas = self._store.host.replicas
        return (
            record.name not in self._lost
            and self.is_all()
            and not any((record.name, number) in self._store for number in reversed([*record.ids]))
            and not any(replicas.catalog.directory_of(key) for key in _keys_of(record))
        )

    def forget_gone(self, name: str) -> None:
        """Forget a topic that a program has deleted.

        Before this call, the caller must begin the change of the topic.

        Raises:
            LogStoreError: no log dir could record that the topic is deleted.
        """
        record = self._topics.records.get(name)
        if record is not None and self.is_gone(record):
            self._topics.forget(name)
            LOG.info("topic %r was deleted in the store", name)

    def _id_of(self, name: str, number: int) -> bytes | None:
        try:
            return self._store.log(name, number).topic_id
        except LogStoreError:
            return None

    def _found(self) -> dict[str, Found]:
        found: dict[str, Found] = {}
        for name, number in self._store:
            found.setdefault(name, {})[number] = self._id_of(name, number)
        return found

    def _found_of(self, name: str, more: Iterable[int] = ()) -> Found:
        """Find the replicas of a topic: known partitions, partitions 0, 1, 2 ..., and `more`."""
        known = self._topics.known(name)
        numbers = {*more, *(known.record.ids if known.record else ())}
        for deleted in known.deleted:
            numbers.update(deleted.ids)
        first = 0
        while first in numbers or (name, first) in self._store:
            numbers.add(first)
            first += 1
        here = (number for number in sorted(numbers) if (name, number) in self._store)
        return {number: self._id_of(name, number) for number in here}

    def _plan(self, name: str, found: Mapping[int, bytes | None]) -> Plan:
        return decide(self._topics.known(name), found, is_all=self.is_all())

    # --- all topics -------------------------------------------------------------------------------

    def run(self, *, is_start: bool = False) -> None:
        """Apply the table to all topics. If a topic fails, log this; the next run tries it again.

        Args:
            is_start: whether the broker is starting. At that time, no client can change a topic
                yet.
        """
        found = self._found()
        new: list[TopicRecord] = []
        deleted = {one.name for one in list(self._topics.deleted.values())}
        for name in sorted({*found, *list(self._topics.records), *deleted}):
            plan = self._plan(name, found.get(name, {}))
            if is_start and self._is_only_new(name, plan):
                new.append(self._adopted(name, found[name], plan))
            elif plan.is_empty:
                self._refuse(name, plan)
            else:
                self._try(self._settle, name, found.get(name, ()))
        if is_start:
            self._try(self._record_new, new)
            self._try(self._record_settings, found)

    def _is_only_new(self, name: str, plan: Plan) -> bool:
        """Check that a plan does nothing except record a new topic of the log dirs."""
        is_new = name not in self._topics.records and bool(plan.adopt)
        return is_new and not plan.delete and not plan.ended

    def _record_new(self, records: list[TopicRecord]) -> None:
        try:
            self._topics.put_all(records)
        except TopicLimitError:  # one topic may be too large, so record each topic alone
            for record in records:
                self._try(self._topics.put, record)
        names = [one.name for one in records if one.name in self._topics.records]
        if names:
            more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
            shown = ", ".join(names[:NAMES_MAX])
            LOG.info("%d topics of the log dirs were recorded: %s%s", len(names), shown, more)

    def _record_settings(self, found: Mapping[str, Found]) -> None:
        """Write the settings of topics into the store, because programs may have changed them."""
        changed = []
        for record in list(self._topics.records.values()):
            config = self._first_config(record, found.get(record.name, {}))
            alteration = self._topics.alterations.get(record.name)
            if config is not None and alteration is not None:  # some logs lack the changed settings
                config = alteration.applied(record, config)
            if config is not None and config != record.config:
                changed.append(record._replace(config=config))
        self._topics.put_all(changed)

    def _first_config(self, record: TopicRecord, found: Found) -> LogConfig | None:
        for number in record.ids:
            if found.get(number) is not None and (record.name, number) not in self.refused:
                return self._store.log(record.name, number).config
        return None

    def _try(self, work: Callable[..., object], *arguments: object, **named: object) -> None:
        try:
            work(*arguments, **named)
        except LogStoreError as error:
            LOG.warning("the topics and the log dirs do not agree yet: %s", error)

    # --- one topic --------------------------------------------------------------------------------

    def record(self, name: str, numbers: Iterable[int]) -> TopicRecord | None:
        """Write a topic that is in the log dirs into the store, and return its record.

        Before this call, the caller must begin the change of this topic.

        Raises:
            LogStoreError: no log dir could record the topic.
        """
        found = self._found_of(name, numbers)
        plan = self._plan(name, found)
        if plan.adopt:
            self._adopt(name, plan, found)
        return self._topics.records.get(name)

    def _settle(self, name: str, numbers: Iterable[int] = ()) -> None:
        """Apply the table to one topic."""
        with self._changing(name):
            if self._apply_to(name, numbers).delete:  # the deletions may make room for a partition
                self._apply_to(name, numbers)

    def _apply_to(self, name: str, numbers: Iterable[int]) -> Plan:
        found = self._found_of(name, numbers)
        plan = self._plan(name, found)
        self._apply(name, plan, found)
        return plan

    def _apply(self, name: str, plan: Plan, found: Found) -> None:
        self._refuse(name, plan)
        if plan.is_replaced:
            LOG.warning(
                "topic %r is gone: all log dirs serve, and none has a replica of it. Another "
                "topic with the same name was found, and is served",
                name,
            )
        if plan.adopt:
            self._adopt(name, plan, found)
        record = self._topics.records.get(name)
        if plan.create_again:
            self._lost.add(name)
        if record is not None and (plan.create or plan.create_again):
            self._create(record, [*plan.create, *plan.create_again])
        if plan.create_again:
            self._lost.discard(name)
            numbers = ", ".join(map(str, plan.create_again))
            LOG.warning(
                "topic %r: the records of the partitions %s are gone: all log dirs serve, and none "
                "has a replica. The partitions were created again, empty",
                name, numbers,
            )  # fmt: skip
        for number in plan.delete:
            self._store.delete(name, number)
        for deleted in plan.ended:
            self._topics.end_deletion(deleted)
        if record is not None and (plan.is_created or plan.create):
            self._topics.put(record)

    def _refuse(self, name: str, plan: Plan) -> None:
        """Store which replicas of a topic are not served.

        Log each replica that is not served once.
        """
        for key in [key for key in self.refused if key[0] == name and key[1] not in plan.refuse]:
            del self.refused[key]
        for number, topic_id in plan.refuse.items():
            if self.refused.get((name, number)) != topic_id:
                self.refused[name, number] = topic_id
                LOG.error(
                    "the replica of %s-%d is not served, because it belongs to another topic "
                    "with this name, whose id is %s. To delete the replica: logstore delete %s %d",
                    name, number, topic_id.hex(), name, number,
                )  # fmt: skip

    def _adopt(self, name: str, plan: Plan, found: Found) -> None:
        unfinished = None if plan.is_replaced else self._topics.unfinished.get(name)
        self._topics.put(self._adopted(name, found, plan), unfinished)
        numbers = ", ".join(map(str, plan.adopt))
        LOG.info("topic %r: the partitions %s of the log dirs were recorded", name, numbers)

    def _adopted(self, name: str, found: Found, plan: Plan) -> TopicRecord:
        """Return the record of a topic after its replicas are adopted."""
        known = self._topics.known(name)
        record = None if plan.is_replaced else known.record
        if record is not None:
            ids = adopted(record, found, plan.adopt)
            is_mixed = record.is_mixed or any(one != record.id for one in ids.values())
            return record._replace(ids=ids, is_mixed=is_mixed)
        doomed = {number for one in known.deleted for number in one.ids}
        living = {
            number: one for number, one in found.items() if one is not None or number not in doomed
        }
        first = min(plan.adopt)
        is_mixed = len(plan.adopt) < 2 or len({*plan.adopt.values()}) > 1
        config = self._store.log(name, first).config
        ids = adopted(None, living, plan.adopt)
        return TopicRecord(name, plan.adopt[first], ids, config, is_mixed)

    def _create(self, record: TopicRecord, numbers: list[int]) -> None:
        """Create partitions that are missing in all log dirs. Raises LogStoreError."""
        name, config = record.name, record.config
        if numbers == list(range(len(record.ids))) and not record.is_mixed:
            self._store.create_topic(name, len(numbers), config=config, topic_id=record.id)
            return
        for number in numbers:
            self._store.create(name, number, config=config, topic_id=record.ids[number])

    def delete_replicas(self, record: TopicRecord) -> None:
        """Delete the replicas of a topic that is being deleted, as far as this is possible now.

        If a log dir does not work, its replicas are deleted when it returns.
        """
        left: LogStoreError | None = None
        for number, topic_id in record.ids.items():
            try:
                if self._store.log(record.name, number).topic_id == topic_id:
                    self._store.delete(record.name, number)
            except UnknownPartitionError:
                continue
            except LogStoreError as error:
                left = error
        if left is not None:
            LOG.warning("topic %r: its deletion will be continued: %s", record.name, left)
        elif self.is_all():
            self._try(self._topics.end_deletion, record)

    # --- events -----------------------------------------------------------------------------------

    def heard(self, event: StoreEvent) -> None:
        """Handle an event of the store. The call may wait for a disk."""
        name, number = event.topic, event.partition
        if event.kind is StoreEventKind.LOG_DIR_OFFLINE and event.log_dir is not None:
            self._topics.leave_out(event.log_dir, event.reason)
        elif event.kind in LOG_DIR_CHANGES:
            self._try(self._topics.refresh)
            self._try(self.run)
        elif event.kind is StoreEventKind.REPLICA_CREATED and name and number is not None:
            self._try(self._heard_created, name, number)
        elif event.kind is StoreEventKind.REPLICA_DELETED and name and number is not None:
            self._try(self._heard_deleted, name, number)

    def _heard_created(self, name: str, number: int) -> None:
        """Write a partition that a program has just created into the store.

        The topic id of this partition does not matter.
        """
        record, topic_id = self._topics.records.get(name), self._id_of(name, number)
        if topic_id is None or (record is not None and record.ids.get(number) == topic_id):
            return
        with self._changing(name):
            found = self._found_of(name, [number])
            plan = self._plan(name, found)
            if number in plan.refuse:
                plan.adopt[number] = plan.refuse.pop(number)
            if plan.adopt:
                self._adopt(name, plan, found)
            self._refuse(name, plan)

    def _heard_deleted(self, name: str, number: int) -> None:
        """Forget a topic if a program has deleted its last partition."""
        if (name, number) in self.refused:
            self._settle(name)
            return
        record = self._topics.records.get(name)
        if record is not None and self.is_gone(record):
            with self._changing(name):
                self.forget_gone(name)


def _keys_of(record: TopicRecord) -> list[TopicPartition]:
    return [TopicPartition(record.name, number) for number in record.ids]
