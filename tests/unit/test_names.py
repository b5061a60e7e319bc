"""Test names of topics, directories and files: no name has two meanings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import names
from logstore.names import ReplicaDirName, TopicPartition

UNIQUE_ID = "0123456789abcdef" * 2
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(
    lambda topic: topic not in (".", "..")
)
PARTITIONS = st.integers(min_value=0, max_value=names.PARTITION_MAX)
MAKERS = {
    "move": names.move_dir_name,
    "delete": names.delete_dir_name,
    "stray": names.stray_dir_name,
}


@pytest.mark.parametrize("topic", ["orders", "a", "A.b_c-9", "x.move", "-", "...", "a" * 249])
def test_legal_topics(topic: str) -> None:
    """Kafka's legal names are accepted, also names that look like directories of a move."""
    assert names.validate_topic(topic) == topic


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "a/b", "../a", "a\0b", "a b", "a\n", "größe", "数据", "a" * 250, "a:b", "~"],
)
def test_illegal_topics(topic: str) -> None:
    """A name that could leave its directory, or that Kafka refuses, is a ValueError."""
    with pytest.raises(ValueError, match="topic"):
        names.validate_topic(topic)


@pytest.mark.parametrize("topic", [None, 1, b"orders", ["orders"]])
def test_a_topic_of_another_type_is_a_type_error(topic: Any) -> None:
    """Bytes are not text."""
    with pytest.raises(TypeError, match="text"):
        names.validate_topic(topic)


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_illegal_partitions(partition: int) -> None:
    """A partition is not negative and fits 31 bits."""
    with pytest.raises(ValueError, match="partition"):
        names.validate_partition(partition)


@pytest.mark.parametrize("partition", [None, "0", 1.0, True])
def test_a_partition_of_another_type_is_a_type_error(partition: Any) -> None:
    """Text, floats and booleans are not partitions."""
    with pytest.raises(TypeError, match="number"):
        names.validate_partition(partition)


def test_partition_of_a_topic_reads_like_its_directory() -> None:
    """Its text is the name of its live directory, and it is a tuple."""
    assert str(TopicPartition("orders", 0)) == names.dir_name("orders", 0) == "orders-0"
    assert TopicPartition("orders", 0) == ("orders", 0)


@given(TOPICS, PARTITIONS)
def test_live_names_read_back(topic: str, partition: int) -> None:
    """Every topic and partition is found again in the name of its directory."""
    if len(f"{topic}-{partition}") > names.NAME_BYTES_MAX:
        with pytest.raises(ValueError, match="characters"):
            names.dir_name(topic, partition)
        return
    name = names.dir_name(topic, partition)
    assert names.parse_dir_name(name) == ReplicaDirName(topic, partition, "live", "")


@given(TOPICS, PARTITIONS, st.sampled_from(sorted(MAKERS)))
def test_other_names_read_back(topic: str, partition: int, kind: str) -> None:
    """The name always has kind, id and partition, and as much of the topic as fits."""
    name = MAKERS[kind](topic, partition, UNIQUE_ID)
    assert len(name) <= names.NAME_BYTES_MAX
    parsed = names.parse_dir_name(name)
    assert parsed is not None
    assert (parsed.partition, parsed.kind, parsed.unique_id) == (partition, kind, UNIQUE_ID)
    assert topic.startswith(parsed.topic)
    assert parsed.topic == topic or len(name) == names.NAME_BYTES_MAX


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("x.move-0", "x.move"),
        (f"orders-0.{UNIQUE_ID}.move-7", f"orders-0.{UNIQUE_ID}.move"),
        ("orders-1-2", "orders-1"),
        ("--0", "-"),
    ],
)
def test_a_topic_that_looks_like_a_move_is_live(name: str, topic: str) -> None:
    """The last part of a name decides: digits mean a live copy, a suffix does not."""
    parsed = names.parse_dir_name(name)
    assert parsed is not None
    assert (parsed.topic, parsed.kind) == (topic, "live")


@pytest.mark.parametrize(
    "name",
    [
        "lost+found",
        ".DS_Store",
        "orders",
        "orders-",
        "-0",
        "orders-x",
        "orders-01",
        "orders-2147483648",
        "orders-0.move",
        f"orders-0.{UNIQUE_ID}",
        f"orders-0.{UNIQUE_ID.upper()}.move",
        f"orders-0.{UNIQUE_ID}.moved",
        "orders-0\n",
        "orders-٣",
        "..-0",
        "a/b-0",
        "",
        "a" * 250 + "-0",
    ],
)
def test_foreign_names_are_nobodys(name: str) -> None:
    """A name that this library would not write is not parsed."""
    assert names.parse_dir_name(name) is None


@given(st.integers(min_value=0, max_value=2**63 - 1), st.sampled_from([".log", ".timeindex"]))
def test_segment_file_names_read_back_and_sort(base_offset: int, suffix: str) -> None:
    """Twenty digits hold every offset."""
    name = names.segment_file_name(base_offset, suffix)
    assert len(name) == 20 + len(suffix)
    assert names.parse_segment_file_name(name) == (base_offset, suffix)


@pytest.mark.parametrize(
    "name", ["1.log", f"{2**63:020d}.log", "0" * 20, "0" * 21 + ".log", "x" * 20 + ".log", "٣" * 20]
)
def test_foreign_file_names_are_nobodys(name: str) -> None:
    """A file whose name is not a segment's is not treated as a segment."""
    assert names.parse_segment_file_name(name) is None
