"""Decide which copies of an embedded store an open can trust. No I/O.

Each copy has an id, and a list of the *members*: the copies that have every complete change. If a
log dir fails, all other copies remove its copy from their lists before the next change is complete.
An open needs more than half of the members that the newest copy lists. So the store can be opened
without the log dir that failed. The store cannot be opened with only the copy in that log dir,
because this copy still lists the other copies as members.

Each step adds or removes only one member. So each majority of the members before a step has a copy
in common with each majority of the members after the step. A new *epoch* begins with each step, and
with each open. So a comparison of the epochs of two copies shows the last epoch that both copies
have.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import NamedTuple

EPOCHS_MAX = 1000  # the largest number of epochs that a copy remembers


def new_id() -> str:
    """Make an id of 32 hex digits, for a store, a copy or an epoch."""
    return uuid.uuid4().hex


class Epoch(NamedTuple):
    """A period in which the members of a store did not change.

    Attributes:
        number: one more than the number of the previous epoch.
        zxid: the last change before the epoch.
    """

    number: int
    epoch_id: str
    zxid: int


class Membership(NamedTuple):
    """The facts that a copy has about all copies.

    Attributes:
        epochs: the newest epochs, the oldest first.
        members: the id of each member, with the path that its log dir had when it became a member.
    """

    epochs: tuple[Epoch, ...]
    members: Mapping[str, str]

    @classmethod
    def first(cls, copy_id: str, path: str) -> Membership:
        """Return the membership of a new store. A new store has only one copy."""
        return cls((Epoch(1, new_id(), 0),), {copy_id: path})

    @property
    def epoch(self) -> Epoch:
        """The current epoch."""
        return self.epochs[-1]

    def follow(self, epoch: Epoch, members: Mapping[str, str]) -> Membership:
        """Return the membership with this epoch as the current epoch, and with its members."""
        return Membership((*self.epochs, epoch)[-EPOCHS_MAX:], members)

    def renewed(self, zxid: int, members: Mapping[str, str] | None = None) -> Membership:
        """Return the membership with a new epoch. Without `members`, the members stay the same."""
        epoch = Epoch(self.epoch.number + 1, new_id(), zxid)
        return self.follow(epoch, self.members if members is None else members)

    def step_to(self, wanted: Mapping[str, str], zxid: int) -> Membership | None:
        """Return the membership after one step towards the wanted members; None at the end."""
        gone = [one for one in self.members if one not in wanted]
        new = [one for one in wanted if one not in self.members]
        members = dict(self.members)
        if gone and not (new and len(members) == 1):  # at least one member always stays
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
        """Report whether the found copies certainly have every complete change.

        If some copies continue without the others, each of these copies writes this down. So no
        missing copy has a change that all found copies lack, unless more than half of the members
        failed at once.
        """
        return 2 * (len(self.members) - len(self.missing(found))) > len(self.members)


def is_older(old: Membership, old_zxid: int, new: Membership) -> bool:
    """Report whether the copy with members `new` has each complete change of the copy with `old`.

    In the last epoch that both copies have, the older copy can have one change that the newer copy
    lacks. This change was never complete, because the members that continued did not have it.
    """
    places = {epoch.epoch_id: place for place, epoch in enumerate(new.epochs)}
    common = [place for place, epoch in enumerate(old.epochs) if epoch.epoch_id in places]
    if not common:
        return False
    after = old.epochs[common[-1] + 1 :]
    left_by_old = after[0].zxid if after else old_zxid
    after = new.epochs[places[old.epochs[common[-1]].epoch_id] + 1 :]
    return old_zxid == left_by_old and (not after or left_by_old <= after[0].zxid + 1)
