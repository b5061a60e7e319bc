"""Define the registration of a broker and the identity of a topic.

Registrations and topics are ordered by the zxid, a number of the coordination store that only
rises. Two numbers distinguish the incarnations of a broker:

- The *broker epoch* is the zxid at which `/brokers/ids/N` was created. Each session has a larger
  broker epoch.
- The *registration epoch* is the zxid at which `/brokers/ids/N` was last written. The registration
  epoch also rises when the broker writes its registration again, because one of its log dirs
  returned, or was replaced, added or removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NO_BROKER = -1
NO_VERSION = -1  # the version if there is no state, or if the replica has obeyed no state yet
# A deleted topic gets no further state.
# So the version of the deletion is larger than each version of the topic's states.
# This holds even if the controller has not read the latest version.
DELETED_VERSION = 2**31 - 1


class Registration(NamedTuple):
    """The registration of a live broker.

    Attributes:
        dir_epochs: for each log dir, the registration epoch of the write that last put it into the
            registration. No rule of the controller depends on `dir_epochs`.
    """

    broker_epoch: int
    registration_epoch: int
    dir_epochs: Mapping[str, int]


class TopicIdentity(NamedTuple):
    """The identity of a topic. A topic that is created again under the same name is another topic.

    Attributes:
        topic_id: the id of the topic; "" if there is none.
        created: the zxid of the topic's creation. A later topic has a larger number. In a copy of
            the store, the same topic has another number, so only the ids decide whether two topics
            are the same.
    """

    topic_id: str
    created: int

    def is_same(self, other: TopicIdentity) -> bool:
        """Check that another identity names the same topic. Ignore the creation numbers."""
        return self.topic_id == other.topic_id


NO_TOPIC = TopicIdentity("", 0)
