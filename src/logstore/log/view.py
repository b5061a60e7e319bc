"""Define `LogView`, the public class for reading a log that another process owns."""

from __future__ import annotations

from collections.abc import Callable
from os.path import join
from typing import NoReturn

from logstore.arguments import callback
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    LogClosedError,
    ReadOnlyStoreError,
    UnknownPartitionError,
)
from logstore.format.batch import Record
from logstore.log import small_files
from logstore.log.environment import LogEnvironment
from logstore.log.follow.followed_replica import FollowedReplica
from logstore.log.follow.partition_files import PartitionFiles
from logstore.log.reader import ReadableLog
from logstore.log.recovery.report import Problem
from logstore.log.replica import Replica
from logstore.log.segments.scan import Progress
from logstore.log.write.outcome import mark
from logstore.names import parse_dir_name


def open_view(
    log_dir: LogDir,
    name: str,
    environment: LogEnvironment,
    checkpointed: small_files.Checkpointed | None = None,
    missing: str = "",
) -> LogView:
    """Open the log in the directory `name` for reading only. Raises LogStoreError.

    Args:
        missing: why the copy may lack records; "" if the copy has all records. A call that would
            write raises an error with this reason.
    """
    parsed = parse_dir_name(name)
    assert parsed is not None
    try:
        metadata = small_files.metadata_or_stand_in(join(log_dir.path, name), parsed)
        files = PartitionFiles(checkpointed)
        state = FollowedReplica(log_dir, join(log_dir.path, name), metadata, environment, files)
        state.missing = missing
        state.relist()
    except FileNotFoundError as error:
        raise UnknownPartitionError(topic=parsed.topic, partition=parsed.partition) from error
    except OSError as error:
        raise log_dir.failed(
            error, join(log_dir.path, name), topic=parsed.topic, partition=parsed.partition
        ) from error
    return LogView(state)


class LogView(ReadableLog):
    """Follow a log that another process writes, with the reading methods of `Log`; write nothing.

    A `.move` or `.delete` directory without a live copy is opened as a `LogView`, too.
    """

    _state: FollowedReplica

    def __init__(self, state: FollowedReplica) -> None:
        """Use `open_view`."""
        super().__init__(state)

    @property
    def is_repairable(self) -> bool:
        """Whether `logstore repair` can repair the log."""
        return self._state.files.is_repairable

    def record_at(self, offset: int) -> Record:
        """Return one record. Raises OffsetOutOfRangeError if the offset has no record."""
        self._state.refresh()
        return super().record_at(offset)

    def verify(self, progress: Progress | None = None) -> list[Problem]:
        """Check every batch, and that the segments are contiguous; return the damage."""
        return self._state.files.verify(self._state, callback(progress, "progress"))

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Refuse to write: another process owns this log, or the log may lack records."""
        raise self._state.refusal()

    def _refuse_batches(self, *_: object, **__: object) -> NoReturn:
        """Refuse encoded batches; the exception says that no batch was written."""
        error = self._state.refusal()
        mark(error, False)
        raise error

    append = extend = append_arrow = appender = _refuse
    append_as_follower = append_encoded = append_marker = _refuse_batches
    flush = truncate_to = start_at = delete_records_before = repair = apply_retention = (
        _set_config
    ) = _refuse
    advance_high_watermark = end_offset_for_epoch = _refuse
    producer_states = transaction_token = idempotent_producer = _refuse
    compact = _refuse

    def subscribe(self, *_: object, **__: object) -> NoReturn:
        """Raise ReadOnlyStoreError: only the owner knows when its log changes."""
        raise ReadOnlyStoreError(path=self._state.directory)

    @property
    def recovery_point(self) -> int:
        """Raise ReadOnlyStoreError: only the owner knows up to which offset its log is flushed."""
        reason = (
            "only the process that owns the store knows up to which offset the log is "
            "flushed: ask that process"
        )
        raise ReadOnlyStoreError(reason, path=self._state.directory)

    @property
    def leader_epochs(self) -> NoReturn:
        """Raise ReadOnlyStoreError: only the owner knows the leader epochs of its last records."""
        raise ReadOnlyStoreError(path=self._state.directory)

    def find_anew_by(self, find: Callable[[], ReadableLog | None]) -> None:
        """Set the function that finds the partition's log again if its directory is gone."""

        def find_state() -> Replica | None:
            found = find()
            return None if found is None else found._state

        self._state.find_anew = find_state

    def close(self, flush: bool = True) -> None:
        """Release every file; closing twice is allowed."""
        state = self._state
        if state.unavailable is None:
            reason = f"the log {state.name} was closed: ask the store for the log again"
            state.detach(LogClosedError(reason=reason))
