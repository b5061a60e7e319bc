"""Replicas are compared batch by batch: what is a difference, and how often it is reported."""

from __future__ import annotations

import random
from collections.abc import Iterable

from support.compacting import batch_of
from support.comparing import Replica, Stored, all_of, batch, comparison, offsets


def thinned(base: int, count: int, kept: Iterable[int], value: bytes = b"v") -> Stored:
    """What compaction leaves of such a batch: a batch that begins with its first record left."""
    first, *more = kept
    assert not more, "one record is enough here"
    rows = [(b"%d" % first, value, 1000 + first)]
    assert base <= first < base + count
    return first, first + 1, batch_of("kafka", first, rows)


TENS = [batch(base, 10) for base in range(0, 100, 10)]


def test_equal_replicas() -> None:
    """Also if one of them has more records after the end."""
    found = comparison(Replica(*TENS), Replica(*TENS[:7]), Replica(*TENS, batch(100, 5)))
    assert all_of(found) == [] and found.offset == 70


def test_each_number_counts() -> None:
    """The value by the checksum, the leader epoch, and the range of offsets."""
    for other in (batch(30, 10, b"w"), batch(30, 10, epoch=1), batch(30, 9)):
        (one,) = all_of(comparison(Replica(*TENS), Replica(*TENS[:3], other, *TENS[4:])))
        assert (one.offset, one.kind) == (30, "different")
        assert one.found[1].startswith("30-39 crc ") and one.found[1] != one.found[2]


def test_a_missing_batch_is_one_difference() -> None:
    """In the middle, or at the end."""
    (one,) = all_of(comparison(Replica(*TENS), Replica(*TENS[:3], *TENS[4:])))
    assert (one.offset, one.kind, one.found[2]) == (30, "different", "nothing")
    (one,) = all_of(comparison(Replica(*TENS), Replica(*TENS[:9], mark=100)))
    assert (one.offset, one.found[2]) == (90, "nothing")


def test_other_batches_of_the_same_offsets_are_one_difference() -> None:
    """The comparison continues where batches end together."""
    parts = batch(30, 4), batch(34, 6)
    for replicas in (
        (TENS, [*TENS[:3], *parts, *TENS[4:]]),
        ([*TENS[:3], *parts, *TENS[4:]], TENS),
    ):
        found = all_of(comparison(*(Replica(*one) for one in replicas)))
        assert offsets(found) == [(30, "different")]


def test_bytes_that_do_not_fit_the_checksum() -> None:
    """Even if all replicas have them."""
    base, end, data = TENS[3]
    bad = base, end, data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
    damaged = Replica(*TENS[:3], bad, *TENS[4:])
    (one,) = all_of(comparison(Replica(*TENS), damaged))
    assert (one.offset, one.kind, [*one.found]) == (30, "wrong checksum", [2])
    (one,) = all_of(comparison(damaged, damaged))
    assert [*one.found] == [1, 2]


def test_a_batch_that_cannot_be_read_is_stepped_over() -> None:
    """If another replica says where it ends."""
    replica = Replica(*TENS)
    replica.unreadable = {30, 40, 90}
    found = comparison(Replica(*TENS), replica, Replica(*TENS))
    kinds = [(one, "unreadable") for one in (30, 40, 90)]
    assert offsets(all_of(found)) == kinds and not found.faults
    found = comparison(replica, replica)
    assert offsets(all_of(found)) == [(30, "unreadable")] * 2 and sorted(found.faults) == [1, 2]


def test_records_that_are_deleted_meanwhile_are_left_out() -> None:
    """The comparison continues at the new log start."""
    first, second = Replica(*TENS), Replica(*TENS[:7], batch(70, 10, b"w"), *TENS[8:])
    found = comparison(first, second)
    assert found.step() == []
    second.start = 65
    second.batches = second.batches[6:]
    assert offsets(all_of(found)) == [(70, "different")]


def test_a_replica_whose_end_goes_back_is_left_out() -> None:
    """The others are compared on."""
    third = Replica(*TENS)
    found = comparison(Replica(*TENS), Replica(*TENS[:9], batch(90, 10, b"w")), third)
    assert found.step() == []
    third.mark = 20
    assert offsets(all_of(found)) == [(90, "different")]
    assert found.faults == {3: "its high watermark went back to 20"}


def test_a_header_with_any_offset_ends_the_comparison() -> None:
    """A damaged header can name an offset that was compared, or one after the end."""
    for base, first, count in ((5, 40, 1), (35, 35, 1), (1 << 40, 40, 6)):
        strange = batch(base, 10)
        damaged = Replica(*TENS[:4], (40, 50, strange[2]), *TENS[5:])
        found = all_of(comparison(Replica(*TENS), damaged))
        assert offsets(found)[0] == (first, "different") and len(found) == count


def test_a_header_that_names_an_earlier_offset_is_not_read_twice() -> None:
    """The reader never goes back, although the last batch of an answer says so."""
    damaged = Replica(*TENS[:5], (50, 60, batch(45, 2)[2]), *TENS[6:])
    damaged.answer_batches = 2
    found = all_of(comparison(Replica(*TENS), damaged))
    assert offsets(found) == [(45, "different"), (50, "different")]


def test_compacted_replicas_may_lack_different_records() -> None:
    """But a record with the same offset is the same."""
    first = Replica(thinned(0, 10, [4]), *TENS[1:])
    second = Replica(*TENS[:3], thinned(30, 10, [39]), *TENS[4:])
    found = comparison(first, second, Replica(*TENS), is_compacted=True)
    assert all_of(found) == [] and found.offset == 100
    changed = Replica(*TENS[:3], thinned(30, 10, [35], b"w"), *TENS[4:])
    (one,) = all_of(comparison(first, changed, Replica(*TENS), is_compacted=True))
    assert (one.offset, one.kind) == (35, "different")
    assert one.found[1] == one.found[3] and "value 1 bytes" in one.found[2]


def test_a_changed_record_of_a_compacted_topic_is_reported_once() -> None:
    """Although its batch overlaps two batches of another replica."""
    replicas = Replica(batch(0, 5), batch(5, 5)), Replica(batch(0, 10)), Replica(batch(0, 10, b"w"))
    found = all_of(comparison(*replicas, is_compacted=True))
    assert offsets(found) == [(offset, "different") for offset in range(10)]


def test_random_damage_is_reported_exactly_once() -> None:
    """Each changed batch of each replica, and nothing else."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(100):
        base, batches = 0, []
        for _ in range(rng.randint(1, 30)):
            batches.append(batch(base, count := rng.randint(1, 9)))
            base += count
        replicas = [list(batches) for _ in range(rng.randint(2, 4))]
        changed = sorted(rng.sample(range(len(batches)), rng.randint(0, min(5, len(batches)))))
        for number in changed:
            first, end, _ = batches[number]
            rng.choice(replicas)[number] = batch(first, end - first, b"w")
        found = all_of(comparison(*(Replica(*one) for one in replicas)))
        assert offsets(found) == [(batches[one][0], "different") for one in changed]
