"""Decide which connections and requests of the page are served, without any I/O.

The following limits prevent a client of the page from using too much processor time or memory:

    CONNECTIONS_MAX           connections that are open at the same time; others wait in the kernel
    CONNECTION_SECONDS        the longest life of a connection, even if its bytes come slowly
    CROWDED_SECONDS           the longest life while CONNECTIONS_MAX connections are open
    CONNECTIONS_PER_SECOND    how many new connections are accepted, after a burst of BURST
    HEAD_BYTES_MAX            the size of the head of a request; no request has a body
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

CONNECTIONS_MAX = 16
CONNECTION_SECONDS, CROWDED_SECONDS = 10.0, 1.0
CONNECTIONS_PER_SECOND, BURST = 20.0, 40
HEAD_BYTES_MAX = 8 << 10
METHODS = ("GET", "HEAD")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OK, BAD_REQUEST, METHOD_NOT_ALLOWED, MISDIRECTED = 200, 400, 405, 421


class Pace:
    """Spread accepted connections over time. Each connection takes one token from a bucket."""

    def __init__(self, now: float) -> None:
        self._tokens, self._at = float(BURST), now

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the next connection may be accepted; 0.0 means now."""
        self._tokens = min(self._tokens + (now - self._at) * CONNECTIONS_PER_SECOND, float(BURST))
        self._at = now
        return max(0.0, (1.0 - self._tokens) / CONNECTIONS_PER_SECOND)

    def take(self) -> None:
        """Count an accepted connection."""
        self._tokens -= 1.0


def age_max(count: int) -> float:
    """Return the longest life of a connection while `count` connections are open."""
    return CROWDED_SECONDS if count >= CONNECTIONS_MAX else CONNECTION_SECONDS


def allowed_names(listener_host: str, others: str) -> frozenset[str]:
    """List the hosts that the header Host may name.

    Args:
        others: the names that the operator allows, separated by commas.
    """
    names = {one.strip().strip("[]").lower() for one in others.split(",") if one.strip()}
    return frozenset({*LOOPBACK_NAMES, *names, listener_host.strip("[]").lower()} - {""})


def host_of(header: str) -> str:
    """Return the name in a header Host, without port and brackets."""
    header = header.strip().lower()
    if header.startswith("["):
        name, bracket, rest = header[1:].partition("]")
        return name if bracket and (not rest or _is_port(rest)) else ""
    name, colon, _ = header.partition(":")
    return name if not colon or _is_port(header[len(name) :]) else ""


def _is_port(text: str) -> bool:
    digits = text[1:]
    return text[0] == ":" and digits.isascii() and digits.isdigit() and len(digits) <= 5


def fault_of(
    method: str, hosts: Sequence[str], sizes: Sequence[str], names: Collection[str]
) -> tuple[int, str]:
    """Check the head of a request. If the request may be answered, the status is OK.

    Another site can change the address of its own name to the address of this server (DNS
    rebinding). After a change of the address, a browser sends requests for the other site to this
    server. The header Host of these requests has the name of the other site. The name of another
    site is not allowed.

    Args:
        hosts: the values of the header Host.
        sizes: the values of the headers Content-Length and Transfer-Encoding.
        names: the hosts that are allowed.
    """
    if method not in METHODS:
        return METHOD_NOT_ALLOWED, "this server is read-only: use GET or HEAD"
    if any(one.strip() != "0" for one in sizes):
        return BAD_REQUEST, "this server accepts no request with a body"
    if len(hosts) != 1:
        return BAD_REQUEST, "a request must have exactly one header Host"
    if host_of(hosts[0]) not in names:
        return MISDIRECTED, "this host is not allowed here; see the setting http.hosts"
    return OK, ""
