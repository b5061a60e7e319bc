"""Prometheus gets the figures of `store.metrics()`."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from logstore import LogStore, metrics
from logstore.disk.calls import call, naps
from logstore.errors import LogClosedError
from logstore.metrics import Collector, serve
from support.hanging import QUIET


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    """Open a store of two log dirs with some records, flushed once."""
    with LogStore.open([tmp_path / "a", tmp_path / "b"], config=QUIET) as opened:
        log = opened.create("orders", 0, log_dir=opened.log_dirs[0])
        log.extend([b"x"] * 100)
        log.flush()
        yield opened


def registry_of(store: LogStore) -> CollectorRegistry:
    """Register a store's collector."""
    registry = CollectorRegistry()
    registry.register(Collector(store))
    return registry


def test_every_figure_is_there(store: LogStore) -> None:
    """Each gauge and counter of each log dir has the value of the snapshot."""
    registry = registry_of(store)
    assert registry.get_sample_value("logstore_offline_log_directory_count") == 0
    assert registry.get_sample_value("logstore_offline_replica_count") == 0
    for row in store.metrics().log_dirs:
        for name, value in {
            "partitions": row.partition_count,
            "log_bytes": row.size_bytes,
            "total_bytes": row.total_bytes,
            "usable_bytes": row.usable_bytes,
            "flushes_total": row.flush_count,
            "flush_seconds_total": row.flush_seconds,
            "scrubbed_bytes_total": row.scrubbed_bytes,
            "corrupt_batches_total": row.corrupt_batches,
        }.items():
            found = registry.get_sample_value(f"logstore_log_dir_{name}", {"path": row.path})
            assert found == value, name
    assert store.metrics().log_dirs[0].flush_count == 1
    assert store.metrics().log_dirs[0].flush_seconds > 0


def test_an_offline_dir_shows(store: LogStore) -> None:
    """An offline log dir is counted, with its replica and its state."""
    store.take_offline(store.log_dirs[0])
    registry = registry_of(store)
    assert registry.get_sample_value("logstore_offline_log_directory_count") == 1
    assert registry.get_sample_value("logstore_offline_replica_count") == 1
    for state, value in {"offline": 1, "online": 0}.items():
        labels = {"path": store.log_dirs[0], "state": state}
        assert registry.get_sample_value("logstore_log_dir_state", labels) == value


def test_a_call_under_way_shows(store: LogStore) -> None:
    """The age of the oldest call is right; the other disk has no call."""
    name = "logstore_log_dir_longest_call_seconds"
    first, second = ({"path": path} for path in store.log_dirs)
    registry = registry_of(store)
    naps.clear()  # of tests before this one
    with call(store.log_dirs[0] + "/orders-0") as slow:
        slow.since -= 7.0
        age = registry.get_sample_value(name, first)
        assert age is not None
        assert age >= 7.0
        assert registry.get_sample_value(name, second) == 0
    assert registry.get_sample_value(name, first) == 0


def test_the_endpoint_serves_until_it_is_closed(store: LogStore) -> None:
    """A scrape over HTTP gives the text that Prometheus reads; closing frees the port."""
    with serve(store, 0) as endpoint:
        url = f"http://127.0.0.1:{endpoint.port}/metrics"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=60) as answer:
            text = answer.read().decode()
        port = endpoint.port
    families = {family.name for family in text_string_to_metric_families(text)}
    assert {"logstore_offline_log_directory_count", "logstore_log_dir_flushes"} <= families
    endpoint.close()
    with serve(store, port) as again:
        assert again.port == port


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without prometheus-client, the error of the import names the extra."""
    monkeypatch.delitem(sys.modules, "logstore.metrics")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ImportError, match=r"logstore\[metrics\]"):
        importlib.import_module("logstore.metrics")


def test_a_closed_store_has_no_figures(store: LogStore) -> None:
    """The collector of a closed store raises, instead of showing old figures."""
    registry = registry_of(store)
    store.close()
    with pytest.raises(LogClosedError):
        registry.get_sample_value("logstore_offline_log_directory_count")


def test_regression_silent_connections_need_few_threads(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, each connection kept a thread until its client closed it."""
    monkeypatch.setattr(metrics, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(metrics, "SILENT_SECONDS", 1.0)
    with serve(store, 0) as endpoint, contextlib.ExitStack() as stack:
        place = ("127.0.0.1", endpoint.port)
        for _ in range(8):
            silent = stack.enter_context(socket.create_connection(place, 20))
        assert silent.recv(1) == b"", "a connection above the limit is closed"
        others = [one for one in threading.enumerate() if "process_request" in one.name]
        assert len(others) <= 3
        for one in others:
            one.join(20)
        assert not any(one.is_alive() for one in others), "silent connections are closed"
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=20) as one:
            assert b"logstore_log_dir" in one.read()


def asked_for(port: int, host: str | None, address: str = "127.0.0.1") -> int:
    """Send a request with this header Host, and return the status."""
    with contextlib.closing(http.client.HTTPConnection(address, port, 20)) as connection:
        connection.putrequest("GET", "/metrics", skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        return connection.getresponse().status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9100", 200), ("localhost", 200), ("LOCALHOST:1", 200), ("[::1]:9100", 200),
        ("10.0.0.5:9100", 200), (None, 200), ("evil.example.com:9100", 421), ("127.1", 421),
        ("localhost.evil.example.com", 421), ("[evil.example.com]", 421),
    ],
)  # fmt: skip
def test_regression_other_sites_cannot_read_the_metrics(
    store: LogStore, host: str | None, status: int
) -> None:
    """A page of another site could read them through a browser on this machine (DNS rebinding)."""
    with serve(store, 0) as endpoint:
        assert asked_for(endpoint.port, host) == status


def test_scrapers_on_other_machines_may_use_any_name(store: LogStore) -> None:
    """Every machine that reaches an open address can read the metrics anyway."""
    with serve(store, 0, "0.0.0.0") as endpoint:
        assert asked_for(endpoint.port, "kafka1.example.com:9100") == 200
