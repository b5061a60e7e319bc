"""Serve connections: read requests, handle them one after another, send the answers.

    epoll -> a thread claims the connection -> receive -> handle -> send -> receive ...
      ^                                             |          |
      |          nothing arrives for 50 ms          |          | the client takes nothing for 50 ms
      +---------------------------------------------+----------+

A request that waits holds no thread: its connection is in the phase WAITING. This phase ends when
the request's `Pending` wakes the connection, the deadline comes, or the client hangs up. But the
delay of a failed login ends only at its deadline. A client that has only shut down its sending
direction gets all its answers, unless it exceeds a quota (`Connection.gives_up`).
"""

from __future__ import annotations

import logging
import math
import socket
import time
from functools import partial

from broker.config import BrokerConfig
from broker.machines.exchange import Client, CloseConnectionError, Handler, Pending
from broker.machines.request_times import RequestClock, RequestTimes
from broker.machines.slow_requests import SlowRequests
from broker.net.acceptor import Acceptor
from broker.net.complaint_log import ComplaintLog
from broker.net.connection import (
    RECEIVED_BYTES,
    ClientRefusedError,
    Connection,
    EndOfStreamError,
    FileFailedError,
    Phase,
)
from broker.net.listener import Listener
from broker.net.logins import FailureCounts, Logins, lateness_of
from broker.net.open_connections import OpenConnections
from broker.net.poller import GONE, HUNG_UP, ONCE, READABLE, WRITABLE, Polled, Poller
from broker.net.request_memory import RequestMemory
from broker.net.tasks import Tasks
from broker.net.workers import Workers
from broker.security.mechanisms import NOBODY, Directory
from broker.wire.byte_cursor import WireError

LOG = logging.getLogger("broker")
CUT_SECONDS = 1.0  # after a stop has cut connections, the stop waits this long for their threads


