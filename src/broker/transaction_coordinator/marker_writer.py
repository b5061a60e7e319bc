r"""Write the markers of ended transactions; retry until each partition has its marker.

    write -> route -> this broker: append \-> another broker: one request with all markers for it
    a marker that was refused -> wait -> route again
    no marker is left         -> done

A partition whose topic was deleted needs no marker.

A partition may have a marker of a later coordinator epoch, although no other broker coordinates the
transaction. For example, the log dirs were in another cluster before. If it is certain that this
broker still coordinates the transaction, the marker gets the epoch of the partition. Otherwise, a
later coordinator has the transaction, or this broker tries again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial

from broker.catalog.leadership import NotServedError
from broker.machines.exchange import Scheduler
from broker.transaction_coordinator.marker_appends import MarkerAppends
from broker.transaction_coordinator.marker_routes import (
    HERE,
    Fenced,
    MarkerRoutes,
    MarkerRow,
    Result,
)
from broker.transactions.steps import Markers
from broker.transactions.transaction import Place
from broker.wire.error_codes import ErrorCode

LOG = logging.getLogger("broker")
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.02, 1.0  # each wait is twice as long as the previous wait
ROWS_MAX = 1000  # the most markers in one request to another broker
# After an error of this set, a partition needs no marker. The partition cannot have a marker, or it
# already has a newer epoch.
NEEDS_NONE = {
    ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_VERSION,
}  # fmt: skip


class Job:
    """The unwritten markers of one transaction; `_lock` of the writer guards this object.

    Args:
        is_wanted: whether the markers must still be written.
        is_in_charge: whether it is certain that no other broker coordinates the transaction.
        on_done: is called once, when no marker is left.
    """

    def __init__(
        self,
        markers: Markers,
        coordinator_epoch: int,
        is_wanted: Callable[[], bool],
        on_done: Callable[[], object],
        is_in_charge: Callable[[], bool] = lambda: False,
    ) -> None:
        self.markers, self.coordinator_epoch = markers, coordinator_epoch
        self.is_wanted, self.on_done = is_wanted, on_done
        self.is_in_charge = is_in_charge
        self.raised: dict[Place, int] = {}  # the later coordinator epochs of partitions
        self.left = set(markers.partitions)
        self.retry_seconds = RETRY_SECONDS

    def row(self, place: Place) -> MarkerRow:
        """Make the marker for a partition."""
        one, epoch = self.markers, self.coordinator_epoch
        if place in self.raised and self.is_in_charge():
            epoch = self.raised[place]
        return MarkerRow(one.producer_id, one.epoch, one.is_commit, epoch, place, one.is_raised)


class MarkerWriter:
    """Write markers for a coordinator.

    Threads: any thread may call `write`. `_lock` guards the queues, and is held only briefly. One
    thread at a time sends to each broker.
    """

    def __init__(self, routes: MarkerRoutes, appends: MarkerAppends) -> None:
        self._routes, self._appends = routes, appends
        self._scheduler: Scheduler | None = None
        self._clock: Callable[[], float] = lambda: 0.0
        self._lock = threading.Lock()
        self._queues: dict[int, list[tuple[Job, Place]]] = {}
        self._sending: set[int] = set()

    def start(self, scheduler: Scheduler, clock: Callable[[], float]) -> None:
        """Set the scheduler, whose threads and clock are used."""
        self._scheduler, self._clock = scheduler, clock

    def write(self, job: Job) -> None:
        """Begin to write the markers of a transaction; this never waits."""
        assert self._scheduler is not None, "the marker writer was not started"
        self._scheduler.submit(partial(self._route_all, job, tuple(job.left)))

    def _route_all(self, job: Job, places: Iterable[Place]) -> None:
        if not job.is_wanted():
            return
        late, here = [], []
        brokers: set[int] = set()
        for place in places:
            try:
                broker = self._routes.route(place)
            except NotServedError:
                late.append(place)
                continue
            except Exception:
                LOG.exception("no route to %s is known", place)
                late.append(place)
                continue
            if broker is None:
                self._finish(job, place)
            elif broker == HERE:
                here.append(place)
            else:
                brokers.add(broker)
                with self._lock:
                    self._queues.setdefault(broker, []).append((job, place))
        self._retry(job, late)
        for broker in brokers:
            self._send_soon(broker)
        for place in here:
            told = partial(self._told, job, place)
            self._appends.append_soon(job.row(place), told, job.is_wanted)

    def _send_soon(self, broker: int) -> None:
        with self._lock:
            if broker in self._sending or not self._queues.get(broker):
                return
            self._sending.add(broker)
        assert self._scheduler is not None
        self._scheduler.submit(partial(self._send, broker))

    def _send(self, broker: int) -> None:
        """Send the waiting markers for a broker, until none waits."""
        try:
            while rows := self._taken(broker):
                wanted = [(job, place) for job, place in rows if job.is_wanted()]
                self._send_some(broker, wanted)
        finally:
            with self._lock:
                self._sending.discard(broker)
        self._send_soon(broker)

    def _taken(self, broker: int) -> list[tuple[Job, Place]]:
        with self._lock:
            waiting = self._queues.pop(broker, [])
            if len(waiting) > ROWS_MAX:
                self._queues[broker] = waiting[ROWS_MAX:]
            return waiting[:ROWS_MAX]

    def _send_some(self, broker: int, rows: list[tuple[Job, Place]]) -> None:
        missing = dict(enumerate(rows))

        def told(number: int, code: Result) -> None:
            found = missing.pop(number, None)
            if found is not None:
                self._told(*found, code)

        try:
            self._routes.send(broker, [job.row(place) for job, place in rows], told)
        except Exception:
            LOG.exception("markers for broker %d were not sent", broker)
        for number in list(missing):
            told(number, ErrorCode.NETWORK_EXCEPTION)

    def _told(self, job: Job, place: Place, code: Result) -> None:
        """Take the result of one marker."""
        if code in NEEDS_NONE:
            if code:
                LOG.warning("%s needs no marker of %s: %s", place, job.markers, code)
            self._finish(job, place)
        else:
            if isinstance(code, Fenced):
                if place not in job.raised:
                    LOG.warning("%s has a marker of a later coordinator: %s", place, job.markers)
                job.raised[place] = max(code.current_epoch, job.coordinator_epoch)
            self._retry(job, [place])

    def _retry(self, job: Job, places: list[Place]) -> None:
        if not places:
            return
        assert self._scheduler is not None
        seconds = job.retry_seconds
        job.retry_seconds = min(2 * seconds, RETRY_SECONDS_MAX)
        deadline = self._clock() + seconds
        self._scheduler.call_at(deadline, partial(self._route_all, job, places))

    def _finish(self, job: Job, place: Place) -> None:
        with self._lock:
            if place not in job.left:
                return
            job.left.discard(place)
            is_done = not job.left
        if is_done:
            job.on_done()
