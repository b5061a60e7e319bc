"""Recognise names that no topic can have, so that the broker does not keep them in memory.

Clients name topics that do not exist, and a name in a request can have 32,767 bytes. So before a
name is kept after its request, `may_exist` must accept it.
"""

from __future__ import annotations

NAME_MAX = 249  # no topic has a longer name


def may_exist(topic: str | bytes) -> bool:
    """Report whether a topic can have this name or id.

    A name or id that a topic can have needs at most 300 bytes of memory.

    A name with other characters than ASCII would need up to four times as much memory.
    """
    return isinstance(topic, bytes) or (len(topic) <= NAME_MAX and topic.isascii())
