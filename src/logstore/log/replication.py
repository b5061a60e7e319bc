"""Hold the replication state of a log: its leader epochs, and its high watermark.

Invariants: while a log is open, its leader epoch only grows, and is never less than the epoch of a
batch. An epoch begins at the base offset of its first batch. An epoch without a batch is forgotten
at the next start. The high watermark only grows, except that a truncation lowers it to the new log
end.
"""

from __future__ import annotations

from logstore.arguments import whole
from logstore.errors import FencedLeaderEpochError
from logstore.log.epochs import LeaderEpochs

EPOCH_MAX = 2**31 - 1


class Replication:
    """The part of a log's state that concerns leaders and followers.

    Attributes:
        leader_epoch: the epoch that appended batches carry. Written under `lock`.
        epochs: the first offset of each epoch. The object is changed under `lock`, and replaced
            under both locks.
        epochs_changed: how many changes of `epochs` are not durable yet. Written under `lock`. A
            flush sets this number to 0, unless the number changed during the flush.
        confirmed_start: the log start in `leader-epoch-checkpoint`; None if only
            `partition.metadata` has a log start. Written under `flush_lock`.
        replicated_to: the offset below which all in-sync replicas have the records; None if the log
            is not replicated. Written under `lock`. This offset may be before the log start,
            because a new log start does not change it. `LogState.high_watermark` is never before
            the log start. A reader without the lock may see an earlier value, which does no harm.
    """

    __slots__ = ("confirmed_start", "epochs", "epochs_changed", "leader_epoch", "replicated_to")

    def __init__(self, directory: str, log_start_offset: int) -> None:
        self.leader_epoch = 0
        self.epochs = LeaderEpochs(directory)
        self.epochs_changed = 0
        self.confirmed_start: int | None = log_start_offset
        self.replicated_to: int | None = None

    def fence(self, leader_epoch: int | None) -> None:
        """Check and set the leader epoch of an append; the caller must hold `lock`.

        Raises:
            FencedLeaderEpochError: the log has a higher leader epoch.
            TypeError, ValueError: the argument is not an epoch.
        """
        if leader_epoch is None:
            return
        leader_epoch = whole(leader_epoch, "leader_epoch", 0)
        if leader_epoch > EPOCH_MAX:
            raise ValueError(f"leader_epoch={leader_epoch} is not in 0..{EPOCH_MAX}")
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(leader_epoch=leader_epoch, current_epoch=self.leader_epoch)
        self.leader_epoch = leader_epoch

    def raise_to(self, leader_epoch: int) -> None:
        """Set the epoch for later appends.

        The caller must hold `lock`. Raises TypeError or ValueError.
        """
        leader_epoch = whole(leader_epoch, "leader_epoch")
        if not self.leader_epoch <= leader_epoch <= EPOCH_MAX:
            raise ValueError(
                f"leader_epoch={leader_epoch} is not in {self.leader_epoch}..{EPOCH_MAX}"
            )
        self.leader_epoch = leader_epoch

    def note(self, epoch: int, base_offset: int) -> None:
        """Remember that an epoch begins at an offset; the caller must hold `lock`."""
        if self.epochs.note(epoch, base_offset):
            self.epochs_changed += 1
        self.leader_epoch = max(self.leader_epoch, epoch)

    def lower_to(self, end_offset: int) -> None:
        """After a truncation, lower the high watermark to the log end.

        The caller must hold `lock`.
        """
        if self.replicated_to is not None:
            self.replicated_to = min(self.replicated_to, end_offset)
