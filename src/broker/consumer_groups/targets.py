"""Notice changes of topics and subscriptions, and compute the target assignment."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.consumer_groups import patterns
from broker.consumer_groups.assignors import ASSIGNORS
from broker.consumer_groups.exchange import NOTHING, TopicImage, Viewer
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.uniform import Subscriber
from broker.groups.exchange import Now

Topics = Mapping[str, TopicImage]
LOOK_SECONDS = 1.0  # the shortest time between two searches for changed topics


def refresh(group: ConsumerGroup, topics: Topics, now: Now, *, has_changed: bool) -> None:
    """If a subscription or a topic changed, begin a group epoch. Then compute the target.

    Args:
        has_changed: whether the group must begin an epoch even if no topic has changed.
    """
    if has_changed or now.seconds >= group.looked_at + LOOK_SECONDS:
        group.looked_at = now.seconds
        _resolve(group, topics)
        found = group.hash_of(topics)
        if has_changed or found != group.metadata_hash:
            group.changing()
            group.metadata_hash = found
            group.bump()
    if group.epoch > group.assignment_epoch:
        compute(group, topics)


def _resolve(group: ConsumerGroup, topics: Topics) -> None:
    """If something has changed, match the members' patterns with the names of all topics.

    If several members have the same pattern, the pattern matches only topics that all of them may
    see. After a loading, the topics of a pattern stay the same until all its members have sent a
    heartbeat, because only a heartbeat shows which topics its member may see.
    """
    viewers: dict[str, set[Viewer]] = {}
    unheard = {one.pattern for one in group.members.values() if one.is_unheard}
    for one in group.members.values():
        is_known = one.pattern not in unheard or one.pattern not in group.resolved
        if one.pattern and is_known:
            found = viewers.setdefault(one.pattern, set())
            if one.viewer is not None:
                found.add(one.viewer)
    names, matched = frozenset(topics), group.matched
    group.matched = {}
    for pattern, some in viewers.items():
        basis = (names, some, {viewer.version for viewer in some})
        group.matched[pattern] = basis
        if pattern in group.resolved and basis == matched.get(pattern):
            continue
        visible = _match(pattern, names, some)
        if visible != group.resolved.get(pattern):
            group.changing()
            group.resolved[pattern] = visible
            group.unsaved_patterns[pattern] = None


def _match(pattern: str, names: frozenset[str], viewers: Collection[Viewer]) -> frozenset[str]:
    try:
        found = patterns.match(pattern, names)
    except patterns.PatternError:  # another broker has accepted this pattern
        return frozenset()
    return frozenset(name for name in found if all(viewer.sees(name) for viewer in viewers))


def compute(group: ConsumerGroup, topics: Topics) -> None:
    """Compute the target assignment of the present group epoch."""
    group.changing()
    members, sizes = {}, {}
    for one in group.members.values():
        images = [topics[name] for name in group.topics_of(one) if name in topics]
        sizes.update({image.id: tuple(image.partitions) for image in images})
        members[one.id] = Subscriber(
            one.instance_id or one.id,
            frozenset(image.id for image in images),
            group.targets.get(one.id, NOTHING),
        )
    for member_id, places in ASSIGNORS[group.assignor](members, sizes).items():
        if group.targets.get(member_id) != places:
            group.targets[member_id] = places
            group.unsaved_targets[member_id] = None
    found = group.hash_of(topics)
    if found != group.metadata_hash:  # a topic has changed since this group epoch began
        group.metadata_hash, group.is_epoch_unsaved = found, True
    group.assignment_epoch = group.epoch
    group.is_assignment_epoch_unsaved = True
