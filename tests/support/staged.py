"""Stage damage in a partition by hand, and check what every damaged log promises.

What a damaged log promises: nothing was cut or changed; the report names the state and the place;
every record whose batch is whole is served at its offset; a lost one is an error, never another
record; `repair` moves the bad bytes into a quarantine file, and then the log reads and appends
with the same offsets.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from logstore import (
    CorruptionError,
    CorruptRecordBatchError,
    LogConfig,
    LogStore,
    OffsetOutOfRangeError,
)

from .reader import Batch, batches
from .samples import facts, fill

CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=512)


class Staged:
    """A store with the partition to damage, orders-0, and a sound neighbour, orders-1."""

    def __init__(self, base: Path, *, is_clean: bool, recovery_point: str = "middle") -> None:
        self.live, self.pristine, self.root = base / "live", base / "pristine", base / "staged"
        with LogStore.open(self.live) as store:
            for partition in (0, 1):
                log = store.create("orders", partition, config=CONFIG)
                fill(log, 100, seed=partition)
                if recovery_point == "middle" and not is_clean:
                    log.flush()
                fill(log, 70, seed=10 + partition)
            self.records = {r.offset: facts(r) for r in store.log("orders", 0)}
            self.neighbour = [facts(r) for r in store.log("orders", 1)]
            self.end = store.log("orders", 0).log_end_offset
            if not is_clean:
                shutil.copytree(self.live, self.pristine)
        if is_clean:
            shutil.copytree(self.live, self.pristine)
        self.restore()
        self.batches: dict[str, list[Batch]] = {
            path.name: list(batches(path.read_bytes())) for path in self.segments()
        }

    @property
    def directory(self) -> Path:
        return self.root / "orders-0"

    def segments(self, partition: int = 0) -> list[Path]:
        return sorted((self.root / f"orders-{partition}").glob("*.log"))

    def restore(self) -> None:
        """Undo the damage of the test before."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.pristine, self.root)

    def offsets_of(self, path: Path, first: int = 0, last: int | None = None) -> list[int]:
        """Give the offsets of the batches `first..last` of a segment."""
        wanted = self.batches[path.name][first:last]
        return [o for batch in wanted for o in range(batch.base_offset, batch.end_offset)]

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.directory.glob("*.log")}

    def check_damaged(
        self, lost: list[int], *, is_rot: bool = False, is_missing: bool = False
    ) -> None:
        """Open the damaged log: it names its state, cuts nothing and serves all that is whole.

        Args:
            is_rot: the damage is in bytes that were flushed and are still there; an open does not
                read them, so reads, `verify` and `repair` find it.
            is_missing: there are no bad bytes to keep in quarantine.
        """
        end = self.end
        good = sorted(set(self.records) - set(lost))
        before = self.files()
        for _ in range(2):  # recovery run twice gives the same
            with LogStore.open(self.root) as store:
                report = store.recovery_report
                (entry,) = [e for e in report.entries if e.partition == 0]
                assert entry.cut_bytes == 0
                if not is_rot:
                    assert entry.state == "corrupt", str(report)
                    assert entry.problems[0].path in str(report)
                log = store.log("orders", 0)
                assert log.log_end_offset == end
                self.check_reads(log, good, lost)
                assert [facts(r) for r in store.log("orders", 1)] == self.neighbour
                assert not store.verify("orders", 0).is_sound
            after = self.files()
            assert {name: after[name] for name in before} == before
        self.check_repair(good, lost, end, is_missing)

    def check_reads(self, log: Any, good: list[int], lost: list[int]) -> None:
        for offset in good:
            assert facts(log[offset]) == self.records[offset]
        for offset in lost[:: max(1, len(lost) // 20)]:
            with pytest.raises(CorruptionError):
                log[offset]
            with pytest.raises(CorruptRecordBatchError) as caught:
                log.read(offset)
            assert caught.value.path.endswith(".log") and caught.value.position >= 0
        found = []
        if lost:
            with pytest.raises(CorruptRecordBatchError):
                for record in log:
                    found.append(facts(record))
            assert found == [self.records[o] for o in good if o < lost[0]]

    def check_repair(self, good: list[int], lost: list[int], end: int, is_missing: bool) -> None:
        """Repair: quarantined by renaming, later records keep their offsets, and it lasts."""
        with LogStore.open(self.root) as store:
            store.repair("orders", 0)
            self.check_repaired(store, good, lost, end)
            assert store.log("orders", 0).append(b"after the repair") == end
            assert store.log("orders", 0)[end].value == b"after the repair"
        with LogStore.open(self.root) as store:
            assert store.recovery_report.is_sound, str(store.recovery_report)
            self.check_repaired(store, good, lost, end)
        assert is_missing or list(self.directory.glob("*.quarantine"))

    def check_repaired(self, store: LogStore, good: list[int], lost: list[int], end: int) -> None:
        log = store.log("orders", 0)
        wanted = [self.records[offset] for offset in good]
        assert [facts(r) for r in log if r.offset < end] == wanted
        for offset in lost[:: max(1, len(lost) // 20)]:
            with pytest.raises(OffsetOutOfRangeError):
                log[offset]
        assert store.verify("orders", 0).is_sound

    def check_sound(self, *, end: int | None = None, cut_bytes: int | None = None) -> None:
        """Open a log whose damage costs nothing (or an unacknowledged tail): all else is there."""
        end = self.end if end is None else end
        wanted = [self.records[offset] for offset in sorted(self.records) if offset < end]
        for attempt in range(2):
            with LogStore.open(self.root) as store:
                (entry,) = [e for e in store.recovery_report.entries if e.partition == 0]
                assert not entry.problems, str(store.recovery_report)
                if cut_bytes is not None:
                    assert entry.cut_bytes == (cut_bytes if attempt == 0 else 0)
                log = store.log("orders", 0)
                assert (log.log_end_offset, [facts(r) for r in log]) == (end, wanted)
                assert [facts(r) for r in store.log("orders", 1)] == self.neighbour
        with LogStore.open(self.root) as store:
            assert store.log("orders", 0).append(b"after") == end
