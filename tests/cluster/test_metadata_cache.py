"""Test a broker's metadata cache: updates in any order, late, doubled and hostile."""

from __future__ import annotations

import contextlib
import struct
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.listener_config import Endpoint
from broker.wire import codec
from broker.wire.byte_cursor import WireError
from broker.wire.error_codes import ErrorCode
from cluster.errors import BadRequestError
from cluster.pure.attest import Host, SessionBegan
from cluster.registration import NO_BROKER
from cluster.run.control_requests import answer_update
from cluster.run.metadata_cache import MetadataCache
from cluster.view import EMPTY, BrokerView, ClusterView, PartitionView, TopicUpdate, TopicView
from cluster.wire.metadata_updates import VERSION, Update, decode_update, encode_update
from cluster.wire.roles import Controlling

ONE = BrokerView(1, (Endpoint("PLAINTEXT", "one", 9092), Endpoint("OUT", "1.example", 9093)), "r1")
TWO = BrokerView(2, (Endpoint("PLAINTEXT", "two", 9092),))
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
LED = PartitionView(1, 4, (1, 2), (1, 2))
ALONE = PartitionView(2, 5, (1, 2), (2,), (1,))
NOBODY = PartitionView(NO_BROKER, 6, (1, 2), (), (1, 2))
BELOW = PartitionView(1, 7, (1, 2, 3), (1,), (3,), (2,), (3,))


def full(*topics: TopicUpdate, last: int = 1, epoch: int = 3) -> Update:
    return Update(Controlling(1, epoch), 41, True, 0, last, (ONE, TWO), topics)


def after(known: int, *topics: TopicUpdate, last: int = 0, epoch: int = 3) -> Update:
    sender = Controlling(1, epoch)
    return Update(sender, 41, False, known, last or known + 1, (ONE, TWO), topics)


def there_and_back(update: Update) -> Any:
    encoded = bytes(codec.encode(encode_update(update), VERSION))
    return codec.decode("UpdateMetadataRequest", VERSION, encoded)


def told(*updates: Update) -> MetadataCache:
    """Return a cache that has accepted these updates."""
    cache = MetadataCache()
    for update in updates:
        assert cache.update(there_and_back(update)) is ErrorCode.NONE
    return cache


PARTITIONS = st.sampled_from([LED, ALONE, NOBODY, BELOW])


@settings(max_examples=80)
@given(
    st.dictionaries(
        st.sampled_from(["orders", "a.b_c-d", "x"]),
        st.dictionaries(st.integers(0, 9), st.none() | PARTITIONS, min_size=1),
    ),
    st.booleans(),
    st.sampled_from([(), (ONE,), (ONE, TWO)]),
)
def test_updates_come_back(topics: Any, is_full: bool, brokers: Any) -> None:
    """Updates keep all listeners, racks, partitions without a leader, and deleted partitions."""
    changes = [TopicUpdate(name, name.encode().ljust(16), one) for name, one in topics.items()]
    update = Update(Controlling(1, 8), 41, is_full, 0 if is_full else 5, 9, brokers, changes)
    assert decode_update(there_and_back(update)) == update


@pytest.mark.parametrize(
    ("broker_epoch", "code"),
    [(41, ErrorCode.NONE), (40, ErrorCode.STALE_BROKER_EPOCH), (42, ErrorCode.STALE_BROKER_EPOCH)],
)
def test_an_update_is_for_one_incarnation_of_a_broker(broker_epoch: int, code: ErrorCode) -> None:
    """An update for another incarnation changes nothing: a restarted broker knows nothing."""
    host, cache = Host(1, ("a",)), MetadataCache()
    host.handle(SessionBegan(broker_epoch), 0)
    assert answer_update(there_and_back(full()), host, cache).error_code == code
    assert (cache.view is EMPTY) is (code is not ErrorCode.NONE)


def test_a_broker_begins_with_nothing() -> None:
    """Before the first update, no controller is known."""
    assert MetadataCache().view is EMPTY
    assert EMPTY.controller_id == NO_BROKER and not EMPTY.brokers and not EMPTY.topics


