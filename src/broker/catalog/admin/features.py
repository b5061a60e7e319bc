"""Keep the finalized levels of features as shared documents (KIP-584).

A level says which protocols clients may use, and which records the broker writes. There are two
features:

    transaction.version  0   the oldest records of `__transaction_state`
                         1   records with the protocol of the client
                         2   clients raise the epoch at each end of a transaction (KIP-890)
    group.version        0   groups of the classic protocol
                         1   groups of the new protocol, and groups of both protocols (KIP-848)

A client learns the levels when it connects. If a level falls, a client may use the newer protocol
until it connects again, so the broker serves both protocols at each level, as Kafka does.

a client updates a feature -> shared documents -> each broker -> `Features.finalized`

The version of all these documents is the epoch of the finalized features.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import NamedTuple

from broker.coordination.errors import CoordinationError
from broker.coordination.shared_documents import Changes, Documents, SharedDocuments

LOG = logging.getLogger("broker")
KIND = "features"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
# The first and the last level of each feature.
SUPPORTED = MappingProxyType({TRANSACTION_VERSION: (0, 2), GROUP_VERSION: (0, 1)})
NO_EPOCH = -1


class BadUpdateError(Exception):
    """Report that a feature cannot get a level."""


class Update(NamedTuple):
    """The new level of one feature.

    Attributes:
        is_downgrade: whether the request may lower the level. A request that may lower the level
            must not raise the level.
    """

    feature: str
    level: int
    is_downgrade: bool


class Finalized(NamedTuple):
    """The level of each feature that has a level, and the epoch of all levels; -1 means unknown."""

    epoch: int
    levels: MappingProxyType[str, int]


class Features:
    """The features of a cluster, or of a broker that runs without a cluster.

    Threads: any thread may call any method. `finalized` is replaced, and never changed.

    Attributes:
        finalized: the levels, as this broker knows them.

    Args:
        is_new: whether the store has no topics and no brokers of an earlier version; raises
            CoordinationError. Only in a new store, features without a level get a level: for
            `transaction.version`, the level `initial`, and the last level for the others.
        lacking: lists the brokers that do not support a level of a feature; raises
            CoordinationError.
    """

    def __init__(
        self,
        documents: SharedDocuments,
        initial: int,
        is_new: Callable[[], bool] = lambda: True,
        lacking: Callable[[str, int], Sequence[int]] = lambda feature, level: (),
    ) -> None:
        self._documents, self._initial = documents, initial
        self._is_new, self._lacking = is_new, lacking
        self.finalized = Finalized(NO_EPOCH, MappingProxyType({}))
        self._end: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Read the levels, and follow their changes; give a new store its first levels."""
        self._end = self._documents.follow(KIND, self._heard)
        if not self._documents.is_known(KIND):
            return
        if SUPPORTED.keys() <= self._documents.documents(KIND).keys():
            return
        try:
            if self._is_new():
                self._documents.change(KIND, self._first)
        except CoordinationError as error:
            LOG.warning("the first levels of features are not set: %s", error)

    def close(self) -> None:
        """Stop following the changes."""
        self._end()

    def _first(self, now: Documents) -> Changes:
        first = {name: last for name, (_, last) in SUPPORTED.items()}
        first[TRANSACTION_VERSION] = self._initial
        return {name: encode(level) for name, level in first.items() if name not in now}

    @property
    def transaction_version(self) -> int:
        """The level of `transaction.version`; 0 if the store has none.

        While the levels are not known, the level is 1. No level is announced to clients meanwhile,
        but the records keep the fields that a client of the newer protocol needs.
        """
        unknown = 1 if self.finalized.epoch == NO_EPOCH else 0
        return self.finalized.levels.get(TRANSACTION_VERSION, unknown)

    def update(self, updates: Sequence[Update], *, is_dry: bool) -> None:
        """Change the levels of features, all or none of them.

        Raises:
            BadUpdateError: a feature cannot get its level.
            CoordinationError: the levels cannot be changed now.
        """

        def decide(now: Documents) -> Changes:
            for one in updates:
                self._check(one, _level(one.feature, now.get(one.feature)))
            wanted = {one.feature: encode(one.level) for one in updates}
            return {} if is_dry else {k: v for k, v in wanted.items() if now.get(k) != v}

        self._documents.change(KIND, decide)

    def _check(self, update: Update, present: int) -> None:
        feature, level, is_downgrade = update
        first, last = SUPPORTED.get(feature, (0, -1))
        if not first <= level <= last:
            known = f"this broker knows the levels {first} to {last}"
            reason = known if feature in SUPPORTED else "this broker does not know this feature"
            raise BadUpdateError(f"{feature}: {reason}")
        if level < present and not is_downgrade:
            reason = f"its level is {present}, and the request allows no downgrade to {level}"
            raise BadUpdateError(f"{feature}: {reason}")
        if level > present and is_downgrade:
            reason = f"its level is {present}, and level {level} is not a downgrade"
            raise BadUpdateError(f"{feature}: {reason}")
        lacking = self._lacking(feature, level) if level > present else ()
        if lacking:
            brokers = ", ".join(map(str, lacking))
            reason = f"level {level} is not supported by these brokers: {brokers}"
            raise BadUpdateError(f"{feature}: {reason}")

    def _heard(self, documents: Documents) -> None:
        levels = {name: _level(name, documents.get(name)) for name in SUPPORTED}
        epoch = self._documents.version(KIND)
        held = MappingProxyType({name: level for name, level in levels.items() if level})
        self.finalized = Finalized(epoch, held)


def encode(level: int) -> bytes:
    """Write the level of a feature."""
    return json.dumps({"version": 1, "level": level}, separators=(",", ":")).encode()


def _level(feature: str, data: bytes | None) -> int:
    """Read the level of a feature; a level that this broker does not know counts as the last one.

    A later version of this broker may have written a higher level. In a cluster with brokers of
    both versions, clients must not use an older protocol at some brokers.
    """
    if data is None:
        return 0
    try:
        level = json.loads(data)["level"]
    except (ValueError, KeyError, TypeError, RecursionError):
        level = None
    if type(level) is not int or level < 0:
        LOG.warning("the level of a feature is not used: %r", data[:100])
        return 0
    return min(level, SUPPORTED.get(feature, (0, 0))[1])