class Server:
    """The listeners, connections and threads of a broker."""

    def __init__(self, config: BrokerConfig, handler: Handler, known: Directory = NOBODY) -> None:
        """Bind the listeners; raise OSError if an address is in use, ValueError for bad files."""
        self.config = config
        self._handler = handler
        self._connections = OpenConnections()
        self._memory = RequestMemory(config, self._resume)
        self._logins = Logins(config, known)
        self._complain = ComplaintLog().warn
        self._poller = Poller(self._on_event, self._on_timer, self._on_tick)
        self._workers = Workers(config.max_worker_threads, self._poller.call_later)
        self.tasks = Tasks(self._poller, self._workers)
        self.request_times = RequestTimes()
        self.slow_requests = SlowRequests(config.slow_request_ms / 1000)
        self._is_stopping = False
        self._acceptor = Acceptor(config, self._poller, self._take, self._complain, self.tasks)
        self.listeners = self._acceptor.listeners

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def memory_bytes(self) -> int:
        """The memory that large requests have reserved."""
        return self._memory.taken_bytes

    @property
    def failures(self) -> FailureCounts:
        """How many TLS handshakes and logins have failed."""
        return self._logins.failures

    @property
    def thread_count(self) -> int:
        """The number of threads that run requests, or wait for requests."""
        return self._workers.count

    @property
    def running_count(self) -> int:
        """The number of connections that a thread owns."""
        return sum(one.phase is Phase.RUNNING for one in self._connections)

    def start(self) -> None:
        """Accept clients."""
        self._poller.start()
        self._acceptor.start()
        self._logins.watch_files(self.tasks)

    def stop(self, timeout: float) -> bool:
        """Stop accepting, answer the running requests, and close everything.

        Args:
            timeout: seconds after which the remaining connections are cut.

        Returns:
            Whether all running requests were answered. A second call does nothing.
        """
        if self._is_stopping:
            return not self._connections
        self._is_stopping = True
        self._acceptor.close()
        deadline = time.monotonic() + timeout
        for connection in self._connections:
            self._hurry(connection)
        while self._connections and (left := deadline - time.monotonic()) > 0:
            self._connections.wait_until_empty(min(left, 0.1))
            for connection in self._connections:
                self._hurry(connection)
        is_clean = not self._connections
        for connection in self._connections:
            if connection.claim(Phase.OUTPUT) is not None:
                self._close(connection)
            else:
                self._cut(connection, "the broker stops")
        self._connections.wait_until_empty(CUT_SECONDS)  # threads close the connections
        self._workers.end()
        self._poller.end()
        return is_clean

    def _hurry(self, connection: Connection) -> None:
        """Close an idle connection; if one of its requests waits, answer this request now."""
        if connection.phase is Phase.WAITING:
            self._wake(connection)
        elif connection.claim(Phase.INPUT, Phase.MEMORY) is not None:
            self._close(connection)
        elif connection.claim(Phase.MUTED) is not None:
            self._resume(connection)

    # --- events, in the poller's thread ---------------------------------------------------------

    def _on_event(self, polled: Polled, events: int) -> None:
        if isinstance(polled, Listener):
            self._acceptor.accept(polled)
            return
        assert isinstance(polled, Connection)
        if polled.phase is Phase.WAITING and events & (HUNG_UP | GONE):
            polled.is_hung_up = True
            self._wake(polled)
        elif polled.claim(Phase.INPUT, Phase.OUTPUT, Phase.MUTED) is not None:
            if events & (GONE | HUNG_UP) and not events & READABLE:
                self._close(polled)
            else:
                self._resume(polled)

    def _on_timer(self, item: object, now: float) -> None:
        if isinstance(item, Listener):
            self._acceptor.resume(item)
            return
        if isinstance(item, Workers):
            item.relieve()
            return
        if not isinstance(item, Connection):
            assert callable(item)
            self._workers.submit(item)
            return
        if item.phase is Phase.WAITING:
            self._wake(item)
            return
        phase = item.claim(Phase.INPUT, Phase.OUTPUT, Phase.MUTED, at=now)
        if phase is None:
            return
        if phase is Phase.MUTED:
            self._resume(item)
            return
        if phase is Phase.OUTPUT:
            self._complain("slow", f"{item.client.address} has stopped reading its answer")
        elif item.login_deadline <= now:
            self._refuse(item, lateness_of(item))
            return
        elif not item.splitter.is_between_frames:
            self._complain("late", f"a request of {item.client.address} does not arrive in time")
        self._close(item)

    def _on_tick(self, now: float) -> None:
        self.cut_stuck(self.config.request_stuck_ms / 1000, now)
        slowest = self._memory.slowest(now)
        if slowest is not None:
            self._cut(slowest, "its request arrives too slowly, and others wait for its memory")
        for connection in self._connections.least_reading(self.config.queued_max_request_bytes):
            self._cut(connection, "it does not read its large answer, and others do not either")

    def cut_stuck(self, seconds: float, now: float | None = None) -> None:
        """Cut connections whose requests have run for `seconds`, because a disk hangs."""
        since = (time.monotonic() if now is None else now) - seconds
        for connection in self._connections:
            if 0.0 < connection.busy_since < since:
                connection.busy_since = 0.0
                self._cut(connection, "a disk does not answer")

    def _take(self, sock: socket.socket, client: Client) -> None:
        """Serve a new client; raise OSError if the client has closed the connection."""
        connection = self._logins.begin(sock, client)
        self._connections.add(connection)
        self._poller.add(connection, ONCE)
        self._park(connection, Phase.INPUT)

    def _resume(self, connection: Connection) -> None:
        """Let a thread serve a connection that the caller owns."""
        self._workers.submit(partial(self._run, connection))

    # --- phases ---------------------------------------------------------------------------------

    def _park(self, connection: Connection, phase: Phase) -> None:
        """Release a connection until its next event; then another thread may own the connection."""
        now = time.monotonic()
        config, splitter = self.config, connection.splitter
        if phase is Phase.OUTPUT:
            deadline = connection.sent_since + config.response_progress_ms / 1000
        elif splitter.is_between_frames:
            deadline = now + config.connections_max_idle_ms / 1000
        else:
            deadline = self._memory.arrival_deadline(connection)
        self._set_deadline(connection, min(deadline, connection.login_deadline))
        connection.phase = phase
        self._poller.arm(connection, WRITABLE if phase is Phase.OUTPUT else READABLE)
        if self._is_stopping and phase is Phase.INPUT:
            self._hurry(connection)

    def _set_deadline(self, connection: Connection, deadline: float) -> None:
        self._poller.cancel(connection.timer)
        connection.deadline = deadline
        connection.timer = self._poller.set_timer(deadline, connection)

    def _wake(self, connection: Connection) -> None:
        """Let a thread check a waiting request."""
        pending = connection.pending
        if pending is not None and pending.wakeup.wake():
            connection.phase = Phase.RUNNING
            self._resume(connection)

    def _run(self, connection: Connection) -> None:
        """Serve a connection that this thread owns, until the connection waits for something."""
        try:
            self._poller.cancel(connection.timer)
            while self._step(connection):
                pass
        except (EndOfStreamError, OSError):
            self._close(connection)
        except (WireError, CloseConnectionError) as error:
            self._complain("request", f"a request of {connection.client.address}: {error}")
            self._close(connection)
        except ClientRefusedError as error:
            self._refuse(connection, str(error))
        except FileFailedError as error:
            self._complain("file", str(error))
            self._close(connection)
        except Exception:  # without this handler, the client would wait for ever
            LOG.exception("a request of %s failed", connection.client.address)
            self._close(connection)

    def _step(self, connection: Connection) -> bool:
        """Do the next step for a connection; return False if this thread no longer owns it."""
        pending = connection.pending
        if pending is not None:
            return self._look(connection, pending)
        if connection.has_output:
            return self._send(connection)
        if connection.login_deadline != math.inf or connection.client.ended:
            self._logins.follow(connection)
        if connection.client.muted_until and self._mute(connection):
            return False
        if connection.frames:
            self._handle(connection, connection.frames.popleft())
            return True
        if self._is_stopping and connection.splitter.is_between_frames:
            raise EndOfStreamError
        return self._receive(connection)

    def _mute(self, connection: Connection) -> bool:
        """If the client exceeds a quota, park the connection (KIP-219); otherwise return False."""
        until, connection.client.muted_until = connection.client.muted_until, 0.0
        now, until = time.monotonic(), min(until, connection.login_deadline)
        if until <= now or self._is_stopping:
            return False
        self._set_deadline(connection, until)
        connection.phase = Phase.MUTED
        self._poller.arm(connection, HUNG_UP if connection.gives_up(until - now) else 0)
        return time.monotonic() < until or connection.claim(Phase.MUTED) is None

    def _handle(self, connection: Connection, frame: memoryview) -> None:
        connection.busy_since = connection.client.begun_at = now = time.monotonic()
        clock = RequestClock(int.from_bytes(frame[:2]), connection.received_at, now)
        connection.clock = clock
        try:
            answer = self._handler(frame, connection.client)
        finally:
            connection.busy_since = 0.0
            del frame
            self._memory.release(connection)
        now = time.monotonic()
        if isinstance(answer, Pending):
            clock.wait(now)
            connection.pending = answer
            answer.watch(partial(self._wake, connection))
        else:
            clock.decide(now)
            connection.put(answer)
            if not answer:
                self._finish(connection, now)

    def _look(self, connection: Connection, pending: Pending) -> bool:
        """Check the waiting request; if it has an answer, put the answer into `outgoing`."""
        now = time.monotonic()
        is_left = connection.is_hung_up and pending.ends_with_client
        is_last = now >= pending.deadline or is_left or self._is_stopping
        connection.busy_since = connection.client.begun_at = now
        try:
            answer = pending.look(is_last=is_last)
        finally:
            connection.busy_since = 0.0
        if answer is not None:
            pending.wakeup.end()
            pending.close()
            connection.pending = None
            if connection.clock is not None:
                connection.clock.decide(time.monotonic())
            connection.put(answer)
            return True
        if connection.timer is None or connection.timer.item is None:
            self._set_deadline(connection, pending.deadline)
        connection.phase = Phase.WAITING
        if not connection.is_hung_up:  # without this check, the same event would come again
            self._poller.arm(connection, HUNG_UP)
        if pending.wakeup.rest():
            if self._is_stopping or time.monotonic() >= pending.deadline:
                self._wake(connection)
            return False
        connection.phase = Phase.RUNNING
        return True

    def _send(self, connection: Connection) -> bool:
        before = connection.sent_bytes
        is_done = connection.send(lambda: self._workers.is_crowded)
        now = time.monotonic()
        if not before or connection.sent_bytes != before:
            connection.sent_since = now
        if is_done:
            self._finish(connection, now)
        else:
            self._park(connection, Phase.OUTPUT)
        return is_done

    def _finish(self, connection: Connection, now: float) -> None:
        """Count an answered request; if the request was slow, log it."""
        clock, connection.clock = connection.clock, None
        if clock is not None:
            self.request_times.note(clock.key, phases := clock.phases(now))
            if text := self.slow_requests.take(clock.key, connection.client.address, phases):
                self._complain("slow request", text)

    def _receive(self, connection: Connection) -> bool:
        splitter = connection.splitter
        if splitter.missing_bytes > RECEIVED_BYTES and not connection.has_memory:
            return self._memory.reserve(connection, splitter.declared_bytes)
        was_between = splitter.is_between_frames
        if connection.receive(is_hurried=self._workers.is_crowded):
            if was_between or connection.frames:  # these bytes begin the incomplete frame
                connection.arriving_since = connection.received_at
            self._memory.check_arrival(connection)
            return True
        self._park(connection, Phase.INPUT)
        return False

    # --- the end --------------------------------------------------------------------------------

    def _refuse(self, connection: Connection, reason: str) -> None:
        """Close the connection of a client that has not logged in."""
        self._complain("login", f"{connection.client.address} is refused: {reason}")
        self._logins.count(connection)
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        """Close a connection. The calling thread must own the connection."""
        self._poller.cancel(connection.timer)
        self._poller.remove(connection)
        pending, connection.pending = connection.pending, None
        if pending is not None:
            pending.wakeup.end()
            pending.close()
        self._memory.release(connection)
        connection.close()
        if self._connections.discard(connection):
            self._acceptor.forget(connection.client)

    def _cut(self, connection: Connection, reason: str) -> None:
        """Shut down the socket of a connection. The thread that owns the connection closes it."""
        self._complain("cut", f"the connection of {connection.client.address} is cut: {reason}")
        connection.cut()
