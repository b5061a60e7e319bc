"""What a change of hands does follows from the steps of all log dirs, and from Kafka's bytes."""

from __future__ import annotations

import itertools

import pytest

from broker.hands import kafka_files
from broker.hands.kraft_image import Image, text_of
from broker.hands.stages import (
    ChangeOfHandsError,
    Stage,
    stage_of_hand_back,
    stage_of_take_over,
)
from broker.wire.byte_cursor import WireError
from logstore import TopicPartition
from logstore.store.kafka.hands import HAND_BACK, TAKE_OVER, Change

A, B = "a" * 32, "b" * 32
STEPS = [None, *TAKE_OVER, *HAND_BACK]


def changes(*steps: str | None, members: int | None = None) -> dict[str, Change | None]:
    """Make the files of some log dirs."""
    ids = tuple(f"{number:032x}" for number in range(members or len(steps)))
    return {
        f"/{number}": None if step is None else Change(step, A, ids[number], ids, "c", "1", {})
        for number, step in enumerate(steps)
    }


def decided(function: object, *steps: str | None) -> Stage | None:
    """Decide; None if the change is refused."""
    try:
        return function(changes(*steps))  # type: ignore[operator, no-any-return]
    except ChangeOfHandsError:
        return None


# Which pairs of steps of two log dirs can exist, by the order of the steps.
TAKING = {
    ("building", None): Stage.BUILD, ("building", "building"): Stage.BUILD,
    ("building", "moving out"): Stage.CONTINUE, ("moving out", "moving out"): Stage.CONTINUE,
    ("moving out", "moving in"): Stage.CONTINUE, ("moving in", "moving in"): Stage.CONTINUE,
    ("moving in", "taken"): Stage.CONTINUE, ("taken", "taken"): Stage.DONE,
    ("taken", "returning"): Stage.DONE, ("returning", "returning"): Stage.DONE,
    (None, None): Stage.BUILD,
}  # fmt: skip
RETURNING = {
    ("taken", "taken"): Stage.BUILD, ("taken", "returning"): Stage.BUILD,
    ("returning", "returning"): Stage.BUILD, ("returning", "putting away"): Stage.CONTINUE,
    ("putting away", "putting away"): Stage.CONTINUE,
    ("putting away", "putting back"): Stage.CONTINUE,
    ("putting back", "putting back"): Stage.CONTINUE, ("putting back", "clearing"): Stage.CONTINUE,
    ("clearing", "clearing"): Stage.CONTINUE, ("clearing", None): Stage.CONTINUE,
    ("building", None): Stage.UNDO, ("building", "building"): Stage.UNDO,
}  # fmt: skip


def test_every_pair_of_steps_that_a_crash_can_leave() -> None:
    """Each is continued in one way, whichever log dir is ahead."""
    for one, other in itertools.product(STEPS, STEPS):
        pair = (one, other) if (one, other) in TAKING else (other, one)
        if pair in TAKING:
            assert decided(stage_of_take_over, one, other) is TAKING[pair], (one, other)
        pair = (one, other) if (one, other) in RETURNING else (other, one)
        if pair in RETURNING:
            assert decided(stage_of_hand_back, one, other) is RETURNING[pair], (one, other)


@pytest.mark.parametrize("steps", [
    ("moving out", None), ("taken", None), ("putting away", "taken"), ("clearing", None),
])  # fmt: skip
def test_a_take_over_is_refused(steps: tuple[str | None, ...]) -> None:
    """If a log dir is foreign, or is being handed back."""
    assert decided(stage_of_take_over, *steps) is None


@pytest.mark.parametrize("steps", [
    (None, None), ("moving out", "moving out"), ("taken", "moving in"), ("taken", None),
])  # fmt: skip
def test_a_hand_back_is_refused(steps: tuple[str | None, ...]) -> None:
    """If a log dir is foreign, or was not taken over completely."""
    assert decided(stage_of_hand_back, *steps) is None


def test_log_dirs_of_two_changes_are_refused() -> None:
    """They belong to two brokers, or to two points in time."""
    both = changes("taken", "taken")
    found = both["/1"]
    assert found is not None
    both["/1"] = found._replace(change_id=B)
    for function in (stage_of_take_over, stage_of_hand_back):
        with pytest.raises(ChangeOfHandsError, match="at different times"):
            function(both)
    with pytest.raises(ChangeOfHandsError, match="has 3 log dirs, but 2"):
        stage_of_take_over(changes("building", "building", members=3))


