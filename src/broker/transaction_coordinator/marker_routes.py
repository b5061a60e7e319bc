"""Define how the markers of transactions reach the partitions.

SoleRoutes      a broker without a cluster: it leads every partition
cluster.serve   a broker of a cluster: it sends markers to the leaders of the partitions
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from broker.catalog.served_topics import ServedTopics
from broker.transactions.transaction import Place
from broker.wire.error_codes import ErrorCode

HERE = -1  # the route to this broker


class MarkerRow(NamedTuple):
    """One marker for one partition; `is_raised` is explained at `Markers`."""

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    place: Place
    is_raised: bool = False


Told = Callable[[int, ErrorCode], object]  # this is called with the number of a row, and its result


class MarkerRoutes(Protocol):
    """Find the leaders of partitions, and send markers to them. Any thread may call a method."""

    def route(self, place: Place) -> int | None:
        """Return the broker that leads a partition, or HERE; None if its topic was deleted.

        Raises:
            NotServedError: no leader is known now.
        """

    def send(self, broker: int, rows: Sequence[MarkerRow], told: Told) -> None:
        """Send markers to another broker, and wait for its answer.

        Args:
            told: is called for each row, with its result.
        """


class SoleRoutes:
    """Implement `MarkerRoutes` for a broker without a cluster."""

    def __init__(self, topics: ServedTopics) -> None:
        self._topics = topics

    def route(self, place: Place) -> int | None:
        """Return HERE, even if the log dir of the partition does not work now."""
        topic = self._topics.get(place[0])
        return HERE if topic is not None and place[1] in topic.partitions else None

    def send(self, broker: int, rows: Sequence[MarkerRow], told: Told) -> None:
        """Raise an error, because there is no other broker."""
        raise AssertionError("a broker without a cluster sends no markers")
