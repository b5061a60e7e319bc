"""Answer UpdateFeatures (57): change the finalized level of a feature (KIP-584)."""

from __future__ import annotations

from typing import Any

from broker.catalog.admin.features import BadUpdateError, Update
from broker.coordination.errors import CoordinationError
from broker.machines.exchange import Answer
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import UpdateFeaturesResponse

TYPED = 1  # the first version with the types of updates
ALL_OR_NONE = 2  # the first version whose answer has no row for each feature
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
TYPES = {UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE}

Fault = tuple[ErrorCode, str | None]


def answer(call: Call) -> Answer:
    """Change all levels of a request, or none of them."""
    asked, version = call.request.message(), call.request.version
    names = [one.feature for one in asked.feature_updates]
    code, reason = _fault(call, asked, version, names)
    if version >= ALL_OR_NONE:
        return call.answer(UpdateFeaturesResponse(error_code=code, error_message=reason))
    Row = UpdateFeaturesResponse.UpdatableFeatureResult  # noqa: N806 - a class
    rows = [Row(name, code, reason) for name in dict.fromkeys(names)]
    return call.answer(UpdateFeaturesResponse(results=rows))


def _fault(call: Call, asked: Any, version: int, names: list[str]) -> Fault:
    """Do the update; return the error, or NONE."""
    if not names or "" in names:
        return ErrorCode.INVALID_REQUEST, "the request has no feature, or one without a name"
    if len(set(names)) < len(names):
        return ErrorCode.INVALID_REQUEST, "the request names a feature twice"
    updates = []
    for one in asked.feature_updates:
        kind = one.upgrade_type
        if version < TYPED:
            kind = SAFE_DOWNGRADE if one.allow_downgrade else UPGRADE
        if kind not in TYPES:
            reason = f"{one.feature}: the type {kind} of an update is not known"
            return ErrorCode.INVALID_UPDATE_VERSION, reason
        updates.append(Update(one.feature, one.max_version_level, kind != UPGRADE))
    try:
        call.services.features.update(updates, is_dry=version >= TYPED and asked.validate_only)
    except BadUpdateError as error:
        return ErrorCode.INVALID_UPDATE_VERSION, str(error)
    except CoordinationError as error:
        return ErrorCode.FEATURE_UPDATE_FAILED, str(error)
    return ErrorCode.NONE, None
