"""Name a broker's registration, and a topic by its creation.

Both are ordered by numbers of the coordination store (zxids), which only rise. Two numbers
distinguish the incarnations of a broker:

- The *broker epoch* is the zxid at which `/brokers/ids/N` was created. It rises with each session.
- The *registration epoch* is the zxid at which `/brokers/ids/N` was last written. It also rises
  when the broker writes its registration again because one of its log dirs came back, was replaced,
  added or removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NO_BROKER = -1
NO_VERSION = -1  # the version of a state that does not exist, or was not obeyed yet
# A deleted topic gets no further state. So the version of its deletion is later than all versions
# of its state, even those that the controller has not read.
DELETED_VERSION = 2**31 - 1


class Registration(NamedTuple):
    """The registration of a live broker.

    Attributes:
        dir_epochs: the registration epoch at which each log dir was last entered. No rule of the
            controller depends on these numbers.
    """

    broker_epoch: int
    registration_epoch: int
    dir_epochs: Mapping[str, int]


class TopicIdentity(NamedTuple):
    """The identity of a topic. A topic that is created again under the same name is another topic.

    Attributes:
        topic_id: the id of the topic; "" for none.
        created: the zxid of the topic's creation. A later topic has a larger number. In a copied
            store, the same topic has another number, so only the ids decide whether topics are the
            same.
    """

    topic_id: str
    created: int

    def is_same(self, other: TopicIdentity) -> bool:
        """Check that another identity names the same topic; ignore the creation numbers."""
        return self.topic_id == other.topic_id


NO_TOPIC = TopicIdentity("", 0)
