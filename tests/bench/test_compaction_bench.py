"""The benchmark of compaction in small; `make bench-compaction` is the large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bench_compaction import MEMORY_BYTES_MAX, Task, measure


@pytest.mark.parametrize("layout", ["columnar", "kafka"])
def test_a_small_log_is_compacted_as_a_dictionary_says(tmp_path: Path, layout: str) -> None:
    """Each key's latest record is left, with its offset and value."""
    result = measure(Task(str(tmp_path / "log"), layout, 60_000, 3_000, 300))
    assert result.kept == 3_000 and 0 < result.memory_bytes < MEMORY_BYTES_MAX
