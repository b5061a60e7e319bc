"""Report the findings and actions of an opening, per partition; `str()` gives a text for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from logstore.names import TopicPartition
from logstore.units import format_count


class RecoveryProgress(NamedTuple):
    """The progress of the opening of a store."""

    logs_done: int
    logs_total: int
    scanned_bytes: int
    log_dir: str
    topic_partition: TopicPartition


class OfflineEntry(NamedTuple):
    """A replica that is offline or incomplete, with the reason."""

    topic_partition: TopicPartition
    paths: tuple[str, ...]
    error: Exception


class OfflineDir(NamedTuple):
    """A log dir that does not work, with the reason."""

    path: str
    reason: str


class RecoveryReport:
    """The findings and actions of the opening of a store.

    Attributes:
        entries: the actions of recovery: one entry for each opened log, in the order of topic and
            partition.
        offline: the replicas that could not be opened.
        incomplete: the replicas that may lack records and are open for reading only. The error of
            each replica says what is missing.
        offline_dirs: the log dirs that do not work.
        lost: the replicas that were lost when an empty disk replaced their disk.
        damaged_files: the damaged files in a broker's log dirs that belong to no partition, each
            with a description of the damage.
        warnings: sentences about files that do not belong to the store, checkpoints that were not
            used, and everything else that was unexpected.
        listed_count: how many partitions a view has found; None for an owner. A view opens a log
            only when the log is first used.
        was_clean: whether every working log dir had been closed cleanly before the opening.
    """

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.offline: list[OfflineEntry] = []
        self.incomplete: list[OfflineEntry] = []
        self.offline_dirs: list[OfflineDir] = []
        self.lost: list[TopicPartition] = []
        self.damaged_files: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.listed_count: int | None = None
        self.was_clean = True
        self.seconds = 0.0

    def __repr__(self) -> str:
        count = len(self.entries) if self.listed_count is None else self.listed_count
        return (
            f"<RecoveryReport {format_count(count, 'log')}, "
            f"{format_count(self.cut_bytes, 'byte')} cut, "
            f"{format_count(len(self.problems), 'problem')}, "
            f"{format_count(len(self.warnings), 'warning')}>"
        )

    @property
    def cut_bytes(self) -> int:
        """Count the bytes of all torn tails that were cut off."""
        return sum(entry.cut_bytes for entry in self.entries)

    @property
    def scanned_bytes(self) -> int:
        """Count the bytes that recovery read and checked."""
        return sum(entry.scanned_bytes for entry in self.entries)

    @property
    def problems(self) -> list[Any]:
        """List the damage in all logs; the damaged bytes were not removed."""
        return [problem for entry in self.entries for problem in entry.problems]

    @property
    def findings(self) -> list[Any]:
        """List the damage that loses no record and prevents no append."""
        return [finding for entry in self.entries for finding in entry.findings]

    @property
    def is_sound(self) -> bool:
        """Return True if nothing is damaged, offline or lost."""
        away = self.offline or self.incomplete or self.offline_dirs or self.lost
        return not (self.problems or away)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _first_line(self) -> str:
        if self.listed_count is not None:
            found = format_count(self.listed_count, "partition")
            return f"{found} found; each log is opened and checked only at its first use"
        # A clean close can be missing because of a crash, a failed disk, or a dir that was OFFLINE.
        how = (
            " after a clean close"
            if self.was_clean
            else (", without a clean close before this start,")
        )
        return (
            f"{format_count(len(self.entries), 'log')} opened{how} in {self.seconds:.2f} s, "
            f"{format_count(self.scanned_bytes, 'byte')} scanned"
        )

    def _lines(self) -> Iterable[str]:
        yield self._first_line()
        for directory in self.offline_dirs:
            yield f"  log dir {directory.path} is offline: {directory.reason}"
        for replica in self.offline:
            yield f"  {replica.topic_partition} is offline: {replica.error}"
        for replica in self.incomplete:
            yield f"  {replica.topic_partition} is incomplete: {replica.error}"
        for key in self.lost:
            yield f"  {key} is lost: an empty disk replaced its disk"
        for entry in self.entries:
            yield from _entry_lines(entry)
        for warning in self.warnings:
            yield f"  {warning}"
        is_checked = self.listed_count is None
        if is_checked and self.is_sound and not self.warnings and not self.findings:
            yield "  no record is damaged or missing"


def _entry_lines(entry: Any) -> Iterable[str]:
    """Describe one log; return "" if there is nothing to report."""
    name = f"{entry.topic}-{entry.partition}"
    if entry.cut_bytes:
        cut = format_count(entry.cut_bytes, "byte")
        yield f"  {name}: a torn tail of {cut} was cut ({entry.cut_reason})"
    for problem in entry.problems:
        where = f"{problem.path} at {problem.position}"
        remedy = problem.remedy(entry.topic, entry.partition)
        yield f"  {name}: damage in {where}: {problem.name}: {problem.reason}; {remedy}"
    for finding in entry.findings:
        remedy = finding.remedy(entry.topic, entry.partition)
        yield f"  {name}: damage in {finding.path}: {finding.name}: {finding.reason}; {remedy}"
    for warning in entry.warnings:
        yield f"  {name}: {warning}"


class VerifiedLog(NamedTuple):
    """The findings of a verification in one log."""

    topic_partition: TopicPartition
    log_dir: str
    problems: tuple[Any, ...]
    error: Exception | None = None
    is_repairable: bool = True


class VerifyReport(NamedTuple):
    """The findings of a verification in all logs that were read."""

    logs: tuple[VerifiedLog, ...]

    @property
    def problems(self) -> list[Any]:
        """List all damage."""
        return [problem for log in self.logs for problem in log.problems]

    @property
    def is_sound(self) -> bool:
        """Return True if every log could be read and no log is damaged."""
        return not any(log.problems or log.error for log in self.logs)

    def __str__(self) -> str:
        logs = format_count(len(self.logs), "log")
        lines = [f"{logs} verified, {format_count(len(self.problems), 'problem')}"]
        for log in self.logs:
            if log.error is not None:
                lines.append(f"  {log.topic_partition}: {log.error}")
            for problem in log.problems:
                where = f"{problem.path} at {problem.position}"
                remedy = f"; {problem.remedy(*log.topic_partition)}" if log.is_repairable else ""
                reason = f"{problem.name} in {where}: {problem.reason}"
                lines.append(f"  {log.topic_partition}: {reason}{remedy}")
        return "\n".join(lines)
