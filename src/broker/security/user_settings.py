"""Read and write the settings of users: Kafka's paths and JSON in the coordination store.

    /config/users/NAME    {"version":1,"config":{"SCRAM-SHA-256":"salt=...,stored_key=..."}}

In a path, a user's name is quoted as in a URL: `a b/c` becomes `a%20b%2Fc`. The settings of a user
may also have other keys, such as quotas. A change of a credential keeps the other keys.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote, unquote

from broker.coordination.errors import BadZnodeError
from broker.security.errors import BadCredentialError
from broker.security.scram_credential import (
    HASHES,
    ScramCredential,
    encode_credential,
    parse_credential,
)

LOG = logging.getLogger("broker")
USERS = "/config/users"
VERSION = 1
NAME_BYTES_MAX = 255

Settings = Mapping[str, str]
Keys = Mapping[str, ScramCredential]  # the credentials by mechanism
# From a user and a mechanism to the new credential; None deletes the credential.
Changes = Mapping[str, Mapping[str, ScramCredential | None]]


class UserCredentials(Protocol):
    """The SCRAM credentials of all users."""

    def find(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the credential of a user for a mechanism; None if there is none."""

    def listed(self) -> dict[str, Keys]:
        """Return the credentials of each user that has a credential. Raises LogStoreError."""

    def change(self, changes: Changes) -> None:
        """Write and delete credentials. Raises LogStoreError."""

    def close(self) -> None:
        """Release the coordination store."""


def user_path(name: str) -> str:
    """Return the path of a user's settings."""
    part = quote(name, safe="")
    if part in (".", ".."):  # no part of a path may be `.` or `..`
        part = part.replace(".", "%2E")
    return f"{USERS}/{part}"


def user_of(part: str) -> str:
    """Return the name of the user whose path ends with this part."""
    return unquote(part)


def encode_settings(settings: Settings) -> bytes:
    """Write the settings of a user."""
    document = {"version": VERSION, "config": dict(settings)}
    return json.dumps(document, separators=(",", ":")).encode()


def parse_settings(data: bytes, path: str) -> dict[str, str]:
    """Read the settings of a user. Raises BadZnodeError, which does not show the data."""
    try:
        document = json.loads(data)
        config = document["config"]
        is_sound = document["version"] == VERSION and all(
            isinstance(value, str) for value in config.values()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise BadZnodeError(path, "the znode does not have the settings of a user")
    return dict(config)


def user_znodes(users: Mapping[str, Settings]) -> dict[str, bytes | None]:
    """Return the data of the znodes of some users; None if a user has no settings left."""
    return {user_path(name): encode_settings(one) if one else None for name, one in users.items()}


def merged(settings: Settings, changes: Mapping[str, ScramCredential | None]) -> dict[str, str]:
    """Return the settings after a change."""
    kept = {key: text for key, text in settings.items() if key not in changes}
    return kept | {key: encode_credential(one) for key, one in changes.items() if one is not None}


def credential_in(settings: Settings, mechanism: str, user: str) -> ScramCredential | None:
    """Read a user's credential for a mechanism.

    If the credential cannot be read, log this fact and return None.
    """
    text = settings.get(mechanism)
    if text is None or mechanism not in HASHES:
        return None
    try:
        return parse_credential(mechanism, text)
    except BadCredentialError as error:
        LOG.warning("the credential of user %r cannot be read: %s", user, error)
        return None


def credentials_in(settings: Settings, user: str) -> Keys:
    """Read all credentials of a user."""
    found = {one: credential_in(settings, one, user) for one in HASHES}
    return {mechanism: one for mechanism, one in found.items() if one is not None}
