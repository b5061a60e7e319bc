"""Export the metrics of a broker to Prometheus (extra `metrics`), if possible with Kafka's names.

    registry.register(Collector(broker))     beside the program's other metrics
    with serve(broker, 9308): ...            on a separate endpoint, with the metrics of the store

Kafka's names are those that Prometheus' exporter for Java gives to Kafka's own metrics. A scrape
reads only memory, so it does not wait for a disk that hangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

# This import comes first: if the extra `metrics` is not installed, its error names the extra.
from logstore import metrics as store_metrics

# isort: split
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector as Collecting

from broker.machines.request_times import BOUNDS, PHASES, ApiTimes
from broker.server import Broker
from broker.wire.schemas import api_names
from logstore import LogStoreError

TOPIC_METRICS = {
    "bytes_in": ("bytesin", "Bytes of records that clients appended."),
    "messages_in": ("messagesin", "Records that clients appended."),
    "bytes_out": ("bytesout", "Bytes of records that were sent to clients."),
    "produce_requests": ("totalproducerequests", "Batches that were appended."),
    "fetch_requests": ("totalfetchrequests", "Partitions with records in answers to Fetch."),
    "failed_produce_requests": ("failedproducerequests", "Batches that were refused."),
    "failed_fetch_requests": ("failedfetchrequests", "Partitions that could not be read."),
}
PARTITION_METRICS = (
    ("logstartoffset", "The offset of the first record."),
    ("logendoffset", "The offset after the last record."),
    ("size", "Bytes of record batches."),
)
PHASE_METRICS = {
    "queue": ("requestqueuetimems", "Time until a thread began to execute the request."),
    "local": ("localtimems", "Time in which the request was executed."),
    "remote": (
        "remotetimems",
        "Time in which the request waited for records, members or replicas.",
    ),
    "send": ("responsesendtimems", "Time until the client had received the answer."),
}


class Collector(Collecting):
    """Collect the metrics of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def describe(self) -> list[Metric]:
        """Return an empty list, because the metrics are read only at a scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its present value."""
        yield from self._requests()
        yield from self._topics()
        yield from self._partitions()
        for name, text, value in self._broker.gauges():
            yield GaugeMetricFamily(name, text, value)
        counts = self._broker.counts()
        for name, text in (
            ("connection_count", "Open connections."),
            ("running_count", "Connections with a running request."),
            ("thread_count", "Threads that execute requests, or wait for one."),
            ("memory_bytes", "Memory that large requests have reserved."),
            ("group_count", "Consumer groups that are loaded."),
            ("partition_count", "Partitions, including partitions that do not serve."),
        ):
            yield GaugeMetricFamily(f"logstore_broker_{name}", text, counts[name])
        for name, text in (
            ("handshake_failure", "TLS handshakes that failed, or were not complete in time."),
            ("login_failure", "Logins that failed, or were not complete in time."),
        ):
            value = counts[f"{name}_count"]
            yield CounterMetricFamily(f"logstore_broker_{name}s", text, value)

    def _partitions(self) -> Iterator[Metric]:
        """Yield the ends and the size of each log that can be read now."""
        names = ("topic", "partition")
        families = [
            GaugeMetricFamily(f"kafka_log_log_{name}", text, labels=names)
            for name, text in PARTITION_METRICS
        ]
        store = self._broker.store
        for topic, partition in store:
            try:
                log = store.log(topic, partition)
                values = log.log_start_offset, log.log_end_offset, log.size_bytes
            except LogStoreError:  # the log dir does not work, or the log was deleted just now
                continue
            for family, value in zip(families, values, strict=True):
                family.add_metric((topic, str(partition)), value)
        yield from families

    def _topics(self) -> Iterator[Metric]:
        traffic = self._broker.traffic()
        for field, (name, text) in TOPIC_METRICS.items():
            metric = CounterMetricFamily(
                f"kafka_server_brokertopicmetrics_{name}", text, labels=("topic",)
            )
            for topic, counts in traffic.items():
                metric.add_metric((topic,), getattr(counts, field))
            yield metric

    def _requests(self) -> Iterator[Metric]:
        times = {_name(key): found for key, found in self._broker.request_times().items()}
        total = HistogramMetricFamily(
            "kafka_network_requestmetrics_totaltime_seconds",
            "Total time of requests.",
            labels=("request",),
        )
        for name, found in times.items():
            total.add_metric((name,), _buckets(found), sum(found.seconds))
        yield total
        for number, phase in enumerate(PHASES):
            kafka, text = PHASE_METRICS[phase]
            metric = CounterMetricFamily(
                f"kafka_network_requestmetrics_{kafka}", f"Milliseconds. {text}",
                labels=("request",),
            )  # fmt: skip
            for name, found in times.items():
                metric.add_metric((name,), found.seconds[number] * 1000)
            yield metric


def _name(key: int) -> str:
    return api_names().get(key, str(key))


def _buckets(found: ApiTimes) -> list[tuple[str, float]]:
    """Return the counts in Prometheus' form: each bucket includes all smaller buckets."""
    ends = [*map(str, BOUNDS), "+Inf"]
    return list(zip(ends, map(float, accumulate(found.counts)), strict=True))


def serve(broker: Broker, port: int, host: str = "127.0.0.1") -> store_metrics.Endpoint:
    """Serve the metrics of a broker and its store at `http://HOST:PORT/metrics`.

    The returned endpoint answers requests until it is closed.

    Args:
        port: the port to listen on. 0 chooses a free port; `Endpoint.port` shows which one.

    Raises:
        OSError: the port is in use, or the host is not an address of this machine.
    """
    registry = CollectorRegistry()
    registry.register(store_metrics.Collector(broker.store))
    registry.register(Collector(broker))
    return store_metrics.Endpoint(*start_http_server(port, host, registry))
