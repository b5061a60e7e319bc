"""Give the gauges of a store to Prometheus (extra `metrics`).

    registry.register(Collector(store))      beside what a program exports already
    with serve(store, 9100): ...             an endpoint of its own

A scrape reads memory only, so a disk that hangs does not hold it up. The names of the first two
are KIP-112's, written as Prometheus has it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self
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
    from logstore.store.reading import StoreReader

STOP_SECONDS = 5.0


class Family(NamedTuple):
    """One figure of every log dir: its attribute in `LogDirMetrics`, its name, what it says."""

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
        "How long the oldest call to the disk has been under way.",
    ),
    Family("flush_count", "flushes", "Syncs of segments.", is_counter=True),
    Family("flush_seconds", "flush_seconds", "Seconds that these syncs took.", is_counter=True),
    Family("scrubbed_bytes", "scrubbed_bytes", "Bytes that the scrubber read.", is_counter=True),
    Family(
        "corrupt_batches",
        "corrupt_batches",
        "Damaged places that the scrubber found.",
        is_counter=True,
    ),
)


class Collector(Collecting):
    """Collect the gauges of one store; of a closed one there is nothing to collect."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store

    def describe(self) -> list[Metric]:
        """Name nothing beforehand: a store is asked at each scrape only."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Take one snapshot; raises LogClosedError when the store is closed."""
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
            "1 for the state that the log dir is in.",
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


class Endpoint:
    """An HTTP server that answers every scrape in a thread of its own; a context manager.

    Attributes:
        port: where it listens.
    """

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        """Use `serve`."""
        self._server, self._thread = server, thread
        self.port = server.server_port
        self._is_closed = False

    def close(self) -> None:
        """Stop listening and end the thread; closing twice is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(STOP_SECONDS)

    def __enter__(self) -> Self:
        """Give the endpoint itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def serve(store: StoreReader, port: int, host: str = "127.0.0.1") -> Endpoint:
    """Serve the gauges of a store at `http://HOST:PORT/metrics`, until it is closed.

    Args:
        port: 0 takes one that is free; see `Endpoint.port`.

    Raises:
        OSError: the port is taken, or the host is none of this machine.
    """
    registry = CollectorRegistry()
    registry.register(Collector(store))
    return Endpoint(*start_http_server(port, host, registry))
