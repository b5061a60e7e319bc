"""Define the states of a move, and the allowed transitions between them in one table.

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

    planned      the move waits for a thread, or for room at the target
    copying      the segments that existed at the beginning are being copied
    catching_up  the records that were appended since then are being copied
    swapping     the copy takes the place of the source under the log's lock, without a throttle
    done the log is served from the target, or was there already paused the user paused the move, or
    the mover was closed, or a disk hangs. If a disk
                 hangs, the move resumes by itself. The `.move` directory stays and is used later
    cancelled    the user cancelled the move, or deleted the partition. The copy is removed
    failed       `error` has the reason. The copy is removed if the disk allows it. `retry` starts
                 the move again. If the source failed, the copy stays, and a new move continues
                 with the copy when the source is back
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
        """Report whether the move is over: no thread runs it, and no room is reserved for it."""
        return self in ENDS

    @property
    def is_running(self) -> bool:
        """Report whether a thread runs the move."""
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
    """Raise IllegalTransitionError if a move is not allowed to go from one state to another."""
    if new not in TRANSITIONS[old]:
        raise IllegalTransitionError(state=old.value, wanted=new.value)


def table() -> str:
    """Format the transitions as the table that the documents show."""
    rows = [
        f"| {old.value} | {', '.join(state.value for state in new)} |".replace("|  |", "| |")
        for old, new in TRANSITIONS.items()
    ]
    return "\n".join(["| from | to |", "|---|---|", *rows])
