"""Draw the ids of new members."""

from __future__ import annotations

import base64
import uuid

PREFIX_LETTERS_MAX = 255


def draw_member_id(prefix: str) -> str:
    """Return a new member id. Cut a long prefix, because the protocol limits the length."""
    return f"{prefix[:PREFIX_LETTERS_MAX]}-{uuid.uuid4()}"


def draw_uuid() -> str:
    """Return a new id for a member of the new protocol, in Kafka's form."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
