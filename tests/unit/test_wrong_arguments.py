"""Whatever is handed to a public method: a wrong argument is named, and nothing is changed by it.

The table says of every argument which of the samples it takes; it has to refuse all the others.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pytest

from logstore import Log, LogStore, LogStoreError
from logstore.log.read.slice import LogSlice
from logstore.log.write.appender import Appender, AppendFuture
from mover import ChangeReplicaDirResponse, Move, MovePlan, ReplicaMover, plan_moves
from support.hanging import QUIET

SAMPLES: dict[str, Any] = {
    "none": None,
    "true": True,
    "number": 3,
    "negative": -1,
    "huge": 2**70,
    "float": 1.5,
    "nan": float("nan"),
    "infinite": float("inf"),
    "text": "x",
    "bytes": b"x",
    "buffer": memoryview(b"5"),
    "empty": [],
    "numbers": [5],
    "mapping": {"a": 5},
    "array": np.zeros(2),
    "object": object(),
    "function": len,
}
OFFSET = "number"
CELL = "none bytes buffer"
CELLS = "empty"
TIME = "none number"
HEADERS = "none empty"
FLAG = "true"
ORDERS = {"topic": "orders", "partition": 0}
TIMEOUT = "none number float"
SIZE = "number huge"
RATE = "none number huge"
PATH = "text"
CALLBACK = "none function"


# What an error may call an argument, if not by its name in the singular or the plural.
OTHER_NAMES = {
    "index": "offset|index|no record at",
    "offset": "offset|no record at",
    "throttled_rate": "rate",
    "intra_broker_throttled_rate": "rate",
}


class Call(NamedTuple):
    """A method of one of the things in the world, how to call it well, and what it takes."""

    of: str
    name: str
    good: dict[str, Any]
    takes: dict[str, str]


CALLS = [
    Call("log", "append", {"value": b"v"}, {
        "value": CELL, "key": CELL, "timestamp": TIME, "headers": HEADERS, "durable": FLAG,
    }),
    Call("log", "extend", {"values": [b"v"]}, {
        "values": CELLS, "keys": "none", "timestamps": "none number numbers", "headers": "none",
        "durable": FLAG,
    }),
    Call("log", "append_arrow", {"batch": pyarrow.table({"value": [b"v"]})}, {
        "batch": "", "durable": FLAG,
    }),
    Call("log", "appender", {}, {"durable": FLAG, "linger": "number float", "max_bytes": SIZE}),
    Call("log", "append_as_follower", {"raw": b""}, {
        "raw": "bytes buffer", "leader_epoch": "none number", "durable": FLAG,
        "may_lack_offsets": FLAG,
    }),
    Call("log", "append_encoded", {"raw": b""}, {
        "raw": "bytes buffer", "leader_epoch": "none number", "durable": FLAG,
        "token": "none number huge",
    }),
    Call("log", "append_marker", {
        "producer_id": 7, "epoch": 0, "commit": True, "coordinator_epoch": 0,
    }, {
        "producer_id": "number", "epoch": "number", "commit": FLAG,
        "coordinator_epoch": "number negative",
        "leader_epoch": "none number", "durable": FLAG, "is_epoch_raised": FLAG,
    }),
    Call("log", "append_of_transaction", {
        "producer_id": 7, "epoch": 0, "values": [b"v"], "keys": [b"k"], "timestamp": 0,
    }, {
        "producer_id": "number", "epoch": "number", "values": CELLS, "keys": CELLS,
        "timestamp": "number", "token": "none number huge", "leader_epoch": "none number",
    }),
    Call("log", "transactions_after", {"offset": 0}, {"offset": OFFSET}),
    Call("log", "transaction_token", {"producer_id": 7, "epoch": 0, "sequence": 0}, {
        "producer_id": "number", "epoch": "number", "sequence": "number negative",
    }),
    Call("log", "idempotent_producer", {}, {"name": "text"}),
    Call("log", "aborted_transactions", {"offset": 0, "end_offset": 1}, {
        "offset": "number negative huge", "end_offset": "number negative huge",
    }),
    Call("log", "expire_producers", {}, {"now_ms": "number negative huge"}),
    Call("log", "read", {"offset": 0}, {
        "offset": OFFSET, "max_records": RATE, "max_bytes": SIZE, "isolation_level": "",
    }),
    Call("log", "read_batches", {}, {
        "offset": "none number", "end_offset": "none number huge", "zero_copy": FLAG,
        "isolation_level": "",
    }),
    Call("log", "read_raw", {"offset": 0}, {"offset": OFFSET, "max_bytes": SIZE}),
    Call("log", "read_range", {"offset": 0}, {
        "offset": OFFSET, "max_bytes": SIZE, "end_offset": "none number huge",
        "isolation_level": "",
    }),
    Call("log", "read_committed_range", {"offset": 0}, {"offset": OFFSET, "max_bytes": SIZE}),
    Call("log", "record_at", {}, {"offset": OFFSET}),
    Call("log", "__getitem__", {}, {"index": "number negative"}),
    Call("log", "tail", {}, {
        "offset": "number negative", "timeout": TIMEOUT, "isolation_level": "",
    }),
    Call("log", "wait_for", {"offset": 0, "timeout": 0}, {
        "offset": "number negative huge", "timeout": TIMEOUT, "isolation_level": "",
    }),
    Call("log", "end_offset_for_epoch", {}, {"epoch": "number negative huge"}),
    Call("log", "advance_high_watermark", {}, {"offset": "number huge"}),
    Call("log", "offset_for_timestamp", {}, {"timestamp": "number negative huge"}),
    Call("log", "first_record_at", {}, {"timestamp": "number negative huge"}),
    Call("log", "truncate_to", {"offset": 0}, {"offset": OFFSET, "keep_lost": FLAG}),
    Call("log", "start_at", {"offset": 0}, {"offset": OFFSET, "keep_lost": FLAG}),
    Call("log", "delete_records_before", {}, {"offset": OFFSET}),
    Call("log", "verify", {}, {"progress": CALLBACK}),
    Call("log", "subscribe", {}, {"callback": "function"}),
    Call("appender", "append", {"value": b"v"}, {
        "value": CELL, "key": CELL, "timestamp": TIME, "headers": HEADERS,
    }),
    Call("future", "result", {}, {"timeout": TIMEOUT}),
    Call("slice", "__getitem__", {}, {"index": "number negative"}),
    Call("slice", "read_batches", {}, {"zero_copy": FLAG}),
    Call("store", "create", {"topic": "t", "partition": 0}, {
        "topic": "text", "partition": "number", "log_dir": "none text", "config": "none",
        "is_new": FLAG, "exist_ok": FLAG, "topic_id": "none",
    }),
    Call("store", "set_config", {**ORDERS, "changes": {}}, {
        "topic": "text", "partition": "number", "changes": "mapping",
    }),
    Call("store", "create_topic", {"topic": "t", "partitions": 1}, {
        "topic": "text", "partitions": "number", "config": "none", "exist_ok": FLAG,
        "is_new": FLAG, "topic_id": "none",
    }),
    *(
        Call("store", name, ORDERS, {"topic": "text", "partition": "number"})
        for name in ("log", "delete", "promote", "repair")
    ),
    Call("store", "__getitem__", {}, {"key": ""}),
    Call("store", "describe_dirs", {}, {"log_dirs": "empty array", "topics": "empty"}),
    Call("store", "add_dir", {"path": "x"}, {"path": PATH, "format_new": FLAG}),
    Call("store", "remove_dir", {"path": "x"}, {"path": PATH, "lost": FLAG}),
    Call("store", "reopen_dir", {"path": "x"}, {"path": PATH, "format_new": FLAG}),
    Call("store", "take_offline", {}, {"path": PATH}),
    Call("store", "cordon", {}, {"path": PATH}),
    Call("store", "facts", {}, {"log_dir": PATH}),
    Call("store", "uncordon", {}, {"path": PATH}),
    Call("store", "prefer_dir", {"topic": "t", "partition": 0, "path": "x"}, {
        "topic": "text", "partition": "number", "path": f"none {PATH}",
    }),
    Call("store", "verify", {}, {
        "topic": "none text", "partition": "none number", "progress": CALLBACK,
    }),
    Call("store", "add_listener", {}, {"listener": "function"}),
    Call("store", "remove_listener", {}, {"listener": "function"}),
    Call("store", "on_close", {}, {"callback": "function"}),
    Call("store", "close", {}, {"timeout": TIMEOUT}),
    Call("LogStore", "open", {"log_dirs": "x"}, {
        "log_dirs": "text array", "config": "none", "read_only": FLAG, "format_new": FLAG,
        "admin_socket": FLAG, "on_log_dir_failure": CALLBACK, "progress": CALLBACK,
    }),
    Call("LogStore", "open_kafka", {"log_dirs": "x"}, {"log_dirs": PATH, "config": "none"}),
    Call("mover", "move", {"topic": "orders", "partition": 0, "log_dir": "a"}, {
        "topic": "text", "partition": "number", "log_dir": PATH, "throttled_rate": RATE,
    }),
    Call("mover", "move_of", ORDERS, {"topic": "text", "partition": "number negative huge"}),
    Call("mover", "of", {"store": None}, {
        "store": "", "num_replica_move_threads": f"none {SIZE}",
    }),
    Call("mover", "execute", {}, {"plan": ""}),
    Call("mover", "change_replica_dirs", {}, {"assignment": ""}),
    Call("mover", "set_throttled_rate", {"rate": 1}, {"rate": RATE, "log_dir": "none text"}),
    Call("move", "wait", {}, {"timeout": TIMEOUT}),
    Call("move", "set_throttled_rate", {}, {"rate": RATE}),
    Call("response", "wait", {}, {"timeout": TIMEOUT}),
    Call("ReplicaMover", "__call__", {}, {
        "num_replica_move_threads": SIZE, "intra_broker_throttled_rate": RATE, "order": "",
        "moves_per_disk_max": RATE, "verify": FLAG,
    }),
    Call("plan_moves", "__call__", {}, {
        "tolerance": "number huge float", "evacuate": "empty array",
    }),
    Call("MovePlan", "from_json", {"text": "{}"}, {
        "text": "text bytes", "broker_id": "none number negative huge",
    }),
]  # fmt: skip
# What else is public by its name, and takes what only this library itself has to give.
OURS = {
    Log: {"checkpoint", "close", "create", "detach", "flush_if_due", "open", "open_read_only",
          "roll_if_due"},
    Appender: set(),
    AppendFuture: set(),
    LogSlice: set(),
    LogStore: set(),
    ReplicaMover: {"abandon", "discard", "enqueue", "holds", "renew"},
    Move: {"advance", "cancel", "go", "measure", "stop"},
    MovePlan: {"count", "index", "to_json"},
    ChangeReplicaDirResponse: set(),
}  # fmt: skip
CLASSES: dict[str, type | None] = {
    "log": Log,
    "appender": Appender,
    "future": AppendFuture,
    "slice": LogSlice,
    "store": LogStore,
    "LogStore": LogStore,
    "mover": ReplicaMover,
    "move": Move,
    "response": ChangeReplicaDirResponse,
    "MovePlan": MovePlan,
    "ReplicaMover": None,
    "plan_moves": None,
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Open a store with a log of three records, a mover, and one of each that they give."""
    os.chdir(tmp_path)
    with (
        LogStore.open(["a", "b"], config=QUIET) as store,
        ReplicaMover(store) as mover,
    ):
        log = store.create("orders", 0, log_dir="a")
        log.extend([b"0", b"1", b"2"])
        with log.appender() as appender:
            response = mover.change_replica_dirs({"a": [("orders", 0)]})
            yield {
                "log": log,
                "appender": appender,
                "future": appender.append(b"3"),
                "slice": log[:],
                "store": store,
                "LogStore": LogStore,
                "mover": mover,
                "move": next(iter(response.moves.values())),
                "response": response,
                "MovePlan": MovePlan,
                "ReplicaMover": partial(ReplicaMover, store),
                "plan_moves": partial(plan_moves, store),
            }


