"""Answer AlterUserScramCredentials (51) and DescribeUserScramCredentials (50)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from broker.machines.exchange import Answer
from broker.requests.failures import code_of
from broker.requests.services import Call
from broker.security.errors import BadCredentialError
from broker.security.scram_credential import ScramCredential, credential_of_salted
from broker.security.user_settings import NAME_BYTES_MAX
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import (
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponse,
)
from logstore import LogStoreError

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NUMBERS = {name: number for number, name in MECHANISMS.items()}
Wanted = dict[str, dict[str, ScramCredential | None]]


class _RefusedError(Exception):
    """Report why the changes of one user are refused."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def answer_alter(call: Call) -> Answer:
    """Write and delete credentials. Either all changes of a user are made, or none."""
    asked, users = call.request.message(), call.services.users
    Row = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult  # noqa: N806 - a class
    changes = [*asked.deletions, *asked.upsertions]
    by_user: dict[str, list[Any]] = {}
    for one in changes:
        by_user.setdefault(one.name, []).append(one)
    rows = []
    for user, own in by_user.items():
        try:
            _check(user, own)
            wanted = {MECHANISMS[one.mechanism]: _credential(one) for one in own}
            deleted = [name for name, one in wanted.items() if one is None]
            if any(users.find(user, name) is None for name in deleted):
                raise _RefusedError(ErrorCode.RESOURCE_NOT_FOUND, "the user has no such credential")
            _check_peer(call, user)
            users.change({user: wanted})
        except _RefusedError as refusal:
            rows.append(Row(user, refusal.code, str(refusal)))
        except LogStoreError as error:
            rows.append(Row(user, code_of(error), str(error)))
        else:
            rows.append(Row(user, ErrorCode.NONE, None))
    return call.answer(AlterUserScramCredentialsResponse(results=rows))


def _check_peer(call: Call, user: str) -> None:
    """If brokers log in as a user, let only brokers and super users change this user.

    If there is an authorizer, this check does nothing, because the ACLs decide.
    """
    peers, services = call.services.peers, call.services
    is_peer = services.acls is None and not peers.is_open and peers.accepts(f"User:{user}")
    if is_peer and not peers.accepts(call.client.principal):
        text = "only super users may change a user of the brokers"
        raise _RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)


def _check(user: str, changes: list[Any]) -> None:
    if not user or len(user.encode()) > NAME_BYTES_MAX:
        raise _RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user name is empty or too long")
    for number, count in Counter(one.mechanism for one in changes).items():
        if number not in MECHANISMS:
            text = "the mechanism is neither SCRAM-SHA-256 nor SCRAM-SHA-512"
            raise _RefusedError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
        if count > 1:
            text = f"{MECHANISMS[number]} is named twice for this user"
            raise _RefusedError(ErrorCode.DUPLICATE_RESOURCE, text)


def _credential(change: Any) -> ScramCredential | None:
    """Make the keys from a salted password, which is not stored; None means a deletion."""
    if not hasattr(change, "salted_password"):
        return None
    try:
        return credential_of_salted(
            MECHANISMS[change.mechanism], bytes(change.salt), bytes(change.salted_password),
            change.iterations,
        )  # fmt: skip
    except BadCredentialError as error:
        raise _RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None


def answer_describe(call: Call) -> Answer:
    """List the mechanisms and iterations of users, but never a key."""
    asked = call.request.message()
    Response = DescribeUserScramCredentialsResponse  # noqa: N806 - a class
    try:
        known = call.services.users.listed()
    except LogStoreError as error:
        return call.answer(Response(error_code=code_of(error), error_message=str(error)))
    wanted = Counter(one.name for one in asked.users or ()) or Counter(dict.fromkeys(known, 1))
    rows = []
    for user, count in wanted.items():
        infos = [
            Response.CredentialInfo(NUMBERS[mechanism], one.iterations)
            for mechanism, one in known.get(user, {}).items()
        ]
        code, text = ErrorCode.NONE, None
        if count > 1:
            code, text, infos = ErrorCode.DUPLICATE_RESOURCE, "the user is named twice", []
        elif not infos:
            code, text = ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credential"
        rows.append(Response.DescribeUserScramCredentialsResult(user, code, text, infos))
    return call.answer(Response(error_code=ErrorCode.NONE, results=rows))
