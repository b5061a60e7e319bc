"""Look at a broker's log dirs while a disk of them fails, and while the broker moves a replica."""

from __future__ import annotations

import base64
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from logstore import DuplicateLogError, LogStore
from logstore.disk import files
from logstore.format.kafka import record_batch as kafka
from logstore.store.kafka import broker_view as kafka_view
from logstore.store.start import listing

Dirs = list[Path]


@pytest.fixture
def dirs(tmp_path: Path) -> Dirs:
    """Make the two log dirs of a running broker, with `t-0` and `t-1`, each in one log dir."""
    found = [tmp_path / "a", tmp_path / "b"]
    for number, log_dir in enumerate(found):
        replica = log_dir / f"t-{number}"
        replica.mkdir(parents=True)
        (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
        payload = kafka.build_payload([b"value"] * 3, None, 5, None)
        (replica / f"{0:020d}.log").write_bytes(b"".join(kafka.frame(payload, 0, 0)))
    return found


@pytest.mark.parametrize("listings_max", [1, listing.LISTINGS_MAX])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_log_dir_whose_disk_fails_while_it_is_listed_is_left_out(
    dirs: Dirs, monkeypatch: pytest.MonkeyPatch, listings_max: int, is_open: bool
) -> None:
    """Its names can be listed, but not its room: the dir is offline, its replicas are absent."""
    asked: list[str] = []

    def statvfs(path: str, ask: Any = files.statvfs) -> os.statvfs_result:
        if path == str(dirs[1]):
            asked.append(path)
            raise OSError(errno.EIO, "Input/output error", path)
        found: os.statvfs_result = ask(path)
        return found

    monkeypatch.setattr(listing, "LISTINGS_MAX", listings_max)
    if not is_open:
        monkeypatch.setattr(files, "statvfs", statvfs)
    with LogStore.open_kafka(dirs) as store:
        if is_open:
            assert list(store) == [("t", 0), ("t", 1)]
            monkeypatch.setattr(files, "statvfs", statvfs)
        assert list(store) == [("t", 0)]
        assert asked == [str(dirs[1])]
        good, bad = store.describe_dirs().log_dirs
        assert (good.path, good.error) == (str(dirs[0]), None)
        assert bad.path == str(dirs[1]) and "cannot be listed" in str(bad.error)
        assert [record.value for record in store["t", 0]] == [b"value"] * 3


class Swap:
    """Stand in for a broker between the two renames of a swap, with a fake clock."""

    def __init__(self, dirs: Dirs, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.naps, self.naps_max = dirs[0] / "t-0", 0, 10**9
        shutil.copytree(self.source, dirs[1] / "t-0")
        monkeypatch.setattr(kafka_view, "monotonic", lambda: self.naps * kafka_view.PAUSE_SECONDS)
        monkeypatch.setattr(kafka_view, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        """Let a moment pass; the last of them ends the swap."""
        assert seconds == kafka_view.PAUSE_SECONDS
        self.naps += 1
        if self.naps == self.naps_max:
            self.source.rename(f"{self.source}.{'0' * 32}-delete")


@pytest.mark.parametrize("is_open", [True, False])
def test_a_replica_that_the_broker_swaps_is_met_once(
    dirs: Dirs, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """During a sync of the broker, both copies have the name of the replica."""
    before = LogStore.open_kafka(dirs) if is_open else None
    swap = Swap(dirs, monkeypatch)
    swap.naps_max = 3
    with LogStore.open_kafka(dirs) if before is None else before as store:
        assert list(store) == [("t", 0), ("t", 1)]
        assert swap.naps == 3 and not store.host.replicas.offline
        assert store["t", 0].directory == str(dirs[1] / "t-0")


def test_two_copies_that_stay_are_waited_for_once(
    dirs: Dirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies belong to a killed broker; if a broker stopped cleanly, no wait is needed."""
    swap = Swap(dirs, monkeypatch)
    naps_max = kafka_view.SWAP_SECONDS_MAX / kafka_view.PAUSE_SECONDS + 1
    with LogStore.open_kafka(dirs) as store:
        naps = swap.naps
        assert 0 < naps <= naps_max
        for _ in range(2):
            with pytest.raises(DuplicateLogError, match="a/t-0"):
                store.log("t", 0)
            assert list(store) == [("t", 0), ("t", 1)] and swap.naps == naps
    for log_dir in dirs:
        (log_dir / ".kafka_cleanshutdown").touch()
    with LogStore.open_kafka(dirs) as store, pytest.raises(DuplicateLogError, match="a/t-0"):
        store.log("t", 0)
    assert swap.naps == naps


def test_regression_a_topic_that_the_broker_makes_anew_has_a_new_id(dirs: Dirs) -> None:
    """The view kept the old topic's id, so a reader took the new records for the old topic's."""

    def write(topic_id: bytes, value: bytes) -> None:
        text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        replica = dirs[0] / "t-0"
        replica.mkdir(exist_ok=True)
        (replica / "partition.metadata").write_text(f"version: 0\ntopic_id: {text}")
        payload = kafka.build_payload([value] * 3, None, 5, None)
        (replica / f"{0:020d}.log").write_bytes(b"".join(kafka.frame(payload, 0, 0)))

    old, new = b"o" * 16, b"n" * 16
    write(old, b"old")
    with LogStore.open_kafka(dirs) as store:
        log = store["t", 0]
        assert (log.topic_id, [record.value for record in log]) == (old, [b"old"] * 3)
        shutil.rmtree(dirs[0] / "t-0")
        write(new, b"new")
        assert [record.value for record in log] == [b"new"] * 3
        assert log.topic_id == new
