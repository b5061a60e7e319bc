"""Name what a quota is for: a user, a client id, both, or the default of either.

The most specific quota counts. Kafka's order, and who shares the rate of such a quota:

    quota of                      shared by
    /users/U/clients/C            the clients C of the user U
    /users/U/clients/<default>    each client id of the user U has a rate of its own
    /users/U                      all clients of the user U
    /users/<default>/clients/C    for each user, the clients C
    /users/<default>/clients/<default>    each user and client id has a rate of its own
    /users/<default>              each user has a rate of its own
    /clients/C                    the clients C of all users
    /clients/<default>            each client id has a rate of its own
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Default:
    """The type of `DEFAULT`, which stands for every name that has no quota of its own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT = Default()
Name = str | Default
NAME_CHARACTERS_MAX = 1024


class Entity(NamedTuple):
    """What a quota is for. A field that is None is not part of the entity.

    Attributes:
        user: the name of a user, without "User:", or the default of all users.
        client_id: a client id, or the default of all client ids.
    """

    user: Name | None
    client_id: Name | None


class Sharer(NamedTuple):
    """Those requests that share one rate: of one user, of one client id, or of both."""

    entity: Entity
    user: str | None
    client_id: str | None


def candidates_of(user: str, client_id: str) -> Iterator[Sharer]:
    """Yield the entities whose quota may count for a request, the most specific one first."""
    for user_name in (user, DEFAULT):
        for client_name in (client_id, DEFAULT):
            yield Sharer(Entity(user_name, client_name), user, client_id)
        yield Sharer(Entity(user_name, None), user, None)
    for client_name in (client_id, DEFAULT):
        yield Sharer(Entity(None, client_name), None, client_id)


def user_of(principal: str) -> str:
    """Return the name of a user without its kind: "alice" for "User:alice"."""
    return principal.partition(":")[2]
