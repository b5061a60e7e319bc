"""Append a client's records to a log, and wait until they are replicated.

LogAppends           a broker without a cluster
cluster.serve        a broker of a cluster
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from broker.catalog.leadership import NotServedError
from broker.catalog.served_topics import ServedTopics
from broker.wire.error_codes import ErrorCode
from logstore import AppendInfo, CoordinatorFencedError, Log, LogStoreError, Subscription

NO_ACKS, LEADER_ACKS, ALL_ACKS = 0, 1, -1
COLUMNAR = (
    "the partition keeps its records in columns (record_format=columnar), which clients of Kafka "
    "cannot read; set record_format=kafka"
)
TIMED_OUT = "not all replicas have the records yet"


class Wait(Protocol):
    """A wait until all in-sync replicas have the records of one append."""

    @property
    def is_over(self) -> bool:
        """Whether the records are acknowledged, or there is an error."""

    @property
    def error(self) -> NotServedError | None:
        """The reason why the records were not acknowledged; they may still be in the log."""

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the wait may be over. `close` ends these calls."""

    def give_up(self) -> None:
        """End the wait. If the records are not acknowledged yet, set `error`."""

    def close(self) -> None:
        """Stop calling `wake`. A second call does nothing."""


class Appends(Protocol):
    """Append and delete the records of clients."""

    def append(
        self, name: str, partition: int, records: Any, acks: int, token: int | None = None
    ) -> tuple[AppendInfo, Wait | None]:
        """Append one encoded batch.

        Args:
            acks: the acks as in Kafka: 0, 1, or -1 for all in-sync replicas.
            token: permits a batch of a transaction; see `Log.transaction_token`.

        Returns:
            The offsets of the records, and a wait if the client wants to wait for other replicas.

        Raises:
            NotServedError: this broker does not accept records for the partition now.
            LogStoreError: there is no such partition, or its log refuses the records.
            ValueError: the records are not one undamaged batch.
        """

    def append_marker(
        self,
        name: str,
        partition: int,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        is_raised: bool = False,
    ) -> Wait | None:
        """Append the marker that ends a transaction in a partition.

        Args:
            is_raised: whether the epoch is higher than that of the transaction's batches. With a
                higher epoch, the log refuses a late copy of the marker that comes after the
                producer's next batch.

        Returns:
            A wait, if other in-sync replicas do not have the marker yet.

        Raises:
            NotServedError: this broker does not lead the partition.
            LogStoreError: there is no such partition, or its log refuses the marker.
        """

    def delete_before(self, name: str, partition: int, offset: int) -> Wait | None:
        """Delete the records before an offset.

        Returns:
            A wait, if other in-sync replicas still have the records.

        Raises:
            NotServedError: this broker does not lead the partition.
            LogStoreError: there is no such partition, or its log cannot be changed.
        """


class LogAppends:
    """Append to the logs of a broker without a cluster."""

    def __init__(self, topics: ServedTopics) -> None:
        self._topics = topics

    def append(
        self, name: str, partition: int, records: Any, acks: int, token: int | None = None
    ) -> tuple[AppendInfo, Wait | None]:
        """Append to the log."""
        log = self._topics.log(name, partition)
        check_format(log)
        info = log.append_encoded(records, token=token)
        if acks == ALL_ACKS and log.high_watermark <= info.last_offset:
            return info, LogWait(log, info.last_offset)
        return info, None

    def append_marker(
        self,
        name: str,
        partition: int,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        is_raised: bool = False,
    ) -> Wait | None:
        """Append to the log.

        The log may come from a cluster in which coordinators had larger epochs. Here, no other
        broker can be the coordinator. So if the log has a larger epoch, this marker gets the larger
        epoch.
        """
        log = self._topics.log(name, partition)
        check_format(log)
        append = partial(
            log.append_marker, producer_id, epoch, commit=is_commit, is_epoch_raised=is_raised
        )
        try:
            info = append(coordinator_epoch=coordinator_epoch)
        except CoordinatorFencedError as error:
            info = append(coordinator_epoch=error.current_epoch)
        return None if log.high_watermark > info.last_offset else LogWait(log, info.last_offset)

    def delete_before(self, name: str, partition: int, offset: int) -> None:
        """Delete the records before an offset. There are no other replicas to wait for."""
        self._topics.log(name, partition).delete_records_before(offset)


def check_format(log: Log) -> None:
    """Raise NotServedError if clients cannot read the records of a log."""
    if log.config.record_format != "kafka":
        raise NotServedError(code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, reason=COLUMNAR)


class LogWait:
    """Wait until all in-sync replicas have the records (see the high watermark)."""

    __slots__ = ("_last_offset", "_log", "_subscription", "error")

    def __init__(self, log: Log, last_offset: int) -> None:
        self.error: NotServedError | None = None
        self._log = log
        self._last_offset = last_offset
        self._subscription: Subscription | None = None

    @property
    def is_over(self) -> bool:
        """Whether the high watermark has passed the records, or there is an error."""
        return self._log.high_watermark > self._last_offset or self.error is not None

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the high watermark rises."""
        try:
            self._subscription = self._log.subscribe(lambda _: wake())
        except LogStoreError:  # the log dir has failed; the next check of `is_over` notices this
            wake()

    def give_up(self) -> None:
        """Set an error, unless all replicas have the records."""
        if not self.is_over:
            self.error = NotServedError(code=ErrorCode.REQUEST_TIMED_OUT, reason=TIMED_OUT)

    def close(self) -> None:
        """Stop watching."""
        if self._subscription is not None:
            self._subscription.close()
