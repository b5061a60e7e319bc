"""Answer DescribeProducers (61), DescribeTransactions (65) and ListTransactions (66)."""

from __future__ import annotations

from typing import Any

from broker.consumer_groups import patterns
from broker.coordinator.errors import CoordinatorError
from broker.machines.exchange import Answer
from broker.requests.failures import code_of
from broker.requests.services import Call
from broker.transactions.transaction import PREPARED, State, Transaction
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
)
from logstore import LogStoreError

Producer = DescribeProducersResponse.ProducerState
Partition = DescribeProducersResponse.PartitionResponse
Described = DescribeTransactionsResponse.TransactionState
Listed = ListTransactionsResponse.TransactionState
TITLES = {state.title: state for state in State}


def answer_producers(call: Call) -> Answer:
    """List the producers of partitions; as in Kafka, any replica can answer."""
    Topic = DescribeProducersResponse.TopicResponse  # noqa: N806 - a class
    topics = [
        Topic(topic.name, [_producers(call, topic.name, each) for each in topic.partition_indexes])
        for topic in call.request.message().topics
    ]
    return call.answer(DescribeProducersResponse(topics=topics))


def _producers(call: Call, name: str, number: int) -> Any:
    try:
        states = call.services.leadership.replica_log(name, number).producer_states()
    except LogStoreError as error:
        return Partition(number, code_of(error), str(error))
    rows = [
        Producer(
            one.producer_id, one.epoch, one.last_sequence, one.timestamp, one.coordinator_epoch,
            one.open_offset,
        )
        for one in states
    ]  # fmt: skip
    return Partition(number, ErrorCode.NONE, None, rows)


def answer_describe(call: Call) -> Answer:
    """Describe transactional ids that this broker coordinates."""
    names = call.request.message().transactional_ids
    return call.answer(
        DescribeTransactionsResponse(transaction_states=[_described(call, name) for name in names])
    )


def _described(call: Call, name: str) -> Any:
    if not name:
        return Described(ErrorCode.INVALID_REQUEST, name)
    try:
        found = call.services.transactions.coordinator.describe(name)
    except CoordinatorError as error:
        return Described(error.code, name)
    if found is None:
        return Described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(found.partitions):
        by_topic.setdefault(topic, []).append(partition)
    Topic = DescribeTransactionsResponse.TopicData  # noqa: N806 - a class
    return Described(
        ErrorCode.NONE, name, found.state.title, found.timeout_ms, found.started_ms,
        found.producer_id, found.epoch, [Topic(*row) for row in by_topic.items()],
    )  # fmt: skip


def answer_list(call: Call) -> Answer:
    """List the transactional ids that this broker coordinates, if they match the filters."""
    asked = call.request.message()
    unknown = [title for title in asked.state_filters if title not in TITLES]
    states = {TITLES[title] for title in asked.state_filters if title in TITLES}
    ids, now_ms = set(asked.producer_id_filters), call.services.groups.now().wall_ms
    pattern = asked.transactional_id_pattern
    if pattern:
        try:
            patterns.check(pattern)
        except patterns.PatternError:
            code = ErrorCode.INVALID_REGULAR_EXPRESSION
            return call.answer(ListTransactionsResponse(error_code=code))

    def fits(one: Transaction) -> bool:
        is_open = one.state is State.ONGOING or one.state in PREPARED
        is_long = is_open and now_ms - one.started_ms > asked.duration_filter
        return (
            (not asked.state_filters or one.state in states)
            and (not ids or one.producer_id in ids)
            and (asked.duration_filter < 0 or is_long)
        )

    try:
        rows = [
            Listed(name, one.producer_id, one.state.title)
            for name, one in call.services.transactions.coordinator.all()
            if fits(one) and (not pattern or patterns.match(pattern, [name]))
        ]
    except CoordinatorError as error:
        return call.answer(ListTransactionsResponse(error_code=error.code))
    return call.answer(
        ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)
    )
