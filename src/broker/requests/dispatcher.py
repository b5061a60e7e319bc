"""Find the handler of a request by its API."""

from __future__ import annotations

from collections.abc import Callable

from broker.machines.exchange import Answer, Client, Pending
from broker.requests import (
    api_versions,
    configs,
    coordinators,
    fetch,
    list_offsets,
    metadata,
    produce,
    producer_ids,
    topic_changes,
)
from broker.requests.services import Call, Services
from broker.wire.frames import parse_request

HANDLERS: dict[int, Callable[[Call], Answer | Pending]] = {
    0: produce.answer,
    1: fetch.answer,
    2: list_offsets.answer,
    3: metadata.answer,
    10: coordinators.answer,
    18: api_versions.answer,
    19: topic_changes.answer_create,
    20: topic_changes.answer_delete,
    22: producer_ids.answer,
    23: list_offsets.answer_epochs,
    32: configs.answer,
    60: metadata.answer_cluster,
    75: metadata.answer_topic_partitions,
}


class Dispatcher:
    """Answer the requests of all connections; called in many threads at once."""

    def __init__(self, services: Services) -> None:
        self.services = services

    def __call__(self, frame: memoryview, client: Client) -> Answer | Pending:
        """Answer one request.

        Raises:
            WireError: it is no request of an announced API. CloseConnectionError: it can have no
                answer. In both cases its connection is closed.
        """
        request = parse_request(frame, self.services.apis)
        return HANDLERS[request.key](Call(self.services, request, client))
