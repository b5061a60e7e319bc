"""Ask ZooKeeper which session timeout it grants.

A server may change the requested timeout to a value between its `minSessionTimeout` and
`maxSessionTimeout`. So a lease that is computed from the requested timeout may be longer than the
session (P16). kazoo does not report the granted timeout. So this module opens a session only to
read this timeout, and ends the session at once.
"""

from __future__ import annotations

import socket
import struct

from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import Close, Connect

LENGTH = struct.Struct("!i")
REQUEST = struct.Struct("!ii")
ANSWER_BYTES_MAX = 1 << 16


def granted_timeout_ms(servers: str, wished_ms: int, answer_seconds: float) -> int:
    """Ask one server after another; return the session timeout that the first answer grants.

    Args:
        servers: `host:port,host:port`, without a path.

    Raises:
        OSError: no server answers; the message contains the error of the last server.
    """
    failure = OSError("no server is named")
    for host, port in collect_hosts(servers)[0]:
        try:
            with socket.create_connection((host, port), answer_seconds) as asked:
                asked.settimeout(answer_seconds)
                return _ask(asked, wished_ms)
        except (OSError, struct.error) as error:
            failure = OSError(f"{host}:{port}: {error}")
    raise failure


def _ask(asked: socket.socket, wished_ms: int) -> int:
    request = Connect(0, 0, wished_ms, 0, bytes(16), False).serialize()
    asked.sendall(LENGTH.pack(len(request)) + request)
    with asked.makefile("rb") as answers:
        (size,) = LENGTH.unpack(answers.read(LENGTH.size))
        answer, _ = Connect.deserialize(answers.read(min(max(size, 0), ANSWER_BYTES_MAX)), 0)
    asked.sendall(LENGTH.pack(REQUEST.size) + REQUEST.pack(0, Close.type))
    return int(answer.time_out)
