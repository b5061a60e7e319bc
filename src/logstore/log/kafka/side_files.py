"""Compare the files that a broker keeps beside the segments with the batches in the segments.

An aborted transaction has an entry in the `.txnindex` of the segment that contains the
transaction's marker. The leader epochs of the batches must be the epochs in
`leader-epoch-checkpoint`. Compaction removes batches and markers. So if offsets are missing, fewer
entries are expected.
"""

from __future__ import annotations

import os

from logstore.disk import files
from logstore.format.kafka import files as kafka_files
from logstore.format.kafka.files import AbortedEntry
from logstore.log.kafka.side_scan import SideScan, read_or_report
from logstore.log.read.transactions import ABORT, BEGIN
from logstore.log.recovery.report import Problem

EPOCHS_NAME = "leader-epoch-checkpoint"
ABORTED_ENTRY_BYTES = 34


def check_aborted(scans: list[SideScan]) -> list[Problem]:
    """Compare each `.txnindex` with the markers in the log."""
    problems: list[Problem] = []
    begun: dict[int, int] = {}
    is_whole = bool(scans) and scans[0].base_offset == 0
    for scan in scans:
        path = scan.segment.aborted_index_path
        ended: dict[int, AbortedEntry | None] = {}
        for kind, producer_id, offset in scan.events:
            if kind == BEGIN:
                begun.setdefault(producer_id, offset)
                continue
            first = begun.pop(producer_id, None)
            stable = min([offset + 1, *begun.values()])
            is_aborted = kind == ABORT and first is not None
            entry = AbortedEntry(producer_id, first or 0, offset, stable)
            ended[offset] = entry if is_aborted else None
        is_whole = is_whole and not (scan.is_damaged or scan.is_compacted)
        data = read_or_report(path, problems, scan.base_offset)
        expected = [entry for entry in ended.values() if entry is not None]
        if data is None:
            if expected and is_whole and files.exists(scan.segment.index_path):
                reason = f"the file is missing, although {len(expected)} transactions were aborted"
                problems.append(_beside(path, 0, reason, scan))
            continue
        entries, fault = kafka_files.aborted_entries(data)
        if fault is not None:
            problems.append(_beside(path, fault.position, fault.reason, scan))
        for number, entry in enumerate(entries):
            reason = _disagrees(entry, ended, scan, is_whole)
            if reason:
                problems.append(_beside(path, number * ABORTED_ENTRY_BYTES, reason, scan))
        if is_whole and fault is None and len(entries) < len(expected):
            reason = f"{len(expected)} transactions were aborted, but {len(entries)} are listed"
            problems.append(_beside(path, len(data), reason, scan))
    return problems


def _beside(path: str, position: int, reason: str, scan: SideScan) -> Problem:
    return Problem(path, position, position, reason, scan.base_offset, scan.base_offset)


def _disagrees(
    entry: AbortedEntry, ended: dict[int, AbortedEntry | None], scan: SideScan, is_whole: bool
) -> str:
    expected = ended.get(entry.last_offset)
    if not scan.base_offset <= entry.last_offset < scan.offset and not scan.is_damaged:
        return (
            f"the segment does not contain offset {entry.last_offset}, at which the "
            "transaction ended"
        )
    if is_whole and expected is None:
        return f"no transaction was aborted at offset {entry.last_offset}"
    if expected is None or entry == expected:
        return ""
    if is_whole or entry.producer_id != expected.producer_id:
        return f"the log has {tuple(expected)}, but this entry has {tuple(entry)}"
    return ""


def check_epochs(
    directory: str, scans: list[SideScan], log_start_offset: int, *, was_stopped: bool
) -> list[Problem]:
    """Compare the leader epochs of the batches with the checkpoint; no checksum covers an epoch."""
    path = os.path.join(directory, EPOCHS_NAME)
    problems: list[Problem] = []
    data = read_or_report(path, problems, 0)
    entries, reason = ([], "") if data is None else kafka_files.epoch_entries(data)
    size = len(data or b"")
    if reason:
        return [Problem(path, 0, size, reason, 0, 0)]
    latest = -1
    for scan in scans:
        for epoch, offset in scan.epochs:
            reason = ""
            if epoch < latest and epoch != -1:
                reason = f"offset {offset} has leader epoch {epoch}, after leader epoch {latest}"
                problems.append(Problem(scan.segment.log_path, 0, 0, reason, offset, offset))
            latest = epoch if epoch != -1 else latest
            known = [row[0] for row in entries if row[1] <= offset] or [-1]
            # Soon after the first batch of an epoch, the broker writes the epoch into the file.
            # When the records of an epoch are deleted, the broker removes the epoch from the file.
            is_late = not entries or (epoch > entries[-1][0] and not was_stopped)
            if epoch == -1 or reason or is_late or offset < log_start_offset:
                continue  # epoch -1: a broker without leader epochs wrote the batch
            if known[-1] != epoch:
                reason = (
                    f"offset {offset} has leader epoch {epoch} in the log, but leader epoch "
                    f"{known[-1]} in this file"
                )
                problems.append(Problem(path, 0, size, reason, offset, offset))
    return problems


def check_snapshots(directory: str) -> list[Problem]:
    """Check each snapshot of the producers' state."""
    problems: list[Problem] = []
    for entry in sorted(files.entries(directory)):
        stem, _, suffix = entry.name.partition(".")
        if suffix != "snapshot" or not (stem.isdigit() and len(stem) == 20):
            continue
        path = os.path.join(directory, entry.name)
        data = read_or_report(path, problems, int(stem))
        fault = None if data is None else kafka_files.snapshot_fault(data, int(stem))
        if fault is not None:
            position, reason = fault
            problems.append(Problem(path, position, position, reason, int(stem), int(stem)))
    return problems


def check_files(
    directory: str, scans: list[SideScan], log_start_offset: int, *, was_stopped: bool
) -> list[Problem]:
    """Return the damage in the files beside a log's segments.

    Args:
        scans: the finished walks over the segments.
        was_stopped: whether the broker stopped cleanly.
    """
    for scan in scans:
        scan.finish()
    problems = [problem for scan in scans for problem in scan.found]
    problems += check_aborted(scans) + check_snapshots(directory)
    return problems + check_epochs(directory, scans, log_start_offset, was_stopped=was_stopped)