def refusal(call: Any, **arguments: Any) -> str:
    """Give what a call says that has to be refused."""
    try:
        call(**arguments)
    except (TypeError, ValueError, LogStoreError, IndexError) as error:
        return str(error)
    pytest.fail(f"{call} took {arguments}")


def says(message: str, argument: str) -> bool:
    """Tell whether a message names an argument, or one of what it has several of."""
    name = OTHER_NAMES.get(argument, f"{argument}|{argument.rstrip('s')}")
    return re.search(rf"\b({name})\b", message.replace("a log dir", "log_dirs log_dir")) is not None


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.of}.{call.name}")
def test_a_wrong_argument_is_named(world: dict[str, Any], call: Call) -> None:
    """It is refused by a word that names it; the log is what it was, and works."""
    log = world["log"]
    world["appender"].flush()
    before = list(log)
    method = getattr(world[call.of], call.name)
    for argument, taken in call.takes.items():
        for kind, sample in SAMPLES.items():
            if kind not in taken.split():
                message = refusal(method, **{**call.good, argument: sample})
                assert says(message, argument), f"{argument}, {kind}: {message}"
    world["appender"].flush()
    assert list(log) == before
    assert list(world["store"]) == [("orders", 0)]
    log.append(b"next")
    assert log[-1].value == b"next"


def test_every_public_argument_is_in_the_table() -> None:
    """A method or an argument that is new has to say what it takes."""
    told = {(CLASSES[call.of], call.name, argument) for call in CALLS for argument in call.takes}
    for kind, ours in OURS.items():
        for name, method in inspect.getmembers(kind, callable):
            if name.startswith("_") or name in ours:
                continue
            for argument in inspect.signature(method).parameters:
                if argument not in ("self", "clock"):
                    assert (kind, name, argument) in told, f"{kind.__name__}.{name}({argument})"
