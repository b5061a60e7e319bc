"""Before a deletion, only the replica's own directories are purged, by exact name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logstore.names import TopicPartition, delete_dir_name, dir_name, move_dir_name
from logstore.store.upkeep.purge import _may_be_of

ID = "0" * 32


@pytest.mark.parametrize("name_of", [delete_dir_name, move_dir_name])
def test_a_topic_that_begins_like_another_is_not_it(
    name_of: Callable[[str, int, str], str],
) -> None:
    """`order` is not `orders`, and another partition or a live name does not match either."""
    key = TopicPartition("orders", 1)
    assert _may_be_of("/disk/" + name_of("orders", 1, ID), key)
    assert _may_be_of("/disk/" + dir_name("orders", 1), key)
    for topic, partition in (("order", 1), ("orders2", 1), ("orders", 11), ("o", 1)):
        assert not _may_be_of("/disk/" + name_of(topic, partition, ID), key)
    assert not _may_be_of("/disk/" + dir_name("order", 1), key)
    assert not _may_be_of("/disk/lost+found", key)


def test_a_name_that_was_cut_may_be_of_all_that_begin_so() -> None:
    """Only the metadata shows to which topic a shortened name belongs."""
    long, other = "t" * 240, "t" * 241
    name = delete_dir_name(long, 0, ID)
    assert _may_be_of(name, TopicPartition(long, 0))
    assert _may_be_of(name, TopicPartition(other, 0))
    assert not _may_be_of(name, TopicPartition("t" * 20, 0))
