"""Fetch from one leader broker, for the followers in one log dir.

There is one thread and one connection for each pair of a leader and a log dir; they serve all
partitions of the pair. So if a leader does not answer, or a log dir hangs, no other pair waits.
Only one fetch runs at a time. A fetch confirms to the leader that the follower has all records
before its offset. So the next fetch is sent when the records of the last fetch are in the logs.

If a replica gets a new role, it does not wait for the end of the running fetch: the connection is
cut. The next fetch begins a moment later, because often several replicas get new roles one after
another. If a leader does not know its own role yet, it is asked twice more after short pauses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from broker.wire.byte_cursor import WireError
from broker.wire.error_codes import ErrorCode
from cluster.errors import BadRequestError, PeerError
from cluster.fetches.large_answers import LargeAnswer
from cluster.fetches.shares import FetchShares
from cluster.requests import FetchAnswer, FollowerFetch
from cluster.run.hosted_replica import HostedReplica
from cluster.run.peer_connection import PeerConnection, Read
from cluster.throttle.replication_throttle import ReplicationThrottle, Side
from cluster.wire import follower_fetches
from cluster.wire.follower_fetches import FetchLimits, FetchRefused, PartitionId, key_of
from logstore import LogStoreError

LOG = logging.getLogger("cluster")
BACKOFF_SECONDS = 1.0  # replica.fetch.backoff.ms
ANSWER_SECONDS = 30.0  # the time limit of an answer, in addition to the wait for records
CUT_SECONDS = 0.005  # the time between a fetch that was cut and the next fetch
# if an answer has not changed, the rules get it again only after this time
TELL_AGAIN_SECONDS = 5.0
RETRY_SECONDS = (0.03, 0.15)  # the first backoffs after a new role
# A broker answers with an error of this set if it no longer leads, or does not lead yet. Each
# election causes such answers.
ORDINARY = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
}  # fmt: skip


class Fetcher:
    """A thread that fetches from one leader for the replicas in one log dir.

    Threads: any thread may call any method.
    """

    def __init__(
        self,
        leader: int,
        name: str,
        connection: PeerConnection,
        limits: FetchLimits,
        clock: Callable[[], float],
        throttle: ReplicationThrottle,
        on_error: Callable[[PeerError], object] = lambda error: None,
    ) -> None:
        """Start the thread.

        Args:
            connection: a connection to the leader, which only this fetcher uses.
            on_error: this function is called if the leader does not answer.
        """
        self._leader = leader
        self._connection = connection
        self._limits = limits
        self._shares = FetchShares(limits)  # only the fetcher's thread uses this field
        self._clock = clock
        self._throttle = throttle
        self._on_error = on_error
        self._changed = threading.Condition()  # guards the fields that follow
        # the replicas, each with the time of its next fetch
        self._replicas: dict[HostedReplica, float] = {}
        # how often a fetch was refused since the replica got its last role
        self._refusals: dict[HostedReplica, int] = {}
        # the last answer that had no records, and its time
        self._told: dict[HostedReplica, tuple[FetchAnswer, float]] = {}
        # whether a fetch is running, and whether it was cut
        self._is_fetching = self._is_cut = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"fetch-{name}", daemon=True)
        self._thread.start()

    def add(self, replica: HostedReplica, *, is_new_role: bool = False) -> None:
        """Fetch for a replica at once, even if its backoff has not ended.

        Args:
            is_new_role: whether the replica has a new role. For a new role, the running fetch is
                cut, because this fetch names another leader epoch or does not name the replica.
        """
        with self._changed:
            self._replicas[replica] = self._clock()
            if is_new_role:
                self._refusals.pop(replica, None)
                self._told.pop(replica, None)
                if self._is_fetching:
                    self._is_fetching, self._is_cut = False, True
                    self._connection.interrupt()
            self._changed.notify_all()

    def remove(self, replica: HostedReplica) -> None:
        """Stop fetching for a replica. A running fetch may still be answered."""
        with self._changed:
            self._replicas.pop(replica, None)
            self._refusals.pop(replica, None)
            self._told.pop(replica, None)

    @property
    def count(self) -> int:
        """The number of replicas that the fetcher serves."""
        return len(self._replicas)

    def end(self) -> None:
        """Ask the thread to end. A running fetch is interrupted."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._connection.close()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (due := self._take_due()) is not None:
            try:
                self._fetch_for(due)
            except Exception:  # `_take_due` has already set the time of the next try
                LOG.exception("a fetch for %d replicas failed, and is tried again", len(due))

    def _fetch_for(self, due: list[HostedReplica]) -> None:
        """Fetch once, if a replica wants records. If the leader does not answer, report this."""
        asked = self._ask_rules(due)
        if not asked:
            return
        try:
            self._fetch(asked)
        except PeerError as error:
            if self._is_closed:
                return
            if self._take_cut():
                for one in asked.values():
                    self._make_due(one.replica)
                return
            LOG.info("no fetch for %d replicas: %s", len(due), error)
            self._on_error(error)
        except (WireError, BadRequestError) as error:
            LOG.warning("%s gave a bad answer to a fetch: %s", self._connection, error)

    def _take_due(self) -> list[HostedReplica] | None:
        """Return the replicas that may fetch now, and set their backoff; None after `end`.

        A replica may fetch before the end of its backoff in three cases: its log has changed, it
        has a new role, or a refused fetch is tried again.
        """
        with self._changed:
            self._is_fetching = False
            while not self._is_closed:
                now = self._clock()
                due = [one for one, at in self._replicas.items() if at <= now]
                if due:
                    self._replicas.update(dict.fromkeys(due, now + BACKOFF_SECONDS))
                    self._is_fetching = True
                    return due
                first = min(self._replicas.values(), default=None)
                self._changed.wait(None if first is None else first - now)
            return None

    def _make_due(self, replica: HostedReplica, seconds: float = 0.0) -> None:
        with self._changed:
            if replica in self._replicas:
                self._replicas[replica] = self._clock() + seconds

    def _make_due_soon(self, replica: HostedReplica) -> None:
        """If a leader does not know its role yet, ask it again soon, but only a few times."""
        with self._changed:
            count = self._refusals.get(replica, 0)
            self._refusals[replica] = count + 1
        if count < len(RETRY_SECONDS):
            self._make_due(replica, RETRY_SECONDS[count])

    def _take_cut(self) -> bool:
        """Report whether a new role has cut the connection. If so, wait for further roles."""
        with self._changed:
            is_cut, self._is_cut = self._is_cut, False
            if is_cut:
                self._changed.wait_for(lambda: self._is_closed, CUT_SECONDS)
        return is_cut

    def _ask_rules(self, due: list[HostedReplica]) -> dict[PartitionId, _Asked]:
        """Let the rules of each replica make a fetch. Leave out replicas that do not fetch now."""
        asked = {}
        for replica in due:
            if self._put_off(replica):
                continue
            try:
                found = replica.next_fetch()
            except LogStoreError:  # another thread hangs with the replica
                continue
            if found is not None and found[0] == self._leader:
                asked[key_of(found[1])] = _Asked(replica, found[1])
        epochs = {one.fetch.registration_epoch for one in asked.values()}
        if len(epochs) <= 1:
            return asked
        newest = max(epochs)  # the broker was registered again just now
        return {key: one for key, one in asked.items() if one.fetch.registration_epoch == newest}

    def _is_throttled(self, replica: HostedReplica) -> bool:
        return self._throttle.fetches(replica.name, replica.number)

    def _put_off(self, replica: HostedReplica) -> bool:
        """Report whether a throttled replica must wait before it fetches again (KIP-73)."""
        if not self._is_throttled(replica):
            return False
        seconds = self._throttle.wait_of(Side.FOLLOWER)
        if seconds:
            self._make_due(replica, min(seconds, BACKOFF_SECONDS))
        return bool(seconds)

    def _fetch(self, asked: dict[PartitionId, _Asked]) -> None:
        """Send one fetch. Give each replica its part of the answer."""
        fetches = {key: one.fetch for key, one in asked.items()}
        shares = self._shares.divide(fetches)
        message = follower_fetches.encode_fetches(fetches.values(), self._limits, shares)
        seconds = self._limits.wait_ms / 1000 + ANSWER_SECONDS
        sizes: dict[PartitionId, int] = {}

        def take(result: FetchAnswer | FetchRefused) -> None:
            key = key_of(result.request)
            if isinstance(result, FetchAnswer):
                sizes[key] = sizes.get(key, 0) + len(result.records or b"")
            self._take(asked[key], result)

        def read_large(read: Read, size_bytes: int, number: int) -> Any:
            return LargeAnswer(read, size_bytes, number, fetches, take).run()

        answer = self._connection.ask(
            follower_fetches.API, follower_fetches.VERSION, message, seconds, read_large
        )
        if answer.error_code:
            raise BadRequestError(reason=f"the whole fetch was refused: {answer.error_code}")
        left = {key: fetch for key, fetch in fetches.items() if key not in sizes}
        for result in follower_fetches.decode_fetch_answers(answer, left):
            take(result)
        self._shares.note(shares, sizes)

    def _take(self, asked: _Asked, result: FetchAnswer | FetchRefused) -> None:
        """Give a replica the leader's answer, and let it fetch again."""
        replica = asked.replica
        if isinstance(result, FetchRefused):
            level = logging.DEBUG if result.error in ORDINARY else logging.WARNING
            LOG.log(level, "%r: the leader answered %s", replica, result.error.name)
            if result.error in ORDINARY:
                self._make_due_soon(replica)
            return
        if result.records and self._is_throttled(replica):
            self._throttle.take(Side.FOLLOWER, len(result.records))
        if self._is_news(replica, result):
            try:
                replica.tell(result)
            except LogStoreError as error:  # another thread hangs with the replica
                LOG.info("%r does not take records now: %s", replica, error)
                return
        if _is_progress(replica, result):
            self._make_due(replica)

    def _is_news(self, replica: HostedReplica, answer: FetchAnswer) -> bool:
        """Report whether the rules must see an answer.

        The rules need not see an answer that is equal to the last answer, for an equal fetch and in
        the same role.
        """
        with self._changed:
            known = self._told.pop(replica, None)
            if answer.records or answer.diverging is not None or replica not in self._replicas:
                return True
            now, plain = self._clock(), answer._replace(records=None)
            is_known = known is not None and known[0] == plain
            if known is not None and is_known and now - known[1] < TELL_AGAIN_SECONDS:
                self._told[replica] = known
                return False
            self._told[replica] = plain, now
            return True


def _is_progress(replica: HostedReplica, answer: FetchAnswer) -> bool:
    """Report whether the log has the changes of an answer.

    If the log did not have the changes, the next fetch would be equal.
    """
    log = replica.log
    if log is None:
        return False
    is_change = bool(answer.records) or answer.diverging is not None
    before = answer.request.offset, answer.request.log_start
    return not is_change or (log.log_end_offset, replica.log_start) != before


class _Asked:
    """A fetch that was sent, and its replica."""

    __slots__ = ("fetch", "replica")

    def __init__(self, replica: HostedReplica, fetch: FollowerFetch) -> None:
        self.replica = replica
        self.fetch = fetch
