"""Changes to the engine that a program of interrupted operations must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from logstore.disk import files, uninterrupted
from logstore.log.removal import retention, truncation
from logstore.log.write import batch_group, flush, roll
from logstore.store.dirs import closing


class Mutant(NamedTuple):
    """A change, and what it is called."""

    name: str
    change: Callable[[], object]


def _any_error_is_a_failed_flush() -> None:
    def hidden_failure(error: BaseException, outer: BaseException | None) -> OSError | None:
        context = error.__context__
        while context is not None and context is not outer:
            if isinstance(context, OSError):
                return files.SyncError.of(context)
            context = context.__context__
        return None

    _work_in_the_main_thread()
    for module in (flush, truncation, retention):
        module.hidden_failure = hidden_failure  # type: ignore[attr-defined]


def _work_in_the_main_thread() -> None:
    def start(work: object) -> None:
        raise RuntimeError("can't start new thread")

    uninterrupted.Work.start = start  # type: ignore[method-assign,assignment]


def _a_truncation_stays_half_done() -> None:
    _work_in_the_main_thread()
    truncation._take_what_stands = lambda *arguments: None


def _a_close_is_never_made_up_for() -> None:
    _work_in_the_main_thread()
    real = closing.Closing._close

    def close(self: closing.Closing, timeout: float | None) -> None:
        try:
            real(self, timeout)
        finally:
            self._left = self._left or ()

    closing.Closing._close = close  # type: ignore[method-assign]


def _a_deletion_is_half_done() -> None:
    _work_in_the_main_thread()
    retention._is_written = lambda *arguments: False


def _an_interrupted_flush_counts() -> None:
    real = flush._sync

    def sync(state: Any, *arguments: Any) -> Any:
        try:
            return real(state, *arguments)
        except KeyboardInterrupt:
            state.unflushed, state.writer = [], None
            raise

    flush._sync = sync  # type: ignore[assignment]


def _a_torn_append_stays() -> None:
    roll.undo_write = lambda state, position: None
    roll.undo = lambda state: None


def _a_file_of_a_group_stays() -> None:
    batch_group._undo = lambda *arguments: None
    roll.undo = lambda state: setattr(state, "half_made", ())


MUTANTS = (
    Mutant("any error under an interrupt is a failed flush", _any_error_is_a_failed_flush),
    Mutant("an interrupted truncation is left as it is", _a_truncation_stays_half_done),
    Mutant("an interrupted close counts as an orderly one", _a_close_is_never_made_up_for),
    Mutant("an interrupted deletion of records is left as it is", _a_deletion_is_half_done),
    Mutant("an interrupted flush forgets what it was to sync", _an_interrupted_flush_counts),
    Mutant("an interrupted append leaves a part of its batch", _a_torn_append_stays),
    Mutant("an interrupted group leaves a file behind", _a_file_of_a_group_stays),
)
