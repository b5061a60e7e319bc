"""Convert topic ids: in the coordination store, an id is text; in messages, it is 16 bytes."""

from __future__ import annotations

import base64

from cluster.registration import NO_TOPIC, TopicIdentity

ID_BYTES = 16


def text_of(topic_id: bytes) -> str:
    """Return the text of an id: 22 characters of base64 for URLs; "" if all bytes are zero."""
    if topic_id == bytes(ID_BYTES):
        return NO_TOPIC.topic_id
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def bytes_of(text: str) -> bytes:
    """Return the 16 bytes of an id in text form.

    Raises:
        ValueError: the text is not the id of a topic.
    """
    if text == NO_TOPIC.topic_id:
        return bytes(ID_BYTES)
    data = base64.urlsafe_b64decode(text + "==")
    if len(data) != ID_BYTES or text_of(data) != text:
        raise ValueError(f"{text!r} is no topic id")
    return data


def identity_of(topic_id: bytes, created: int = NO_TOPIC.created) -> TopicIdentity:
    """Return the identity of a topic in a message. A negative creation number means unknown."""
    return TopicIdentity(text_of(topic_id), max(created, NO_TOPIC.created))
