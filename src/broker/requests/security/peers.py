"""Refuse requests between brokers if their sender is not a broker."""

from __future__ import annotations

from broker.machines.exchange import Answer, CloseConnectionError
from broker.wire import messages
from broker.wire.error_codes import ErrorCode
from broker.wire.frames import Request, encode_response
from broker.wire.schemas import api_names


def refused(request: Request) -> Answer:
    """Answer with error 31, or raise CloseConnectionError if the answer has no error code."""
    name = api_names()[request.key]
    kind = getattr(messages, f"{name}Response")
    if "error_code" not in kind._fields:
        raise CloseConnectionError(f"{name} is only for brokers")
    message = kind(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return [encode_response(request.key, request.version, request.correlation_id, message)]
