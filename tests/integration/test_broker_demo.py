"""The demo of the broker: its comparison of records, and the demo itself in small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker.demo import __main__ as demo
from benchmarks.broker.demo import steps
from benchmarks.broker.demo.ledger import Ledger, Received, checksums_by_key
from logstore.cli.demo.flights import Flights
from support.broker_process import processes_in
from support.places import environment

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "benchmarks.broker.demo", "--scale", "small"]
TEN = Flights(
    [b"flight %d" % number for number in range(10)],
    [b"UA%d" % (number % 3) for number in range(10)],
    [number * 1000 for number in range(10)],
)


class Message:
    """A record as confluent-kafka gives it."""

    def __init__(self, offset: int, **changes: Any) -> None:
        self._offset = offset
        number = min(offset, 9)
        self._value = changes.get("value", TEN.values[number])
        self._timestamp = changes.get("timestamp", TEN.timestamps[number])

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return TEN.keys[min(self._offset, 9)]

    def value(self) -> bytes:
        return bytes(self._value)

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp


def received(*messages: Message) -> Received:
    """Take messages that were received one after the other."""
    found = Received([TEN])
    found.take(messages)
    return found


def test_the_comparison_finds_what_is_wrong() -> None:
    """Repeated and skipped offsets, another value, another time, a record too many."""
    good = received(*map(Message, range(10)))
    assert good.is_good
    assert good.sums == checksums_by_key([TEN], [10])
    assert received(Message(0), Message(1), Message(1)).repeated == 1
    assert received(Message(0), Message(3)).skipped == 2
    assert received(Message(0, value=b"flight 1")).wrong == 1
    assert received(Message(0, timestamp=7)).wrong == 1
    assert received(*map(Message, range(11))).wrong == 1
    assert received(Message(0, value=b"flight 1")).sums != checksums_by_key([TEN], [1])


def test_an_acknowledgement_out_of_its_place_is_noticed() -> None:
    """An idempotent producer's records have consecutive offsets; a failed one is an error."""
    ledger = Ledger([TEN])
    ledger.note(None, Message(0))
    ledger.note(None, Message(1))
    assert (ledger.total, ledger.misplaced, ledger.errors) == (2, 0, [])
    ledger.note(None, Message(3))
    ledger.note("it timed out", Message(4))
    assert (ledger.total, ledger.misplaced, ledger.errors) == (3, 1, ["it timed out"])


def test_the_demo_runs(tmp_path: Path) -> None:
    """The whole demo ends well: moved, killed, each record there once, nothing left behind."""
    done = subprocess.run(
        COMMAND, cwd=REPOSITORY, env=environment() | {"TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    facts = ("moved", "meanwhile", "killed", "commits", "a new member", "lost", "doubled", "verify")
    for words in ("16,840 flights", "0 lost, 0 doubled", *(f"✓ {fact}" for fact in facts)):
        assert words in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert processes_in(tmp_path) == []


def test_ctrl_c_ends_the_broker_and_removes_its_files(tmp_path: Path) -> None:
    """In the middle of the move, nothing is left behind."""
    child = subprocess.Popen(
        COMMAND, cwd=REPOSITORY, env=environment() | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    for line in child.stdout:
        if "behind" in line:  # the first line about the progress of the move
            break
    assert processes_in(tmp_path)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert "interrupted" in errors
    assert list(tmp_path.iterdir()) == []
    assert processes_in(tmp_path) == []


def test_a_step_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised after the broker was ended and its files were removed."""

    def fail(*_: object) -> None:
        assert processes_in(tmp_path)
        raise RuntimeError("made on purpose")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["demo", "--scale", "small"])
    monkeypatch.setattr(steps, "load", fail)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(RuntimeError, match="made on purpose"):
            demo.main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert os.listdir(tmp_path) == []
    assert processes_in(tmp_path) == []
