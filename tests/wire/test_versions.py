"""The announced versions are those that have schemas, and Produce goes down to 0."""

from __future__ import annotations

import pytest

from broker.wire.schemas import api_names, schema_of
from broker.wire.versions import ACCEPTED_FROM, MILESTONES, ApiRange, ApiVersions

UNSTABLE = {8: 10, 9: 10, 22: 6}  # versions that Kafka 4.1 has a schema of and does not announce


@pytest.mark.parametrize("milestone", MILESTONES)
def test_every_accepted_version_has_a_schema(milestone: str) -> None:
    """Of the request and of the response; the last one is announced, but for unstable ones."""
    apis = ApiVersions([milestone])
    for key, first, last in apis.announced:
        for kind in ("Request", "Response"):
            versions = schema_of(api_names()[key] + kind).versions
            accepted = [version for version in range(-1, last + 2) if apis.accepts(key, version)]
            assert accepted[0] == max(first, ACCEPTED_FROM.get(key, 0))
            assert all(version in versions for version in accepted)
            assert last == accepted[-1] == versions.end - 1 - (key in UNSTABLE)


def test_milestones_share_no_api_and_leave_none_out() -> None:
    """Every request that has a schema belongs to one milestone."""
    keys = [row.key for rows in MILESTONES.values() for row in rows]
    assert sorted(keys) == sorted(api_names())


def test_produce_is_announced_from_0_and_accepted_from_3() -> None:
    """Clients of librdkafka compress only if they see version 0, but none sends it."""
    apis = ApiVersions(["base"])
    assert ApiRange(0, 0, 13) in apis.announced
    assert [apis.accepts(0, version) for version in (2, 3, 13, 14)] == [False, True, True, False]
    assert not apis.accepts(11, 5)
