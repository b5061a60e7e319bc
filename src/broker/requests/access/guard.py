"""Apply the rule of an API to a request, before its handler and after it."""

from __future__ import annotations

from collections.abc import Callable

from broker.machines.exchange import Answer, CloseConnectionError, Pending
from broker.requests.access.access_rules import RULES
from broker.requests.access.checks import Asking, Refused
from broker.requests.security import peers
from broker.requests.services import Call
from broker.wire.frames import Request

Handler = Callable[[Call], Answer | Pending]


def answer_checked(call: Call, handler: Handler) -> Answer | Pending:
    """Call a handler with the part of a request to which the client has a right.

    Raises: CloseConnectionError: no rule covers the request.
    """
    request = call.request
    rule = RULES.get(request.key)
    if rule is None:
        raise CloseConnectionError(f"there is no access rule for the API {request.key}")
    if rule.check is None:
        return handler(call)
    asking = Asking(call.rights, request.version, call.services.topics.name_of)
    found = rule.check(request.message(), asking)
    if isinstance(found, Refused):
        return call.answer(found.answer)
    request.decoded = found.asked
    return handler(call._replace(finish=found.finish))


def answer_broker(call: Call, handler: Callable[[Request], Answer | Pending]) -> Answer | Pending:
    """Answer a request that only brokers of the cluster may send. Refuse other clients.

    Raises:
        CloseConnectionError: the client may not act as a broker, and the answer has no place for
            an error.
    """
    if not call.is_from_broker():
        return peers.refused(call.request)
    return handler(call.request)
