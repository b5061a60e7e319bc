"""List the versions of each API that this broker announces and accepts, with the milestones.

An API is announced only when its milestone is done. If a broker announces an API that it does not
have, clients refuse to start, or hang. FindCoordinator belongs to the milestone "base", because
librdkafka's `close` hangs if a broker does not announce FindCoordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PRODUCE = 0
FETCH = 1
API_VERSIONS = 18


class ApiRange(NamedTuple):
    """The first and the last version of one API, as in an ApiVersions response."""

    key: int
    first: int
    last: int


# These are the versions that Kafka 4.1 announces, except its unstable versions.
# The unstable versions are OffsetCommit and OffsetFetch 10, and InitProducerId 6.
# DescribeQuorum (55) is left out, because there is no quorum.
# Kafka with ZooKeeper leaves out DescribeQuorum, too.
# The ranges of the keys 4 to 7 come from Kafka 3.9.
# Only brokers use these four APIs, among themselves.
MILESTONES: dict[str, tuple[ApiRange, ...]] = {
    name: tuple(ApiRange(*row) for row in rows)
    for name, rows in {
        "base": (
            (0, 0, 13), (1, 4, 18), (2, 1, 10), (3, 0, 13), (10, 0, 6), (18, 0, 4), (19, 2, 7),
            (20, 1, 6), (22, 0, 5), (23, 2, 4), (32, 1, 4), (60, 0, 2), (75, 0, 0),
        ),
        "groups": (
            (8, 2, 9), (9, 1, 9), (11, 0, 9), (12, 0, 4), (13, 0, 5), (14, 0, 5),
            (15, 0, 6), (16, 0, 5), (42, 0, 2), (47, 0, 0),
        ),
        "consumer groups": ((68, 0, 1), (69, 0, 1)),
        "transactions": (
            (24, 0, 5), (25, 0, 4), (26, 0, 5), (27, 1, 1), (28, 0, 5), (61, 0, 0), (65, 0, 0),
            (66, 0, 2),
        ),
        "admin": (
            (21, 0, 2), (33, 0, 2), (34, 1, 2), (35, 1, 4), (37, 0, 3), (43, 0, 2), (44, 0, 1),
            (45, 0, 1), (46, 0, 0), (74, 0, 1),
        ),
        "quotas": ((48, 0, 1), (49, 0, 1)),
        "features": ((57, 0, 2),),
        "quorum": ((55, 0, 2),),
        "logins": ((17, 0, 1), (36, 0, 2), (50, 0, 0), (51, 0, 0)),
        "acls": ((29, 1, 3), (30, 1, 3), (31, 1, 3)),
        "cluster": ((4, 5, 7), (5, 4, 4), (6, 8, 8), (7, 3, 3), (56, 2, 3)),
    }.items()
}  # fmt: skip
# librdkafka compresses records only if Produce is announced from version 0 on (KAFKA-18659).
# But version 3 is the first version with record batches.
# So lower versions are announced, but not accepted.
ACCEPTED_FROM = {PRODUCE: 3}


class ApiVersions:
    """The APIs of one listener.

    An ApiVersions response lists `announced`; `accepts` checks requests.
    """

    def __init__(self, milestones: Iterable[str], silent: Iterable[str] = ()) -> None:
        """Store the APIs of milestones.

        Args:
            silent: the requests of these milestones are accepted, but not announced to clients.
        """
        rows = [row for milestone in milestones for row in MILESTONES[milestone]]
        self.announced = tuple(sorted(rows))
        rows += [row for milestone in silent for row in MILESTONES[milestone]]
        self._accepted = {
            row.key: range(max(row.first, ACCEPTED_FROM.get(row.key, 0)), row.last + 1)
            for row in rows
        }

    def accepts(self, key: int, version: int) -> bool:
        """Report whether this broker accepts requests of an API in a version.

        If the broker does not accept a request, it closes the connection.
        """
        return version in self._accepted.get(key, ())
