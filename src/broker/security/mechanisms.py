"""Check the tokens of one login, and make the answers.

PLAIN           -> [authorization id] 0 user 0 password        <- nothing
SCRAM-SHA-...   -> client first    <- server first    -> client final    <- server final
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.security.decoys import Decoys, Shape, shape_of
from broker.security.errors import LoginFailedError
from broker.security.passwords import Passwords
from broker.security.scram_credential import ScramCredential, parse_credential

FindCredential = Callable[[str, str], ScramCredential | None]
TOKEN_BYTES_MAX = 8192  # the longest token that a mechanism reads


class Reply(NamedTuple):
    """The answer to a token: bytes for the client, and at the end of the login, the user."""

    token: bytes
    user: str | None = None


class Conversation(ABC):
    """One login of one client."""

    @abstractmethod
    def step(self, token: bytes) -> Reply:
        """Take the client's next token.

        Raises:
            LoginFailedError: the client does not know the password, or breaks the rules of the
                mechanism.
        """


class PlainConversation(Conversation):
    """Check a name and a password, which the client sends in plain text."""

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords

    def step(self, token: bytes) -> Reply:
        """Check the only token."""
        try:
            authorization, user, secret = token.decode("utf-8").split("\0")
        except ValueError:  # drop the cause, because its text shows the token
            raise LoginFailedError("the token of the login with PLAIN is not valid") from None
        if authorization not in ("", user):
            raise LoginFailedError("a user cannot log in as another user")
        if not self._passwords.accepts(user, secret):
            raise _wrong("PLAIN")
        return Reply(b"", user)


class ScramConversation(Conversation):
    """Check that a client knows a password. The broker does not see the password.

    A user without a credential gets a made-up credential, and fails at the same step as a client
    with a wrong password. So a client cannot find out which users exist.
    """

    def __init__(self, mechanism: str, directory: Directory) -> None:
        from scramp import ScramMechanism

        self._mechanism, self._directory = mechanism, directory
        self._user = ""
        self._is_known = False
        self._is_begun = False
        self._server: Any = ScramMechanism(mechanism).make_server(self._keys_of)

    def step(self, token: bytes) -> Reply:
        """Handle the first or the last message of the client."""
        from scramp import ScramException

        try:
            text = token.decode("utf-8")
            if not self._is_begun:
                self._is_begun = True
                self._server.set_client_first(text)
                return Reply(self._server.get_server_first().encode())
            self._server.set_client_final(text)
            if self._is_known:
                return Reply(self._server.get_server_final().encode(), self._user)
        except (ScramException, ValueError, IndexError, OverflowError):
            raise _wrong(self._mechanism) from None
        raise _wrong(self._mechanism)

    def _keys_of(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self._user = user
        directory, mechanism = self._directory, self._mechanism
        # For each user, a decoy is made, and a text is parsed: the stored text or the decoy's text.
        # So the time does not show whether the user exists.
        made_up = directory.decoys().text(user, mechanism)
        found = directory.find(user, mechanism)
        self._is_known = found is not None
        if found is None:
            found = parse_credential(mechanism, made_up)
        else:
            directory.learn(shape_of(found))
        return found.salt, found.stored_key, found.server_key, found.iterations


def _wrong(mechanism: str) -> LoginFailedError:
    return LoginFailedError(f"the user name or the password is wrong (SASL mechanism {mechanism})")


class Directory(NamedTuple):
    """The users that may log in: passwords for PLAIN, and keys for SCRAM.

    Attributes:
        find: gives the keys of a user for a mechanism; None if the user has no keys.
        decoys: gives the object that makes up keys for users without keys.
        learn: stores the shape of a user's keys when a login of this user begins.
    """

    passwords: Passwords
    find: FindCredential
    decoys: Callable[[], Decoys]
    learn: Callable[[Shape], object] = lambda shape: None

    def begin(self, mechanism: str) -> Conversation:
        """Begin a login with a mechanism that is enabled."""
        if mechanism == "PLAIN":
            return PlainConversation(self.passwords)
        return ScramConversation(mechanism, self)


NOBODY = Directory(Passwords([]), lambda user, mechanism: None, Decoys)
