"""Judge the copies that an open of an embedded store finds, without I/O."""

from __future__ import annotations

import os
from collections.abc import Mapping

from broker.coordination.errors import (
    CopiesIncompleteError,
    CopyForeignError,
    CopyForkedError,
)
from broker.coordination.journal import JOURNAL_NAME, Journal
from broker.coordination.members import is_older


def newest_of(journals: Mapping[str, Journal], accept_incomplete: bool) -> Journal:
    """Return the newest copy, whose znodes the store will use.

    Args:
        journals: the copies by their log dirs; at least one.
        accept_incomplete: use the newest copy that is found, even if a missing copy may be newer.

    Raises:
        CopyForeignError: the copies belong to different stores.
        CopyForkedError: each of two copies has changes that the other copy lacks.
        CopiesIncompleteError: too many members are missing.
    """
    path = max(journals, key=lambda one: _age(journals[one]))
    newest = journals[path]
    for other_path, other in journals.items():
        names = [os.path.join(one, JOURNAL_NAME) for one in (other_path, path)]
        if other.store_id != newest.store_id:
            raise CopyForeignError(names[0], other.store_id, names[1], newest.store_id)
        is_other = _age(other) == _age(newest) and other.tree.nodes != newest.tree.nodes
        if is_other or not is_older(other.membership, other.tree.zxid, newest.membership):
            raise CopyForkedError(names[0], other.tree.zxid, names[1], newest.tree.zxid)
    found = {journal.copy_id for journal in journals.values()}
    if not (accept_incomplete or newest.membership.is_enough(found)):
        raise CopiesIncompleteError(list(journals), newest.membership.missing(found))
    return newest


def _age(journal: Journal) -> tuple[int, int]:
    return journal.membership.epoch.number, journal.tree.zxid


def is_up_to_date(journal: Journal, newest: Journal) -> bool:
    """Decide whether changes can be appended to a copy as it is."""
    return (
        not journal.is_torn
        and journal.tree.zxid == newest.tree.zxid
        and journal.membership.epoch == newest.membership.epoch
    )
