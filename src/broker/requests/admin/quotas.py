"""Answer DescribeClientQuotas (48) and AlterClientQuotas (49) (KIP-546)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from broker.catalog.admin.client_quotas import QuotaChange
from broker.coordination.errors import CoordinationError, LimitError
from broker.machines.exchange import Answer
from broker.quotas.documents import CLIENT, USER, BadQuotaError
from broker.quotas.entities import DEFAULT, NAME_CHARACTERS_MAX, Entity, Name
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import AlterClientQuotasResponse, DescribeClientQuotasResponse

EXACT, IS_DEFAULT, ANY = 0, 1, 2  # the ways in which a component of a filter matches
KINDS = (USER, CLIENT)
Fault = tuple[ErrorCode, str]


def answer_describe(call: Call) -> Answer:
    """List the quotas of the entities that a filter matches."""
    asked = call.request.message()
    fault = _fault_of_filter(asked.components)
    if fault is not None:
        code, reason = fault
        return call.answer(DescribeClientQuotasResponse(0, code, reason, None))
    Row = DescribeClientQuotasResponse  # noqa: N806 - a class
    entries = [
        Row.EntryData(
            [Row.EntityData(*row) for row in _rows_of(entity)],
            [Row.ValueData(key, rate) for key, rate in sorted(rates.items())],
        )
        for entity, rates in call.services.client_quotas.settings.items()
        if _is_matched(entity, asked)
    ]
    return call.answer(DescribeClientQuotasResponse(0, ErrorCode.NONE, None, entries))


def answer_alter(call: Call) -> Answer:
    """Change the quotas of each entity separately."""
    asked = call.request.message()
    named = Counter(_key_of(entry.entity) for entry in asked.entries)
    Row = AlterClientQuotasResponse  # noqa: N806 - a class
    rows = []
    for entry in asked.entries:
        fault = (ErrorCode.INVALID_REQUEST, "the request names the entity twice")
        if named[_key_of(entry.entity)] == 1:
            fault = _alter(call, entry, is_dry=asked.validate_only)
        entity = [Row.EntityData(one.entity_type, one.entity_name) for one in entry.entity]
        rows.append(Row.EntryData(fault[0], fault[1] or None, entity))
    return call.answer(AlterClientQuotasResponse(0, rows))


def _alter(call: Call, entry: Any, *, is_dry: bool) -> Fault:
    try:
        changes = [QuotaChange(one.key, None if one.remove else one.value) for one in entry.ops]
        if len({change.key for change in changes}) < len(changes):
            raise BadQuotaError("the request changes a quota twice")
        call.services.client_quotas.change(_entity_of(entry.entity), changes, is_dry=is_dry)
    except BadQuotaError as error:
        return ErrorCode.INVALID_REQUEST, str(error)
    except LimitError as error:
        return ErrorCode.POLICY_VIOLATION, str(error)
    except CoordinationError as error:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the quotas cannot be changed now: {error}"
    return ErrorCode.NONE, ""


def _entity_of(rows: Iterable[Any]) -> Entity:
    """Read an entity. Raises BadQuotaError."""
    found: dict[str, Name] = {}
    for row in rows:
        kind, name = row.entity_type, row.entity_name
        if kind not in KINDS:
            raise BadQuotaError(f"quotas for {kind!r} do not exist here, only for {KINDS}")
        if kind in found:
            raise BadQuotaError(f"the entity has two names of the type {kind}")
        if name is not None and not 0 < len(name) <= NAME_CHARACTERS_MAX:
            limit = f"1 to {NAME_CHARACTERS_MAX} characters"
            raise BadQuotaError(f"the name of a {kind} has {len(name)} characters, not {limit}")
        if name is not None and "\0" in name:
            raise BadQuotaError(f"the name of a {kind} has a character 0")
        found[kind] = DEFAULT if name is None else name
    if not found:
        raise BadQuotaError("the entity names neither a user nor a client id")
    return Entity(found.get(USER), found.get(CLIENT))


def _key_of(rows: Iterable[Any]) -> frozenset[tuple[str, str | None]]:
    return frozenset((row.entity_type, row.entity_name) for row in rows)


def _rows_of(entity: Entity) -> list[tuple[str, str | None]]:
    """Write an entity as rows of an answer. In a row, the name None means the default."""
    return [
        (kind, name if isinstance(name, str) else None)
        for kind, name in zip(KINDS, entity, strict=True)
        if name is not None
    ]


def _fault_of_filter(components: Iterable[Any]) -> Fault | None:
    seen = set()
    for one in components:
        if one.entity_type not in (*KINDS, "ip"):
            return ErrorCode.UNSUPPORTED_VERSION, f"there are no entities of {one.entity_type!r}"
        if one.entity_type in seen:
            return ErrorCode.INVALID_REQUEST, f"the filter names {one.entity_type} twice"
        if one.match_type not in (EXACT, IS_DEFAULT, ANY):
            return ErrorCode.INVALID_REQUEST, f"there is no match of type {one.match_type}"
        if (one.match_type == EXACT) is (one.match is None):
            return ErrorCode.INVALID_REQUEST, "only an exact match has a name"
        seen.add(one.entity_type)
    return None


def _is_matched(entity: Entity, asked: Any) -> bool:
    """Report whether an entity matches each component; a strict filter allows no other part."""
    names = dict(zip(KINDS, entity, strict=True))
    for one in asked.components:
        name = names.pop(one.entity_type, None)
        if name is None:
            return False
        if one.match_type == EXACT and name != one.match:
            return False
        if one.match_type == IS_DEFAULT and isinstance(name, str):
            return False
    return not (asked.strict and any(name is not None for name in names.values()))
