"""Define the states of a move and the transitions between them in one table, checked here.

| from | to |
|---|---|
| planned | copying, paused, cancelled, failed, done |
| copying | catching_up, paused, cancelled, failed |
| catching_up | swapping, paused, cancelled, failed |
| swapping | done, catching_up, paused, cancelled, failed |
| paused | planned, cancelled, failed |
| failed | planned |
| cancelled | |
| done | |

    planned      it waits for a thread, and for room at the target
    copying      the segments that existed when it began are being copied
    catching_up  what was appended since is being copied
    swapping     the log's lock is asked for; nothing is throttled any more
    done         the log is served from the target (or was there already)
    paused       by its user, because the mover was closed, or while a disk hangs (then it resumes
                 by itself): the `.move` stays and is used later
    cancelled    by its user, or with the deletion of the partition: nothing of it is left
    failed       `error` has the reason; nothing of it is left if the disk allows; `retry` starts
                 it again. If its source failed, the copy stays, and a new move resumes it when the
                 source is back
"""

from __future__ import annotations

import enum

from mover.errors import IllegalTransitionError


class MoveState(enum.Enum):
    """The states of a move."""

    PLANNED = "planned"
    COPYING = "copying"
    CATCHING_UP = "catching_up"
    SWAPPING = "swapping"
    DONE = "done"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_end(self) -> bool:
        """Report whether nothing more happens by itself, and nothing is held."""
        return self in ENDS

    @property
    def is_running(self) -> bool:
        """Report whether a thread works on it."""
        return self in RUNNING


_S = MoveState
_STOPS = (_S.PAUSED, _S.CANCELLED, _S.FAILED)

TRANSITIONS: dict[MoveState, tuple[MoveState, ...]] = {
    _S.PLANNED: (_S.COPYING, *_STOPS, _S.DONE),
    _S.COPYING: (_S.CATCHING_UP, *_STOPS),
    _S.CATCHING_UP: (_S.SWAPPING, *_STOPS),
    _S.SWAPPING: (_S.DONE, _S.CATCHING_UP, *_STOPS),
    _S.PAUSED: (_S.PLANNED, _S.CANCELLED, _S.FAILED),
    _S.FAILED: (_S.PLANNED,),
    _S.CANCELLED: (),
    _S.DONE: (),
}
ENDS = frozenset({_S.DONE, _S.CANCELLED, _S.FAILED})
RUNNING = frozenset({_S.COPYING, _S.CATCHING_UP, _S.SWAPPING})


def check_transition(old: MoveState, new: MoveState) -> None:
    """Raise IllegalTransitionError if a move may not go from one state to another."""
    if new not in TRANSITIONS[old]:
        raise IllegalTransitionError(state=old.value, wanted=new.value)


def table() -> str:
    """Format the transitions as the table that the documents show."""
    rows = [
        f"| {old.value} | {', '.join(state.value for state in new)} |".replace("|  |", "| |")
        for old, new in TRANSITIONS.items()
    ]
    return "\n".join(["| from | to |", "|---|---|", *rows])
