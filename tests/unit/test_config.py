"""Test settings: which values are accepted, and what the errors say."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.config import (
    LogConfig,
    StoreConfig,
    format_size,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("1KiB", 1024),
        ("64MiB", 64 << 20),
        ("64 mib", 64 << 20),
        ("  2g ", 2 << 30),
        ("1GB", 10**9),
        ("1.5MB", 1_500_000),
        ("0.5KiB", 512),
        ("3TiB", 3 << 40),
        ("9007199254740993", 9007199254740993),
        (7, 7),
        (-1, -1),
    ],
)
def test_size_is_read(text: int | str, size_bytes: int) -> None:
    """Text and numbers are sizes in bytes, in any case and with any spaces."""
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MiB", "1 XiB", "1e6", "-5", "1,5GB", "٣", "1MiB!", "0x10"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """The message repeats the given value, and shows how to write a size."""
    with pytest.raises(ValueError, match="64KiB"):
        parse_size(text)


@pytest.mark.parametrize("size", [None, True, 1.5, b"1MiB", [1]])
def test_a_size_of_another_type_is_a_type_error(size: Any) -> None:
    """Floats and booleans are refused as sizes, because they are usually mistakes."""
    with pytest.raises(TypeError, match="a size must be"):
        parse_size(size)


@given(st.integers(min_value=0, max_value=2**62))
def test_every_whole_number_survives_text(size_bytes: int) -> None:
    """A number of bytes written as text is read back to the same number."""
    assert parse_size(str(size_bytes)) == size_bytes
    assert parse_size(f"{size_bytes}KiB") == size_bytes * 1024


@pytest.mark.parametrize(
    "rate", ["50MB/s", "50MB", 50_000_000, " 50MB/s ", "50000000B/s", "50MBps", "50 MB/sec"]
)
def test_rate_is_read(rate: int | str) -> None:
    """A rate is a size per second, with or without "/s"."""
    assert parse_rate(rate) == 50_000_000


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1024, "1.0 KiB"), (1 << 30, "1.0 GiB"), (3 << 50, "3072.0 TiB")],
)
def test_size_is_written_for_people(size_bytes: int, text: str) -> None:
    """Sizes are shown in powers of 1024 with one decimal."""
    assert format_size(size_bytes) == text


def wrong(key: str) -> dict[str, Any]:
    """Pass settings that a type checker would refuse."""
    return {key: 1}


def test_a_key_that_is_not_known_names_the_nearest() -> None:
    """For a typing mistake, or Kafka's spelling with dots, the error names the right key."""
    with pytest.raises(TypeError, match=r"no key 'nope'; it has .*retention_ms, .*segment_bytes"):
        LogConfig(**wrong("nope"))
    with pytest.raises(TypeError, match="did you mean 'segment_bytes'"):
        LogConfig(**wrong("segmnt_bytes"))
    with pytest.raises(TypeError, match="did you mean 'retention_ms'"):
        LogConfig(**wrong("retention.ms"))
    with pytest.raises(TypeError, match="did you mean 'max_open_files'"):
        StoreConfig(**wrong("max-open-file"))


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"segment_bytes": 1}, ValueError, "segment_bytes=1 is not in 256"),
        ({"segment_bytes": "2GiB"}, ValueError, "is not in"),
        ({"segment_bytes": "big"}, ValueError, "segment_bytes: 'big' is not a size"),
        ({"segment_bytes": None}, TypeError, "segment_bytes must be a size, not None"),
        (
            {"flush_ms": 1.5},
            TypeError,
            "flush_ms must be a whole number of ms or text",
        ),
        ({"flush_messages": 0}, ValueError, "flush_messages=0"),
        ({"retention_ms": "7 days"}, ValueError, "retention_ms: '7 days' is not a duration"),
        ({"compression_type": "bzip2"}, ValueError, "'gzip', 'snappy', 'lz4', 'zstd'"),
        ({"compression_type": "gzip"}, ValueError, "needs record_format='kafka'"),
        ({"compression_type": None}, TypeError, "compression_type must be text"),
        ({"record_format": "rows"}, ValueError, "choose from 'columnar', 'kafka'"),
        ({"cleanup_policy": "delete,compact"}, ValueError, "choose from 'delete', 'compact'"),
        ({"min_compaction_lag_ms": -1}, ValueError, r"min_compaction_lag_ms=-1 is not in 0\.\."),
        ({"max_compaction_lag_ms": 0}, ValueError, r"max_compaction_lag_ms=0 is not in 1\.\."),
        (
            {"delete_retention_ms": None},
            TypeError,
            "delete_retention_ms must be a whole number of ms",
        ),
        ({"min_cleanable_dirty_ratio": 1.1}, ValueError, r"=1\.1 is not a number in 0\.\.1"),
        ({"min_cleanable_dirty_ratio": "half"}, ValueError, "=half is not a number"),
        ({"min_cleanable_dirty_ratio": float("nan")}, ValueError, "=nan is not a number"),
        ({"min_cleanable_dirty_ratio": 10**400}, ValueError, "is not a number in"),
        ({"min_cleanable_dirty_ratio": True}, TypeError, "a number from 0 to 1, not True"),
    ],
)
def test_a_wrong_value_names_its_key(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    """The message names the key, the given value, and the values that are accepted."""
    with pytest.raises(error, match=words):
        LogConfig(**settings)


def test_minus_one_and_none_both_mean_no_limit() -> None:
    """Kafka's -1 and Python's None are both stored as None."""
    config = LogConfig(retention_bytes=-1, retention_ms=-1, flush_ms=None, segment_ms=-1)
    assert config.retention_bytes is config.retention_ms is None
    assert config.flush_ms is config.segment_ms is None


def test_settings_never_change() -> None:
    """A config can be shared between threads and logs: nothing sets or deletes its attributes."""
    config: Any = LogConfig()
    with pytest.raises(AttributeError, match="replace"):
        config.segment_bytes = 1 << 20
    with pytest.raises(AttributeError, match="replace"):
        del config.segment_bytes
    with pytest.raises(AttributeError):
        config.other = 1


def test_replace_makes_another() -> None:
    """The copy has the changes, and is checked like any other configuration."""
    config = LogConfig(segment_bytes="1MiB")
    other = config.replace(retention_ms=1000)
    assert (other.segment_bytes, other.retention_ms) == (1 << 20, 1000)
    assert config.retention_ms is None
    with pytest.raises(ValueError, match="flush_ms"):
        config.replace(flush_ms=-5)


def test_repr_shows_what_differs_from_the_defaults() -> None:
    """A repr is short, and evaluates to an equal config."""
    assert repr(LogConfig()) == "LogConfig()"
    config = StoreConfig(max_open_files=16, log_config=LogConfig(segment_bytes="1MiB"))
    assert repr(config.log_config) == "LogConfig(segment_bytes=1048576)"
    assert repr(config) == f"StoreConfig(log_config={config.log_config}, max_open_files=16)"
    assert eval(repr(config), {"LogConfig": LogConfig, "StoreConfig": StoreConfig}) == config


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(),
        LogConfig(segment_bytes="1MiB", retention_ms=5, compression_type="zstd"),
        StoreConfig(broker_id=3, log_config=LogConfig(flush_ms=1)),
    ],
)
def test_settings_travel(config: LogConfig | StoreConfig) -> None:
    """Pickle, copy and JSON give an equal configuration."""
    assert pickle.loads(pickle.dumps(config)) == config == copy.deepcopy(config)
    assert type(config).from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert hash(config) == hash(copy.copy(config))
    assert config != "LogConfig()"


