"""Answer the requests of the controller: LeaderAndIsr, StopReplica and UpdateMetadata."""

from __future__ import annotations

from typing import Any

from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from cluster.errors import BadRequestError
from cluster.pure.attest import Host
from cluster.run.hosted_replicas import HostedReplicas
from cluster.run.metadata_cache import MetadataCache
from cluster.wire.roles import decode_roles, encode_role_answers
from cluster.wire.stops import decode_stops, encode_stop_answers


def answer_roles(message: Any, host: Host, replicas: HostedReplicas) -> Any:
    """Give replicas their roles, and answer with their facts."""
    if message.broker_epoch != host.broker_epoch:
        return LeaderAndIsrResponse(ErrorCode.STALE_BROKER_EPOCH)
    try:
        roles = decode_roles(message)
    except BadRequestError:
        return LeaderAndIsrResponse(ErrorCode.INVALID_REQUEST)
    epoch = host.registration_epoch
    answers = replicas.obey(roles)
    # The message names only one registration epoch.
    # So if the broker was registered again meanwhile, the later answers are left out.
    return encode_role_answers(epoch, [one for one in answers if one.registration_epoch == epoch])


def answer_stops(message: Any, host: Host, replicas: HostedReplicas) -> Any:
    """Delete replicas. If a row has no error, no replica is left."""
    if message.broker_epoch != host.broker_epoch:
        return StopReplicaResponse(ErrorCode.STALE_BROKER_EPOCH)
    try:
        stops = decode_stops(message)
    except BadRequestError:
        return StopReplicaResponse(ErrorCode.INVALID_REQUEST)
    return encode_stop_answers(stops, replicas.stop(stops))


def answer_update(message: Any, host: Host, metadata: MetadataCache) -> Any:
    """Update this broker's metadata from a message of the controller."""
    if message.broker_epoch != host.broker_epoch:
        return UpdateMetadataResponse(ErrorCode.STALE_BROKER_EPOCH)
    return UpdateMetadataResponse(metadata.update(message))
