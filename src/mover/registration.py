"""Register the commands of moves in a store when the first client asks for one.

The admin socket of a store imports this module by its name, because a store does not know movers.
"""

from __future__ import annotations

from logstore.store.store import LogStore
from mover import administration
from mover.mover import ReplicaMover


def commands_of(store: LogStore) -> administration.MoveCommands:
    """Return the commands of a store, which make a `ReplicaMover` if a move is requested."""
    return administration.commands_of(store, ReplicaMover)
