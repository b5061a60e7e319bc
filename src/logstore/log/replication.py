"""Hold what a log knows of its leaders: the epoch that it appends with, and where each one began.

Invariant: the leader epoch only grows. Where it begins is noted with its first batch.
"""

from __future__ import annotations

from logstore.log.epochs import LeaderEpochs


class Replication:
    """The part of a log's state that leaders and followers share.

    Attributes:
        leader_epoch: the epoch that appended batches carry; it only grows. Written under `lock`.
        epochs: where each epoch began. Changed under `lock`; replaced under both locks.
        epochs_changed: how often `epochs` changed since it was last made durable. Written under
            `lock`; a flush subtracts nothing, it sets 0 only if it saw the last change.
        confirmed_start: the log start that the file of the epochs names besides; None: only
            `partition.metadata` has it. Written under `flush_lock`.
    """

    __slots__ = ("confirmed_start", "epochs", "epochs_changed", "leader_epoch")

    def __init__(self, directory: str, log_start_offset: int) -> None:
        self.leader_epoch = 0
        self.epochs = LeaderEpochs(directory)
        self.epochs_changed = 0
        self.confirmed_start: int | None = log_start_offset

    def note(self, epoch: int, base_offset: int) -> None:
        """Record that the batches from an offset on carry an epoch; `lock` is held."""
        if self.epochs.note(epoch, base_offset):
            self.epochs_changed += 1
