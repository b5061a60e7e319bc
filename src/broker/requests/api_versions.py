"""Answer ApiVersions (18), which every client sends first: list the APIs and the features."""

from __future__ import annotations

import re

from broker.catalog.admin.features import SUPPORTED
from broker.machines.exchange import Answer
from broker.requests.services import Call
from broker.wire.error_codes import ErrorCode
from broker.wire.frames import encode_response
from broker.wire.messages import ApiVersionsResponse
from broker.wire.versions import API_VERSIONS

SOFTWARE = 3  # the first version in which clients send the names of their software
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def answer(call: Call) -> Answer:
    """List the announced APIs."""
    request, announced = call.request, call.services.apis.announced
    Api = ApiVersionsResponse.ApiVersion  # noqa: N806 - a class
    if request.is_unknown_version:  # the client tries again with a version in this range
        rows = [Api(*row) for row in announced if row.key == API_VERSIONS]
        message = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, rows)
        return [encode_response(API_VERSIONS, 0, request.correlation_id, message)]
    if request.version >= SOFTWARE:
        asked = request.message()
        names = (asked.client_software_name, asked.client_software_version)
        if not all(map(SOFTWARE_NAME.fullmatch, names)):
            return call.answer(ApiVersionsResponse(ErrorCode.INVALID_REQUEST))
        call.client.software = " ".join(names)
    finalized = call.services.features.finalized
    Supported = ApiVersionsResponse.SupportedFeatureKey  # noqa: N806 - a class
    Level = ApiVersionsResponse.FinalizedFeatureKey  # noqa: N806 - a class
    return call.answer(
        ApiVersionsResponse(
            ErrorCode.NONE,
            [Api(*row) for row in announced],
            supported_features=[Supported(name, *levels) for name, levels in SUPPORTED.items()],
            finalized_features_epoch=finalized.epoch,
            finalized_features=[Level(name, one, one) for name, one in finalized.levels.items()],
        )
    )
