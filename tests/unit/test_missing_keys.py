"""A compacted log accepts no record without a key, in any way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from logstore import Log, LogConfig, LogStore, MissingKeyError

ROWS = pa.RecordBatch.from_pydict({"value": [b"a", b"b", b"c"], "key": [b"k", None, b"k"]})
NO_KEYS = pa.RecordBatch.from_pydict({"value": [b"a"]})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    with LogStore.open(tmp_path) as store:
        yield store


def encoded(store: LogStore, record_format: str, keys: list[bytes | None]) -> bytes:
    """Encode a batch in a log that accepts such records."""
    log = store.create("plain", 0, config=LogConfig(record_format=record_format), exist_ok=True)
    offset = log.log_end_offset
    log.extend([b"value"] * len(keys), keys=keys)
    return log.read_raw(offset)


WAYS: dict[str, tuple[int, Callable[[Log], object]]] = {
    "append": (0, lambda log: log.append(b"x")),
    "durable append": (0, lambda log: log.append(b"x", durable=True)),
    "headers": (0, lambda log: log.append(b"x", headers=[("a", b"b")])),
    "extend": (1, lambda log: log.extend([b"x", b"y"], keys=[b"k", None])),
    "extend without keys": (0, lambda log: log.extend([b"x", b"y"])),
    "appender": (0, lambda log: log.appender().append(b"x")),
    "arrow": (1, lambda log: log.append_arrow(ROWS)),
    "arrow without keys": (0, lambda log: log.append_arrow(NO_KEYS)),
    "producer": (0, lambda log: log.idempotent_producer("p").append(b"x")),
}


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
@pytest.mark.parametrize("way", WAYS)
def test_a_record_without_a_key_is_refused(store: LogStore, way: str, record_format: str) -> None:
    """The error says which record it is, and nothing was appended."""
    config = LogConfig(cleanup_policy="compact", record_format=record_format)
    log = store.create("users", 0, config=config)
    number, call = WAYS[way]
    with pytest.raises(MissingKeyError, match="has no key, and a compacted log") as caught:
        call(log)
    assert caught.value.number == number
    assert log.log_end_offset == 0
    assert log.append(b"x", key=b"k") == 0
    assert log.append(None, key=b"k", durable=True) == 1
    assert log.append_arrow(ROWS.filter(pa.array([True, False, True]))) == range(2, 4)
    assert log.extend([]) == range(4, 4)


@pytest.mark.parametrize("record_format", ["columnar", "kafka"])
def test_encoded_batches_are_looked_into(store: LogStore, record_format: str) -> None:
    """A follower accepts what its leader has."""
    config = LogConfig(cleanup_policy="compact,delete", record_format=record_format)
    log = store.create("users", 0, config=config)
    bad = encoded(store, record_format, [b"k", b"l", None])
    for keys in ([b"k", b"l"], [b"", b"k"]):
        log.append_encoded(encoded(store, record_format, list(keys)))
    with pytest.raises(MissingKeyError) as caught:
        log.append_encoded(bad)
    assert (caught.value.number, caught.value.is_written, log.log_end_offset) == (2, False, 4)
    follower = store.create("follower", 0, config=config)
    assert follower.append_as_follower(bad) == range(3)


def test_it_holds_from_the_change_of_the_policy_on(store: LogStore) -> None:
    """The rule ends when the policy is changed back."""
    log = store.create("users", 0)
    assert log.append(b"x") == 0
    store.set_config("users", 0, {"cleanup_policy": "compact"})
    with pytest.raises(MissingKeyError):
        log.append(b"x")
    store.set_config("users", 0, {"cleanup_policy": "delete"})
    assert log.append(b"x") == 1
