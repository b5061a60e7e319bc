"""Check the requests of idempotent and transactional producers."""

from __future__ import annotations

from typing import Any

from broker.authorization.bindings import Operation
from broker.requests.access.checks import (
    CLUSTER,
    NO_CLUSTER,
    NO_TRANSACTIONAL_ID,
    TOPIC,
    TRANSACTIONAL_ID,
    Asking,
    Checked,
    Refused,
)
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import InitProducerIdResponse


def check_producer_id(asked: Any, asking: Asking) -> Checked | Refused:
    """Give an id to a client that may append to some topic, or may be an idempotent producer."""
    if asked.transactional_id is not None:
        is_allowed = asking.may(Operation.WRITE, TRANSACTIONAL_ID, asked.transactional_id)
        return Checked(asked) if is_allowed else _no_id(NO_TRANSACTIONAL_ID)
    if asking.rights.sees_any(Operation.WRITE, TOPIC) or asking.may(
        Operation.IDEMPOTENT_WRITE, CLUSTER
    ):
        return Checked(asked)
    return _no_id(NO_CLUSTER)


def _no_id(code: ErrorCode) -> Refused:
    return Refused(InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))
