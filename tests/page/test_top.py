"""`logstore top` shows in a terminal what the page shows, or what the owner of a store tells."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker import Broker
from broker.listener_config import Endpoint
from broker.page.http_server import HttpServer
from broker.page.routes import Response
from broker.top.screen import screen
from broker.top.source import NoAnswerError, address_of, from_page, summary_of
from logstore import LogStore
from logstore.cli.app import app
from support.kafka_client import KafkaClient, batch_of
from support.pages import commit
from support.places import environment

DIR = {
    "path": "/disk/" + "x" * 200, "state": "offline", "reason": "it is \x1b[31m away",
    "partition_count": 10_000, "size_bytes": 3 << 40, "total_bytes": 0, "usable_bytes": 0,
}  # fmt: skip
MOVE = {
    "topic": "t" * 249, "partition": 12, "source": "/a", "target": "/b", "state": "catching_up",
    "error": None, "bytes_done": 5, "bytes_total": 10, "lag_bytes": 5, "bytes_per_second": 1e9,
    "eta_seconds": None,
}  # fmt: skip
RATES = {"bytes_in": 1e9, "records_in": 1e6, "bytes_out": 1e9, "requests": 1e6}
WIDE: dict[str, Any] = {
    "version": 1,
    "at_ms": 86_399_000,
    "broker": {"broker_id": 123_456, "controller_id": -1, "started_ms": 0},
    "rates": RATES,
    "counts": {"connection_count": 20_000},
    "trouble": dict.fromkeys(
        ("bad_log_dirs", "offline_partitions", "under_replicated_partitions", "failed_moves"), 1000
    ),
    "log_dirs": [DIR, {**DIR, "state": "read-only"}],
    "moves": [MOVE, {**MOVE, "state": "failed"}],
    "brokers": [
        {"id": 1, "host": "h" * 300, "port": 1, "is_controller": True, "leads": 9, "replicas": 9}
    ]
    * 2,
    "topics": [{"name": "t" * 249, "partition_count": 1, "size_bytes": 5, "rates": RATES}],
    "groups": [
        {"name": "g\u202e" * 300, "state": "PreparingRebalance", "member_count": 10_000,
         "lag": 10**9, "unknown_count": 1}
    ],
    "slow_requests": [{"at_ms": 0, "api": "Fetch", "address": "a" * 90, "seconds": [1, 2, 3, 4]}],
}  # fmt: skip


def run(*arguments: str, **variables: str) -> Result:
    """Run the command in this process."""
    return CliRunner(env={"LOGSTORE_LOG_DIRS": None, **variables}).invoke(app, ["top", *arguments])


@pytest.mark.parametrize("width", [1, 60, 80, 132, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """However long the names are; numbers are complete, and no character moves the cursor."""
    lines = screen(WIDE, width)
    assert max(len(line.text) for line in lines) <= max(width, 60)
    assert all(line.text.isprintable() for line in lines)
    text = "\n".join(line.text for line in lines)
    assert "no controller" in text and "TROUBLE: bad log dirs 1,000" in text
    if width >= 80:
        assert lines[0].text.endswith("23:59:59 UTC")
        assert "OFFLINE" in text and "READ-ONLY" in text and "catching up" in text
        assert "1,000,000,000+" in text and "PreparingRebalance" in text


def test_a_low_terminal_says_what_is_left_out() -> None:
    """The last line counts the lines that do not fit."""
    every = screen(WIDE, 80)
    low = screen(WIDE, 80, 10)
    assert low[:9] == every[:9] and len(low) == 10
    assert low[9].text == f"{len(every) - 9} more lines"
    assert screen(WIDE, 80, len(every)) == every


def test_one_screen_of_a_broker(tmp_path: Path) -> None:
    """With the numbers of the page."""
    with (
        Broker.start([tmp_path / "a"], {"http_listener": "127.0.0.1:0"}) as broker,
        KafkaClient(broker.bootstrap_servers) as client,
    ):
        client.create("orders")
        client.produce("orders", batch_of(b"one", b"two"))
        commit(client, "billing", "orders", 1)
        done = run("--once", "--url", broker.http_url)
        assert done.exit_code == 0, done.output
        lines = done.stdout.splitlines()
        assert lines[0].startswith("broker 0   controller 0   1 connections   up ")
        assert lines[1] == "All log dirs and partitions serve."
        words = {line.split()[0]: line.split() for line in lines if line}
        assert words["billing"] == ["billing", "Empty", "0", "1"]
        size = broker.store.log("orders", 0).size_bytes
        assert words["orders"][1:4] == ["1", str(size), "B"]


def test_one_screen_of_a_store(tmp_path: Path) -> None:
    """Through the admin socket; without an owner, it says what to do."""
    log_dirs = [str(tmp_path / name) for name in "ab"]
    asked = ("--once", "--log-dirs", ",".join(log_dirs))
    with LogStore.open(log_dirs) as store:
        logs = store.create_topic("orders", 3)
        offline = sum(log.log_dir == log_dirs[1] for log in logs)
        store.take_offline(log_dirs[1])
        done = run(*asked)
        assert done.exit_code == 0, done.output
        lines = done.stdout.splitlines()
        assert lines[0].startswith(f"store   process {os.getpid()}")
        assert lines[1] == f"TROUBLE: bad log dirs 1, offline partitions {offline}"
        assert any(line.startswith("orders") and " 3 " in line for line in lines)
        assert "the user took it offline" in done.stdout
    done = run(*asked)
    assert done.exit_code == 1 and "no process has the store open" in done.stderr


def test_replicas_of_a_store_are_added_up() -> None:
    """A copy that a move builds is not a partition."""
    row = {"topic": "a", "partition": 0, "size": 5, "is_temporary": False, "offset_lag": 0}
    one = {
        "path": "/d", "state": "online", "reason": None, "total_bytes": 10, "usable_bytes": 4,
        "is_live": True, "partitions": [row, {**row, "partition": 1, "size": 7}],
    }  # fmt: skip
    other = {**one, "path": "/e", "is_live": False, "state": "offline"}
    other["partitions"] = [{**row, "is_temporary": True}, {**row, "partition": 2, "size": 0}]
    found = summary_of([one, other], [], 1, 0)
    assert found["topics"] == [{"name": "a", "partition_count": 3, "size_bytes": 12}]
    assert (found["trouble"]["offline_partitions"], found["trouble"]["bad_log_dirs"]) == (1, 1)
    assert [dir_["size_bytes"] for dir_ in found["log_dirs"]] == [12, 5]


@pytest.mark.parametrize("url", ["ftp://h:1", "http://", "http://a:b@h:1", "http://h:x"])
def test_a_wrong_url_is_wrong_usage(url: str) -> None:
    """With exit code 2, before anything is asked."""
    with pytest.raises(ValueError, match=r"form|[Pp]ort"):
        address_of(url)
    assert run("--once", "--url", url).exit_code == 2


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b'{"version": 2}', b'{"version": 1}', b"\xff", b"9" * 5000,
        json.dumps({**WIDE, "trouble": []}).encode(),
        json.dumps({**WIDE, "rates": dict.fromkeys(RATES, "1")}).encode(),
        json.dumps({**WIDE, "at_ms": float("inf")}).encode(),
        json.dumps({**WIDE, "log_dirs": [{**DIR, "total_bytes": "x"}]}).encode(),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_document_is_an_error(body: bytes) -> None:
    """On one line, whatever the server sends."""
    server = HttpServer(
        Endpoint("HTTP", "127.0.0.1", 0), ["127.0.0.1"], lambda target: Response(200, "x/y", body)
    )
    with contextlib.closing(server):
        server.start()
        done = run("--once", "--url", f"127.0.0.1:{server.endpoint.port}")
    assert done.exit_code == 1 and done.stderr.count("\n") == 1, done.output
    assert done.stderr.startswith("error: ")


def test_no_answer_is_an_error() -> None:
    """The port is closed."""
    server = HttpServer(Endpoint("HTTP", "127.0.0.1", 0), [], lambda target: Response(200, "", b""))
    server.close()
    with pytest.raises(NoAnswerError, match="does not answer"):
        from_page(f"http://127.0.0.1:{server.endpoint.port}")


def test_it_refreshes_on_a_terminal_until_it_is_interrupted(tmp_path: Path) -> None:
    """It leaves the terminal as it was, and ends with exit code 0."""
    with Broker.start([tmp_path / "a"], {"http_listener": "127.0.0.1:0"}) as broker:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 90, 0, 0))
        command = [sys.executable, "-m", "logstore.cli", "top", "--interval", "0.5"]
        process = subprocess.Popen(
            [*command, "--url", broker.http_url], stdin=slave, stdout=slave, stderr=slave,
            env=environment(), start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        seen = b""
        try:
            deadline = time.monotonic() + 60
            while seen.count(b"\x1b[H") < 3 and time.monotonic() < deadline:
                seen += os.read(master, 1 << 16)
            process.send_signal(2)
            with contextlib.suppress(OSError):  # the other end was closed
                while part := os.read(master, 1 << 16):
                    seen += part
            assert process.wait(30) == 0, seen
        finally:
            process.kill()
            process.wait()
            os.close(master)
    assert seen.startswith(b"\x1b[?1049h") and seen.rstrip().endswith(b"\x1b[?1049l")
    assert b"broker 0" in seen and b"LOG DIR" in seen and b"more lines" not in seen[:200]
