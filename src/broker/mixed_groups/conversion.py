"""Convert a group with members: from the classic protocol to the new protocol, and back.

    upgrade      a member of the new protocol joins a classic group of consumers
    downgrade    only classic members are left in a group of the new protocol

After a conversion, all classic members must join again. Until a member does so, the group assumes
that the member still reads every partition that it may read.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.consumer_groups.exchange import (
    JOINS,
    Classic,
    ConsumerSettings,
    Heartbeat,
    Place,
    Refused,
)
from broker.consumer_groups.group import PROTOCOL_TYPE, ConsumerGroup
from broker.consumer_groups.member import MS, Member
from broker.consumer_groups.targets import Topics
from broker.groups import rebalance
from broker.groups.exchange import JoinAnswer, Joining, Now, SyncAnswer
from broker.groups.group import Group, GroupSettings, State
from broker.groups.member import Member as ClassicMember
from broker.mixed_groups import consumer_bytes
from broker.mixed_groups.classic_members import common_protocol
from broker.wire.error_codes import ErrorCode

EPOCH_MAX = 2**29  # a classic group with a larger generation is not converted
# The members do not need the data that these assignors may send: librdkafka returns to each member
# what the member has sent.
PLAIN = ("range", "roundrobin", "sticky", "cooperative-sticky")
Claim = tuple[int, str]  # the generation in which a member got a partition, and the member's id


# --- upgrade --------------------------------------------------------------------------------------


def upgraded(old: Group, settings: ConsumerSettings, topics: Topics, now: Now) -> ConsumerGroup:
    """Make a group of the new protocol with the members of a classic group.

    If a partition has no reader, the hash of the topics is 0, so the next request to the group
    begins an epoch. This is needed if the joining member replaces a static member with the same
    subscription.

    Raises:
        Refused: the group must stay a classic group.
    """
    if not settings.migration.has_upgrade:
        raise _refusal(old, "the setting group.consumer.migration.policy does not allow it")
    if not old.is_of_consumers:
        raise _refusal(old, f"its protocol type is {old.protocol_type!r}")
    if len(old.members) > settings.size_max:
        raise _refusal(old, f"it has more than {settings.size_max} members")
    if old.generation > EPOCH_MAX:
        raise _refusal(old, f"its generation {old.generation} is too large")
    group = ConsumerGroup(old.name, settings, now)
    group.epoch = group.assignment_epoch = old.generation
    group.is_epoch_unsaved = group.is_assignment_epoch_unsaved = True
    assigned: dict[Place, str] = {}
    claims: dict[Place, Claim] = {}
    for one in old.members.values():
        subscription = consumer_bytes.subscription_of(_metadata(old, one))
        assignment = consumer_bytes.assignment_of(one.assignment)
        if subscription is None or assignment is None:
            raise _refusal(old, f"the data of the member {one.id!r} is not valid")
        if assignment.has_user_data and old.protocol not in PLAIN:
            raise _refusal(old, "its assignor sends data of its own to the members")
        _add(group, one, subscription, now)
        for place in consumer_bytes.ids_of(assignment.places, topics):
            if assigned.setdefault(place, one.id) != one.id:
                raise _refusal(old, "its assignor gives a partition to two members")
        for place in consumer_bytes.ids_of(subscription.owned, topics):
            claims[place] = max(claims.get(place, (-1, "")), (subscription.generation, one.id))
    _check_sizes(old, group)
    owners = {place: member_id for place, (_, member_id) in claims.items()} | assigned
    _place(group, owners)
    if owners.keys() == _wanted(group, topics):
        group.metadata_hash = group.hash_of(topics)
    return group


def _wanted(group: ConsumerGroup, topics: Topics) -> set[Place]:
    """Return all partitions of the topics that members have subscribed to."""
    images = [topics[name] for name in group.subscribed() if name in topics]
    return {(image.id, number) for image in images for number in image.partitions}


def _refusal(group: Group, reason: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"the classic group {group.name!r} cannot change to the new protocol: {reason}",
    )


def _metadata(group: Group, member: ClassicMember) -> bytes:
    """Return a member's metadata for the protocol of its group, or for its first protocol."""
    first = member.protocols[0][0] if member.protocols else None
    return member.metadata_for(group.protocol) or member.metadata_for(first)


