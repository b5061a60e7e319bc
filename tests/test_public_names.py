"""Hold the public surface: its names, their words, and what importing it costs."""

from __future__ import annotations

import inspect
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import Log, LogConfig, LogStore, Record, StoreConfig, TopicPartition, errors
from support.places import environment

IMPORT_MS_MAX = 15
ENGINE_MS_MAX = 25
NUMPY_IMPORT_MS = 54  # of one thread, on a quiet machine of the class that the budget was set for
IMPORT_RUNS = 9
LAZY_MODULES = {
    "aiokafka", "asyncio", "backports.zstd", "click", "concurrent.futures", "crc32c", "lz4",
    "multiprocessing", "pandas", "prometheus_client", "pyarrow", "pyspark", "rich",
}  # fmt: skip

OBJECTS = {
    "AppendInfo",
    "Clock",
    "Facts",
    "FileRange",
    "IdempotentProducer",
    "Log",
    "LogConfig",
    "LogEvent",
    "LogStore",
    "ProducerState",
    "Record",
    "RecordBatch",
    "StoreConfig",
    "StoreEvent",
    "StoreEventKind",
    "Subscription",
    "TopicPartition",
}

# The contract: names, and their parameters in order; what follows `*` is given by keyword.
STORE_METHODS = {
    "open": "log_dirs * config read_only format_new on_log_dir_failure",
    "create": "topic partition * log_dir config is_new exist_ok topic_id",
    "add_listener": "listener",
    "remove_listener": "listener",
    "on_close": "callback",
    "log": "topic partition",
    "create_topic": "topic partitions * config is_new exist_ok topic_id",
    "delete": "topic partition",
    "set_config": "topic partition changes",
    "describe_dirs": "log_dirs topics",
    "facts": "log_dir",
    "verify": "topic partition",
    "repair": "topic partition",
    "metrics": "",
    "flush": "",
    "close": "timeout",
}
LOG_METHODS = {
    "append": "value * key timestamp headers durable",
    "extend": "values * keys timestamps headers durable",
    "append_arrow": "batch * durable",
    "appender": "linger max_bytes",
    "advance_high_watermark": "offset",
    "end_offset_for_epoch": "epoch",
    "read": "offset * max_records max_bytes isolation_level",
    "read_batches": "offset * end_offset zero_copy",
    "append_as_follower": "raw * leader_epoch durable",
    "append_encoded": "raw * leader_epoch durable token",
    "append_marker": "producer_id epoch * commit coordinator_epoch",
    "producer_states": "",
    "idempotent_producer": "name",
    "transaction_token": "producer_id epoch sequence",
    "read_raw": "offset max_bytes",
    "read_range": "offset max_bytes * end_offset isolation_level",
    "tail": "offset timeout",
    "offset_for_timestamp": "timestamp",
    "subscribe": "callback",
    "flush": "",
    "truncate_to": "offset",
    "delete_records_before": "offset",
    "start_at": "offset",
}
LOG_ATTRIBUTES = [
    "topic", "partition", "log_dir", "log_start_offset", "log_end_offset", "high_watermark",
    "recovery_point", "size_bytes", "config", "last_stable_offset", "leader_epochs", "facts",
]  # fmt: skip


def test_all_is_the_contract() -> None:
    """`from logstore import *` gives the documented names and the tree of errors."""
    assert set(logstore.__all__) == OBJECTS | set(errors.__all__)
    assert sorted(logstore.__all__) == logstore.__all__
    for name in logstore.__all__:
        assert getattr(logstore, name).__name__ == name


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [(LogStore, name, words) for name, words in STORE_METHODS.items()]
    + [(Log, name, words) for name, words in LOG_METHODS.items()],
)
def test_methods_keep_their_parameters(kind: type, name: str, words: str) -> None:
    """Programs outside are written against these names and their order."""
    positional, _, keywords = words.partition("*")
    parameters = inspect.signature(getattr(kind, name)).parameters.values()
    found = [p.name for p in parameters if p.name not in ("self", "cls")]
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    expected = positional.split()
    assert [name for name in by_position if name != "self"][: len(expected)] == expected
    assert set(keywords.split()) <= set(found)


def test_operators_are_there() -> None:
    """A store is a sized collection of partitions, a log a sized sequence of records."""
    for name in ("__contains__", "__len__", "__iter__", "__getitem__", "__enter__", "__exit__"):
        assert hasattr(LogStore, name)
    for name in ("__len__", "__iter__", "__getitem__"):
        assert hasattr(Log, name)
    assert Record._fields == (
        "offset", "timestamp", "key", "value", "headers", "topic", "partition",
    )  # fmt: skip
    assert TopicPartition._fields == ("topic", "partition")