def test_everything_is_taken() -> None:
    """The view has topics by name and id, partitions in order, and brokers by id."""
    view = told(full(TopicUpdate("orders", A, {1: ALONE, 0: LED}), TopicUpdate("x", B, {0: LED})))
    assert view.view == ClusterView(
        1,
        {1: ONE, 2: TWO},
        {"orders": TopicView("orders", A, {0: LED, 1: ALONE}), "x": TopicView("x", B, {0: LED})},
        {A: "orders", B: "x"},
    )
    assert list(view.view.topics["orders"].partitions) == [0, 1]


def test_a_replica_that_is_not_in_sync_is_known() -> None:
    """If a partition is not known, its replicas may not be in sync."""
    cache = told(full(TopicUpdate("orders", A, {0: LED, 1: ALONE, 2: NOBODY})))
    assert [cache.lacks_replica("orders", one) for one in range(4)] == [False, True, True, True]
    assert cache.lacks_replica("x", 0) and MetadataCache().lacks_replica("orders", 0)


def test_a_change_replaces_what_changed_and_shares_the_rest() -> None:
    """A reader of the old view still sees all of the old view."""
    cache = told(full(TopicUpdate("orders", A, {0: LED, 1: LED}), TopicUpdate("x", B, {0: LED})))
    before = cache.view
    cache.update(there_and_back(after(1, TopicUpdate("orders", A, {1: NOBODY}))))
    assert cache.view.topics["orders"].partitions == {0: LED, 1: NOBODY}
    assert before.topics["orders"].partitions == {0: LED, 1: LED}
    assert cache.view.topics["x"] is before.topics["x"]
    assert cache.view.ids is before.ids


def test_topics_and_partitions_come_and_go() -> None:
    """An update may have new topics and partitions, and deleted or recreated topics."""
    cache = told(full(TopicUpdate("orders", A, {0: LED})))
    steps = [
        ([TopicUpdate("x", B, {0: LED})], {"orders": A, "x": B}, [0]),
        ([TopicUpdate("orders", A, {2: ALONE, 1: LED})], {"orders": A, "x": B}, [0, 1, 2]),
        ([TopicUpdate("x", B, {0: None})], {"orders": A}, [0, 1, 2]),
        ([TopicUpdate("orders", C, {0: LED})], {"orders": C}, [0]),
        ([TopicUpdate("orders", A, {0: None, 1: None, 2: None})], {"orders": C}, [0]),
    ]
    for known, (changes, ids, numbers) in enumerate(steps, 1):
        assert cache.update(there_and_back(after(known, *changes))) is ErrorCode.NONE
        view = cache.view
        assert {name: one.topic_id for name, one in view.topics.items()} == ids
        assert view.ids == {topic_id: name for name, topic_id in ids.items()}
        assert list(view.topics["orders"].partitions) == numbers


@pytest.mark.parametrize("is_deletion_first", [False, True])
def test_a_topic_is_deleted_and_created_again_in_one_update(is_deletion_first: bool) -> None:
    """In any order, the deletion concerns only the old topic."""
    changes = [
        TopicUpdate("orders", A, {0: None, 1: None}),
        TopicUpdate("orders", B, {0: ALONE}),
    ]
    if not is_deletion_first:
        changes.reverse()
    cache = told(full(TopicUpdate("orders", A, {0: LED, 1: LED})), after(1, *changes))
    assert cache.view.topics == {"orders": TopicView("orders", B, {0: ALONE})}
    assert cache.view.ids == {B: "orders"}


def test_everything_removes_what_it_does_not_name() -> None:
    """A new controller does not know earlier deletions; equal topics are shared."""
    cache = told(full(TopicUpdate("orders", A, {0: LED}), TopicUpdate("x", B, {0: LED})))
    before = cache.view
    cache.update(there_and_back(full(TopicUpdate("x", B, {0: LED}), epoch=4, last=1)))
    assert cache.view.topics.keys() == {"x"} and cache.view.ids == {B: "x"}
    assert cache.view.topics["x"] is before.topics["x"]


