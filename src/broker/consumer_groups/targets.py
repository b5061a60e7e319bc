"""Notice changes of topics and subscriptions, and compute the target assignment."""

from __future__ import annotations

from collections.abc import Mapping

from broker.consumer_groups import patterns
from broker.consumer_groups.assignors import ASSIGNORS
from broker.consumer_groups.exchange import NOTHING, TopicImage
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.uniform import Subscriber
from broker.groups.exchange import Now

Topics = Mapping[str, TopicImage]
LOOK_SECONDS = 1.0  # the shortest time between two looks for changes of topics


def refresh(group: ConsumerGroup, topics: Topics, now: Now, *, has_changed: bool) -> None:
    """Begin a group epoch if a subscription or a topic has changed; then compute the target.

    Args:
        has_changed: whether the group must begin an epoch in any case.
    """
    if has_changed or now.seconds >= group.looked_at + LOOK_SECONDS:
        group.looked_at = now.seconds
        _resolve(group, topics)
        found = group.hash_of(topics)
        if has_changed or found != group.metadata_hash:
            group.metadata_hash = found
            group.bump()
    if group.epoch > group.assignment_epoch:
        compute(group, topics)


def _resolve(group: ConsumerGroup, topics: Topics) -> None:
    """Match the patterns of the members with the names of all topics, if one of them is new."""
    wanted = {one.pattern for one in group.members.values() if one.pattern}
    if not wanted:
        group.matched_names = None
        return
    names = frozenset(topics)
    for pattern in wanted:
        if pattern in group.resolved and names == group.matched_names:
            continue
        try:
            found = patterns.match(pattern, names)
        except patterns.PatternError:  # another broker accepted it
            found = frozenset()
        if found != group.resolved.get(pattern):
            group.resolved[pattern] = found
            group.unsaved_patterns[pattern] = None
    group.matched_names = names


def compute(group: ConsumerGroup, topics: Topics) -> None:
    """Compute the target assignment of the present group epoch."""
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
    if found != group.metadata_hash:  # a topic has changed since the epoch began
        group.metadata_hash, group.is_epoch_unsaved = found, True
    group.assignment_epoch = group.epoch
    group.is_assignment_epoch_unsaved = True
