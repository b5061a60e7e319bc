"""What is served: the pace of connections, their age, and the head of a request."""

from __future__ import annotations

import pytest

from broker.page import admission
from broker.page.admission import Pace, age_max, allowed_names, fault_of, host_of

NAMES = allowed_names("127.0.0.1", "kafka1.example.com, [fd00::1]")


def test_the_pace_allows_a_burst_and_then_a_rate() -> None:
    """After the burst, a connection is accepted each 50 ms, and an idle time does not add up."""
    pace = Pace(0.0)
    for _ in range(admission.BURST):
        assert pace.seconds_left(0.0) == 0.0
        pace.take()
    assert pace.seconds_left(0.0) == pytest.approx(0.05)
    assert pace.seconds_left(0.02) == pytest.approx(0.03)
    assert pace.seconds_left(0.0501) == 0.0
    pace.take()
    assert pace.seconds_left(0.0501) > 0.049
    accepted = 0
    while pace.seconds_left(1000.0) == 0.0:
        pace.take()
        accepted += 1
    assert accepted == admission.BURST


def test_old_connections_make_room() -> None:
    """If all places are taken, a connection has a second; otherwise ten."""
    assert age_max(admission.CONNECTIONS_MAX - 1) == admission.CONNECTION_SECONDS
    assert age_max(admission.CONNECTIONS_MAX) == admission.CROWDED_SECONDS


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "[::1]", "kafka1.example.com",
        "Kafka1.Example.com:443", "[fd00::1]:80",
    ],
)  # fmt: skip
def test_hosts_that_are_allowed(host: str) -> None:
    """Names of the loopback interface, of the listener, and those that the operator gave."""
    assert fault_of("GET", [host], [], NAMES)[0] == admission.OK


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
        "localhost:", "localhost:80:80", "localhost:x", "localhost:٣", "[::1", "[::1]x", "127.1",
        "localhost:123456", "user@localhost", "localhost/",
    ],
)  # fmt: skip
def test_other_hosts_are_refused(host: str) -> None:
    """A name that an attacker points to this address is not one of them."""
    assert fault_of("GET", [host], [], NAMES)[0] == admission.MISDIRECTED


def test_an_address_for_all_interfaces_allows_no_host_of_its_own() -> None:
    """The operator's names count, and `""` is none."""
    assert "" not in allowed_names("", "") and host_of("") == ""
    assert "10.0.0.5" in allowed_names("10.0.0.5", "")


@pytest.mark.parametrize(
    ("method", "hosts", "sizes", "status"),
    [
        ("POST", ["localhost"], [], 405),
        ("get", ["localhost"], [], 405),
        ("GET", [], [], 400),
        ("GET", ["localhost", "localhost"], [], 400),
        ("GET", ["localhost"], ["5"], 400),
        ("GET", ["localhost"], ["chunked"], 400),
        ("GET", ["localhost"], ["0"], 200),
        ("HEAD", ["localhost"], [], 200),
    ],
)
def test_the_head_of_a_request(
    method: str, hosts: list[str], sizes: list[str], status: int
) -> None:
    """Reading only, one host, no body."""
    assert fault_of(method, hosts, sizes, NAMES)[0] == status
