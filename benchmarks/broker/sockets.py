"""Drive a broker over many bare sockets from one thread, with requests that were encoded before.

Such a client needs much less processor time than a broker does. So it can measure the broker's
ceiling, and can hold thousands of connections.
"""

from __future__ import annotations

import select
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable

from benchmarks.broker import raw
from benchmarks.workload import RECORD_BYTES, equal_values
from broker.wire.frames import decode_response

READ_BYTES = 1 << 18
FRAME_HEAD = struct.Struct(">i")
RECORD_HEAD_BYTES = 10  # a batch adds at most this to each record of 100 bytes
NUMBER = 7  # the correlation id of every request


class Connection:
    """One socket that sends the same request again and again, and counts the answers."""

    def __init__(self, address: str, request: bytes) -> None:
        self.client = raw.RawClient(address)
        self.socket = self.client.socket
        self.answers = self.received_bytes = 0
        self.last = bytearray()
        self._request = request
        self._unsent: deque[memoryview] = deque()
        self._missing = 0
        self._head = bytearray()
        self.socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor of the socket; epoll calls this method."""
        return self.socket.fileno()

    def ask(self) -> None:
        """Send the request once more, or as much of it as the socket takes."""
        self._unsent.append(memoryview(self._request))
        self.push()

    def push(self) -> bool:
        """Send the bytes that are left; return whether all bytes are sent."""
        try:
            while self._unsent:
                sent = self.socket.send(self._unsent[0])
                self._unsent[0] = self._unsent[0][sent:]
                if not self._unsent[0]:
                    self._unsent.popleft()
        except BlockingIOError:
            return False
        return True

    def take(self) -> int:
        """Read the bytes that have arrived; return the number of answers that became complete."""
        try:
            data = memoryview(self.socket.recv(READ_BYTES))
        except BlockingIOError:
            return 0
        if not data:
            raise ConnectionError("the broker closed a connection")
        self.received_bytes += len(data)
        complete = 0
        while data:
            if not self._missing:
                wanted = FRAME_HEAD.size - len(self._head)
                self._head += data[:wanted]
                data = data[wanted:]
                if len(self._head) == FRAME_HEAD.size:
                    (self._missing,) = FRAME_HEAD.unpack(self._head)
                    self._head.clear()
                    self.last.clear()
                continue
            piece = data[: self._missing]
            if len(self.last) < 512:
                self.last += piece[:512]
            self._missing -= len(piece)
            data = data[len(piece) :]
            complete += not self._missing
        self.answers += complete
        return complete


def drive(connections: Iterable[Connection], seconds: float, in_flight: int) -> float:
    """Keep some requests of each connection under way for a time; return the seconds taken."""
    by_number = {each.fileno(): each for each in connections}
    poller = select.epoll()
    started = time.perf_counter()
    for number, each in by_number.items():
        poller.register(number, select.EPOLLIN)
        for _ in range(in_flight):
            each.ask()
        _listen(poller, number, each.push())
    while time.perf_counter() - started < seconds:
        for number, _ in poller.poll(0.1):
            each = by_number[number]
            for _ in range(each.take()):
                each.ask()
            _listen(poller, number, each.push())
    taken = time.perf_counter() - started
    poller.close()
    return taken


def _listen(poller: select.epoll, number: int, is_all_sent: bool) -> None:
    poller.modify(number, select.EPOLLIN | (0 if is_all_sent else select.EPOLLOUT))


def _close(connections: Iterable[Connection]) -> None:
    for each in connections:
        each.socket.close()


def flood(
    address: str,
    topic: str,
    partitions: int,
    connections: int,
    in_flight: int,
    batch_bytes: int,
    seconds: float,
) -> dict[str, float]:
    """Produce a batch again and again with acks=all; return records and requests per second."""
    pool = [value for values in equal_values() for value in values]
    count = max(batch_bytes // (RECORD_BYTES + RECORD_HEAD_BYTES), 1)
    batch = raw.batch_of(pool[:count])
    asked = [
        raw.frame_of("Produce", NUMBER, **raw.produce_fields(topic, partition, batch))
        for partition in range(partitions)
    ]
    clients = [Connection(address, asked[number % partitions]) for number in range(connections)]
    taken = drive(clients, seconds, in_flight)
    for each in clients:
        if each.answers:
            _, answer = decode_response(
                raw.API_KEYS["Produce"], raw.VERSIONS["Produce"], bytes(each.last)
            )
            raw.checked(answer.responses[0].partition_responses[0].error_code)
    requests = sum(each.answers for each in clients)
    idle = sum(not each.answers for each in clients)
    _close(clients)
    return {
        "requests": requests / taken,
        "records": requests * count / taken,
        "idle": idle,
        "seconds": taken,
    }


def drain(address: str, topic: str, connections: int, seconds: float) -> dict[str, float]:
    """Fetch the beginning of a partition again and again; return bytes per second."""
    fields = raw.fetch_fields(topic, 0, 0, max_wait_ms=0)
    request = raw.frame_of("Fetch", NUMBER, **fields)
    clients = [Connection(address, request) for _ in range(connections)]
    taken = drive(clients, seconds, 2)
    received = sum(each.received_bytes for each in clients)
    _close(clients)
    return {"bytes": received / taken, "seconds": taken}


def wait(address: str, topic: str, offset: int, connections: int) -> dict[str, float]:
    """Let many consumers wait for a record; print a line when all wait; end when all got it."""
    fields = raw.fetch_fields(topic, 0, offset, max_wait_ms=300_000)
    request = raw.frame_of("Fetch", NUMBER, **fields)
    clients = []
    poller = select.epoll()
    for _ in range(connections):
        each = Connection(address, request)
        each.ask()
        poller.register(each.fileno(), select.EPOLLIN)
        clients.append(each)
    by_number = {each.fileno(): each for each in clients}
    sys.stdout.write("waiting\n")
    sys.stdout.flush()
    sys.stdin.readline()
    started = time.perf_counter()
    left = connections
    while left and time.perf_counter() - started < 60:
        for number, _ in poller.poll(1):
            left -= by_number[number].take()
    seconds = time.perf_counter() - started
    _close(clients)
    return {"unanswered": left, "seconds": seconds}
