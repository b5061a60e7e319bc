"""List the steps that may come next, and take one: requests, decisions, clients, faults, cures.

A step is a name and its arguments, as plain data. So a history can be replayed and made shorter.
"""

from __future__ import annotations

from cluster_sim.client_steps import ClientSteps
from cluster_sim.control_steps import ControlSteps
from cluster_sim.fault_steps import FaultSteps
from cluster_sim.steps_base import Step

__all__ = ["FAULTS", "Step", "Steps"]

# Steps that happen a limited number of times in a history.
FAULTS = (
    "lose", "double", "controller", "shrink", "crash", "power", "disk", "empty", "giveup", "wipe",
    "cut", "part", "minimum", "flushing", "allow", "reassign", "unclean", "move", "suspect",
    "recreate", "unheard", "torn_start", "torn_return", "slow",
    "lonely", "tardy", "slow_read", "cancel", "leave", "prefer", "trim",
)  # fmt: skip


class Steps(ControlSteps, ClientSteps, FaultSteps):
    """All steps of one world."""

    def choices(self, name: str) -> list[Step]:
        """List the possible steps of one name."""
        if name in FAULTS and self.world.used[name] >= self.faults.get(name, 0):
            return []
        return [(name, *arguments) for arguments in getattr(self, "find_" + name)()]

    def take(self, step: Step) -> None:
        """Take a step, and judge what came of it."""
        name, *arguments = step
        if name in FAULTS:
            self.world.used[name] += 1
        self.world.now += 0.01
        getattr(self, "do_" + name)(*arguments)
        self.world.check()
