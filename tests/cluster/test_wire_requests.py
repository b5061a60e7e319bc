"""Test that requests between brokers can be read again, and that hostile ones are refused."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.wire import codec, messages
from broker.wire.byte_cursor import WireError
from broker.wire.error_codes import ErrorCode
from cluster.errors import BadRequestError
from cluster.registration import NO_BROKER, TopicIdentity
from cluster.requests import (
    NEVER,
    AlterPartition,
    AlterRefused,
    ControlledShutdown,
    FetchAnswer,
    FollowerFetch,
    LeaderAndIsr,
    RoleAnswer,
    StopReplica,
)
from cluster.state import LEADER_EPOCH_MAX, State, fault_of
from cluster.wire import follower_fetches, isr_changes, roles, shutdowns, stops, topic_ids
from cluster.wire.roles import Controlling, NamedRole
from cluster.wire.stops import NamedStop

EPOCHS = st.integers(0, 2**62)
INT32 = st.integers(0, 2**31 - 1)
BROKERS = st.integers(0, 9)
PARTITIONS = st.integers(0, 5)
IDS = st.binary(min_size=16, max_size=16).filter(any).map(topic_ids.text_of)
TOPICS = st.builds(TopicIdentity, IDS, EPOCHS)
NAMES = st.sampled_from(["orders", "a.b_c-d", "x"])
SENDER = Controlling(3, 8)


@st.composite
def states(draw: Any) -> State:
    """Generate any state whose invariants hold."""
    replicas = draw(st.lists(BROKERS, min_size=1, max_size=4, unique=True))
    isr = {one: draw(EPOCHS) for one in replicas if draw(st.booleans())}
    rest = [one for one in replicas if one not in isr]
    min_isr = draw(st.integers(len(isr) + 1, 6)) if rest else draw(st.integers(1, 6))
    elr = {one: draw(EPOCHS) for one in rest if draw(st.booleans())}
    leader_epoch = draw(st.integers(1, LEADER_EPOCH_MAX))
    state = State(
        draw(st.sampled_from([NO_BROKER, *isr])), leader_epoch, draw(INT32), isr, elr,
        frozenset(rest) - elr.keys(), draw(EPOCHS), tuple(replicas),
        draw(st.sampled_from([None, tuple(replicas[:1])])), min_isr,
        draw(st.sampled_from([-1, 0, leader_epoch])), draw(st.booleans()),
        *draw(st.sampled_from([(False, False), (True, False), (True, True)])),
    )  # fmt: skip
    if state.target is not None and draw(st.booleans()):
        state = state._replace(original=tuple(replicas))
    state = state._replace(removed=frozenset(draw(st.lists(st.integers(10, 12)))))
    assert not fault_of(state)
    return state


ROLES = st.builds(
    LeaderAndIsr, TOPICS, PARTITIONS, st.just(41), INT32, states(),
    st.booleans(),
)  # fmt: skip
FETCHES = st.builds(
    FollowerFetch, TOPICS, PARTITIONS, st.just(2), st.just(77), INT32, EPOCHS,
    st.integers(-1, 2**31 - 1), is_leaving=st.just(False),
).flatmap(
    lambda one: st.builds(one._replace, log_start=st.integers(0, one.offset))
)  # fmt: skip
CHANGES = st.builds(
    AlterPartition, TOPICS, PARTITIONS, st.just(2), st.just(77), INT32, INT32,
    st.dictionaries(BROKERS, EPOCHS, min_size=1),
)  # fmt: skip
STOPS = st.builds(StopReplica, TOPICS, PARTITIONS, st.just(41), INT32)


def there_and_back(message: Any, version: int) -> Any:
    """Encode a message to bytes, and decode them."""
    return codec.decode(type(message).__name__, version, bytes(codec.encode(message, version)))


def without_creation(one: Any) -> Any:
    """Remove the creation number, which only some messages have."""
    return one._replace(topic=one.topic._replace(created=0))


@given(st.binary(min_size=16, max_size=16))
def test_ids_of_topics_come_back(data: bytes) -> None:
    """This includes the id of no topic."""
    text = topic_ids.text_of(data)
    assert topic_ids.bytes_of(text) == data
    assert len(text) in (0, 22)


@pytest.mark.parametrize("text", ["x", "a" * 21, "a" * 23, "=" * 22, "!" * 22, "A" * 22, "a" * 22])
def test_other_texts_are_no_ids(text: str) -> None:
    """Each id has one text: unused bits, padding and the zero id are refused."""
    with pytest.raises(ValueError, match=r"topic id|padded|characters"):
        topic_ids.bytes_of(text)


@settings(max_examples=60)
@given(st.lists(st.builds(NamedRole, NAMES, ROLES), min_size=1, max_size=4))
def test_roles_come_back(given_roles: list[NamedRole]) -> None:
    """Roles keep the whole state, with topics in any number and order."""
    named = list({(one.name, one.role.partition): one for one in given_roles}.values())
    addresses = {broker: (f"host{broker}", 9092) for broker in range(5)}
    message = there_and_back(roles.encode_roles(SENDER, named, addresses), roles.VERSION)
    assert sorted(roles.decode_roles(message), key=str) == sorted(named, key=str)
    leaders = {one.role.state.leader for one in named} & addresses.keys()
    assert {one.broker_id for one in message.live_leaders} == leaders
    assert (message.controller_id, message.controller_epoch, message.broker_epoch) == (3, 8, 41)


def one_role() -> Any:
    """Return a message with one role."""
    state = State(1, 4, 3, {1: 10, 2: 11}, {}, frozenset(), 10, (1, 2), None, 2)
    role = LeaderAndIsr(TopicIdentity("a" * 21 + "A", 5), 0, 41, 7, state, is_new=True)
    return roles.encode_roles(SENDER, [NamedRole("orders", role)], {})


def changed(message: Any, **facts: Any) -> Any:
    """Change fields of the first partition."""
    topic = message.topic_states[0]
    partition = topic.partition_states[0]._replace(**facts)
    return message._replace(topic_states=[topic._replace(partition_states=[partition])])


@pytest.mark.parametrize(
    "facts",
    [
        {"leader": 2}, {"leader_epoch": 5}, {"isr": (1,)}, {"replicas": (1, 2, 3)},
        {"controller_epoch": 4}, {"state": b""}, {"state": b"{"}, {"partition_index": -1},
        {"partition_epoch": -1}, {"state": b"[]"},
    ],
    ids=str,
)  # fmt: skip
def test_a_role_that_contradicts_itself_is_refused(facts: dict[str, Any]) -> None:
    """Kafka's fields must agree with the state, and no number may be negative."""
    assert roles.decode_roles(one_role())
    with pytest.raises(BadRequestError):
        roles.decode_roles(changed(one_role(), **facts))


