"""Find the id of a broker in the coordination store, and prevent two brokers with one id.

`broker_id` makes the decisions. This module reads the facts, and writes the results.

    /brokers/hosts/b2.example.com    {"version":0,"broker.id":2}
    /brokers/seqid                   its version is the newest number of the sequence, as in Kafka
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from broker.coordination.continuity import ensure
from broker.coordination.errors import NoNodeError
from broker.coordination.verbs import Session, SessionKey, Znode
from cluster import znodes
from cluster.errors import BadZnodeError
from cluster.presence.broker_id import (
    Conflict,
    Found,
    choose_id,
    id_of_sequence,
    on_conflict,
    refusal,
)
from cluster.znode_document import ID_MAX, ZnodeDocument

HOSTS, SEQUENCE = "/brokers/hosts", "/brokers/seqid"
HOST_VERSION = 0
# ZooKeeper ends sessions only at its ticks, so a session may end after its timeout.
# A timeout has at least two ticks.
WAIT_PART = 1.5
LOOKS_PER_WAIT = 20


def find_id(
    session: Session,
    configured: int | None,
    dir_ids: Mapping[str, int | None],
    host: str,
    reserved_id_max: int,
) -> int:
    """Find the id of this broker. The call may use up a number of the sequence.

    Args:
        dir_ids: for each log dir, the id in its meta.properties, or None without an id.

    Raises:
        BrokerIdError: two sources have different ids, or no id is left.
    """
    is_known = configured is not None or any(one is not None for one in dir_ids.values())
    host_id = None if is_known else _id_of(session, host)
    choice = choose_id(Found(configured, dir_ids, host_id, _registered(session), reserved_id_max))
    if choice.broker_id is not None:
        return choice.broker_id
    ensure(session, SEQUENCE)
    return id_of_sequence(session.set(SEQUENCE, b"").version, reserved_id_max)


def _id_of(session: Session, host: str) -> int | None:
    """Read the id that the broker of a host had last."""
    path = f"{HOSTS}/{host}"
    try:
        return ZnodeDocument(session.get(path).data, path).number("broker.id", 0, ID_MAX)
    except NoNodeError:
        return None


def _registered(session: Session) -> frozenset[int]:
    try:
        names = session.children(znodes.BROKERS)
    except NoNodeError:
        return frozenset()
    return frozenset(int(name) for name in names if name.isascii() and name.isdigit())


def write_host(session: Session, host: str, broker: int) -> None:
    """Write the id of a host's broker into the store.

    If all log dirs of the host are lost, the broker reads its id there.
    """
    with suppress(BadZnodeError):
        if _id_of(session, host) == broker:
            return
    path, document = f"{HOSTS}/{host}", {"version": HOST_VERSION, "broker.id": broker}
    ensure(session, path)
    session.set(path, json.dumps(document, separators=(",", ":")).encode())


def claim(
    session: Session,
    broker: int,
    kept: Collection[SessionKey],
    end: Callable[[SessionKey], object],
    timeout_seconds: float,
    pause: Callable[[float], object],
) -> None:
    """Wait until the id of this broker is not registered by another session.

    Args:
        kept: the sessions of earlier processes that used this broker's log dirs since the last boot
            of this machine. The earlier processes have ended, because this process has the locks of
            the log dirs.
        end: ends a session of another process.
        timeout_seconds: the session timeout.
        pause: waits for some seconds.

    Raises:
        BrokerIdError: another broker is registered with this id.
    """
    waited, wait = 0.0, timeout_seconds * WAIT_PART
    while (found := _registration(session, broker)) is not None:
        known = [one for one in kept if one.session_id == found.ephemeral_owner]
        match on_conflict(has_its_locks=bool(known), has_waited=waited >= wait):
            case Conflict.TAKE_OVER:
                end(known[0])
                kept = ()  # if the registration still exists, end no session again
            case Conflict.REFUSE:
                raise refusal(broker, _host_of(found))
            case _:
                pause(wait / LOOKS_PER_WAIT)
                waited += wait / LOOKS_PER_WAIT


def _registration(session: Session, broker: int) -> Znode | None:
    """Read the registration of an id; None if there is none, or if this session made it."""
    try:
        found = session.get(znodes.broker_path(broker))
    except NoNodeError:
        return None
    return None if found.ephemeral_owner == session.key.session_id else found


def _host_of(found: Znode) -> str:
    try:
        node = znodes.parse_registration(found.data, found.path, found.czxid, found.mzxid)
    except BadZnodeError:
        return "an unknown host"
    return f"{node.endpoints[0].host}:{node.endpoints[0].port}"
