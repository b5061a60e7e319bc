"""Answer SaslHandshake (17) and SaslAuthenticate (36); refuse other requests before a login."""

from __future__ import annotations

from collections.abc import Callable

from broker.machines.exchange import Answer, Client, CloseConnectionError, Pending
from broker.requests.services import Call
from broker.security.authentication import Authentication, State
from broker.wire.error_codes import ErrorCode
from broker.wire.frames import Request
from broker.wire.messages import SaslAuthenticateResponse, SaslHandshakeResponse

NO_SASL = "this listener has no SASL"


class DelayedFailure(Pending):
    """The delayed answer to a failed login; the delay limits how fast passwords can be tried."""

    ends_with_client = False  # if True, a client could skip the delay, and still read the answer

    def __init__(self, deadline: float, answer: Answer) -> None:
        super().__init__(deadline)
        self._answer = answer

    def watch(self, wake: Callable[[], None]) -> None:
        """Do nothing, because only the deadline ends the wait."""

    def look(self, *, is_last: bool) -> Answer | None:
        """Answer at the deadline."""
        return self._answer if is_last else None

    def close(self) -> None:
        """Do nothing."""


def check_permitted(request: Request, client: Client, now: float) -> None:
    """Raise CloseConnectionError if the client has not logged in or its session has expired."""
    login = client.login
    if login is None or login.permits(request.key, now):
        return
    if login.state is State.DONE:
        raise CloseConnectionError(
            "the client's session has expired, and it has not logged in again"
        )
    raise CloseConnectionError(
        f"the client sent a request of the API {request.key} before its login"
    )


def answer_handshake(call: Call) -> Answer | Pending:
    """Handle the client's choice of a mechanism."""
    login, request = call.client.login, call.request
    asked = request.message()
    if login is None:
        return call.answer(SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE))
    reply = login.handshake(request.version, asked.mechanism, call.services.clock())
    answer = call.answer(SaslHandshakeResponse(reply.code, reply.mechanisms))
    return _ended(call, login, answer, f"SaslHandshake: {reply.code.name}")


def answer_authenticate(call: Call) -> Answer | Pending:
    """Handle the next token of a login."""
    login, client = call.client.login, call.client
    asked = call.request.message()
    if login is None:
        code = ErrorCode.ILLEGAL_SASL_STATE
        return call.answer(SaslAuthenticateResponse(code, NO_SASL, b""))
    reply = login.authenticate(bytes(asked.auth_bytes), call.services.clock())
    if login.state is State.DONE:
        client.principal = login.principal
    answer = call.answer(
        SaslAuthenticateResponse(reply.code, reply.text, reply.token, reply.session_lifetime_ms)
    )
    return _ended(call, login, answer, reply.text or "")


def _ended(call: Call, login: Authentication, answer: Answer, reason: str) -> Answer | Pending:
    """If the login may continue, answer at once.

    If the login has failed, answer late and close the connection.
    """
    if login.state is not State.ENDED:
        return answer
    call.client.ended = reason
    delay_ms = call.services.config.connection_failed_authentication_delay_ms
    return DelayedFailure(call.services.clock() + delay_ms / 1000, answer)
