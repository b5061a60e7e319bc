"""What the page shows is what the store knows, and no disk or client can stop it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from broker import Broker
from broker.config import KAFKA_LOG_CONFIG
from broker.page import page, routes
from broker.page.documents import DOCUMENTS
from broker.page.routes import VIEWS
from logstore import LogStore, ReplicaOfflineError, StoreConfig
from logstore.names import TopicPartition
from support.hanging import hang
from support.kafka_client import KafkaClient, batch_of, produce_fields
from support.pages import (
    HOSTILE,
    Seen,
    cells_of,
    commit,
    document,
    gather_always,
    got,
    offsets_of,
    status_of,
)

SECONDS = 30.0
CONFIG = {"http_listener": "127.0.0.1:0", "group_initial_rebalance_delay_ms": 0}


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Start a broker whose page gathers its facts anew for each answer."""
    gather_always(monkeypatch)
    with Broker.start([tmp_path / "a", tmp_path / "b"], CONFIG) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[KafkaClient]:
    with KafkaClient(broker.bootstrap_servers) as connected:
        yield connected


def test_the_numbers_are_those_of_the_store(broker: Broker, client: KafkaClient) -> None:
    """At a quiet moment, the page, the documents and the store agree."""
    client.create("orders")
    client.produce("orders", batch_of(b"one", b"two", b"three"))
    commit(client, "billing", "orders", 1)
    log = broker.store.log("orders", 0)
    listed = {
        one["topic"]: one for one in document(broker, "partitions?search=orders-")["partitions"]
    }
    row = listed["orders"]
    assert (row["start"], row["high_watermark"], row["end"]) == (0, 3, 3)
    assert (row["size_bytes"], row["log_dir"]) == (log.size_bytes, log.log_dir)
    assert (row["leader"], row["replicas"], row["isr"]) == (0, [0], [0])
    (shown,) = cells_of(got(broker, "partitions?search=orders-0"))
    assert (shown["Start"], shown["High watermark"], shown["End"]) == ("0", "3", "3")
    assert (shown["Bytes"], shown["Log dir"]) == (str(log.size_bytes), log.log_dir)
    dirs = document(broker, "log-dirs")["log_dirs"]
    described = broker.store.describe_dirs().log_dirs
    assert [one["path"] for one in dirs] == [one.path for one in described]
    assert [one["size_bytes"] for one in dirs] == [
        sum(each.size for each in one.partitions) for one in described
    ]
    assert [one["usable_bytes"] for one in dirs] == [one.usable_bytes for one in described]
    assert document(broker, "summary")["trouble"] == {
        "bad_log_dirs": 0, "offline_partitions": 0, "offline_replicas": 0,
        "under_replicated_partitions": 0, "failed_moves": 0,
    }  # fmt: skip
    (group,) = document(broker, "groups")["groups"]
    assert (group["name"], group["state"], group["lag"]) == ("billing", "Empty", 2)
    (offset,) = document(broker, "group?name=billing")["offsets"]
    assert offset == {"topic": "orders", "partition": 0, "offset": 1, "end": 3, "lag": 2}
    summary = document(broker, "summary")
    assert summary["counts"]["connection_count"] == broker.connection_count == 1
    assert summary["counts"]["partition_count"] == len(broker.store)
    assert "All log dirs and partitions serve." in got(broker, "")


def test_a_replica_that_cannot_be_opened_is_shown_with_its_reason(
    broker: Broker, client: KafkaClient
) -> None:
    """Its log dir works, so only the list of partitions can give the reason."""
    client.create("orders")
    reason = "opening it failed: RuntimeError: a bug"
    error = ReplicaOfflineError(topic="orders", partition=0, reason=reason)
    broker.store.host.replicas.take_offline(TopicPartition("orders", 0), error)
    (shown,) = cells_of(got(broker, "partitions?show=offline-here"))
    assert reason in shown["State"]
    (row,) = document(broker, "partitions?show=offline-here")["partitions"]
    assert reason in row["reason"]
    assert document(broker, "summary")["trouble"]["offline_replicas"] == 1
    assert "replica of this broker is offline" in got(broker, "")


