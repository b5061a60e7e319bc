"""Name a broker's registration, and a topic by its creation.

Both are ordered by numbers of the coordination store (zxids), which only rise. Two numbers tell
the incarnations of a broker apart:

- The *broker epoch* is the zxid at which `/brokers/ids/N` was created. It rises with each session.
- The *registration epoch* is the zxid at which `/brokers/ids/N` was last written. It also rises
  when the broker writes its registration again because one of its log dirs came back, was replaced,
  added or removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NO_BROKER = -1
NO_VERSION = -1  # a state that does not exist yet, or was not obeyed yet
# A topic that was deleted gets no further state. So its deletion is later than all of its versions,
# also than one that the controller has not read.
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
    """A topic: a topic that is created again under the same name is another one.

    Attributes:
        topic_id: the id of the topic; "" for none.
        created: the zxid of the topic's creation. A later topic has a larger number. A store that
            is copied gives the same topic another number, so only the ids say what is the same.
    """

    topic_id: str
    created: int

    def is_same(self, other: TopicIdentity) -> bool:
        """Check that another identity names the same topic, whatever its creation number is."""
        return self.topic_id == other.topic_id


NO_TOPIC = TopicIdentity("", 0)
