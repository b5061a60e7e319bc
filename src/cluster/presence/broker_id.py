"""Choose the id of a broker, and decide what happens if the id is already registered.

| configured | meta.properties | `/brokers/hosts/H` | the id is |
|---|---|---|---|
| any | two dirs have different ids | any | refused |
| an id | another id | any | refused |
| an id | the same id, or none | any | the configured id |
| none | an id, in some or all dirs | any | that id |
| none | none | an id that is not registered | that id |
| none | none | an id that is registered, or none | the next of `/brokers/seqid` + reserved |

Kafka's proposal also takes the only id that is missing among the registered brokers. This module
does not take this id, because the id may belong to a broker that is just restarting.

If the id is registered already:

| the new broker | what it does |
|---|---|
| holds the locks of that broker's log dirs | closes the old session: its process is gone |
| does not hold them, and has not waited yet | waits for one session time-out |
| does not hold them, and the id is still registered | refuses to start, and names the other host |
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from cluster.errors import BrokerIdError
from cluster.znode_document import ID_MAX

RESERVED_ID_MAX = 1000  # reserved.broker.max.id: ids from the sequence are larger than this


class Source(enum.Enum):
    """The source of a broker id."""

    CONFIG = "the configuration"
    META_PROPERTIES = "meta.properties"
    HOST = "/brokers/hosts"
    SEQUENCE = "/brokers/seqid"


class Found(NamedTuple):
    """The facts that a start found.

    Attributes:
        configured: the configured id, or None.
        dir_ids: for the path of each log dir, the id in its meta.properties, or None without an id.
        host_id: the id that `/brokers/hosts/H` has for this host, or None.
        registered: the ids in `/brokers/ids`.
    """

    configured: int | None
    dir_ids: Mapping[str, int | None]
    host_id: int | None = None
    registered: frozenset[int] = frozenset()
    reserved_id_max: int = RESERVED_ID_MAX


class Choice(NamedTuple):
    """The id and its source.

    With the source SEQUENCE, the id is None until the store gives an id.
    """

    source: Source
    broker_id: int | None


class Conflict(enum.Enum):
    """The next step of a broker whose id is already registered."""

    TAKE_OVER = "close the old session"
    WAIT = "wait for one session time-out"
    REFUSE = "refuse to start"


def choose_id(found: Found) -> Choice:
    """Choose the id of a broker.

    Raises:
        BrokerIdError: two sources have different ids, or an id is not in its range.
    """
    in_dirs = {path: one for path, one in found.dir_ids.items() if one is not None}
    for path, one in in_dirs.items():
        _check_range(one, f"the broker id in {path}")
    if len(set(in_dirs.values())) > 1:
        named = ", ".join(f"{one} in {path}" for path, one in sorted(in_dirs.items()))
        raise BrokerIdError(reason=f"the log dirs belong to different brokers: {named}")
    in_dir = next(iter(in_dirs.values()), None)
    if found.configured is not None:
        _check_configured(found, in_dirs)
        return Choice(Source.CONFIG, found.configured)
    if in_dir is not None:
        return Choice(Source.META_PROPERTIES, in_dir)
    if found.host_id is not None:
        _check_range(found.host_id, "the broker id in /brokers/hosts")
        if found.host_id not in found.registered:
            return Choice(Source.HOST, found.host_id)
    return Choice(Source.SEQUENCE, None)


def _check_configured(found: Found, in_dirs: Mapping[str, int]) -> None:
    assert found.configured is not None
    _check_range(found.configured, "the configured broker id")
    for path, one in sorted(in_dirs.items()):
        if one != found.configured:
            reason = f"the configured broker id is {found.configured}, but {path} belongs to "
            reason += f"broker {one}: use the id {one}, or empty log dirs"
            raise BrokerIdError(reason=reason)
    if not in_dirs and found.configured > found.reserved_id_max:
        reason = f"the configured broker id {found.configured} is larger than "
        reason += f"reserved.broker.max.id ({found.reserved_id_max}): the sequence may give it to "
        raise BrokerIdError(reason=reason + "another broker")


def _check_range(broker_id: int, what: str) -> None:
    if type(broker_id) is not int or not 0 <= broker_id <= ID_MAX:
        raise BrokerIdError(reason=f"{what} is {broker_id!r}, not an integer from 0 to {ID_MAX}")


def id_of_sequence(number: int, reserved_id_max: int = RESERVED_ID_MAX) -> int:
    """Return the id for a number of the sequence. The first number is 1."""
    if not 1 <= number <= ID_MAX - reserved_id_max:
        raise BrokerIdError(reason=f"/brokers/seqid is {number}: no broker id is left")
    return reserved_id_max + number


def on_conflict(*, has_its_locks: bool, has_waited: bool) -> Conflict:
    """Decide the next step of a broker whose id another session has registered."""
    if has_its_locks:
        return Conflict.TAKE_OVER
    return Conflict.REFUSE if has_waited else Conflict.WAIT


def refusal(broker_id: int, other_host: str) -> BrokerIdError:
    """Make the error for a broker whose id another host has registered."""
    reason = f"broker id {broker_id} is registered by {other_host}; stop that broker, or start "
    return BrokerIdError(reason=reason + "this one with another --broker-id and empty log dirs")
