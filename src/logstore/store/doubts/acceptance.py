"""Accept an old copy of a log dir as the current log dir, after a decision of the user.

First, the user promotes or deletes a replica in doubt. As a result, this replica is removed from
the old copy's list of replicas in doubt, and the old copy begins a new generation. Finally, the
other log dirs record this generation.

The first decision about a replica accepts the whole log dir. From then on, the log dir accepts
records and replicas again. If the disk that was current before is mounted later, it counts as an
old copy of this log dir. So no record that is acknowledged from now on is lost unnoticed. Each
other replica stays incomplete until the user decides about it.
"""

from __future__ import annotations

from logstore.disk.calls import SYNCING, call
from logstore.disk.log_dir import LogDir
from logstore.disk.states import Event
from logstore.errors import LogDirError
from logstore.names import TopicPartition
from logstore.store.dirs.old_copies import has_witness, last_seen, witness_all
from logstore.store.replicas import Replicas


def check_decidable(replicas: Replicas, log_dir: LogDir) -> None:
    """Raise LogDirError if no other log dir could record that an old copy is accepted."""
    log_dir.check()
    others = [other for other in replicas.log_dirs if other is not log_dir]
    if not log_dir.is_outdated or not has_witness(replicas):
        return
    if not any(not other.is_refusing and not other.is_outdated for other in others):
        reason = (
            "it is an old copy, and no other log dir serves that could record its acceptance: "
            "first mount another log dir, or give up the other log dirs (logstore remove-dir "
            "--lost)"
        )
        raise LogDirError(path=log_dir.path, reason=reason)


def settle(replicas: Replicas, log_dir: LogDir, key: TopicPartition) -> None:
    """Write down durably that the user decided about a replica in doubt. Raises OSError.

    Raises:
        LogDirError: no other log dir has recorded that the old copy is accepted; the error is
            retriable.
    """
    if not log_dir.is_outdated and key not in log_dir.generation.doubts:
        return
    with call(log_dir.path, SYNCING):
        log_dir.generation.settle(key, last_seen(replicas, log_dir))
    if log_dir.is_outdated:
        replicas.catalog.unsure_ids -= {log_dir.directory_id}
        witness_all(replicas)
        _check_witnessed(replicas, log_dir)
        log_dir.change(Event.ACCEPTED)


def _check_witnessed(replicas: Replicas, log_dir: LogDir) -> None:
    """Raise LogDirError if no other log dir has recorded the generation of an accepted copy.

    The other log dirs may have failed, or hang, or be full. If no other log dir knew of the
    acceptance, a later start would serve the disk that was current before, and ignore the
    acceptance.
    """
    current, id_ = log_dir.generation.current, log_dir.directory_id
    seen = [d.generation.seen.get(id_) for d in replicas.log_dirs if not d.is_away]
    if has_witness(replicas) and not any(one and one.generation == current for one in seen):
        reason = "no other log dir could record the acceptance of this old copy; try again"
        raise LogDirError(path=log_dir.path, reason=reason, retriable=True)


def is_missing(replicas: Replicas, key: TopicPartition) -> bool:
    """Check whether a replica is offline because the old copy of its log dir lacks the replica."""
    offline = replicas.offline.get(key)
    return offline is not None and offline.is_missing


def give_up(replicas: Replicas, key: TopicPartition) -> bool:
    """Forget a replica that an old copy lacks and the user gave up. Raises LogStoreError.

    If `is_missing` is False for the replica, do nothing, and return False.
    """
    offline = replicas.offline.get(key)
    if offline is None or not offline.is_missing:
        return False
    log_dir = offline.log_dir
    check_decidable(replicas, log_dir)
    try:
        settle(replicas, log_dir, key)
    except OSError as error:
        raise log_dir.failed(error) from error
    replicas.remove(key)
    replicas.catalog.note(key, None)
    return True
