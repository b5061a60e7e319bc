"""Decide which copies of an embedded store can be believed at an open, without I/O.

Each copy has an id, and notes which copies are *members*: they have every change that counts. A log
dir that fails is no member any more, and the others note that before the next change counts. An
open needs more than half of the members that the newest copy names. So the others are believed
without the log dir that failed. Its copy alone is not believed, because it still names the others.

The members change by one copy at a time, so more than half of the members before such a change, and
more than half of those after it, have a copy in common. Each such change begins a new *epoch*, and
so does each open. The epochs of two copies show where they parted.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import NamedTuple

EPOCHS_MAX = 1000  # a copy remembers at most this many


def new_id() -> str:
    """Make an id of 32 hex digits, for a store, a copy or an epoch."""
    return uuid.uuid4().hex


class Epoch(NamedTuple):
    """A part of the life of a store, in which the members did not change.

    Attributes:
        number: one more than the number of the epoch before.
        zxid: the last change before the epoch.
    """

    number: int
    epoch_id: str
    zxid: int


class Membership(NamedTuple):
    """What a copy knows about all copies.

    Attributes:
        epochs: the newest epochs, the oldest first.
        members: for the id of each member its log dir, as it was when the copy became a member.
    """

    epochs: tuple[Epoch, ...]
    members: Mapping[str, str]

    @classmethod
    def first(cls, copy_id: str, path: str) -> Membership:
        """Make the membership of a new store with one copy."""
        return cls((Epoch(1, new_id(), 0),), {copy_id: path})

    @property
    def epoch(self) -> Epoch:
        """The current epoch."""
        return self.epochs[-1]

    def follow(self, epoch: Epoch, members: Mapping[str, str]) -> Membership:
        """Return the membership after the begin of an epoch."""
        return Membership((*self.epochs, epoch)[-EPOCHS_MAX:], members)

    def renewed(self, zxid: int, members: Mapping[str, str] | None = None) -> Membership:
        """Begin a new epoch after a change; with the same members, if no others are given."""
        epoch = Epoch(self.epoch.number + 1, new_id(), zxid)
        return self.follow(epoch, self.members if members is None else members)

    def step_to(self, wanted: Mapping[str, str], zxid: int) -> Membership | None:
        """Remove or add one member, so that the wanted ones are left at last; None if they are."""
        gone = [one for one in self.members if one not in wanted]
        new = [one for one in wanted if one not in self.members]
        members = dict(self.members)
        if gone and not (new and len(members) == 1):  # never without a member
            del members[gone[0]]
        elif new:
            members[new[0]] = wanted[new[0]]
        else:
            return None
        return self.renewed(zxid, members)

    def missing(self, found: Collection[str]) -> dict[str, str]:
        """Return the members that are not among the copies that were found."""
        return {one: path for one, path in self.members.items() if one not in found}

    def is_enough(self, found: Collection[str]) -> bool:
        """Decide whether no copy that is missing can have changes that the found ones lack.

        A copy that continued alone would have noted so on all copies that were left then. It has
        changes that all found ones lack only if more than half of the members failed at once.
        """
        return 2 * (len(self.members) - len(self.missing(found))) > len(self.members)


def is_older(old: Membership, old_zxid: int, new: Membership) -> bool:
    """Decide whether a copy has no changes that counted and that a newer copy lacks.

    In the epoch in which the two parted, a copy can be one change ahead. This change did not count,
    because the other copy, or the members that its epochs come from, lack it.
    """
    places = {epoch.epoch_id: place for place, epoch in enumerate(new.epochs)}
    common = [place for place, epoch in enumerate(old.epochs) if epoch.epoch_id in places]
    if not common:
        return False
    after = old.epochs[common[-1] + 1 :]
    left_by_old = after[0].zxid if after else old_zxid
    after = new.epochs[places[old.epochs[common[-1]].epoch_id] + 1 :]
    return old_zxid == left_by_old and (not after or left_by_old <= after[0].zxid + 1)
