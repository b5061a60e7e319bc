"""Move replicas between the log dirs of a store while they are being written."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mover.plan import MovePlan, plan_moves

# Where each public name stands; a module is imported when one of its names is asked for.
_PLACES = {
    "MovePlan": "mover.plan",
    "plan_moves": "mover.plan",
}

__all__ = ["MovePlan", "plan_moves"]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(place), name)


def __dir__() -> list[str]:
    return sorted(__all__)