def test_a_request_of_kafka_without_our_fields_is_refused() -> None:
    """Another controller's roles have no admissions, so they cannot be obeyed."""
    message = one_role()
    topic = message.topic_states[0]
    for bad in (
        topic._replace(created_zxid=-1),
        topic._replace(topic_id=bytes(16)),
        topic._replace(topic_name=""),
        topic._replace(partition_states=[*topic.partition_states] * 2),
    ):
        with pytest.raises(BadRequestError):
            roles.decode_roles(message._replace(topic_states=[bad]))


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            RoleAnswer, TOPICS, PARTITIONS, st.just(2), st.just(90), st.just(False),
            st.one_of(EPOCHS, st.just(NEVER)), st.integers(-1, 2**31 - 1), EPOCHS, INT32, EPOCHS,
        )
        | st.tuples(TOPICS, PARTITIONS).map(lambda place: RoleAnswer(*place, 2, 90, True)),
        max_size=4,
    )
)  # fmt: skip
def test_answers_about_roles_come_back(answers: list[RoleAnswer]) -> None:
    """Working replicas have facts, other replicas an error."""
    message = there_and_back(roles.encode_role_answers(90, answers), roles.VERSION)
    found = roles.decode_role_answers(message, 2)
    assert sorted(found) == sorted(map(without_creation, answers))