def test_settings_of_an_older_version_are_completed() -> None:
    """Keys that a dictionary lacks get the present defaults."""
    assert LogConfig.from_dict({"segment_bytes": 4096}).index_interval_bytes == 4096
    assert StoreConfig.from_dict({}) == StoreConfig()


def test_log_config_of_a_store_is_a_log_config() -> None:
    """A dictionary is refused at once; otherwise the first `create` would fail."""
    with pytest.raises(TypeError, match="log_config must be a LogConfig"):
        StoreConfig(**wrong("log_config"))


def test_keys_of_compaction_have_kafkas_defaults_and_forms() -> None:
    """A ratio becomes a float, whatever its type; -1 means no limit."""
    config = LogConfig(
        cleanup_policy="compact,delete",
        max_compaction_lag_ms=-1,
        delete_retention_ms="2h",
        min_cleanable_dirty_ratio="0.25",
    )
    assert config.max_compaction_lag_ms is None and config.delete_retention_ms == 7_200_000
    assert config.min_cleanable_dirty_ratio == 0.25 and config.is_compacted
    assert LogConfig(min_cleanable_dirty_ratio=1).to_dict()["min_cleanable_dirty_ratio"] == 1.0
    plain = LogConfig()
    assert (plain.min_compaction_lag_ms, plain.max_compaction_lag_ms) == (0, None)
    assert (plain.delete_retention_ms, plain.min_cleanable_dirty_ratio) == (86_400_000, 0.5)
    assert not plain.is_compacted


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_retention_is_for_logs_with_a_limit_that_delete(policy: str) -> None:
    """A log that is only compacted loses no segment because of its age or size."""
    assert not LogConfig(cleanup_policy=policy).is_retained
    for key in ("retention_ms", "retention_bytes"):
        config = LogConfig(cleanup_policy=policy).replace(**{key: 0})
        assert config.is_retained == ("delete" in policy)
