"""Report the eligible leader replicas (ELR) to the page.

Only the controller knows the eligible leader replicas.
"""

from __future__ import annotations

from cluster.run.member import ClusterMember


def elr_of(member: ClusterMember) -> dict[tuple[str, int], tuple[int, ...]] | None:
    """List the ELR of each partition with an ELR; None if another broker is the controller.

    The thread of the controller may change the entries at the same time. Each state is one
    immutable value, so each ELR is consistent, but two ELRs may be from different moments.
    """
    controller = member.controller
    if controller is None or controller.epoch is None:
        return None
    states = [(key, entry.state) for key, entry in controller.room.entries.copy().items()]
    return {
        (key[0], key[1]): tuple(sorted(state.elr))
        for key, state in states
        if state is not None and state.elr
    }
