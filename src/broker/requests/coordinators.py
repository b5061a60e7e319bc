"""Answer FindCoordinator (10): this broker has no coordinators yet, and says so.

A client that only names a group, without using it, needs this answer: librdkafka's `close` waits
for it. A client of a group keeps asking; a transactional producer gives up at once.
"""

from __future__ import annotations

from broker.machines.exchange import Answer
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import FindCoordinatorResponse

BATCHED = 4  # the first version with several keys
GROUP = 0
NO_NODE = -1
ANSWERS = {
    True: (ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker has no consumer groups yet"),
    False: (ErrorCode.INVALID_REQUEST, "this broker has no transactions yet"),
}


def answer(call: Call) -> Answer:
    """Say that there is no coordinator."""
    asked = call.request.message()
    code, message = ANSWERS[asked.key_type == GROUP]
    if call.request.version < BATCHED:
        return call.answer(
            FindCoordinatorResponse(
                error_code=code, error_message=message, node_id=NO_NODE, port=NO_NODE
            )
        )
    Row = FindCoordinatorResponse.Coordinator  # noqa: N806 - a class
    rows = [Row(key, NO_NODE, "", NO_NODE, code, message) for key in asked.coordinator_keys]
    return call.answer(FindCoordinatorResponse(coordinators=rows))
