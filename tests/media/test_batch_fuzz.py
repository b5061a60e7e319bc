"""Mutated batches go through every way in and out of a log; the fuzzer sees faults."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from logstore import LogStore
from logstore.format.columnar import columns
from logstore.log.encoded import follower_appends
from media import batch_fuzz
from media.mutant_logs import followed_one_by_one
from support.hostile import UNREADABLE, column, columnar_batch
from support.places import environment

COUNT = os.environ.get("LOGSTORE_FUZZ_BATCHES", "400")


def test_mutated_batches_read_alike_or_not_at_all() -> None:
    """In processes of their own; `make fuzz-batches` takes a million."""
    script = Path(batch_fuzz.__file__)
    command = [sys.executable, str(script), "--count", COUNT, "--round", "200", "--jobs", "2"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment())
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def wrapping(column: columns.BytesColumn) -> bool:
    """Check starts as version 0.1.0 did: differences of 32 bits wrap."""
    starts = column.starts
    is_whole = starts[0] == 0 and starts[-1] == len(column.data)
    return bool(is_whole and not (np.diff(starts) < 0).any())


def test_the_fuzzer_sees_starts_that_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the check of version 0.1.0 it finds what Arrow says of such a column."""
    data = UNREADABLE["starts that wrap"]()
    assert batch_fuzz.look_at(data, random.Random(1))[0] == "unreadable"
    monkeypatch.setattr(columns, "_follow", wrapping)
    monkeypatch.setattr(columns, "FEW_CELLS", 0)
    with pytest.raises((AssertionError, ValueError, pa.ArrowInvalid)):
        batch_fuzz.look_at(data, random.Random(1))


def test_the_fuzzer_sees_a_check_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an append does not look at records, what it takes cannot be read."""
    data = UNREADABLE["Kafka: deltas that fall"]()
    monkeypatch.setattr("logstore.format.kafka.record_batch.check_many", lambda *_, **__: None)
    with pytest.raises(AssertionError):
        batch_fuzz.look_at(data, random.Random(1))


def test_the_fuzzer_sees_a_quick_look_that_is_too_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """If any records count as regular, an append takes what cannot be read."""
    data = UNREADABLE["Kafka: a delta past the last"]()
    monkeypatch.setattr("logstore.format.kafka.record_batch.is_regular", lambda *_: True)
    with pytest.raises(AssertionError):
        batch_fuzz.look_at(data, random.Random(1))


@pytest.mark.parametrize("check", ["_check_epochs", "_check_order"])
def test_the_fuzzer_sees_a_follower_that_takes_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, check: str
) -> None:
    """Batches of deposed leaders, and batches that leave a gap."""
    data = columnar_batch(column([b"v"]), 1)
    mutants = [("accepted", data, batch_fuzz.look_at(data, random.Random(1))[1])] * 100
    with LogStore.open(tmp_path, admin_socket=False) as store:
        followed_one_by_one(store.create("t", 0), mutants, random.Random(1))
        monkeypatch.setattr(follower_appends, check, lambda *_, **__: None)
        with pytest.raises((AssertionError, OverflowError, struct.error)):
            followed_one_by_one(store.create("t", 1), mutants, random.Random(1))