def test_late_and_deposed_controllers_change_nothing() -> None:
    """A late update is answered as accepted; a deposed controller is refused."""
    cache = told(full(TopicUpdate("orders", A, {0: LED}), last=5))
    view = cache.view
    late = full(TopicUpdate("x", B, {0: LED}), last=4)
    assert cache.update(there_and_back(late)) is ErrorCode.NONE
    assert cache.update(there_and_back(after(3, *late.topics))) is ErrorCode.NONE
    for deposed in (full(*late.topics, last=9, epoch=2), after(5, *late.topics, epoch=2)):
        assert cache.update(there_and_back(deposed)) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert cache.view is view


def test_a_gap_is_refused() -> None:
    """The broker lacks changes of this or another controller, so it needs everything."""
    cache = MetadataCache()
    change = TopicUpdate("x", B, {0: LED})
    assert cache.update(there_and_back(after(0, change))) is ErrorCode.INVALID_UPDATE_VERSION
    assert cache.update(there_and_back(full(last=5))) is ErrorCode.NONE
    for gap in (after(6, change), after(5, change, epoch=4)):
        assert cache.update(there_and_back(gap)) is ErrorCode.INVALID_UPDATE_VERSION
    assert not cache.view.topics
    # An answer was lost: the next message has the same changes, and later ones.
    assert cache.update(there_and_back(after(4, change, last=7))) is ErrorCode.NONE
    assert cache.view.topics.keys() == {"x"}


def good() -> Any:
    return encode_update(after(1, TopicUpdate("orders", A, {0: LED})))


def changed(message: Any, **facts: Any) -> Any:
    """Change fields of the first partition."""
    topic = message.topic_states[0]
    partition = topic.partition_states[0]._replace(**facts)
    return message._replace(topic_states=[topic._replace(partition_states=[partition])])


def hostile() -> list[Any]:
    message = good()
    topic, broker = message.topic_states[0], message.live_brokers[0]
    endpoint = broker.endpoints[0]
    partitions: list[dict[str, Any]] = [
        {"leader": 3}, {"leader": -3}, {"leader_epoch": -1}, {"isr": (3,)}, {"isr": (1, 1)},
        {"replicas": ()}, {"replicas": (1, 1)}, {"replicas": (-1, 1)}, {"offline_replicas": (3,)},
        {"partition_index": -1}, {"eligible_leader_replicas": (3,)}, {"suspects": (3,)},
        {"eligible_leader_replicas": (2,)}, {"suspects": (1,)},
        {"isr": (1,), "eligible_leader_replicas": (2,), "suspects": (2,)},
    ]  # fmt: skip
    topics = [
        [topic._replace(topic_name="")], [topic._replace(topic_id=bytes(16))],
        [topic._replace(partition_states=[])],
        [topic._replace(partition_states=[*topic.partition_states] * 2)],
        [topic, topic], [topic, topic._replace(topic_id=B)],
        [topic, topic._replace(topic_name="x")],
    ]  # fmt: skip
    addresses: list[dict[str, Any]] = [{"port": 0}, {"port": 65536}, {"host": ""}, {"listener": ""}]
    brokers = [
        [broker, broker], [broker._replace(id=-1)], [broker._replace(endpoints=[])],
        [broker._replace(endpoints=[endpoint, endpoint])],
        *([broker._replace(endpoints=[endpoint._replace(**bad)])] for bad in addresses),
    ]  # fmt: skip
    whole: list[dict[str, Any]] = [
        {"controller_id": -1}, {"controller_epoch": -1}, {"broker_epoch": -1}, {"type": 0},
        {"type": 3}, {"last_change": -1}, {"changes_after": -1}, {"changes_after": 9}, {"type": 2},
    ]  # fmt: skip
    return [
        *(changed(message, **facts) for facts in partitions),
        *(message._replace(topic_states=one) for one in topics),
        *(message._replace(live_brokers=one) for one in brokers),
        *(message._replace(**facts) for facts in whole),
    ]


