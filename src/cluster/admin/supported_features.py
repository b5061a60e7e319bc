"""Read in the registrations which brokers of a cluster support the level of a feature."""

from __future__ import annotations

from broker.catalog.admin.features import SUPPORTED
from broker.coordination.errors import NoNodeError
from broker.coordination.verbs import Session
from cluster import znodes


def brokers_lacking(session: Session, feature: str, level: int) -> list[int]:
    """List the registered brokers that do not support a level. Raises CoordinationError."""
    lacking = []
    for name in _children(session, znodes.BROKERS):
        try:
            data = session.get(f"{znodes.BROKERS}/{name}").data
        except NoNodeError:
            continue  # the broker has just stopped
        first, last = znodes.features_of(data).get(feature, (0, 0))
        if name.isdigit() and not first <= level <= last:
            lacking.append(int(name))
    return sorted(lacking)


def is_new_cluster(session: Session) -> bool:
    """Check that a cluster has no topics, and that all brokers support this broker's newest levels.

    Raises:
        CoordinationError: the store cannot be read now.
    """
    if _children(session, znodes.TOPICS):
        return False
    return not any(
        brokers_lacking(session, feature, last) for feature, (_, last) in SUPPORTED.items()
    )


def _children(session: Session, path: str) -> list[str]:
    try:
        return list(session.children(path))
    except NoNodeError:
        return []
