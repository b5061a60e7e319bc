"""Answer WriteTxnMarkers (27): coordinators on other brokers end transactions on this broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.coordinator.waiter import Asked, Gathering
from broker.machines.exchange import Answer, Pending
from broker.requests.services import Call
from broker.transaction_coordinator.marker_routes import Fenced, MarkerRow, Result
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import WriteTxnMarkersResponse

SECONDS = 10.0  # after this time, markers that are not replicated count as refused

Marker = WriteTxnMarkersResponse.WritableTxnMarkerResult
Topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
Row = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


def answer(call: Call) -> Answer | Pending:
    """Append the markers. The request waits until all in-sync replicas have the markers.

    If the broker knows its peers, it obeys only its peers and super users. If a marker is not
    appended before the deadline, it is never appended. The sender sends a late marker again, and a
    late copy could end the next transaction of the producer.
    """
    services, asked = call.services, call.request.message()
    deadline = services.clock() + SECONDS
    results: dict[tuple[int, str, int], Asked] = {}
    for number, one in enumerate(asked.markers):
        for topic in one.topics:
            for partition in topic.partition_indexes:
                result = results[number, topic.name, partition] = Asked()
                if not services.peers.accepts(call.client.principal):
                    result.put(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                    continue
                if one.producer_id < 0 or one.producer_epoch < 0 or one.coordinator_epoch < -1:
                    result.put(ErrorCode.INVALID_REQUEST)
                    continue
                row = MarkerRow(
                    one.producer_id, one.producer_epoch, one.transaction_result,
                    one.coordinator_epoch, (topic.name, partition), one.is_raised,
                )  # fmt: skip
                services.transactions.markers.append_soon(
                    row, result.put, lambda: services.clock() < deadline
                )

    def encode(codes: Mapping[Any, Any]) -> Answer:
        rows = []
        for number, one in enumerate(asked.markers):
            topics = [
                Topic(
                    topic.name,
                    [
                        _row(each, codes[number, topic.name, each])
                        for each in topic.partition_indexes
                    ],
                )
                for topic in one.topics
            ]
            rows.append(Marker(one.producer_id, topics))
        return call.answer(WriteTxnMarkersResponse(rows))

    return Gathering(deadline, results, encode, ErrorCode.REQUEST_TIMED_OUT)


def _row(partition: int, result: Result) -> Any:
    if isinstance(result, Fenced):
        return Row(
            partition, ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            coordinator_epoch=result.current_epoch,
        )  # fmt: skip
    return Row(partition, result)
