"""Recognise, in files of version 0.1.0, a copy that came back after its partition was deleted.

After a swap, the old copy names the log dir of the copy that replaced it. If the recorded log dir
works and has no copy, there are two explanations. First, the user may have deleted the partition.
Version 0.1.0 removed the record of the deletion before the removal of the old copy was durable. So
a power cut could bring the old copy back. Second, the directory of the newer copy may be lost. Only
the user knows which explanation is true, so the old copy is reported and nothing else is done. In
files of a later version, the recorded log dir proves nothing, because an interrupted swap also
leaves this record.
"""

from __future__ import annotations

import os

from logstore.log import host
from logstore.log.log import Log
from logstore.log.metadata import FILE_NAME
from logstore.log.recovery.known_damage import is_of_0_1_0
from logstore.log.recovery.report import DamageName, Problem
from logstore.names import TopicPartition
from logstore.store.recovery_report import RecoveryReport
from logstore.store.replicas import Replicas


def tell(replicas: Replicas, report: RecoveryReport) -> None:
    """Report each copy that may have come back, and put the finding into its log for `verify`."""
    for key, (log, _) in list(replicas.opened.items()):
        judge(replicas, key, log)
    for key, incomplete in list(replicas.incomplete.items()):
        if not incomplete.others:
            found = judge(replicas, key, incomplete.log)
            if found is not None:
                remedy = found.remedy(*key)
                report.warnings.append(f"{key}: {found.name}: {found.reason}; {remedy}")


def judge(replicas: Replicas, key: TopicPartition, log: Log) -> Problem | None:
    """If the copy that replaced a log's copy is missing, report that the log may be deleted."""
    superseded = host.metadata_of(log).superseded_by
    if superseded is None or key in replicas.copies.moves or replicas.is_a_dir_bad():
        return None
    try:
        if not is_of_0_1_0(log.directory):
            return None
    except OSError:  # a read of the log reports the same failure
        return None
    for log_dir in replicas.log_dirs:
        if log_dir.directory_id == superseded.directory_id and log_dir.path != log.log_dir:
            path, end = os.path.join(log.directory, FILE_NAME), log.log_end_offset
            reason = (
                f"a copy of generation {superseded.generation} in {log_dir.path} replaced this "
                "copy, and is now missing"
            )
            found = Problem(path, 0, 0, reason, end, end, DamageName.RESURRECTED_PARTITION)
            log.recovery.findings.append(found)
            return found
    return None
