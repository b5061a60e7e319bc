"""Answer FindCoordinator (10): find the broker that coordinates a group or a transactional id."""

from __future__ import annotations

from typing import Any

from broker.coordinator.errors import CoordinatorError
from broker.machines.exchange import Answer
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import FindCoordinatorResponse

BATCHED = 4  # the first version with several keys
GROUP, TRANSACTION = 0, 1
NO_NODE = -1

Row = FindCoordinatorResponse.Coordinator


def answer(call: Call) -> Answer:
    """Return the coordinator of each key."""
    asked = call.request.message()
    if call.request.version >= BATCHED:
        rows = [_row(call, asked.key_type, key) for key in asked.coordinator_keys]
        return call.answer(FindCoordinatorResponse(coordinators=rows))
    row = _row(call, asked.key_type, asked.key)
    return call.answer(
        FindCoordinatorResponse(
            error_code=row.error_code,
            error_message=row.error_message,
            node_id=row.node_id,
            host=row.host,
            port=row.port,
        )
    )


def _row(call: Call, key_type: int, key: str) -> Any:
    if key_type not in (GROUP, TRANSACTION):
        reason = f"there are no coordinators of the type {key_type}"
        return Row(key, NO_NODE, "", NO_NODE, ErrorCode.INVALID_REQUEST, reason)
    services = call.services
    is_group = key_type == GROUP
    try:
        node = (services.groups if is_group else services.transactions.coordinator).find(
            key, call.client.endpoint
        )
    except CoordinatorError as error:
        return Row(key, NO_NODE, "", NO_NODE, error.code, str(error))
    if node is not None:
        return Row(key, node.id, node.host, node.port, ErrorCode.NONE, None)
    endpoint = call.client.endpoint
    return Row(
        key, call.services.leadership.broker_id, endpoint.host, endpoint.port, ErrorCode.NONE, None
    )
