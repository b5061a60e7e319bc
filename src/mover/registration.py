"""Register the commands of moves in a store when a client first asks for one of the commands.

The admin socket of a store imports this module by its name, because the package `logstore` is not
allowed to depend on the package `mover`.
"""

from __future__ import annotations

from logstore.store.store import LogStore
from mover import administration
from mover.mover import ReplicaMover


def commands_of(store: LogStore) -> administration.MoveCommands:
    """Return the commands of a store; a request for a move makes a `ReplicaMover` if needed."""
    return administration.commands_of(store, ReplicaMover)
