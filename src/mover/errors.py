"""Define the errors of a move; errors of log dirs and logs are in `logstore.errors`.

MoveError(topic, partition)
├── IllegalTransitionError(state, wanted)
├── TargetFullError(path, needed_bytes, usable_bytes, reserved_bytes)
├── TargetUnfitError(path, reason)         cordoned
└── MoveCancelledError(reason)
"""

from __future__ import annotations

from typing import Any, ClassVar

from logstore.errors import LogStoreError


class MoveError(LogStoreError):
    """Serve as the base of all errors of moves."""

    topic: str
    partition: int
    reason: str
    _template = "{reason}"
    _defaults: ClassVar[dict[str, Any]] = {"topic": "", "partition": -1, "reason": ""}


class IllegalTransitionError(MoveError):
    """Report a request that the state of a move does not allow; nothing was changed."""

    state: str
    wanted: str
    _template = "a move that is {state} cannot become {wanted}"
    _defaults: ClassVar[dict[str, Any]] = {**MoveError._defaults, "state": "", "wanted": ""}


class TargetFullError(MoveError):
    """Report that the target has no room for a move; no byte of the move was written."""

    path: str
    needed_bytes: int
    usable_bytes: int
    reserved_bytes: int
    _template = (
        "{topic}-{partition} needs {needed_bytes} bytes in {path}, where {usable_bytes} bytes "
        "are free, but {reserved_bytes} of these are reserved for other moves"
    )
    _defaults: ClassVar[dict[str, Any]] = {
        **MoveError._defaults,
        "path": "",
        "needed_bytes": 0,
        "usable_bytes": 0,
        "reserved_bytes": 0,
    }


class TargetUnfitError(MoveError):
    """Report that a log dir accepts no new replicas now; no byte was written."""

    path: str
    _template = "{topic}-{partition} cannot be moved to {path}: {reason}"
    _defaults: ClassVar[dict[str, Any]] = {**MoveError._defaults, "path": ""}


class MoveCancelledError(MoveError):
    """Report that a move was cancelled, with the reason."""

    _template = "the move of {topic}-{partition} was cancelled: {reason}"
