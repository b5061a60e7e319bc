"""Define the requests that a group gets, and the answers that it returns."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.wire.error_codes import ErrorCode

NO_GENERATION = -1


class Now(NamedTuple):
    """The times of two clocks at one moment."""

    seconds: float  # the time of a clock that never goes back, for deadlines
    wall_ms: int  # the time of the wall clock, for records in the log


class Joining(NamedTuple):
    """A JoinGroup request.

    Attributes:
        member_id: the id of the member; "" for a new member.
        instance_id: the name of a static member (KIP-345). After a restart, a static member keeps
            its assignment.
        protocols: the protocols that the member supports, in its order of preference. Each protocol
            has a name, and bytes for the leader.
        needs_known_id: whether a new member first gets an id, and then joins with it (KIP-394).
        may_skip_assignment: whether a static leader can be asked to assign nothing.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: float
    session_timeout: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_id: bool = False
    may_skip_assignment: bool = False


class JoinAnswer(NamedTuple):
    """The answer to a JoinGroup request. Only the answer to the leader has `members`."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skips_assignment: bool = False


class Syncing(NamedTuple):
    """A SyncGroup request. Only the request of the leader has assignments: one for each member id.

    Attributes:
        protocol_type, protocol: None if the version of the request does not have the field.
    """

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class SyncAnswer(NamedTuple):
    """The answer to a SyncGroup request."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


# A reply is a pair: the object that the caller passed with a request, and the answer.
Reply = tuple[Any, JoinAnswer | SyncAnswer]
