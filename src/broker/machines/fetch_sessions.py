"""Remember which partitions a client fetches, so that a request can leave them out (KIP-227).

    session id   epoch   meaning
    0            -1      no session: the request and the answer name every partition
    0 or any     0       make a new session of the partitions that the request names
    id           n       the session's partitions, with the changes that the request names; the
                         answer leaves out the partitions that did not change
    id           -1      close the session; this request names every partition

If a request names a partition twice, the second entry is used. If a request both names and forgets
a partition, the session forgets the partition, as in Kafka.

The broker may always answer with session id 0. Then the next request of the client names every
partition again. So if the cache is full, the broker can refuse a new session. Before a refusal, the
broker tries to make room. If the least recently used session was not used for `age_min` seconds,
the broker closes this session.

A session does not keep names that no topic can have, because such a name can be long. A client that
names a topic which cannot exist gets no session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from broker.machines.topic_keys import may_exist
from broker.wire.error_codes import ErrorCode

NO_SESSION, NEW_SESSION, CLOSE_SESSION = 0, 0, -1
EPOCH_MAX = 2**31 - 1
AGE_MIN_SECONDS = 120.0
PARTITIONS_MAX = 500_000  # the limit of all sessions together: 200 MB, or 500 MB with long names

Key = tuple[str | bytes, int]  # a topic's name or id, and a partition
Wanted = tuple[Key, Any]  # a partition, and the FetchPartition that the client sent
Result = tuple[Key, Any]  # a partition, and the PartitionData of the answer


class _Partition:
    """The last request and the last answer of a session for one partition."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: Any) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1


class Session:
    """The partitions of one client, in the order in which they are served next."""

    __slots__ = ("epoch", "id", "is_by_id", "partitions", "used")

    def __init__(self, number: int, is_by_id: bool, now: float) -> None:
        self.id = number
        self.epoch = 1  # the epoch of the next request
        self.is_by_id = is_by_id
        self.partitions: OrderedDict[Key, _Partition] = OrderedDict()
        self.used = now

    def take(self, result: Result) -> bool:
        """Keep the result of a partition; return whether the answer must contain this result."""
        key, data = result
        known = self.partitions.get(key)
        if known is None:  # the client has removed the partition in the meantime
            return True
        is_changed = bool(
            data.error_code
            or data.records is None
            or known.high_watermark != data.high_watermark
            or known.log_start_offset != data.log_start_offset
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )
        has_records = data.records is not None and size_of(data.records) > 0
        # A result with an error has the high watermark -1, so the next good result is a change.
        known.high_watermark = data.high_watermark
        known.log_start_offset = data.log_start_offset
        if has_records:
            self.partitions.move_to_end(key)  # the next answer begins with other partitions
        return is_changed or has_records


def size_of(records: Any) -> int:
    """Return the size of records, which are bytes or a range of a file."""
    size_bytes = getattr(records, "size_bytes", None)
    return len(records) if size_bytes is None else int(size_bytes)


def _may_be_kept(wanted: Iterable[Wanted]) -> bool:
    """Report whether a session may keep these partitions."""
    return all(may_exist(topic) for (topic, _), _ in wanted)


class Opened(NamedTuple):
    """The partitions to fetch for one request, and the form of the answer.

    Attributes:
        error: the error of the whole request. If there is an error, `partitions` is empty.
        is_full: whether the answer names every partition.
        session: the session of the request; None if the request has no session, or begins a new
            session.
        is_new: whether the answer must begin a new session.
    """

    error: ErrorCode
    partitions: Sequence[Wanted]
    is_full: bool = True
    session: Session | None = None
    is_new: bool = False
    is_by_id: bool = False


class FetchSessions:
    """All sessions of a broker. The caller must hold a lock during each call.

    Args:
        draw: a function that returns a random session id from 1 to 2^31 - 1.
    """

    def __init__(
        self,
        slots: int,
        draw: Callable[[], int],
        age_min: float = AGE_MIN_SECONDS,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self.slots = slots
        self.age_min = age_min
        self.partitions_max = partitions_max
        self.partition_count = 0
        self._draw = draw
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # the oldest use comes first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        session_id: int,
        epoch: int,
        wanted: Sequence[Wanted],
        forgotten: Iterable[Key],
        *,
        is_by_id: bool,
        now: float,
    ) -> Opened:
        """Begin a request: find the partitions that it fetches."""
        if epoch in (NEW_SESSION, CLOSE_SESSION):
            if session_id != NO_SESSION:
                self._close(session_id)
            is_new = epoch == NEW_SESSION and bool(wanted) and _may_be_kept(wanted)
            partitions = list(dict(wanted).items())
            return Opened(ErrorCode.NONE, partitions, is_new=is_new, is_by_id=is_by_id)
        session = self._sessions.get(session_id)
        if session is None:
            return Opened(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())
        if session.epoch != epoch:
            return Opened(ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())
        if session.is_by_id != is_by_id:
            return Opened(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ())
        if not (_may_be_kept(wanted) and self._change(session, wanted, forgotten)):
            self._close(session_id)  # the next request of the client names all partitions
            return Opened(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())
        if not session.partitions:
            self._close(session_id)
            return Opened(ErrorCode.NONE, list(dict(wanted).items()))
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used = now
        self._sessions.move_to_end(session_id)
        kept = [(key, known.wanted) for key, known in session.partitions.items()]
        return Opened(ErrorCode.NONE, kept, is_full=False, session=session)

    def answer(
        self, opened: Opened, results: Sequence[Result], now: float
    ) -> tuple[int, Sequence[Result]]:
        """End a request: return the session id and the results that the answer contains."""
        session = opened.session
        if session is not None:
            return session.id, [result for result in results if session.take(result)]
        if not opened.is_new or not self._has_room(len(opened.partitions), now):
            return NO_SESSION, results
        session = Session(self._new_id(), opened.is_by_id, now)
        self._sessions[session.id] = session
        self._change(session, opened.partitions, ())
        for result in results:
            session.take(result)
        return session.id, results

    def _change(self, session: Session, wanted: Iterable[Wanted], forgotten: Iterable[Key]) -> bool:
        """Change the partitions of a session; return False if it has too many of them now."""
        partitions = session.partitions
        before = len(partitions)
        for key, request in wanted:
            known = partitions.get(key)
            if known is not None:
                known.wanted = request
            else:
                partitions[key] = _Partition(request)
        for key in forgotten:
            partitions.pop(key, None)
        self.partition_count += len(partitions) - before
        return self.partition_count <= self.partitions_max

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def _has_room(self, partitions: int, now: float) -> bool:
        """Report whether there is room for a session. If necessary, close an unused session."""
        is_crowded = self.partition_count + partitions > self.partitions_max
        if len(self._sessions) >= self.slots or is_crowded:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used < self.age_min:
                return False
            self._close(oldest.id)
        return self.partition_count + partitions <= self.partitions_max

    def _new_id(self) -> int:
        while True:
            number = self._draw()
            if number not in self._sessions and number != NO_SESSION:
                return number
