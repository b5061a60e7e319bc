"""Find the handler of a request by its API."""

from __future__ import annotations

from collections.abc import Callable

from broker.machines.exchange import Answer, Client, Pending
from broker.machines.repetitions import DESCRIBING, named_once
from broker.requests import (
    api_versions,
    configs,
    consumer_groups,
    coordinators,
    fetch,
    group_admin,
    group_offsets,
    groups,
    list_offsets,
    metadata,
    produce,
    producer_ids,
    topic_changes,
)
from broker.requests.access.guard import answer_broker, answer_checked
from broker.requests.admin import (
    acls,
    config_changes,
    features,
    log_dirs,
    partitions,
    quotas,
    reassignments,
)
from broker.requests.security import logins, scram_users
from broker.requests.services import Call, Services
from broker.requests.transactions import changes, descriptions, markers, offset_commits
from broker.wire.frames import parse_request

HANDLERS: dict[int, Callable[[Call], Answer | Pending]] = {
    0: produce.answer,
    1: fetch.answer,
    2: list_offsets.answer,
    3: metadata.answer,
    8: group_offsets.answer_commit,
    9: group_offsets.answer_fetch,
    10: coordinators.answer,
    11: groups.answer_join,
    12: groups.answer_heartbeat,
    13: groups.answer_leave,
    14: groups.answer_sync,
    15: group_admin.answer_describe,
    16: group_admin.answer_list,
    17: logins.answer_handshake,
    18: api_versions.answer,
    19: topic_changes.answer_create,
    20: topic_changes.answer_delete,
    21: partitions.answer_delete_records,
    22: producer_ids.answer,
    23: list_offsets.answer_epochs,
    24: changes.answer_add,
    25: changes.answer_add_offsets,
    26: changes.answer_end,
    27: markers.answer,
    28: offset_commits.answer,
    29: acls.answer_describe,
    30: acls.answer_create,
    31: acls.answer_delete,
    32: configs.answer,
    33: config_changes.answer_alter,
    34: log_dirs.answer_alter,
    35: log_dirs.answer_describe,
    36: logins.answer_authenticate,
    37: partitions.answer_create,
    42: group_admin.answer_delete,
    43: reassignments.answer_elect,
    44: config_changes.answer_incremental,
    45: reassignments.answer_alter,
    46: reassignments.answer_list,
    47: group_offsets.answer_delete,
    48: quotas.answer_describe,
    49: quotas.answer_alter,
    50: scram_users.answer_describe,
    51: scram_users.answer_alter,
    57: features.answer,
    60: metadata.answer_cluster,
    61: descriptions.answer_producers,
    65: descriptions.answer_describe,
    66: descriptions.answer_list,
    68: consumer_groups.answer_heartbeat,
    69: consumer_groups.answer_describe,
    74: config_changes.answer_list,
    75: metadata.answer_topic_partitions,
}


class Dispatcher:
    """Answer the requests of all connections, in many threads at the same time."""

    def __init__(self, services: Services) -> None:
        self.services = services

    def __call__(self, frame: memoryview, client: Client) -> Answer | Pending:
        """Answer one request.

        Raises:
            WireError: the bytes are not a request of an announced API.
            CloseConnectionError: the request cannot be answered. After either error, the connection
                must be closed.
        """
        services = self.services
        request = parse_request(frame, services.apis)
        logins.check_permitted(request, client, services.clock())
        if request.key in DESCRIBING:
            request.decoded = named_once(request.key, request.message())
        call = Call(services, request, client, services.rights_of(client, request.key))
        is_from_peer = request.key in services.peer_handlers
        if is_from_peer:
            answer = answer_broker(call, services.peer_handlers[request.key])
        else:
            handler = HANDLERS[request.key]
            answer = handler(call) if services.acls is None else answer_checked(call, handler)
        if isinstance(answer, Pending):
            request.drop_body()  # the memory of a request is not counted while the request waits
            if not is_from_peer:
                call.charge_time()
        return answer