def test_an_answer_without_its_facts_is_refused() -> None:
    """A broker of Kafka sends such an answer; it has no effect."""
    Row = messages.LeaderAndIsrResponse.LeaderAndIsrPartitionError  # noqa: N806 - a class
    Topic = messages.LeaderAndIsrResponse.LeaderAndIsrTopicError  # noqa: N806 - a class
    bare = messages.LeaderAndIsrResponse(topics=[Topic(b"i" * 16, [Row("", 0, 0)])])
    for message in (bare, bare._replace(registration_epoch=4)):
        with pytest.raises(BadRequestError):
            roles.decode_role_answers(message, 2)
    other = messages.LeaderAndIsrResponse(
        topics=[Topic(b"i" * 16, [Row("", 0, ErrorCode.STALE_BROKER_EPOCH)])], registration_epoch=4
    )
    assert roles.decode_role_answers(other, 2) == []


@settings(max_examples=60)
@given(st.lists(st.builds(NamedStop, NAMES, STOPS), min_size=1, max_size=4))
def test_deletions_come_back(named: list[NamedStop]) -> None:
    """Topic, version and broker epoch protect a later replica."""
    message = there_and_back(stops.encode_stops(SENDER, named), stops.VERSION)
    assert sorted(stops.decode_stops(message), key=str) == sorted(named, key=str)


def test_a_deletion_that_does_not_say_of_what_is_refused() -> None:
    """Kafka's own request has only the name, which a later topic may have, too."""
    stop = NamedStop("orders", StopReplica(TopicIdentity("a" * 21 + "A", 5), 0, 41, 7))
    message = stops.encode_stops(SENDER, [stop])
    topic = message.topic_states[0]
    (partition,) = topic.partition_states
    for bad in (
        topic._replace(topic_id=bytes(16)),
        topic._replace(created_zxid=-1),
        topic._replace(partition_states=[partition._replace(partition_epoch=-1)]),
        topic._replace(partition_states=[partition._replace(delete_partition=False)]),
    ):
        with pytest.raises(BadRequestError):
            stops.decode_stops(message._replace(topic_states=[bad]))


@settings(max_examples=60)
@given(st.lists(CHANGES, min_size=1, max_size=4), st.data())
def test_proposals_and_their_refusals_come_back(changes: list[AlterPartition], data: Any) -> None:
    """Each member has its registration epoch; the answer names the refused version."""
    changes = list({(one.topic.topic_id, one.partition): one for one in changes}.values())
    message = there_and_back(isr_changes.encode_changes(changes), isr_changes.VERSION)
    assert sorted(isr_changes.decode_changes(message), key=str) == sorted(
        map(without_creation, changes), key=str
    )
    refused = [
        AlterRefused(one.topic._replace(created=0), one.partition, one.version)
        for one in changes
        if data.draw(st.booleans())
    ]
    answer = there_and_back(isr_changes.encode_refusals(changes, refused), isr_changes.VERSION)
    assert sorted(isr_changes.decode_refusals(answer)) == sorted(refused)


def test_a_proposal_without_members_is_refused() -> None:
    """A proposal that names a member twice, or has a negative number, is refused, too."""
    asked = AlterPartition(TopicIdentity("a" * 21 + "A", 5), 0, 2, 77, 4, 7, {1: 10, 2: 11})
    message = isr_changes.encode_changes([asked])
    (partition,) = message.topics[0].partitions
    member = partition.new_isr_with_epochs[0]
    for bad in (
        partition._replace(new_isr_with_epochs=[]),
        partition._replace(new_isr_with_epochs=[member, member]),
        partition._replace(new_isr_with_epochs=[member._replace(broker_epoch=-1)]),
        partition._replace(partition_epoch=-1),
    ):
        topic = message.topics[0]._replace(partitions=[bad])
        with pytest.raises(BadRequestError):
            isr_changes.decode_changes(message._replace(topics=[topic]))


