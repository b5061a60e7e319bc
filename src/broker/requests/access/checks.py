"""Define what a check of a request returns, and the checks that many APIs share.

    asked -> check -> Checked: the handler gets the part that is allowed -> finish -> answer
                   -> Refused: the handler is not called --------------------------> answer

A check removes the refused parts from the request, and adds their rows to the answer. So a handler
sees only the parts that are allowed for its client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from broker.authorization.authorizer import Rights
from broker.authorization.bindings import CLUSTER_NAME, Operation, ResourceType
from broker.wire.error_codes import ErrorCode

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
# If a client lacks a right to a resource of this type, it gets this error.
CODES = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTIONAL_ID = CODES.values()
MESSAGE = "the client has no right to do this"


NAMES = {
    TOPIC: "each topic", GROUP: "each group", CLUSTER: "the cluster",
    TRANSACTIONAL_ID: "the transactional id",
}  # fmt: skip


class Right(NamedTuple):
    """A right that a request needs.

    Attributes:
        when: the condition, or the purpose, of the right; "" means always.
        on: the resource; "" means each resource that the request names.
    """

    operation: Operation
    type: ResourceType
    when: str = ""
    on: str = ""

    def __str__(self) -> str:
        when = f", {self.when}" if self.when else ""
        return f"`{self.operation.name}` on {self.on or NAMES[self.type]}{when}"


class Asking(NamedTuple):
    """The facts that a check gets in addition to the request itself.

    Attributes:
        name_of: finds the name of a topic by its id; None if no topic has the id.
    """

    rights: Rights
    version: int
    name_of: Callable[[bytes], str | None]

    def may(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Report whether the client may do an operation on a resource that it has named."""
        return self.rights.may(operation, kind, name)

    def sees(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Report whether the client may do an operation. Do not log a denial."""
        return self.rights.sees(operation, kind, name)


class Checked(NamedTuple):
    """The allowed part of a request, and a function that completes the answer."""

    asked: Any
    finish: Callable[[Any], Any] | None = None


class Refused(NamedTuple):
    """The answer to a request if no part of it is allowed."""

    answer: Any


Check = Callable[[Any, Asking], Checked | Refused]


class Rule(NamedTuple):
    """The rights that the requests of an API need.

    Attributes:
        rights: the rights, for the documentation and for tests.
        check: the check of the requests; None if every client may send them, or if the handler asks
            `Call.rights`.
    """

    rights: Sequence[Right]
    check: Check | None = None


def whole(operation: Operation, refuse: Callable[[Any], Any]) -> Check:
    """Make a check for requests that need a right to the cluster."""

    def check(asked: Any, asking: Asking) -> Checked | Refused:
        if asking.may(operation, CLUSTER):
            return Checked(asked)
        return Refused(refuse(asked))

    return check


def split(parts: Iterable[Any], is_allowed: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """Return the allowed parts and the refused parts of a request."""
    allowed: list[Any] = []
    refused: list[Any] = []
    for part in parts:
        (allowed if is_allowed(part) else refused).append(part)
    return allowed, refused


def each(
    field: str,
    is_allowed: Callable[[Any, Asking], bool],
    response: Any,
    rows_field: str,
    row_of: Callable[[Any], Any],
) -> Check:
    """Make a check for requests whose parts are allowed or refused one by one.

    Args:
        field: the field of the request with the parts.
        response: the class of the answer.
        rows_field: the field of the answer with a row for each part.
        row_of: makes the row of a refused part.
    """

    def check(asked: Any, asking: Asking) -> Checked | Refused:
        allowed, refused = split(getattr(asked, field) or (), lambda part: is_allowed(part, asking))
        if not refused:
            return Checked(asked)
        rows = [row_of(part) for part in refused]
        if not allowed:
            return Refused(response(**{rows_field: rows}))
        return Checked(asked._replace(**{field: allowed}), adding(rows_field, rows))

    return check


def adding(rows_field: str, rows: Sequence[Any]) -> Callable[[Any], Any]:
    """Make the function that adds rows to an answer, unless the whole request has failed."""

    def finish(answer: Any) -> Any:
        return answer._replace(**{rows_field: [*getattr(answer, rows_field), *rows]})

    return finish


def each_topic(
    operation: Operation, field: str, response: Any, rows_field: str, row_of: Callable[[Any], Any]
) -> Check:
    """Make a check for requests whose parts each have the name of a topic."""
    return each(
        field,
        lambda topic, asking: asking.may(operation, TOPIC, topic.name),
        response,
        rows_field,
        row_of,
    )
