"""Decide from the steps of all log dirs what a take-over or a hand-back must do. No I/O.

| steps of the log dirs | take-over | hand-back |
|---|---|---|
| no log dir has a step | BUILD | refused |
| all BUILDING, or none yet; of one or several attempts | BUILD | UNDO |
| some MOVING_OUT or MOVING_IN, or TAKEN and BUILDING | CONTINUE | refused |
| all TAKEN or RETURNING | DONE | BUILD |
| some PUTTING_AWAY, PUTTING_BACK, CLEARING | refused | CONTINUE |

When the hand-back of a log dir is complete, this log dir has no step any more.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from logstore import LogStoreError
from logstore.store.kafka.hands import BUILDING, HAND_BACK, OWNED, RETURNING, TAKE_OVER, Change


class ChangeOfHandsError(LogStoreError):
    """Report that log dirs cannot change hands. Nothing was changed."""

    reason: str
    _template = "{reason}"


class Stage(enum.Enum):
    """What a take-over or a hand-back must do; see the table."""

    BUILD = enum.auto()
    CONTINUE = enum.auto()
    DONE = enum.auto()
    UNDO = enum.auto()


Changes = Mapping[str, Change | None]


def stage_of_take_over(changes: Changes) -> Stage:
    """Decide what a take-over must do.

    Raises:
        ChangeOfHandsError: the log dirs belong to different changes, or are being handed back.
    """
    present = _present(changes)
    if all(change.step == BUILDING for change in present):
        largest = max(present, key=lambda change: len(change.members), default=None)
        if largest is not None and len(largest.members) > len(changes):
            raise _incomplete(largest, changes)
        return Stage.BUILD
    _check_one_change(present)
    if any(change.step in HAND_BACK and change.step != RETURNING for change in present):
        reason = "a hand-back of these log dirs was interrupted; run `logstore hand-back` again"
        raise ChangeOfHandsError(reason=reason)
    _check_complete(changes, may_be_finished=False)
    is_done = all(change.step in OWNED for change in present)
    return Stage.DONE if is_done else Stage.CONTINUE


def stage_of_hand_back(changes: Changes) -> Stage:
    """Decide what a hand-back must do.

    Raises:
        ChangeOfHandsError: the log dirs were not taken over, or not completely.
    """
    present = _present(changes)
    if not present:
        reason = "these log dirs were not taken over from a Kafka broker, or are handed back"
        raise ChangeOfHandsError(reason=reason)
    if all(change.step == BUILDING for change in present):
        return Stage.UNDO
    _check_one_change(present)
    if any(change.step in TAKE_OVER and change.step not in OWNED for change in present):
        reason = "a take-over of these log dirs was interrupted; run `logstore take-over` again"
        raise ChangeOfHandsError(reason=reason)
    is_begun = any(change.step not in OWNED for change in present)
    _check_complete(changes, may_be_finished=is_begun)
    return Stage.CONTINUE if is_begun else Stage.BUILD


def _present(changes: Changes) -> list[Change]:
    return [change for change in changes.values() if change is not None]


def _check_one_change(present: list[Change]) -> None:
    """Check that all log dirs belong to one change.

    While all of them are BUILDING, their ids may differ: two attempts may have been interrupted,
    and no file of Kafka has been changed.
    """
    if len({change.change_id for change in present}) > 1:
        reason = "these log dirs were taken over at different times; name those of one broker"
        raise ChangeOfHandsError(reason=reason)


def _check_complete(changes: Changes, *, may_be_finished: bool) -> None:
    """Check that exactly the log dirs of the change are named."""
    known = _present(changes)[0]
    without = [path for path, change in changes.items() if change is None]
    if without and not may_be_finished:
        reason = f"{', '.join(without)}: this log dir did not belong to the Kafka broker"
        raise ChangeOfHandsError(reason=reason)
    if len(changes) != len(known.members):
        raise _incomplete(known, changes)


def _incomplete(known: Change, changes: Changes) -> ChangeOfHandsError:
    reason = (
        f"the Kafka broker has {len(known.members)} log dirs, but {len(changes)} are named: "
        "name all of them"
    )
    return ChangeOfHandsError(reason=reason)
