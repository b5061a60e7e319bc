"""Mutated batches go through every way in and out of a log; the fuzzer sees faults."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from logstore.format.columnar import columns
from media import batch_fuzz
from support.hostile import UNREADABLE
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