@settings(max_examples=60)
@given(st.lists(FETCHES, min_size=1, max_size=4))
def test_fetches_of_followers_come_back(fetches: list[FollowerFetch]) -> None:
    """The leader reads them as they were sent, and refuses a consumer's fetch."""
    fetches = list({follower_fetches.key_of(one): one for one in fetches}.values())
    message = there_and_back(
        follower_fetches.encode_fetches(fetches, follower_fetches.FetchLimits()),
        follower_fetches.VERSION,
    )
    assert sorted(follower_fetches.decode_fetches(message)) == sorted(
        map(without_creation, fetches)
    )
    State = messages.FetchRequest.ReplicaState  # noqa: N806 - a class
    for follower, epoch in ((-1, -1), (-1, 5), (2, -2)):
        bad = message._replace(replica_state=State(follower, epoch))
        with pytest.raises(BadRequestError):
            follower_fetches.decode_fetches(bad)


def test_a_shutdown_and_its_answer_come_back() -> None:
    """A refusal has no list of partitions; a broker without an id is refused."""
    asked = ControlledShutdown(2, 77)
    message = there_and_back(shutdowns.encode_shutdown(asked), shutdowns.VERSION)
    assert shutdowns.decode_shutdown(message) == asked
    for broker, epoch in ((-1, 5), (2, -1)):
        bad = messages.ControlledShutdownRequest(broker, epoch)
        with pytest.raises(BadRequestError):
            shutdowns.decode_shutdown(bad)
    for places in ([("orders", 3), ("x", 0)], []):
        answer = shutdowns.encode_remaining(ErrorCode.NONE, places)
        assert shutdowns.decode_remaining(there_and_back(answer, shutdowns.VERSION)) == places
    refused = shutdowns.encode_remaining(ErrorCode.STALE_BROKER_EPOCH, [])
    assert shutdowns.decode_remaining(there_and_back(refused, shutdowns.VERSION)) is None


def test_a_leaving_follower_names_no_registration_epoch() -> None:
    """So its leader does not propose it for an ISR, even if only some fetches say so (P21)."""
    fetches = [FETCH, FETCH._replace(partition=2, is_leaving=True)]
    message = follower_fetches.encode_fetches(fetches, follower_fetches.FetchLimits())
    message = there_and_back(message, follower_fetches.VERSION)
    assert message.replica_state == (2, -1)
    assert all(one.is_leaving for one in follower_fetches.decode_fetches(message))


@pytest.mark.parametrize("log_start", [-1, 61])
def test_a_follower_names_its_log_start(log_start: int) -> None:
    """It is not after the offset of the fetch, which is the log end."""
    fetch = FETCH._replace(log_start=log_start)
    message = follower_fetches.encode_fetches([fetch], follower_fetches.FetchLimits())
    with pytest.raises(BadRequestError):
        follower_fetches.decode_fetches(message)


FETCH = FollowerFetch(TopicIdentity("a" * 21 + "A", 0), 1, 2, 77, 6, 60, 2)


def fetch_answer(**facts: Any) -> Any:
    """Return a leader's answer about the partition of FETCH."""
    Response = messages.FetchResponse  # noqa: N806 - a class
    row = Response.PartitionData(
        partition_index=1, high_watermark=50, log_start_offset=4, records=b"xyz"
    )
    topic = Response.FetchableTopicResponse(
        topic_id=topic_ids.bytes_of(FETCH.topic.topic_id), partitions=[row._replace(**facts)]
    )
    return there_and_back(Response(responses=[topic]), follower_fetches.VERSION)


def answered(message: Any) -> Any:
    """Decode the answer to FETCH."""
    asked = {follower_fetches.key_of(FETCH): FETCH}
    (found,) = follower_fetches.decode_fetch_answers(message, asked)
    return found