def _add(
    group: ConsumerGroup, one: ClassicMember, subscription: consumer_bytes.Subscription, now: Now
) -> None:
    member = Member(one.id)
    member.update(
        Heartbeat(
            one.id, JOINS, one.client_id, one.client_host, one.instance_id, subscription.rack_id,
            round(one.rebalance_timeout * MS), subscription.topics,
            classic=Classic(round(one.session_timeout * MS), one.protocols),
        )
    )  # fmt: skip
    member.epoch = member.previous_epoch = group.epoch
    member.hear(now.seconds, group.settings.session)
    group.add(member)
    group.unsaved_facts[member.id] = None


def _check_sizes(old: Group, group: ConsumerGroup) -> None:
    sizes = [one.size_bytes for one in group.members.values()]
    settings = group.settings
    if sum(sizes) > settings.bytes_max or max(sizes, default=0) > settings.member_bytes_max:
        raise _refusal(old, "the data of its members is too large")


def _place(group: ConsumerGroup, owners: dict[Place, str]) -> None:
    """Give each member the partitions that it may read now; they are also its target."""
    places: dict[str, set[Place]] = {member_id: set() for member_id in group.members}
    for place, member_id in owners.items():
        places[member_id].add(place)
    for member_id, held in places.items():
        group.place(group.members[member_id], held, ())
        group.targets[member_id] = frozenset(held)
        group.unsaved_targets[member_id] = None


def give_up_waits(old: Group, now: Now) -> None:
    """Answer the waiting requests of a group that was replaced: the members must join again."""
    error = ErrorCode.REBALANCE_IN_PROGRESS
    for member in old.members.values():
        if member.joining is not None:
            old.reply(member.joining, JoinAnswer(error, member.id))
        if member.syncing is not None:
            old.reply(member.syncing, SyncAnswer(error))
        member.joining = member.syncing = None
    old.enter(State.DEAD, now)


# --- downgrade ------------------------------------------------------------------------------------


def is_only_classic(group: ConsumerGroup) -> bool:
    """Report whether a group has members, and all of them use the classic protocol."""
    return bool(group.members) and len(group.classic_members) == len(group.members)


def downgraded(
    group: ConsumerGroup,
    settings: GroupSettings,
    draw_id: Callable[[str], str],
    topics: Topics,
    now: Now,
) -> Group | None:
    """Make a classic group, in which a rebalance begins; None if the group must not change.

    Its generation is the last epoch that a member has reached. So the members in this epoch keep
    their partitions until they join again, and can commit. The other members lose their partitions.
    """
    is_allowed = group.settings.migration.has_downgrade and is_only_classic(group)
    protocol = common_protocol(group) if is_allowed else None
    if protocol is None or len(group.members) > settings.size_max:
        return None
    made = Group(group.name, settings, draw_id, now)
    made.generation = max(0, *(one.epoch for one in group.members.values()))
    made.protocol_type, made.protocol = PROTOCOL_TYPE, protocol
    for member in group.classic_members:
        _add_classic(made, member, topics, now)
    if made.size_bytes > settings.bytes_max:
        return None
    made.leader_id = next(iter(made.members))
    made.state, made.is_converted = State.STABLE, True
    rebalance.begin(made, now)
    made.is_unsaved = True
    return made


def _add_classic(made: Group, member: Member, topics: Topics, now: Now) -> None:
    assert member.classic is not None
    one = ClassicMember(
        member.id,
        Joining(
            member.id, member.instance_id, member.client_id, member.client_host,
            member.rebalance_timeout_ms / MS, member.classic.session_ms / MS, PROTOCOL_TYPE,
            member.classic.protocols,
        ),
    )  # fmt: skip
    metadata = one.metadata_for(made.protocol)
    held = member.assigned | member.revoking
    one.assignment = consumer_bytes.assignment_bytes(held, metadata, topics)
    one.hear(now.seconds)
    made.members[one.id] = one
    if one.instance_id is not None:
        made.instances[one.instance_id] = one.id
