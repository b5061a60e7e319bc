"""What a trailer vouches for is never taken for a torn tail, whatever else of it is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore import LogStore
from logstore.errors import ReplicaOfflineError
from logstore.log.trailer import TRAILER_BYTES


def closed_log(tmp_path: Path) -> Path:
    """Make a log of ten batches, closed in order, whose checkpoint is lost; gives its file."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        for number in range(10):
            log.append(b"value %d" % number)
    for name in ("recovery-point-offset-checkpoint", ".clean-shutdown"):
        (tmp_path / name).unlink()
    (path,) = (tmp_path / "orders-0").glob("*.log")
    return path


@pytest.mark.parametrize("suffix", [".timeindex", ".index"])
def test_the_last_batch_is_not_cut_where_an_index_is_lost(tmp_path: Path, suffix: str) -> None:
    """The trailer alone says that it was flushed: its damage is told, and no byte goes."""
    path = closed_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    index = path.with_suffix(suffix)
    content = index.read_bytes()
    if suffix == ".index":
        content = b"\xff" * (len(content) - TRAILER_BYTES) + content[-TRAILER_BYTES:]
        index.write_bytes(content)
    else:
        index.unlink()
    with LogStore.open(tmp_path) as store:
        log = store.log("orders", 0)
        assert (log.recovery.state, log.recovery.cut_bytes) == ("corrupt", 0)
        assert [record.value for record in log.read(0)] == [b"value %d" % n for n in range(9)]
        with pytest.raises(ReplicaOfflineError):
            log.append(b"x")
    assert path.stat().st_size == len(data)
