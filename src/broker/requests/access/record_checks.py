"""Check Produce and Fetch.

For speed, the handlers of Produce and Fetch call this module directly.
"""

from __future__ import annotations

from broker.authorization.authorizer import Rights
from broker.authorization.bindings import Operation
from broker.requests.access.checks import (
    NO_TOPIC,
    NO_TRANSACTIONAL_ID,
    TOPIC,
    TRANSACTIONAL_ID,
)
from broker.wire.error_codes import ErrorCode


def code_for_write(rights: Rights, transactional_id: str | None, name: str | None) -> ErrorCode:
    """Return NONE if a client may append to a topic. If no topic has the id, the name is None."""
    if transactional_id is not None and not rights.may(
        Operation.WRITE, TRANSACTIONAL_ID, transactional_id
    ):
        return NO_TRANSACTIONAL_ID
    if name is not None and not rights.may(Operation.WRITE, TOPIC, name):
        return NO_TOPIC
    return ErrorCode.NONE


def code_for_read(rights: Rights, name: str) -> ErrorCode:
    """Return NONE if a client may read the records of a topic."""
    return ErrorCode.NONE if rights.may(Operation.READ, TOPIC, name) else NO_TOPIC
