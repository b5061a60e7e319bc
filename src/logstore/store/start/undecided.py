"""After a copy or a log dir was given up, decide again about replicas that are not open.

Without this module, undecided replicas would not be served before the next start. There are two
kinds of undecided replicas. Some replicas had two copies that contradicted each other, and now have
only one copy. Other replicas have only the unfinished copy of a move.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from logstore.errors import LogStoreError
from logstore.names import TopicPartition
from logstore.store.dirs.old_copies import conclude
from logstore.store.recovery_report import RecoveryReport
from logstore.store.start.loader import Loader
from logstore.store.upkeep.keeper import warn
from logstore.store.upkeep.purge import forget_postponed

if TYPE_CHECKING:
    from logstore.store.state import OwnerState


def decide_again(state: OwnerState, keys: Iterable[TopicPartition]) -> None:
    """Apply the start-up table to the replicas in `keys`, and to all undecided replicas.

    If a replica in `keys` stays closed or incomplete, this is logged. If no decision is possible
    now, the next start decides. Even if no decision is possible, the copy or log dir stays given
    up.
    """
    keys, replicas, report = set(keys), state.replicas, RecoveryReport()
    threads_per_dir = state.config.num_recovery_threads_per_data_dir
    loader = Loader(replicas, state.environment, report, threads_per_dir=threads_per_dir)
    try:
        loader.load_again(keys)
        doubted = [log_dir for log_dir in replicas.log_dirs if log_dir.generation.is_frozen]
        conclude(replicas, doubted, is_start=False)
    except LogStoreError as error:
        names = ", ".join(map(str, sorted(keys)))
        warn("the decision about %s is postponed to the next start: %s", names, error)
    forget_postponed(replicas, loader.purges)
    for doomed in loader.purges:
        replicas.purge(doomed)
    for entry in (*report.incomplete, *report.offline):
        if entry.topic_partition in keys:
            warn("%s", entry.error)