def test_regression_two_interrupted_builds_can_be_repeated_or_undone() -> None:
    """Each attempt has its own id; neither command accepted the log dirs any more."""
    both = changes("building", "building")
    found = both["/1"]
    assert found is not None
    both["/1"] = found._replace(change_id=B)
    assert stage_of_take_over(both) is Stage.BUILD
    assert stage_of_hand_back(both) is Stage.UNDO
    both["/1"] = found._replace(change_id=B, members=(*found.members, "c" * 32))
    with pytest.raises(ChangeOfHandsError, match="has 3 log dirs, but 2"):
        stage_of_take_over(both)


# --- Kafka's bytes --------------------------------------------------------------------------------


def text(value: str | None) -> bytes:
    """Write a compact string."""
    return b"\0" if value is None else bytes([len(value) + 1]) + value.encode()


def record(kind: int, version: int, body: bytes) -> bytes:
    """Write a record of the metadata log."""
    return bytes([1, kind, version]) + body


ID = bytes(range(16))
BROKER = (
    (1).to_bytes(4, "big") + bytes(1 + 16 + 8)
    + b"\x02" + text("PLAINTEXT") + text("host") + b"\x23\x84\0\0" + b"\0"
    + b"\x02" + text("metadata.version") + b"\0\x07\0\x1b" + b"\0"
    + text(None) + b"\0\0" + b"\x01\0\x11\x02" + ID
)  # fmt: skip
RECORDS = [
    record(2, 0, text("orders") + ID + b"\0"),
    record(3, 1, (0).to_bytes(4, "big") + ID + b"\x02\0\0\0\x01" + b"\x02\0\0\0\x01"),
    record(3, 1, (1).to_bytes(4, "big") + ID + b"\x03\0\0\0\x01\0\0\0\x02" + b"\x01"),
    record(4, 0, b"\x02" + text("orders") + text("retention.ms") + text("7") + b"\0"),
    record(4, 0, b"\x04" + text("1") + text("a.b") + text("c") + b"\0"),
    record(5, 0, (1).to_bytes(4, "big") + ID + b"\x02\0\x05\x02\0\0\0\x01\x02\x05\x02\0\0\0\x01"),
    record(0, 3, BROKER),
    record(99, 9, b"anything"),
]


def test_records_of_the_metadata_log() -> None:
    """Topics, replicas, settings and log dirs are read; all other records are skipped."""
    image = Image()
    for one in RECORDS:
        image.take(one)
    assert image.partitions() == {TopicPartition("orders", at): ID for at in (0, 1)}
    assert image.topics[ID].replicas == {0: (1,), 1: (1,)}
    assert image.configs == {"orders": {"retention.ms": "7"}}
    assert image.broker_configs == {"1": {"a.b": "c"}}
    assert image.brokers == {1: (text_of(ID),)}
    image.take(record(4, 0, b"\x02" + text("orders") + text("retention.ms") + text(None) + b"\0"))
    assert image.configs == {"orders": {}}
    image.take(record(9, 0, ID + b"\0"))
    assert not image.topics and not image.configs


def test_damaged_records_of_the_metadata_log_are_refused() -> None:
    """Whatever the bytes are, they are read or refused by one error."""
    for one in RECORDS[:-1]:
        for end in range(len(one)):
            image = Image()
            image.take(RECORDS[0])
            try:
                image.take(one[:end])
            except WireError:
                continue
    with pytest.raises(WireError, match="the frame has the version 2"):
        Image().take(b"\x02" + RECORDS[0][1:])
    with pytest.raises(WireError, match="belongs to no topic"):
        Image().take(RECORDS[1])


def test_small_files_of_kafka() -> None:
    """They are lines of text, as Kafka writes them."""
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 0): 5}
    assert kafka_files.checkpoint_of(offsets) == b"0\n2\na 0 5\nb 1 7\n"
    assert kafka_files.checkpoint_of({}) == b"0\n0\n"
    assert kafka_files.epochs_of([(-1, 0), (0, 3), (4, 9)]) == b"0\n2\n0 3\n4 9\n"
    expected = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert kafka_files.partition_metadata(ID) == expected
