"""Test errors: facts are attributes, there is one tree, and pickle keeps all of it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from logstore import errors
from logstore.errors import (
    CoordinatorFencedError,
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptionError,
    CorruptRecordBatchError,
    DuplicateLogError,
    FencedLeaderEpochError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    LogClosedError,
    LogDirError,
    LogDirFullError,
    LogDirIdentityError,
    LogDirLockedError,
    LogDirOfflineError,
    LogDirSuspectError,
    LogStoreError,
    MissingKeyError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionExistsError,
    ProducerFencedError,
    ReadOnlyStoreError,
    RecordExpansionError,
    RecordTooLargeError,
    ReplicaError,
    ReplicaIncompleteError,
    ReplicaOfflineError,
    UnknownPartitionError,
    UnsupportedFormatError,
)

DAMAGE: dict[str, Any] = {"path": "/d/a-0/1.log", "position": 96, "reason": "zeros"}
PRODUCER: dict[str, Any] = {"producer_id": 5, "epoch": 3}
REPLICA: dict[str, Any] = {"topic": "orders", "partition": 3}

EXAMPLES: list[tuple[type[LogStoreError], dict[str, Any]]] = [
    (CorruptionError, DAMAGE),
    (CorruptRecordBatchError, DAMAGE),
    (CorruptIndexError, DAMAGE),
    (CorruptCheckpointError, DAMAGE),
    (LogDirError, {"path": "/d", "reason": "too many open files"}),
    (LogDirOfflineError, {"path": "/d", "reason": "Input/output error"}),
    (LogDirFullError, {"path": "/d", "reason": ""}),
    (LogDirSuspectError, {"path": "/d", "reason": "no answer for 5 s"}),
    (LogDirLockedError, {"path": "/d", "pid": 42}),
    (LogDirIdentityError, {"path": "/d", "reason": "it is another store's"}),
    (DuplicateLogError, {"paths": ["/d/a-0", "/e/a-0"], **REPLICA}),
    (ReplicaError, {**REPLICA, "reason": "its directory is gone"}),
    (ReplicaOfflineError, {**REPLICA, "reason": "its directory is gone"}),
    (ReplicaIncompleteError, {**REPLICA, "reason": "a move was cut short"}),
    (UnsupportedFormatError, {"path": "/d/x", "version": 9, "reason": "made by a later version"}),
    (FencedLeaderEpochError, {"leader_epoch": 3, "current_epoch": 4}),
    (OutOfOrderSequenceError, {**PRODUCER, "sequence": 9, "expected_sequence": 7}),
    (ProducerFencedError, {**PRODUCER, "current_epoch": 4}),
    (InvalidTransactionStateError, {**PRODUCER, "reason": "its transaction has ended"}),
    (CoordinatorFencedError, {"producer_id": 5, "coordinator_epoch": 2, "current_epoch": 3}),
    (OffsetOutOfRangeError, {"offset": 7, "log_start_offset": 0, "log_end_offset": 5}),
    (RecordTooLargeError, {"size_bytes": 100, "max_message_bytes": 10}),
    (InvalidTimestampError, {"timestamp": 9, "timestamp_min": 1, "timestamp_max": 8}),
    (MissingKeyError, {"number": 3}),
    (RecordExpansionError, {"size_bytes": 100, "record_expansion_bytes_max": 10}),
    (UnknownPartitionError, REPLICA),
    (PartitionExistsError, REPLICA),
    (ReadOnlyStoreError, {"path": "/d"}),
    (LogClosedError, {"reason": "the store was closed"}),
]


def test_every_error_has_an_example() -> None:
    """The list above contains the whole tree, and the module exports every class."""
    tree = {
        item
        for item in vars(errors).values()
        if isinstance(item, type) and issubclass(item, LogStoreError) and item is not LogStoreError
    }
    assert {kind for kind, _ in EXAMPLES} == tree
    assert set(errors.__all__) == {kind.__name__ for kind in tree} | {"LogStoreError"}


@pytest.mark.parametrize(("kind", "facts"), EXAMPLES)
def test_facts_are_attributes_and_travel(kind: type[LogStoreError], facts: dict[str, Any]) -> None:
    """A fact is an attribute, is in the message, and survives pickle and copy."""
    error = kind(**facts)
    error.add_note("while reading")
    for other in (error, pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert str(other) == str(error)
        assert {name: getattr(other, name) for name in facts} == facts
        assert other.__notes__ == ["while reading"]
    for fact in facts.values():
        assert str(fact) in str(error)
    assert str(error) == str(error).strip()
    assert kind.__name__ in repr(error)


@pytest.mark.parametrize(
    ("kind", "parents"),
    [
        (CorruptRecordBatchError, (CorruptionError,)),
        (CorruptIndexError, (CorruptionError,)),
        (CorruptCheckpointError, (CorruptionError,)),
        (LogDirOfflineError, (LogDirError,)),
        (DuplicateLogError, (LogDirError,)),
        (ReplicaIncompleteError, (ReplicaError,)),
        (OffsetOutOfRangeError, (LookupError,)),
        (UnknownPartitionError, (LookupError,)),
        (RecordTooLargeError, (ValueError,)),
        (RecordExpansionError, (ValueError,)),
    ],
)
def test_tree(kind: type[LogStoreError], parents: tuple[type[Exception], ...]) -> None:
    """An error is caught by its base class, and by a built-in class if it has one."""
    assert issubclass(kind, (LogStoreError,))
    assert all(issubclass(kind, parent) for parent in parents)
    assert not issubclass(kind, OSError)


def test_retriable_says_what_may_be_tried_again() -> None:
    """Full and slow disks recover by themselves; the raiser may mark a single error."""
    retriable = {kind for kind, _ in EXAMPLES if kind.retriable}
    assert retriable == {LogDirFullError, LogDirSuspectError}
    error = LogDirError(path="/d", reason="too many open files", retriable=True)
    assert error.retriable
    assert pickle.loads(pickle.dumps(error)).retriable


def test_message_can_be_given() -> None:
    """A message that the raiser gives replaces the template and keeps the facts."""
    error = LogClosedError("opened before fork", reason="fork")
    assert str(error) == "opened before fork"
    assert pickle.loads(pickle.dumps(error)).reason == "fork"
