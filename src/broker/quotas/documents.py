"""Write the quotas of an entity as a document. Read and check the document of an entity.

    name      user=alice or client-id=app or user=,client-id=app
    document  {"version":1,"quotas":{"producer_byte_rate":1048576.0}}

The name of a user or client is quoted as in a URL. `user=` means the default of all users, and
`client-id=` the default of all client ids.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from urllib.parse import quote, unquote

from broker.quotas.entities import DEFAULT, Entity, Name
from broker.quotas.quotas import FETCH, KEYS, PRODUCE

VERSION = 1
BYTE_RATES = (PRODUCE, FETCH)
BYTES_MAX, ROUNDING = 2**63 - 1, 1e-6
USER, CLIENT = "user", "client-id"


class BadQuotaError(ValueError):
    """Report a quota that cannot be used. The text gives the reason."""


def checked_rate(key: str, rate: float) -> float:
    """Check a rate. Raises BadQuotaError."""
    if key not in KEYS:
        raise BadQuotaError(f"{key!r} is not a quota that this broker has: {', '.join(KEYS)}")
    if not (math.isfinite(rate) and rate > 0):
        raise BadQuotaError(f"{key} is {rate}; a quota is a number above 0")
    return rate


def check_wanted(key: str, rate: float) -> None:
    """Check a rate that a client wants to set, with the rules of Kafka. Raises BadQuotaError.

    A rate of bytes must be a whole number, except for a small rounding error. A stored rate may
    have a fraction, because earlier versions allowed it.
    """
    checked_rate(key, rate)
    if key not in BYTE_RATES:
        return
    if rate > BYTES_MAX:
        raise BadQuotaError(f"{key} is {rate}; at most {BYTES_MAX} bytes are allowed")
    if abs(rate - math.floor(rate + ROUNDING)) > ROUNDING:
        raise BadQuotaError(f"{key} is {rate}; a number of bytes cannot have a fraction")


def name_of(entity: Entity) -> str:
    """Return the name of the document for an entity."""
    parts = ((USER, entity.user), (CLIENT, entity.client_id))
    return ",".join(f"{kind}={_quoted(name)}" for kind, name in parts if name is not None)


def entity_of(name: str) -> Entity:
    """Read the name of a document. Raises BadQuotaError."""
    found: dict[str, Name] = {}
    for part in name.split(","):
        kind, mark, text = part.partition("=")
        if not mark or kind not in (USER, CLIENT) or kind in found:
            raise BadQuotaError(f"{name!r} names neither a user nor a client id")
        found[kind] = unquote(text) if text else DEFAULT
    return Entity(found.get(USER), found.get(CLIENT))


def encode(rates: Mapping[str, float]) -> bytes:
    """Write the quotas of one entity."""
    document = {"version": VERSION, "quotas": dict(rates)}
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def parse(data: bytes) -> dict[str, float]:
    """Read the quotas of one entity. Raises BadQuotaError."""
    try:
        document = json.loads(data)
        version, rates = document["version"], document["quotas"]
        if version != VERSION:
            raise BadQuotaError(f"the document has an unknown version, {version!r}")
        return {key: checked_rate(key, float(rate)) for key, rate in rates.items()}
    except BadQuotaError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadQuotaError(f"the document is not the JSON of quotas: {error!r}") from error


def _quoted(name: Name) -> str:
    return quote(name, safe="") if isinstance(name, str) else ""
