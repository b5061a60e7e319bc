"""Judge the copies that an open of an embedded store finds, without I/O."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from broker.coordination.errors import (
    CopiesIncompleteError,
    CopyForeignError,
    CopyForkedError,
)
from broker.coordination.journal import JOURNAL_NAME, Journal
from broker.coordination.members import Membership, is_older
from broker.coordination.tree import Tree


class Past(NamedTuple):
    """A store as its process used it last, before it closed the store.

    If a process opens its store again in other log dirs, each copy there may lack changes of the
    process. But no other process has changed a copy whose last epoch this process has begun or
    knew.

    Attributes:
        begun: the ids of all epochs that the process has begun, even if no copy has them.
    """

    store_id: str
    membership: Membership
    tree: Tree
    begun: frozenset[str]

    def covers(self, journals: Mapping[str, Journal]) -> bool:
        """Report whether the process has made all changes of these copies, or knows them."""
        known = self.begun | {epoch.epoch_id for epoch in self.membership.epochs}
        return all(
            one.store_id == self.store_id and one.membership.epoch.epoch_id in known
            for one in journals.values()
        )


def newest_of(journals: Mapping[str, Journal], accept_incomplete: bool) -> Journal:
    """Return the newest copy. The store will use the znodes of this copy.

    If a process ends while it begins an epoch, only some copies have this epoch. If the next open
    finds none of these copies, it begins another epoch with the same number. So if the newest
    copies have different epochs, the store may have continued in any of these epochs, perhaps with
    copies that are missing now. If the epochs differ, enough members of each epoch must be found.

    Args:
        journals: the copies by their log dirs; at least one.
        accept_incomplete: use the newest copy that is found, even if a missing copy may be newer.

    Raises:
        CopyForeignError: the copies belong to different stores.
        CopyForkedError: each of two copies has changes that the other copy lacks.
        CopiesIncompleteError: too many members are missing.
    """
    held = Counter(journal.membership.epoch for journal in journals.values())

    def rank(path: str) -> tuple[tuple[int, int], float]:
        # an epoch is complete if more than half of its members have it
        membership = journals[path].membership
        return _age(journals[path]), held[membership.epoch] / max(1, len(membership.members))

    path = max(journals, key=rank)
    newest = journals[path]
    for other_path, other in journals.items():
        names = [os.path.join(one, JOURNAL_NAME) for one in (other_path, path)]
        if other.store_id != newest.store_id:
            raise CopyForeignError(names[0], other.store_id, names[1], newest.store_id)
        is_other = _age(other) == _age(newest) and other.tree.nodes != newest.tree.nodes
        if is_other or not is_older(other.membership, other.tree.zxid, newest.membership):
            raise CopyForkedError(names[0], other.tree.zxid, names[1], newest.tree.zxid)
    found = {journal.copy_id for journal in journals.values()}
    for journal in journals.values():
        is_enough = _age(journal) < _age(newest) or journal.membership.is_enough(found)
        if not (accept_incomplete or is_enough):
            raise CopiesIncompleteError(list(journals), journal.membership.missing(found))
    return newest


def _age(journal: Journal) -> tuple[int, int]:
    return journal.membership.epoch.number, journal.tree.zxid


def is_up_to_date(journal: Journal, newest: Journal | Past) -> bool:
    """Report whether changes can be appended to a copy; otherwise, the copy must be rewritten."""
    return (
        not journal.is_torn
        and journal.tree.zxid == newest.tree.zxid
        and journal.membership.epoch == newest.membership.epoch
    )
