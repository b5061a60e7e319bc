"""Answer CreatePartitions (37) and DeleteRecords (21)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.catalog.admin.topic_admin import TopicRefusedError
from broker.catalog.client_appends import Wait
from broker.catalog.topics import Topic
from broker.machines.exchange import Answer, Pending
from broker.requests.admin.settling import MS, Changed, answer_when_shown
from broker.requests.failures import code_of
from broker.requests.services import Call, Services
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import CreatePartitionsResponse, DeleteRecordsResponse
from logstore import LogStoreError

HIGH_WATERMARK = -1  # this offset in a request means that all records are deleted
NO_OFFSET = -1


def answer_create(call: Call) -> Answer | Pending:
    """Add partitions to topics. The answer waits until the metadata has the new leaders."""
    services, asked = call.services, call.request.message()
    Row = CreatePartitionsResponse.CreatePartitionsTopicResult  # noqa: N806 - a class
    rows, grown = [], {}
    named = Counter(one.name for one in asked.topics)
    for one in {one.name: one for one in asked.topics}.values():
        try:
            if named[one.name] > 1:
                reason = "the request names the topic twice"
                raise TopicRefusedError(ErrorCode.INVALID_REQUEST, reason)
            topic = _create(services, one, asked.validate_only)
        except TopicRefusedError as refusal:
            rows.append(Row(one.name, refusal.code, str(refusal)))
        except LogStoreError as error:
            rows.append(Row(one.name, code_of(error), str(error)))
        else:
            rows.append(Row(one.name, ErrorCode.NONE, None))
            if not asked.validate_only:
                grown[one.name] = topic

    changed = Changed(
        grown,
        services.topic_admin.is_ready,
        rows,
        lambda rows: CreatePartitionsResponse(results=rows),
    )
    return answer_when_shown(call, changed, asked.timeout_ms)


def _create(services: Services, asked: Any, is_dry: bool) -> Topic:
    given = asked.assignments
    assignment = None if given is None else [one.broker_ids for one in given]
    return services.topic_admin.add_partitions(asked.name, asked.count, assignment, is_dry=is_dry)


class _Deleted(NamedTuple):
    """The result of one deletion: the row of the answer, and a wait for other replicas."""

    row: Any
    wait: Wait | None = None


def answer_delete_records(call: Call) -> Answer | Pending:
    """Delete records before an offset; answer when all in-sync replicas have deleted them.

    If a request names a partition twice, the last offset counts, as in Kafka.
    """
    asked = call.request.message()
    wanted: dict[str, dict[int, Any]] = {}
    for topic in asked.topics:
        wanted.setdefault(topic.name, {}).update(
            {one.partition_index: one for one in topic.partitions}
        )
    topics = [
        (name, [_delete_records(call.services, name, one) for one in partitions.values()])
        for name, partitions in wanted.items()
    ]
    waiting = _WaitingDeletion(call, topics, asked.timeout_ms)
    return waiting if waiting.waits else waiting.answer()


def _delete_records(services: Services, name: str, asked: Any) -> _Deleted:
    Row = DeleteRecordsResponse.DeleteRecordsPartitionResult  # noqa: N806 - a class
    number, offset = asked.partition_index, asked.offset
    try:
        log = services.topics.log(name, number)
        if "delete" not in log.config.cleanup_policy:
            return _Deleted(Row(number, NO_OFFSET, ErrorCode.POLICY_VIOLATION))
        end = log.high_watermark
        wanted = end if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= end:
            return _Deleted(Row(number, NO_OFFSET, ErrorCode.OFFSET_OUT_OF_RANGE))
        wait = services.appends.delete_before(name, number, wanted)
        return _Deleted(Row(number, log.log_start_offset, ErrorCode.NONE), wait)
    except LogStoreError as error:
        return _Deleted(Row(number, NO_OFFSET, code_of(error)))


class _WaitingDeletion(Pending):
    """A DeleteRecords request that waits until all in-sync replicas have deleted the records."""

    def __init__(
        self, call: Call, topics: list[tuple[str, list[_Deleted]]], timeout_ms: int
    ) -> None:
        super().__init__(call.services.clock() + max(timeout_ms, 0) / MS)
        self._call, self._topics = call, topics
        self.waits = [one.wait for _, rows in topics for one in rows if one.wait is not None]

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a replica has deleted the records."""
        for wait in self.waits:
            wait.watch(wake)

    def look(self, *, is_last: bool) -> Answer | None:
        """Answer if all in-sync replicas have deleted the records, or if the time is over."""
        unfinished = [wait for wait in self.waits if not wait.is_over]
        if unfinished and not is_last:
            return None
        for wait in unfinished:
            wait.give_up()
        return self.answer()

    def answer(self) -> Answer:
        """Encode the answer; a partition gets an error if a replica may still have the records."""
        Topic = DeleteRecordsResponse.DeleteRecordsTopicResult  # noqa: N806 - a class
        topics = [Topic(name, [_row_of(one) for one in rows]) for name, rows in self._topics]
        return self._call.answer(DeleteRecordsResponse(topics=topics))

    def close(self) -> None:
        """Stop watching."""
        for wait in self.waits:
            wait.close()


def _row_of(deleted: _Deleted) -> Any:
    error = None if deleted.wait is None else deleted.wait.error
    if error is None:
        return deleted.row
    return deleted.row._replace(low_watermark=NO_OFFSET, error_code=error.code)
