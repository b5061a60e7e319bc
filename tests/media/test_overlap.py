"""Stage segments that overlap: a batch that was never acknowledged stands before a roll."""

from __future__ import annotations

from pathlib import Path

from logstore import LogConfig, LogStore
from logstore.format.columnar import record_batch as columnar


def test_regression_an_overlapping_batch_costs_no_record_of_the_next_segment(
    tmp_path: Path,
) -> None:
    """The batch that reaches into the next segment is taken out, and kept; the next one stays."""
    config = LogConfig(segment_bytes=1024)
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=config)
        for number in range(12):
            log.append(b"%d" % number * 100)
    first, second, *_ = sorted((tmp_path / "orders-0").glob("*.log"))
    base = int(second.stem)
    for suffix in (".index", ".timeindex"):
        first.with_suffix(suffix).unlink()
    with first.open("ab") as file:
        file.write(columnar.frame_one(base, 0, 1, b"never acknowledged"))
    wanted = [b"%d" % number * 100 for number in range(12)]
    with LogStore.open(tmp_path) as store:
        log = store.log("orders", 0)
        assert log.recovery.state == "corrupt"
        assert [record.value for record in log] == wanted
        report = store.repair("orders", 0)
        assert report.lost == [] and len(report.quarantined) == 1
        assert [record.value for record in log] == wanted
        assert log.append(b"next") == 12
    with LogStore.open(tmp_path) as store:
        assert store.recovery_report.is_sound
        assert [record.value for record in store.log("orders", 0)] == [*wanted, b"next"]
