"""Export the gauges of a store to Prometheus (extra `metrics`).

    registry.register(Collector(store))      beside the program's other metrics
    with serve(store, 9100): ...             on a separate endpoint

A scrape reads only memory. So a disk that hangs does not delay a scrape. KIP-112 defines the first
two gauges; their names here are in the style of Prometheus.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from wsgiref.simple_server import WSGIServer

from logstore.disk.states import LogDirState

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector as Collecting
except ImportError as error:
    raise ImportError(
        "metrics need prometheus-client: pip install 'logstore[metrics]'", name="prometheus_client"
    ) from error

if TYPE_CHECKING:
    from logstore.store.reader import StoreReader

STOP_SECONDS = 5.0
CONNECTIONS_MAX = 32  # each connection has a thread; further connections are closed at once
SILENT_SECONDS = 10.0  # a connection that sends nothing for this time is closed


class Family(NamedTuple):
    """Describe a metric of log dirs: its attribute in `LogDirMetrics`, its name and help text."""

    attribute: str
    name: str
    text: str
    is_counter: bool = False


FAMILIES = (
    Family("partition_count", "partitions", "Replicas in the log dir."),
    Family("size_bytes", "log_bytes", "Bytes of record batches in the log dir."),
    Family("total_bytes", "total_bytes", "Size of the disk."),
    Family("usable_bytes", "usable_bytes", "Bytes of the disk that are free."),
    Family(
        "longest_call_seconds",
        "longest_call_seconds",
        "Seconds since the oldest running call to the disk began.",
    ),
    Family("flush_count", "flushes", "Syncs of segments.", is_counter=True),
    Family(
        "flush_seconds",
        "flush_seconds",
        "Seconds that the syncs of segments took.",
        is_counter=True,
    ),
    Family("scrubbed_bytes", "scrubbed_bytes", "Bytes that the scrubber read.", is_counter=True),
    Family(
        "corrupt_batches",
        "corrupt_batches",
        "Damaged places that the scrubber found.",
        is_counter=True,
    ),
    Family("uncompacted_logs", "uncompacted_logs", "Logs that could not be compacted."),
)


class Collector(Collecting):
    """Collect the gauges of one store."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store

    def describe(self) -> list[Metric]:
        """Return nothing, because the gauges are read only at a scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Take one snapshot of all gauges; raise LogClosedError if the store is closed."""
        gauges = self._store.metrics()
        yield GaugeMetricFamily(
            "logstore_offline_log_directory_count",
            "Log dirs that do not serve (OfflineLogDirectoryCount).",
            gauges.OfflineLogDirectoryCount,
        )
        yield GaugeMetricFamily(
            "logstore_offline_replica_count",
            "Replicas that cannot be used (OfflineReplicaCount).",
            gauges.OfflineReplicaCount,
        )
        states = GaugeMetricFamily(
            "logstore_log_dir_state",
            "1 for the present state of the log dir.",
            labels=("path", "state"),
        )
        for row in gauges.log_dirs:
            for state in LogDirState:
                states.add_metric((row.path, state.value), row.state == state.value)
        yield states
        for family in FAMILIES:
            kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
            metric = kind(f"logstore_log_dir_{family.name}", family.text, labels=("path",))
            for row in gauges.log_dirs:
                metric.add_metric((row.path,), getattr(row, family.attribute))
            yield metric


def _limit(server: WSGIServer) -> None:
    """Limit the connections of a server, and the time for which they may be silent."""
    kind: Any = server.RequestHandlerClass
    free = threading.BoundedSemaphore(CONNECTIONS_MAX)

    def handle(request: Any) -> None:
        if not free.acquire(blocking=False):
            return
        try:
            with suppress(TimeoutError, ConnectionError):
                kind.handle(request)
        finally:
            free.release()

    parts: dict[str, Any] = {"timeout": SILENT_SECONDS, "handle": handle}
    server.RequestHandlerClass = type("Handler", (kind,), parts)


def _check_hosts(server: WSGIServer) -> None:
    """Let a server with a loopback address refuse requests for other hosts.

    Another site can change the address of its own name to this address (DNS rebinding). Then a
    browser on this machine sends requests for the other site to this server. Their header Host has
    the name of the other site. A scraper on this machine uses an address, or `localhost`. If the
    server has another address, every machine that reaches it can read the metrics anyway, and
    scrapers may use any name. So then the header is not checked.
    """
    app = server.get_app()
    if app is None or not ip_address(str(server.server_address[0])).is_loopback:
        return

    def checked(environ: Any, start_response: Any) -> Any:
        if is_local(environ.get("HTTP_HOST", "")):
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [b"this host is not allowed here: use localhost, or an address\n"]

    server.set_app(checked)


def is_local(header: str) -> bool:
    """Report whether a header Host is an address, `localhost` or empty, so no name of a site."""
    text = header.strip().lower()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    if name in ("", "localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class Endpoint:
    """Run an HTTP server that answers each scrape in a new thread; use it as a context manager.

    Attributes:
        port: the port that the server listens on.
    """

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        """Create the endpoint of a running server; users call `serve` instead."""
        _limit(server)
        _check_hosts(server)
        self._server, self._thread = server, thread
        self.port = server.server_port
        self._is_closed = False

    def close(self) -> None:
        """Stop listening and end the thread; calling it again has no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(STOP_SECONDS)

    def __enter__(self) -> Self:
        """Return the endpoint itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the endpoint."""
        self.close()


def serve(store: StoreReader, port: int, host: str = "127.0.0.1") -> Endpoint:
    """Serve the gauges of a store at `http://HOST:PORT/metrics` until the endpoint is closed.

    Args:
        port: the port to listen on. 0 chooses a free port; `Endpoint.port` shows which one.

    Raises:
        OSError: the port is taken, or the host is not an address of this machine.
    """
    registry = CollectorRegistry()
    registry.register(Collector(store))
    return Endpoint(*start_http_server(port, host, registry))
