"""Attack the page of a broker from a process of its own.

`python -m support.page_hammer PORT SECONDS` does so. All connections go to 127.0.0.1.
It prints how many of each kind it made, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

THREADS = 40
TIMEOUT_SECONDS = 3.0
HOST = b"Host: 127.0.0.1\r\n"


def page(client: socket.socket, draw: random.Random) -> None:
    """Ask for a page that nobody has asked for before."""
    path = draw.choice(["partitions", "topics", "groups", "", "api/v1/partitions"])
    query = f"search={draw.randrange(10**6)}" if draw.random() < 0.7 else "size=1000"
    client.sendall(b"GET /%b?%b HTTP/1.1\r\n%b\r\n" % (path.encode(), query.encode(), HOST))
    while client.recv(1 << 16):
        pass


def slow(client: socket.socket, draw: random.Random) -> None:
    """Send a byte now and then."""
    pause = threading.Event()
    for _ in range(30):
        client.sendall(b"x")
        pause.wait(0.1)


def deaf(client: socket.socket, draw: random.Random) -> None:
    """Ask for much, and read nothing."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    client.sendall(b"GET /api/v1/partitions?size=1000 HTTP/1.1\r\n%b\r\n" % HOST)
    threading.Event().wait(TIMEOUT_SECONDS)


def huge(client: socket.socket, draw: random.Random) -> None:
    """Send headers without end."""
    for _ in range(1000):
        client.sendall(b"A: " + b"x" * 4000 + b"\r\n")


def wrong(client: socket.socket, draw: random.Random) -> None:
    """Send what is no request, or one that is refused."""
    heads = [b"POST / HTTP/1.1", b"GET /../../etc/passwd HTTP/1.1", b"GET / HTTP/9", b"\x00" * 99]
    client.sendall(draw.choice(heads) + b"\r\nHost: evil\r\n\r\n")
    while client.recv(1 << 16):
        pass


ATTACKS: list[Callable[[socket.socket, random.Random], None]] = [
    page,
    page,
    slow,
    deaf,
    huge,
    wrong,
]


def attack(port: int, until: float, seed: int, made: Counter[str]) -> None:
    """Make one connection after another."""
    draw = random.Random(seed)
    while time.monotonic() < until:
        kind = draw.choice(ATTACKS)
        name = kind.__name__
        try:
            client = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        except OSError:
            name = "not accepted"
        else:
            with client, contextlib.suppress(OSError):
                kind(client, draw)
        made[name] += 1


def main(port: int, seconds: float) -> None:
    """Attack for some seconds."""
    made: Counter[str] = Counter()
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=attack, args=(port, until, seed, made)) for seed in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(made))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