def public_members(kind: type) -> list[tuple[str, Any]]:
    """List what a class offers under a name without underscore."""
    return [
        (name, member)
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") and not name.isupper()
    ]


@pytest.mark.parametrize("name", logstore.__all__)
def test_every_public_object_is_described(name: str) -> None:
    """Classes, methods and properties have a docstring of their own that begins with a sentence."""
    kind = getattr(logstore, name)
    settings = LogConfig.__slots__ + StoreConfig.__slots__
    undescribed = [
        member_name
        for member_name, member in [(name, kind), *public_members(kind)]
        if (callable(member) or isinstance(member, property))
        and member_name not in settings
        and not (inspect.getdoc(member) or "").split("\n")[0].strip()
    ]
    assert not undescribed


def test_reprs_are_of_use(tmp_path: Path) -> None:
    """What is printed in a console says what the object is about."""
    with LogStore.open([tmp_path / "a", tmp_path / "b"]) as store:
        log = store.create("orders", 0)
        log.extend([b"1", b"2", b"3"], keys=[b"k"] * 3)
        future = log.appender().append(b"4")
        assert future.result(10) == 3
        shown: dict[str, tuple[Any, ...]] = {
            "store": (store, "1 partition", str(tmp_path)),
            "log": (log, "orders-0", "0..4"),
            "slice": (log[1:3], "orders-0", "1:3"),
            "batch": (next(log.read_batches()), "3 records", "0..2"),
            "future": (future, "offset 3"),
            "config": (log.config, "LogConfig("),
            "record": (log[0], "offset=0", "b'k'"),
            "dirs": (store.describe_dirs(), str(tmp_path / "a"), "online"),
            "metrics": (store.metrics(), "OfflineReplicaCount=0"),
        }
        for what, (thing, *words) in shown.items():
            for word in words:
                assert word in repr(thing), f"{what}: {thing!r}"
        assert log.topic == "orders"
        assert {name for name in LOG_ATTRIBUTES if not hasattr(log, name)} == set()
    assert "no record is damaged" in str(store.recovery_report)
    assert "closed" in repr(store)


def run(program: str, cache: Path | None = None) -> str:
    """Run a program in an interpreter of its own, with compiled modules kept in `cache`."""
    variables = environment()
    if cache is not None:
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        variables["PYTHONPYCACHEPREFIX"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=variables, check=True
    )
    return done.stdout


def test_import_brings_nothing_but_its_two_dependencies() -> None:
    """Modules of extras, and heavy ones of the standard library, wait until they are used."""
    program = "import json, sys; {}; print(json.dumps(sorted(sys.modules)))"
    with_numpy = set(json.loads(run(program.format("import numpy, numpy.typing, xxhash"))))
    added = set(json.loads(run(program.format("from logstore import *")))) - with_numpy
    heavy = {name for name in added for lazy in LAZY_MODULES if f"{name}.".startswith(f"{lazy}.")}
    assert not heavy
    foreign = {name.split(".")[0] for name in added} - {"logstore"} - sys.stdlib_module_names
    assert not foreign


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    """Names are loaded when asked for, and only those that exist."""
    assert set(logstore.__all__) <= set(dir(logstore))
    with pytest.raises(AttributeError, match="has no attribute 'LogStor'"):
        logstore.__getattr__("LogStor")


@pytest.mark.alone
def test_import_is_cheap(tmp_path: Path) -> None:
    """`import logstore` adds at most 15 ms of work to importing NumPy, and the engine 25."""
    program = (
        "from time import thread_time as now; start = now(); import numpy; first = now();"
        "import logstore; second = now(); logstore.LogStore; print(*(1000 * ms for ms in"
        " (first - start, second - first, now() - first)))"
    )
    run(program, tmp_path)  # compiles everything
    turns = [[float(word) for word in run(program, tmp_path).split()] for _ in range(IMPORT_RUNS)]
    numpy_ms, names_ms, engine_ms = map(statistics.median, zip(*turns, strict=True))
    print(f"import: numpy {numpy_ms:.1f}, logstore {names_ms:.1f}, LogStore {engine_ms:.1f} ms")
    # A machine with other work on it is slow for both, so the budget grows with NumPy's own time.
    budget = max(1, numpy_ms / NUMPY_IMPORT_MS)
    assert names_ms <= IMPORT_MS_MAX * budget
    assert engine_ms <= ENGINE_MS_MAX * budget
