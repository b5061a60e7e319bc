"""An error about a codec that this installation cannot read names the file of the batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import Log, LogStore
from logstore.errors import UnsupportedFormatError
from support.hostile import column, columnar_batch, plant

READS: list[Callable[[Log], object]] = [list, lambda log: log[0], lambda log: log.truncate_to(1)]


@pytest.mark.parametrize("read", READS, ids=["all", "one", "cut"])
def test_the_segment_is_named(tmp_path: Path, read: Callable[[Log], object]) -> None:
    """A columnar batch cannot have the codec gzip, but its checksum can be right."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("t", 0)
        plant(log, columnar_batch(column([b"x", b"y"]), 2, attributes=1))
        with pytest.raises(UnsupportedFormatError, match="no codec number 1") as refused:
            read(log)
        assert refused.value.path.startswith(log.directory)
