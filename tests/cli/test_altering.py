"""The configuration of a partition is changed from the command line, with an owner or without."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from logstore import LogConfig, LogStore
from support.command_line import Run, owner_of


def config_of(log_dirs: list[str]) -> LogConfig:
    """Give the configuration of orders-0 that is on the disk."""
    with LogStore.open(log_dirs, read_only=True) as view:
        return view.log("orders", 0).config


@pytest.mark.parametrize("has_owner", [True, False])
def test_a_partition_is_altered_by_whoever_has_the_store(
    run: Run, orders: list[str], has_owner: bool
) -> None:
    """The old and the new values are printed; the new ones are durable."""
    settings = ("retention.ms=7d", "segment_bytes=64MiB")
    with owner_of(orders) if has_owner else nullcontext():
        result = run("alter", "orders", "0", *settings)
        assert result.exit_code == 0, result.output
        assert config_of(orders) == LogConfig(retention_ms="7d", segment_bytes="64MiB")
    lines = [line.split() for line in result.stdout.splitlines()[1:]]
    assert ["retention_ms", "no", "limit", "604800000"] in lines
    assert ["segment_bytes", "1073741824", "67108864"] in lines


def test_keys_are_reset_and_printed_as_json(run: Run, orders: list[str]) -> None:
    """`KEY=` and `KEY=default` do the same; -1 is no limit."""
    assert run("alter", "orders", "0", "retention_ms=5", "segment_bytes=512").exit_code == 0
    settings = ("retention_ms=", "segment_bytes=default", "segment_ms=-1")
    result = run("alter", "orders", "0", *settings, "--format", "json")
    assert result.exit_code == 0, result.output
    name = {"topic": "orders", "partition": 0}
    assert json.loads(result.stdout) == [
        name | {"key": "retention_ms", "old": 5, "new": None},
        name | {"key": "segment_bytes", "old": 512, "new": 1 << 30},
        name | {"key": "segment_ms", "old": 7 * 24 * 3600 * 1000, "new": None},
    ]


@pytest.mark.parametrize("has_owner", [True, False])
@pytest.mark.parametrize(
    ("settings", "exit_code", "message"),
    [
        (["retension_ms=1"], 2, "did you mean 'retention_ms'"),
        (["segment_bytes=1"], 2, "is not in 256..2147483647"),
        (["retention_ms"], 2, "alter needs KEY=VALUE, not 'retention_ms'"),
        ([], 2, "Missing argument"),
    ],
)
def test_wrong_values_are_wrong_usage(
    run: Run,
    orders: list[str],
    has_owner: bool,
    settings: list[str],
    exit_code: int,
    message: str,
) -> None:
    """The exit code is that of wrong usage, whoever finds the mistake; nothing is changed."""
    with owner_of(orders) if has_owner else nullcontext():
        result = run("alter", "orders", "0", *settings)
        assert config_of(orders) == LogConfig()
    assert result.exit_code == exit_code and message in result.stderr, result.output


def test_a_partition_that_is_not_there_is_an_error(run: Run, orders: list[str]) -> None:
    """With the exit code of an error of the store."""
    result = run("alter", "orders", "7", "retention_ms=5")
    assert result.exit_code == 1 and "orders-7" in result.stderr
