"""Answer Fetch (1): return records as ranges of files, and wait if there are too few records.

    open the session -> read each partition -> enough? -> answer
                          ^                     |
                          +-- a log changes <---+ subscribe, wait

The first partition with records returns at least one batch, even if the batch is larger than the
limits of the request and the partition. Any further batches must fit into the limits of the request
and of the partition. A batch is never cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from broker.catalog.client_appends import check_format
from broker.catalog.leadership import NotServedError, Reading, Watch
from broker.machines.exchange import Answer, Pending, Piece
from broker.machines.fetch_sessions import Key, Opened, Result, Wanted, size_of
from broker.quotas.quotas import FETCH
from broker.requests.access.record_checks import code_for_read
from broker.requests.failures import code_of
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.fetch import FileRange, decode_fetch, split_response
from broker.wire.messages import FetchResponse
from logstore import FileRange as LogRange
from logstore import Log, LogStoreError, OffsetOutOfRangeError

BY_ID = 13  # the first version that names topics by their ids
STORAGE_ERROR_FROM = 6  # earlier versions do not know error 56
READ_COMMITTED = 1
# Kafka's replica id for tools that compare replicas.
# A request with this id reads any replica, and never waits.
COMPARING = -2
LEVELS = {0: "read_replicated", READ_COMMITTED: "read_committed"}
NO_EPOCH = -1
LEADERS_FROM = 16  # the first version whose answer names new leaders
ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Data = FetchResponse.PartitionData
Leader = FetchResponse.LeaderIdAndEpoch
Aborted = FetchResponse.AbortedTransaction


def answer(call: Call) -> Answer | Pending:
    """Read the partitions of a request."""
    services, version = call.services, call.request.version
    asked = decode_fetch(call.request.body, version)
    if services.answer_follower is not None and is_follower(asked):
        if not call.is_from_broker():
            return call.answer(FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return services.answer_follower(call.request, asked)
    is_by_id = version >= BY_ID
    wanted: list[Wanted] = [
        ((topic.topic_id if is_by_id else topic.topic, one.partition), one)
        for topic in asked.topics
        for one in topic.partitions
    ]
    forgotten: list[Key] = [
        (topic.topic_id if is_by_id else topic.topic, number)
        for topic in asked.forgotten_topics_data
        for number in topic.partitions
    ]
    with services.sessions_lock:
        opened = services.sessions.open(
            asked.session_id, asked.session_epoch, wanted, forgotten,
            is_by_id=is_by_id, now=services.clock(),
        )  # fmt: skip
    if opened.error:
        return split_response(version, call.request.correlation_id, FetchResponse(0, opened.error))
    fetch = _Fetch(call, asked, opened)
    fetch.read()
    if fetch.is_complete:
        return fetch.answer()
    return _WaitingFetch(fetch, services.clock() + asked.max_wait_ms / 1000)


def is_follower(asked: Any) -> bool:
    """Report whether the request is from a follower. The id of a broker is not negative."""
    return bool(asked.replica_id >= 0 or asked.replica_state.replica_id >= 0)


def is_comparing(asked: Any) -> bool:
    """Report whether the request is from a tool that compares replicas."""
    return COMPARING in (asked.replica_id, asked.replica_state.replica_id)


class _Fetch:
    """A Fetch request, and the results of the latest read of the logs.

    Attributes:
        results: the results of the latest read, in the order of the request or the session.
        is_complete: whether the request must be answered now.
    """

    def __init__(self, call: Call, asked: Any, opened: Opened) -> None:
        self._call = call
        # A waiting request must not keep the partitions that the client named several times.
        self._asked = asked._replace(topics=(), forgotten_topics_data=())
        self._opened = opened
        self.results: list[Result] = []
        self.is_complete = False
        self._leaders: set[int] = set()  # the leaders that the answer names
        self._is_comparing = is_comparing(asked)

    def watch(self, wake: Callable[[], None]) -> list[Watch]:
        """Call `wake` after each change of the logs for which the request waits."""
        watches = []
        for key, _ in self._opened.partitions:
            name = self._name_of(key[0])
            if name is not None:
                try:
                    watches.append(self._call.services.leadership.watch(name, key[1], wake))
                except LogStoreError:  # the log dir has failed; the next read notices this
                    wake()
        return watches

    def read(self) -> None:
        """Read all partitions, and decide whether to answer."""
        services, asked = self._call.services, self._asked
        left = min(asked.max_bytes, services.config.fetch_max_bytes)
        min_bytes, burst = asked.min_bytes, self._call.burst(FETCH)
        if burst is not None:
            # A batch is never cut, so an answer may stay below the limit.
            # Half of the limit must be enough.
            left, min_bytes = min(left, burst), min(min_bytes, burst // 2)
        read_bytes, is_final, results = 0, False, []
        for key, wanted in self._opened.partitions:
            data = self._read_one(key, wanted, left, is_first=not read_bytes)
            size = size_of(data.records)
            left -= size
            read_bytes += size
            is_final = is_final or bool(data.error_code) or data.diverging_epoch.epoch >= 0
            is_final = is_final or data.preferred_read_replica >= 0
            results.append((key, data))
        self.results = results
        self.is_complete = (
            is_final
            or read_bytes >= min_bytes
            or asked.max_wait_ms <= 0
            or self._is_comparing
            or not self._opened.partitions
        )

    def answer(self) -> Answer:
        """Encode the results of the latest read."""
        services, request = self._call.services, self._call.request
        with services.sessions_lock:
            session_id, results = services.sessions.answer(
                self._opened, self.results, services.clock()
            )
        sent_bytes = 0
        for _, data in results:
            if isinstance(data.records, FileRange):
                services.traffic.read(data.records.file.topic, data.records.size_bytes)
                sent_bytes += data.records.size_bytes
        self._call.charge(FETCH, sent_bytes)
        is_by_id = request.version >= BY_ID
        Topic = FetchResponse.FetchableTopicResponse  # noqa: N806 - a class
        topics = []
        for name, rows in groupby(results, key=lambda result: result[0][0]):
            partitions = [data for _, data in rows]
            named = {"topic_id" if is_by_id else "topic": name}
            topics.append(Topic(**named, partitions=partitions))
        nodes = [
            FetchResponse.NodeEndpoint(*node)
            for node in (
                services.leadership.nodes(self._call.client.endpoint) if self._leaders else ()
            )
            if node.id in self._leaders
        ]
        response = FetchResponse(
            self._call.throttle_ms(), ErrorCode.NONE, session_id, topics, node_endpoints=nodes
        )
        pieces: Sequence[Piece] = split_response(request.version, request.correlation_id, response)
        return list(pieces)

    def forget(self) -> None:
        """Release the files of the latest read."""
        self.results = []

    def _name_of(self, topic: str | bytes) -> str | None:
        """Find the name of a topic; None if no topic has the id."""
        if isinstance(topic, str):
            return topic
        return self._call.services.topics.name_of(topic)

    def _read_one(self, key: Key, wanted: Any, left: int, *, is_first: bool) -> Any:
        """Read one partition; an error is part of the result."""
        services = self._call.services
        is_known = services.topics.is_known
        name = self._name_of(key[0])
        if name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if is_known else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return _failed(key, code)
        code = code_for_read(self._call.rights, name)
        if code:
            return _failed(key, code)
        try:
            reading = self._reading_of(name, wanted)
            check_format(reading.log)
            return self._read_log(reading, wanted, left, is_first=is_first)
        except NotServedError as error:
            return self._not_served(key, name, error)
        except LogStoreError as error:
            code = code_of(error)
            services.traffic.refused(name, is_fetch=True)
            old = self._call.request.version < STORAGE_ERROR_FROM
            if code is ErrorCode.KAFKA_STORAGE_ERROR and old:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return _failed(key, code)

    def _reading_of(self, name: str, wanted: Any) -> Reading:
        leadership = self._call.services.leadership
        if self._is_comparing:
            return Reading(leadership.replica_log(name, wanted.partition))
        rack = self._asked.rack_id  # "" before version 11
        epoch = wanted.current_leader_epoch
        return leadership.log_for_rack(name, wanted.partition, epoch, rack)

    def _not_served(self, key: Key, name: str, error: NotServedError) -> Any:
        """Refuse a partition. If another broker leads the partition, name that broker (KIP-951)."""
        data = _failed(key, error.code)
        if error.code not in ELSEWHERE or self._call.request.version < LEADERS_FROM:
            return data
        leader = self._call.services.leadership.leader_of(name, key[1])
        self._leaders.add(leader.id)
        return data._replace(current_leader=Leader(*leader))

    def _read_log(self, reading: Reading, wanted: Any, left: int, *, is_first: bool) -> Any:
        log, number = reading.log, wanted.partition
        end = log.log_end_offset
        if reading.is_following and wanted.fetch_offset > end:
            # the follower will soon have these records
            return _failed((None, number), ErrorCode.OFFSET_NOT_AVAILABLE)
        diverging = _diverging_epoch(reading, wanted)
        is_committed = self._asked.isolation_level == READ_COMMITTED
        data = Data(
            number, ErrorCode.NONE, log.high_watermark, log.last_stable_offset,
            log.log_start_offset, records=b"",
            aborted_transactions=() if is_committed else None,
        )  # fmt: skip
        if diverging is not None:
            return data._replace(diverging_epoch=diverging)
        if reading.preferred >= 0 and log.log_start_offset <= wanted.fetch_offset <= end:
            return data._replace(preferred_read_replica=reading.preferred)
        limit = min(wanted.partition_max_bytes, left)
        # If there is no room for any byte, the read only checks whether the offset exists.
        level = LEVELS.get(self._asked.isolation_level, LEVELS[0])
        offset, max_bytes = wanted.fetch_offset, max(limit, 1)
        rows: list[tuple[int, int]] = []
        try:
            if is_committed:
                found, rows = log.read_committed_range(offset, max_bytes)
            else:
                found = log.read_range(offset, max_bytes, isolation_level=level)
        except OffsetOutOfRangeError:
            if self._is_comparing:  # the fields of `data` show to the tool which offsets exist
                return data._replace(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            raise
        if not found.size_bytes or (found.size_bytes > limit and not is_first):
            found.close()
            return data
        if is_committed:
            data = data._replace(aborted_transactions=[Aborted(*row) for row in rows])
        sent = SentRange(log, found)
        return data._replace(records=FileRange(sent, found.position, found.size_bytes))


class SentRange:
    """A range of a file of a log that is being sent."""

    def __init__(self, log: Log, found: LogRange) -> None:
        """Take a range from the log. The sender closes the range."""
        self._log = log
        self._found = found
        self.topic = log.topic
        self.fileno = found.fileno
        self.close = found.close

    def failed(self) -> None:
        """Read the range through the log; if the read fails, the log takes its log dir OFFLINE."""
        with suppress(LogStoreError):
            self._log.read_raw(self._found.first_offset, self._found.size_bytes)


def end_of_epoch(reading: Reading, epoch: int) -> tuple[int, int]:
    """Return the log's largest leader epoch up to `epoch`, and the offset at which it ends.

    If the log has only later epochs, the records of `epoch` were deleted. The deleted records ended
    where the log's first epoch begins. (-1, -1) means that no leader has had this epoch.
    """
    log, present = reading.log, max(reading.leader_epoch, reading.log.leader_epoch)
    if not 0 <= epoch <= present:
        return NO_EPOCH, NO_EPOCH
    if epoch == present:  # the leader may have no record of its epoch yet
        return epoch, log.log_end_offset
    found, end_offset = log.end_offset_for_epoch(epoch)
    if end_offset < 0:
        epochs = log.leader_epochs
        end_offset = epochs[0][1] if epochs else log.log_end_offset
    return found if found >= 0 else epoch, end_offset  # batches may have no epoch


def _diverging_epoch(reading: Reading, wanted: Any) -> Any:
    """Return where a reader's last epoch ends in the log; return None if reader and log agree.

    Raises:
        OffsetOutOfRangeError: no leader has had the reader's epoch, or the log begins after the
            reader's offset. With such an epoch or offset, the log does not show where the reader
            and the log diverge.
    """
    known, offset = wanted.last_fetched_epoch, wanted.fetch_offset
    if known <= NO_EPOCH:
        return None
    log, (epoch, end_offset) = reading.log, end_of_epoch(reading, known)
    if end_offset < 0 or offset < log.log_start_offset:
        raise OffsetOutOfRangeError(
            offset=offset,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            topic=log.topic,
            partition=log.partition,
        )
    if epoch == known and end_offset >= offset:
        return None
    return FetchResponse.EpochEndOffset(epoch, end_offset)


def _failed(key: tuple[Any, int], code: ErrorCode) -> Any:
    return Data(key[1], code, -1, -1, -1, records=b"", aborted_transactions=None)


class _WaitingFetch(Pending):
    """A Fetch request that waits for more records."""

    def __init__(self, fetch: _Fetch, deadline: float) -> None:
        super().__init__(deadline)
        self._fetch = fetch
        self._watches: list[Watch] = []
        fetch.forget()

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when a log changes, or when this broker no longer leads a partition."""
        self._watches = self._fetch.watch(wake)

    def look(self, *, is_last: bool) -> Answer | None:
        """Read again. Answer if there are enough records, or if the time is over."""
        self._fetch.read()
        if is_last or self._fetch.is_complete:
            return self._fetch.answer()
        self._fetch.forget()
        return None

    def close(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            watch.close()
        self._watches = []
