"""`logstore broker --http`: which addresses it accepts, and that it serves the page there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.listener_config import Endpoint
from support.places import environment


@pytest.mark.parametrize(
    ("listener", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("localhost:0", "127.0.0.1", 0),
        (" [::1]:80 ", "::1", 80),
        ("127.9.9.9:65535", "127.9.9.9", 65535),
    ],
)
def test_addresses_of_this_machine(listener: str, host: str, port: int) -> None:
    """They need nothing else."""
    assert BrokerConfig(http_listener=listener).http_endpoint == Endpoint("HTTP", host, port)


@pytest.mark.parametrize("listener", ["0.0.0.0:80", "[::]:80", "10.0.0.5:8080", "192.0.2.1:1"])
def test_other_machines_reach_only_what_is_named(listener: str) -> None:
    """An address that they can reach is refused, unless its names are given."""
    with pytest.raises(ValueError, match="http_hosts"):
        BrokerConfig(http_listener=listener)
    found = BrokerConfig(http_listener=listener, http_hosts="kafka1.example.com").http_endpoint
    assert found is not None and str(found.port) == listener.rpartition(":")[2]


@pytest.mark.parametrize(
    "listener",
    ["8080", ":8080", "127.0.0.1", "127.0.0.1:65536", "example.com:80", "a:b:80", "::1:80"],
)
def test_what_is_no_address(listener: str) -> None:
    """With an error that names the key."""
    with pytest.raises(ValueError, match="http_listener: "):
        BrokerConfig(http_listener=listener, http_hosts="x")


def test_there_is_no_page_by_default() -> None:
    """An empty value means the same."""
    assert BrokerConfig().http_endpoint is BrokerConfig(http_listener=" ").http_endpoint is None


def command(tmp_path: Path, *options: str) -> list[str]:
    """Write the command of a broker at a free port."""
    start = [sys.executable, "-m", "logstore.cli", "broker", "--log-dirs", str(tmp_path / "a")]
    return [*start, "--listeners", "PLAINTEXT://127.0.0.1:0", *options]


def test_the_command_serves_the_page(tmp_path: Path) -> None:
    """It prints the address, and the page goes away with the broker."""
    process = subprocess.Popen(
        command(tmp_path, "--http", "127.0.0.1:0"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(2)]
        assert lines[1].startswith("serving the page at http://127.0.0.1:")
        with urllib.request.urlopen(lines[1].split()[-1] + "api/v1/summary", timeout=20) as answer:
            assert json.load(answer)["version"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_command_refuses_an_open_page(tmp_path: Path) -> None:
    """Wrong usage, before anything is created."""
    done = subprocess.run(
        command(tmp_path, "--http", "0.0.0.0:8080"),
        capture_output=True, text=True, check=False, env=environment(), timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and "other machines can reach 0.0.0.0:8080" in done.stderr
    assert not (tmp_path / "a").exists()
