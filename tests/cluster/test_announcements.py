"""Test the numbers of changes: each broker gets each change that it lacks, once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.listener_config import Endpoint
from broker.wire.error_codes import ErrorCode
from cluster.control import announcements
from cluster.control.announcements import NOTHING, Announced, Announcements, Heard
from cluster.run.metadata_cache import MetadataCache
from cluster.view import BrokerView, PartitionView, TopicUpdate
from cluster.wire.metadata_updates import Update, encode_update
from cluster.wire.roles import Controlling

A, B = b"a" * 16, b"b" * 16
LED = PartitionView(1, 4, (1, 2), (1, 2))
ALONE = PartitionView(2, 5, (1, 2), (2,), (1,))
ONE = BrokerView(1, (Endpoint("PLAINTEXT", "one", 9092),))
TWO = BrokerView(2, (Endpoint("PLAINTEXT", "two", 9092),))
ORDERS, OTHER = ("orders", 0), ("other", 3)


def opened() -> Announcements:
    made = Announcements(Controlling(1, 7))
    made.announce_brokers([ONE, TWO], {1: 50, 2: 60})
    made.announce([(ORDERS, Announced(A, LED)), (OTHER, Announced(B, LED))])
    made.open()
    return made


def heard_after(update: Update | None) -> Heard:
    assert update is not None
    return Heard(update.broker_epoch, update.last_change)


def test_nothing_is_announced_before_everything_is_known() -> None:
    """Otherwise a part of the metadata would look complete."""
    made = Announcements(Controlling(1, 7))
    made.announce_brokers([ONE], {1: 50})
    made.announce([(ORDERS, Announced(A, LED))])
    assert made.news(1, NOTHING) is None
    made.open()
    assert made.news(1, NOTHING) is not None


def test_a_new_broker_gets_everything() -> None:
    """A broker that was registered again gets everything, too; an unregistered one gets nothing."""
    made = opened()
    topics = [TopicUpdate("orders", A, {0: LED}), TopicUpdate("other", B, {3: LED})]
    update = made.news(1, NOTHING)
    assert update == Update(Controlling(1, 7), 50, True, 0, 3, (ONE, TWO), topics)
    heard = heard_after(update)
    assert made.news(1, heard) is None
    made.announce_brokers([ONE, TWO], {1: 51})
    again = made.news(1, heard)
    assert again is not None and again.is_full and again.broker_epoch == 51
    assert made.news(2, NOTHING) is None


def test_then_it_gets_what_changed() -> None:
    """A broker gets the newest state of each changed partition since its last answer."""
    made = opened()
    heard = heard_after(made.news(1, NOTHING))
    made.announce([(ORDERS, Announced(A, ALONE))])
    made.announce([(ORDERS, Announced(A, LED)), (OTHER, Announced(B, LED))])
    update = made.news(1, heard)
    assert update is not None and not update.is_full
    assert (update.changes_after, update.last_change) == (3, 5)
    assert update.topics == [TopicUpdate("orders", A, {0: LED})]
    made.announce([(OTHER, Announced(B, None))])
    later = made.news(1, heard)  # the answer to the update is lost: it is sent again, with more
    assert later is not None and later.changes_after == 3
    assert sorted(later.topics) == [*update.topics, TopicUpdate("other", B, {3: None})]


def test_what_did_not_change_is_not_announced() -> None:
    """Unchanged partitions and brokers are not announced again."""
    made = opened()
    heard = heard_after(made.news(1, NOTHING))
    made.announce([(ORDERS, Announced(A, LED))])
    made.announce_brokers([ONE, TWO], {1: 50, 2: 60})
    assert made.news(1, heard) is None
    made.announce_brokers([ONE], {1: 50, 2: 60})
    update = made.news(2, Heard(60, heard.last_change))
    assert update is not None and update.brokers == (ONE,) and not update.topics


def test_a_change_is_known_when_all_live_brokers_have_confirmed_it() -> None:
    """An old broker epoch does not count; a broker that is not live is not waited for."""
    made = opened()
    assert not made.wait_known(0.0)
    made.confirm(1, Heard(50, 3))
    made.confirm(2, Heard(59, 3))
    assert not made.wait_known(0.0)
    made.confirm(2, Heard(60, 3))
    assert made.wait_known(0.0)
    made.announce([(ORDERS, Announced(A, ALONE))])
    made.confirm(1, Heard(50, 4))
    assert not made.wait_known(0.0)
    gone = threading.Thread(target=made.announce_brokers, args=([ONE], {1: 50, 2: 60}))
    gone.start()
    made.confirm(1, Heard(50, 5))
    assert made.wait_known(60.0)
    gone.join()


def test_a_deleted_topic_is_announced_beside_its_successor() -> None:
    """Partitions that only the old topic had are deleted; a new broker gets only the new topic."""
    made = opened()
    made.announce([(("orders", 1), Announced(A, LED))])
    heard = heard_after(made.news(1, NOTHING))
    made.announce([(("orders", number), Announced(A, None)) for number in (0, 1)])
    made.announce([(ORDERS, Announced(B, ALONE))])
    update = made.news(1, heard)
    assert update is not None and sorted(update.topics, key=str) == [
        TopicUpdate("orders", A, {0: None, 1: None}), TopicUpdate("orders", B, {0: ALONE})
    ]  # fmt: skip
    everything = made.news(1, NOTHING)
    assert everything is not None
    assert TopicUpdate("orders", B, {0: ALONE}) in everything.topics
    assert all(one.topic_id != A for one in everything.topics)


def test_old_deletions_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that lacks an old deletion gets everything, without the deleted topic."""
    monkeypatch.setattr(announcements, "DELETED_MAX", 2)
    made = opened()
    heard = heard_after(made.news(1, NOTHING))
    names = [f"t{number}" for number in range(5)]
    made.announce([((name, 0), Announced(A, LED)) for name in names])
    some = heard_after(made.news(1, heard))
    made.announce([((name, 0), Announced(A, None)) for name in names])
    update, later = made.news(1, some), made.news(1, Heard(50, some.last_change + 3))
    assert update is not None and update.is_full
    assert [one.name for one in update.topics] == ["orders", "other"]
    assert later is not None and not later.is_full
    assert {one.name for one in later.topics} == {"t3", "t4"}


