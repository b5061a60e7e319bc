"""Test the begin and the end of counting only flushed records, and its mark."""

from __future__ import annotations

from typing import Any

from cluster.pure.exchange import Flush, Flushed, Moved, Opened, WriteOwnSince
from cluster.pure.partition import handle
from cluster.pure.replica import Replica
from support.replicas import STATE, TOPIC, order, replica_of

FLUSHES = STATE._replace(flushes=True)


def marks(effects: list[Any]) -> list[WriteOwnSince]:
    """Return the values that were written into the metadata."""
    return [one for one in effects if isinstance(one, WriteOwnSince)]


def test_the_mark_is_written_after_the_flush() -> None:
    """Losses from before the mark become the replica's own losses (P24)."""
    replica = replica_of(flushed=1)
    replica.host.dirs["a"].flushed_since = 2
    effects = handle(replica, order(state=FLUSHES), 0)
    assert Flush(replica.log_life, 3) in effects and not marks(effects)
    assert marks(handle(replica, Flushed(replica.log_life, 2), 0)) == []
    assert handle(replica, Flushed(replica.log_life, 3), 0)[0] == WriteOwnSince(
        10, counts_flushed=True, placed_since=0
    )
    assert (replica.whole_since, replica.counts_flushed) == (10, True)
    assert marks(handle(replica, order(8, state=FLUSHES), 0)) == []


def test_a_marked_replica_loses_nothing_that_counts_with_the_power() -> None:
    """Its log dir lost unflushed records at 20; without the mark, that is a loss."""
    for is_marked, since in ((True, 4), (False, 20)):
        replica = replica_of(own_since=4, counts_flushed=is_marked)
        replica.host.dirs["a"].whole_since = 20
        replica.host.dirs["a"].flushed_since = 2
        assert replica.whole_since == since


def test_a_replica_that_was_away_uses_the_mark_of_its_metadata() -> None:
    """The setting of the state alone does not show which records counted before."""
    replica = replica_of(flushed=1)
    replica.host.dirs["a"].flushed_since = 2
    handle(replica, order(state=FLUSHES), 0)
    assert replica.whole_since == 10


def test_the_mark_goes_before_other_records_count() -> None:
    """Without the setting, a loss of power can lose counted records."""
    replica = replica_of(counts_flushed=True)
    handle(replica, order(state=FLUSHES), 0)
    effects = handle(replica, order(8), 0)
    assert effects[0] == WriteOwnSince(0, counts_flushed=False, placed_since=0)
    assert not replica.counts_flushed


def test_an_incomplete_replica_gets_no_mark() -> None:
    """An incomplete replica is never whole."""
    replica = replica_of(is_incomplete=True)
    assert marks(handle(replica, order(state=FLUSHES), 0)) == []


def test_a_new_replica_has_nothing_to_flush() -> None:
    """A new replica gets the mark with its first role, and loses it with its records."""
    replica = Replica(replica_of().host, 0)
    effects = handle(replica, order(state=FLUSHES), 0)
    assert marks(effects) == [WriteOwnSince(10, counts_flushed=True, placed_since=0)]
    handle(replica, Opened("a", TOPIC, exists=False), 0)
    assert not replica.counts_flushed


def test_a_copy_keeps_the_mark() -> None:
    """The mover flushes the copy of a marked replica before the swap."""
    replica = replica_of(own_since=4, counts_flushed=True)
    replica.host.dirs["b"].flushed_since = 8
    handle(replica, order(state=FLUSHES), 0)
    moved = handle(replica, Moved("b", 3), 0)
    assert moved == [WriteOwnSince(10, counts_flushed=True, placed_since=10)]
