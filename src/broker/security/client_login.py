"""Log in at another broker: play the client's part of the logins in `mechanisms`."""

from __future__ import annotations

from typing import Any

from broker.security.errors import LoginFailedError
from broker.security.passwords import Password


class ClientLogin:
    """One login of this broker as a client. Each answer of the server leads to the next token."""

    def __init__(self, mechanism: str, own: Password) -> None:
        """Prepare the first token. Raises ImportError if the extra `security` is missing."""
        self._own = own
        self._scram: Any = None
        self._steps = 0
        if mechanism != "PLAIN":
            from scramp import ScramClient

            self._scram = ScramClient([mechanism], own.user, own.secret)

    def first(self) -> bytes:
        """Return the first token. Raises LoginFailedError if no user can have this name."""
        if self._scram is None:
            return f"\0{self._own.user}\0{self._own.secret}".encode()
        from scramp import ScramException

        try:
            return bytes(self._scram.get_client_first().encode())
        except ScramException:
            raise LoginFailedError("the name of the user has forbidden characters") from None

    def next(self, answer: bytes) -> bytes | None:
        """Handle an answer; return the next token, or None at the end of the login.

        Raises:
            LoginFailedError: the server does not know the password, or breaks the rules of the
                mechanism.
        """
        if self._scram is None:
            return None
        from scramp import ScramException

        self._steps += 1
        try:
            text = answer.decode("utf-8")
            if self._steps == 1:
                self._scram.set_server_first(text)
                return bytes(self._scram.get_client_final().encode())
            self._scram.set_server_final(text)
        except (ScramException, ValueError, IndexError, OverflowError):
            raise LoginFailedError(
                "the server did not prove that it knows the password of this user"
            ) from None
        return None
