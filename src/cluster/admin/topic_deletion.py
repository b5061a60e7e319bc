"""Delete a topic from the coordination store, and write down which replicas must be deleted.

If the deletion fits into one request, it is one transaction. The deletion also writes into the
store which replicas must be deleted. So no replica is forgotten, even if no controller runs now:
the next controller reads the record. A topic with thousands of partitions is deleted in several
steps. Before the first step, the broker writes a mark into the store. If the deletion is
interrupted, the next deletion of the topic, or the next start of a broker, completes it.

A topic that is created again has the same versions as the old topic. So each deletion also writes
the parent of all topics. If the version of this parent is still the same, no topic that was read
before has become another topic of the same name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain

from broker.coordination.errors import LimitError, NoNodeError
from broker.coordination.verbs import (
    Create,
    Delete,
    Operation,
    Session,
    Set,
    check_operations,
)
from cluster import znodes
from cluster.errors import BadZnodeError
from cluster.pure.control_exchange import Deletion
from cluster.registration import DELETED_VERSION
from cluster.state import parse_state
from cluster.znodes import NamedDeletion, TopicNode

LOG = logging.getLogger("cluster")
STEP = 400  # the number of partitions in one request, of about 400 KiB


def delete(session: Session, name: str, topic_id: str) -> bool:
    """Delete a topic; return False if there is no topic with this name and id.

    Raises:
        ZnodeError: another broker has changed the topic in the meantime. When this error is raised,
            some partitions may be deleted, and other partitions may remain.
    """
    path, topics = znodes.topic_path(name), session.get(znodes.TOPICS)
    try:
        znode = session.get(path)
    except NoNodeError:
        return False
    node = znodes.parse_topic(znode.data, path, znode.czxid)
    if node.identity.topic_id != topic_id:
        return False
    kept = set(session.children(znodes.DELETIONS))
    pieces = [
        [*_partition(session, name, number, node, kept)] for number in _partitions(session, name)
    ]
    mark = znodes.topic_deletion_path(name)
    last: list[Operation] = [Delete(path, znode.version)]
    parent = f"{path}/partitions"
    last[:0] = [Delete(one) for one in (parent,) if _exists(session, one)]
    last += [Delete(one) for one in (znodes.config_path(name), mark) if _exists(session, one)]
    whole = [*chain.from_iterable(pieces), *last, Set(topics.path, topics.data, topics.version)]
    try:
        check_operations(whole)
    except LimitError:  # other topics may be deleted between two steps
        _in_steps(session, mark, topic_id, pieces, [*last, Set(topics.path, topics.data)])
    else:
        session.multi(whole)
    return True


def _partitions(session: Session, name: str) -> list[str]:
    """List the partitions that have a znode."""
    try:
        return session.children(f"{znodes.topic_path(name)}/partitions")
    except NoNodeError:
        return []


def _exists(session: Session, path: str) -> bool:
    try:
        session.get(path)
    except NoNodeError:
        return False
    return True


def _partition(
    session: Session, name: str, number: str, node: TopicNode, kept: set[str]
) -> Iterator[Operation]:
    """Delete a partition, and write down the deletion of its replicas.

    Args:
        kept: the deletions that the store already has.
    """
    parent = f"{znodes.topic_path(name)}/partitions/{number}"
    path = f"{parent}/state"
    try:
        znode = session.get(path)
    except NoNodeError:  # the partition never had a replica
        pass
    else:
        brokers = frozenset(node.partitions.get(int(number), ()))
        try:
            state = parse_state(znode.data, path)
            brokers = state.removed.union(state.replicas)
        except BadZnodeError as error:
            LOG.warning("some replicas of a deleted partition may not be known: %s", error)
        deletion = Deletion(node.identity, int(number), DELETED_VERSION, brokers)
        to_keep = znodes.deletion_path(node.identity, int(number))
        if to_keep.rpartition("/")[2] not in kept:
            yield Create(to_keep, znodes.encode_deletion(NamedDeletion(name, deletion)))
        yield Delete(path, znode.version)
    yield Delete(parent)


def _in_steps(
    session: Session,
    mark: str,
    topic_id: str,
    pieces: list[list[Operation]],
    last: list[Operation],
) -> None:
    """Delete a topic that is too large for one request."""
    if _exists(session, mark):
        session.set(mark, topic_id.encode())
    else:
        session.create(mark, topic_id.encode())
        last = [*last, Delete(mark)]
    for begin in range(0, len(pieces), STEP):
        session.multi(chain.from_iterable(pieces[begin : begin + STEP]))
    session.multi(last)


def resume(session: Session) -> None:
    """Complete the deletions that a crash has interrupted.

    Raises:
        CoordinationError: the store refused a request. A later call can complete the other
            deletions.
    """
    for name in session.children(znodes.TOPIC_DELETIONS):
        mark = znodes.topic_deletion_path(name)
        topic_id = session.get(mark).data.decode(errors="replace")
        if not delete(session, name, topic_id):
            session.delete(mark)
