"""Decide the answer to each step of a client's login (KIP-43, KIP-152, KIP-368).

    state       request            answer                              next state
    NEW         SaslHandshake v1   0 and the mechanisms                BEGUN
                SaslHandshake v0   35                                  ENDED
                other mechanism    33 and the mechanisms               ENDED
                ApiVersions        as for any client                   NEW
    BEGUN       SaslAuthenticate   0 and a token; at the end,          BEGUN, or
                                   the lifetime of the session         DONE
                wrong password     58 and a text                       ENDED
                ApiVersions        as for any client                   BEGUN
    DONE        SaslHandshake      as in NEW, but after one second     BEGUN again
                any other request  served until the session expires    DONE
    any         anything else      none: the connection is closed      ENDED

If a client logs in again, it must use the same mechanism and the same user. During this login, its
other requests are not served.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from broker.security.errors import LoginFailedError
from broker.security.mechanisms import TOKEN_BYTES_MAX, Conversation, Directory
from broker.wire.error_codes import ErrorCode

HANDSHAKE, API_VERSIONS, AUTHENTICATE = 17, 18, 36
BEFORE_LOGIN = frozenset({HANDSHAKE, API_VERSIONS, AUTHENTICATE})
FRAMED = 1  # from SaslHandshake v1 on, SaslAuthenticate has the tokens
AGAIN_SECONDS_MIN = 1.0
STEPS_MAX = 4  # a mechanism needs at most two tokens


class State(Enum):
    """The state of a login."""

    NEW = "no mechanism is chosen"
    BEGUN = "the client has chosen a mechanism"
    DONE = "the client has logged in"
    ENDED = "the connection is closed after the answer"


class HandshakeReply(NamedTuple):
    """The answer to a SaslHandshake."""

    code: ErrorCode
    mechanisms: tuple[str, ...]


class TokenReply(NamedTuple):
    """The answer to a SaslAuthenticate."""

    code: ErrorCode
    text: str | None = None
    token: bytes = b""
    session_lifetime_ms: int = 0


class Authentication:
    """The login of one connection. A connection handles one request at a time.

    Attributes:
        state: the state of the login.
        principal: the user of the client, such as "User:alice"; "" before the first login.
        expires_at: the time when the session expires; infinity if it never expires.
    """

    def __init__(
        self, mechanisms: Sequence[str], directory: Directory, reauth_ms_max: int = 0
    ) -> None:
        """Begin in the state NEW.

        Args:
            mechanisms: the names of the enabled mechanisms.
            reauth_ms_max: a client must log in again after this time; 0 means never.
        """
        self.state = State.NEW
        self.principal = ""
        self.expires_at = math.inf
        self._mechanisms, self._directory = tuple(mechanisms), directory
        self._reauth_ms_max = reauth_ms_max
        self._mechanism = ""
        self._conversation: Conversation | None = None
        self._steps = 0
        self._done_at = -math.inf

    def __repr__(self) -> str:
        return f"<Authentication of {self.principal or 'nobody'}: {self.state.value}>"

    def permits(self, key: int, now: float) -> bool:
        """Report whether a request may be answered. If not, the caller closes the connection."""
        if self.state is State.DONE:
            return now < self.expires_at or key in BEFORE_LOGIN
        return self.state is not State.ENDED and key in BEFORE_LOGIN

    def handshake(self, version: int, mechanism: str, now: float) -> HandshakeReply:
        """Handle the client's choice of a mechanism."""
        if self.state is State.DONE and now - self._done_at < AGAIN_SECONDS_MIN:
            return HandshakeReply(ErrorCode.ILLEGAL_SASL_STATE, self._mechanisms)
        if self.state not in (State.NEW, State.DONE):
            return self._refused(ErrorCode.ILLEGAL_SASL_STATE)
        if version < FRAMED:
            return self._refused(ErrorCode.UNSUPPORTED_VERSION)
        if mechanism not in self._mechanisms or self._mechanism not in ("", mechanism):
            return self._refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        self._mechanism = mechanism
        self._conversation, self._steps = self._directory.begin(mechanism), 0
        self.state = State.BEGUN
        return HandshakeReply(ErrorCode.NONE, self._mechanisms)

    def _refused(self, code: ErrorCode) -> HandshakeReply:
        self.state = State.ENDED
        return HandshakeReply(code, self._mechanisms)

    def authenticate(self, token: bytes, now: float) -> TokenReply:
        """Handle the next token of the client."""
        conversation = self._conversation
        if self.state is not State.BEGUN or conversation is None:
            self.state = State.ENDED
            return TokenReply(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes before SaslAuthenticate"
            )
        self._steps += 1
        try:
            if len(token) > TOKEN_BYTES_MAX or self._steps > STEPS_MAX:
                raise LoginFailedError("a token is too long, or there are too many tokens")
            reply = conversation.step(token)
            if reply.user is None:
                return TokenReply(ErrorCode.NONE, token=reply.token)
            principal = f"User:{reply.user}"
            if self.principal not in ("", principal):
                raise LoginFailedError("a client cannot become another user when it logs in again")
        except LoginFailedError as error:
            self.state, self._conversation = State.ENDED, None
            text = f"Authentication failed: {error}"
            return TokenReply(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
        self.state, self._conversation, self.principal = State.DONE, None, principal
        self._done_at = now
        if self._reauth_ms_max:
            self.expires_at = now + self._reauth_ms_max / 1000
        return TokenReply(
            ErrorCode.NONE, token=reply.token, session_lifetime_ms=self._reauth_ms_max
        )
