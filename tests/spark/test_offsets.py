"""What a stream writes into its checkpoint, and how a limit is shared; no Spark is started."""

from __future__ import annotations

import json

from logstore import TopicPartition
from logstore.spark.read.offsets import Reached, from_document, limited, same, short_id, to_document

KEYS = [TopicPartition("t", number) for number in range(12)]


def test_limits_are_shared_by_what_is_behind() -> None:
    """Each partition moves by its share, all together by the limit, none beyond its end."""
    starts = dict.fromkeys(KEYS, 100)
    ends = {key: 100 + 10 * key.partition for key in KEYS}
    for limit in (1, 7, 100, 659, 660, 10_000):
        reached = limited(starts, ends, limit)
        assert sum(reached[key] - starts[key] for key in KEYS) == min(limit, 660)
        assert all(starts[key] <= reached[key] <= ends[key] for key in KEYS)
    shares = limited(starts, ends, 330)
    assert all(abs(shares[key] - 100 - 5 * key.partition) <= 2 for key in KEYS)


def test_a_short_partition_does_not_wait_for_a_long_one() -> None:
    """A record beside a million is in the next batch; where they are too many, within a round."""
    ends = {KEYS[0]: 1, KEYS[1]: 10**6, KEYS[2]: 1}
    starts = dict.fromkeys(ends, 0)
    assert limited(starts, ends, 100) == {KEYS[0]: 1, KEYS[1]: 98, KEYS[2]: 1}
    reached = starts
    for _ in range(len(ends)):
        reached = limited(reached, ends, 1)
    assert reached == {KEYS[0]: 1, KEYS[1]: 1, KEYS[2]: 1}
    ends = dict.fromkeys(KEYS, 1000)
    reached = dict.fromkeys(KEYS, 0)
    for _ in range(12):
        reached = limited(reached, ends, 5)
    assert set(reached.values()) == {5}


def test_a_document_is_read_as_it_was_written() -> None:
    """In order, with the ids that are known; one without ids is that of an earlier version."""
    ends = {key: 100 + key.partition for key in reversed(KEYS)}
    ids = {KEYS[3]: short_id(bytes(range(16))), KEYS[4]: short_id(bytes(16))}
    document = to_document(ends, ids)
    assert json.dumps(document["t"]).startswith('{"0": 100, "1": 101, "2": 102')
    assert document["topic ids"] == {"t": {"3": "0001020304050607"}}
    assert from_document(json.loads(json.dumps(document))) == Reached(
        ends, {KEYS[3]: "0001020304050607"}
    )
    assert from_document({"t": {"0": 5}}) == Reached({KEYS[0]: 5}, {})
    assert to_document({KEYS[0]: 5}) == {"t": {"0": 5}}


def test_only_what_is_known_of_both_sides_tells_topics_apart() -> None:
    """An offset counts unless the topic is known to be another one."""
    begun = Reached(dict.fromkeys(KEYS[:4], 7), {KEYS[0]: "a", KEYS[1]: "a", KEYS[2]: "a"})
    assert same(begun, {KEYS[0]: "a", KEYS[1]: "b", KEYS[3]: "a"}) == {
        KEYS[0]: 7, KEYS[2]: 7, KEYS[3]: 7
    }  # fmt: skip