def test_a_leaders_answer_has_records_a_divergence_or_an_error() -> None:
    """The follower cuts at the end of an epoch that it has, or of an earlier epoch."""
    assert answered(fetch_answer()) == FetchAnswer(FETCH, 50, b"xyz", log_start=4)
    Epoch = messages.FetchResponse.EpochEndOffset  # noqa: N806 - a class
    for epoch, end in ((1, 100), (2, 55), (-1, 0)):
        diverging = fetch_answer(records=None, diverging_epoch=Epoch(epoch, end))
        assert answered(diverging) == FetchAnswer(FETCH, 50, None, (epoch, end), 4)
        assert not answered(diverging).is_beginning_anew
    anew = fetch_answer(records=None, diverging_epoch=Epoch(-1, 90), log_start_offset=90)
    assert answered(anew) == FetchAnswer(FETCH, 50, None, (-1, 90), 90)
    assert answered(anew).is_beginning_anew
    gaps = fetch_answer(last_stable_offset=follower_fetches.MAY_LACK_OFFSETS)
    assert answered(gaps) == FetchAnswer(FETCH, 50, b"xyz", log_start=4, may_lack=True)
    gaps = fetch_answer(last_stable_offset=-2, records=None, diverging_epoch=Epoch(1, 100))
    assert answered(gaps) == FetchAnswer(FETCH, 50, None, (1, 100), 4, may_lack=True)
    refused = fetch_answer(error_code=ErrorCode.FENCED_LEADER_EPOCH)
    assert answered(refused) == follower_fetches.FetchRefused(FETCH, ErrorCode.FENCED_LEADER_EPOCH)
    assert follower_fetches.decode_fetch_answers(fetch_answer(), {}) == []


@pytest.mark.parametrize(("epoch", "end"), [(2, 60), (3, 10), (-2, 0), (-2, 4), (2, 70)])
def test_a_divergence_that_cuts_nothing_is_refused(epoch: int, end: int) -> None:
    """A later epoch, or an end that is not before the follower's, contradicts the request."""
    Epoch = messages.FetchResponse.EpochEndOffset  # noqa: N806 - a class
    with pytest.raises(BadRequestError):
        answered(fetch_answer(records=None, diverging_epoch=Epoch(epoch, end)))
    with pytest.raises(BadRequestError):
        answered(fetch_answer(high_watermark=-1))
    with pytest.raises(BadRequestError):
        answered(fetch_answer(log_start_offset=-1))
    with pytest.raises(BadRequestError):
        answered(fetch_answer(log_start_offset=2**62))


@settings(max_examples=150)
@given(st.data())
def test_mutated_requests_are_refused_or_read(data: Any) -> None:
    """The decoders raise no other error, whatever the bytes are."""
    state = data.draw(states())
    topic = TopicIdentity("a" * 21 + "A", 5)
    role = NamedRole("orders", LeaderAndIsr(topic, 0, 41, 7, state))
    stop = NamedStop("orders", StopReplica(topic, 0, 41, 7))
    change = AlterPartition(topic, 0, 2, 77, 4, 7, {1: 10})
    cases: list[tuple[Any, int, Callable[[Any], Any]]] = [
        (roles.encode_roles(SENDER, [role], {}), roles.VERSION, roles.decode_roles),
        (stops.encode_stops(SENDER, [stop]), stops.VERSION, stops.decode_stops),
        (isr_changes.encode_changes([change]), isr_changes.VERSION, isr_changes.decode_changes),
        (
            follower_fetches.encode_fetches([FETCH], follower_fetches.FetchLimits()),
            follower_fetches.VERSION,
            follower_fetches.decode_fetches,
        ),
    ]
    message, version, decode = data.draw(st.sampled_from(cases))
    mutated = bytearray(codec.encode(message, version))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(mutated) - 1))
        mutated[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()) and len(mutated) > 8:
        struct.pack_into(">q", mutated, data.draw(st.integers(0, len(mutated) - 8)), -1)
    with contextlib.suppress(WireError, BadRequestError):
        decode(codec.decode(type(message).__name__, version, bytes(mutated)))