def test_regression_a_broker_that_knows_only_the_old_topic_hears_of_its_deletion() -> None:
    """The new topic came and went while its messages were lost; the old topic must be deleted."""
    made, cache = opened(), MetadataCache()
    first = made.news(1, NOTHING)
    assert first is not None and cache.update(encode_update(first)) is ErrorCode.NONE
    made.announce([(ORDERS, Announced(A, None))])
    made.announce([(ORDERS, Announced(B, ALONE))])
    made.announce([(ORDERS, Announced(B, None))])
    update = made.news(1, heard_after(first))
    assert update is not None and cache.update(encode_update(update)) is ErrorCode.NONE
    assert "orders" not in cache.view.topics
    assert made.find(ORDERS) == Announced(B, None)


CHANGES = st.one_of(
    st.tuples(
        st.sampled_from("pq"),
        st.integers(0, 2),
        st.booleans(),
        st.sampled_from([LED, ALONE, None]),
    ),
    st.sampled_from([(ONE,), (ONE, TWO), (TWO,)]),
)


class Oracle:
    """The expected metadata, and the rows that announce a change, as a controller makes them."""

    def __init__(self) -> None:
        self.partitions = {ORDERS: Announced(A, LED), OTHER: Announced(B, LED)}
        self.ids = {"p": b"p" * 16, "q": b"q" * 16}
        self.brokers: tuple[BrokerView, ...] = (ONE, TWO)

    def change(
        self, name: str, number: int, is_again: bool, view: PartitionView | None
    ) -> list[tuple[tuple[str, int], Announced]]:
        """Change or delete a partition, perhaps after its topic was deleted and created again."""
        rows = []
        if is_again:
            places = [one for one in self.partitions if one[0] == name]
            rows = [(one, self.partitions.pop(one)._replace(view=None)) for one in places]
            self.ids[name] = name.encode() + len(self.ids).to_bytes(15, "big")
            self.ids[self.ids[name].hex()] = b""  # so that the next id is another one
        place = name, number
        if view is None:
            known = self.partitions.pop(place, None)
            return rows if known is None else [*rows, (place, known._replace(view=None))]
        self.partitions[place] = Announced(self.ids[name], view)
        return [*rows, (place, self.partitions[place])]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(CHANGES, st.sampled_from(["lost", "late", "taken", "asleep"]))))
def test_a_broker_knows_everything_in_the_end(steps: Any) -> None:
    """Messages and answers may be lost or late; the oracle keeps the expected metadata."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(announcements, "DELETED_MAX", 2)
        made, cache, oracle, heard = opened(), MetadataCache(), Oracle(), NOTHING
        late: list[Any] = []
        for change, fate in [*steps, ((TWO,), "taken"), ((ONE, TWO), "taken")]:
            if isinstance(change[0], BrokerView):
                oracle.brokers = change
                made.announce_brokers(change, {1: 50})
            else:
                made.announce(oracle.change(*change))
            update = made.news(1, heard)
            if update is None or fate == "asleep":
                continue
            if fate == "late":
                late.append(encode_update(update))
                continue
            code = cache.update(encode_update(update))
            assert code is ErrorCode.NONE
            if fate == "taken":  # else the answer is lost
                heard = heard_after(update)
                assert all(cache.update(one) is ErrorCode.NONE for one in late)
    assert tuple(cache.view.brokers.values()) == oracle.brokers
    found = {
        (name, number): Announced(one.topic_id, partition)
        for name, one in cache.view.topics.items()
        for number, partition in one.partitions.items()
    }
    assert found == oracle.partitions
