"""Damage `partition.metadata`: its configuration is lost, which is said until somebody sets one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from logstore import LogConfig, LogStore, StoreConfig
from logstore.cli.app import app
from logstore.errors import CorruptCheckpointError
from logstore.log.metadata import CONFIG_LOST, FILE_NAME, PartitionMetadata
from logstore.log.recovery.report import DamageName

CONFIG = LogConfig(segment_bytes=1 << 20, retention_bytes=5 << 20)
# What a store keeps by default must not delete what the lost configuration kept.
STRICT = StoreConfig(log_config=LogConfig(segment_bytes=512, retention_bytes=512))
DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "another kind": lambda path: path.write_bytes(
        (path.parent / "leader-epoch-checkpoint").read_bytes()
    ),
}


@pytest.fixture(params=DAMAGES)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log dir with one log of 50 records, whose file is damaged."""
    with LogStore.open(tmp_path / "a") as store:
        log = store.create("orders", 0, config=CONFIG)
        log.extend([b"x" * 100] * 50, durable=True)
    DAMAGES[request.param](tmp_path / "a/orders-0" / FILE_NAME)
    return tmp_path / "a"


def test_regression_a_lost_configuration_is_damage(damaged: Path) -> None:
    """The report said that nothing was damaged, and the next start said nothing at all."""
    for _ in range(2):
        with LogStore.open(damaged, config=STRICT) as store:
            report = store.recovery_report
            assert [one.name for one in report.findings] == [DamageName.LOST_CONFIGURATION]
            assert "logstore alter orders 0" in str(report)
            assert "no record is damaged" not in str(report)
            log = store["orders", 0]
            assert [one.name for one in log.verify()] == [DamageName.LOST_CONFIGURATION]
            log.apply_retention()
            assert log.config == LogConfig() and len(log) == 50
    with LogStore.open(damaged, read_only=True) as reader:
        (found,) = reader["orders", 0].verify()
        assert found.name is DamageName.LOST_CONFIGURATION


def test_regression_a_view_reports_missing_metadata_and_claims_nothing_that_it_has_not_checked(
    tmp_path: Path,
) -> None:
    """Its report said "0 logs opened" and "no record is damaged, none is missing"."""
    with LogStore.open(tmp_path) as store:
        for partition in range(3):
            store.create("orders", partition).append(b"x")
    path = tmp_path / "orders-1" / FILE_NAME
    path.unlink()
    with LogStore.open(tmp_path, read_only=True) as view:
        report = view.recovery_report
        first, *others = str(report).splitlines()
        assert first.startswith("3 partitions found; each log is opened and checked only")
        (told,) = others
        assert f"orders-1: lost configuration in {path}: this file is missing" in told
        assert "logstore alter orders 1 KEY=VALUE" in told
        assert "3 logs" in repr(report) and len(view["orders", 1]) == 1
    shown = CliRunner().invoke(app, ["topics", "--log-dirs", str(tmp_path)])
    assert shown.exit_code == 0 and "lost configuration" in shown.stderr
    LogStore.open(tmp_path).close()  # the owner makes the file anew, and reports the loss itself
    with LogStore.open(tmp_path, read_only=True) as view:
        assert str(view.recovery_report).splitlines() == [first]


@pytest.mark.parametrize("changes", [{"retention_bytes": 5 << 20}, {"retention_ms": -1}])
def test_a_configuration_that_is_set_ends_it(damaged: Path, changes: dict[str, int]) -> None:
    """Also one that changes nothing: it says that the default is what is wanted."""
    with LogStore.open(damaged) as store:
        store.set_config("orders", 0, changes)
        assert store["orders", 0].verify() == []
    with LogStore.open(damaged) as store:
        assert store.recovery_report.findings == []
        assert "no record is damaged" in str(store.recovery_report)
        assert store["orders", 0].config == LogConfig().with_changes(changes, LogConfig())


def test_a_repair_takes_the_default_configuration(damaged: Path) -> None:
    """It is named in the report of the repair."""
    with LogStore.open(damaged) as store:
        assert store["orders", 0].repair().mended == ["lost configuration"]
        assert store["orders", 0].verify() == []
    metadata = PartitionMetadata.read(str(damaged / "orders-0"))
    assert metadata is not None and CONFIG_LOST not in metadata.extra


def test_verify_finds_it_before_anybody_opens_the_store(damaged: Path) -> None:
    """The exit code is 1, and the file is as it was."""
    done = CliRunner().invoke(app, ["--log-dirs", str(damaged), "verify"])
    assert done.exit_code == 1
    assert "lost configuration" in done.stdout
    with pytest.raises((CorruptCheckpointError, AssertionError)):
        assert PartitionMetadata.read(str(damaged / "orders-0")) is not None


def test_regression_a_service_starts_again_with_its_own_configuration(damaged: Path) -> None:
    """It got `PartitionExistsError` at every start, which did not say that one was lost."""
    week = LogConfig(retention_ms="7d")
    with LogStore.open(damaged) as store:
        log = store.create("orders", 0, config=week, exist_ok=True)
        assert log.config == week and len(log) == 50
    with LogStore.open(damaged) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.findings
        assert store.create("orders", 0, config=week, exist_ok=True).config == week


def test_the_default_that_is_asked_for_ends_it_too(damaged: Path) -> None:
    """The caller says what the configuration is, also if the stand-in equals it."""
    with LogStore.open(damaged) as store:
        assert store.create("orders", 0, exist_ok=True).config == LogConfig()
        assert store["orders", 0].verify()  # nobody has decided anything yet
        store.create("orders", 0, config=LogConfig(), exist_ok=True)
        assert not store["orders", 0].verify()