def test_every_page_and_document_is_there(broker: Broker, client: KafkaClient) -> None:
    """Each has a version or a title; others are not found, and wrong queries are refused."""
    client.create("orders")
    commit(client, "billing", "orders", 0)
    for path in VIEWS:
        asked = path[1:] + "?name=" + {"/group": "billing"}.get(path, "orders")
        whole, fragment = got(broker, asked), got(broker, asked + "&fragment=1")
        assert whole.startswith("<!doctype html>") and whole.count("<h1>") == 1
        assert "<html" not in fragment and "<script" not in fragment
    listed = json.loads(got(broker, "api"))["documents"]
    assert listed == [f"/api/v1/{name}" for name in DOCUMENTS]
    for path in listed:
        assert json.loads(got(broker, path[1:] + "?name=billing"))["version"] == 1
    wrong = [
        "x", "api/v2/summary", "api/v1/x", "style.css/", "../etc/passwd", "%2e%2e/etc/passwd",
        "style.css%00", "topic?name=none", "group?name=none", "api/v1/group?name=none",
    ]  # fmt: skip
    assert [status_of(broker, path) for path in wrong] == [404] * len(wrong)
    assert status_of(broker, "partitions?page=x") == status_of(broker, "?size=-1") == 400
    for name in ("style.css", "page.js", "icon.svg"):
        assert "http" not in got(broker, name).replace("http://www.w3.org/2000/svg", "")


def test_hostile_names_are_only_text(broker: Broker, client: KafkaClient) -> None:
    """Group ids come from clients: none of them becomes an element, an attribute or a script."""
    client.create("orders")
    names = [name for name in HOSTILE if name.isprintable()] + ["\x1b[2J\u202e\x00", "x" * 30_000]
    plain = Seen(got(broker, "groups"))
    for name in names:
        commit(client, name, "orders", 0)
    broker_page = Seen(got(broker, "groups"))
    assert set(broker_page.tags) - set(plain.tags) <= {
        "table", "caption", "thead", "tbody", "tr", "th", "td", "a", "data", "div"
    }  # fmt: skip
    assert broker_page.tags.count("script") == 1 and broker_page.tags.count("h1") == 1
    assert {name for name, _ in broker_page.attributes if name.startswith("on")} == set()
    for name in names[:-1]:
        seen = Seen(got(broker, "group?name=" + quote(name)))
        assert seen.tags.count("h1") == 1 and seen.tags.count("script") == 1
        assert "img" not in seen.tags
    found = {one["name"] for one in document(broker, "groups")["groups"]}
    assert found == set(names)
    assert len(got(broker, "")) < 200_000


def test_many_partitions_are_shown_page_by_page(broker: Broker, client: KafkaClient) -> None:
    """A page of the list is small, the pages cover it, and a search finds one of them."""
    client.create("many", 120)
    first = document(broker, "partitions?name=many&size=50")
    assert (first["total"], first["pages"], len(first["partitions"])) == (120, 3, 50)
    numbers = [
        row["partition"]
        for page in (1, 2, 3)
        for row in document(broker, f"partitions?name=many&size=50&page={page}")["partitions"]
    ]
    assert numbers == [*range(120)]
    text = got(broker, "partitions?search=many")
    assert len(cells_of(text)) == 50 and "here 1 to 50" in text and len(text) < 100_000
    assert [row["Partition"] for row in cells_of(got(broker, "partitions?search=many-119"))] == [
        "many-119"
    ]


def test_trouble_is_said_first(broker: Broker, client: KafkaClient) -> None:
    """A log dir that is away, and its partitions, are counted, marked and listed."""
    broker.store.create_topic("spread", 4)
    path = broker.store.log_dirs[1]
    broker.store.take_offline(path)
    summary = document(broker, "summary")
    assert summary["trouble"]["bad_log_dirs"] == 1
    assert summary["trouble"]["offline_partitions"] == 2
    text = got(broker, "")
    assert "log dir does not serve as it should" in text and ">OFFLINE<" in text
    rows = document(broker, "partitions?show=offline")["partitions"]
    assert {row["leader"] for row in rows} == {-1} and len(rows) == 2
    assert {row["high_watermark"] for row in rows} == {None}


