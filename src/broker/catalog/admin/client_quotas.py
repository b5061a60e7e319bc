"""Keep the quotas of users and clients as shared documents, and give them to the broker.

a client changes quotas -> shared documents -> each broker -> `Quotas.settings`
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from broker.coordination.shared_documents import Changes, Documents, SharedDocuments
from broker.quotas.documents import BadQuotaError, check_wanted, encode, entity_of, name_of, parse
from broker.quotas.entities import Entity
from broker.quotas.quotas import Quotas, Settings

LOG = logging.getLogger("broker")
KIND = "quotas"


class QuotaChange(NamedTuple):
    """Set or remove one quota of an entity. Removing a missing quota is no error."""

    key: str
    rate: float | None


class _Parsed(NamedTuple):
    """A document, and the quotas in it; `entity` is None if the document cannot be used."""

    data: bytes
    entity: Entity | None
    rates: Mapping[str, float]


class ClientQuotas:
    """The quotas of a single broker, or of a cluster.

    Threads: any thread may call any method.
    """

    def __init__(self, documents: SharedDocuments, quotas: Quotas) -> None:
        self._documents, self._quotas = documents, quotas
        self._parsed: dict[str, _Parsed] = {}
        self._end: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Read the quotas, and follow their changes."""
        self._end = self._documents.follow(KIND, self._heard)

    def close(self) -> None:
        """Stop following the changes."""
        self._end()

    @property
    def settings(self) -> Settings:
        """The quotas by entity, as this broker knows them."""
        return self._quotas.settings

    def change(self, entity: Entity, changes: Iterable[QuotaChange], *, is_dry: bool) -> None:
        """Change the quotas of one entity.

        Raises:
            BadQuotaError: a quota is unknown, or a rate is not allowed.
            CoordinationError: the quotas cannot be changed now.
        """
        wanted = list(changes)
        for change in wanted:
            check_wanted(change.key, 1.0 if change.rate is None else change.rate)
        if not is_dry:
            self._documents.change(KIND, _changing(name_of(entity), wanted))

    def _heard(self, documents: Documents) -> None:
        """Give the quotas to the broker; parse only the documents that have changed."""
        before, self._parsed = self._parsed, {}
        settings: dict[Entity, Mapping[str, float]] = {}
        for name, data in documents.items():
            known = before.get(name)
            one = known if known is not None and known.data == data else _parsed(name, data)
            self._parsed[name] = one
            if one.entity is not None:
                settings[one.entity] = one.rates
        self._quotas.settings = settings


def _parsed(name: str, data: bytes) -> _Parsed:
    try:
        return _Parsed(data, entity_of(name), parse(data))
    except BadQuotaError as error:
        LOG.warning("the quotas of %s are not used: %s", name, error)
        return _Parsed(data, None, {})


def _changing(name: str, changes: Iterable[QuotaChange]) -> Callable[[Documents], Changes]:
    def decide(now: Documents) -> Changes:
        rates = parse(now[name]) if name in now else {}
        for change in changes:
            if change.rate is None:
                rates.pop(change.key, None)
            else:
                rates[change.key] = change.rate
        return {name: encode(rates) if rates else None}

    return decide
