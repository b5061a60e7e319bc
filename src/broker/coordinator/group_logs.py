"""Define the access of coordinators to `__consumer_offsets` and `__transaction_state`.

SoleTopic       a broker without a cluster: it coordinates everything
cluster.serve   a broker of a cluster: it coordinates what is in the partitions that it leads
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from broker.catalog.client_appends import Wait
from broker.catalog.leadership import Node
from broker.listener_config import Endpoint
from logstore import Log


class Producer(NamedTuple):
    """A producer, and the `token` with which the log accepts its transactional batch (KIP-890)."""

    id: int
    epoch: int
    token: int


class GroupLog(Protocol):
    """One partition, while this broker coordinates it without interruption."""

    @property
    def log(self) -> Log:
        """The log with the records of the groups."""

    @property
    def is_led(self) -> bool:
        """Whether this broker has coordinated the groups without interruption since `open`."""

    @property
    def is_settled(self) -> bool:
        """Whether all records are replicated, so that a change of the leader cannot lose them."""

    @property
    def epoch(self) -> int:
        """The leader epoch in which this broker coordinates; transaction markers contain it."""

    def mend(self) -> None:
        """Repair a log that a loss of power has damaged, unless replication repairs such logs."""

    def append(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamp: int
    ) -> Wait | None:
        """Append records as one batch: all of them or none.

        Returns:
            A wait, if other replicas do not have the records yet.

        Raises:
            NotServedError: if the code is NOT_ENOUGH_REPLICAS, nothing was written. With any other
                code, this broker no longer coordinates the groups.
            LogStoreError: the log refused the records, or it is unknown whether the log has them.
        """

    def append_of(
        self,
        producer: Producer,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamp: int,
    ) -> Wait | None:
        """Append records as one batch of a producer's transaction; see `append`."""


class GroupLogs(Protocol):
    """The partitions of an internal topic. Any thread may call any method."""

    @property
    def partition_count(self) -> int:
        """The number of partitions of the topic; 0 if there is no such topic."""

    def ensure(self) -> int:
        """If the topic does not exist, create it; return how many partitions it must have.

        Raises:
            LogStoreError: the topic does not exist yet.
        """

    def own(self) -> Sequence[int]:
        """List the partitions whose groups this broker coordinates."""

    def open(self, partition: int) -> GroupLog:
        """Begin to coordinate the groups of a partition. This takes no lock.

        Raises:
            CoordinatorError: another broker coordinates these groups.
            LogStoreError: there is no such partition, or its log dir does not work.
        """

    def find(self, partition: int, endpoint: Endpoint) -> Node | None:
        """Find the broker that coordinates the groups of a partition; None means this broker.

        Args:
            endpoint: the listener that the client uses.

        Raises:
            CoordinatorError: no broker coordinates these groups now.
        """