def test_facts_are_used_again_for_a_second(
    broker: Broker, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a client that asks without end makes the broker gather nothing."""
    monkeypatch.setattr(page, "FRESH_SECONDS", 1e9)
    first = got(broker, "api/v1/topics")
    client.create("late")
    assert got(broker, "api/v1/topics") == first
    assert json.loads(got(broker, "api/v1/topics?search=late"))["total"] == 0


def test_a_page_rests_after_its_work(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it uses a tenth of a processor at most, whatever it is asked."""
    real, worked = routes.respond, []

    def slow(*asked: Any) -> Any:
        began = time.monotonic()
        until = began + 0.02
        answer = real(*asked)
        while time.monotonic() < until:
            pass
        worked.append((began, time.monotonic()))
        return answer

    monkeypatch.setattr(page, "respond", slow)
    monkeypatch.setattr(page, "WORK_SHARE", 0.1)
    for number in range(4):
        got(broker, f"partitions?search={number}")
    for (began, ended), (again, _) in pairwise(worked):
        assert again - ended >= 8.9 * (ended - began)


def test_a_broker_without_the_key_has_no_page() -> None:
    """It is off by default."""
    with Broker.start() as broker:
        assert broker.http_url == ""


def test_a_port_that_is_taken_is_an_error(broker: Broker) -> None:
    """And nothing of the second broker stays."""
    taken = broker.http_url.removeprefix("http://").strip("/")
    with pytest.raises(OSError, match="in use"):
        Broker.start(config={"http_listener": taken})


def commit_at_last(broker: Broker, group: str) -> None:
    """Commit an offset; on a crowded machine, a disk may seem to hang, and cut the connection."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with KafkaClient(broker.bootstrap_servers) as client:
                commit(client, group, "orders", 0)
        except (AssertionError, EOFError, OSError):
            assert time.monotonic() < deadline
        else:
            return


def test_a_disk_that_hangs_stops_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends and committed offsets hang in it, with their locks; each page is served at once."""
    gather_always(monkeypatch)
    paths = [tmp_path / "sick", tmp_path / "well"]
    with LogStore.open(paths, config=StoreConfig(log_dir_suspect_ms=300)) as store:
        for number, path in enumerate(store.log_dirs):
            store.create("orders", number, log_dir=path, config=KAFKA_LOG_CONFIG)
        with (
            Broker.start(store=store, config=CONFIG) as broker,
            KafkaClient(broker.bootstrap_servers) as client,
        ):
            for name in ("one", "two", "three"):
                commit_at_last(broker, name)
            with (
                hang(monkeypatch, store.log_dirs[0], "pwritev", "pwrite", "fdatasync") as disk,
                contextlib.ExitStack() as others,
            ):
                client.send("Produce", 12, **produce_fields({("orders", 0): batch_of(b"x")}))
                for name in ("one", "two", "three"):
                    other = others.enter_context(KafkaClient(broker.bootstrap_servers))
                    other.send("OffsetCommit", 8, group_id=name, topics=offsets_of("orders", 1))
                assert disk.began.wait(SECONDS)
                slowest, states = 0.0, set()
                deadline = time.monotonic() + SECONDS
                while "suspect" not in states and time.monotonic() < deadline:
                    for path in ("", "partitions", "topics", "groups", "topic?name=orders"):
                        began = time.monotonic()
                        got(broker, path)
                        slowest = max(slowest, time.monotonic() - began)
                    states |= {one["state"] for one in document(broker, "log-dirs")["log_dirs"]}
                assert states == {"online", "suspect"}
                text = got(broker, "")
                assert ">SUSPECT<" in text and "log dir does not serve as it should" in text
                assert slowest < 5.0
