"""Define how the coordinator reaches the partitions of `__consumer_offsets`.

OffsetsTopic    a broker without a cluster: it coordinates all groups
cluster.serve   a broker of a cluster: it coordinates the groups of the partitions that it leads
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.catalog.client_appends import Wait
from broker.catalog.leadership import Node
from broker.listener_config import Endpoint
from logstore import Log


class GroupLog(Protocol):
    """One partition, for as long as this broker coordinates its groups without a break."""

    @property
    def log(self) -> Log:
        """The log with the records of the groups."""

    @property
    def is_led(self) -> bool:
        """Whether this broker still coordinates the groups, without a break since `open`."""

    @property
    def is_settled(self) -> bool:
        """Whether no record of the log can be lost by a change of the leader."""

    def mend(self) -> None:
        """Repair a log that a power cut has damaged, if this is the coordinator's task."""

    def append(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamp: int
    ) -> Wait | None:
        """Append records as one batch: all of them or none.

        Returns:
            A wait, if other replicas do not have the records yet.

        Raises:
            NotServedError: with NOT_ENOUGH_REPLICAS, nothing was written; otherwise, this broker
                does not coordinate the groups any more.
            LogStoreError: the log refused the records, or it is not known whether it has them.
        """


class GroupLogs(Protocol):
    """The partitions of `__consumer_offsets`. Any thread may call any method."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or 0 if there is no such topic."""

    def ensure(self) -> int:
        """Create the topic if it does not exist; return how many partitions it must have.

        Raises:
            LogStoreError: the topic does not exist yet.
        """

    def own(self) -> Sequence[int]:
        """List the partitions whose groups this broker coordinates."""

    def open(self, partition: int) -> GroupLog:
        """Begin to coordinate the groups of a partition. This method takes no lock.

        Raises:
            CoordinatorError: another broker coordinates these groups.
            LogStoreError: there is no such partition, or its log dir does not serve.
        """

    def find(self, partition: int, endpoint: Endpoint) -> Node | None:
        """Find the broker that coordinates the groups of a partition; None means this broker.

        Args:
            endpoint: the listener that the client uses.

        Raises:
            CoordinatorError: no broker coordinates them now.
        """
