"""Hold the passwords of a users file, for the mechanism PLAIN and for this broker's own logins.

A users file has one line `user:password` for each user, in UTF-8. Empty lines, and lines that begin
with #, are ignored. A password may contain colons.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NamedTuple

from broker.security.errors import BadCredentialError

FILE_BYTES_MAX = 1 << 20
NAME_BYTES_MAX = 255


class Password(NamedTuple):
    """A user and its password. Neither `repr` nor `str` shows the password."""

    user: str
    secret: str

    def __repr__(self) -> str:
        return f"<Password of {self.user}>"

    def __str__(self) -> str:
        return repr(self)


class Passwords:
    """The passwords of all users of a file.

    Only a keyed hash of each password is stored, so a memory dump shows no password.
    """

    def __init__(self, passwords: list[Password]) -> None:
        self._key = secrets.token_bytes(32)
        self._known = {one.user: self._hash(one.secret) for one in passwords}

    def __repr__(self) -> str:
        return f"<Passwords of {len(self._known)} users>"

    def accepts(self, user: str, secret: str) -> bool:
        """Check a password.

        The check takes the same time for a user that exists and for a user that does not.
        """
        known = self._known.get(user)
        is_equal = hmac.compare_digest(self._hash(secret), known or bytes(32))
        return is_equal and known is not None

    def _hash(self, secret: str) -> bytes:
        return hashlib.blake2b(secret.encode("utf-8"), key=self._key, digest_size=32).digest()


def parse_passwords(data: bytes) -> list[Password]:
    """Read a users file.

    Raises:
        BadCredentialError: a line has another form. The error has the number of the line, not its
            text.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadCredentialError("it is not valid UTF-8") from None
    found: dict[str, Password] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, secret = line.partition(":")
        if not (user and colon and secret) or len(user.encode()) > NAME_BYTES_MAX:
            raise BadCredentialError(f"line {number} is not of the form user:password")
        if "\0" in line:
            raise BadCredentialError(f"line {number} has a zero byte")
        if user in found:
            raise BadCredentialError(f"line {number}: an earlier line has the same user")
        found[user] = Password(user, secret)
    return list(found.values())
