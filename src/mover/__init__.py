"""Move replicas between the log dirs of a store, while records are appended (KIP-113)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mover.errors import (
        IllegalTransitionError,
        MoveCancelledError,
        MoveError,
        TargetFullError,
        TargetUnfitError,
    )
    from mover.move import Move, MoveProgress
    from mover.mover import ReplicaMover
    from mover.planning.plan import MovePlan, plan_moves
    from mover.response import ChangeReplicaDirResponse
    from mover.state import MoveState

# The module of each public name. A module is imported when one of its names is first used.
_PLACES = {
    "ChangeReplicaDirResponse": "mover.response",
    "IllegalTransitionError": "mover.errors",
    "Move": "mover.move",
    "MoveCancelledError": "mover.errors",
    "MoveError": "mover.errors",
    "MovePlan": "mover.planning.plan",
    "MoveProgress": "mover.move",
    "MoveState": "mover.state",
    "ReplicaMover": "mover.mover",
    "TargetFullError": "mover.errors",
    "TargetUnfitError": "mover.errors",
    "plan_moves": "mover.planning.plan",
}

__all__ = [
    "ChangeReplicaDirResponse",
    "IllegalTransitionError",
    "Move",
    "MoveCancelledError",
    "MoveError",
    "MovePlan",
    "MoveProgress",
    "MoveState",
    "ReplicaMover",
    "TargetFullError",
    "TargetUnfitError",
    "plan_moves",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(place), name)


def __dir__() -> list[str]:
    return sorted(__all__)
