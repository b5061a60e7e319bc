"""Keep the metadata of the cluster, which the controller sends by UpdateMetadata (6).

A controller numbers its changes. Each message says which changes it contains. The cache answers:

| the controller epoch, compared with the last one | the message | answer |
|---|---|---|
| smaller | any | STALE_CONTROLLER_EPOCH |
| the same, or larger | everything (FULL) | it is accepted; if it is late, it changes nothing |
| the same | changes that follow a change which the broker lacks | INVALID_UPDATE_VERSION |
| the same | other changes | they are accepted; if they are late, they change nothing |
| larger | changes | INVALID_UPDATE_VERSION |

After INVALID_UPDATE_VERSION, the controller sends everything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from broker.wire.error_codes import ErrorCode
from cluster.errors import BadRequestError
from cluster.view import (
    EMPTY,
    BrokerView,
    ClusterView,
    PartitionView,
    TopicView,
    updated,
)
from cluster.wire.metadata_updates import Update, decode_update

__all__ = ["BrokerView", "ClusterView", "MetadataCache", "PartitionView", "TopicView"]
LOG = logging.getLogger("cluster")
NOTHING_KNOWN = -1

ViewCallback = Callable[[ClusterView], object]


class MetadataCache:
    """The metadata of the cluster on one broker.

    Threads: any thread may call any method, and read `view`.

    Attributes:
        view: the newest view. An update replaces the whole view at once.
    """

    def __init__(self) -> None:
        """Begin without topics and brokers."""
        self.view: ClusterView = EMPTY
        self._updating = threading.Lock()  # guards the next two fields, and the writes of the view
        self._epoch = self._last_change = NOTHING_KNOWN
        self._listening = threading.Lock()  # guards the writes of the callbacks
        self._callbacks: tuple[ViewCallback, ...] = ()

    def is_in_sync(self, name: str, partition: int, broker: int) -> bool:
        """Report whether a broker is in the ISR of a partition in the newest metadata."""
        topic = self.view.topics.get(name)
        found = None if topic is None else topic.partitions.get(partition)
        return found is not None and broker in found.isr

    def lacks_replica(self, name: str, partition: int) -> bool:
        """Report whether a replica of a partition is not in sync, or may not be in sync.

        Compaction must not remove the tombstones and markers that a replica out of sync may lack.
        """
        topic = self.view.topics.get(name)
        found = None if topic is None else topic.partitions.get(partition)
        return found is None or not set(found.replicas) <= set(found.isr)

    def on_change(self, callback: ViewCallback) -> Callable[[], None]:
        """Call a function with each new view, in the order of the views.

        The callback must return soon, because the next update waits for it. The callback must not
        call `update`.

        Returns:
            A function that ends the calls of the callback.
        """
        with self._listening:
            self._callbacks = (*self._callbacks, callback)

        def end() -> None:
            with self._listening:
                self._callbacks = tuple([one for one in self._callbacks if one is not callback])

        return end

    def update(self, message: Any) -> ErrorCode:
        """Handle a message of a controller; return the answer to the message."""
        try:
            update = decode_update(message)
        except BadRequestError as error:
            LOG.warning("%s", error)
            return ErrorCode.INVALID_REQUEST
        with self._updating:
            code = self._fault_of(update)
            if code is ErrorCode.NONE and not self._is_late(update):
                self._take(update)
        return code

    def _fault_of(self, update: Update) -> ErrorCode:
        epoch = update.sender.epoch
        if epoch < self._epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if update.is_full:
            return ErrorCode.NONE
        is_next = epoch == self._epoch and update.changes_after <= self._last_change
        return ErrorCode.NONE if is_next else ErrorCode.INVALID_UPDATE_VERSION

    def _is_late(self, update: Update) -> bool:
        """Report whether all changes of an update are already known."""
        is_same = update.sender.epoch == self._epoch
        return is_same and update.last_change <= self._last_change

    def _take(self, update: Update) -> None:
        self.view = view = updated(
            self.view, update.sender.broker, update.brokers, update.topics, is_full=update.is_full
        )
        self._epoch, self._last_change = update.sender.epoch, update.last_change
        for callback in self._callbacks:
            try:
                callback(view)
            except Exception:
                LOG.exception("a callback of the metadata failed")