@pytest.mark.parametrize("message", hostile(), ids=range(len(hostile())))
def test_a_message_that_contradicts_itself_is_refused(message: Any) -> None:
    """Nothing of it is used; a message of Kafka without our fields is refused, too."""
    with pytest.raises(BadRequestError):
        decode_update(message)
    cache = told(full())
    view = cache.view
    assert cache.update(good()) is ErrorCode.NONE
    cache = told(full())
    assert cache.update(message) is ErrorCode.INVALID_REQUEST
    assert cache.view == view


@settings(max_examples=150)
@given(st.data())
def test_mutated_messages_are_refused_or_read(data: Any) -> None:
    """The cache raises no other error, whatever the bytes are."""
    update = after(1, TopicUpdate("orders", A, {0: LED, 1: NOBODY, 2: None}))
    mutated = bytearray(codec.encode(encode_update(update), VERSION))
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        struct.pack_into(">q", mutated, data.draw(st.integers(0, len(mutated) - 8)), -1)
    with contextlib.suppress(WireError):
        message = codec.decode("UpdateMetadataRequest", VERSION, bytes(mutated))
        told(full()).update(message)


@settings(max_examples=60)
@given(st.data())
def test_any_order_of_messages_ends_in_the_last_state(data: Any) -> None:
    """Messages are lost, doubled and late; the answers tell the sender what to send next."""
    states: list[dict[str, TopicView]] = [{}]
    changes: list[list[TopicUpdate]] = [[]]
    for step in range(1, data.draw(st.integers(2, 9))):
        name = data.draw(st.sampled_from(["p", "q"]))
        before = states[-1].get(name)
        partitions = data.draw(st.dictionaries(st.integers(0, 2), PARTITIONS, min_size=1))
        change = [TopicUpdate(name, bytes([step]) * 16, dict(sorted(partitions.items())))]
        if before is not None:
            gone: dict[int, PartitionView | None] = dict.fromkeys(before.partitions)
            change.append(TopicUpdate(name, before.topic_id, gone))
        changes.append(change)
        states.append({**states[-1], name: TopicView(*change[0])})  # type: ignore[arg-type]
    last = len(states) - 1
    everything = [TopicUpdate(*one) for one in states[-1].values()]
    messages = [encode_update(full(*everything, last=last))]
    for number, change in enumerate(changes[1:], 1):
        messages.append(encode_update(after(number - 1, *change)))
    cache, known = MetadataCache(), -1
    for _ in range(data.draw(st.integers(1, 20))):
        message = data.draw(st.sampled_from(messages))
        if cache.update(message) is ErrorCode.NONE:
            known = max(known, message.last_change)
        assert known == -1 or cache.view.topics == states[known]
    assert cache.update(messages[0]) is ErrorCode.NONE
    assert cache.view.topics == states[-1]


def test_a_callback_hears_each_view_until_it_ends() -> None:
    """The callback gets the views in order; a failing callback does not stop the others."""
    cache = MetadataCache()
    heard: list[ClusterView] = []

    def fail(_: ClusterView) -> None:
        raise RuntimeError("a bad callback")

    cache.on_change(fail)
    end = cache.on_change(heard.append)
    for update in (full(last=1), after(1, TopicUpdate("x", B, {0: LED})), after(1)):
        cache.update(there_and_back(update))
    assert [len(view.topics) for view in heard] == [0, 1]
    assert heard[-1] is cache.view
    end()
    cache.update(there_and_back(after(2)))
    assert len(heard) == 2


def test_a_callback_may_end_itself() -> None:
    """It may end itself in the thread of the update, and during updates of other threads."""
    cache = told(full())
    found = threading.Event()

    def look(view: ClusterView) -> None:
        if "x" in view.topics:
            found.set()
            end()

    end = cache.on_change(look)
    message = there_and_back(after(1, TopicUpdate("x", B, {0: LED})))
    threads = [threading.Thread(target=cache.update, args=[message]) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert found.wait(5)
    for thread in threads:
        thread.join()
    assert cache.view.topics.keys() == {"x"}
