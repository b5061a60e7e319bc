"""Rates and durations in text; sizes are tested with the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.config import LogConfig, StoreConfig
from logstore.units import format_count, parse_duration, parse_rate


def two_hours(key: str) -> dict[str, Any]:
    """Give settings whatever the type checker thinks of them."""
    return {key: "2h"}


@pytest.mark.parametrize("rate", ["5", "5/s", " 50000000 ", "1.5", "5 /s"])
def test_regression_a_rate_in_text_needs_a_unit(rate: str) -> None:
    """`--throttle 5` meant five bytes per second; the error shows both possible meanings."""
    with pytest.raises(ValueError, match=r"without a unit: write '[0-9.]+MB/s', or '[0-9.]+B/s'"):
        parse_rate(rate, "a rate")


@pytest.mark.parametrize("rate", ["50Mbps", "50mb/h", "fast", "", "-1MB/s", "/s", "50MB/s/s"])
def test_regression_what_is_no_rate_is_answered_with_rates(rate: str) -> None:
    """The error showed sizes instead of rates; bits are not bytes."""
    with pytest.raises(ValueError, match=r"is not a rate: write '50MB/s', '64KiB/s' or '2GiB/s'"):
        parse_rate(rate)


def test_regression_a_count_agrees_with_its_noun() -> None:
    """The text for one log was "1 logs"."""
    counted = [format_count(count, "log") for count in (0, 1, 2, 1000)]
    assert counted == ["0 logs", "1 log", "2 logs", "1,000 logs"]
    assert format_count(2, "copy", "copies") == "2 copies"


@pytest.mark.parametrize("rate", ["0", 0, "0MB/s"])
def test_a_rate_of_nothing_needs_no_unit(rate: int | str) -> None:
    """The advice was to write '0MB/s', which was refused, too."""
    assert parse_rate(rate) == 0


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("5min", 300_000), ("2h", 7_200_000),
        ("7d", 604_800_000), ("2w", 1_209_600_000), (" 1.5 H ", 5_400_000), (9, 9),
    ],
)  # fmt: skip
def test_regression_a_duration_is_read_as_text(text: int | str, duration_ms: int) -> None:
    """Every key in milliseconds accepts text with a unit."""
    assert parse_duration(text) == duration_ms
    assert LogConfig(retention_ms=text).retention_ms == duration_ms
    assert StoreConfig(log_scrub_interval_ms=text).log_scrub_interval_ms == duration_ms


@pytest.mark.parametrize("kind", [LogConfig, StoreConfig])
def test_every_key_in_ms_takes_a_duration(kind: type[LogConfig] | type[StoreConfig]) -> None:
    """No key is forgotten, and no key in another unit accepts a duration."""
    for name in kind._keys:
        if name.endswith("_ms"):
            assert getattr(kind(**two_hours(name)), name) == 7_200_000
        else:
            with pytest.raises((TypeError, ValueError)):
                kind(**two_hours(name))


@pytest.mark.parametrize("text", ["", "5", "d", "7 days", "-1d", "1h30m", "1e3s", "7MB"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A number in text without a unit is refused, too."""
    with pytest.raises(ValueError, match=r"retention_ms: .* is not a duration: write '500ms'"):
        LogConfig(retention_ms=text)
