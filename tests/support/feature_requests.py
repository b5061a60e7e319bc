"""Ask a broker for the levels of its features, and update them."""

from __future__ import annotations

from typing import Any

from broker.catalog.admin.features import GROUP_VERSION, TRANSACTION_VERSION
from broker.wire import messages
from support.kafka_client import KafkaClient

NAME, GROUPS = TRANSACTION_VERSION, GROUP_VERSION
UP, SAFE, UNSAFE = 1, 2, 3  # the types of an update


def finalized(client: KafkaClient) -> tuple[int, dict[str, int]]:
    """Ask for the epoch and the levels; the supported levels are always the same."""
    answer = client.call("ApiVersions", client_software_name="a", client_software_version="1")
    assert [tuple(one) for one in answer.supported_features] == [(NAME, 0, 2), (GROUPS, 0, 1)]
    rows = answer.finalized_features
    assert all(one.min_version_level == one.max_version_level for one in rows)
    return answer.finalized_features_epoch, {one.name: one.max_version_level for one in rows}


def update(
    client: KafkaClient, *levels: tuple[str, int, int], version: int = 2, **fields: Any
) -> int:
    """Update features; return the code of the answer, or of its rows."""
    Row = messages.UpdateFeaturesRequest.FeatureUpdateKey  # noqa: N806 - a class
    rows = [
        Row(name, level, upgrade_type=kind, allow_downgrade=kind != UP)
        for name, level, kind in levels
    ]
    answer = client.call("UpdateFeatures", version, feature_updates=rows, **fields)
    codes = {one.error_code for one in answer.results} or {answer.error_code}
    assert len(codes) == 1 and (version == 2) == (not answer.results)
    return int(codes.pop())
