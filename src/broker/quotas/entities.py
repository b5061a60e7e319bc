"""Define the entities of quotas: a user, a client id, both, or a default.

The most specific quota applies. This table has Kafka's order, and the clients that share the rate
of each quota:

    quota of                      shared by
    /users/U/clients/C            the clients C of the user U
    /users/U/clients/<default>    each client id of the user U has its own rate
    /users/U                      all clients of the user U
    /users/<default>/clients/C    the clients C of each user share a rate
    /users/<default>/clients/<default>    each user and client id has its own rate
    /users/<default>              each user has its own rate
    /clients/C                    the clients C of all users
    /clients/<default>            each client id has its own rate
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Default:
    """The type of `DEFAULT`; `DEFAULT` means every name without its own quota."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT = Default()
Name = str | Default
NAME_CHARACTERS_MAX = 1024


class Entity(NamedTuple):
    """The entity of a quota. If a field is None, it is not part of the entity.

    Attributes:
        user: the name of a user, without "User:", or the default of all users.
        client_id: a client id, or the default of all client ids.
    """

    user: Name | None
    client_id: Name | None


class Sharer(NamedTuple):
    """The requests that share one rate.

    The requests are of one user, of one client id, or of both together.
    """

    entity: Entity
    user: str | None
    client_id: str | None


def candidates_of(user: str, client_id: str) -> Iterator[Sharer]:
    """Yield the entities whose quota may apply to a request, the most specific entity first."""
    for user_name in (user, DEFAULT):
        for client_name in (client_id, DEFAULT):
            yield Sharer(Entity(user_name, client_name), user, client_id)
        yield Sharer(Entity(user_name, None), user, None)
    for client_name in (client_id, DEFAULT):
        yield Sharer(Entity(None, client_name), None, client_id)


def user_of(principal: str) -> str:
    """Return the name of a user without its type: "alice" for "User:alice"."""
    return principal.partition(":")[2]
